// Package record has what a run writes of itself: summary.json, the lines of metrics.jsonl and the
// table at its end. A training fills them in; `make docs` prints the comments of their fields.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"halognn/src/mem"
	"halognn/src/residence"
	"halognn/src/rundir"
	"halognn/src/task"
	"halognn/src/trace"
)

// Summary is what a run comes to: summary.json. `make docs` prints the comments of its fields, and
// of those of metrics.jsonl, in docs/metrics.md.
type Summary struct {
	Quality
	Trained

	Rows
	// collectives that a rank has started for the minibatches of a step: ids and rows, so 2 for
	// each minibatch that it trains (several with `sample.streams: part`), and 2 with the ranks of
	// its node where these fetch as one (`exchange.nodes`). With `topology.kind: partitioned` also
	// ids and neighbours: 2 for each hop that asks other ranks. With `parallel.mode: split` ids of
	// each hop but the last, and 2 shuffles for each layer after the first; with `hybrid` also ids
	// and rows of the last hop; with `push-pull` 3 instead of 2: input hops, partial sums and their
	// gradients. Ranks that share minibatches start 2 more for each batch norm, 2 for links, whose
	// embeddings and gradients travel, and 1 for each hop of LADIES. Models that read features of
	// edges start 2 for these; models that learn rows 3 for those, and 1 more where
	// `pipeline.depth` is above 0. Equal on all ranks; of the last epoch
	CollectivesPerStep float64 `json:"rounds_per_step"`
	// bytes that all ranks send each other in a step to add the gradients of weights: 8 for each
	// number and each rank but one, 4 with `train.gradient_dtype: bf16`; what a library adds counts
	// as if added in rank order, which sends the fewest; absent of one rank, and of a run that was
	// resumed after its last step
	GradientBytes int64 `json:"gradient_bytes,omitempty"`
	// rows that the busiest rank read for others, over the mean of all ranks: rows that it sent and,
	// with `exchange.sums`, those that it added; of the last epoch
	OwnerSkew float64 `json:"owner_skew,omitempty"`

	CacheUse
	Times

	// largest resident set of any rank (VmHWM), pages of mapped files included
	PeakRSSBytes int64 `json:"peak_rss_bytes"`
	// bytes of that rank, by [item](guide/size-a-job.md#memory-items); their sum is compared with
	// `peak_rss_bytes`. Ranks of one process count the arrays of all. With a GPU, pinned memory
	// counts and device memory does not
	Memory map[string]int64 `json:"memory"`

	Machine
	// [below](#energy)
	Energy Energy `json:"energy"`
	// that prepare minibatches, of rank 0
	Workers int `json:"-"`
	// the nodes are run.ranks_per_node's
	Pretended bool `json:"-"`
	// all rows are in the memory of one node, and nothing is cached
	InMemory bool `json:"-"`
}

// Quality is what the trained model is worth.
type Quality struct {
	// what chooses the best epoch: `train.metric`, or `accuracy` (one class a vertex), `roc_auc`
	// (two classes), `micro_f1` (multi-label)
	MetricName string `json:"metric_name"`
	// that metric, in [0, 1], of the test vertices, with the weights of the best epoch and all
	// neighbours; null, as those below, where the vertices give it no value
	TestMetric Metric `json:"test_metric"`
	// of the task of links: every metric of the test links
	Links map[string]float64 `json:"test_links,omitempty"`
	// of tasks of numbers: every metric of the test vertices, or links
	Numbers map[string]float64 `json:"test_numbers,omitempty"`
	// that metric of the validation vertices at the best epoch
	ValidMetric Metric `json:"valid_metric"`
	// share of the test vertices, or links, whose largest logit is the label, with those weights;
	// multi-label: micro-F1; absent of numbers, and of links that are ranked
	TestAccuracy *Metric `json:"test_accuracy,omitempty"`
	// the same of the validation vertices, at the best epoch
	ValidAccuracy *Metric `json:"valid_accuracy,omitempty"`
	// share, in the test set, of the class most frequent in training: what a model must beat;
	// absent with other metrics than `accuracy`
	MajorityAccuracy *Metric `json:"majority_accuracy,omitempty"`
	// why each of these that is null has no value: an empty split, one without labels or, for
	// `roc_auc`, of one class; absent if all have one
	NoValue map[string]string `json:"no_value,omitempty"`
	// test vertices of class i (row) that were taken for class j (column); one class a vertex, up
	// to 40 classes; absent without test vertices
	Confusion [][]int64 `json:"confusion,omitempty"`
	// with it: names of the classes, where the dataset has them
	ClassNames []string `json:"class_names,omitempty"`
	// epoch, from 1, whose validation was best; the first one on a tie; without a validation metric
	// the last one
	BestEpoch int `json:"best_epoch"`
}

