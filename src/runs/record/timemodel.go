package record

import "halognn/src/base/trace"

// TimeModel is MassiveGNN's model of a step, made of the terms that the run has measured, beside
// the steps that it has measured: seconds, means over epochs.
type TimeModel struct {
	trace.StepModel
	// `pipeline.depth`: which equation to compare with
	Depth int `json:"depth"`
	// measured: a step but the first of its epoch, (epoch - `save` - `first_step`) /
	// (`steps_per_epoch` - 1)
	Step float64 `json:"step"`
	// measured: from an epoch's beginning to its second step, or end, without checkpoints; of a
	// step queued on a GPU, until its result is there
	FirstStep float64 `json:"first_step"`
}

// Adapted has the factors of sample.locality_adapt in the complete epochs: "locality" of
// summary.json.
type Adapted struct {
	// the factor
	Factors []float64 `json:"factors"`
	// share of loading, by counts and the rates of the config, which gave the next factor
	Shares []float64 `json:"loading_shares"`
}
