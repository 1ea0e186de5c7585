// Package task is the table of what models are trained for: what is known of a vertex, the loss,
// the metrics that judge a model, and what a prediction is. Other packages use the fields of a row,
// and never test which task it is. A new task is a row of the table and a file with what it does.
package task

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// None is the word for a graph without labels: labels.npy has classes, all of them -1.
const None = "none"

// Task is a row of the table. A label is what is known of one vertex, a row of labels.npy.
type Task struct {
	Name string // name in meta.json and in the metadata of models
	Has  string // what a vertex or link has, for messages
	Loss string // name of the loss

	DType   string // element type of labels.npy and of predictions
	Wide    bool   // a label has a column for each output of the model, otherwise one number
	Numbers bool   // outputs are numbers, scaled back by Scale.Undo; otherwise scores of classes
	Column  string // name of the one column, unless Wide
	File    string // name of the file of the seeds' labels in a directory of minibatches
	Metrics []*Metric
	Embeds  bool // outputs are embeddings, of the width of hidden rows, and seeds are links
	// links are ranked among negatives; otherwise, if Embeds is set, each link has a label
	Ranks bool

	// Minibatch computes the loss.
	Minibatch LossFunc
	// Queued is Minibatch for a host that does not wait; nil: the host computes the loss.
	Queued QueuedLossFunc
	// Changed is the loss with an objective, which Objective.check has accepted; nil: the task has
	// the plain loss alone.
	Changed func(o Objective) LossFunc

	// Fault says what is wrong with a label; "" for nothing.
	Fault func(label []byte, outputs int) string
	// Facts returns how many sums over labels the task needs, before anything is predicted.
	Facts func(outputs int) int
	// Truth reports whether there is a label: otherwise the vertex is no seed, and is not judged.
	// It adds what the label says to facts, unless these are nil.
	Truth func(label []byte, facts []float64) bool
	// Class returns the class, or -1; nil unless a vertex has one.
	Class func(label []byte) int32
	// Judge adds the outputs z of a vertex with a label to Tally.Sums and Tally.Shortfall.
	Judge func(t *Tally, z []float32, label []byte)

	// Predict sets label to the prediction that outputs z give, and Probabilities y to the
	// probabilities.
	Predict       func(label []byte, z []float32)
	Probabilities func(y, z []float32)
	// Cells appends a label as text; the function name returns the name of a class.
	Cells func(line []string, label []byte, name func(class int) string) []string
}

var tasks = []*Task{&multiclass, &multilabel, &regression, &links, &linkClasses, &linkNumbers}

// Register adds a task to the table and returns the function that removes it.
func Register(t *Task) (remove func()) {
	tasks = append(tasks, t)
	return func() { tasks = slices.DeleteFunc(tasks, func(o *Task) bool { return o == t }) }
}

// LossFunc returns the loss of n rows of logits with labels [n], summed and divided by globalSeeds,
// and what the predictions add to the sums. dlogits receives the gradient, unless it is an empty
// Matrix. No rows give zeros. Waits for the device.
type LossFunc func(dev compute.Device, dlogits, logits compute.Matrix, labels []byte,
	globalSeeds int) Stats

// QueuedLossFunc is a LossFunc whose Stats stay on the device.
type QueuedLossFunc func(dev compute.Accelerator, dlogits, logits compute.Matrix, labels []byte,
	globalSeeds int, to *compute.QueuedLoss)

// Stats are the loss and the sums of one minibatch, or one rank's share of them.
type Stats struct {
	Loss float64 // sum over seeds divided by the seeds of the global minibatch
	Sums
}

// Find returns the task called name, or nil.
func Find(name string) *Task {
	if i := slices.IndexFunc(tasks, func(t *Task) bool { return t.Name == name }); i >= 0 {
		return tasks[i]
	}
	return nil
}

// Stored returns the task that says what the labels of vertices are. For None it is Multiclass; for
// tasks of links it is Links, where vertices have no labels.
func Stored(name string) *Task {
	switch t := Find(name); {
	case t == nil:
		return &multiclass
	case t.Embeds:
		return &links
	default:
		return t
	}
}

// Labelling returns the task whose labels the links of a graph have, or nil.
func Labelling(name string) *Task {
	if t := Find(name); t != nil && t.Embeds && !t.Ranks {
		return t
	}
	return nil
}

