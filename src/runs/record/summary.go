// Package record has the files that a run writes about itself: summary.json, the lines of
// metrics.jsonl, and the table at the end. Training fills them in. `make docs` prints the comments
// of their fields.
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

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/model/task"
	"halognn/src/step/residence"
)

// Summary is summary.json: the results of a run. `make docs` prints the comments of its fields, and
// of the fields of the lines of metrics.jsonl, in docs/metrics.md.
type Summary struct {
	Quality
	Trained

	Rows
	// collectives of a step in the last epoch, the same on all ranks: 2 (ids, rows) for each
	// minibatch of a rank, 2 for each hop that asks other ranks, and others as in
	// `src/step/parallel/cost.go`
	CollectivesPerStep float64 `json:"rounds_per_step"`
	// bytes that all ranks send in a step to add weight gradients, as if in rank order: for each
	// number, 8 (4 with `train.gradient_dtype: bf16`) times the ranks less one; absent with one
	// rank, and if resumed after the last step
	GradientBytes int64 `json:"gradient_bytes,omitempty"`
	// rows that the busiest rank read for others (sent or, with `exchange.sums`, added) / mean over
	// ranks; in the last epoch
	OwnerSkew float64 `json:"owner_skew,omitempty"`

	CacheUse
	Times

	// largest resident set of any rank (VmHWM), with pages of mapped files
	PeakRSSBytes int64 `json:"peak_rss_bytes"`
	// bytes of that rank, by [item](guide/size-a-job.md#memory-items). Ranks of one process count
	// the arrays of all. With a GPU pinned memory counts, device memory does not
	Memory map[string]int64 `json:"memory"`

	Machine
	// [below](#energy)
	Energy Energy `json:"energy"`
	// number of threads of rank 0 that prepare minibatches
	Workers int `json:"-"`
	// the nodes are not real: run.ranks_per_node sets which ranks form a node
	Pretended bool `json:"-"`
	// all rows are in the memory of one node, and nothing is cached
	InMemory bool `json:"-"`
}

// Quality is how good the trained model is.
type Quality struct {
	// what chooses the best epoch: `train.metric`, or what `auto` took
	MetricName string `json:"metric_name"`
	// that metric of the test vertices, with the best epoch's weights and all neighbours; null,
	// like those below, if they give it no value
	TestMetric Metric `json:"test_metric"`
	// every metric of the test links
	Links map[string]float64 `json:"test_links,omitempty"`
	// if the task predicts numbers: every metric of the test set
	Numbers map[string]float64 `json:"test_numbers,omitempty"`
	// the same of validation, at the best epoch
	ValidMetric Metric `json:"valid_metric"`
	// share of the test vertices or links whose largest logit is the label; multi-label: micro-F1;
	// absent for numbers and ranked links
	TestAccuracy *Metric `json:"test_accuracy,omitempty"`
	// the same of validation, at the best epoch
	ValidAccuracy *Metric `json:"valid_accuracy,omitempty"`
	// share of the test set in the class most frequent in training: what a model must beat; only
	// with `accuracy`
	MajorityAccuracy *Metric `json:"majority_accuracy,omitempty"`
	// why those that are null have no value
	NoValue map[string]string `json:"no_value,omitempty"`
	// test vertices of class i (row) taken for class j (column); one class a vertex, up to 40
	// classes
	Confusion [][]int64 `json:"confusion,omitempty"`
	// names of its classes, where the dataset has them
	ClassNames []string `json:"class_names,omitempty"`
	// epoch, from 1, whose validation was best, the first on a tie; without validation the last
	BestEpoch int `json:"best_epoch"`
}

// Trained is what was trained, with digests of it.
type Trained struct {
	// epochs trained: fewer than asked for if `train.patience` ended the run
	Epochs int `json:"epochs"`
	// updates in an epoch
	StepsPerEpoch int `json:"steps_per_epoch"`
	// median over epochs, from the first minibatch's preparation to the last update, without
	// evaluation; rank 0
	EpochSeconds float64 `json:"epoch_seconds"`
	// mean global loss of the last epoch's steps (dropout on), weighted by seeds
	TrainLoss float64 `json:"train_loss"`
	// XXH64 of every step's global loss in order, as float32
	LossDigest string `json:"loss_digest"`
	// XXH64 of the final float32 weights, in the order of `model.safetensors`
	WeightsDigest string `json:"weights_digest"`
	// with `model.learned`: sum over final learned rows of the XXH64 of vertex id and float32 row
	LearnedDigest string `json:"learned_digest,omitempty"`
	// bytes and XXH64 of each file of learned rows, checked by `halognn check` and `infer`
	LearnedFiles rundir.FileSums `json:"learned_files,omitempty"`
	// sum over training minibatches of the XXH64 of blocks (row pointers, columns) and original ids
	// of the input frontier: equal digests mean equal minibatches. Absent if a GPU drew some
	// (`sample.on`)
	BlocksDigest string `json:"blocks_digest,omitempty"`
	// sum over sampled training edges of a hash of (key, hop, original ids of destination and
	// source): equal digests mean equal edges, however blocks number vertices. Absent if a
	// checkpoint lacked it
	EdgesDigest string `json:"edges_digest,omitempty"`
	// with `sample.locality_adapt`, by epoch
	Locality *Adapted `json:"locality,omitempty"`
}

