package record

import "time"

// The kinds of the lines of metrics.jsonl.
const (
	KindStep  = "step"
	KindEpoch = "epoch"
	KindEval  = "eval"
)

// Step is the line of a step in metrics.jsonl.
type Step struct {
	// `step`
	Kind string `json:"kind"`
	// number of the epoch, from 1
	Epoch int `json:"epoch"`
	// number of the step within the epoch, from 0
	Step int `json:"step"`
	// loss of the global minibatch
	Loss float64 `json:"loss"`
	// `loss` as float32 bits, hex
	LossBits string `json:"loss_bits"`
	// learning rate
	LR float64 `json:"lr"`
	// number of seeds in the global minibatch
	Seeds int `json:"seeds"`
	// accuracy on the training seeds, dropout on; multi-label: micro-F1, null without labels;
	// absent for numbers and ranked links
	Accuracy *Metric `json:"accuracy,omitempty"`
	// for links: MRR of the training links among the minibatch's negatives, dropout on
	MRR *Metric `json:"mrr,omitempty"`
	// when the line was written, in seconds since 1970
	Time float64 `json:"time"`
	// rank 0's wait for the minibatch
	WaitSeconds float64 `json:"wait_seconds"`
	// rank 0's collectives
	Collectives int64 `json:"rounds"`
	Rows
}

// Epoch is the line of an epoch in metrics.jsonl.
type Epoch struct {
	// `epoch`
	Kind string `json:"kind"`
	// number of the epoch, from 1
	Epoch int `json:"epoch"`
	// as in `epoch_seconds`
	Seconds float64 `json:"seconds"`
	// when the line was written, in seconds since 1970
	Time float64 `json:"time"`
	// mean loss of the steps, weighted by seeds
	Loss float64 `json:"loss"`
	// learning rate of the last step
	LR float64 `json:"lr"`
	// share of the epoch in which training waited, mean over ranks
	WaitFraction float64 `json:"wait_fraction"`
	// as `busy_fraction` of the summary, of this epoch, mean over ranks
	BusyFraction float64 `json:"busy_fraction"`

	// wait for the first minibatch of the epoch, mean over ranks
	Startup float64 `json:"startup_seconds"`
	// `startup_seconds` as a share of the epoch, mean over ranks
	StartupFraction float64 `json:"startup_fraction"`
	// seconds of each phase, mean over ranks
	PhaseSeconds map[string]float64 `json:"phase_seconds"`
	// as `owner_skew` of the summary
	OwnerSkew float64 `json:"owner_skew,omitempty"`
	// rank 0: as `first_step`
	FirstStep float64 `json:"first_step_seconds"`
	// with `sample.locality_adapt`: the factor
	Factor float64 `json:"locality_factor,omitempty"`
	// share of loading that gives the next factor; absent: 0
	LoadingShare float64 `json:"loading_share,omitempty"`
	// collectives of each rank, all equal
	Collectives int64 `json:"rounds"`
	Rows
	// numbers of each rank, by rank
	Ranks []Rank `json:"ranks"`
}

// Now returns the time of a record, to the millisecond.
func Now() float64 { return float64(time.Now().UnixMilli()) / 1e3 }

// Rank is the part of one rank in an epoch.
type Rank struct {
	// rows received; where nodes fetch as one, a row counts for the first rank that wants it
	Remote int64 `json:"remote_rows"`
	// rows that the rank read to send them or, with `exchange.sums`, to add them
	Read int64 `json:"read_for_others"`
	// waiting, as a share of the epoch time of the rank
	WaitFraction float64 `json:"wait_fraction"`
}

// Eval is the line of an evaluation in metrics.jsonl.
type Eval struct {
	// `eval`
	Kind string `json:"kind"`
	// number of the epoch, from 1
	Epoch int `json:"epoch"`
	// what the evaluation took
	Seconds float64 `json:"seconds"`
	// when the line was written, in seconds since 1970
	Time float64 `json:"time"`
	// for links: every metric of the validation links
	Links map[string]float64 `json:"valid_links,omitempty"`
	// `train.eval_mode`
	Mode string `json:"mode"`
	// accuracy of validation, as in `summary.json`
	ValidAccuracy *Metric `json:"valid_accuracy,omitempty"`
	// metric of validation, as in `summary.json`
	ValidMetric Metric `json:"valid_metric"`
	// accuracy on the test set; only with mode `full`
	TestAccuracy *Metric `json:"test_accuracy,omitempty"`
	// only with mode `full`
	TestMetric *Metric `json:"test_metric,omitempty"`
}
