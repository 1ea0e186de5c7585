// Package config has the settings of a run: one table of keys, and the YAML file that sets them.
//
//	table.go ──> a Key each: default, range or choices, traits, text
//	   │
//	   ├─ Load      FILE.yaml, --set key=value ──> Config, or all errors, with lines
//	   ├─ YAML      Config ──> FILE.yaml, with or without comments; it loads to the same
//	   ├─ Markdown  docs/config.md
//	   ├─ Changes   keys that differ from a run's first config and must not
//	   └─ Has       the traits by which reports compare runs
//
// A key is a field of Config and a row of the table; nothing else lists keys. The package checks
// words and numbers but does not interpret them: package cmd converts a Config to options of other
// packages.
package config

// Config is the settings of one run. Each field is a key; table.go names it and gives its meaning.
type Config struct {
	Data struct {
		Parts, Verify string
	}
	Model struct {
		Kind           string
		Layers, Hidden int
		Dropout        float64
		Norm           string
		Activation     string
		Residual       bool
		EdgeWeights    bool
		Jumping        string
		Aggregation    string
		GCNNorm        string
		Heads          int
		HeadMerge      string
		Slope          float64
	}
	Sample struct {
		Kind                       string
		LayerVertices              int
		Locality                   float64
		LocalityVertices           int
		LocalityAdapt              bool
		LocalityLower              float64
		LocalityUpper              float64
		LocalityLink               float64
		LocalityEdges              float64
		Fanouts, EvalFanouts       []int
		Batch                      int
		BatchScope, Seeds, Streams string
		Kernel                     string
	}
	Train struct {
		Epochs                int
		LR                    float64
		Optimizer             string
		Momentum, WeightDecay float64
		Schedule              string
		WarmupSteps           int
		StepEpochs            int
		StepFactor            float64
		Seed                  int
		EvalEvery             int
		EvalMode              string
		Metric                string
		ClassWeights          string // ParseWeights reads it
		LabelSmoothing        float64
		Patience              int
		Allreduce             string
	}
	Cache struct {
		Policy              string
		Alpha, HaloFraction float64
		HaloHops            int
		Gamma               float64
		Delta               int
		Evict               bool
		Initial, Scores     string
		Window              int
		Level               bool
		Placement           string
		PeerCost            string // ParseCost reads it
		Source              string
	}
	Pipeline struct {
		Depth, Workers int
	}
	Exchange struct {
		Sums   string
		Window int
	}
	Topology struct {
		Kind, Load string
	}
	Parallel struct {
		Mode string
	}
	Compute struct {
		Device    string
		Threads   int
		GPURows   string // ParseRows reads it
		GPUReads  string
		Gradients string
		GEMM      string
		Precision string
		SIMD      string
	}
	Checkpoint struct {
		EverySteps   int
		EveryMinutes float64
		Keep         int
	}
	Run struct {
		Dir          string
		RanksPerNode int
		StageDir     string
		ScratchDir   string
		Progress     string
		StallSeconds float64
	}
}

// Default returns the config with every key at its default.
func Default() *Config {
	c := new(Config)
	for _, k := range c.keys() {
		k.reset()
	}
	return c
}

// keys returns the keys in the order of the table, bound to the fields of c.
func (c *Config) keys() (all []*Key) {
	for _, s := range c.table() {
		all = append(all, s.keys...)
	}
	return all
}

// Flat returns the value of every key as text.
func (c *Config) Flat() map[string]string {
	text := map[string]string{}
	for _, k := range c.keys() {
		text[k.Name] = k.flat()
	}
	return text
}
