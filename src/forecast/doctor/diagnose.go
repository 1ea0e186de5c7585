package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"halognn/src/devices/compute/cpu"
)

const (
	// free bytes of /dev/shm below which MPI's buffers, or topology.load=copy, may not fit
	leastShared = 256 << 20
	// bytes that a process must be allowed to lock, so that InfiniBand can register buffers
	leastLocked = 64 << 20
	slowRank    = 0.5 // a rank below this share of the median rate is slow
)

// MoreLocked says how to raise the limit of locked memory. InfiniBand registers buffers within that
// limit.
const MoreLocked = "ulimit -l unlimited in the environment of the launcher (Slurm: " +
	"LimitMEMLOCK=infinity in slurmd's unit)"

// diagnose returns what is wrong, according to the facts of all ranks.
func diagnose(ranks []Rank, dir string) []Finding {
	var found []Finding
	for _, check := range []func([]Rank) []Finding{mixed, slowBuilds, crowded, unbound, overlapping,
		sharedCores, spanning, slowRanks, limited, halted} {
		found = append(found, check(ranks)...)
	}
	return append(found, filesystem(ranks, dir)...)
}

func warning(cure, format string, args ...any) Finding {
	return Finding{Text: fmt.Sprintf(format, args...), Cure: cure}
}

// who returns text that names ranks: "rank 3", "ranks 0-2,5".
func who(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("rank %d", list[0])
	}
	return "ranks " + ranges(list)
}

// where returns text that names ranks and their hosts: "ranks 2-3 (node1)", "ranks 2-5 (node1,
// node2)". It names the first few hosts only.
func where(ranks []Rank, list []int) string {
	const most = 3
	var hosts []string
	for _, r := range list {
		if !slices.Contains(hosts, ranks[r].Host) {
			hosts = append(hosts, ranks[r].Host)
		}
	}
	if len(hosts) > most {
		hosts = append(hosts[:most], fmt.Sprintf("%d more", len(hosts)-most))
	}
	return fmt.Sprintf("%s (%s)", who(list), strings.Join(hosts, ", "))
}

// same returns the value that the rank has in Same for a name, or "". Another version of the
// program may not have the name.
func (r *Rank) same(name string) string {
	for _, s := range r.Same {
		if s[0] == name {
			return s[1]
		}
	}
	return ""
}

// mixed finds programs and libraries that differ between ranks. Each value other than that of rank
// 0 is a finding.
func mixed(ranks []Rank) (found []Finding) {
	for _, first := range ranks[0].Same {
		other := map[string][]int{}
		for r := range ranks {
			if v := ranks[r].same(first[0]); v != first[1] {
				other[v] = append(other[v], r)
			}
		}
		for _, v := range slices.Sorted(maps.Keys(other)) {
			found = append(found, Finding{true,
				fmt.Sprintf("%s differs: on %s it is %q, on rank 0 (%s) it is %q",
					first[0], where(ranks, other[v]), v,
					ranks[0].Host, first[1]),
				"start one program, and load the same modules, on every node"})
		}
	}
	return found
}

// slowBuilds finds programs that were not built for speed.
func slowBuilds(ranks []Rank) (found []Finding) {
	// Only rank 0 is examined. The other ranks run the same program, or the function `mixed` has
	// reported that they do not.
	if slow := ranks[0].Slow; len(slow) > 0 {
		found = append(found,
			warning("build it with `make`", "the program is slow: %s", strings.Join(slow, ", ")))
	}
	return found
}

// nodes returns the ranks of every node. The nodes are in the order of their lowest ranks.
func nodes(ranks []Rank) [][]int {
	at := map[int][]int{}
	for r, rank := range ranks {
		at[rank.Node] = append(at[rank.Node], r)
	}
	var list [][]int
	for _, n := range slices.Sorted(maps.Keys(at)) {
		list = append(list, at[n])
	}
	return list
}

// crowded finds nodes with more ranks than CPUs.
func crowded(ranks []Rank) (found []Finding) {
	for _, node := range nodes(ranks) {
		cpus := map[int]bool{}
		for _, r := range node {
			for _, p := range ranks[r].Allowed {
				cpus[p.CPU] = true
			}
		}
		if len(cpus) < len(node) {
			found = append(found, warning(fmt.Sprintf("start at most %d ranks a node "+
				"(--ntasks-per-node=%[1]d, or mpirun --npernode %[1]d), or give the job more CPUs",
				len(cpus)),
				"oversubscribed: %d ranks on the %d CPUs of %s", len(node), len(cpus),
				ranks[node[0]].Host))
		}
	}
	return found
}

