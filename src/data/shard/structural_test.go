package shard

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// A row of degree features is the logarithm of 1 + d and a single 1, whose column rises with d by
// one for each doubling of 1 + d.
func TestDegreeRow(t *testing.T) {
	row := make([]float32, structuralCols(FeaturesDegree))
	for _, c := range []struct {
		d      int64
		bucket int
	}{{0, 0}, {1, 1}, {2, 1}, {3, 2}, {6, 2}, {7, 3}, {1<<14 - 2, 13}, {1<<14 - 1, 14},
		{1 << 20, 14}, {math.MaxInt32, 14}} {
		for i := range row {
			row[i] = 7
		}
		structuralRow(row, c.d)
		want := make([]float32, 16)
		want[0], want[1+c.bucket] = float32(math.Log(float64(1+c.d))), 1
		if !slices.Equal(row, want) {
			t.Errorf("in-degree %d gives %v", c.d, row)
		}
	}
}

// Features that are made of the graph depend on the vertex alone, and not on how the graph is cut.
func TestStructuralFeatures(t *testing.T) {
	for _, typ := range []string{dataset.Float32, dataset.Float16, dataset.Int8} { // of no columns
		ds := makeDataset(t, rand.New(rand.NewPCG(5, 6)), 90,
			dataset.Meta{Name: "bare", Task: task.Multiclass, Classes: 3, FeatureType: typ})
		for _, parts := range []int{1, 4} {
			for kind, cols := range map[string]int{FeaturesDegree: 16, FeaturesOnes: 1} {
				l, _ := layout(t, ds, parts)
				l.Origin.Features = kind
				dir := filepath.Join(t.TempDir(), "parts")
				if err := Write(dir, ds, l, Alone{}); err != nil {
					t.Fatal(err)
				}
				s := open(t, dir, Options{})
				if err := s.Verify(); err != nil || s.Features != cols || s.RowBytes() != 4*cols ||
					s.Origin.Features != kind {
					t.Fatalf("%s: %d features of %d bytes, %q, %v", kind, s.Features, s.RowBytes(),
						s.Origin.Features, err)
				}
				for k := range parts {
					part, err := s.OpenPart(k)
					if err != nil {
						t.Fatal(err)
					}
					for i := range part.Rows {
						v := graph.VertexID(s.Topology().Original[int(part.First)+i])
						want := []float32{1}
						if kind == FeaturesDegree {
							want = make([]float32, cols)
							structuralRow(want, int64(len(ds.Graph.InNeighbours(v))))
						}
						if got := part.Features[4*cols*i : 4*cols*(i+1)]; !slices.Equal(got,
							mem.Bytes(want)) {
							t.Fatalf("%s: vertex %d has the row %v, want %v", kind, v, got, want)
						}
					}
					if err := part.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

func TestFeaturesThatCannotBeMade(t *testing.T) {
	bare := makeDataset(t, rand.New(rand.NewPCG(5, 6)), 20,
		dataset.Meta{Name: "bare", Task: task.Multiclass, Classes: 3})
	for _, c := range []struct {
		kind, want string
		ds         *dataset.Dataset
	}{
		{"twos", "use degree or ones", bare},
		{FeaturesOnes, "has 3 feature columns", small(t)},
	} {
		l, _ := layout(t, c.ds, 2)
		l.Origin.Features = c.kind
		err := Write(filepath.Join(t.TempDir(), "parts"), c.ds, l, Alone{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s features of %s: %v", c.kind, c.ds.Meta.Name, err)
		}
	}
}
