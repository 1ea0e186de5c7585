// Package ranks groups the packages about several ranks at once: how they exchange data, and in
// which order each of them starts its collectives. Ranks that start collectives in different orders
// would wait for each other without end, so all ranks compute the same schedule. The package itself
// holds no code.
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
// Begin with the interfaces of comm/comm.go. Then read comm/group.go, where ranks are goroutines of
// one process and a collective is a meeting. The file pipeline/pipeline.go has a drawing of the
// stages, and pipeline/schedule.go the order of starts. The file comm/sum.go adds the gradients of
// all ranks in rank order; if ranks have GPUs, kernels/cuda/reduce.cu does this. The file
// comm/mpi/communicator.go implements the interfaces with MPI. The MPI calls are in
// comm/mpi/engine.c, and comm/mpi/then.go exchanges ids and rows in one operation.
package ranks