// Names returns the names of all tasks, joined by commas.
func Names() string {
	var names []string
	for _, t := range tasks {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}

// Outputs says what the outputs of a model are, in the plural.
func (t *Task) Outputs() string {
	if t.Numbers {
		return "numbers"
	}
	return "classes"
}

// Layout returns the type and shape of the labels of n vertices.
func (t *Task) Layout(n, outputs int) npy.Info {
	if t.Wide {
		return npy.Info{DType: t.DType, Shape: []int{n, outputs}}
	}
	return npy.Info{DType: t.DType, Shape: []int{n}}
}

// LabelBytes returns the bytes of a label.
func (t *Task) LabelBytes(outputs int) int {
	if t.Wide {
		return t.element() * outputs
	}
	return t.element()
}

func (t *Task) element() int { return int(t.DType[2] - '0') }

// Labels holds the labels of vertices or seeds, one after the other. The zero Labels has none.
type Labels struct {
	Data  []byte
	Width int // bytes of one label
}

// Row returns the label of vertex v.
func (l Labels) Row(v int) []byte { return l.Data[v*l.Width : (v+1)*l.Width] }

// Of returns the labels of a file.
func (t *Task) Of(f *npy.File, outputs int) (Labels, error) {
	rows, err := f.Rows(t.element())
	return Labels{rows, t.LabelBytes(outputs)}, err
}

// Check returns an error for the first label that cannot be.
func (t *Task) Check(l Labels, outputs int) error {
	for v := range len(l.Data) / max(1, l.Width) {
		if fault := t.Fault(l.Row(v), outputs); fault != "" {
			return fmt.Errorf("label of %s %d%s", t.of(), v, fault)
		}
	}
	return nil
}

// of returns a word for what has a label: link or vertex.
func (t *Task) of() string {
	if t.Embeds && !t.Ranks {
		return "link"
	}
	return "vertex"
}

// Labelled reports whether vertex v may be in a split of a graph of the task called name: it has a
// label, or no vertex has any.
func Labelled(name string, l Labels, v int) bool {
	if Find(name) == nil {
		return true
	}
	return Stored(name).Truth(l.Row(v), nil)
}

// mostClasses is the number of classes that a graph of any size may have. The output of a model is
// as wide.
const mostClasses = 1 << 16

// CheckClasses rejects implausible numbers of classes. With a column for each class labels.npy
// bounds their number, which determines the size of a model; otherwise no array does.
func CheckClasses(name string, classes int, vertices int64) error {
	if classes < 0 || !Stored(name).Wide && int64(classes) > max(vertices, mostClasses) {
		return fmt.Errorf("%d classes of %d vertices are too many", classes, vertices)
	}
	return nil
}

// Choose returns the metric called asked. For auto it returns the task's metric for exactly that
// number of outputs or, if there is none, the task's first metric.
func (t *Task) Choose(asked string, outputs int) (*Metric, error) {
	usual := t.Metrics[0]
	for _, m := range t.Metrics {
		if m.Classes == outputs {
			usual = m
		}
	}
	if asked == "" || asked == "auto" {
		return usual, nil
	}
	for _, m := range t.Metrics {
		switch {
		case m.Name != asked:
		case m.Classes != 0 && m.Classes != outputs:
			return nil, fmt.Errorf("train.metric %s is for %d classes, but the graph has %d; use "+
				"auto, or %s", asked, m.Classes, outputs, usual.Name)
		default:
			return m, nil
		}
	}
	return nil, fmt.Errorf("train.metric %s does not judge %s; use auto, or %s", asked, t.Has,
		usual.Name)
}

// QueuedLossWith returns the loss with an objective for a host that does not wait; nil if the host
// must compute it.
func (t *Task) QueuedLossWith(o Objective) QueuedLossFunc {
	if o.plain() && !t.Embeds {
		return t.Queued
	}
	return nil
}

// share is 1/n, or 0 for a global minibatch without seeds.
func share(n int) float32 {
	if n == 0 {
		return 0
	}
	return 1 / float32(n)
}

// argmax returns the first position of the largest element, or any position if one is NaN. It
// compares integers in the order of the elements and then of their positions, without a branch that
// a processor could guess wrong.
func argmax(z []float32) int32 {
	best := int64(math.MinInt64)
	for c, x := range z {
		bits := int32(math.Float32bits(x + 0)) // + 0: -0 is as large as 0
		best = max(best, int64(bits^bits>>31&math.MaxInt32)<<32|int64(^uint32(c)))
	}
	return int32(^uint32(best))
}
