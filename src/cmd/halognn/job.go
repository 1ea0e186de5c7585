package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/src/devices/nvtx"
	"halognn/src/forecast/doctor"
	"halognn/src/forecast/plan"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/comm/mpi"
	"halognn/src/runs/config"
	"halognn/src/runs/session"
	"halognn/src/runs/train"
	"halognn/src/runs/watch"
)

// rankJob holds what train and infer open before they start. Either every rank opens it, or all
// ranks agree on an error.
type rankJob struct {
	process  *process
	comm     comm.Comm
	config   *config.Config
	env      train.Env
	held     *rundir.Lock // lock of the run directory; set on rank 0 only
	headroom headroom     // measured before anything was opened
	close    func() error
}

// openJob opens the parts and the device of this rank. It adds the time of each stage to setUp,
// which may be nil. Collective.
func openJob(c comm.Comm, p *process, path string, sets []string, work kindOfWork,
	setUp *trace.SetUp) (j *rankJob, err error) {
	reading := watch.Reading{Limit: stallOf(config.Default()), Stalled: p.fail}
	var cfg *config.Config
	err = reading.During("the config", func() (err error) {
		if cfg, err = config.Load(path, sets); err == nil {
			err = fault.At(fault.Start, c.Rank(), -1, -1)
		}
		if err == nil && work == training {
			err = hasWhatDraws(cfg)
		}
		return err
	})
	if err := comm.Agree(c, err); err != nil {
		return nil, usageError(err)
	}
	setUp.Done(trace.SetUpLaunch)
	j = &rankJob{process: p, comm: c, config: cfg}
	unsure, err := j.bound(work)
	if err != nil {
		return nil, err
	}
	reading.Limit = stallOf(cfg)
	o := shard.Options{CopyTopology: cfg.Run.Load == "copy", Stage: cfg.Run.StageDir,
		Verify:  cfg.Data.Verify == "hashes",
		Waiting: reading.Waiting, Split: cfg.Data.Split}
	if cfg.Job.Partitioned {
		o.Rank, o.Ranks = c.Rank(), c.Size()
		o.AllLabels, o.AllRows = cfg.Job.GlobalSeeds,
			// symmetric weights need the degrees of vertices of all parts
			trainOptions(cfg).Model.Needs().Weights == nn.WeightsSymmetric
	}
	var shards *shard.Shards
	err = reading.During(cfg.Data.Parts, func() (err error) {
		shards, err = shard.Open(cfg.Data.Parts, o)
		return err
	})
	defer func() { // if no rank begins, the staged files are not needed
		if shards != nil && comm.IsAgreed(err) {
			err = errors.Join(err, shards.Discard())
		}
	}()
	if err := comm.Agree(c, err); err != nil {
		return nil, setUpError(err)
	}
	// every rank has mapped the shared files, so their names can go
	if err := shards.UnlinkShared(); err != nil {
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
		err := reading.During(cfg.Data.Parts, func() error { return verifyOwn(c, shards) })
		if err := comm.Agree(c, err); err != nil {
			return nil, dataError(err)
		}
	}
	setUp.Done(trace.SetUpVerify)
	err = j.openDevice(shards)
	j.env.SetUp = setUp
	setUp.Done(trace.SetUpDevice)
	if err == nil && unsure && work == training {
		err = j.enough(func() (trace.Memory, error) {
			p, err := j.plan()
			if err != nil {
				return nil, err
			}
			return p.Memory, nil
		})
	}
	return j, err
}

// bound refuses a job that needs more memory than there is, as far as the sizes of its parts show
// this, before anything is opened. The result unsure is true if the sizes do not decide it, so that
// a plan is needed. Collective.
func (j *rankJob) bound(work kindOfWork) (unsure bool, err error) {
	var first bool
	j.headroom, first, err = j.process.headroomFor(j.comm, j.config)
	if err == nil && first {
		unsure, err = j.headroom.fits(j.comm, j.config, work)
	}
	if err := comm.Agree(j.comm, err); err != nil {
		return false, err
	}
	return comm.AgreeAny(j.comm, unsure)
}