// Trained is what was trained, and its digests.
type Trained struct {
	// epochs trained; fewer than asked for if `train.patience` ended the run
	Epochs int `json:"epochs"`
	// updates of all ranks together in an epoch
	StepsPerEpoch int `json:"steps_per_epoch"`
	// median over epochs, from the first minibatch's preparation to the last update, without
	// evaluation; rank 0
	EpochSeconds float64 `json:"epoch_seconds"`
	// mean over the steps of the last epoch of the global loss (dropout on), weighted by seeds
	TrainLoss float64 `json:"train_loss"`
	// XXH64 over the float32 bits, little-endian, of every step's global loss, in order
	LossDigest string `json:"loss_digest"`
	// XXH64 over the float32 bits of all weights after the last step, in the order of
	// `model.safetensors`
	WeightsDigest string `json:"weights_digest"`
	// sum over learned rows (`model.learned`) after the last step of the XXH64 of the vertex's id and
	// the row's float32 bits; absent without
	LearnedDigest string `json:"learned_digest,omitempty"`
	// of each file of learned rows the bytes and the XXH64, to which `halognn check` and `infer` hold
	// it
	LearnedFiles rundir.FileSums `json:"learned_files,omitempty"`
	// sum, over all training minibatches, of the XXH64 of the blocks (row pointers and columns of
	// every layer) and of the input frontier's original ids in order: equal digests mean equal
	// minibatches, whatever ranks drew them. Absent if a GPU drew some of them (`sample.on`)
	BlocksDigest string `json:"blocks_digest,omitempty"`
	// sum, over all edges of all training minibatches, of a hash of (key, hop, original ids of
	// destination and source): equal digests mean the same sampled edges, however blocks number
	// their vertices. Absent if a run continues from a checkpoint without it
	EdgesDigest string `json:"edges_digest,omitempty"`
	// with `sample.locality_adapt`: what it came to, by epoch
	Locality *Adapted `json:"locality,omitempty"`
}

// CacheUse is what a cache did, and why owners added rows, or nodes fetched as one, or did not.
type CacheUse struct {
	// with `exchange.sums: auto`: what was chosen, and why
	SumsChoice *residence.SumsChoice `json:"sums_choice,omitempty"`
	// with `exchange.nodes: auto`: what was chosen, and why
	NodesChoice *residence.NodesChoice `json:"nodes_choice,omitempty"`
	// `cache.policy` of the run; with `auto` the policy that it chose; `none` on one node, where
	// all rows are in memory, unless they come from the files (`cache.source`)
	CachePolicy string `json:"cache_policy"`
	// with a cache or `auto`: what it was; numbers are the largest of any rank
	Cache *residence.Summary `json:"cache,omitempty"`
	// (`remote_rows` + `stored_rows`) / `steps_per_epoch`
	RemoteRowsPerStep float64 `json:"remote_rows_per_step"`
	// the same as predicted before the first step from access probabilities; only with a cache,
	// without `exchange.sums` and where nodes do not fetch as one
	ExpectedRowsPerStep float64 `json:"expected_remote_rows_per_step,omitempty"`
}