// unbound finds nodes on which the launcher leaves CPUs without a rank.
func unbound(ranks []Rank) (found []Finding) {
	for _, node := range nodes(ranks) {
		var used, has []int
		for _, r := range node {
			used, has = append(used, cpus(ranks[r].Allowed)...), append(has, ranks[r].Has...)
		}
		if text, cure := Unbound(len(node), used, has); text != "" {
			found = append(found, warning(cure, "%s of %s", text, ranks[node[0]].Host))
		}
	}
	return found
}

// Unbound says to which CPUs of a node no rank is bound, and what to do. Both texts are empty if
// every CPU has a rank. The node has the given number of ranks. The CPUs that the launcher has on
// the node are listed in `has`, and the CPUs that it gave to ranks are listed in `used`.
func Unbound(ranks int, used, has []int) (text, cure string) {
	slices.Sort(has)
	has = slices.Compact(has)
	idle := slices.DeleteFunc(slices.Clone(has),
		func(c int) bool { return slices.Contains(used, c) })
	if len(idle) == 0 {
		return "", ""
	}
	cure = "start with --bind-to none"
	if each := len(has) / ranks; each > 1 {
		cure += fmt.Sprintf(", or --map-by slot:PE=%d", each)
	}
	return fmt.Sprintf("unused: no rank is bound to CPUs %s", ranges(idle)), cure
}

// overlapping finds ranks bound to sets of CPUs that overlap but differ. Equal sets are no problem:
// the program divides them.
func overlapping(ranks []Rank) (found []Finding) {
	for _, node := range nodes(ranks) {
		for i, a := range node {
			for _, b := range node[:i] {
				mine, other := cpus(ranks[a].Allowed), cpus(ranks[b].Allowed)
				if slices.Equal(mine, other) ||
					!slices.ContainsFunc(mine,
						func(c int) bool { return slices.Contains(other, c) }) {
					continue
				}
				found = append(found, warning("bind ranks apart: srun --cpu-bind=cores with "+
					"--cpus-per-task, or mpirun --map-by slot:PE=N --bind-to core",
					"wrong binding: ranks %d (CPUs %s) and %d (CPUs %s) of %s have some CPUs in "+
						"common", b, ranges(other), a, ranges(mine), ranks[a].Host))
				return found // one finding is enough: other ranks have the same cause
			}
		}
	}
	return found
}

// sharedCores finds ranks on different hyperthreads of one core.
func sharedCores(ranks []Rank) (found []Finding) {
	for _, node := range nodes(ranks) {
		owner := map[int]int{} // the rank that uses a core
		for _, r := range node {
			for _, p := range ranks[r].CPUs {
				first, taken := owner[p.Core]
				if taken && first != r &&
					!slices.ContainsFunc(ranks[first].CPUs,
						func(q cpu.Place) bool { return q.CPU == p.CPU }) {
					found = append(found, warning("bind ranks to whole cores: srun "+
						"--hint=nomultithread, or mpirun --bind-to core",
						"wrong binding: ranks %d and %d of %s compute on two hyperthreads of one "+
							"core", first, r, ranks[r].Host))
					return found
				}
				if !taken {
					owner[p.Core] = r
				}
			}
		}
	}
	return found
}

// spanning finds ranks whose CPUs are in several NUMA domains.
func spanning(ranks []Rank) (found []Finding) {
	var wide []int
	for r, rank := range ranks {
		if len(domains(rank.CPUs)) > 1 {
			wide = append(wide, r)
		}
	}
	if len(wide) > 0 {
		first := ranks[wide[0]]
		found = append(found, warning("start one rank per NUMA domain, or several: mpirun "+
			"--map-by ppr:1:numa --bind-to numa, or srun --cpu-bind=ldoms with "+
			"--ntasks-per-node=DOMAINS",
			"wrong binding: the CPUs of %s span NUMA domains (%s on %s)", who(wide),
			ranges(domains(first.CPUs)), first.Host))
	}
	return found
}

