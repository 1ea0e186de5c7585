package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"halognn/src/comm"
	"halognn/src/comm/mpi"
	"halognn/src/compute"
	"halognn/src/compute/cpu"
	"halognn/src/compute/ref"
	"halognn/src/config"
	"halognn/src/fault"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/rundir"
	"halognn/src/shard"
	"halognn/src/trace"
	"halognn/src/train"
)

// rankJob is what train and infer open before they start: the same on every rank, or an error that
// all agree on.
type rankJob struct {
	process *process
	comm    comm.Comm
	config  *config.Config
	env     train.Env
	held    *rundir.Lock // rank 0: that of the run directory
	close   func() error
}

// openJob opens shards and device for rank c. What it takes goes into setUp, which may be nil.
// Collective.
func openJob(c comm.Comm, p *process, path string, sets []string, setUp *trace.SetUp) (*rankJob,
	error) {
	cfg, err := config.Load(path, sets)
	if err == nil {
		err = fault.At(fault.Start, c.Rank(), -1, -1)
	}
	if err := comm.Agree(c, err); err != nil {
		return nil, usageError(err)
	}
	setUp.Done(trace.SetUpLaunch)
	j := &rankJob{process: p, comm: c, config: cfg}
	o := shard.Options{CopyTopology: cfg.Topology.Load == "copy", Stage: cfg.Run.StageDir}
	if cfg.Topology.Kind == config.TopologyPartitioned {
		o.Rank, o.Ranks = c.Rank(), c.Size()
		o.AllLabels, o.AllRows = cfg.Sample.Seeds == "global",
			trainOptions(cfg).Model.Needs().Weights == nn.WeightsSymmetric // by degrees of any vertex
	}
	shards, err := shard.Open(cfg.Data.Parts, o)
	if agreed := comm.Agree(c, err); agreed != nil {
		if shards != nil {
			agreed = errors.Join(agreed, shards.Discard())
		}
		return nil, dataError(agreed)
	}
	if err := shards.UnlinkShared(); err != nil { // every rank has mapped it
		return nil, err
	}
	for _, same := range [][2]string{
		{"version of halognn", version}, {"config", cfg.YAML()},
		{"identity of the parts in " + cfg.Data.Parts, shards.Identity()},
	} {
		if err := comm.AllEqual(c, same[0], same[1]); err != nil {
			if errors.Is(err, comm.ErrMismatch) {
				err = dataError(comm.AgreedOn(c,
					fmt.Errorf("%w; start every rank with the same program, config and parts",
						err)))
			}
			return nil, err
		}
	}
	setUp.Done(trace.SetUpOpen)
	if cfg.Data.Verify == "hashes" {
		if err := comm.Agree(c, verifyOwn(c, shards)); err != nil {
			return nil, dataError(err)
		}
	}
	setUp.Done(trace.SetUpVerify)
	err = j.openDevice(shards)
	j.env.SetUp = setUp
	setUp.Done(trace.SetUpDevice)
	return j, err
}

// verifyOwn compares the hashes of this rank's parts and of its share of the files that all ranks
// read.
func verifyOwn(c comm.Comm, s *shard.Shards) error {
	if err := fault.At(fault.Shard, c.Rank(), -1, -1); err != nil {
		return err
	}
	first, last, err := s.RankRange(c.Rank(), c.Size())
	if err != nil {
		return err
	}
	return s.VerifyHashes(first, last, c.Rank() == 0)
}

