package infer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
)

// Request says what to predict, and where to write it. All ranks must have the same.
type Request struct {
	// true: infer with all neighbours, layer by layer; false: infer by sampled minibatches, as for
	// validation
	Full bool
	Form Form // form of the predictions; "": FormClasses
	// name of the metric for labelled vertices; "" or "auto" for the default of the task
	Metric string

	// Path is the file for predictions: a table if its name ends in .csv, otherwise an array in
	// NumPy's format. If Path is "", no predictions are written.
	Path string
	// NumPy file for the rows that the last layer reads, float32 [vertices, H]; "" to write none
	Embeddings string
	// file with pairs of ids to score, if the task is links; "" for none
	Links string
	// number of best partners of each vertex to write, if the task is links; 0 for none
	Top int
	// source ids of the vertices to predict, in the order of the rows; nil for all vertices
	Vertices []string
}

// Bytes returns the bytes of memory for the predictions until they are written. The result sum is
// the total of all ranks, and the result written is the memory of the rank that writes. The
// argument `trained` is the name of the model's task.
func (r *Request) Bytes(of *shard.Meta, trained string, classes, hidden int) (sum, written int64) {
	if r.Links != "" || r.Top > 0 {
		return 0, 0
	}
	_, n, err := predicted(of, task.Stored(trained).Embeds)
	if err != nil { // choose reports the error
		return 0, 0
	}
	if r.Vertices != nil {
		n = min(n, len(r.Vertices))
	}
	row := r.rowBytes(task.Stored(trained), classes)
	sum = int64(n) * int64(row)
	if r.Path != "" {
		written = sum
	}
	// embeddings are gathered after the predictions have been written and freed
	if r.Embeddings != "" {
		rows := int64(n) * int64(4*hidden)
		sum, written = sum+rows, max(written, rows)
	}
	return sum, written
}

// rowBytes returns the bytes of the prediction for one vertex.
func (r *Request) rowBytes(t *task.Task, classes int) int {
	if r.Form == FormProbabilities || r.Form == FormLogits {
		return 4 * classes
	}
	return t.LabelBytes(classes)
}

// Form is the form of predictions.
type Form string

// The forms of predictions.
const (
	FormClasses       Form = "classes"       // labels, in the form of the task
	FormProbabilities Form = "probabilities" // float32 [N, C]
	FormLogits        Form = "logits"        // the model's outputs, float32 [N, C]
)

// Result is the result of an inference, the same on every rank.
type Result struct {
	Vertices int     // number of predicted vertices
	Hidden   int     // columns of the embeddings
	Seconds  float64 // time of the forward passes
	Metric   string  // metric for the labelled vertices
	Judged   []Judged
	// number of vertices with a logit that is not finite; if there are any, no metric is computed
	Undefined int
}

// Judged holds the metric of the labelled vertices of a split.
type Judged struct {
	Split    string
	Vertices int
	Metric   record.Metric
}

// Text returns the metric of a split as text.
func (i *Result) Text(of Judged) string { return record.MetricText(i.Metric, of.Metric) }

