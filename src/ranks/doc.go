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
// one process and a collective is a meeting. The stages are drawn in pipeline/pipeline.go, and
// pipeline/schedule.go has the order of starts. The file comm/sum.go adds the ranks' gradients in
// order (between GPUs, kernels/cuda/reduce.cu does). The interfaces are implemented on MPI in
// comm/mpi/communicator.go. The MPI calls are in comm/mpi/engine.c, and comm/mpi/then.go has the
// exchange of ids and rows.
package ranks
