// Package cuda is the compute backend for one NVIDIA GPU: the kernels of kernels/cuda and cuBLAS, in libhalognn_cuda.so, which is
// loaded when a device is opened. The same program runs without it.
//
//	host                          stream UP               stream COMPUTE                    stream DOWN
//	rows of minibatch i+1 ──┐
//	 (hot ones lie on the   ├ pinned ── one copy ──> inbox i+1
//	  device already)       ┘                          └ event ──> gather, means ──> layers, loss
//	                                                               backward, layer by layer ── event ──> gradients ──> pinned
//
//	device memory    one arena, allocated at the start: hot rows | parameters, moments | activations | inboxes
//
// The arena is the package's own, so no step allocates from the driver, and an error can say what takes how much. Kernels give the bits of
// the plain reference but for matrix products, LayerNorm and losses, whose sums run in another, fixed order.
//
// Without a GPU the same library is built for the host (make -C kernels emulated), and this package's tests run every kernel and every
// wait on it.
package cuda

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Options say which device is opened and how much of it is used.
type Options struct {
	Device  int    // -1: the one that LocalRank says
	Memory  int    // bytes of the arena; 0: what is free, divided by Sharing, less a reserve
	Sharing int    // processes that share the device; 0 is 1
	Library string // path of the library; "": where Find looks
}

// ErrNoLibrary is wrapped by the error of Open where libhalognn_cuda.so cannot be loaded.
var ErrNoLibrary = errors.New("the CUDA library of halognn cannot be loaded")

// ErrMemory is wrapped by errors about device memory that has run out.
var ErrMemory = errors.New("the device has too little memory")

// localRankNames are what launchers call the rank within its node: Open MPI, MPICH and its descendants, MVAPICH, Slurm.
var localRankNames = []string{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}

// LocalRank returns the rank of this process among those of its node, as its launcher says; 0 where none does. It is known before MPI
// starts, which may want the device to be chosen.
func LocalRank() int {
	for _, name := range localRankNames {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n >= 0 {
			return n
		}
	}
	return 0
}

// choose returns the device for a local rank: one after the other, and from the start again if there are more ranks.
func choose(device, devices, localRank int) (int, error) {
	switch {
	case devices == 0:
		return 0, errors.New("compute/cuda: this process sees no GPU; is one allocated to the job (--gpus-per-task), and is CUDA_VISIBLE_DEVICES not empty?")
	case device < 0:
		return localRank % devices, nil
	case device >= devices:
		return 0, fmt.Errorf("compute/cuda: there is no device %d; this process sees %d", device, devices)
	}
	return device, nil
}
