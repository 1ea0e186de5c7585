package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/graph"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/sample"
	"halognn/src/train"
)

// Config is one run: every key of the YAML file, by its section. docs/config.md explains each; a test holds that
// page to these fields and defaults.
type Config struct {
	Data struct {
		Parts  string `yaml:"parts"`
		Verify string `yaml:"verify"`
	} `yaml:"data"`
	Model struct {
		Kind    string  `yaml:"kind"`
		Layers  int     `yaml:"layers"`
		Hidden  int     `yaml:"hidden"`
		Dropout float64 `yaml:"dropout"`
		Norm    string  `yaml:"norm"`
		Heads   int     `yaml:"heads"`
	} `yaml:"model"`
	Sample struct {
		Fanouts     []int  `yaml:"fanouts"`
		EvalFanouts []int  `yaml:"eval_fanouts"`
		Batch       int    `yaml:"batch"`
		BatchScope  string `yaml:"batch_scope"`
		Seeds       string `yaml:"seeds"`
		Streams     string `yaml:"streams"`
	} `yaml:"sample"`
	Train struct {
		Epochs      int     `yaml:"epochs"`
		LR          float64 `yaml:"lr"`
		Optimizer   string  `yaml:"optimizer"`
		Momentum    float64 `yaml:"momentum"`
		WeightDecay float64 `yaml:"weight_decay"`
		Schedule    string  `yaml:"schedule"`
		WarmupSteps int     `yaml:"warmup_steps"`
		StepEpochs  int     `yaml:"step_epochs"`
		StepFactor  float64 `yaml:"step_factor"`
		Seed        int     `yaml:"seed"`
		EvalEvery   int     `yaml:"eval_every"`
		EvalMode    string  `yaml:"eval_mode"`
		Patience    int     `yaml:"patience"`
		Allreduce   string  `yaml:"allreduce"`
	} `yaml:"train"`
	Cache struct {
		Policy       string  `yaml:"policy"`
		Alpha        float64 `yaml:"alpha"`
		HaloFraction float64 `yaml:"halo_fraction"`
		HaloHops     int     `yaml:"halo_hops"`
		Gamma        float64 `yaml:"gamma"`
		Delta        int     `yaml:"delta"`
		Evict        bool    `yaml:"evict"`
		Initial      string  `yaml:"initial"`
		Scores       string  `yaml:"scores"`
		Window       int     `yaml:"window"`
		Level        bool    `yaml:"level"`
		Placement    string  `yaml:"placement"`
		PeerCost     float64 `yaml:"peer_cost"`
	} `yaml:"cache"`
	Pipeline struct {
		Depth   int `yaml:"depth"`
		Workers int `yaml:"workers"`
	} `yaml:"pipeline"`
	Topology struct {
		Kind string `yaml:"kind"`
		Load string `yaml:"load"`
	} `yaml:"topology"`
	Parallel struct {
		Mode string `yaml:"mode"`
	} `yaml:"parallel"`
	Compute struct {
		Device    string `yaml:"device"`
		Threads   int    `yaml:"threads"`
		SIMD      string `yaml:"simd"`
		GPURows   string `yaml:"gpu_rows"`
		Gradients string `yaml:"gradients"`
		GPUReads  string `yaml:"gpu_reads"`
	} `yaml:"compute"`
	Checkpoint struct {
		EverySteps   int     `yaml:"every_steps"`
		EveryMinutes float64 `yaml:"every_minutes"`
		Keep         int     `yaml:"keep"`
	} `yaml:"checkpoint"`
	Run struct {
		Dir          string  `yaml:"dir"`
		RanksPerNode int     `yaml:"ranks_per_node"`
		StageDir     string  `yaml:"stage_dir"`
		Progress     string  `yaml:"progress"`
		StallSeconds float64 `yaml:"stall_seconds"`
	} `yaml:"run"`
}

