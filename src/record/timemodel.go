package record

import "halognn/src/trace"

// TimeModel is MassiveGNN's model of a step, made of the terms that the run has measured, beside
// the steps that it has measured: seconds, means over epochs.
type TimeModel struct {
	trace.StepModel
	// `pipeline.depth`: which equation to compare with
	Depth int `json:"depth"`
	// measured: a step that is not the first of its epoch, (epoch - `save` - `first_step`) /
	// (`steps_per_epoch` - 1); with one step an epoch, `first_step`
	Step float64 `json:"step"`
	// measured: from the beginning of an epoch until its second step begins, or its end, less what
	// checkpoints took; of a step that is queued on a GPU, until its result is there
	FirstStep float64 `json:"first_step"`
}

// Adapted has the factors of sample.locality_adapt in the complete epochs: "locality" of
// summary.json.
type Adapted struct {
	// how many times likelier each epoch drew what was at hand
	Factors []float64 `json:"factors"`
	// what the factor of the next epoch followed from: the share of loading in the time of each
	// epoch, by counts and the rates `sample.locality_link` and `sample.locality_edges`
	Shares []float64 `json:"loading_shares"`
}
