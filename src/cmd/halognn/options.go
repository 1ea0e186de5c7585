package main

import (
	"slices"

	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/cpu"
	"halognn/src/config"
	"halognn/src/job"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/plan"
	"halognn/src/policy"
	"halognn/src/residence"
	"halognn/src/sample"
	"halognn/src/train"
)

// trainOptions turns a checked config into what package train takes.
func trainOptions(c *config.Config) train.Options {
	optimizer := nn.DefaultOptimizer(c.Train.Optimizer)
	optimizer.Momentum, optimizer.WeightDecay = c.Train.Momentum, c.Train.WeightDecay
	sharing, _ := parallel.SharingOf(c.Parallel.Mode) // the config's words are its modes
	peerCost, _ := config.ParseCost(c.Cache.PeerCost) // a config that was checked gives no error
	return train.Options{
		Mode: c.Parallel.Mode,
		Spec: job.Spec{
			Model: nn.Config{
				Kind: c.Model.Kind, Layers: c.Model.Layers, Hidden: c.Model.Hidden,
				Dropout: float32(c.Model.Dropout), Norm: c.Model.Norm,
				Activation: c.Model.Activation, Residual: c.Model.Residual,
				EdgeWeights: c.Model.EdgeWeights, Jumping: c.Model.Jumping,
				Aggregation: c.Model.Aggregation, GCNNorm: c.Model.GCNNorm,
				Heads: c.Model.Heads, HeadMerge: c.Model.HeadMerge, Slope: float32(c.Model.Slope),
			},
			Optimizer: optimizer,
			Schedule: nn.Schedule{
				Kind: c.Train.Schedule, Base: c.Train.LR, Warmup: c.Train.WarmupSteps,
				Gamma: c.Train.StepFactor,
			},
			StepEpochs: c.Train.StepEpochs,
			Sample:     sampleSpec(c),
			Eval:       evalSpec(c),
			Locality:   locality(c),

			Batch:         c.Sample.Batch,
			GlobalBatch:   c.Sample.BatchScope == "global",
			GlobalSeeds:   c.Sample.Seeds == "global",
			StreamPerPart: c.Sample.Streams == "part", Sharing: sharing,
			ByColumns: parallel.HoldsColumns(c.Parallel.Mode),
			Seed:      uint64(c.Train.Seed), Epochs: c.Train.Epochs, Depth: c.Pipeline.Depth,
			Partitioned: c.Topology.Kind == config.TopologyPartitioned,
			Kernel:      kernels[c.Sample.Kernel],
			Sums: c.Exchange.Sums == config.SumsOn ||
				c.Exchange.Sums == config.SumsAuto && c.WithoutSums() == "",
			TrySums: c.Exchange.Sums == config.SumsAuto,
			Window:  c.Exchange.Window,
			Cache: policy.Settings{
				Policy: c.Cache.Policy, Alpha: c.Cache.Alpha, HaloFraction: c.Cache.HaloFraction,
				HaloHops: c.Cache.HaloHops, Placement: c.Cache.Placement, PeerCost: peerCost,
				Source: c.Cache.Source,
				Window: c.Cache.Window, Level: c.Cache.Level, Gamma: c.Cache.Gamma,
				Delta: c.Cache.Delta, Evict: c.Cache.Evict, Initial: c.Cache.Initial,
				Layout: layouts[c.Cache.Scores],
			},
		},
		WithoutSums: c.WithoutSums(),
		EvalEvery:   c.Train.EvalEvery, EvalFull: c.Train.EvalMode == "full",
		Metric: c.Train.Metric, Loss: objective(c),
		Patience: c.Train.Patience, Sum: sumModes[c.Train.Allreduce],
		Checkpoint: train.CheckpointOptions{
			EverySteps: c.Checkpoint.EverySteps, EveryMinutes: c.Checkpoint.EveryMinutes,
			Keep: c.Checkpoint.Keep,
		},
	}
}

// sampleSpec returns how minibatches of training are drawn.
func sampleSpec(c *config.Config) sample.Spec {
	s := sample.Spec{Kind: sample.Kind(c.Sample.Kind)}
	if s.HasFanouts() {
		s.Fanouts = c.Sample.Fanouts
		return s
	}
	s.Vertices = slices.Repeat([]int{c.Sample.LayerVertices}, c.Model.Layers)
	return s
}