// defaultConfig returns what a key has when nothing sets it.
func defaultConfig() *Config {
	c := new(Config)
	c.Data.Verify = "hashes"
	c.Run.StallSeconds = 60
	c.Model.Kind, c.Model.Layers, c.Model.Hidden, c.Model.Dropout, c.Model.Norm, c.Model.Heads = "sage", 3, 256, 0.5, "none", 2
	c.Sample.Fanouts, c.Sample.Batch, c.Sample.BatchScope, c.Sample.Seeds, c.Sample.Streams = []int{15, 10, 5}, 1024, "rank", "local", "rank"
	c.Train.Epochs, c.Train.LR, c.Train.Optimizer, c.Train.Momentum = 10, 0.003, "adam", 0.9
	c.Train.Schedule, c.Train.StepEpochs, c.Train.StepFactor = "constant", 10, 0.5
	c.Train.Seed, c.Train.EvalEvery, c.Train.EvalMode, c.Train.Allreduce = 1, 1, "sampled", "auto"
	c.Cache.Policy, c.Cache.Alpha, c.Cache.Gamma, c.Cache.Delta = "prefetch", 0.1, 0.995, 64
	c.Cache.Evict, c.Cache.Initial, c.Cache.Scores = true, "degree", "auto"
	c.Cache.Placement, c.Cache.PeerCost = train.PlacementOwn, 0.1
	c.Pipeline.Depth = 2
	c.Topology.Kind, c.Topology.Load = "replicated", "map"
	c.Parallel.Mode = "data"
	c.Compute.Device, c.Compute.SIMD, c.Compute.GPURows, c.Compute.GPUReads = "cpu", "auto", "auto", train.ReadsAuto
	c.Compute.Gradients = string(parallel.TransportAuto)
	c.Checkpoint.Keep = 3
	c.Run.Progress = "auto"
	return c
}

// oneOf is a key that takes one of a few words. Words that the contract names but this version cannot do yet are in later.
type oneOf struct {
	key, value   string
	words, later []string
}

// What is above these is a slip of the pen, and ends for want of memory where it is not refused.
const (
	mostEpochs  = 1e9 // below access.SimulatedFirst
	mostLayers  = 64
	mostHidden  = 1 << 16
	mostDepth   = 1 << 16
	mostThreads = 1 << 12
)

