// Package devices groups the packages about the hardware that computes: the kernels of GNN layers
// on CPUs and GPUs, the counters of the energy that they use, and an interface to the profilers of
// GPUs. Only compute/cuda calls CUDA. The package itself holds no code.
//
//	layer ──> compute.Device ─┬─ compute/ref    plain Go: the definition of every kernel
//	                          ├─ compute/cpu    BLAS, oneDNN, C kernels on pinned threads
//	                          └─ compute/cuda   a GPU, with memory of its own
//	              │
//	              └─ Probe: bytes and operations of a call ──> compute/meter
//
// Its packages, which do not import each other:
//
//	energy   joules of processors, memory and GPUs
//	nvtx     named ranges of time for NVIDIA's profilers
//	compute  the interface of a device, and the devices below it
//
// Begin with compute/compute.go. Then follow one kernel through the files: its interface in
// compute/segment.go, its definition in compute/ref/segment.go, and its loops in
// kernels/cpu/segment.c. Package compute/computetest compares every device with the reference. To
// add a kernel, begin with a row of kernels/include/halognn_kernels.def. Kernels for GPUs are in
// kernels/cuda.
package devices
