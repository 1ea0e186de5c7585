package infer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/record"
	"halognn/src/topology/graph"
)

// Model is a trained model, read from a run directory.
type Model struct {
	Run     string // the run directory
	Path    string // the file of the model
	Weights []nn.Tensor
	In, Out int // number of features, and number of classes or of columns of embeddings
	// number of classes of a link, or of numbers predicted for it; 0 if links have no labels
	Rated      int
	Task       string
	ClassNames []string   // names of the classes; nil if not known
	Scale      task.Scale // scale of predicted numbers
	// names of the feature columns of each vertex type; the key is "" if vertices have no types;
	// nil if the names are not known
	Features map[string][]string
	About    map[string]string

	learned string // name of the tensors of learned rows, which are in files beside Path
}

// ReadModel reads the model of a run.
func ReadModel(run string) (*Model, error) {
	path := filepath.Join(run, rundir.ModelFile)
	weights, about, err := nn.ReadSafetensors(path)
	if err != nil {
		return nil, err
	}
	return modelOf(run, path, weights, about, nn.LearnedRows)
}

// The models that a checkpoint holds.
const (
	BestModel = "best" // the model of the best validation so far
	LastModel = "last" // the model of the last step
)

// ModelOf returns the model BestModel or LastModel of a checkpoint of the run, as the argument
// which says.
func ModelOf(c *checkpoint.Checkpoint, run, which string) (*Model, error) {
	name, learned := rundir.ModelFile, nn.LearnedRows
	if which == BestModel {
		name, learned = rundir.BestFile, nn.LearnedBest
	}
	path := filepath.Join(c.Path, name)
	text, there := c.File(name)
	if !there {
		return nil, fmt.Errorf("%s: no model was validated yet; use --checkpoint last", c.Path)
	}
	weights, about, err := nn.ParseSafetensors(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return modelOf(run, path, weights, about, learned)
}

func modelOf(run, path string, weights []nn.Tensor, about map[string]string,
	learned string) (*Model, error) {
	var err error
	m := &Model{Run: run, Path: path, Weights: weights, Task: about["task"], About: about,
		learned: learned}
	var in, out, rated, names, scale, features error
	m.In, in = strconv.Atoi(about["in"])
	m.Out, out = strconv.Atoi(about["out"])
	m.Rated, rated = strconv.Atoi(cmp.Or(about["rated"], "0"))
	if text, named := about["class_names"]; named {
		names = json.Unmarshal([]byte(text), &m.ClassNames)
	}
	if text, scaled := about["scale"]; scaled {
		scale = json.Unmarshal([]byte(text), &m.Scale)
	}
	if text, named := about["feature_names"]; named {
		features = json.Unmarshal([]byte(text), &m.Features)
	}
	err = errors.Join(in, out, rated, names, scale, features)
	if err == nil && (task.Find(m.Task) == nil || m.In < 1 || m.Out < 1 || m.Rated < 0 ||
		(task.Labelling(m.Task) != nil) != (m.Rated > 0) ||
		m.ClassNames != nil && len(m.ClassNames) != m.outputs() ||
		task.Find(m.Task).Numbers && (len(m.Scale.Mean) != m.outputs() ||
			len(m.Scale.Std) != m.outputs())) {
		err = fmt.Errorf("task %q with %d features, %d classes and %d class names is impossible",
			m.Task, m.In, m.Out, len(m.ClassNames))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: its metadata do not describe a model: %w; train again",
			path, nn.ErrSafetensors, err)
	}
	return m, nil
}

// outputs returns the number of outputs for a vertex or, if links have labels, for a link.
func (m *Model) outputs() int { return cmp.Or(m.Rated, m.Out) }

