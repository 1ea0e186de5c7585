package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"halognn/src/data/shard"
	"halognn/src/forecast/plan"
	"halognn/src/runs/config"
)

// planFlags has the flags of the command plan.
type planFlags struct {
	parts, config, out  string
	trace               string
	leaf                int
	sets                []string
	ranks, perNode      int
	cores, network, mem float64
	rows, flops         float64
	draws, lookups      float64

	graph graphSizes

	gpus                      int
	gpuMem, gpuBandwidth, bus float64
}

func planCommand() *cobra.Command {
	var o planFlags
	c := &cobra.Command{
		Use: "plan --config FILE.yaml [--parts PARTS] [--set key.path=value ...] [--ranks K] " +
			"[--ranks-per-node R]",
		Short: "Predict the memory, the traffic and the time of a job before it runs",
		Long: "Predict the memory of a rank, the remote rows of a step and the time of a step " +
			"before a job runs, and suggest a cache.\nThere may be more ranks than parts. Rates " +
			"that are not given are measured on this machine.\nWithout parts, --preset or " +
			"--vertices, --edges and --features describe the graph: the memory and the traffic " +
			"are then upper estimates.",
		Example: "  halognn plan --preset papers100M --ranks 16 --memory 256 --network 12.5\n" +
			"  halognn plan --parts parts/products-4 --config inputs/products.yaml " +
			"--ranks 64 --ranks-per-node 4 --network 25",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if !o.graph.given() {
				if err := required(c, "config"); err != nil {
					return err
				}
			}
			if err := checkPlanFlags(c); err != nil {
				return usageError(err)
			}
			if o.graph.given() {
				return runPlanSizes(c, o)
			}
			return runPlan(c, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.parts, "parts", "", "the PARTS directory (default: data.parts of the config)")
	f.StringVar(&o.config, "config", "", "YAML file of the run")
	f.StringArrayVar(&o.sets, "set", nil, "override a key, as cache.alpha=0.2; repeatable")
	f.IntVar(&o.ranks, "ranks", 0,
		"ranks of the job: a divisor or a multiple of the parts (default: one for each part)")
	f.IntVar(&o.perNode, "ranks-per-node", 0,
		"ranks that share a node's memory and link (default: run.ranks_per_node, or 1)")
	f.Float64Var(&o.cores, "cores", 0, "CPUs of a rank; a fraction if ranks share them (default: "+
		"this machine's, divided among the ranks of a node)")
	f.Float64Var(&o.network, "network", 0, "bandwidth of the network link of a node in GB/s "+
		"(default: assumed)")
	f.Float64Var(&o.rows, "rows", 0,
		"feature rows that a thread aggregates a second (default: measured)")
	f.Float64Var(&o.draws, "draws", 0,
		"edges that a thread draws a second (default: measured)")
	f.Float64Var(&o.lookups, "lookups", 0,
		"feature rows that a thread locates a second (default: measured)")
	f.Float64Var(&o.flops, "flops", 0, "flop/s of a rank's training step (default: measured)")
	f.Float64Var(&o.mem, "memory", 0,
		"memory of a node in GB, a limit for the suggestion (default: this machine's)")
	f.IntVar(&o.gpus, "gpus", 0,
		"with compute.device cuda: GPUs of a node (default: one for each rank)")
	f.Float64Var(&o.gpuMem, "gpu-memory", 0,
		"GB of a GPU that halognn may take (default: this machine's, or assumed)")
	f.Float64Var(&o.gpuBandwidth, "gpu-bandwidth", 0,
		"GB/s that a GPU reads and writes in its memory (default: measured, or assumed)")
	f.Float64Var(&o.bus, "bus", 0, "GB/s from the host to a GPU (default: measured, or assumed)")
	f.StringVar(&o.out, "out", "", "a new or empty directory to write plan.json to")
	f.StringVar(&o.trace, "trace", "", "a new or empty directory for SimGrid traces of what the "+
		"ranks send and compute")
	f.IntVar(&o.leaf, "leaf", 1, "with --trace: nodes under a leaf switch, traced as one sender "+
		"(for hundreds of nodes)")
	o.graph.flags(c)
	return c
}

// checkPlanFlags returns an error for each flag with a value that no machine can have.
func checkPlanFlags(c *cobra.Command) error {
	flags := c.Flags()
	var faults []error
	for _, f := range []string{"ranks", "ranks-per-node", "gpus", "leaf"} {
		if n, _ := flags.GetInt(f); flags.Changed(f) && n < 1 {
			faults = append(faults, fmt.Errorf("--%s is %d; it must be at least 1", f, n))
		}
	}
	for _, f := range []struct {
		name        string
		least, most float64
	}{
		{"cores", 1e-3, config.MaxThreads}, {"network", 1e-6, 1e6}, {"bus", 1e-6, 1e6},
		{"gpu-bandwidth", 1e-6, 1e6}, {"memory", 1e-3, 1e9},
		{"gpu-memory", 1e-3, 1e9}, {"rows", 1, 1e15}, {"draws", 1, 1e15},
		{"lookups", 1, 1e15}, {"flops", 1, 1e21},
	} {
		if x, _ := flags.GetFloat64(f.name); flags.Changed(f.name) &&
			!(x >= f.least && x <= f.most) {
			faults = append(faults, fmt.Errorf("--%s is %g; it must be %g to %g", f.name, x,
				f.least, f.most))
		}
	}
	return errors.Join(faults...)
}

func runPlan(command *cobra.Command, o planFlags) error {
	// config.Load requires run.dir; nothing is written there
	sets := append(o.sets, "run.dir=planned")
	if o.parts != "" {
		sets = append(sets, "data.parts="+o.parts)
	}
	c, err := config.Load(o.config, sets)
	if err != nil {
		return usageError(err)
	}
	o.parts = c.Data.Parts
	s, err := shard.Open(o.parts, shard.Options{Split: c.Data.Split})
	if err != nil {
		return dataError(err)
	}
	defer s.Close()
	if o.out != "" && filepath.Clean(o.out) == filepath.Clean(o.trace) {
		return usageError(errors.New("--out and --trace name one directory; give each its own"))
	}
	if o.leaf > 1 && o.trace == "" {
		return usageError(errors.New("--leaf is for traces; give --trace too"))
	}
	for _, dir := range []string{o.out, o.trace} {
		if dir != "" {
			if err := vacant(dir); err != nil {
				return err
			}
		}
	}
	o.perNode = cmp.Or(o.perNode, c.Run.RanksPerNode, 1)
	if o.cores == 0 {
		o.cores = float64(runtime.NumCPU()) / float64(min(o.perNode, cmp.Or(o.ranks, s.Parts)))
	}
	job := planJob(c, o.ranks, o.perNode, o.cores)
	if err := enoughForThreads(int64(job.Threads + job.Workers)); err != nil {
		return err
	}
	options := plan.Options{Rates: plan.Rates{Network: o.network * 1e9, Rows: o.rows,
		Flops: o.flops, Sample: o.draws, Lookups: o.lookups}}
	if options.Memory, err = memoryOfNode(o.mem); err != nil {
		return err
	}
	options.Rates.Device, options.Rates.Bus = o.gpuBandwidth*1e9, o.bus*1e9
	if err := hasWhatDraws(c); err != nil {
		return usageError(err)
	}
	wantsGPU := c.Compute.Device == "cuda"
	onCPU := cpuOptions(c)
	onCPU.Threads = job.Threads
	device, host, err := openDevice(c.Compute.Device, onCPU, gpu{sharing: 1})
	// Without a GPU here, opening the device fails, but a job for GPUs can be planned all the same.
	if err != nil && (!wantsGPU || host == nil) {
		return usageError(err)
	}
	if wantsGPU {
		job.GPU = planGPU(c, o.gpus, o.gpuMem, device)
	}
	if device != nil {
		defer device.Close()
	}
	if d, ok := device.(interface{ Enter() (func() error, error) }); ok {
		leave, err := d.Enter()
		if err != nil {
			return err
		}
		defer leave()
	}
	options.Device, options.Host = device, host
	if o.trace != "" {
		options.Actions = &plan.Actions{Dir: o.trace, Leaf: o.leaf, Warm: warmSteps,
			More: replayedSteps}
	}
	var p *plan.Prediction
	err = workOn(s, func() (err error) {
		p, err = plan.New(s, job, options)
		return err
	})
	switch {
	case errors.Is(err, plan.ErrJob):
		return usageError(err)
	case errors.Is(err, plan.ErrParts):
		return dataError(err)
	case err != nil:
		return err
	}
	if err := tellPlan(command, p, c, o.out); err != nil {
		return err
	}
	if o.trace != "" {
		out(command, "\ntraces written to %s: profiling/replay.sh %[1]s\n", o.trace)
	}
	return nil
}

// warmSteps is the number of steps that fill the pipeline, at any depth in use. replayedSteps is
// the number of steps after them, which are timed.
const (
	warmSteps     = 8
	replayedSteps = 8
)

// tellPlan prints a plan. Unless dir is "", it also writes the plan there.
func tellPlan(command *cobra.Command, p *plan.Prediction, c *config.Config, dir string) error {
	p.Notes = append(p.Notes, c.Unread()...)
	if err := p.Print(command.OutOrStdout()); err != nil || dir == "" {
		return err
	}
	if err := writeFiles(dir,
		map[string]func(io.Writer) error{"plan.json": p.WriteJSON}); err != nil {
		return dataError(err)
	}
	out(command, "\nwritten to %s\n", filepath.Join(dir, "plan.json"))
	return nil
}

// memoryOfNode returns the given number of gigabytes or, if none are given, this machine's memory.
func memoryOfNode(gigabytes float64) (int64, error) {
	if gigabytes > 0 {
		return int64(gigabytes * 1e9), nil
	}
	var system unix.Sysinfo_t
	if err := unix.Sysinfo(&system); err != nil {
		return 0, fmt.Errorf("the memory of this machine: %w; give --memory", err)
	}
	return int64(uint64(system.Totalram) * uint64(system.Unit)), nil
}
