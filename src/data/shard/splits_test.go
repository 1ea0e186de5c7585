package shard

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// Parts of a dataset with several splits have each as parts of a dataset with that one alone.
func TestPartsHoldAllSplits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	splits := make([]graph.Split, 3)
	for v := range graph.VertexID(60) {
		for k := range splits {
			list := splits[k].Lists()[rng.IntN(3)]
			*list = append(*list, v)
		}
	}
	made := func(splits ...graph.Split) *dataset.Dataset {
		dir := filepath.Join(t.TempDir(), "data")
		w, err := dataset.Create(dir, dataset.Meta{Name: "d", Task: task.Multiclass, Classes: 1})
		if err != nil {
			t.Fatal(err)
		}
		g := graph.CSC{Indptr: make([]int64, 61), Indices: []graph.VertexID{}}
		if err := errors.Join(w.Topology(&g), w.Labels(mem.Bytes(make([]int32, 60))),
			w.Splits(splits[0], splits[1:]...), w.Close()); err != nil {
			t.Fatal(err)
		}
		d, err := dataset.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	all := write(t, made(splits...), 3)
	for k := range splits {
		one, of := open(t, write(t, made(splits[k]), 3), Options{}), open(t, all, Options{Split: k})
		if !slices.Equal(one.Splits, of.Splits) {
			t.Errorf("split %d: %v, want %v", k, of.Splits, one.Splits)
		}
		for p := range 3 {
			if !slices.Equal(one.Train(p), of.Train(p)) || !slices.Equal(one.Valid(p), of.Valid(p)) ||
				!slices.Equal(one.Test(p), of.Test(p)) || len(of.Train(p)) == 0 {
				t.Errorf("split %d of part %d differs", k, p)
			}
		}
		if whole, err := Whole(of); err != nil || !slices.Equal(whole.Train(1), of.Train(1)) {
			t.Errorf("split %d of the whole: %v", k, err)
		} else if err := errors.Join(of.Verify(), of.VerifyHashes(0, 1, true), whole.Close()); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		dir  string
		k    int
		says string
	}{{all, 3, "data.split is 3, and the parts hold splits 0 to 2"},
		{write(t, made(splits[0]), 3), 1, "hold one split, 0; `halognn import --split-index all`"}} {
		if _, err := Open(c.dir, Options{Split: c.k}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	// the content of every split is verified, whichever is open
	name := filepath.Join(all, dataset.SplitFile(2, "valid"))
	if _, err := npy.WriteFile(name, make([]int32, len(splits[2].Valid)), len(splits[2].Valid)); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(all, dataset.SplitFile(0, "valid"))
	if _, err := npy.WriteFile(first, make([]int32, len(splits[0].Valid)), len(splits[0].Valid)); err != nil {
		t.Fatal(err)
	}
	for k := range splits {
		err := open(t, all, Options{Split: k}).verifyContent()
		if err == nil || strings.Count(err.Error(), "listed twice") != 2 {
			t.Fatalf("other lists, split %d open: %v", k, err)
		}
		for _, of := range []int{0, 2} {
			if strings.Count(err.Error(), filepath.Join(all, dataset.SplitFile(of, "train"))) != 1 {
				t.Errorf("split %d open, of split %d: %v", k, of, err)
			}
		}
	}
}