// readLearned reads the learned rows of the rank's parts, which are in files beside the model. If
// the run has finished, it checks these files against the run's checksums. The files of a
// checkpoint have been checked already.
func (m *Model) readLearned(l *nn.Learned, first, last int) error {
	if l.Cols == 0 {
		return nil
	}
	var sums rundir.FileSums
	ofCheckpoint := filepath.Dir(m.Path) != filepath.Clean(m.Run)
	if !ofCheckpoint {
		var err error
		if sums, err = record.LearnedFiles(m.Run); err != nil {
			return err
		}
	}
	for p := first; p < last; p++ {
		path := filepath.Join(filepath.Dir(m.Path), rundir.LearnedFile(p))
		if want, known := sums[rundir.LearnedFile(p)]; known {
			if err := rundir.CheckFile(path, want); err != nil {
				return err
			}
		}
		if err := nn.ReadInto(path, l.RowsOf(p, m.learned)); err != nil {
			return err
		}
		// hide the rows that training has never read; the files of the best rows have them hidden
		// already
		if ofCheckpoint && m.learned == nn.LearnedRows {
			err := l.HideOf(p,
				func(moments []nn.Tensor) error { return nn.ReadInto(path, moments) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// classNumbers returns the number of each class in the imported dataset. It returns nil if the
// dataset's classes are words, or if classes have no names. In the latter case the model's class
// numbers are those of the dataset.
func (m *Model) classNumbers() []int32 {
	numbers := make([]int32, len(m.ClassNames))
	for c, name := range m.ClassNames {
		x, err := strconv.ParseInt(name, 10, 32)
		// a name such as 01 counts as a word, because 1 may be the name of another class
		if err != nil || strconv.FormatInt(x, 10) != name {
			return nil
		}
		numbers[c] = int32(x)
	}
	if len(numbers) == 0 {
		return nil
	}
	return numbers
}

func (m *Model) className(c int) string {
	if m.ClassNames != nil {
		return m.ClassNames[c]
	}
	return strconv.Itoa(c)
}

// columnName returns the name of a class's column in a table.
func (m *Model) columnName(c int) string {
	if m.ClassNames != nil {
		return m.ClassNames[c]
	}
	if task.Find(m.Task).Numbers {
		return fmt.Sprintf("number_%d", c)
	}
	return fmt.Sprintf("class_%d", c)
}

// weighs reports whether the model reads the edge weights of these parts. It reads them if it was
// trained with weights and the caller asks for them (`asked`). It is an error if it should read
// weights that the parts do not have.
func (m *Model) weighs(s *shard.Shards, asked bool) (bool, error) {
	trained, known := m.About["edge_weights"] // older runs do not say
	if asked && trained == "true" && !s.Weighted {
		return false, fmt.Errorf("%s: the edges have no weights, but the run %s was trained with "+
			"weights; give parts with weights, or set model.edge_weights=false", s.Dir, m.Run)
	}
	return asked && (!known || trained == "true"), nil
}

// learns returns an error if the run was not trained with cols columns of learned rows.
func (m *Model) learns(cols int) error {
	if trained := cmp.Or(m.About["learned"], "0"); trained != strconv.Itoa(cols) {
		return fmt.Errorf("model.learned is %d, but the run %s was trained with %s; leave it "+
			"as it was", cols,
			m.Run, trained)
	}
	return nil
}

// rescaled returns a note if the features of the parts were standardized with other means and
// deviations than those of the run. It returns "" if the scaling of the parts or of the run is not
// known. Parts of older versions do not record the scaling, and look like parts whose features were
// not standardized.
func (m *Model) rescaled(s *shard.Shards) string {
	of, trained := s.Origin.Scaling, m.About["scaling"]
	if of == "" || trained == "" || of == trained {
		return ""
	}
	return fmt.Sprintf("the run %s was trained on features that were standardized by other "+
		"means and deviations than those of %s: import the graph with --standardize-as DATASET",
		m.Run, s.Dir)
}

// fitTypes returns an error if the parts have vertex types that the model does not read, or vertex
// types with another number of features than in the model.
func (m *Model) fitTypes(s *shard.Shards) error {
	for t, name := range s.Schema.Types {
		has, at := s.Table(t).Features, slices.IndexFunc(m.Weights, func(w nn.Tensor) bool {
			return w.Name == "project."+name+".weight" && len(w.Shape) == 2
		})
		if at < 0 {
			return fmt.Errorf("%s: the parts have vertices of type %s, and the graph of the run "+
				"%s had none; "+
				"give parts with the same types", s.Dir, name, m.Run)
		}
		if cols := m.Weights[at].Shape[1]; cols != has {
			return fmt.Errorf("%s: vertices of type %s have %d features, but the run %s was "+
				"trained on %d; "+
				"give parts with the same features in the same order as "+
				"data.parts", s.Dir, name, has, m.Run,
				cols)
		}
	}
	return nil
}

// fit returns the known labels of the parts, as classes of the model. It returns an error if the
// model does not fit the parts. Parts without labels need only the features.
func (m *Model) fit(s *shard.Shards) (*truth, error) {
	if typed := slices.ContainsFunc(m.Weights, func(t nn.Tensor) bool {
		return strings.HasPrefix(t.Name, "project.")
	}); typed != s.Schema.Typed() {
		words := map[bool]string{true: "vertex types", false: "no vertex types"}
		return nil, fmt.Errorf("%s: the parts have %s, but the graph of the run %s has %s; give "+
			"parts of "+
			"such a graph", s.Dir, words[s.Schema.Typed()], m.Run, words[typed])
	}
	if m.About["learned"] != "" {
		if m.About["parts"] != s.Identity() {
			return nil, fmt.Errorf("%s: the learned rows of run %s belong to the parts that it "+
				"was trained on, but data.parts names other parts; set data.parts to the parts "+
				"of that run", s.Dir, m.Run)
		}
	} else if s.Schema.Typed() {
		if err := m.fitTypes(s); err != nil {
			return nil, err
		}
	} else if s.Features != m.In {
		return nil, fmt.Errorf("%s: the parts have %d features, but the run %s was trained on %d; "+
			"give parts with the same features in the same order as data.parts",
			s.Dir, s.Features, m.Run, m.In)
	}
	if n, known := m.About["edge_in"]; known && n != "0" && n != strconv.Itoa(s.EdgeFeatures) {
		return nil, fmt.Errorf("%s: the parts have %d features of edges, but the run %s was "+
			"trained on %s; give parts with the same features of edges in the same order",
			s.Dir, s.EdgeFeatures, m.Run, n)
	}
	if s.Task == task.None {
		return &truth{}, nil
	}
	const cure = "import the graph without labels to predict it without judging the predictions"
	if s.Task != m.Task {
		return nil, fmt.Errorf("%s: the labels are %s, but the run %s was trained on %s labels; %s",
			s.Dir, s.Task, m.Run, m.Task, cure)
	}
	t := &truth{task: task.Find(m.Task), labels: s.Labels()}
	names, others := m.ClassNames, s.ClassNames
	if all := slices.Concat(names, others); len(all) > 0 && !t.task.Wide &&
		!slices.ContainsFunc(all, notNumber) {
		// import does not record names if the classes are 0 to C-1, so these numbers serve as names
		names, others = numbersUnless(names, m.outputs()), numbersUnless(others, s.Classes)
	}
	if names == nil || others == nil {
		if n := m.outputs(); s.Classes > n || t.task.Wide && s.Classes != n {
			return nil, fmt.Errorf("%s: the labels have %d classes, but the run %s was trained "+
				"on %d; %s",
				s.Dir, s.Classes, m.Run, n, cure)
		}
		return t, nil
	}
	of := map[string]int32{}
	for c, name := range names {
		of[name] = int32(c)
	}
	t.class = make([]int32, s.Classes)
	for c, name := range others {
		known, ok := of[name]
		if !ok || t.task.Wide && (int(known) != c || s.Classes != m.outputs()) {
			return nil, fmt.Errorf("%s: class %.60q is not, or not in this place, among the %d "+
				"classes that the run %s was trained on; %s", s.Dir, name, m.outputs(), m.Run, cure)
		}
		t.class[c] = known
	}
	return t, nil
}

func notNumber(name string) bool {
	_, err := strconv.ParseInt(name, 10, 64)
	return err != nil
}

// numbersUnless returns the names of classes or, if there are none, the numbers 0 to n-1.
func numbersUnless(names []string, n int) []string {
	if names != nil {
		return names
	}
	names = make([]string, n)
	for c := range names {
		names[c] = strconv.Itoa(c)
	}
	return names
}

// The splits of labelled vertices, in the order in which they are reported.
const (
	splitNone = iota
	splitTrain
	splitValid
	splitTest
	splits
)

var splitNames = [splits]string{"other", "train", "valid", "test"}

// truth holds the known labels and splits of vertices. The zero truth knows none.
type truth struct {
	task   *task.Task  // task of the labels; nil if there are no labels
	labels task.Labels // labels of all vertices
	// [classes of the labels] class of the model for each class of the labels; nil if both have the
	// same classes
	class []int32

	first graph.VertexID
	split []uint8 // split of each own vertex
}

// mark notes which vertices of parts [first, last) are in which split.
func (t *truth) mark(s *shard.Shards, first, last int) {
	t.first = graph.VertexID(s.Offsets[first])
	if t.task == nil {
		return
	}
	t.split = make([]uint8, s.Offsets[last]-s.Offsets[first])
	for p := first; p < last; p++ {
		for k, of := range [splits][]graph.VertexID{
			splitTrain: s.Train(p), splitValid: s.Valid(p), splitTest: s.Test(p),
		} {
			for _, v := range of {
				t.split[v-t.first] = uint8(k)
			}
		}
	}
}

// judge adds the own vertex v to the score of its split, if it has a label.
func (t *truth) judge(scores *[splits]Score, v graph.VertexID, z []float32) {
	if t.task == nil {
		return
	}
	label := t.labels.Row(int(v))
	// a label with a column for each class has its columns in the model's order already
	if t.class != nil && !t.task.Wide {
		if y := t.task.Class(label); y >= 0 {
			label = make([]byte, len(label))
			task.PutClass(label, t.class[y])
		}
	}
	scores[t.split[v-t.first]].Add(z, label)
}

// judged returns the metric of each split with predicted vertices. Vertices in no split get a
// metric too, if some have labels. Collective.
func (p *predictions) judged(c comm.Comm) (all []Judged, err error) {
	for k := splits - 1; k >= 0; k-- {
		q, err := p.scores[k].Quality(c)
		if err != nil {
			return nil, err
		}
		if n := q.judged; n.Labelled > 0 || k != splitNone && n.Vertices > 0 {
			all = append(all, Judged{splitNames[k], int(n.Labelled), q.Metric})
		}
	}
	return all, nil
}
