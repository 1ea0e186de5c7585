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
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
)

func TestOpenNamesTheFaultyFile(t *testing.T) {
	ds := small(t)
	for _, c := range []struct {
		name   string
		damage func(dir string) error
		want   []string
	}{
		{"no directory", os.RemoveAll, []string{"holds no parts", "halognn partition"}},
		{"no meta", func(dir string) error { return os.Remove(filepath.Join(dir, "meta.json")) },
			[]string{"holds no parts"}},
		{"missing file", func(dir string) error {
			return os.Remove(filepath.Join(dir,
				"labels.npy"))
		}, []string{"labels.npy", "partition again"}},
		{"missing part", func(dir string) error {
			return os.RemoveAll(filepath.Join(dir,
				"part-0002"))
		}, []string{"part-0002/features.npy", "partition again"}},
		{"truncated", func(dir string) error {
			return os.Truncate(filepath.Join(dir, "indices.npy"),
				200)
		}, []string{"indices.npy", "200 bytes"}},
		{"truncated part", func(dir string) error {
			return os.Truncate(filepath.Join(dir,
				"part-0003/features.npy"), 130)
		}, []string{"part-0003/features.npy", "130 bytes"}},
		{"meta is no JSON", edit("{", "["), []string{"meta.json", "partition again"}},
		{"other format", edit(`"format": 1`, `"format": 2`),
			[]string{"format version 2", "version 1"}},
		{"other vertices", edit(`"vertices": 40,`, `"vertices": 41,`),
			[]string{"meta.json", "40, but there are 41 vertices"}},
		{"other shape", edit(`"edges": 200,`, `"edges": 201,`),
			[]string{"indices.npy", "[200]", "[201]"}},
		{"negative split", edit(`"train": `, `"train": -`), []string{"meta.json", "part 0 has -"}},
		{"split beyond its part", edit(`"train": `, `"train": 9`),
			[]string{"meta.json", "part 0 has 9", "but only 1"}},
		{"split beyond all numbers", edit(`"train": `, `"train": 922337203685477580`),
			[]string{"meta.json", "part 0 has 92"}},
		{"classes beyond reason", edit(`"classes": 4,`, `"classes": 400000000,`),
			[]string{"meta.json", "400000000 classes are too many for a graph with 40 vertices"}},
		{"negative classes", edit(`"classes": 4,`, `"classes": -4,`),
			[]string{"meta.json", "-4 classes"}},
		{"features beyond reason", edit(`"features": 3,`, `"features": 5000000000,`),
			[]string{"meta.json", "5000000000 features"}},
		{"other type", edit(`"task": "multiclass"`, `"task": "multilabel"`),
			[]string{"labels.npy", "|u1"}},
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
		{"edge from nowhere",
			func(s *Shards) { s.topology.Graph.Indices = changed(s.topology.Graph.Indices, 7, 40) },
			"indices.npy"},
		{"falling indptr",
			func(s *Shards) { s.topology.Graph.Indptr = changed(s.topology.Graph.Indptr, 7, 0) },
			"indptr.npy"},
		{"original id twice",
			func(s *Shards) {
				s.topology.Original = changed(s.topology.Original, 0,
					s.topology.Original[1])
			}, "original_id.npy"},
		{"original id out of range",
			func(s *Shards) { s.topology.Original = changed(s.topology.Original, 0, -1) },
			"original_id.npy"},
		{"label out of range", func(s *Shards) { spoilLabel(s, 0, 4) },
			"labels.npy"},
		{"seed twice",
			func(s *Shards) { s.split[0].ids = changed(s.split[0].ids, 0, s.split[0].ids[1]) },
			"train.npy"},
		{"seed in another part",
			func(s *Shards) {
				s.split[1].ids = swapped(s.split[1].ids, 0, len(s.split[1].ids)-1)
			},
			"valid.npy"},
		{"seeds out of order", func(s *Shards) { s.split[2].ids = swapped(s.split[2].ids, 0, 1) },
			"test.npy"},
		{"seed without label",
			func(s *Shards) { spoilLabel(s, int(s.split[0].ids[0]), -1) }, "train.npy"},
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

func spoilLabel(s *Shards, v int, class int32) {
	s.labels.Data = mem.Bytes(changed(npy.View[int32](s.labels.Data), v, class))
}

func swapped[T any](s []T, i, j int) []T {
	s = slices.Clone(s)
	s[i], s[j] = s[j], s[i]
	return s
}

func TestAShrinkingFileIsAnError(t *testing.T) {
	ds := makeDataset(t, rand.New(rand.NewPCG(1, 3)), 3000,
		dataset.Meta{Name: "larger", Task: task.Multiclass, Features: 1, Classes: 2})
	dir := write(t, ds, 2)
	s := open(t, dir, Options{})
	if err := os.Truncate(filepath.Join(dir, "indices.npy"), 1000); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); !errors.Is(err, mem.ErrShrank) ||
		!strings.Contains(err.Error(), "indices.npy") {
		t.Errorf("got %v", err)
	}
}

func TestRankRange(t *testing.T) {
	m := Meta{Parts: 12}
	for _, c := range []struct{ rank, ranks, first, last int }{{0, 1, 0, 12}, {1, 2, 6, 12},
		{2, 3, 8, 12}, {3, 4, 9, 12}, {11, 12, 11, 12}} {
		first, last, err := m.RankRange(c.rank, c.ranks)
		if first != c.first || last != c.last || err != nil {
			t.Errorf("rank %d of %d has parts %d to %d, %v; want %d to %d", c.rank, c.ranks, first,
				last, err, c.first, c.last)
		}
	}
	for _, ranks := range []int{0, 5, 8, 13, 24} {
		_, _, err := m.RankRange(0, ranks)
		want := fmt.Sprintf("the job has %d ranks; run on 1, 2, 3, 4, 6, 12 ranks", ranks)
		if !errors.Is(err, ErrRanks) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d ranks: got %v", ranks, err)
		}
	}
}
