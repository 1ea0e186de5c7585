package train

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/infer"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// evaluation is the quality of the model after an epoch.
type evaluation struct {
	mode  string // "sampled" or "full"
	valid infer.Quality
	test  *infer.Quality // quality on the test set; only if mode is full

	links  map[string]float64 // every metric of validation links
	tested map[string]float64 // every metric of test links
	// Every metric of the test vertices or links, for a task that predicts numbers.
	numbers   map[string]float64
	confusion [][]int64 // numbers of test vertices by true and predicted class; nil if not counted
}

// line returns the evaluation's line for metrics.jsonl.
func (e *evaluation) line(of *task.Task, epoch int, took time.Duration) record.Eval {
	rec := record.Eval{
		Kind: record.KindEval, Time: record.Now(), Epoch: epoch, Seconds: took.Seconds(),
		Mode:          e.mode,
		ValidAccuracy: accuracy(of, e.valid.Accuracy), ValidMetric: e.valid.Metric,
	}
	rec.Links = e.links
	if e.test != nil {
		rec.TestAccuracy, rec.TestMetric = accuracy(of, e.test.Accuracy), &e.test.Metric
	}
	return rec
}

// evaluate evaluates the current model on the validation vertices. Collective.
func (r *run) evaluate(ctx context.Context, epoch int) (*evaluation, error) {
	if r.s.Task.Embeds {
		return r.evaluateLinks(ctx)
	}
	if r.training.EvalFull {
		return r.evaluateFull(ctx)
	}
	valid := infer.Over(r.s).Score()
	seeds := func(part int) []graph.VertexID { return r.s.Shards.Valid(part) }
	score := func(m *parallel.Minibatch, logits compute.Matrix) error {
		labels := task.Labels{Data: m.Batch.Labels, Width: r.s.Shards.Labels().Width}
		for i := range logits.Rows {
			valid.Add(logits.Row(i), labels.Row(i))
		}
		return nil
	}
	if err := infer.Over(r.s).Sampled(ctx, epoch, seeds, score); err != nil {
		return nil, err
	}
	q, err := r.quality(&valid)
	return &evaluation{mode: "sampled", valid: q}, err
}

// evaluateFull evaluates the model on validation and test vertices, with all neighbours. If there
// are no such vertices, it infers nothing. Collective.
func (r *run) evaluateFull(ctx context.Context) (*evaluation, error) {
	if r.s.Task.Embeds {
		return r.evaluateLinks(ctx)
	}
	var logits judged
	var err error
	if r.valid.Vertices > 0 || r.tests() {
		if logits, err = r.logits(ctx); err != nil {
			return nil, err
		}
	}
	defer mem.Free(logits.rows)
	e := &evaluation{mode: "full", test: new(infer.Quality)}
	scores := r.scores()
	r.judge(&scores[1], logits, r.s.Shards.Valid)
	r.judge(&scores[2], logits, r.s.Shards.Test)
	return e, r.conclude(e, &scores)
}

// scores returns an empty score for the vertices, or links, of each split. The score of the test
// set also counts the confusion matrix.
func (r *run) scores() (of [len(graph.SplitNames)]infer.Score) {
	for k := range of {
		of[k] = infer.Over(r.s).Score()
	}
	if classes := r.s.Shards.Meta.Classes; r.s.Task.Class != nil && classes <= mostConfused {
		of[2].Confusion = make([]int64, classes*classes)
	}
	return of
}

// conclude combines the validation and test scores of all ranks. Collective.
func (r *run) conclude(e *evaluation, scores *[len(graph.SplitNames)]infer.Score) (err error) {
	if e.valid, err = r.quality(&scores[1]); err != nil {
		return err
	}
	if *e.test, err = r.quality(&scores[2]); err != nil {
		return err
	}
	if r.s.Task.Numbers {
		e.numbers = e.test.All(r.s.Task)
	}
	if e.test.Accuracy.Known {
		e.confusion, err = r.confused(scores[2].Confusion)
	}
	return err
}

