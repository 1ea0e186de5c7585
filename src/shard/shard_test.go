package shard

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"halognn/src/dataset"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/partition"
)

// makeDataset writes and opens a random dataset of n vertices.
func makeDataset(t *testing.T, rng *rand.Rand, n int, meta dataset.Meta) *dataset.Dataset {
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
	faults := []error{w.Topology(g)}
	rows, err := w.Features(n, meta.Features, meta.FeatureType)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		row := make([]float32, meta.Features)
		for f := range row {
			row[f] = rng.Float32()
		}
		faults = append(faults, rows.Write(row))
	}
	faults = append(faults, rows.Close())
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
	if meta.Task == dataset.Multilabel {
		faults = append(faults, w.Multilabels(marks))
	} else {
		faults = append(faults, w.Labels(labels))
	}
	if err := errors.Join(append(faults, w.Splits(split), w.Close())...); err != nil {
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
	return makeDataset(t, rand.New(rand.NewPCG(1, 1)), 40, dataset.Meta{Name: "small", Task: dataset.Multiclass, Features: 3, Classes: 4})
}

// layout partitions at random into the given number of parts.
func layout(t *testing.T, ds *dataset.Dataset, parts int) (Layout, []int32) {
	t.Helper()
	part, err := partition.Random(ds.Graph, partition.Weights{}, partition.Options{Parts: parts, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	l := Layout{Report: partition.Measure(ds.Graph, part, parts, ds.Split), Origin: Origin{Method: "random", Seed: 3, Order: "degree"}}
	l.NewID, l.Offsets = partition.Order(part, parts, partition.InDegrees(ds.Graph))
	return l, part
}

func write(t *testing.T, ds *dataset.Dataset, parts int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "parts")
	l, _ := layout(t, ds, parts)
	if err := Write(dir, ds, l); err != nil {
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
		{200, 4, dataset.Meta{Name: "classes", Task: dataset.Multiclass, Features: 5, Classes: 3}},
		{150, 7, dataset.Meta{Name: "marks", Task: dataset.Multilabel, Features: 8, Classes: 6, FeatureType: dataset.Float16}},
		{30, 1, dataset.Meta{Name: "one part", Task: dataset.Multiclass, Features: 1, Classes: 2}},
		{20, 20, dataset.Meta{Name: "a part each", Task: dataset.Multiclass, Features: 2, Classes: 2}},
		{50, 3, dataset.Meta{Name: "no features", Task: dataset.Multiclass, Classes: 2}},
	} {
		t.Run(c.meta.Name, func(t *testing.T) {
			ds := makeDataset(t, rand.New(rand.NewPCG(uint64(i), 2)), c.n, c.meta)
			l, part := layout(t, ds, c.parts)
			dir := filepath.Join(t.TempDir(), "deep", "parts")
			if err := Write(dir, ds, l); err != nil {
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
		if top.Original[id] != int32(v) || int64(id) < s.Offsets[part[v]] || int64(id) >= s.Offsets[part[v]+1] {
			t.Fatalf("vertex %d of part %d became %d, whose original id is %d", v, part[v], id, top.Original[id])
		}
		want := slices.Clone(ds.Graph.InNeighbours(graph.VertexID(v)))
		for i := range want {
			want[i] = l.NewID[want[i]]
		}
		if got := top.Graph.InNeighbours(id); !slices.Equal(got, want) {
			t.Fatalf("vertex %d has in-neighbours %v, want %v", v, got, want)
		}
		if s.Task == dataset.Multilabel {
			c := s.Classes
			if got := s.Targets()[int(id)*c : (int(id)+1)*c]; !bytes.Equal(got, ds.Multilabels[v*c:(v+1)*c]) {
				t.Fatalf("vertex %d has marks %v", v, got)
			}
		} else if s.Labels()[id] != ds.Labels[v] {
			t.Fatalf("vertex %d has label %d, want %d", v, s.Labels()[id], ds.Labels[v])
		}
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
			if !bytes.Equal(p.Features[r*size:(r+1)*size], ds.FeatureBytes()[v*size:(v+1)*size]) {
				t.Fatalf("part %d, row %d: other features than vertex %d of the dataset", k, r, v)
			}
		}
		compareSplit(t, "train", s.Train(k), ds.Split.Train, l.NewID, part, int32(k))
		compareSplit(t, "valid", s.Valid(k), ds.Split.Valid, l.NewID, part, int32(k))
		compareSplit(t, "test", s.Test(k), ds.Split.Test, l.NewID, part, int32(k))
	}
}

func compareSplit(t *testing.T, name string, got, all, newID []graph.VertexID, part []int32, k int32) {
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
	a, b, c := open(t, write(t, ds, 4), Options{}), open(t, write(t, ds, 4), Options{}), open(t, write(t, ds, 5), Options{})
	if a.Identity() != b.Identity() || a.Identity() == c.Identity() {
		t.Errorf("identities %s, %s of equal parts, %s of others", a.Identity(), b.Identity(), c.Identity())
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
		if err := Write(c.dir, ds, l); !errors.Is(err, c.want) {
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

func TestOpenNamesTheFaultyFile(t *testing.T) {
	ds := small(t)
	for _, c := range []struct {
		name   string
		damage func(dir string) error
		want   []string
	}{
		{"no directory", os.RemoveAll, []string{"holds no parts", "halognn partition"}},
		{"no meta", func(dir string) error { return os.Remove(filepath.Join(dir, "meta.json")) }, []string{"holds no parts"}},
		{"missing file", func(dir string) error { return os.Remove(filepath.Join(dir, "labels.npy")) }, []string{"labels.npy", "partition again"}},
		{"missing part", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "part-0002")) }, []string{"part-0002/features.npy", "partition again"}},
		{"truncated", func(dir string) error { return os.Truncate(filepath.Join(dir, "indices.npy"), 200) }, []string{"indices.npy", "200 bytes"}},
		{"truncated part", func(dir string) error { return os.Truncate(filepath.Join(dir, "part-0003/features.npy"), 130) }, []string{"part-0003/features.npy", "130 bytes"}},
		{"meta is no JSON", edit("{", "["), []string{"meta.json", "partition again"}},
		{"other format", edit(`"format": 1`, `"format": 2`), []string{"format version 2", "version 1"}},
		{"other vertices", edit(`"vertices": 40,`, `"vertices": 41,`), []string{"meta.json", "40 for 41 vertices"}},
		{"other shape", edit(`"edges": 200,`, `"edges": 201,`), []string{"indices.npy", "[200]", "[201]"}},
		{"other type", edit(`"task": "multiclass"`, `"task": "multilabel"`), []string{"labels.npy", "|u1"}},
	} {
		dir := write(t, ds, 4)
		if err := c.damage(dir); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		_, err := Open(dir, Options{})
		for _, text := range c.want {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q lacks %q", c.name, fmt.Sprint(err), text)
			}
		}
	}
}

// edit replaces the first old in meta.json.
func edit(old, new string) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, "meta.json")
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(text, []byte(old)) {
			return fmt.Errorf("%s has no %s", path, old)
		}
		return os.WriteFile(path, bytes.Replace(text, []byte(old), []byte(new), 1), 0o666)
	}
}

