package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/cuda"
	"halognn/src/forecast/doctor"
	"halognn/src/forecast/plan"
	"halognn/src/ranks/comm"
	"halognn/src/runs/config"
)

// Bytes that the program takes before it has any array. programAddresses is the address space of
// libraries and the Go heap. threadAddresses is the address space of the threads that run on one
// CPU, with their stacks and heaps. Most of these addresses are never touched. programData is what
// counts against ulimit -d.
const (
	programAddresses = 2 << 30
	threadAddresses  = 256 << 20
	programData      = 256 << 20
)

// enoughForProgram refuses limits that leave too little room for the Go runtime or the C library.
// Without that room the runtime or the library would end the process by a signal.
func enoughForProgram(l mem.Limits, cpus int) error {
	for _, x := range []struct {
		has, needs int64
		what, flag string
	}{
		{l.Addresses, programAddresses + int64(cpus)*threadAddresses, "address space", "-v"},
		{l.Data, programData, "memory", "-d"},
	} {
		if x.has < x.needs {
			return usageError(fmt.Errorf("the limit of this process's %s (ulimit %s) is %s MB, "+
				"and the "+
				"program alone may take %s MB with %d CPUs; set `ulimit %s unlimited`, and limit "+
				"memory by "+
				"the job's cgroup", x.what, x.flag, megabytes(x.has), megabytes(
				x.needs), cpus, x.flag))
		}
	}
	return nil
}

// checkLimits ends the process if its limits leave too little room to begin.
func (p *process) checkLimits() {
	if err := enoughForProgram(mem.ProcessLimits(), runtime.NumCPU()); err != nil {
		p.fail(err)
	}
}

// enoughParts refuses --ranks-in-process above the number of parts, before the goroutines of these
// ranks begin. The ranks report other faults of the config.
func (p *process) enoughParts(path string, sets []string) error {
	if p.goroutines < 2 {
		return nil
	}
	c, err := config.Load(path, sets)
	if err != nil {
		return nil
	}
	m, err := shard.ReadMeta(c.Data.Parts)
	if err != nil || p.goroutines <= m.Parts {
		return nil
	}
	_, _, err = m.RankRange(0, p.goroutines)
	return dataError(fmt.Errorf("%s: --ranks-in-process: %w", c.Data.Parts, err))
}

// headroom is the memory that a node and its processes have for a job before it opens anything.
type headroom struct {
	node     int64      // bytes that the machine or, if less, the control groups have free
	process  mem.Limits // bytes that a process may still take under its limits
	ranks    int        // number of ranks of the node
	together int        // number of ranks of a process
	// address space, in bytes, for the stacks of threads; two threads per CPU are not counted
	threads int64
}

// headroomFor measures the headroom of the ranks of this node. The result first is true on the
// first rank of the node. Collective.
func (p *process) headroomFor(c comm.Comm, cfg *config.Config) (x headroom, first bool, err error) {
	node, err := c.Node()
	if err != nil {
		return x, false, err
	}
	x.ranks, x.together, first = node.Size(), 1, node.Rank() == 0
	if !p.byMPI() {
		x.together = x.ranks
	}
	if err := node.Free(); err != nil {
		return x, false, err
	}
	err = x.measure()
	cpus := int64(runtime.NumCPU())
	compute, workers := threads(cfg, int(x.cpus()))
	n := int64(x.together) * int64(compute+workers)
	if err == nil && n > mostThreads {
		err = tooManyThreads(n)
	}
	if err == nil {
		n := n + max(0, min(cpus, 16)+runtimeThreads-mem.RunningThreads())
		err = enoughToStart(n, startPause(), mem.StartableThreads)
	}
	x.threads = max(0, n-2*cpus) * stackAddresses
	return x, first, err
}

// cpus returns how many CPUs each rank of the node has, at least 1: an equal share of the node's
// CPUs or, if less, of its CPU quota.
func (x *headroom) cpus() float64 {
	return max(1, min(float64(runtime.NumCPU()), cpu.Quota())/float64(x.ranks))
}

