package shard

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// makeDataset writes and opens a random dataset of n vertices.
func makeDataset(t testing.TB, rng *rand.Rand, n int, meta dataset.Meta) *dataset.Dataset {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	w, err := dataset.Create(dir, meta)
	if err != nil {
		t.Fatal(err)
	}
	src, dst := make([]graph.VertexID, 5*n), make([]graph.VertexID, 5*n)
	for i := range src {
		src[i], dst[i] = graph.VertexID(rng.IntN(n)), graph.VertexID(rng.IntN(n))
	}
	g, err := graph.FromEdges(n, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	errs := []error{w.Topology(g)}
	if meta.Weighted {
		weights := make([]float32, g.NumEdges())
		for e := range weights {
			weights[e] = rng.Float32()
		}
		errs = append(errs, w.EdgeWeights(weights))
	}
	made := make([]float32, n*meta.Features)
	for i := range made {
		made[i] = rng.Float32()
	}
	errs = append(errs, w.WriteFeatures(meta.Features, w.Meta.FeatureType, nil,
		func(rows *dataset.RowWriter) error { return rows.Write(made) }))
	labels, marks := make([]int32, n), make([]uint8, n*meta.Classes)
	for i := range marks {
		marks[i] = uint8(rng.IntN(2))
	}
	var split graph.Split
	for v := range labels {
		labels[v] = int32(rng.IntN(meta.Classes))
		switch id := graph.VertexID(v); rng.IntN(4) {
		case 0:
			split.Train = append(split.Train, id)
		case 1:
			split.Valid = append(split.Valid, id)
		case 2:
			split.Test = append(split.Test, id)
		default:
			labels[v] = -1
		}
	}
	if meta.Task == task.Multilabel {
		errs = append(errs, w.Labels(marks))
	} else {
		errs = append(errs, w.Labels(mem.Bytes(labels)))
	}
	if err := errors.Join(append(errs, w.Splits(split), w.Close())...); err != nil {
		t.Fatal(err)
	}
	ds, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ds.Close() })
	return ds
}

func small(t *testing.T) *dataset.Dataset {
	return makeDataset(t, rand.New(rand.NewPCG(1, 1)), 40,
		dataset.Meta{Name: "small", Task: task.Multiclass, Features: 3, Classes: 4})
}

