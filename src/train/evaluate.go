package train

import (
	"context"
	"fmt"
	"time"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/parallel"
	"halognn/src/record"
	"halognn/src/sample"
	"halognn/src/task"
)

// evaluation is the quality of the model after some epoch.
type evaluation struct {
	mode  string // "sampled" or "full"
	valid quality
	test  *quality // full only

	confusion [][]int64 // of the test vertices, by truth and prediction; nil: not counted
}

func (e *evaluation) record(epoch int, took time.Duration) record.Eval {
	rec := record.Eval{
		Kind: "eval", Time: record.Now(), Epoch: epoch, Seconds: took.Seconds(), Mode: e.mode,
		ValidAccuracy: e.valid.accuracy, ValidMetric: e.valid.metric,
	}
	if e.test != nil {
		rec.TestAccuracy, rec.TestMetric = &e.test.accuracy, &e.test.metric
	}
	return rec
}

// evaluate judges the current model on the validation vertices. Collective.
func (r evaluator) evaluate(ctx context.Context, epoch int) (*evaluation, error) {
	if r.s.o.EvalFull {
		return r.evaluateFull(ctx)
	}
	valid := r.s.score()
	seeds := func(part int) []graph.VertexID { return r.s.Shards.Valid(part) }
	err := r.s.sampled(ctx, epoch, seeds, func(m *parallel.Minibatch, logits compute.Matrix) error {
		labels := task.Labels{Data: m.Batch.Labels, Width: r.s.Shards.Labels().Width}
		for i := range logits.Rows {
			valid.add(logits.Row(i), labels.Row(i))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	q, err := r.quality(&valid)
	return &evaluation{mode: "sampled", valid: q}, err
}

// sampled runs minibatches of the given vertices of own parts through the training pipeline,
// forward only, and calls each with every minibatch and its logits (host memory, valid during the
// call). With a look-ahead cache, minibatches of the next epoch occupy that pipeline's slots, so
// sampled uses a temporary pipeline. Draws are keyed by part and chunk, and a chunk is as large as
// a training minibatch, so with the same streams they do not depend on the number of ranks.
// Collective.
func (s *session) sampled(ctx context.Context, epoch int, seeds func(part int) []graph.VertexID,
	each func(m *parallel.Minibatch, logits compute.Matrix) error,
) error {
	items, admit, err := s.sampledItems(epoch, seeds)
	if err != nil {
		return err
	}
	var host []float32
	defer func() { mem.Free(host) }()
	judge := func(_ int, m *parallel.Minibatch) error {
		logits, err := s.strategy.Forward(m)
		if err != nil {
			return err
		}
		host = mem.Grow(host, len(logits.Data))
		s.Device.Download(host, logits.Data)
		return each(m, compute.Matrix{Rows: logits.Rows, Cols: logits.Cols, Data: host})
	}
	if s.pipe.Ahead() == 0 {
		return s.pipe.Run(ctx, items, admit, judge)
	}
	pipe, err := s.newPipe(s.strategy, 0)
	if err != nil {
		return err
	}
	defer pipe.Close()
	return pipe.Run(ctx, items, admit, judge)
}

// sampledItems returns how many minibatches of the given vertices there are, and what sets their
// seeds. Collective.
func (s *session) sampledItems(epoch int, seeds func(part int) []graph.VertexID) (
	items int, admit func(int, *parallel.Minibatch), err error,
) {
	if s.o.Mode.Sharing != sample.Alone && s.job.Share(s.Comm.Rank()).Size > 1 {
		items, admit = s.sharedItems(epoch, seeds)
		return items, admit, nil
	}
	most := 0
	for p := s.first; p < s.last; p++ {
		most = max(most, len(seeds(p)))
	}
	if most, err = comm.AgreeMax(s.Comm, most); err != nil {
		return 0, nil, err
	}
	size := s.job.MaxSeeds()
	chunks := (most + size - 1) / size
	var all []graph.VertexID // seeds of the current part, kept because making them takes time
	return (s.last - s.first) * chunks, func(i int, m *parallel.Minibatch) {
		part, chunk := s.first+i/chunks, i%chunks
		if chunk == 0 {
			all = seeds(part)
		}
		m.Key, m.Train = s.o.evalKey(epoch, part, chunk), false
		m.SetSeeds(all[min(len(all), chunk*size):min(len(all), (chunk+1)*size)])
		m.GlobalSeeds = len(m.Seeds)
	}, nil
}

// sharedItems is sampledItems for minibatches that ranks share: each has vertices of all parts of a
// group, as evenly as those of training, so that no rank waits for one that has all the seeds. All
// groups have as many minibatches as the one with the most vertices.
func (s *session) sharedItems(epoch int, seeds func(part int) []graph.VertexID) (
	items int, admit func(int, *parallel.Minibatch),
) {
	share, size := s.job.Share(s.Comm.Rank()), s.job.MaxSeeds()
	var mine []graph.VertexID
	for g := range s.Comm.Size() / share.Size {
		first, _ := s.job.Parts(g * share.Size)
		_, last := s.job.Parts((g+1)*share.Size - 1)
		var all []graph.VertexID
		for p := first; p < last; p++ {
			all = append(all, seeds(p)...)
		}
		items = max(items, (len(all)+size-1)/size)
		if g == share.Group {
			mine = all
		}
	}
	return items, func(i int, m *parallel.Minibatch) {
		m.Key, m.Train = s.o.evalKey(epoch, share.Group, i), false
		m.Seeds = mem.Grow(m.Seeds, (len(mine)-i+items-1)/items)
		for k := range m.Seeds {
			m.Seeds[k] = mine[i+k*items]
		}
		m.GlobalSeeds = len(m.Seeds)
	}
}

// evaluateFull judges the model on validation and test vertices with all neighbours; without any,
// nothing is inferred. Collective.
func (r evaluator) evaluateFull(ctx context.Context) (*evaluation, error) {
	var logits []float32
	var err error
	if r.of.valid.Vertices > 0 || r.tests() {
		if logits, err = r.s.inferAll(ctx, nil); err != nil {
			return nil, err
		}
	}
	defer mem.Free(logits)
	e := &evaluation{mode: "full", test: new(quality)}
	valid, test := r.s.score(), r.s.score()
	if classes := r.s.Shards.Meta.Classes; r.s.task.Class != nil && classes <= mostConfused {
		test.confusion = make([]int64, classes*classes)
	}
	seeds := func(p int) []graph.VertexID { return r.s.Shards.Valid(p) }
	if e.valid, err = r.judge(&valid, logits, seeds); err != nil {
		return nil, err
	}
	seeds = func(p int) []graph.VertexID { return r.s.Shards.Test(p) }
	if *e.test, err = r.judge(&test, logits, seeds); err != nil {
		return nil, err
	}
	if e.test.accuracy.Known {
		e.confusion, err = r.confused(test.confusion)
	}
	return e, err
}

// mostConfused is the largest number of classes for which a confusion matrix is counted: its table
// has a column for each.
const mostConfused = 40

// confused adds up a confusion matrix over the ranks. Collective.
func (r evaluator) confused(mine []int64) (sum [][]int64, err error) {
	if mine == nil { // on every rank alike
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

// judge scores the given vertices of the own parts by the logits [own, classes] of all own
// vertices, and sums the score over all ranks.
func (r evaluator) judge(
	sum *score, logits []float32, vertices func(part int) []graph.VertexID,
) (quality, error) {
	classes := r.s.Shards.Meta.Classes
	first := int(r.s.Shards.Meta.Offsets[r.s.first])
	for p := r.s.first; p < r.s.last; p++ {
		for _, v := range vertices(p) {
			row := int(v) - first
			sum.add(logits[row*classes:(row+1)*classes], r.s.Shards.Labels().Row(int(v)))
		}
	}
	return r.quality(sum)
}

// quality sums a score over all ranks, and rejects predictions whose loss would exceed the bound:
// no training loss follows the last update, so nothing else would notice. Collective.
func (r evaluator) quality(sum *score) (quality, error) {
	q, err := sum.quality(r.s.Comm)
	if err != nil {
		return q, err
	}
	if err := r.of.bound.check("the mean loss of the predictions", q.shortfall); err != nil {
		return q, comm.AgreedOn(r.s.Comm, fmt.Errorf("%w; %s", err, divergedCure))
	}
	return q, nil
}

// lookAtValidation counts what the validation vertices have to judge by, and refuses to wait for a
// better metric where there is none. Collective.
func (r evaluator) lookAtValidation() (err error) {
	var own task.Tally
	for p := r.s.first; p < r.s.last; p++ {
		for _, v := range r.s.Shards.Valid(p) {
			own.See(r.s.task, r.s.Shards.Labels().Row(int(v)))
		}
	}
	if r.of.valid, err = overRanks(r.s.Comm, &own); err != nil {
		return err
	}
	if why := r.s.metric.Why(&r.of.valid); why != "" && r.s.o.Patience > 0 {
		return comm.AgreedOn(r.s.Comm,
			fmt.Errorf("%s: train.patience is %d, but no validation can be better than another: the "+
				"validation split gives no %s (%s); set train.patience=0, or import the graph with "+
				"another split", r.s.Shards.Dir, r.s.o.Patience,
				r.s.metric.Name, why))
	}
	return nil
}