// locality returns how training draws vertices at hand.
func locality(c *config.Config) job.Locality {
	s := &c.Sample
	l := job.Locality{Favour: s.Locality, Vertices: s.LocalityVertices}
	if s.LocalityAdapt {
		l.Adapt = &job.Adaption{Lower: s.LocalityLower, Upper: s.LocalityUpper,
			Link: s.LocalityLink, Edges: s.LocalityEdges}
	}
	return l
}

// evalSpec returns how minibatches are drawn that are not trained: always by kind Neighbour; the
// zero Spec where that is as in training.
func evalSpec(c *config.Config) sample.Spec {
	fanouts := c.Sample.EvalFanouts
	if len(fanouts) == 0 && c.Sample.Kind != string(sample.Neighbour) {
		fanouts = c.Sample.Fanouts
	}
	return sample.Neighbours(fanouts...)
}

// objective returns what the loss asks for. A config that was checked gives no error.
func objective(c *config.Config) train.LossOptions {
	weights, balanced, _ := config.ParseWeights(c.Train.ClassWeights)
	o := train.LossOptions{Balanced: balanced}
	o.Weights, o.Smoothing = weights, c.Train.LabelSmoothing
	return o
}

var layouts = map[string]cache.Layout{
	"auto": cache.LayoutAuto, "dense": cache.LayoutDense, "compact": cache.LayoutCompact,
}

var kernels = map[string]sample.Kernel{"fused": sample.KernelFused,
	config.KernelCOO: sample.KernelCOO}

var sumModes = map[string]comm.SumMode{
	"auto": comm.SumAuto, "reproducible": comm.SumReproducible, "mpi": comm.SumFast,
}

// planJob turns a checked config into what package plan takes.
func planJob(c *config.Config, ranks, perNode int, cores float64) plan.Job {
	o := trainOptions(c)
	threads, workers := threads(c, max(1, int(cores)))
	o.Ranks, o.RanksPerNode = ranks, perNode
	if o.EvalFull { // layer by layer
		o.Eval = sample.Spec{}
	}
	return plan.Job{Spec: o.Spec, Workers: workers, Threads: threads, Cores: cores,
		Scratch: c.Run.ScratchDir != ""}
}

// planGPU describes the GPUs of a job: of so many gigabytes each or, if none are given, of the
// memory that the one that is here has.
func planGPU(c *config.Config, perNode int, gigabytes float64, here compute.Device) (*plan.GPU,
	error) {
	rows, err := gpuRows(c)
	if err != nil {
		return nil, err
	}
	g := &plan.GPU{
		PerNode: perNode, Memory: int64(gigabytes * 1e9), Resident: rows.Of,
		Mapped:  c.Compute.GPUReads == residence.ReadsMapped,
		Rounded: compute.Precision(c.Compute.Precision).FactorBytes(),
	}
	if d := compute.CapabilitiesOf(here).Accelerator; d != nil && g.Memory == 0 {
		g.Memory = int64(d.Room())
	}
	return g, nil
}

// gpuRows returns how many rows lie in device memory. A config that was checked gives no error.
func gpuRows(c *config.Config) (residence.GPURows, error) {
	share, err := config.ParseShare(c.Compute.GPURows)
	return residence.GPURows(share), err
}

// threads returns how many compute threads and pool workers a rank gets of its CPUs: as many as the
// config says, or both as many as there are CPUs, which the two then share. More workers than
// minibatches under way would find nothing to do. A GPU leaves nearly all CPUs to the pool.
func threads(c *config.Config, cpus int) (compute, workers int) {
	compute, workers = c.Compute.Threads, c.Pipeline.Workers
	if c.Compute.Device == "cuda" { // the rank's own thread and the lane of exchanges want a CPU each
		compute, cpus = 1, max(1, cpus-2)
	}
	if workers == 0 {
		workers = min(cpus, c.Pipeline.Depth+1)
	}
	if compute == 0 {
		compute = cpus
	}
	return compute, workers
}

// cpuOptions returns what the config says of the CPU backend.
func cpuOptions(c *config.Config) cpu.Options {
	forced := func(word string) string {
		if word == "auto" {
			return ""
		}
		return word
	}
	return cpu.Options{SIMD: forced(c.Compute.SIMD), GEMM: forced(c.Compute.GEMM),
		Precision: compute.Precision(c.Compute.Precision)}
}