// Times is where the time of an epoch goes.
type Times struct {
	// time training waited for the next minibatch / epoch time, mean over ranks
	WaitFraction float64 `json:"wait_fraction"`
	// processor time in which a rank's CPUs worked for it / their time, mean over ranks, median of
	// the epochs since the last start: neither idle, nor spinning, nor on the thread that polls MPI
	BusyFraction float64 `json:"busy_fraction"`
	// POP's metrics: [below](#efficiency)
	Efficiency Efficiency `json:"efficiency"`
	// by [phase](#phases), per epoch, mean over ranks
	PhaseSeconds map[string]float64 `json:"phase_seconds"`
	// MassiveGNN's model of a step beside the measured steps: [below](#time-model)
	TimeModel TimeModel `json:"time_model"`

	// MassiveGNN's communication time (equation 9, its Figure 11): `exchange` + `slice` - `gather`,
	// and 0 if copying takes longer; per epoch, mean over ranks. `wait` has only what was not
	// hidden of it
	StallSeconds float64 `json:"communication_stall_seconds"`
	// that / mean epoch time of rank 0. Above 1 where the exchanges of several minibatches overlap
	StallFraction float64 `json:"communication_stall_fraction"`

	// from the beginning of the command to the first epoch, mean over ranks; of the last start, if
	// the run was resumed. MassiveGNN's initialisation cost (Figure 8) is the share of caches in it
	SetUpSeconds float64 `json:"setup_seconds"`
	// its items, which add up to it: [below](#set-up)
	SetUp map[string]float64 `json:"setup"`

	// the share of `wait` for the first minibatch of an epoch, while the pipeline filled
	// (SALIENT++, Figure 8, *Startup*); per epoch, mean over ranks. After a restart within an
	// epoch, of both starts
	StartupSeconds float64 `json:"startup_seconds"`
	// that / epoch time, mean over ranks and epochs
	StartupFraction float64 `json:"startup_fraction"`
}

// Machine is what was trained on what.
type Machine struct {
	// ranks of the run
	Ranks int `json:"ranks"`
	// parts of the graph
	Parts int `json:"parts"`
	// nodes, as regrouped by `run.ranks_per_node`
	Nodes int `json:"nodes"`
	// the device, with its SIMD level, library of matrix products and threads
	Device string `json:"device"`
	// what carried messages: an MPI, or goroutines
	Transport string `json:"transport"`
	// `reproducible`, or the library whose order of summation it is: `mpi` or `nccl`
	Allreduce string `json:"allreduce"`
	// how gradients were summed over ranks: `host`; with a GPU `nccl`, `mpi` or `staged`
	// (`compute.gradients`), or `device` for one rank alone
	Gradients string `json:"gradients"`
	// how rows went between layers where ranks share minibatches or hold columns: `host`; with a GPU
	// `direct` or `staged` (`compute.shuffles`)
	ShuffledBy string `json:"shuffles,omitempty"`

	// with `compute.device: cuda`: where the device of each rank reads feature rows
	DeviceRows []residence.DeviceRows `json:"device_rows,omitempty"`
	// likewise: where minibatches were drawn that were trained (`sample.on`), `host` or `device`
	SampledOn string `json:"sampled_on,omitempty"`
	// and why there
	SampledWhy string `json:"sampled_why,omitempty"`
	// how often, over all ranks, memory was pinned for minibatches that are trained, since the run began
	// or was resumed, beyond what was pinned at first; a device waits for it; absent: 0
	PinnedGrowths uint64 `json:"pinned_growths,omitempty"`
	// the build
	Version string `json:"version"`
	// when the summary was made, UTC
	Finished string `json:"finished"`
	// host of rank 0
	Host string `json:"host"`
	// number of the batch job, if there is one
	Job string `json:"job"`
	// its size
	Graph GraphSize `json:"graph"`
}

// GraphSize is the size of the trained graph.
type GraphSize struct {
	// vertices
	Vertices int64 `json:"vertices"`
	// directed edges, as stored
	Edges int64 `json:"edges"`
	// columns of a feature row
	Features int `json:"features"`
	// classes
	Classes int `json:"classes"`
}

// Explain notes why metrics have no value.
func (q *Quality) Explain() {
	note := func(key string, m *Metric) {
		if m == nil || m.Known {
			return
		}
		if q.NoValue == nil {
			q.NoValue = map[string]string{}
		}
		q.NoValue[key] = m.Why
	}
	note("test_metric", &q.TestMetric)
	note("valid_metric", &q.ValidMetric)
	note("test_accuracy", q.TestAccuracy)
	note("valid_accuracy", q.ValidAccuracy)
	note("majority_accuracy", q.MajorityAccuracy)
}

func (s *Summary) Write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return rundir.WriteFile(filepath.Join(dir, rundir.SummaryFile), append(data, '\n'))
}

// LearnedFiles returns the sums of a finished run's files of learned rows; none of one that has not
// finished.
func LearnedFiles(run string) (rundir.FileSums, error) {
	var s struct {
		Files rundir.FileSums `json:"learned_files"`
	}
	path := filepath.Join(run, rundir.SummaryFile)
	text, err := mem.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil:
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s.Files, nil
}

