// Package cuda is the compute backend for one NVIDIA GPU: the kernels of kernels/cuda and cuBLAS,
// in libhalognn_cuda.so, which is loaded when a device is opened. The same program runs without it.
//
//	host                     stream UP            stream COMPUTE               stream DOWN
//	rows of minibatch i+1 ─┐
//	 (resident ones are    ├ pinned ─ one copy ─> staging buffer i+1
//	  on the device)       ┘                       └ event ─> gather, means,
//	                                                          layers, loss,
//	                                                          backward by layer
//	                                                           └ event ─> gradients ─> pinned
//
//	device memory    one arena, allocated at the start:
//	                 resident rows | parameters, moments | activations | staging buffers
//
// The package manages the arena itself, so no step allocates from the driver, and an error can say
// how much memory each use takes. Kernels give the bits of the CPU's C kernels except matrix
// products, LayerNorm, losses and attention, which add in another, fixed order.
//
// Without a GPU the same library is built for the host (make -C kernels emulated), and this
// package's tests run every kernel and every wait with it.
package cuda

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"halognn/src/devices/compute"
)

// Options say which device Open opens and how much of its memory it uses.
type Options struct {
	Device  int  // -1: the device of LocalRank
	Memory  int  // bytes of the arena; 0: Free, less a reserve, divided by Sharing
	Free    int  // free bytes before any process took its arena; 0: those free now
	Sharing int  // number of processes that share the device; 0 means 1
	Apart   bool // allocates every array separately, so that tools see overruns
	// precision of the factors of products: float32 (or empty), or bf16 or tf32 on tensor cores
	Precision compute.Precision
	Library   string // path of the library; "": where Find looks
}

// ErrNoLibrary is wrapped by the error of Open where libhalognn_cuda.so cannot be loaded.
var ErrNoLibrary = errors.New("the CUDA library of halognn cannot be loaded")

// ErrMemory is wrapped by errors about too little device memory.
var ErrMemory = compute.ErrMemory

// localRankNames are the variables in which launchers give the rank within its node: Open MPI;
// MPICH's Hydra and Intel MPI; MVAPICH; Cray's and PBS's PALS; Flux; IBM's jsrun; Slurm. Slurm
// comes last, because programs that a batch script launches inherit the variable of the script.
var localRankNames = []string{
	"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
	"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK", "FLUX_TASK_LOCAL_ID",
	"JSM_NAMESPACE_LOCAL_RANK", "SLURM_LOCALID",
}

// LocalRank returns the rank of this process within its node, and the launcher's variable that
// gives it; 0 and "" if there is none. It is known before MPI starts, and an MPI may require that
// the device is chosen first.
func LocalRank() (rank int, variable string) {
	for _, name := range localRankNames {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n >= 0 {
			return n, name
		}
	}
	return 0, ""
}

// Choice is the device that a process has chosen with Choose.
type Choice struct {
	Device, Devices int    // Device is the number of one of the Devices that this process sees
	ID              string // id of the device, independent of its number in a process
	Free            int    // bytes that were free besides earlier contexts
}

// Shared returns how many processes of a node have chosen this device, and the least free bytes
// that any of them saw. ids and free are those of all processes of the node. If more processes
// share the device than necessary, as when none knows its local rank, it returns an error; variable
// names the environment variable from which the local rank was read.
func (c *Choice) Shared(ids []string, free []int, variable string) (processes, least int,
	err error) {
	least = c.Free
	for i, id := range ids {
		if id == c.ID {
			processes++
			least = min(least, free[i])
		}
	}
	if most := (len(ids) + c.Devices - 1) / c.Devices; processes > most {
		return processes, least, fmt.Errorf("compute/cuda: %d of the %d ranks of this node have "+
			"chosen one GPU, by %s, though each sees %d: start them with the launcher of their "+
			"MPI (mpirun, srun), which numbers them, or give each its own (srun "+
			"--gpus-per-task=1, or CUDA_VISIBLE_DEVICES)", processes, len(ids), variable, c.Devices)
	}
	return processes, least, nil
}

// share returns the bytes of an arena on a device with the given free bytes. It leaves a reserve
// for the driver, for the code of kernels, which is loaded at their first call, and for others.
func share(free, memory, processes int) int {
	reserve := min(max(memory/20, 256<<20), memory/4)
	return max(0, free-reserve) / max(1, processes)
}

// choose returns the device for a local rank: devices are assigned in order, round robin if there
// are more ranks.
func choose(device, devices, localRank int) (int, error) {
	switch {
	case devices == 0:
		return 0, errors.New("compute/cuda: this process sees no GPU; is one allocated to the " +
			"job (--gpus-per-task), and is CUDA_VISIBLE_DEVICES not empty?")
	case device < 0:
		return localRank % devices, nil
	case device >= devices:
		return 0, fmt.Errorf("compute/cuda: there is no device %d; this process sees %d", device,
			devices)
	}
	return device, nil
}