// layout partitions at random into the given number of parts.
func layout(t testing.TB, ds *dataset.Dataset, parts int) (Layout, []int32) {
	t.Helper()
	part, err := partition.Random(ds.Graph, partition.Weights{},
		partition.Options{Parts: parts, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	l := Layout{Report: partition.Measure(ds.Graph, part, parts, ds.Split),
		Origin: Origin{Method: "random", Seed: 3, Order: "degree"}}
	l.NewID, l.Offsets = partition.Order(part, parts, partition.InDegrees(ds.Graph, &ds.Columns))
	return l, part
}

func write(t testing.TB, ds *dataset.Dataset, parts int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "parts")
	l, _ := layout(t, ds, parts)
	if err := Write(dir, ds, l, Alone{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, dir string, o Options) *Shards {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestPartsHoldTheDatasetUnderNewIDs(t *testing.T) {
	for i, c := range []struct {
		n, parts int
		meta     dataset.Meta
	}{
		{200, 4, dataset.Meta{Name: "classes", Task: task.Multiclass, Features: 5, Classes: 3}},
		{150, 7, dataset.Meta{Name: "marks", Task: task.Multilabel, Features: 8, Classes: 6,
			FeatureType: dataset.Float16}},
		{90, 3, dataset.Meta{Name: "bytes", Task: task.Multiclass, Features: 4, Classes: 2,
			FeatureType: dataset.Int8}},
		{30, 1, dataset.Meta{Name: "one part", Task: task.Multiclass, Features: 1, Classes: 2}},
		{20, 20, dataset.Meta{Name: "a part each", Task: task.Multiclass, Features: 2,
			Classes: 2}},
		{80, 3, dataset.Meta{Name: "weights", Task: task.Multiclass, Features: 2, Classes: 2,
			Weighted: true}},
		{50, 3, dataset.Meta{Name: "no features", Task: task.Multiclass, Classes: 2}},
	} {
		t.Run(c.meta.Name, func(t *testing.T) {
			ds := makeDataset(t, rand.New(rand.NewPCG(uint64(i), 2)), c.n, c.meta)
			l, part := layout(t, ds, c.parts)
			dir := filepath.Join(t.TempDir(), "deep", "parts")
			if err := Write(dir, ds, l, Alone{}); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir, Options{})
			if err := s.Verify(); err != nil {
				t.Fatal(err)
			}
			compare(t, s, ds, l, part)
			entries, _ := os.ReadDir(filepath.Dir(dir))
			if len(entries) != 1 {
				t.Errorf("beside the parts there is something else: %v", entries)
			}
		})
	}
}

// compare holds parts against the dataset they come from.
func compare(t *testing.T, s *Shards, ds *dataset.Dataset, l Layout, part []int32) {
	t.Helper()
	top := s.Topology()
	for v, id := range l.NewID {
		if top.Original[id] != int32(v) || int64(id) < s.Offsets[part[v]] ||
			int64(id) >= s.Offsets[part[v]+1] {
			t.Fatalf("vertex %d of part %d became %d, whose original id is %d", v, part[v], id,
				top.Original[id])
		}
		want := slices.Clone(ds.Graph.InNeighbours(graph.VertexID(v)))
		for i := range want {
			want[i] = l.NewID[want[i]]
		}
		if got := top.Graph.InNeighbours(id); !slices.Equal(got, want) {
			t.Fatalf("vertex %d has in-neighbours %v, want %v", v, got, want)
		}
		if s.Weighted {
			rows, at := ds.Graph.Indptr, top.Graph.Indptr
			weights := ds.Weights[rows[v]:rows[v+1]]
			if got := top.Weights[at[id]:at[id+1]]; !slices.Equal(got, weights) ||
				top.WeightSums[id] != weightSum(weights) {
				t.Fatalf("vertex %d has weights %v, which add up to %v", v, got, top.WeightSums[id])
			}
		} else if top.Weights != nil || top.WeightSums != nil {
			t.Fatal("a graph without weights has some")
		}
		if got, want := s.Labels().Row(int(id)), ds.Labels.Row(v); !bytes.Equal(got, want) {
			t.Fatalf("vertex %d has label %v, want %v", v, got, want)
		}
	}
	if rows := s.Rows(); rows.Cols != s.Features || !slices.Equal(rows.Scale, ds.Scale) ||
		(rows.Type == compute.Int8) != (len(ds.Scale) > 0) {
		t.Fatalf("rows are %+v, of scales %v", rows, ds.Scale)
	}
	size := s.RowBytes()
	for k := range s.Parts {
		p, err := s.OpenPart(k)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if p.Rows != int(s.Offsets[k+1]-s.Offsets[k]) || len(p.Features) != p.Rows*size {
			t.Fatalf("part %d has %d rows and %d bytes of features", k, p.Rows, len(p.Features))
		}
		for r := range p.Rows {
			v := int(top.Original[int(p.First)+r])
			if !bytes.Equal(p.Features[r*size:(r+1)*size],
				ds.FeatureRows(0, int64(v), int64(v+1))) {
				t.Fatalf("part %d, row %d: other features than vertex %d of the dataset", k, r, v)
			}
		}
		compareSplit(t, "train", s.Train(k), ds.Split.Train, l.NewID, part, int32(k))
		compareSplit(t, "valid", s.Valid(k), ds.Split.Valid, l.NewID, part, int32(k))
		compareSplit(t, "test", s.Test(k), ds.Split.Test, l.NewID, part, int32(k))
	}
}

func compareSplit(t *testing.T, name string, got, all, newID []graph.VertexID, part []int32,
	k int32) {
	t.Helper()
	var want []graph.VertexID
	for _, v := range slices.Sorted(slices.Values(all)) {
		if part[v] == k {
			want = append(want, newID[v])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s split of part %d is %v, want %v", name, k, got, want)
	}
}

func TestEqualInputGivesEqualIdentity(t *testing.T) {
	ds := small(t)
	a, b, c := open(t, write(t, ds, 4), Options{}), open(t, write(t, ds, 4), Options{}),
		open(t, write(t, ds, 5), Options{})
	if a.Identity() != b.Identity() || a.Identity() == c.Identity() {
		t.Errorf("identities %s, %s of equal parts, %s of others", a.Identity(), b.Identity(),
			c.Identity())
	}
}

func TestWriteRefusesAndLeavesNothing(t *testing.T) {
	ds := small(t)
	good, _ := layout(t, ds, 4)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		change    func(*Layout)
		want      error
	}{
		{"directory in use", full, func(*Layout) {}, ErrExists},
		{"file in the way", filepath.Join(full, "mine"), func(*Layout) {}, ErrExists},
		{"id given twice", "", func(l *Layout) { l.NewID[3] = l.NewID[4] }, ErrMismatch},
		{"id out of range", "", func(l *Layout) { l.NewID[3] = 40 }, ErrMismatch},
		{"too few ids", "", func(l *Layout) { l.NewID = l.NewID[1:] }, ErrMismatch},
		{"falling offsets", "", func(l *Layout) { l.Offsets[1] = l.Offsets[2] + 1 }, ErrMismatch},
		{"offsets end early", "", func(l *Layout) { l.Offsets[4]-- }, ErrMismatch},
		{"no parts", "", func(l *Layout) { l.Offsets = nil }, ErrMismatch},
	} {
		l := good
		l.NewID, l.Offsets = slices.Clone(good.NewID), slices.Clone(good.Offsets)
		c.change(&l)
		parent := t.TempDir()
		if c.dir == "" {
			c.dir = filepath.Join(parent, "parts")
		}
		before := mem.Allocated()
		if err := Write(c.dir, ds, l, Alone{}); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
		if entries, _ := os.ReadDir(parent); len(entries) > 0 {
			t.Errorf("%s: left behind %v", c.name, entries)
		}
		if leak := mem.Allocated() - before; leak != 0 {
			t.Errorf("%s: %d bytes were not freed", c.name, leak)
		}
	}
	if entries, _ := os.ReadDir(full); len(entries) != 1 {
		t.Errorf("a directory in use was changed: %v", entries)
	}
}

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
			if !slices.Equal(one.Train(p), of.Train(p)) ||
				!slices.Equal(one.Valid(p), of.Valid(p)) ||
				!slices.Equal(one.Test(p), of.Test(p)) || len(of.Train(p)) == 0 {
				t.Errorf("split %d of part %d differs", k, p)
			}
		}
		if whole, err := Whole(of); err != nil || !slices.Equal(whole.Train(1), of.Train(1)) {
			t.Errorf("split %d of the whole: %v", k, err)
		} else {
			err = errors.Join(of.Verify(), of.VerifyHashes(0, 1, true), whole.Close())
			if err != nil {
				t.Error(err)
			}
		}
	}
	for _, c := range []struct {
		dir  string
		k    int
		says string
	}{
		{all, 3, "data.split is 3, but the parts have only splits 0 to 2"},
		{write(t, made(splits[0]), 3), 1, "hold one split, 0; `halognn import --split-index all`"},
	} {
		if _, err := Open(c.dir, Options{Split: c.k}); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	// the content of every split is verified, whichever is open
	name := filepath.Join(all, dataset.SplitFile(2, "valid"))
	n := len(splits[2].Valid)
	if _, err := npy.WriteFile(name, make([]int32, n), n); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(all, dataset.SplitFile(0, "valid"))
	n = len(splits[0].Valid)
	if _, err := npy.WriteFile(first, make([]int32, n), n); err != nil {
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
