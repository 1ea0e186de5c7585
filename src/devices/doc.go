// Package devices is the wing of the hardware that computes: the kernels of GNN layers on CPUs and
// GPUs, and what a node tells about the energy and the profilers of its processors and GPUs. Only
// compute/cuda calls CUDA. It holds no code itself.
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
// Begin with compute/compute.go, then read one kernel through: its contract in compute/segment.go,
// its definition in compute/ref/segment.go, its loops in kernels/cpu/segment.c. compute/computetest
// compares every device with the reference. A new kernel begins as a row of
// kernels/include/halognn_kernels.def; kernels for GPUs are in kernels/cuda.
package devices
