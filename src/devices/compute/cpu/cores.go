package cpu

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// PinThread locks the calling goroutine to its OS thread for ever, and binds the thread to the
// given CPUs. If these are several, the system may move the thread between them.
func PinThread(cpus ...int) error {
	if len(cpus) == 0 {
		return fmt.Errorf("compute/cpu: no CPU to pin a thread to")
	}
	runtime.LockOSThread()
	return pin(cpus)
}

// PlanCores divides the CPUs a rank may use between the threads that compute and the goroutines
// that prepare minibatches.
//
//	enough CPUs        compute [c0 c1 c2]  prepare [c3 c4]           no CPU is in both lists
//	fewer              compute [c0 c1]     prepare [c3 c1 c0]        shared; free CPUs first
//	threads > CPUs     compute nil         prepare all               shared: pinned threads
//	                                                                 would share a CPU
//
// The result compute has one CPU for each thread, for Options.CPUs. These CPUs are in one NUMA node
// as far as possible, and the second hyperthread of a core is used only when every core is in use.
// If allowed is empty, no thread has to be pinned, and both lists are nil. The result shared says
// whether threads and goroutines have to share CPUs.
func PlanCores(allowed []int, computeThreads, workers int) (compute, prepare []int, shared bool) {
	return planCores(readCores("/sys/devices/system/cpu", allowed), computeThreads, workers)
}

// Place is the position of a CPU: its NUMA domain and its core. A core has the number of its first
// hyperthread.
type Place struct{ CPU, Domain, Core int }

// Places returns the positions of CPUs. If the system does not provide them, it puts all CPUs into
// one domain, each on a core of its own.
func Places(cpus []int) []Place {
	var places []Place
	for _, c := range readCores("/sys/devices/system/cpu", cpus) {
		places = append(places, Place{c.cpu, c.node, c.sibling})
	}
	return places
}

// core is the position of a CPU: its NUMA node, and the number of the first hyperthread of its
// core, sibling. All hyperthreads of a core have the same sibling.
type core struct{ cpu, node, sibling int }

func planCores(cores []core, computeThreads, workers int) (compute, prepare []int, shared bool) {
	all := byPreference(cores)
	if computeThreads > len(all) || computeThreads < 1 {
		return nil, all, true
	}
	compute, prepare = all[:computeThreads:computeThreads], slices.Clone(all[computeThreads:])
	shared = workers > len(prepare)
	if shared {
		for _, c := range slices.Backward(compute) {
			prepare = append(prepare, c)
		}
	}
	return compute, prepare, shared
}

// byPreference sorts CPUs for computing. The NUMA node with the most allowed CPUs comes first.
// Within a node, the first hyperthreads of all cores come before the second ones.
func byPreference(cores []core) []int {
	inNode := make(map[int]int)
	for _, c := range cores {
		inNode[c.node]++
	}
	cores = slices.Clone(cores)
	slices.SortFunc(cores, func(a, b core) int { return a.cpu - b.cpu })
	threads := make(map[[2]int]int) // number of hyperthreads of each core so far
	rank := make(map[int]int)
	for _, c := range cores {
		key := [2]int{c.node, c.sibling}
		rank[c.cpu] = threads[key]
		threads[key]++
	}
	slices.SortStableFunc(cores, func(a, b core) int {
		return cmp.Or(inNode[b.node]-inNode[a.node], a.node-b.node, rank[a.cpu]-rank[b.cpu],
			a.cpu-b.cpu)
	})
	var order []int
	for _, c := range cores {
		order = append(order, c.cpu)
	}
	return order
}

// readCores reads the positions of CPUs from sysfs. If sysfs is hidden (in containers) or absent
// (on other systems), it assumes one NUMA node whose cores have one hyperthread each.
func readCores(sysfs string, cpus []int) []core {
	var cores []core
	for _, c := range cpus {
		dir := filepath.Join(sysfs, "cpu"+strconv.Itoa(c))
		at := core{cpu: c, sibling: c}
		if nodes, _ := filepath.Glob(filepath.Join(dir, "node[0-9]*")); len(nodes) > 0 {
			at.node, _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(nodes[0]), "node"))
		}
		if list, err := os.ReadFile(filepath.Join(dir, "topology", "thread_siblings_list")); err ==
			nil {
			first := strings.FieldsFunc(string(list),
				func(r rune) bool { return r < '0' || r > '9' })
			if len(first) > 0 {
				at.sibling, _ = strconv.Atoi(first[0])
			}
		}
		cores = append(cores, at)
	}
	return cores
}