// measure sets how many bytes the node has free, and how many bytes the limits of a process leave
// after the program's own needs.
func (x *headroom) measure() (err error) {
	if x.node, err = mem.FileHeadroom(); err != nil {
		return err
	}
	x.process, err = mem.ProcessHeadroom()
	limits, cpus := mem.ProcessLimits(), int64(runtime.NumCPU())
	x.process.Addresses = min(x.process.Addresses,
		limits.Addresses-programAddresses-cpus*threadAddresses)
	x.process.Data = min(x.process.Data, limits.Data-programData)
	return err
}

// enoughForCounts refuses a simulation if this process has no memory for its counts.
func enoughForCounts(bytes int64) error {
	var x headroom
	if err := x.measure(); err != nil {
		return err
	}
	if has := max(0, min(x.node, x.process.Addresses, x.process.Data)); bytes > has {
		return usageError(fmt.Errorf("the counts of all steps need at least %s MB, but this "+
			"process may take only %s MB; lower --epochs, give fewer --policies, --alphas or "+
			"--workers, or set a larger sample.batch", megabytes(bytes), megabytes(has)))
	}
	return nil
}

// enoughForThreads returns an error if this process may not have n threads.
func enoughForThreads(n int64) error {
	left, err := mem.ProcessHeadroom()
	if err == nil && (n > mostThreads || n*stackAddresses > min(left.Addresses, left.Data)) {
		err = tooManyThreads(n)
	}
	return err
}

func tooManyThreads(n int64) error {
	return usageError(fmt.Errorf("a process would have %d threads, but may have at most %d, or "+
		"even fewer if ulimit -v limits the address space; lower compute.threads or "+
		"pipeline.workers", n, mostThreads))
}

// runtimeThreads is how many threads the Go runtime, MPI and BLAS start at any number of CPUs. In
// addition, they start one thread for each of the first 16 CPUs.
const runtimeThreads = 16

// mpiThreads is how many threads MPI and the Go runtime start before the job is known. They include
// the daemon that Open MPI starts for a process without a launcher.
const mpiThreads = 12

// startPause is how long this process waits before it tries again to start threads. It differs
// between the ranks of a node, so that they do not all try at once.
func startPause() time.Duration {
	rank, _ := cuda.LocalRank()
	return 50*time.Millisecond + time.Duration(rank)*time.Millisecond
}

// enoughToStart returns an error if the limits of the user and of the control groups do not allow n
// more threads. It tries twice, because the threads that other ranks start for the same test count
// too.
func enoughToStart(n int64, pause time.Duration, startable func(int) int) error {
	left, err := mem.ProcessHeadroom()
	// headroom.lacks reports this shortage
	if err != nil || n*stackAddresses > min(left.Addresses, left.Data) {
		return err
	}
	may := int64(startable(int(n)))
	if may < n {
		time.Sleep(pause)
		may = int64(startable(int(n)))
	}
	if may >= n {
		return nil
	}
	return usageError(fmt.Errorf("a process needs about %d more threads, but may start only %d; "+
		"raise the limit of the user's processes (ulimit -u) or of the job's (pids.max of its "+
		"control group, TasksMax of systemd, --pids-limit of containers), or lower "+
		"compute.threads and pipeline.workers, or start fewer ranks a node", n, may))
}

// notesOfLimits returns notes about limits that may harm MPI on a node, before MPI starts. Without
// shared memory some MPIs are slow, and some end with an error of their own. Without InfiniBand all
// are slow.
func notesOfLimits(l doctor.Limits) (notes []string) {
	const little = 16 << 20
	if free := l.SharedFree; free >= 0 && free < little {
		notes = append(notes, fmt.Sprintf("/dev/shm has only %s MB free, and MPI moves data "+
			"between ranks of a node through it: enlarge it (containers: --shm-size=1g), or "+
			"delete the files that earlier jobs left in it", megabytes(free)))
	}
	if l.BlocksInfiniBand() {
		notes = append(notes, fmt.Sprintf("a process may lock only %s MB of memory (ulimit -l): "+
			"an InfiniBand adapter may be unable to register buffers, and MPI then falls back to "+
			"TCP; %s", megabytes(int64(l.Locked)), doctor.MoreLocked))
	}
	return notes
}

// mostThreads is the most threads that a process may have, a little below the limit of the Go
// runtime.
const mostThreads = 9000