// Predict predicts vertices with a trained model and lets rank 0 write the predictions, a row a
// vertex. It predicts all vertices, in the order of their ids in the dataset, or the requested
// vertices in the order of the request. The parts may be of another graph than the trained one, and
// need no labels or training seeds. Rank 0 holds the predictions and embeddings of all vertices.
// Collective.
func Predict(ctx context.Context, env session.Env, o job.Spec, m *Model, what Request) (*Result,
	error) {
	if what.Form == "" {
		what.Form = FormClasses
	}
	o.Model.Out, o.Model.Rated, o.Model.Task = m.Out, m.Rated, m.Task
	weighted, err := m.weighs(env.Shards, o.Model.EdgeWeights)
	o.Model.EdgeWeights = weighted
	reordered, misfit := m.matchFeatures(env.Shards, func() map[string]int {
		of := o.Model
		of.In = m.In
		return of.InputAxes()
	})
	known, unfit := m.fit(env.Shards)
	misfit = cmp.Or(misfit, unfit)
	err = errors.Join(err, misfit, m.learns(o.Model.Learned))
	if err == nil && what.Embeddings != "" && o.Model.Layers < 2 {
		err = errors.New("--embeddings: a model of one layer has no hidden rows; leave the flag " +
			"out")
	}
	if err == nil && env.Comm.Rank() == 0 {
		err = errors.Join(writable("predictions", what.Path), writable("embeddings",
			what.Embeddings))
	}
	if err := comm.Agree(env.Comm, err); err != nil {
		return nil, err
	}
	s, err := open(env, o, what.Metric)
	if err != nil {
		return nil, err
	}
	for _, note := range []string{reordered, m.rescaled(env.Shards)} {
		if note != "" {
			s.Tell(note)
		}
	}
	out, err := s.infer(ctx, m, known, what)
	if err != nil {
		return nil, s.EndedBy(err)
	}
	return out, s.Close()
}

