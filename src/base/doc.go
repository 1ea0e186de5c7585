// Package base is the wing that all others use: memory, files, random words, time. It knows no
// graphs, ranks or devices. It holds no code itself.
//
//	arrays ──> Make ──> memory outside the Go heap <── Map <── .npy files on disk
//	                       │                                      │
//	                       └── pages shared by the ranks of a node ┘
//	key ──> Mix ──> the same random word on every machine
//	work ──> Clock, Recorder ──> totals of a rank, spans for Perfetto
//
// Its packages, each of which imports only those above it:
//
//	fault      points at which tests make things go wrong
//	invariant  checks that cost as much as the work that they check
//	flock      locks on files, between processes of a node
//	interrupt  signals: the first asks the process to end, the second ends it
//	mem        arrays outside the Go heap, mapped files
//	random     random words that are pure functions of a key
//	npy        NumPy files
//	timing     CPU time of a thread, medians
//	trace      time per phase, the time model of a step, spans
//	chart      curves and bars on pages
//
// Begin with mem/mem.go: nearly every array of the program comes from Make. Then random/random.go,
// on which reproducible sampling rests.
package base