// evaluateLinks evaluates validation and test links from the embeddings of all vertices, computed
// once with all neighbours. It ranks the links, or compares the model's predictions with their
// labels. Collective.
func (r *run) evaluateLinks(ctx context.Context) (*evaluation, error) {
	e := &evaluation{mode: "full", test: new(infer.Quality)}
	var of [len(graph.SplitNames)]map[string]float64
	scores := r.scores()
	rank := func(s *session.Session, splits ...int) error {
		rows, err := infer.Over(s).Embeddings(ctx)
		if err != nil {
			return err
		}
		defer mem.Free(rows)
		for _, split := range splits {
			if r.s.Task.Ranks {
				of[split], err = infer.Over(s).RankLinks(rows, split, r.candidates)
			} else {
				err = infer.Over(s).JudgeLinks(rows, split, &scores[split])
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	splits := []int{1, 2}
	if r.s.Job.Links.Graph == job.TrainValidGraph {
		wide := *r.s
		wide.Topology = withValidLinks(r.s)
		defer wide.Topology.Graph.Free()
		if err := rank(&wide, 2); err != nil {
			return nil, err
		}
		splits = splits[:1]
	}
	if err := rank(r.s, splits...); err != nil {
		return nil, err
	}
	if !r.s.Task.Ranks {
		return e, r.conclude(e, &scores)
	}
	e.links, e.tested = of[1], of[2]
	e.valid, *e.test = r.ofLinks(e.links), r.ofLinks(e.tested)
	return e, nil
}

// withValidLinks returns a session's topology with the validation links added as edges. They are
// added in both directions if all training links are edges in both directions. The caller must free
// the result's Graph.
func withValidLinks(s *session.Session) *sample.Topology {
	t := *s.Topology
	train, _ := s.Shards.LinksOf(0)
	valid, _ := s.Shards.LinksOf(1)
	both := !slices.ContainsFunc(train, func(l graph.Link) bool {
		return t.Graph.FindBy(l.Reverse(), t.Original) < 0
	})
	t.Graph = t.Graph.With(valid, both, t.Original)
	return &t
}

// ofLinks picks two metrics: the one that chooses the best epoch, and the task's first metric,
// which is also reported.
func (r *run) ofLinks(all map[string]float64) (q infer.Quality) {
	pick := func(name string) record.Metric {
		x, ok := all[name]
		m := record.Metric{Value: x, Known: ok}
		if !ok {
			m.Why = "there are no links, or no other vertices to rank them among"
		}
		return m
	}
	q.Metric, q.Accuracy = pick(r.s.Metric.Name), pick(r.s.Task.Metrics[0].Name)
	return q
}

// mostConfused is the largest number of classes for which a confusion matrix is counted. Its table
// has a column for each class.
const mostConfused = 40

// confused adds up a confusion matrix over the ranks. Collective.
func (r *run) confused(mine []int64) (sum [][]int64, err error) {
	if mine == nil { // it is nil on all ranks or on none
		return nil, nil
	}
	all, err := comm.Allgather(r.s.Comm, mine...)
	if err != nil {
		return nil, err
	}
	classes := r.s.Shards.Meta.Classes
	for range classes {
		sum = append(sum, make([]int64, classes))
	}
	for i, n := range all {
		at := i % len(mine)
		sum[at/classes][at%classes] += n
	}
	return sum, nil
}

// judged holds the logits of the validation and test vertices that the rank owns.
type judged struct {
	vertices []graph.VertexID // the vertices to judge, ascending
	rows     []float32        // [vertices, classes], outside the heap
}

// logits infers the logits of the vertices to be judged. Collective.
func (r *run) logits(ctx context.Context) (j judged, err error) {
	for p := r.s.First; p < r.s.Last; p++ {
		j.vertices = append(append(j.vertices, r.s.Shards.Valid(p)...), r.s.Shards.Test(p)...)
	}
	slices.Sort(j.vertices)
	classes := r.s.Job.Model.Out
	j.rows = mem.Make[float32](len(j.vertices) * classes)
	err = infer.Over(r.s).Of(ctx, j.vertices,
		func(i int, z []float32) { copy(j.rows[i*classes:], z) })
	if err != nil {
		mem.Free(j.rows)
	}
	return j, err
}

// judge adds the given vertices of the rank's parts to a score.
func (r *run) judge(sum *infer.Score, logits judged, vertices func(part int) []graph.VertexID) {
	classes := r.s.Job.Model.Out
	for p := r.s.First; p < r.s.Last; p++ {
		for _, v := range vertices(p) {
			at, _ := slices.BinarySearch(logits.vertices, v)
			sum.Add(logits.rows[at*classes:(at+1)*classes], r.s.Shards.Labels().Row(int(v)))
		}
	}
}

// quality sums a score over all ranks, and returns an error for predictions whose loss would exceed
// the bound. No training loss follows the last update, so nothing else would notice. Collective.
func (r *run) quality(sum *infer.Score) (infer.Quality, error) {
	q, err := sum.Quality(r.s.Comm)
	if err == nil {
		err = r.bound.check("the mean loss of the predictions", q.Shortfall)
	}
	if errors.Is(err, nn.ErrDiverged) { // all ranks have the same error
		err = comm.AgreedOn(r.s.Comm, fmt.Errorf("%w. %s", err, divergedCure))
	}
	return q, err
}

// labelsOf yields the labels of a part's vertices, or links, in a split. Splits are numbered as in
// graph.SplitNames.
func labelsOf(s *session.Session, split, part int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if s.Task.Embeds {
			if labels := shard.LinkLabels(s.Shards, split); labels.Width > 0 {
				_, of := s.Shards.LinksOf(split)
				for i := of[part]; i < of[part+1] && yield(labels.Row(i)); i++ {
				}
			}
			return
		}
		labels := s.Shards.Labels()
		of := [...]func(int) []graph.VertexID{s.Shards.Train, s.Shards.Valid, s.Shards.Test}[split]
		for _, v := range of(part) {
			if !yield(labels.Row(int(v))) {
				return
			}
		}
	}
}

// lookAtValidation counts the labels that validation can use. If there are none and train.patience
// waits for a better validation, it returns an error. Collective.
func (r *run) lookAtValidation() (err error) {
	own := task.NewTally(r.s.Task, r.s.Job.Model.Outputs())
	if _, of := r.s.Shards.LinksOf(1); r.s.Task.Ranks {
		own.Vertices = float64(of[r.s.Last] - of[r.s.First])
		own.Labelled = own.Vertices
	}
	for p := r.s.First; p < r.s.Last; p++ {
		for label := range labelsOf(r.s, 1, p) {
			own.See(r.s.Task, label)
		}
	}
	if r.valid, err = infer.OverRanks(r.s.Comm, &own); err != nil {
		return err
	}
	if why := r.s.Metric.Why(&r.valid); why != "" && r.training.Patience > 0 {
		return comm.AgreedOn(r.s.Comm,
			fmt.Errorf("%s: train.patience=%d compares validations, but the validation split "+
				"gives no %s (%s); set train.patience=0, or import the graph with another split",
				r.s.Shards.Dir, r.training.Patience,
				r.s.Metric.Name, why))
	}
	return nil
}