// Print writes the table at the end of a run.
func (s *Summary) Print(w io.Writer) error {
	percent := func(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }
	rows := [][]string{
		{"result", ""},
		{"test " + s.MetricName, MetricText(s.MetricName, s.TestMetric)},
		{"valid " + s.MetricName + fmt.Sprintf(" (epoch %d)", s.BestEpoch),
			MetricText(s.MetricName, s.ValidMetric)},
	}
	if s.MajorityAccuracy != nil {
		rows = append(rows, []string{"majority class", MetricText(task.Accuracy, *s.MajorityAccuracy)})
	}
	rows = append(rows, [][]string{
		{"train loss (last epoch)", fmt.Sprintf("%.4f", s.TrainLoss)},
		{"loss digest", s.LossDigest},
		{"", ""},
		{"traffic per epoch, all ranks", "rows"},
		{"local", strconv.FormatInt(s.Local, 10)},
		{"peer (same node)", strconv.FormatInt(s.Peer, 10)},
		{"remote", strconv.FormatInt(s.Remote, 10)},
	}...)
	if s.Shared > 0 {
		rows = append(rows, []string{"fetched by another of the node", strconv.FormatInt(s.Shared, 10)})
	}
	rows = append(rows, [][]string{
		{"remote, MB", fmt.Sprintf("%.1f", float64(s.RemoteBytes)/1e6)},
	}...)
	if s.Shuffles.Bytes > 0 {
		rows = append(rows, []string{"shuffled", strconv.FormatInt(s.Shuffles.Rows, 10)},
			[]string{"shuffled, MB", fmt.Sprintf("%.1f", float64(s.Shuffles.Bytes)/1e6)})
	}
	if s.Stored > 0 {
		rows = append(rows, []string{"from files", strconv.FormatInt(s.Stored, 10)})
	}
	if l := s.Locality; l != nil && len(l.Factors) > 0 {
		last := len(l.Factors) - 1
		rows = append(rows, []string{"locality; share of loading (last epoch)",
			fmt.Sprintf("%g; %s", l.Factors[last], percent(l.Shares[last]))})
	}
	// auto's trials are in the mean, and not in the prediction
	if s.ExpectedRowsPerStep > 0 && s.Cache.Chosen == "" {
		rows = append(rows, []string{"remote of a step; as predicted",
			fmt.Sprintf("%.0f; %.0f", s.RemoteRowsPerStep, s.ExpectedRowsPerStep)})
	}
	cached := []string{"hit rate (cache " + s.CachePolicy + ")", percent(s.HitRate)}
	if s.InMemory {
		cached = []string{"cache (one node: all in memory)", "none"}
	}
	rows = append(rows, [][]string{
		cached,
		{"", ""},
		{"time per epoch, means of epochs and ranks", "s"},
	}...)
	for p := range trace.NumPhases {
		rows = append(rows, []string{p.String(), fmt.Sprintf("%.3f", s.PhaseSeconds[p.String()])})
	}
	rows = append(rows, [][]string{
		{"epoch, median", fmt.Sprintf("%.3f", s.EpochSeconds)},
		{"waited for minibatches", percent(s.WaitFraction)},
	}...)
	if e := &s.Efficiency; e.Parallel != nil && s.Ranks > 1 {
		rows = append(rows, []string{"load balance", percent(*e.LoadBalance)},
			[]string{"communication efficiency", percent(*e.Communication)},
			[]string{"parallel efficiency, their product", percent(*e.Parallel)})
	}
	rows = append(rows, [][]string{
		{"peak memory of a rank, MB", fmt.Sprintf("%.0f", float64(s.PeakRSSBytes)/1e6)},
	}...)
	nodes := Counted(s.Nodes, "node")
	if s.Pretended {
		nodes = Counted(s.Nodes, "pretended node")
	}
	if _, err := fmt.Fprintf(w, "\n%s on %s, %s, %s; %s for preparing\n", Counted(s.Ranks, "rank"),
		nodes, s.Transport, s.Device, Counted(s.Workers, "thread")); err != nil {
		return err
	}
	for _, row := range rows { // digits stand below each other, with their percent signs behind
		if len(row) > 1 && !strings.HasSuffix(row[1], "%") {
			row[1] += "  "
		}
	}
	if err := trace.Table(w, rows); err != nil {
		return err
	}
	about := WhatToDo
	if sentence := s.Efficiency.Sentence(); s.Ranks > 1 && sentence != "" {
		about = sentence + "\n" + about
	}
	_, err := fmt.Fprintf(w, "\n%s\n", about)
	return err
}

// Counted writes a number of things.
func Counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