// largeItem is the size in bytes from which a memory item is likely to consist of large arrays.
const largeItem = 8 << 20

// stackAddresses is the address space of a thread's stack: the usual ulimit -s.
const stackAddresses = 8 << 20

// Messages about the memory that ranks need say where the number comes from. The words needAtLeast
// stand before a lower bound, which follows from the sizes of the graph. The words predicted stand
// before the prediction of a plan.
const (
	needAtLeast = "need at least"
	predicted   = "are predicted to need"
)

// checkMemory returns an error if the ranks of a job need more memory than there is. Its argument
// verb is needAtLeast or predicted.
func (x *headroom) checkMemory(m trace.Memory, verb string) error {
	own, left := plan.Own(m), int64(0)
	for _, item := range own {
		if verb == predicted && item.Bytes >= largeItem && item.Name != trace.MemHeap &&
			item.Name != trace.MemRuntime {
			left = mem.LeftByArrays
		}
	}
	all := append(m[:len(m):len(m)], trace.MemoryItem{Name: "threads", Bytes: x.threads,
		Shared: true})
	for _, of := range []struct {
		m         trace.Memory
		ranks     int
		has       int64
		who, free string
	}{
		{own, x.ranks, x.node, "of this node", "are free"},
		{own, x.together, x.process.Data - left, "of a process", "are left by its limit " +
			"(ulimit -d)"},
		{all, x.together, x.process.Addresses - left, "of a process",
			"of address space are left by its limit (ulimit -v)"},
	} {
		need, about := of.m.Node(of.ranks), ""
		most := need
		// the tenth covers what the launcher takes, and errors of the prediction
		if verb == predicted {
			most, about = need+need/10, ", give or take a tenth"
		}
		if most <= of.has {
			continue
		}
		item, cure := plan.Largest(of.m, of.ranks)
		return usageError(fmt.Errorf("the %d ranks %s %s %s MB%s, and %s MB %s; the largest item "+
			"is %s (%s MB): lower %s, or use fewer ranks a node, or more nodes",
			of.ranks, of.who, verb,
			megabytes(need), about, megabytes(max(0,
				of.has)), of.free, item.Name, megabytes(item.Bytes), cure))
	}
	return nil
}

// fits refuses a job that certainly needs more memory than there is, as far as the sizes of its
// parts alone show this. The result unsure is true if the sizes do not decide it, so that a plan is
// needed. It ignores faults of the config and the parts, which are reported when they are opened.
func (x *headroom) fits(c comm.Comm, cfg *config.Config, work kindOfWork) (unsure bool, err error) {
	m, err := shard.ReadMeta(cfg.Data.Parts)
	if err == nil {
		err = shard.UseSplit(m, cfg.Data.Split)
	}
	if err != nil {
		return false, nil
	}
	s, job := shard.Sizes(m, cfg.Data.Parts), x.job(c, cfg)
	var least, most trace.Memory
	err = mem.Contain(func() (err error) {
		if work == training {
			least, most, err = plan.Bounds(s, job)
		} else {
			least, err = plan.ForwardBound(s, job, work == inferringFull)
		}
		return err
	})
	more := s.Schema.Typed() // sizes alone do not determine the minibatches of typed graphs
	switch {
	// Part of the estimate is device memory, so the estimate alone cannot refuse the job. Opening
	// the device checks the device memory.
	case cfg.Compute.Device == "cuda":
		return err != nil || more || x.checkMemory(most, predicted) != nil, nil
	case errors.Is(err, mem.ErrMemory): // there is not even memory for the estimate
		return false, usageError(err)
	case err != nil:
		return true, nil
	}
	return work != training || more || x.checkMemory(most, predicted) != nil,
		x.checkMemory(least, needAtLeast)
}

// job describes the job of the config, on nodes like this one, to package plan.
func (x *headroom) job(c comm.Comm, cfg *config.Config) plan.Job {
	return planJob(cfg, c.Size(), cmp.Or(cfg.Run.RanksPerNode, x.ranks), x.cpus())
}

// kindOfWork says what ranks do with a model: they train it, or predict with it.
type kindOfWork int

const (
	training kindOfWork = iota
	inferringSampled
	inferringFull
)
