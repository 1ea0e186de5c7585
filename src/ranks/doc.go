// Package ranks is the wing of several ranks at once: how they exchange data, and in which order
// each of them starts its collectives. Ranks that start collectives in different orders wait for
// each other without end, so one schedule is computed on all of them. It holds no code itself.
//
//	rank 0   pool: prepare ──> issuer: start ─┐             ┌─> wait ──> pool ──> consume in order
//	                                          ├─ collective ┤
//	rank 1   pool: prepare ──> issuer: start ─┘             └─> wait ──> pool ──> consume in order
//	         many items at once, one order of starts           results arrive at any time
//
// Its packages, which do not import each other:
//
//	comm      the contract between ranks; ranks as goroutines; the reproducible sum; comm/mpi
//	pipeline  items prepared wide and finished in order
//
// Begin with the interfaces of comm/comm.go, then comm/group.go, where ranks are goroutines of one
// process and a collective is a meeting. pipeline/pipeline.go draws the stages and
// pipeline/schedule.go has the order of starts. comm/sum.go adds the ranks' gradients in order
// (between GPUs kernels/cuda/reduce.cu does). comm/mpi/communicator.go is the same on MPI, whose
// calls are in comm/mpi/engine.c, those of an exchange of ids and rows in comm/mpi/then.go.
package ranks