// enough refuses a job if, according to a plan of the open parts, its ranks need more memory than
// there is. It then also removes the files staged for the job. If the plan fails because the parts
// do not suit the job, enough returns no error, because the job reports that itself. Collective.
func (j *rankJob) enough(planned func() (trace.Memory, error)) error {
	node, err := j.comm.Node()
	if err != nil {
		return err
	}
	first := node.Rank() == 0
	if err := node.Free(); err != nil {
		return err
	}
	if first {
		err = workOn(j.env.Shards, func() error {
			m, err := planned()
			if err != nil {
				return withoutPlan(err)
			}
			return j.headroom.checkMemory(m, predicted)
		})
		mem.ResetPeak() // the peak of the run must not include the plan
		if unpredicted(err) {
			slog.Warn(fmt.Sprintf("the memory that this job needs could not be predicted, so it "+
				"starts without that check: %v", err))
			err = nil
		}
	}
	return j.unbegun(comm.Agree(j.comm, err))
}

// unbegun removes the files staged for a job that no rank begins because all ranks agreed on err.
// It returns err.
func (j *rankJob) unbegun(err error) error {
	if comm.IsAgreed(err) {
		err = errors.Join(err, j.env.Shards.Discard())
	}
	return err
}

// withoutPlan handles an error of the plan for a job that is about to run. Unsuitable parts are no
// error here, because the job reports them itself; an impossible job is a usage error.
func withoutPlan(err error) error {
	switch {
	case errors.Is(err, plan.ErrParts):
		return nil
	case errors.Is(err, plan.ErrJob):
		return usageError(err)
	}
	return err
}

// unpredicted reports whether err is a failure of the prediction itself, not of the job or its
// files. The run goes on after such an error. It also goes on if memory ran out during the
// prediction, because the run may not need the arrays of the prediction.
func unpredicted(err error) bool {
	told, bug := (*exitError)(nil), (*mem.Panic)(nil)
	return err != nil && !errors.Is(err, mem.ErrShrank) && (!errors.As(err, &told) ||
		errors.As(err, &bug))
}

// plan predicts the memory of the job, but not its times. It analyses one rank only, because each
// further rank would delay the first step. A dry run calls it too, and so decides as the run does.
func (j *rankJob) plan() (*plan.Prediction, error) {
	job := j.job()
	if j.config.Compute.Device == "cuda" {
		job.GPU = planGPU(j.config, 0, 0, j.env.Device)
	}
	parts, done, err := j.whole()
	if err != nil {
		return nil, err
	}
	defer done()
	// No times are wanted, so the rates are not measured.
	return plan.New(parts, job, plan.Options{
		Rates: plan.Rates{Sample: 1, Lookups: 1, Rows: 1, Flops: 1, Network: 1, Device: 1, Bus: 1},
		Host:  j.env.Host, Device: j.env.Device, Analyse: 1,
	})
}

// job describes the job to package plan.
func (j *rankJob) job() plan.Job {
	return planJob(j.config, j.comm.Size(), cmp.Or(j.config.Run.RanksPerNode, j.headroom.ranks),
		j.env.CPUs)
}

// whole returns parts with the feature rows of all ranks, which a plan needs, and the function that
// closes these parts.
func (j *rankJob) whole() (parts *shard.Shards, done func(), err error) {
	if !j.config.Job.Partitioned {
		return j.env.Shards, func() {}, nil
	}
	if parts, err = shard.Whole(j.env.Shards); err != nil {
		return nil, nil, err
	}
	return parts, func() { _ = parts.Close() }, nil
}

func stallOf(c *config.Config) time.Duration {
	return time.Duration(c.Run.StallSeconds * float64(time.Second))
}

// verifyOwn compares the hashes of this rank's parts with meta.json. Rank 0 also compares the
// hashes of the files that all ranks read.
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
	cpus, allowed, note, err := shareCPUs(c)
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
	// A step allocates nothing on the Go heap, and large arrays lie outside it. So the heap stays
	// small, even with a collector that rarely runs.
	debug.SetGCPercent(400)
	j.close = func() error { return device.Close() }
	j.env = train.Env{
		Env: session.Env{
			Comm: c, RanksPerNode: cfg.Run.RanksPerNode, Shards: shards, Device: device, Host: host,
			GPU: cfg.Compute.GPU, Gradients: cfg.Compute.Gradients, Shuffles: cfg.Compute.Shuffles,
			Workers: workers, OnWorker: pinner(poolCPUs, shared),
			ScratchDir: cfg.Run.ScratchDir,
			Explain:    func(err error) error { return explain(shards, err) },
		},
		CPUs: cpus, Dir: cfg.Run.Dir, Transport: j.process.transport(), Version: version,
		Stall: stallOf(cfg), OnStall: j.process.fail, Polls: j.process.byMPI() && mpi.Available,
	}
	if d, ok := device.(interface{ Enter() (func() error, error) }); ok {
		if _, err := d.Enter(); err != nil { // the rank computes on this goroutine until it ends
			return err
		}
	}
	unprofiled := nvtx.Attach()
	if c.Rank() == 0 {
		j.env.Progress = newProgress(j.process.log, cfg.Run.Progress, cfg.Job.Epochs)
		j.env.Notes = j.env.Progress
		if note != "" {
			j.env.Progress.Note(context.Background(), note)
		}
		if unprofiled != nil {
			j.env.Progress.Note(context.Background(), unprofiled.Error())
		}
	}
	return nil
}