// check returns every fault of the values, joined.
func (c *Config) check() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	atLeast := func(key string, value, least int) {
		if value < least {
			bad("%s is %d; it must be at least %d", key, value, least)
		}
	}
	within := func(key string, value, least, most int) {
		if value < least || value > most {
			bad("%s is %d; it must be %d to %d", key, value, least, most)
		}
	}
	for _, o := range c.choices() {
		switch {
		case slices.Contains(o.words, o.value):
		case slices.Contains(o.later, o.value):
			bad("%s: %q is not in this version; use %s", o.key, o.value, orList(o.words))
		default:
			bad("%s is %q; it must be %s", o.key, o.value, orList(o.words))
		}
	}
	if c.Data.Parts == "" {
		bad("data.parts is missing: the directory that `halognn partition --out` wrote")
	}
	if c.Run.Dir == "" {
		bad("run.dir is missing: the directory that the run writes its results to")
	}
	for _, path := range [][2]string{{"data.parts", c.Data.Parts}, {"run.dir", c.Run.Dir}, {"run.stage_dir", c.Run.StageDir}} {
		if strings.HasPrefix(path[1], "~") {
			bad("%s is %s, and no shell expands ~ there; write the path in full", path[0], path[1])
		}
	}
	within("model.layers", c.Model.Layers, 1, mostLayers)
	within("model.hidden", c.Model.Hidden, 1, mostHidden)
	within("sample.batch", c.Sample.Batch, 1, sample.MaxBatch)
	within("train.epochs", c.Train.Epochs, 1, mostEpochs)
	atLeast("train.seed", c.Train.Seed, 0)
	atLeast("train.eval_every", c.Train.EvalEvery, 0)
	atLeast("train.patience", c.Train.Patience, 0)
	atLeast("train.warmup_steps", c.Train.WarmupSteps, 0)
	within("train.step_epochs", c.Train.StepEpochs, 1, mostEpochs)
	within("pipeline.depth", c.Pipeline.Depth, 0, mostDepth)
	within("pipeline.workers", c.Pipeline.Workers, 0, mostThreads)
	within("compute.threads", c.Compute.Threads, 0, mostThreads)
	if _, err := train.ParseGPURows(c.Compute.GPURows); err != nil {
		bad("compute.gpu_rows: %w", err)
	}
	atLeast("checkpoint.every_steps", c.Checkpoint.EverySteps, 0)
	atLeast("checkpoint.keep", c.Checkpoint.Keep, 1)
	if !(c.Checkpoint.EveryMinutes >= 0) {
		bad("checkpoint.every_minutes is %g; it must be 0 or more", c.Checkpoint.EveryMinutes)
	}
	atLeast("run.ranks_per_node", c.Run.RanksPerNode, 0)
	if !(c.Run.StallSeconds >= 0 && c.Run.StallSeconds <= 1e6) {
		bad("run.stall_seconds is %g; it must be 0 (wait for ever) to 1e6: how long no rank may make progress before the job is ended", c.Run.StallSeconds)
	}
	for _, f := range []struct {
		key  string
		list []int
		may  bool // be empty
	}{{"sample.fanouts", c.Sample.Fanouts, false}, {"sample.eval_fanouts", c.Sample.EvalFanouts, true}} {
		for i, n := range f.list {
			if n < 1 && n != -1 || n > graph.MaxVertices {
				bad("%s[%d] is %d; a fanout is at least 1 and at most %d, or -1 for all neighbours", f.key, i, n, graph.MaxVertices)
			}
		}
		if f.may && len(f.list) == 0 || c.Model.Kind == "mlp" { // which reads no neighbours
			continue
		}
		if len(f.list) != c.Model.Layers && c.Model.Layers >= 1 {
			bad("%s has %d entries but model.layers is %d; give one fanout per layer, seed hop first", f.key, len(f.list), c.Model.Layers)
		}
	}
	if !(c.Model.Dropout >= 0 && c.Model.Dropout < 1) {
		bad("model.dropout is %g; it must be in [0, 1)", c.Model.Dropout)
	}
	if !(c.Cache.Alpha >= 0) || math.IsInf(c.Cache.Alpha, 1) {
		bad("cache.alpha is %g; it must be 0 or more: the cache's rows over an average rank's vertices", c.Cache.Alpha)
	}
	if !(c.Cache.HaloFraction >= 0 && c.Cache.HaloFraction <= 1) {
		bad("cache.halo_fraction is %g; it must be in [0, 1]", c.Cache.HaloFraction)
	}
	within("cache.halo_hops", c.Cache.HaloHops, 0, mostLayers)
	atLeast("cache.window", c.Cache.Window, 0)
	atLeast("cache.delta", c.Cache.Delta, 1)
	if !(c.Cache.Gamma > 0 && c.Cache.Gamma <= 1) {
		bad("cache.gamma is %g; it must be above 0 and at most 1: the decay of an unused row's score in a step", c.Cache.Gamma)
	}
	if cache.Dynamic(c.Cache.Policy) && c.Cache.Placement == train.PlacementGroup {
		bad("cache.placement is %s, which is for caches that do not change, and that of cache.policy %s does; choose cache.policy=vip or another static one (degree, halo1, wpr, paths, sim, oracle), or cache.placement=own", c.Cache.Placement, c.Cache.Policy)
	}
	if !(c.Cache.PeerCost >= 0 && c.Cache.PeerCost <= 1) {
		bad("cache.peer_cost is %g; it must be in [0, 1]: what a row in a peer's cache costs, of one from another node", c.Cache.PeerCost)
	}
	if !(c.Train.LR > 0) || math.IsInf(c.Train.LR, 1) {
		bad("train.lr is %g; it must be positive and finite", c.Train.LR)
	}
	if !(c.Train.StepFactor > 0 && c.Train.StepFactor <= 1) {
		bad("train.step_factor is %g; it must be in (0, 1]", c.Train.StepFactor)
	}
	if !(c.Train.Momentum >= 0 && c.Train.Momentum < 1) {
		bad("train.momentum is %g; it must be in [0, 1)", c.Train.Momentum)
	}
	if !(c.Train.WeightDecay >= 0) || math.IsInf(c.Train.WeightDecay, 1) {
		bad("train.weight_decay is %g; it must be 0 or more, and finite", c.Train.WeightDecay)
	}
	return errors.Join(faults...)
}

func (c *Config) choices() []oneOf {
	return []oneOf{
		{"data.verify", c.Data.Verify, []string{"hashes", "sizes"}, nil},
		{"model.kind", c.Model.Kind, []string{"sage", "mlp"}, []string{"gcn", "gin", "gat"}},
		{"model.norm", c.Model.Norm, []string{"none", "layer"}, []string{"batch"}},
		{"sample.batch_scope", c.Sample.BatchScope, []string{"rank", "global"}, nil},
		{"sample.seeds", c.Sample.Seeds, []string{"local", "global"}, nil},
		{"sample.streams", c.Sample.Streams, []string{"rank", "part"}, nil},
		{"train.optimizer", c.Train.Optimizer, []string{"adam", "adamw", "sgd"}, nil},
		{"train.schedule", c.Train.Schedule, []string{"constant", "cosine", "step"}, nil},
		{"train.eval_mode", c.Train.EvalMode, []string{"sampled", "full"}, nil},
		{"train.allreduce", c.Train.Allreduce, []string{"auto", "reproducible", "mpi"}, nil},
		{"cache.policy", c.Cache.Policy, []string{"none", "degree", "halo1", "wpr", "paths", "sim", "vip", "inclusion", "oracle", "prefetch", "sieve", "lookahead", "auto"}, nil},
		{"cache.initial", c.Cache.Initial, access.InitialPolicies, nil},
		{"cache.scores", c.Cache.Scores, []string{"auto", "dense", "compact"}, nil},
		{"cache.placement", c.Cache.Placement, []string{train.PlacementOwn, train.PlacementGroup}, nil},
		{"topology.kind", c.Topology.Kind, []string{"replicated"}, []string{"partitioned"}},
		{"topology.load", c.Topology.Load, []string{"map", "copy"}, nil},
		{"parallel.mode", c.Parallel.Mode, []string{"data"}, []string{"split", "hybrid", "push-pull"}},
		{"compute.device", c.Compute.Device, []string{"cpu", "cuda", "ref"}, nil},
		{"compute.gpu_reads", c.Compute.GPUReads, []string{train.ReadsAuto, train.ReadsCopy, train.ReadsMapped}, nil},
		{"compute.simd", c.Compute.SIMD, []string{"auto", "scalar", "avx2", "avx512"}, nil},
		{"compute.gradients", c.Compute.Gradients, parallel.Transports(), nil},
		{"run.progress", c.Run.Progress, []string{"auto", "bar", "lines"}, nil},
	}
}