// CacheUse is what a cache did. It also says why owners did or did not add rows, and why nodes did
// or did not fetch as one.
type CacheUse struct {
	// with `exchange.sums: auto`: what was chosen
	SumsChoice *residence.SumsChoice `json:"sums_choice,omitempty"`
	// with `exchange.nodes: auto`: what was chosen
	NodesChoice *residence.NodesChoice `json:"nodes_choice,omitempty"`
	// `cache.policy`, with `auto` what it chose; `none` on one node, unless rows come from files
	// (`cache.source`)
	CachePolicy string `json:"cache_policy"`
	// the cache; numbers are the largest of any rank
	Cache *residence.Summary `json:"cache,omitempty"`
	// (`remote_rows` + `stored_rows`) / `steps_per_epoch`
	RemoteRowsPerStep float64 `json:"remote_rows_per_step"`
	// the same as predicted by access probabilities; with a cache, without `exchange.sums` and
	// `exchange.nodes`
	ExpectedRowsPerStep float64 `json:"expected_remote_rows_per_step,omitempty"`
}

// Times says where the time of an epoch goes.
type Times struct {
	// time training waited for minibatches / epoch time, mean over ranks
	WaitFraction float64 `json:"wait_fraction"`
	// share of its CPUs' time in which they worked for a rank (not idle, spinning or polling MPI),
	// mean over ranks, median of epochs since the last start
	BusyFraction float64 `json:"busy_fraction"`
	// [below](#efficiency)
	Efficiency Efficiency `json:"efficiency"`
	// by [phase](#phases), per epoch, mean over ranks
	PhaseSeconds map[string]float64 `json:"phase_seconds"`
	// [below](#time-model)
	TimeModel TimeModel `json:"time_model"`

	// MassiveGNN's communication time (equation 9): `exchange` + `slice` - `gather`, at least 0;
	// per epoch, mean over ranks
	StallSeconds float64 `json:"communication_stall_seconds"`
	// `communication_stall_seconds` / mean epoch time of rank 0; above 1 if several
	// exchanges overlap
	StallFraction float64 `json:"communication_stall_fraction"`

	// from the command's beginning to the first epoch, mean over ranks, of the last start
	SetUpSeconds float64 `json:"setup_seconds"`
	// its items: [below](#set-up)
	SetUp map[string]float64 `json:"setup"`

	// `wait` for the first minibatch of an epoch (SALIENT++'s *Startup*); per epoch, mean over
	// ranks
	StartupSeconds float64 `json:"startup_seconds"`
	// `startup_seconds` / epoch time
	StartupFraction float64 `json:"startup_fraction"`
}

// Machine is the hardware and software of the run, and the size of its graph.
type Machine struct {
	// ranks of the run
	Ranks int `json:"ranks"`
	// parts of the graph
	Parts int `json:"parts"`
	// nodes, as `run.ranks_per_node` says
	Nodes int `json:"nodes"`
	// device, SIMD level, library of matrix products, threads
	Device string `json:"device"`
	// an MPI, or goroutines
	Transport string `json:"transport"`
	// `reproducible`, or what orders the summation: `mpi` or `nccl`
	Allreduce string `json:"allreduce"`
	// where gradients were added: `host`; with a GPU `nccl`, `mpi`, `staged` (`compute.gradients`),
	// or `device` for one rank
	Gradients string `json:"gradients"`
	// how rows between layers travelled: `host`; with a GPU `direct` or `staged`
	// (`compute.shuffles`)
	ShuffledBy string `json:"shuffles,omitempty"`

	// with `cuda`: from where each rank's device reads feature rows
	DeviceRows []residence.DeviceRows `json:"device_rows,omitempty"`
	// where minibatches were drawn (`sample.on`): `host` or `device`
	SampledOn string `json:"sampled_on,omitempty"`
	// the reason
	SampledWhy string `json:"sampled_why,omitempty"`
	// how often memory was pinned after the start, which a device waits for, over all ranks;
	// absent: 0
	PinnedGrowths uint64 `json:"pinned_growths,omitempty"`
	// the build
	Version string `json:"version"`
	// when the summary was made, UTC
	Finished string `json:"finished"`
	// host of rank 0
	Host string `json:"host"`
	// number of the batch job
	Job string `json:"job"`
	// size
	Graph GraphSize `json:"graph"`
}

// GraphSize is the size of the trained graph.
type GraphSize struct {
	// number of vertices
	Vertices int64 `json:"vertices"`
	// directed edges, as stored
	Edges int64 `json:"edges"`
	// feature columns
	Features int `json:"features"`
	// number of classes
	Classes int `json:"classes"`
}

// Explain sets NoValue: for each metric without a value, the reason.
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

// LearnedFiles returns the checksums of a finished run's files of learned rows. It returns none for
// a run that has not finished.
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
		rows = append(rows,
			[]string{"majority class", MetricText(task.Accuracy, *s.MajorityAccuracy)})
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
		rows = append(rows, []string{"fetched by another rank of the node",
			strconv.FormatInt(s.Shared, 10)})
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
	// Trials of policy auto count in the mean, but not in the prediction. So the two cannot be
	// compared.
	if s.ExpectedRowsPerStep > 0 && s.Cache.Chosen == "" {
		rows = append(rows, []string{"remote rows of a step; predicted",
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
	for _, row := range rows { // digits are aligned, with the percent signs behind them
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

// Counted writes a number of things in words, such as "1 node" or "2 nodes".
func Counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