// slowRanks finds ranks that compute much more slowly than most. The others wait for them at every
// step.
func slowRanks(ranks []Rank) (found []Finding) {
	var rates []float64
	for _, r := range ranks {
		if len(r.CPUs) == 0 {
			return nil // ranks take turns on the CPUs, so the rates only show their shares
		}
		rates = append(rates, r.GEMM/float64(r.Threads))
	}
	// Of two ranks the faster one is the median here, so that the other can count as slow.
	// timing.Median would return their mean.
	sorted := slices.Sorted(slices.Values(rates))
	median := sorted[len(sorted)/2]
	for r, rate := range rates {
		if rate < slowRank*median {
			found = append(found, warning("look for other work on its cores (top), throttling, "+
				"or another kind of CPU; leave the node out with --exclude",
				"rank %d (%s) multiplies matrices at %.1f GFLOP/s a thread, the median rank at "+
					"%.1f. All ranks wait for it at every step",
				r, ranks[r].Host, rate/1e9, median/1e9))
		}
	}
	return found
}

// limited finds system limits that are too tight. A finding names the host of the first rank with
// that limit.
func limited(ranks []Rank) (found []Finding) {
	first := func(tight func(Limits) bool) (Limits, string, bool) {
		i := slices.IndexFunc(ranks, func(r Rank) bool { return tight(r.Limits) })
		if i < 0 {
			return Limits{}, "", false
		}
		return ranks[i].Limits, ranks[i].Host, true
	}
	if l, host, tight := first(func(l Limits) bool { return l.AddressSpace > 0 }); tight {
		found = append(found, warning("ulimit -v unlimited; limit resident memory instead (--mem)",
			"the address space is limited to %s on %s (ulimit -v): the limit counts mapped "+
				"files and the addresses that Go reserves, even where no memory is used",
			size(l.AddressSpace), host))
	}
	if l, host, tight := first(Limits.BlocksInfiniBand); tight {
		found = append(found, warning(MoreLocked,
			"only %s may be locked on %s (ulimit -l): InfiniBand cannot register its buffers, so "+
				"MPI falls back to TCP, which is slower", size(l.Locked), host))
	}
	if l, host, tight := first(func(l Limits) bool {
		return l.SharedFree >= 0 &&
			l.SharedFree < leastShared
	}); tight {
		found = append(found,
			warning("enlarge it (containers: --shm-size=1g) or remove what is left in it",
				"/dev/shm of %s has only %s free: ranks of a node send each other data through "+
					"it, and topology.load=copy puts the graph there",
				host, size(uint64(l.SharedFree))))
	}
	return found
}

// halted finds nodes whose ranks may run on more CPUs than the control group's quota of CPU time
// pays for. The system stops such ranks for a part of the time.
func halted(ranks []Rank) (found []Finding) {
	for _, node := range nodes(ranks) {
		may := map[int]bool{}
		for _, r := range node {
			for _, p := range ranks[r].Allowed {
				may[p.CPU] = true
			}
		}
		if q := ranks[node[0]].Limits.Quota; q > 0 && q < float64(len(may)) {
			found = append(found, warning("raise the quota (--cpus of containers, limits.cpu of "+
				"Kubernetes, "+
				"CPUQuota of systemd), or start fewer ranks",
				"the control group of %s allows the CPU time of %.3g CPUs, but its %d ranks may "+
					"run on %d CPUs: once the time is used up, the system stops the ranks for "+
					"a while",
				ranks[node[0]].Host, q, len(node), len(may)))
		}
	}
	return found
}

// filesystem finds a directory that cannot be used, or that the nodes do not share.
func filesystem(ranks []Rank, dir string) (found []Finding) {
	for r, rank := range ranks {
		if rank.Disk.Fault != "" {
			return append(found,
				Finding{true, fmt.Sprintf("rank %d (%s) cannot use the directory %s: %s", r,
					rank.Host, dir, rank.Disk.Fault),
					"name a directory that all nodes can write to: --dir"})
		}
	}
	var blind []int
	for r, rank := range ranks {
		if rank.Disk.Unseen {
			blind = append(blind, r)
		}
	}
	if len(blind) > 0 {
		found = append(found,
			Finding{true, fmt.Sprintf("%s cannot see in %s what rank 0 (%s) wrote: the nodes do "+
				"not share it", where(ranks, blind), dir, ranks[0].Host),
				"keep parts and run directories on a shared filesystem, and name it: --dir"})
	}
	return found
}

func cpus(places []cpu.Place) []int {
	var list []int
	for _, p := range places {
		list = append(list, p.CPU)
	}
	return list
}

func domains(places []cpu.Place) []int {
	var list []int
	for _, p := range places {
		list = append(list, p.Domain)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
