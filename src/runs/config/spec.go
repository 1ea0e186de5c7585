package config

import (
	"slices"

	"halognn/src/model/nn"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// Spec returns the job that the config describes: the field Job, completed by what follows from
// other keys.
func (c *Config) Spec() job.Spec {
	s := c.Job
	o := nn.DefaultOptimizer(s.Optimizer.Kind)
	o.Momentum, o.WeightDecay = s.Optimizer.Momentum, s.Optimizer.WeightDecay
	s.Optimizer = o
	if c.Compute.Device == "cuda" {
		s.Model.Fold = nn.FoldNever
	}
	if s.Sample.HasFanouts() {
		s.Sample.Fanouts = c.Drawn.Fanouts
	} else {
		s.Sample.Vertices = slices.Repeat([]int{c.Drawn.LayerVertices}, max(0, s.Model.Layers))
	}
	// Minibatches that are not trained are always drawn by kind Neighbour.
	if eval := c.Drawn.EvalFanouts; len(eval) > 0 {
		s.Eval = sample.Neighbours(eval...)
	} else if s.Sample.Kind != sample.Neighbour {
		s.Eval = sample.Neighbours(c.Drawn.Fanouts...)
	}
	s.Sums, s.TrySums = c.Sums != SumsOff, c.Sums == SumsAuto
	if s.TrySums {
		s.Sums = parallel.WithoutSums(&s) == ""
	}
	s.AsNodes, s.TryNodes = c.Nodes != SumsOff, c.Nodes == SumsAuto
	if s.TryNodes {
		s.AsNodes = parallel.WithoutNodes(&s) == ""
	}
	return s
}