func (s Passes) infer(ctx context.Context, m *Model, truth *truth, what Request) (*Result,
	error) {
	err := comm.Agree(s.Comm, errors.Join(s.Model.Params.SetTensors(s.Model.Params.Values,
		m.Weights), m.readLearned(s.Learned, s.First, s.Last)))
	if err != nil {
		return nil, err
	}
	s.Model.SetScale(m.Scale)
	switch asks := what.Links != "" || what.Top > 0; {
	case asks && !(s.Task.Embeds && what.Form == FormClasses):
		return nil, comm.AgreedOn(s.Comm, errors.New("--links and --top need a model that was "+
			"trained on links, and exclude --logits and --probabilities; leave them out"))
	case asks:
		return predictLinks(ctx, s, m, what)
	case s.Task.Embeds && what.Form != FormLogits:
		partners := ""
		if s.Task.Ranks {
			partners = ", --top N"
		}
		return nil, comm.AgreedOn(s.Comm, fmt.Errorf("a model of links has no classes of "+
			"vertices, nor "+
			"their probabilities; give --links FILE%s, or --logits for its embeddings", partners))
	}
	chosen, err := s.choose(what.Vertices, what.Path != "")
	if err := comm.Agree(s.Comm, err); err != nil {
		return nil, err
	}
	p := newPredictions(s, what, chosen, truth)
	defer p.free()
	begin := time.Now()
	if what.Full {
		err = s.predictFull(ctx, p)
	} else {
		err = s.predictSampled(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	undefined, err := comm.AgreeSum(s.Comm, p.undefined)
	if err != nil {
		return nil, err
	}
	if undefined > 0 && what.Form != FormLogits {
		return nil, comm.AgreedOn(s.Comm, fmt.Errorf("the predictions for %d vertices are not "+
			"finite: %w; check the features of these vertices, which --logits shows, and the "+
			"model's weights", undefined, nn.ErrDiverged))
	}
	out := &Result{Vertices: chosen.n, Hidden: p.hiddenCols, Seconds: time.Since(begin).Seconds(),
		Undefined: undefined}
	if undefined == 0 {
		out.Metric = s.Metric.Name
		if out.Judged, err = p.judged(s.Comm); err != nil {
			return nil, err
		}
	}
	return out, s.write(ctx, p, m, what)
}

// predictions holds the predictions of the chosen own vertices, as the bytes of the file.
type predictions struct {
	task     *task.Task
	classes  int // columns of a row
	rowBytes int
	form     Form
	chosen   *chosen
	own      []byte // [chosen own vertices, rowBytes]

	hidden     []float32 // [chosen own vertices, hiddenCols] embeddings; empty if not requested
	hiddenCols int

	undefined int // number of chosen own vertices with a logit that is not finite
	truth     *truth
	scores    [splits]Score
}

func newPredictions(s Passes, what Request, chosen *chosen, truth *truth) *predictions {
	p := &predictions{
		task: s.Task, classes: s.Job.Model.Out, form: what.Form, chosen: chosen, truth: truth,
	}
	for k := range p.scores {
		p.scores[k] = s.Score()
	}
	p.rowBytes = what.rowBytes(p.task, p.classes)
	p.own = mem.Make[byte](chosen.ownCount() * p.rowBytes)
	if what.Embeddings != "" {
		p.hiddenCols, _ = s.Job.Model.Widths(s.Job.Model.Layers - 1)
		p.hidden = mem.Make[float32](chosen.ownCount() * p.hiddenCols)
	}
	truth.mark(s.Shards, s.First, s.Last)
	return p
}

func (p *predictions) free() {
	mem.Free(p.own)
	mem.Free(p.hidden)
}

// set sets the prediction of the i-th chosen own vertex from its logits z, and adds it to the score
// if the vertex has a label.
func (p *predictions) set(i int, z []float32) {
	row := p.own[i*p.rowBytes : (i+1)*p.rowBytes]
	switch p.form {
	case FormLogits:
		copy(row, mem.Bytes(z))
	case FormProbabilities:
		p.task.Probabilities(npy.View[float32](row), z)
	default:
		p.task.Predict(row, z)
	}
	if !nn.Finite(z) { // logits that are not finite give no class
		p.undefined++
		return
	}
	p.truth.judge(&p.scores, p.chosen.vertex(i), z)
}

func (s Passes) predictFull(ctx context.Context, p *predictions) error {
	var hidden putRows
	if len(p.hidden) > 0 {
		var rows, stored []float32
		defer func() { mem.Free(rows); mem.Free(stored) }()
		// the variable next counts the chosen own vertices that have been done
		first, next := int(s.Shards.Meta.Offsets[s.First]), 0
		hidden = func(at int, y compute.Matrix) error {
			row := func() int { return int(p.chosen.vertex(next)) - first - at }
			if next == p.chosen.ownCount() || row() >= y.Rows {
				return nil
			}
			rows = mem.Grow(rows, y.Rows*y.Cols)
			compute.Load(s.Device, rows, y, &stored)
			for ; next < p.chosen.ownCount() && row() < y.Rows; next++ {
				copy(p.hidden[next*y.Cols:(next+1)*y.Cols], rows[row()*y.Cols:])
			}
			return nil
		}
	}
	return s.full(ctx, hidden, s.pick(p.chosen.ownCount(), p.chosen.vertex, p.set))
}

func (s Passes) predictSampled(ctx context.Context, p *predictions) error {
	var rows, stored []float32
	defer func() { mem.Free(rows); mem.Free(stored) }()
	scored := p.chosen.partVertices
	return s.Sampled(ctx, 0, scored, func(m *parallel.Minibatch, logits compute.Matrix) error {
		if cols := p.hiddenCols; cols > 0 && len(m.Scored) > 0 {
			hidden := s.Model.LastHidden()
			rows = mem.Grow(rows, hidden.Rows*hidden.Cols)
			compute.Load(s.Device, rows, hidden, &stored)
			for k, v := range m.Scored {
				i := p.chosen.place(v)
				copy(p.hidden[i*cols:(i+1)*cols], rows[k*cols:])
			}
		}
		for k, v := range m.Scored {
			p.set(p.chosen.place(v), logits.Row(k))
		}
		return nil
	})
}

// writable makes the directory of path, and returns an error if a result could not be written
// there. So the user learns it before the computation. It refuses a device file such as /dev/null,
// because the finished file would be renamed to that name and replace the device.
func writable(what, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %s exists and is no regular file; choose another name", what, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("%s: %w; choose a directory that may be made", what, err)
	}
	probe, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return fmt.Errorf("%s: %w; choose a directory that exists and may be written", what, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
