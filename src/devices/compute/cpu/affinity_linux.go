package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxCPUs is the number of CPUs in a unix.CPUSet.
const maxCPUs = len(unix.CPUSet{}) * 64

// AllowedCPUs returns the CPUs that the calling thread may run on, in ascending order. These are
// the CPUs to which the launcher or Slurm has bound the process. Call it before any thread is
// pinned.
func AllowedCPUs() ([]int, error) {
	cpus, err := allowed(0)
	if err != nil {
		return nil, fmt.Errorf("compute/cpu: reading the CPUs this process may run on: %w", err)
	}
	return cpus, nil
}

// launchers are the programs that start MPI ranks. They bind the ranks to CPUs, but are not bound
// themselves.
var launchers = []string{"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted",
	"hydra_pmi_proxy"}

// LauncherCPUs returns the CPUs to which the MPI launcher on this node may bind its ranks. If no
// launcher has started this process, it returns none.
func LauncherCPUs() []int {
	parent := os.Getppid()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || !slices.Contains(launchers, strings.TrimSpace(string(name))) {
		return nil
	}
	cpus, err := allowed(parent)
	if err != nil {
		return nil
	}
	return cpus
}

// allowed returns the CPUs that the thread with this id may run on. The id 0 means the calling
// thread.
func allowed(id int) ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(id, &set); err != nil {
		return nil, err
	}
	var cpus []int
	for c := range maxCPUs {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}

func pin(cpus []int) error { return pinThread(0, cpus) }

func pinThread(id int, cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		if c < 0 || c >= maxCPUs {
			return fmt.Errorf("compute/cpu: there is no CPU %d", c)
		}
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(id, &set); err != nil {
		return fmt.Errorf("compute/cpu: pinning a thread to CPUs %v: %w; are they in the set "+
			"that the launcher gave this process?", cpus, err)
	}
	return nil
}