// openDevice places this rank's threads and opens the device on them.
func (j *rankJob) openDevice(shards *shard.Shards) error {
	c, cfg := j.comm, j.config
	cpus, allowed, err := shareCPUs(c)
	if err != nil {
		return err
	}
	var where gpu
	if cfg.Compute.Device == "cuda" {
		if where, err = j.process.placeGPU(c); err != nil {
			return err
		}
	}
	threads, workers := threads(cfg, max(1, int(cpus)))
	computeCPUs, poolCPUs, shared := cpu.PlanCores(allowed, threads, workers)
	options := cpuOptions(cfg)
	options.Threads, options.CPUs = threads, computeCPUs
	device, host, err := openDevice(cfg.Compute.Device, options, where)
	if err := comm.Agree(c, err); err != nil {
		return usageError(err)
	}
	rows, err := gpuRows(cfg)
	if err != nil {
		return err
	}
	// The steady state allocates nothing on the heap, and what is large lies outside it: a lazy
	// collector costs little memory.
	debug.SetGCPercent(400)
	j.close = func() error { return device.Close() }
	j.env = train.Env{
		Comm: c, RanksPerNode: cfg.Run.RanksPerNode, Shards: shards, Device: device, Host: host,
		GPURows: rows, GPUReads: cfg.Compute.GPUReads,
		Gradients: parallel.Transport(cfg.Compute.Gradients),
		CPUs:      cpus, Workers: workers, OnWorker: pinner(poolCPUs, shared), Dir: cfg.Run.Dir,
		ScratchDir: cfg.Run.ScratchDir, Transport: j.process.transport(), Version: version,
		Stall:   time.Duration(cfg.Run.StallSeconds * float64(time.Second)),
		OnStall: j.process.fail, Polls: j.process.byMPI() && mpi.Available,
		Explain: func(err error) error { return explain(shards, err) },
	}
	if d, ok := device.(interface{ Enter() (func() error, error) }); ok {
		if _, err := d.Enter(); err != nil { // the rank computes on this goroutine to its end
			return err
		}
	}
	if c.Rank() == 0 {
		j.env.Progress = newProgress(j.process.log, cfg.Run.Progress, cfg.Train.Epochs)
	}
	return nil
}

// release gives the device back if the job ends in order. Otherwise goroutines of this rank or of
// others may still use its memory, and the process is about to end.
func (j *rankJob) release(err error) {
	if err == nil || comm.IsAgreed(err) {
		_ = j.close()
	}
}

// workOn does work that reads open parts.
func workOn(s *shard.Shards, work func() error) error { return explain(s, mem.Contain(work)) }

// explain returns what an error of such work comes of. If it failed in a way that damaged files
// cause, and they are damaged, the error is about them: they changed meanwhile, or nobody had
// compared their hashes.
func explain(s *shard.Shards, err error) error {
	told := (*exitError)(nil)
	if errors.As(err, &told) || errors.Is(err, comm.ErrAborted) { // explained, or another rank's
		return err
	}
	if damage := s.Damage(err); errors.Is(damage, mem.ErrShrank) {
		return damage
	} else if damage != nil {
		return dataError(damage)
	}
	if p := (*mem.Panic)(nil); errors.As(err, &p) {
		return withCode(exitBug, err)
	}
	return err
}

// shareCPUs returns how many CPUs this rank may count as its own, and which: those the launcher
// bound it to, or, where it left all ranks of a node on the same ones, a share of them. With more
// ranks than CPUs none is a rank's own, and nothing is pinned.
func shareCPUs(c comm.Comm) (n float64, allowed []int, err error) {
	allowed, err = cpu.AllowedCPUs()
	if err != nil {
		return 0, nil, err
	}
	node, err := c.Node()
	if err != nil {
		return 0, nil, err
	}
	words := make([]string, len(allowed))
	for i, id := range allowed {
		words[i] = strconv.Itoa(id)
	}
	mine := strings.Join(words, ",")
	sets, err := comm.AllgatherBytes(node, []byte(mine))
	if err != nil {
		return 0, nil, err
	}
	sharing, place := 0, 0 // ranks bound to the same CPUs, and which of them this one is
	for r, set := range sets {
		if string(set) == mine {
			if r < node.Rank() {
				place++
			}
			sharing++
		}
	}
	if err := node.Free(); err != nil {
		return 0, nil, err
	}
	if len(allowed) < sharing {
		return float64(len(allowed)) / float64(sharing), nil, nil
	}
	allowed = allowed[place*len(allowed)/sharing : (place+1)*len(allowed)/sharing]
	return float64(len(allowed)), allowed, nil
}

// pinner pins pool goroutines: each to a CPU of its own or, where they share CPUs with the
// computing threads, all to the same set, among which the system chooses the idle one. nil pins
// nothing.
func pinner(cpus []int, shared bool) func(worker int) error {
	switch {
	case len(cpus) == 0:
		return nil
	case shared:
		return func(int) error { return cpu.PinThread(cpus...) }
	}
	return func(worker int) error { return cpu.PinThread(cpus[worker%len(cpus)]) }
}

// openDevice opens the device of the config's name.
func openDevice(name string, o cpu.Options, where gpu) (compute.Device, compute.Host, error) {
	if name == "ref" {
		return ref.WithPrecision(o.Precision), ref.Host{}, nil
	}
	host, err := cpu.NewHost(o.SIMD)
	if err != nil {
		return nil, nil, err
	}
	if name == "cuda" {
		device, err := openGPU(where, o.Precision)
		return device, host, err
	}
	device, err := cpu.New(o)
	return device, host, err
}