func TestVerifyFindsOneChangedByteInAnyFile(t *testing.T) {
	ds := small(t)
	dir := write(t, ds, 4)
	s := open(t, dir, Options{})
	for name := range s.Files {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := slices.Clone(whole)
		changed[len(changed)-1] ^= 1
		if err := os.WriteFile(path, changed, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(); !errors.Is(err, ErrAltered) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := os.WriteFile(path, whole, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Verify(); err != nil {
		t.Errorf("restored: %v", err)
	}
}

func TestVerifyHoldsContentToItsRules(t *testing.T) {
	ds := small(t)
	for _, c := range []struct {
		name  string
		spoil func(s *Shards)
		want  string
	}{
		{"edge from nowhere", func(s *Shards) { s.topology.Graph.Indices = changed(s.topology.Graph.Indices, 7, 40) }, "indices.npy"},
		{"falling indptr", func(s *Shards) { s.topology.Graph.Indptr = changed(s.topology.Graph.Indptr, 7, 0) }, "indptr.npy"},
		{"original id twice", func(s *Shards) { s.topology.Original = changed(s.topology.Original, 0, s.topology.Original[1]) }, "original_id.npy"},
		{"original id out of range", func(s *Shards) { s.topology.Original = changed(s.topology.Original, 0, -1) }, "original_id.npy"},
		{"label out of range", func(s *Shards) { s.labels = changed(s.labels, 0, 4) }, "labels.npy"},
		{"seed twice", func(s *Shards) { s.train.ids = changed(s.train.ids, 0, s.train.ids[1]) }, "train.npy"},
		{"seed in another part", func(s *Shards) { s.valid.ids = swapped(s.valid.ids, 0, len(s.valid.ids)-1) }, "valid.npy"},
		{"seeds out of order", func(s *Shards) { s.test.ids = swapped(s.test.ids, 0, 1) }, "test.npy"},
		{"seed without label", func(s *Shards) { s.labels = changed(s.labels, int(s.train.ids[0]), -1) }, "train.npy"},
	} {
		s := open(t, write(t, ds, 2), Options{})
		c.spoil(s)
		if err := s.Verify(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func changed[T any](s []T, i int, x T) []T {
	s = slices.Clone(s)
	s[i] = x
	return s
}

func swapped[T any](s []T, i, j int) []T {
	s = slices.Clone(s)
	s[i], s[j] = s[j], s[i]
	return s
}

func TestAShrinkingFileIsAnError(t *testing.T) {
	ds := makeDataset(t, rand.New(rand.NewPCG(1, 3)), 3000, dataset.Meta{Name: "larger", Task: dataset.Multiclass, Features: 1, Classes: 2})
	dir := write(t, ds, 2)
	s := open(t, dir, Options{})
	if err := os.Truncate(filepath.Join(dir, "indices.npy"), 1000); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); !errors.Is(err, mem.ErrShrank) || !strings.Contains(err.Error(), "indices.npy") {
		t.Errorf("got %v", err)
	}
}

func TestRankRange(t *testing.T) {
	m := Meta{Parts: 12}
	for _, c := range []struct{ rank, ranks, first, last int }{{0, 1, 0, 12}, {1, 2, 6, 12}, {2, 3, 8, 12}, {3, 4, 9, 12}, {11, 12, 11, 12}} {
		first, last, err := m.RankRange(c.rank, c.ranks)
		if first != c.first || last != c.last || err != nil {
			t.Errorf("rank %d of %d has parts %d to %d, %v; want %d to %d", c.rank, c.ranks, first, last, err, c.first, c.last)
		}
	}
	for _, ranks := range []int{0, 5, 8, 13, 24} {
		_, _, err := m.RankRange(0, ranks)
		want := fmt.Sprintf("12 parts, %d ranks; run on 1, 2, 3, 4, 6, 12 ranks", ranks)
		if !errors.Is(err, ErrRanks) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d ranks: got %v", ranks, err)
		}
	}
}

func TestStagedPartsReadLikeTheSource(t *testing.T) {
	ds := small(t)
	l, part := layout(t, ds, 4)
	dir, stage := write(t, ds, 4), t.TempDir()
	var group sync.WaitGroup
	for range 4 { // as the ranks of a node do
		group.Go(func() {
			s, err := Open(dir, Options{Stage: stage})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			compare(t, s, ds, l, part)
		})
	}
	group.Wait()
	s := open(t, dir, Options{Stage: stage})
	for name := range s.Files { // what is staged is not read from the source again
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, s.Files[name].Bytes), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, open(t, dir, Options{Stage: stage}), ds, l, part)
	if left, _ := filepath.Glob(filepath.Join(stage, "*", "*.tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStagingRefusesAnAlteredSource(t *testing.T) {
	ds := small(t)
	dir, stage := write(t, ds, 4), t.TempDir()
	s := open(t, dir, Options{})
	if err := os.WriteFile(filepath.Join(dir, "labels.npy"), make([]byte, s.Files["labels.npy"].Bytes), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{Stage: stage}); !errors.Is(err, ErrAltered) || !strings.Contains(err.Error(), "labels.npy") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(stage, "*", "labels.npy*[^k]")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCopiedTopologyOutlivesItsName(t *testing.T) {
	ds := small(t)
	l, part := layout(t, ds, 4)
	dir, shared := write(t, ds, 4), t.TempDir()
	o := Options{CopyTopology: true, SharedMemory: shared}
	a, b := open(t, dir, o), open(t, dir, o)
	copies, _ := filepath.Glob(filepath.Join(shared, "*", "*.npy"))
	if len(copies) != len(topologyFiles) {
		t.Errorf("copied %v, want %v", copies, topologyFiles)
	}
	for _, s := range []*Shards{a, b} {
		if err := s.UnlinkShared(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(shared); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	compare(t, a, ds, l, part)
	if err := mem.CheckSizes(); err != nil {
		t.Errorf("a deleted file that is still mapped is reported: %v", err)
	}
	compare(t, open(t, dir, o), ds, l, part) // one that opens late
}
