// Package task has the table of tasks that models are trained for. A row says what a label is, how
// the loss is computed, which metrics judge a model, and what a prediction is. Other packages use
// the fields of a row, and never test which task it is. A new task is a row and a file.
package task

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// None is the name of the task of a graph without labels. In its labels.npy all classes are -1.
const None = "none"

// Task is a row of the table of tasks. A label is what is known of one vertex: a row of labels.npy.
type Task struct {
	Name string // name in meta.json and in the metadata of model files
	Has  string // words for messages that say what a vertex or a link has, such as a class
	Loss string // name of the loss

	DType   string // element type of labels.npy and of predictions
	Wide    bool   // a label has a number for each output of the model, not a single number
	Numbers bool   // outputs are numbers, scaled back by Scale.Undo, not scores of classes
	Column  string // name of the label's column in tables; not used if Wide is set
	File    string // name of the file of the seeds' labels in a directory of minibatches
	Metrics []*Metric
	Embeds  bool // seeds are links, and outputs are embeddings with the width of hidden rows
	// Links are ranked among negatives. If Embeds is set and Ranks is not, each link has a label.
	Ranks bool

	// Minibatch computes the loss of a minibatch.
	Minibatch LossFunc
	// Queued does what Minibatch does, on a device that computes the loss without the host, so that
	// the host need not wait. It is nil if the host must take part.
	Queued QueuedLossFunc
	// Changed returns the loss with an objective, which Objective.check must have accepted. It is
	// nil if the loss of the task cannot be changed.
	Changed func(o Objective) LossFunc

	// Fault returns what is wrong with a label, or "" if the label is valid.
	Fault func(label []byte, outputs int) string
	// Facts returns the number of sums over labels alone that metrics need (Tally.Facts).
	Facts func(outputs int) int
	// Truth reports whether the vertex has a label. If not, it is not used as a seed and is not
	// judged. Unless facts is nil, Truth also adds to facts what the label contributes.
	Truth func(label []byte, facts []float64) bool
	// Class returns the class of a label, or -1. It is nil if labels are not single classes.
	Class func(label []byte) int32
	// Judge compares the outputs z of a vertex with its label, and adds to t.Sums and t.Shortfall.
	Judge func(t *Tally, z []float32, label []byte)

	// Predict sets label to the prediction for the outputs z. Probabilities sets y to the
	// probabilities for the outputs z.
	Predict       func(label []byte, z []float32)
	Probabilities func(y, z []float32)
	// Cells appends the text of a label to line. The function name returns a class's name.
	Cells func(line []string, label []byte, name func(class int) string) []string
}

var tasks = []*Task{&multiclass, &multilabel, &regression, &links, &linkClasses, &linkNumbers}

// Register adds a task to the table. It returns a function that removes the task again.
func Register(t *Task) (remove func()) {
	tasks = append(tasks, t)
	return func() { tasks = slices.DeleteFunc(tasks, func(o *Task) bool { return o == t }) }
}

// LossFunc returns the loss of n rows of logits with labels [n], added up and divided by
// globalSeeds, and the Sums of the predictions. It writes the gradient to dlogits, unless dlogits
// is an empty Matrix. If there are no rows, all results are zero. Waits for the device.
type LossFunc func(dev compute.Device, dlogits, logits compute.Matrix, labels []byte,
	globalSeeds int) Stats

// QueuedLossFunc is a LossFunc whose Stats stay on the device.
type QueuedLossFunc func(dev compute.Accelerator, dlogits, logits compute.Matrix, labels []byte,
	globalSeeds int, to *compute.QueuedLoss)

// Stats are the loss and the sums of one minibatch, or one rank's share of them.
type Stats struct {
	Loss float64 // sum over seeds, divided by the number of seeds of all ranks
	Sums
}

// Find returns the task called name, or nil.
func Find(name string) *Task {
	if i := slices.IndexFunc(tasks, func(t *Task) bool { return t.Name == name }); i >= 0 {
		return tasks[i]
	}
	return nil
}

// Stored returns the task whose form the labels in labels.npy have. For None it is Multiclass. For
// all tasks of links it is Links, in which vertices have no labels.
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

// Labelling returns the task called name if links have labels in it, and otherwise nil.
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

// Outputs returns a plural word for the outputs of a model, for messages.
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

// Labels has the labels of vertices or seeds, one after the other. The zero Labels has no labels.
type Labels struct {
	Data  []byte
	Width int // bytes of one label
}

// Row returns the label of vertex v.
func (l Labels) Row(v int) []byte { return l.Data[v*l.Width : (v+1)*l.Width] }

// ReadLabels returns the labels in a file.
func (t *Task) ReadLabels(f *npy.File, outputs int) (Labels, error) {
	rows, err := f.Rows(t.element())
	return Labels{rows, t.LabelBytes(outputs)}, err
}

// Check returns an error for the first label that is not valid. The error gives the reason.
func (t *Task) Check(l Labels, outputs int) error {
	for v := range len(l.Data) / max(1, l.Width) {
		if fault := t.Fault(l.Row(v), outputs); fault != "" {
			// for example: label of vertex 2 is 7; it must be in [0, 5), or -1 for none
			return fmt.Errorf("label of %s %d%s", t.targetName(), v, fault)
		}
	}
	return nil
}

// targetName returns the name of what has a label in this task: link or vertex.
func (t *Task) targetName() string {
	if t.Embeds && !t.Ranks {
		return "link"
	}
	return "vertex"
}

// Labelled reports whether vertex v may be in a split of a graph with the task called name. It may
// be if it has a label, or if no vertex has a label in this task.
func Labelled(name string, l Labels, v int) bool {
	if Find(name) == nil {
		return true
	}
	return Stored(name).Truth(l.Row(v), nil)
}

// mostClasses is a plausible number of classes even for a small graph. The number of classes is
// also the width of a model's output.
const mostClasses = 1 << 16

// CheckClasses returns an error if the number of classes is implausible, because a damaged number
// would make a huge model. If labels have a column for each class, the size of labels.npy already
// limits the number, and CheckClasses does not.
func CheckClasses(name string, classes int, vertices int64) error {
	if classes < 0 || !Stored(name).Wide && int64(classes) > max(vertices, mostClasses) {
		return fmt.Errorf("%d classes are too many for a graph with %d vertices", classes, vertices)
	}
	return nil
}

// Choose returns the metric called asked. For "auto" it returns the task's metric that is only for
// this number of outputs. If there is none, it returns the task's first metric.
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

// QueuedLossWith returns the loss, changed by an objective, in the form that the device computes
// without the host. It returns nil if the host must take part.
func (t *Task) QueuedLossWith(o Objective) QueuedLossFunc {
	if o.plain() && !t.Embeds {
		return t.Queued
	}
	return nil
}

// share returns 1/n. It returns 0 if n is 0, which means that no rank has seeds.
func share(n int) float32 {
	if n == 0 {
		return 0
	}
	return 1 / float32(n)
}

// argmax returns the first position of the largest element. If an element is NaN, the result may be
// any position. For each element it makes an integer that orders by element and then by position,
// and takes the largest. So there is no branch that a processor could predict wrongly.
func argmax(z []float32) int32 {
	best := int64(math.MinInt64)
	for c, x := range z {
		bits := int32(math.Float32bits(x + 0)) // adding 0 turns -0 into 0, which is equally large
		best = max(best, int64(bits^bits>>31&math.MaxInt32)<<32|int64(^uint32(c)))
	}
	return int32(^uint32(best))
}
