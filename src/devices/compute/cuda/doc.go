// Package cuda implements compute.Device on one NVIDIA GPU. It calls cuBLAS and the kernels of
// kernels/cuda, which are in the library libhalognn_cuda.so. The library is loaded when a device is
// opened, so the same program runs without it.
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
// how much memory each use takes. Kernels give the same bits as the C kernels of the CPU.
// Exceptions are matrix products, LayerNorm, losses and attention, which add in another order that
// is also fixed.
//
// The same library can be built to run on the host (make -C kernels emulated). Without a GPU, this
// package's tests use it to run every kernel and every wait.
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
	Device int // number of the device; -1: the device for LocalRank
	Memory int // bytes of the arena; 0: the bytes in Free, less a reserve, divided by Sharing
	// bytes that were free before any process allocated its arena; 0: the bytes that are free now
	Free    int
	Sharing int // number of processes that share the device; 0 means 1
	// whether every array is allocated separately, so that tools detect accesses beyond its end
	Apart bool
	// Number of blocks from which on each thread of a sum over segments takes several of them; 0:
	// the device's own, which small tests do not reach.
	Large int
	// precision of the factors of products: float32 (or empty), or bf16 or tf32 on tensor cores
	Precision compute.Precision
	Library   string // path of the library; "": the library that Find finds
}

// ErrNoLibrary is wrapped by the error of Open if libhalognn_cuda.so cannot be loaded.
var ErrNoLibrary = errors.New("the CUDA library of halognn cannot be loaded")

// ErrMemory is wrapped by errors about too little device memory.
var ErrMemory = compute.ErrMemory

// localRankNames are the variables in which launchers give the rank of a process within its node.
// They are those of Open MPI, of MPICH's Hydra and Intel MPI, of MVAPICH, of PALS (Cray and PBS),
// of Flux, of IBM's jsrun, and of Slurm. Slurm comes last, because programs that a batch script
// launches inherit the variable of the script.
var localRankNames = []string{
	"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
	"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK", "FLUX_TASK_LOCAL_ID",
	"JSM_NAMESPACE_LOCAL_RANK", "SLURM_LOCALID",
}

// LocalRank returns the rank of this process within its node, and the name of the launcher's
// variable that gives it. If there is no such variable, it returns 0 and "". LocalRank does not
// need MPI, because some MPI libraries require that the device is chosen before MPI starts.
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
	// Devices is the number of devices that this process sees, and Device the index of the chosen
	// one
	Device, Devices int
	ID              string // id of the device, which is the same in all processes
	// bytes of device memory that were free when the process had made its context
	Free int
}

// Shared returns how many processes of a node have chosen this device, and the least free bytes
// that any of them saw. The arguments ids and free have the ID and Free of all processes of the
// node. If more processes share the device than necessary, for example because no process knows its
// local rank, Shared returns an error. The argument `variable` is the name of the environment
// variable from which the local rank was read.
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
// for the driver, for other programs, and for the code of kernels, which is loaded at their first
// call.
func share(free, memory, processes int) int {
	reserve := min(max(memory/20, 256<<20), memory/4)
	return max(0, free-reserve) / max(1, processes)
}

// choose returns the number of the device for a local rank. Devices are assigned to ranks in order.
// If there are more ranks than devices, it begins again with the first device.
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
