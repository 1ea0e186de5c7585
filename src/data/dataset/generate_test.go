package dataset

import (
	"cmp"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

func generate(t *testing.T, o GenerateOptions) *Dataset {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "g")
	if err := Generate(dir, o); err != nil {
		t.Fatal(err)
	}
	return opened(t, dir)
}

// opened opens a dataset until the test ends.
func opened(t *testing.T, dir string) *Dataset {
	t.Helper()
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestGenerateDependsOnOptionsAlone(t *testing.T) {
	for _, o := range []GenerateOptions{
		{Vertices: 5000, Degree: 8, Features: 9, Classes: 5, Seed: 3},
		{Kind: RMAT, Vertices: 5000, Degree: 8, Features: 3, Classes: 5, Seed: 3, Labelled: 0.5,
			FeatureType: Float16},
		{Vertices: 3000, Degree: 8, Features: 9, Classes: 5, Seed: 3, FeatureType: Int8},
	} {
		live := mem.Allocated()
		var want string
		for _, procs := range []int{1, 2, 5} {
			old := runtime.GOMAXPROCS(procs)
			d := generate(t, o)
			runtime.GOMAXPROCS(old)
			if want == "" {
				want = d.Identity()
			}
			if d.Identity() != want {
				t.Errorf("%s: %d CPUs made another dataset than 1", o.Kind, procs)
			}
		}
		if leak := mem.Allocated() - live; leak != 0 {
			t.Errorf("%s: %d bytes not given back", o.Kind, leak)
		}
		o.Seed++
		if generate(t, o).Identity() == want {
			t.Errorf("%s: another seed made the same dataset", o.Kind)
		}
	}
}

// TestRangesMakeTheSameGraph: a graph whose edges are made range by range is the one made at once,
// in every byte.
func TestRangesMakeTheSameGraph(t *testing.T) {
	for _, o := range []GenerateOptions{
		{Vertices: 3000, Degree: 8, Features: 3, Classes: 5, Seed: 3, EdgeWeights: true},
		{Kind: RMAT, Vertices: 3000, Degree: 8, Features: 3, Classes: 5, Seed: 3},
	} {
		live := mem.Allocated()
		want := generate(t, o)
		for _, o.ranges = range []int{2, 7} {
			got := generate(t, o)
			if got.Identity() != want.Identity() ||
				*got.Meta.Provenance.Cleaning != *want.Meta.Provenance.Cleaning {
				t.Errorf("%s in %d ranges: %s, %v; at once %s, %v", o.Kind, o.ranges,
					got.Identity(), got.Meta.Provenance.Cleaning, want.Identity(),
					want.Meta.Provenance.Cleaning)
			}
		}
		if leak := mem.Allocated() - live; leak != 0 {
			t.Errorf("%s: %d bytes not given back", o.Kind, leak)
		}
	}
}

func TestGeneratedGraphsAreValid(t *testing.T) {
	for _, c := range []struct {
		name string
		o    GenerateOptions
	}{
		{"tiny", GenerateOptions{Vertices: 8, Degree: 1, Features: 1, Classes: 8}},
		{"one class", GenerateOptions{Vertices: 500, Degree: 5, Features: 3, Classes: 1}},
		{"dense", GenerateOptions{Vertices: 400, Degree: 100, Features: 3, Classes: 4}},
		{"only inside classes",
			GenerateOptions{Vertices: 3000, Features: 3, Classes: 4, Homophily: 1}},
		{"no homophily", GenerateOptions{Vertices: 3000, Features: 3, Classes: 4, Homophily: -1,
			Skew: -1}},
		{"rmat", GenerateOptions{Kind: RMAT, Vertices: 3000, Features: 3, Classes: 4}},
		{"few labels, float16",
			GenerateOptions{Vertices: 3000, Features: 3, Classes: 4, Labelled: 0.1,
				FeatureType: Float16, Split: "8/2/90"}},
	} {
		d := generate(t, c.o)
		if err := d.Verify(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if tr := d.Graph.Transpose(); !reflect.DeepEqual(tr, d.Graph) {
			t.Errorf("%s: the graph is not symmetric, or its lists are not sorted", c.name)
		}
		for v := range graph.VertexID(d.Meta.Vertices) {
			for i, u := range d.Graph.InNeighbours(v) {
				if u == v || i > 0 && u == d.Graph.InNeighbours(v)[i-1] {
					t.Fatalf("%s: vertex %d has a loop or a repeated neighbour", c.name, v)
				}
			}
		}
		labelled := len(Labelled(labelsOf(d)))
		if got := len(d.Split.Train) + len(d.Split.Valid) + len(d.Split.Test); got != labelled {
			t.Errorf("%s: %d vertices in splits, %d have labels", c.name, got, labelled)
		}
		if share := cmp.Or(c.o.Labelled,
			1); math.Abs(float64(labelled)-share*float64(d.Meta.Vertices)) > 100 {
			t.Errorf("%s: %d of %d vertices have labels", c.name, labelled, d.Meta.Vertices)
		}
	}
}

// TestBlockModelHasWhatWasAskedFor compares degree, homophily, class sizes and the tail of the
// degrees with the options.
func TestBlockModelHasWhatWasAskedFor(t *testing.T) {
	o := GenerateOptions{Vertices: 30000, Degree: 24, Features: 2, Classes: 10, Homophily: 0.7,
		Skew: 0.8, Seed: 5}
	d := generate(t, o)
	labels := labelsOf(d)
	size := make([]float64, o.Classes)
	inside, largest := 0, 0
	for v := range graph.VertexID(o.Vertices) {
		size[labels[v]]++
		largest = max(largest, d.Graph.InDegree(v))
		for _, u := range d.Graph.InNeighbours(v) {
			if labels[u] == labels[v] {
				inside++
			}
		}
	}
	edges := float64(d.Meta.Edges)
	if mean := edges / float64(o.Vertices); math.Abs(mean/o.Degree-1) > 0.04 {
		t.Errorf("mean degree %.2f, want %g", mean, o.Degree)
	}
	if h := float64(inside) / edges; math.Abs(h-o.Homophily) > 0.03 {
		t.Errorf("homophily %.3f, want %g", h, o.Homophily)
	}
	if float64(largest) < 20*o.Degree {
		t.Errorf("largest degree %d: no power-law tail", largest)
	}
	for c, share := range o.classShares() {
		if got := size[c] / float64(o.Vertices); math.Abs(got-share) > 0.1*share+0.005 {
			t.Errorf("class %d has a share of %.3f, want %.3f", c, got, share)
		}
	}
}

// TestBlockModelHasSmallCuts cuts the ring of communities into four equal arcs, as a good
// partitioner would.
func TestBlockModelHasSmallCuts(t *testing.T) {
	o, err := GenerateOptions{Vertices: 60000, Degree: 15, Features: 1, Seed: 2}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	m := newBlockModel(o)
	defer m.free()
	arc := make([]int, o.Vertices)
	for place, v := range m.id {
		arc[v] = 4 * place / o.Vertices
	}
	var b graph.Builder
	m.drawEdges(&b, span{all: true})
	g, _, err := b.Build(o.Vertices, graph.CleanOptions{Undirected: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Free()
	cut := 0
	for v := range graph.VertexID(o.Vertices) {
		for _, u := range g.InNeighbours(v) {
			if arc[u] != arc[v] {
				cut++
			}
		}
	}
	if share := float64(cut) / float64(g.NumEdges()); share < 0.02 || share > 0.2 {
		t.Errorf("four arcs cut %.3f of the edges, want a few per cent up to 0.2 (any four "+
			"parts: 0.75)", share)
	}
}

// TestAccuracyMeansSomething classifies by the nearest class mean: features alone must do well
// better than guessing the largest class, and far worse than with the means of the neighbours.
func TestAccuracyMeansSomething(t *testing.T) {
	for _, o := range []GenerateOptions{
		{Vertices: 5000, Seed: 1},
		{Vertices: 8000, Classes: 30, Features: 64, Degree: 25, Skew: 1, Seed: 2},
		{Vertices: 4000, Classes: 2, Features: 16, Degree: 25, Seed: 3},
	} {
		d := generate(t, o)
		n, f := int(d.Meta.Vertices), d.Meta.Features
		raw, mean := make([]float32, n*f), make([]float32, n*f)
		for v := range n {
			d.FeatureRow(raw[v*f:(v+1)*f], graph.VertexID(v))
		}
		for v := range n {
			list := d.Graph.InNeighbours(graph.VertexID(v))
			for _, u := range list {
				for j := range f {
					mean[v*f+j] += raw[int(u)*f+j] / float32(len(list))
				}
			}
		}
		size := make([]float64, d.Meta.Classes)
		for _, y := range labelsOf(d) {
			size[y]++
		}
		guess, alone, with := size[0]/float64(n), nearestMean(d, raw), nearestMean(d, mean)
		t.Logf("%d classes: largest class %.3f, features alone %.3f, mean of neighbours %.3f",
			d.Meta.Classes, guess, alone, with)
		if alone < 1.5*guess || with < alone+0.1 {
			t.Errorf("%+v: largest class %.3f, features alone %.3f, mean of neighbours %.3f", o,
				guess, alone, with)
		}
	}
}

// nearestMean trains and tests a nearest-class-mean classifier on the rows x and returns its
// accuracy.
func nearestMean(d *Dataset, x []float32) float64 {
	f, labels := d.Meta.Features, labelsOf(d)
	centre, count := make([]float64, d.Meta.Classes*f), make([]float64, d.Meta.Classes)
	for _, v := range d.Split.Train {
		count[labels[v]]++
		for j := range f {
			centre[int(labels[v])*f+j] += float64(x[int(v)*f+j])
		}
	}
	right := 0
	for _, v := range d.Split.Test {
		best, nearest := int32(-1), math.Inf(1)
		for c := range count {
			distance := 0.0
			for j := range f {
				diff := float64(x[int(v)*f+j]) - centre[c*f+j]/count[c]
				distance += diff * diff
			}
			if distance < nearest {
				best, nearest = int32(c), distance
			}
		}
		if best == labels[v] {
			right++
		}
	}
	return float64(right) / float64(len(d.Split.Test))
}

func TestRMATIsSkewedAndShuffled(t *testing.T) {
	// Not a power of two.
	d := generate(t, GenerateOptions{Kind: RMAT, Vertices: 20000, Degree: 16, Features: 1, Seed: 9})
	largest, low := 0, 0.0
	for v := range graph.VertexID(20000) {
		largest = max(largest, d.Graph.InDegree(v))
		if v < 2000 {
			low += float64(d.Graph.InDegree(v))
		}
	}
	if largest < 20*16 {
		t.Errorf("largest degree %d", largest)
	}
	if share := low / float64(d.Meta.Edges); share > 0.15 {
		t.Errorf("the first tenth of the vertices has %.2f of the edges: numbers tell degrees",
			share)
	}
}

func TestGenerateReportsEveryFault(t *testing.T) {
	for _, c := range []struct {
		name string
		o    GenerateOptions
		want []string
	}{
		{"preset", GenerateOptions{Preset: "cora"},
			[]string{
				`"cora" is unknown; use one of arxiv, mag, mag240c, papers100M, products, reddit`,
			}},
		{"many", GenerateOptions{Kind: "er", Vertices: 10, Classes: 11, Degree: -1, Features: -1,
			Homophily: 2, Split: "1/2", Labelled: 3},
			[]string{`kind "er"`, "the number of classes is 11", "degree is -1", "features is -1",
				"homophily is 2", `split "1/2"`, "the labelled share is 3"}},
		{"too dense", GenerateOptions{Vertices: 100, Degree: 30},
			[]string{"at most a quarter of the 100 vertices"}},
		{"scaled away", GenerateOptions{Preset: "arxiv", Scale: 1e-7},
			[]string{"the number of vertices is 1", "the number of classes is 40"}},
		{"negative scale", GenerateOptions{Preset: "arxiv", Scale: -1}, []string{"scale is -1"}},
		{"feature type", GenerateOptions{FeatureType: "int4"}, []string{"int4"}},
		{"papers", GenerateOptions{Kind: MAG, Vertices: 1 << 30, Degree: 3, EdgeWeights: true,
			SplitLinks: "80/10/10", FeatureType: Int8},
			[]string{"the degree is fixed", "no weights", "links cannot", "int8", "at most 2"}},
	} {
		parent := t.TempDir()
		err := Generate(filepath.Join(parent, "g"), c.o)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", c.name, err, want)
			}
		}
		if left, _ := os.ReadDir(parent); len(left) != 0 {
			t.Errorf("%s: left behind: %v", c.name, left)
		}
	}
}

// What the generator takes a graph of papers to be is what it makes; the degree, which is fixed,
// is not said to be 20.
func TestPapersHaveTheSizesThatAreForeseen(t *testing.T) {
	o, err := GenerateOptions{Kind: MAG, Vertices: 3000, Features: 2}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	d := generate(t, o)
	if err := d.Verify(); err != nil {
		t.Error(err)
	}
	vertices, edges, columns := o.sizes()
	if vertices != float64(d.Meta.Vertices) || math.Abs(edges/float64(d.Meta.Edges)-1) > 0.07 ||
		math.Abs(columns/float64(d.Columns.Len())-1) > 0.01 {
		t.Errorf("foreseen %g vertices, %g edges, %g columns; made %d, %d, %d", vertices, edges,
			columns, d.Meta.Vertices, d.Meta.Edges, d.Columns.Len())
	}
	if degree, said := d.Meta.Provenance.Settings["degree"]; said {
		t.Errorf("the provenance has degree %s", degree)
	}
	SetMemory(t, 1<<20)
	err = Generate(filepath.Join(t.TempDir(), "g"), o)
	if !errors.Is(err, ErrTooLarge) ||
		!strings.Contains(err.Error(), "choose a larger machine or fewer") {
		t.Errorf("in a MiB of memory: %v", err)
	}
}

func TestPresets(t *testing.T) {
	o, err := GenerateOptions{Preset: "products"}.Resolve()
	if err != nil || o.Vertices != 2400000 || float64(o.Vertices)*o.Degree != 120e6 ||
		o.Features != 100 || o.Classes != 47 {
		t.Errorf("products: %+v, %v", o, err)
	}
	o, err = GenerateOptions{Preset: "products", Scale: 0.1, Features: 16}.Resolve()
	if err != nil || o.Vertices != 240000 || o.Features != 16 || o.Split != "8/2/90" {
		t.Errorf("scaled, with other features: %+v, %v", o, err)
	}
	for _, name := range Presets() {
		if _, err := (GenerateOptions{Preset: name}).Resolve(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestApportion(t *testing.T) {
	for _, weights := range [][]float64{{1}, {1, 2, 3}, {0.001, 5, 0}, {1, 1, 1, 1, 1, 1, 1}} {
		for _, n := range []int{0, 1, 10, 12345} {
			sum := 0
			for _, part := range apportion(n, weights) {
				if part < 0 {
					t.Errorf("apportion(%d, %v) has a negative part", n, weights)
				}
				sum += part
			}
			if sum != n {
				t.Errorf("apportion(%d, %v) adds up to %d", n, weights, sum)
			}
		}
	}
}

func labelsOf(d *Dataset) []int32 { return npy.View[int32](d.Labels.Data) }
