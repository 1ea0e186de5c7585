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
// A key is a field of Config and a row of the table; nothing else lists keys. Many of the fields
// are of types of other packages, which read them, so a key is set where it is used. This package
// checks each word and number by itself. Package parallel says what cannot be combined.
package config

import (
	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
)

// Config is the settings of one run. Each field is a key; table.go names it and gives its meaning.
type Config struct {
	Data struct {
		Parts  string // directory of the parts; must be given
		Verify string // hashes or sizes
		Split  int    // index of the split; 0 is the first, by which parts are balanced
	}
	// Job has the fields of the job that keys set. The method Spec adds what follows from other
	// keys, such as Drawn, Sums and Nodes.
	Job      job.Spec
	Drawn    Drawn
	Sums     string // SumsOff, SumsOn or SumsAuto
	Nodes    string // the same words, for exchange.nodes
	Training Training
	Compute  Compute
	Saves    Saves
	Run      struct {
		Dir          string  // directory of the results; must be given
		Load         string  // how the topology is loaded: map or copy
		RanksPerNode int     // ranks of a pretended node; 0: nodes as launched
		StageDir     string  // node-local directory to which parts are copied; "": not copied
		ScratchDir   string  // directory for hidden rows of full inference; "": they are in memory
		Progress     string  // auto, bar or lines
		StallSeconds float64 // seconds without progress after which a job ends; 0: it never does
	}
}

// Drawn says how minibatches are drawn. The method Spec makes the sampling of the job from it.
type Drawn struct {
	Fanouts       []int // neighbours per hop, seed hop first; each >= 1, or sample.All
	EvalFanouts   []int // fanouts of minibatches that are not trained; if empty, Fanouts
	LayerVertices int   // for LADIES: vertices of a layer on average, >= 1
}

// Training is how a model is trained and judged.
type Training struct {
	EvalEvery int    // epochs between evaluations; 0: evaluate only after the last epoch
	EvalFull  bool   // evaluate with all neighbours
	Metric    string // "" or "auto": the default of the task
	Loss      Loss
	Patience  int // validations without improvement after which training stops; 0: it never does
}

// Loss says how the loss differs from the usual loss of the task.
type Loss struct {
	task.Objective
	Balanced bool // weight of a class: training seeds / (classes * seeds of the class)
}

// Compute is what a rank computes with.
type Compute struct {
	Device    string // cpu, cuda or ref
	Threads   int    // compute threads of a rank; 0: one for each CPU that it is bound to
	Workers   int    // goroutines that prepare minibatches; 0: as many as Depth, CPUs permitting
	GPU       residence.GPU
	Gradients parallel.Transport
	Shuffles  parallel.Shuffling
	GEMM      string // library of matrix products: auto, onednn, openblas or go
	Precision compute.Precision
	SIMD      string // level of the kernels: auto, scalar, avx2 or avx512
}

// Saves says how often rank 0 saves the state of a run, besides at a stop and at the end of
// training, and how many checkpoints it keeps.
type Saves struct {
	EverySteps   int     // updates between two saves; 0: never by steps
	EveryMinutes float64 // minutes between two saves; 0: never by time
	Keep         int     // newest checkpoints that stay, >= 1
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
