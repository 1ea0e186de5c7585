package infer

import (
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// unlabelled is another graph than generated: without labels and split, with ids of its own.
func unlabelled(t *testing.T, parts int) *shard.Shards {
	labels := slices.Repeat([]int32{-1}, 90)
	return sessiontest.Handmade(t, parts, dataset.Meta{Task: task.None}, mem.Bytes(labels),
		graph.Split{})
}

// The memory of predictions counts the rows that are kept: a label of the task, not a column for
// each class, of the type that has labels; files are gathered one after the other.
func TestBytesOfPredictions(t *testing.T) {
	meta := &shard.Meta{Vertices: 10}
	for _, c := range []struct {
		task    string
		classes int
		what    Request
		own     int64
		written int64
	}{
		{task.Multiclass, 1, Request{Path: "p"}, 40, 40},
		{task.Multiclass, 1000, Request{Path: "p"}, 40, 40},
		{task.Multiclass, 1000, Request{}, 40, 0},
		{task.Multilabel, 1000, Request{Path: "p", Form: FormClasses}, 10000, 10000},
		{task.Multiclass, 1000, Request{Path: "p", Form: FormLogits}, 40000, 40000},
		{task.Multiclass, 1000, Request{Path: "p", Vertices: []string{"1"}}, 4, 4},
		{task.Multiclass, 2, Request{Path: "p", Embeddings: "e"}, 240, 200},
		{task.Multiclass, 2, Request{Links: "l", Path: "p"}, 0, 0},
	} {
		own, written := c.what.Bytes(meta, c.task, c.classes, 5)
		if own != c.own || written != c.written {
			t.Errorf("%+v: %d and %d bytes", c, own, written)
		}
	}
	typed := &shard.Meta{Vertices: 10, LabelType: "author", Tables: []dataset.Table{{Vertices: 7},
		{Vertices: 3}}, Schema: graph.Schema{Types: []string{"paper", "author"}}}
	if own, _ := (&Request{}).Bytes(typed, task.Multiclass, 5, 5); own != 12 {
		t.Errorf("%d bytes of 3 vertices with labels", own)
	}
	if err := onRanks(generated(t), 1, sageOptions(), func(_ context.Context, s Passes) error {
		for _, classes := range []int{1, 1000} {
			s.Job.Model.Out = classes
			what := Request{Form: FormClasses}
			p := newPredictions(s, what, &chosen{n: 10, hi: 10}, &truth{})
			if own, _ := what.Bytes(meta, task.Multiclass, classes, 5); int64(len(p.own)) != own {
				t.Errorf("%d classes: %d bytes are kept, and %d foreseen", classes, len(p.own), own)
			}
			p.free()
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// inferred is what Predict came to with a fresh model of 4 classes, and what it wrote.
type inferred struct {
	out    *Result
	rows   []float32 // --out
	hidden []float32
	table  [][]string // --out, of a .csv
}

func inferring(
	t *testing.T, s *shard.Shards, ranks int, o job.Spec, what Request, change ...func(*Model),
) inferred {
	t.Helper()
	o.Model.In, o.Model.Out, o.Model.Task = s.Features, 4, task.Multiclass
	trained, err := nn.NewModel(ref.New(), o.Model, o.Seed)
	if err != nil {
		t.Fatal(err)
	}
	defer trained.Close()
	m := &Model{Weights: trained.Params.Tensors(trained.Params.Values), In: s.Features, Out: 4,
		Task: task.Multiclass, ClassNames: []string{"a", "b", "c", "d"}}
	for _, f := range change {
		f(m)
	}
	dir := t.TempDir()
	if what.Path != "" {
		what.Path = filepath.Join(dir, what.Path)
	}
	what.Embeddings = filepath.Join(dir, "embeddings.npy")
	var got inferred
	err = comm.RunWorld(ranks, func(c comm.Comm) error {
		env := sessiontest.Env(c, s)
		out, err := Predict(context.Background(), env, o, m, what)
		if c.Rank() == 0 {
			got.out = out
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	floats := func(path string) []float32 {
		a, err := npy.Map[float32](path, -1, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		return slices.Clone(a.Data)
	}
	got.hidden = floats(what.Embeddings)
	if strings.HasSuffix(what.Path, ".csv") {
		f, err := os.Open(what.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got.table, err = csv.NewReader(f).ReadAll(); err != nil {
			t.Fatal(err)
		}
	} else if what.Path != "" {
		got.rows = floats(what.Path)
	}
	return got
}

// near fails unless a and b are equal up to a few roundings.
func near(t *testing.T, what string, a, b []float32) {
	t.Helper()
	if len(a) != len(b) || len(a) == 0 {
		t.Fatalf("%s: %d and %d values", what, len(a), len(b))
	}
	for i := range a {
		if d := math.Abs(float64(a[i] - b[i])); d > 1e-5*max(1, math.Abs(float64(a[i]))) {
			t.Fatalf("%s: value %d is %g, want %g", what, i, a[i], b[i])
		}
	}
}

// A graph without labels, split and training seeds is predicted by every kind of model: the same on
// any number of ranks, full and sampled with all neighbours; fewer neighbours give the same on any
// number of ranks too.
func TestInferAnotherGraph(t *testing.T) {
	s := unlabelled(t, 6)
	for _, c := range []nn.Config{
		{Kind: "sage", Layers: 3, Hidden: 5, Norm: "layer"},
		{Kind: "gcn", Layers: 2, Hidden: 5, Norm: "none"},
		{Kind: "gin", Layers: 2, Hidden: 5, Norm: "layer"},
		{Kind: "gat", Layers: 2, Hidden: 6, Norm: "none", Heads: 2, Slope: 0.2, Activation: nn.ELU},
		{Kind: "gatv2", Layers: 2, Hidden: 6, Norm: "none", Heads: 3, HeadMerge: nn.HeadsMean,
			Slope: 0.2},
		{Kind: "mlp", Layers: 2, Hidden: 5, Norm: "none"},
	} {
		o := sageOptions()
		o.Model = c
		o.Sample.Fanouts = o.Sample.Fanouts[:c.Layers]
		few := inferring(t, s, 1, o, Request{Form: FormLogits, Path: "p.npy"})
		all := o
		all.Eval = sample.Neighbours(slices.Repeat([]int{sample.All}, c.Layers)...)
		full := inferring(t, s, 1, o, Request{Full: true, Form: FormLogits, Path: "p.npy"})
		if full.out.Vertices != 90 || len(full.out.Judged) != 0 {
			t.Errorf("%s: %+v", c.Kind, full.out)
		}
		for _, ranks := range []int{2, 6} {
			for _, try := range []struct {
				name string
				o    job.Spec
				what Request
				want inferred
			}{
				{"full", o, Request{Full: true}, full},
				{"sampled", o, Request{}, few},
				{"sampled, all neighbours", all, Request{}, full},
			} {
				try.what.Form, try.what.Path = FormLogits, "p.npy"
				got := inferring(t, s, ranks, try.o, try.what)
				what := fmt.Sprintf("%s, %s, %d ranks", c.Kind, try.name, ranks)
				near(t, what, got.rows, try.want.rows)
				near(t, what+", embeddings", got.hidden, try.want.hidden)
			}
		}
	}
}

// Logits that are not finite are written if they are asked for, and not judged.
func TestUndefinedLogitsAreCounted(t *testing.T) {
	s, o := unlabelled(t, 6), sageOptions()
	got := inferring(t, s, 2, o, Request{Full: true, Form: FormLogits, Path: "p.npy"},
		func(m *Model) {
			for _, w := range m.Weights {
				w.Data[0] = float32(math.NaN())
			}
		})
	if got.out.Undefined != int(s.Vertices) || len(got.out.Judged) > 0 {
		t.Errorf("%d of %d vertices are undefined; %v", got.out.Undefined, s.Vertices,
			got.out.Judged)
	}
	if got = inferring(t, s, 2, o, Request{Full: true}); got.out.Undefined != 0 {
		t.Errorf("%d vertices are undefined", got.out.Undefined)
	}
}

// A table has a row a vertex with the probabilities of the classes; a list of vertices gives their
// rows in its order.
func TestInferChosenVertices(t *testing.T) {
	s, o := unlabelled(t, 6), sageOptions()
	logits := inferring(t, s, 2, o, Request{Full: true, Form: FormLogits, Path: "p.npy"})
	whole := inferring(t, s, 2, o, Request{Full: true, Form: FormProbabilities, Path: "p.csv"})
	if head := strings.Join(whole.table[0], " "); head != "id class a b c d" ||
		len(whole.table) != 91 {
		t.Fatalf("%d rows, %q", len(whole.table), head)
	}
	for v, row := range whole.table[1:] {
		sum, best := 0.0, 0
		z := logits.rows[4*v : 4*v+4]
		for c := range 4 {
			p, _ := strconv.ParseFloat(row[2+c], 64)
			sum += p
			if z[c] > z[best] {
				best = c
			}
			want := math.Exp(float64(z[c]))
			for _, x := range z {
				want -= p * math.Exp(float64(x))
			}
			if math.Abs(want) > 1e-5 {
				t.Errorf("vertex %d, class %d: %g", v, c, p)
			}
		}
		if row[0] != strconv.Itoa(v) || row[1] != string(rune('a'+best)) || math.Abs(sum-1) > 1e-6 {
			t.Errorf("row %d is %q", v, row)
		}
	}
	ids := []string{"71", "3", "89", "0"}
	for _, ranks := range []int{1, 3} {
		few := inferring(t, s, ranks, o, Request{Full: true, Path: "p.csv", Vertices: ids,
			Form: FormProbabilities})
		for k, id := range ids {
			v, _ := strconv.Atoi(id)
			near(t, "embeddings", few.hidden[5*k:5*k+5], whole.hidden[5*v:5*v+5])
			if got := few.table[1+k]; !slices.Equal(got[:2], whole.table[1+v][:2]) {
				t.Errorf("vertex %s is %q, want %q", id, got, whole.table[1+v])
			}
		}
	}
}

// What labels mean to a model goes by their names, if both have them, and so do vertex types.
func TestFit(t *testing.T) {
	typed := func(cols int) shard.Meta {
		return shard.Meta{Task: "none", Schema: graph.Schema{Types: []string{"paper", "author"}},
			Tables: []dataset.Table{{Features: 3}, {Features: cols}}}
	}
	projections := func(types ...string) (all []nn.Tensor) {
		for _, name := range types {
			all = append(all, nn.Tensor{Name: "project." + name + ".weight", Shape: []int{8, 3}})
		}
		return all
	}
	for _, c := range []struct {
		name  string
		parts shard.Meta
		model Model
		want  string // in the error; "" for none
		class []int32
	}{
		{"no labels", shard.Meta{Task: "none"}, Model{Task: task.Multiclass, Out: 3}, "", nil},
		{"other features", shard.Meta{Task: "none", Features: 2}, Model{Out: 3},
			"2 features, but the run", nil},
		{"other features of a type", typed(2), Model{Weights: projections("paper", "author")},
			"vertices of type author have 2 features, but the run  was trained on 3", nil},
		{"another type", typed(3), Model{Weights: projections("paper", "venue")},
			"vertices of type author, and the graph of the run  had none", nil},
		{"the same types", typed(3), Model{Weights: projections("paper", "author")}, "", nil},
		{"fewer classes", shard.Meta{Task: task.Multiclass, Classes: 2},
			Model{Task: task.Multiclass, Out: 3}, "", nil},
		{"more classes", shard.Meta{Task: task.Multiclass, Classes: 4},
			Model{Task: task.Multiclass, Out: 3}, "4 classes, but the run", nil},
		{"other labels of several", shard.Meta{Task: task.Multilabel, Classes: 2},
			Model{Task: task.Multilabel, Out: 3}, "2 classes, but the run", nil},
		{"another task", shard.Meta{Task: task.Multilabel, Classes: 3},
			Model{Task: task.Multiclass, Out: 3}, "the labels are multilabel", nil},
		{"names in another order",
			shard.Meta{Task: task.Multiclass, Classes: 2, ClassNames: []string{"c", "a"}},
			Model{Task: task.Multiclass, Out: 3, ClassNames: []string{"a", "b",
				"c"}}, "", []int32{2, 0}},
		{"numbers as names",
			shard.Meta{Task: task.Multiclass, Classes: 2, ClassNames: []string{"1", "2"}},
			Model{Task: task.Multiclass, Out: 3}, "", []int32{1, 2}},
		{"a number that is no class",
			shard.Meta{Task: task.Multiclass, Classes: 2, ClassNames: []string{"1", "3"}},
			Model{Task: task.Multiclass, Out: 3}, `class "3" is not`, nil},
		{"words beside numbers",
			shard.Meta{Task: task.Multiclass, Classes: 2, ClassNames: []string{"a", "b"}},
			Model{Task: task.Multiclass, Out: 3}, "", nil},
		{"numbers of a model with names", shard.Meta{Task: task.Multiclass, Classes: 2},
			Model{Task: task.Multiclass, Out: 3, ClassNames: []string{"1", "0",
				"7"}}, "", []int32{1, 0}},
		{"a number without a name", shard.Meta{Task: task.Multiclass, Classes: 2},
			Model{Task: task.Multiclass, Out: 2, ClassNames: []string{"1",
				"2"}}, `class "0" is not`, nil},
		{"another name", shard.Meta{Task: task.Multiclass, Classes: 1, ClassNames: []string{"x"}},
			Model{Task: task.Multiclass, Out: 1,
				ClassNames: []string{"a"}}, `class "x" is not`, nil},
	} {
		got, err := c.model.fit(&shard.Shards{Meta: c.parts})
		if fmt.Sprint(err) == "<nil>" != (c.want == "") || !strings.Contains(fmt.Sprint(err),
			c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err == nil && !slices.Equal(got.class, c.class) {
			t.Errorf("%s: classes %v, want %v", c.name, got.class, c.class)
		}
	}
}

// A model reads weights of edges if it was trained with them, whatever the graph to predict has.
func TestInferReadsTheWeightsTrainedWith(t *testing.T) {
	for _, c := range []struct {
		trained         string
		asked, weighted bool
		want, refused   bool
	}{
		{"true", true, true, true, false}, {"true", false, true, false, false},
		{"true", true, false, false, true}, {"true", false, false, false, false},
		{"false", true, true, false, false}, {"false", true, false, false, false},
		{"", true, true, true, false}, {"", false, true, false, false},
	} {
		m := &Model{About: map[string]string{"edge_weights": c.trained}}
		if c.trained == "" { // of an older run
			m.About = nil
		}
		s := &shard.Shards{Dir: "parts", Meta: shard.Meta{Weighted: c.weighted}}
		got, err := m.weighs(s, c.asked)
		if got != c.want || (err != nil) != c.refused {
			t.Errorf("%+v: %t, %v", c, got, err)
		}
	}
	s, o := unlabelled(t, 2), sageOptions()
	m := &Model{In: s.Features, Out: 4, Task: task.Multiclass,
		About: map[string]string{"edge_weights": "true"}}
	o.Model.EdgeWeights = true
	err := comm.RunWorld(2, func(c comm.Comm) error {
		_, err := Predict(context.Background(), session.Env{Comm: c, Shards: s}, o, m, Request{})
		return err
	})
	if !comm.IsAgreed(err) || !strings.Contains(err.Error(), "was trained with weights") {
		t.Errorf("parts without weights: %v", err)
	}
}
