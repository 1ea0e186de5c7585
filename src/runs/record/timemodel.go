package record

import "halognn/src/base/trace"

// TimeModel is MassiveGNN's model of a step, computed from the phases that the run has measured,
// with the measured steps beside it. All times are seconds, as means over epochs.
type TimeModel struct {
	trace.StepModel
	// `pipeline.depth`: which equation to compare with
	Depth int `json:"depth"`
	// measured: mean step without the first of each epoch, (epoch - `save` - `first_step`) /
	// (`steps_per_epoch` - 1)
	Step float64 `json:"step"`
	// measured: from an epoch's beginning to its second step, or end, without checkpoints; if a GPU
	// queues steps, until the first has its result
	FirstStep float64 `json:"first_step"`
}

// Adapted has the factors of sample.locality_adapt in the complete epochs: "locality" in
// summary.json.
type Adapted struct {
	// factor of each epoch
	Factors []float64 `json:"factors"`
	// share of loading, computed from counts and the config's rates; decides the next factor
	Shares []float64 `json:"loading_shares"`
}
