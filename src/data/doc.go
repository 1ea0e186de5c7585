// Package data is the wing of directories on disk: the graph as it was imported, the same cut into
// parts, and what a run leaves. Most files are NumPy arrays, each with a checksum. It knows no
// ranks. It holds no code itself.
//
//	foreign files ── import ──> DATASET/ ── partition ──> PARTS/ ── train ──> RUN/
//	                 generate ────^              │           │                 checkpoints, records
//	                          presample: weights ┘           └─> mapped by the ranks of a node
//
// Its packages, each of which imports only those above it:
//
//	rundir     the run directory: names, lock, heartbeat, checkpoint files, the log of steps
//	dataset    importers, generators, the DATASET directory
//	presample  what sampling draws before training: weights for partitions
//	shard      the PARTS directory
//
// Begin with dataset/dataset.go and shard/shard.go, which draw the two directories file by file;
// shard/open.go maps the parts of a rank, by npy/map.go. Of the importers read dataset/import.go,
// the table of formats, and dataset/import_edgelist.go as one of them.
package data
