// Package data is the wing of directories on disk: the graph as it was imported, the same graph cut
// into parts, and what a run leaves. Most files are NumPy arrays, each with a checksum. No package
// here knows of ranks. Package data itself has no code, only packages.
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
// Begin with dataset/dataset.go and shard/shard.go, which draw the two directories file by file.
// shard/open.go maps the parts of a rank, with the help of npy/map.go. Of the importers, read
// dataset/import.go, which has the table of formats, and dataset/import_edgelist.go as an example.
package data