func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// threads returns how many compute threads and pool workers a rank gets of its cpus: what the config says, or a quarter
// to the pool and the rest to the kernels; a GPU leaves nearly all to the pool.
func (c *Config) threads(cpus int) (compute, workers int) {
	compute, workers = c.Compute.Threads, c.Pipeline.Workers
	if c.Compute.Device == "cuda" { // which computes itself: the rank's own thread and the lane of exchanges want a CPU each
		if workers == 0 {
			workers = max(1, cpus-2)
		}
		return 1, workers
	}
	if workers == 0 {
		workers = max(1, cpus/4)
	}
	if compute == 0 {
		compute = max(1, cpus-workers)
	}
	return compute, workers
}

// trainOptions turns the checked config into what package train takes.
func (c *Config) trainOptions() train.Options {
	optimizer := nn.DefaultOptimizer(c.Train.Optimizer)
	optimizer.Momentum, optimizer.WeightDecay = c.Train.Momentum, c.Train.WeightDecay
	return train.Options{
		Model: nn.Config{
			Kind: c.Model.Kind, Layers: c.Model.Layers, Hidden: c.Model.Hidden,
			Dropout: float32(c.Model.Dropout), Norm: c.Model.Norm,
		},
		Fanouts: c.Sample.Fanouts, EvalFanouts: c.Sample.EvalFanouts, Batch: c.Sample.Batch,
		GlobalBatch: c.Sample.BatchScope == "global", GlobalSeeds: c.Sample.Seeds == "global", StreamPerPart: c.Sample.Streams == "part",
		Epochs: c.Train.Epochs, Optimizer: optimizer, StepEpochs: c.Train.StepEpochs,
		Schedule: nn.Schedule{Kind: c.Train.Schedule, Base: c.Train.LR, Warmup: c.Train.WarmupSteps, Gamma: c.Train.StepFactor},
		Seed:     uint64(c.Train.Seed), EvalEvery: c.Train.EvalEvery, EvalFull: c.Train.EvalMode == "full", Patience: c.Train.Patience,
		Sum: sumModes[c.Train.Allreduce], Depth: c.Pipeline.Depth,
		Checkpoint: train.CheckpointOptions{
			EverySteps: c.Checkpoint.EverySteps, EveryMinutes: c.Checkpoint.EveryMinutes, Keep: c.Checkpoint.Keep,
		},
		Cache: train.CacheOptions{Policy: c.Cache.Policy, Alpha: c.Cache.Alpha, HaloFraction: c.Cache.HaloFraction, HaloHops: c.Cache.HaloHops, Placement: c.Cache.Placement, PeerCost: c.Cache.PeerCost,
			Window: c.Cache.Window, Level: c.Cache.Level, Gamma: c.Cache.Gamma, Delta: c.Cache.Delta, Evict: c.Cache.Evict, Initial: c.Cache.Initial, Layout: layouts[c.Cache.Scores]},
	}
}

var layouts = map[string]cache.Layout{"auto": cache.LayoutAuto, "dense": cache.LayoutDense, "compact": cache.LayoutCompact}

var sumModes = map[string]comm.SumMode{"auto": comm.SumAuto, "reproducible": comm.SumReproducible, "mpi": comm.SumFast}

// simd returns the level that the config forces, or nothing.
func (c *Config) simd() string {
	if c.Compute.SIMD == "auto" {
		return ""
	}
	return c.Compute.SIMD
}

// yaml returns the resolved config as a file that loads to the same.
func (c *Config) yaml() ([]byte, error) {
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("writing the config: %w", err)
	}
	return text, nil
}