// release gives the device back if the job ends in order. After any other end, goroutines of this
// rank or of others may still use its memory, and the process is about to end, so release does
// nothing.
func (j *rankJob) release(err error) {
	if err == nil || comm.IsAgreed(err) {
		_ = j.close()
	}
}

// workOn does work that reads open parts. If it fails because their files are damaged, the error
// says so.
func workOn(s *shard.Shards, work func() error) error { return explain(s, mem.Contain(work)) }

// explain looks for damaged files after an error of a kind that damaged files can cause. If it
// finds any, it returns an error about the damage instead. Files may have changed since they were
// opened, or their hashes were never compared.
func explain(s *shard.Shards, err error) error {
	told := (*exitError)(nil)
	// already explained, or an error of another rank
	if errors.As(err, &told) || errors.Is(err, comm.ErrAborted) {
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

// shareCPUs returns how many CPUs this rank may use, and which. They are the CPUs that the launcher
// bound the rank to, divided among the ranks that are bound to the same ones; a quota of CPU time
// is divided among all ranks of the node. With more ranks than CPUs it returns a fraction and no
// CPUs, and nothing is pinned. The text note tells the user that a quota limits the CPUs, or that
// no rank is bound to some of them; otherwise it is "".
func shareCPUs(c comm.Comm) (n float64, allowed []int, note string, err error) {
	allowed, err = cpu.AllowedCPUs()
	if err != nil {
		return 0, nil, "", err
	}
	node, err := c.Node()
	if err != nil {
		return 0, nil, "", err
	}
	words := make([]string, len(allowed))
	for i, id := range allowed {
		words[i] = strconv.Itoa(id)
	}
	mine := strings.Join(words, ",")
	sets, err := comm.AllgatherStrings(node, mine)
	if err != nil {
		return 0, nil, "", err
	}
	var used []int
	sharing, place := 0, 0 // ranks bound to the same CPUs, and this rank's index among them
	for r, set := range sets {
		if set == mine {
			if r < node.Rank() {
				place++
			}
			sharing++
		}
		for _, word := range strings.Split(set, ",") {
			id, _ := strconv.Atoi(word)
			used = append(used, id)
		}
	}
	ranks := node.Size()
	if text, cure := doctor.Unbound(ranks, used, cpu.LauncherCPUs()); text != "" {
		note = text + " of this node; " + cure
	}
	if err := node.Free(); err != nil {
		return 0, nil, "", err
	}
	n = float64(len(allowed)) / float64(sharing)
	if len(allowed) < sharing {
		allowed = nil
	} else {
		allowed = allowed[place*len(allowed)/sharing : (place+1)*len(allowed)/sharing]
		n = float64(len(allowed))
	}
	// the quota is taken to be the node's: control groups of single ranks are rare
	if q := cpu.Quota(); q/float64(ranks) < n {
		n = q / float64(ranks)
		note = fmt.Sprintf("a quota of the control group leaves %.3g CPUs to the %d ranks of "+
			"this node: raise it "+
			"(--cpus of containers, limits.cpu of Kubernetes), or start fewer ranks", q, ranks)
		if allowed = allowed[:min(len(allowed), int(n))]; len(allowed) == 0 {
			allowed = nil
		}
	}
	return n, allowed, note, nil
}

// pinner returns the function that pins a goroutine of the pool to CPUs. If the pool has CPUs for
// itself, each goroutine gets one of them. If it shares them with the computing threads, each
// goroutine may run on all of them, so that the system can choose an idle one. Without CPUs to pin
// to, pinner returns nil.
func pinner(cpus []int, shared bool) func(worker int) error {
	switch {
	case len(cpus) == 0:
		return nil
	case shared:
		return func(int) error { return cpu.PinThread(cpus...) }
	}
	return func(worker int) error { return cpu.PinThread(cpus[worker%len(cpus)]) }
}

// openDevice opens the device that the config names.
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
