package shard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// alter changes the elements of a file in dir, whatever meta.json says of it.
func alter[T npy.Element](t *testing.T, dir, name string, change func(x []T)) {
	t.Helper()
	path := filepath.Join(dir, name)
	a, err := npy.Map[T](path)
	if err != nil {
		t.Fatal(err)
	}
	x := append([]T(nil), a.Data...)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	change(x)
	if _, err := npy.WriteFile(path, x, len(x)); err != nil {
		t.Fatal(err)
	}
}

// sampling draws a minibatch of every training seed, as a run does that did not compare the files.
func sampling(s *Shards) error {
	sampler, err := sample.New(s.Topology(),
		sample.Options{Spec: sample.Neighbours(sample.All, sample.All)})
	if err != nil {
		return err
	}
	defer sampler.Free()
	var mb sample.Minibatch
	defer mb.Free()
	for p := range s.Parts {
		if err := sampler.Sample(&mb, s.Train(p), sample.Key{}); err != nil {
			return err
		}
	}
	return nil
}

func TestDamageNamesTheFile(t *testing.T) {
	ds := small(t)
	broken := errors.New("the network is down")
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		work   func(s *Shards) error
		want   []string // nil: the files are not to blame
	}{
		{"an edge from nowhere", func(t *testing.T, dir string) {
			alter(t, dir, "indices.npy", func(x []int32) { x[3] = -9 })
		}, sampling, []string{"/indices.npy: altered", "vertex -9", "halognn check ",
			"data.verify=hashes"}},
		{"row pointers that fall", func(t *testing.T, dir string) {
			alter(t, dir, "indptr.npy", func(x []int64) { x[5], x[20] = x[20], x[5] })
		}, sampling, []string{"/indptr.npy: altered", "indptr", "partition again"}},
		{"a seed from nowhere", func(t *testing.T, dir string) {
			alter(t, dir, "train.npy", func(x []int32) { x[1] = 40 })
		}, sampling, []string{"/train.npy: altered", "XXH64", "seed 40: vertex out of range"}},
		{"a seed twice", func(t *testing.T, dir string) {
			alter(t, dir, "train.npy", func(x []int32) { x[1] = x[0] })
		}, sampling, []string{"/train.npy: altered", "is listed twice"}},
		{"a panic", func(t *testing.T, dir string) {
			alter(t, dir, "labels.npy", func(x []int32) { x[2] = 77 })
		}, func(s *Shards) error {
			return mem.Contain(func() error {
				var count [3]int
				for _, y := range npy.View[int32](s.Labels().Data) {
					count[max(y, 0)]++
				}
				return nil
			})
		}, []string{"/labels.npy: altered", "label of vertex 2 is 77", "index out of range [77]"}},
		{"hashes that were made to fit", func(t *testing.T, dir string) {
			old, err := npy.Hash(filepath.Join(dir, "indptr.npy"))
			if err != nil {
				t.Fatal(err)
			}
			alter(t, dir, "indptr.npy", func(x []int64) { x[5] = 1 << 50 })
			sum, err := npy.Hash(filepath.Join(dir, "indptr.npy"))
			if err != nil {
				t.Fatal(err)
			}
			if err := edit(old, sum)(dir); err != nil {
				t.Fatal(err)
			}
		}, func(s *Shards) error {
			return mem.Contain(func() error { s.Topology().Graph.InNeighbours(4); return nil })
		}, []string{"/indptr.npy: indptr falls from 1125899906842624",
			"slice bounds out of range"}},
		{"a file that shrank within its last page", func(*testing.T, string) {},
			func(s *Shards) error {
				if err := os.Truncate(filepath.Join(s.Dir, "indices.npy"), 140); err != nil {
					return err
				}
				return &graph.LayoutError{Array: graph.Indices, Reason: errors.New("zeros")}
			}, []string{"/indices.npy has 140 bytes on disk", mem.ErrShrank.Error()}},
		{"a panic of ours", func(*testing.T, string) {}, func(*Shards) error {
			return mem.Contain(func() error { panic("ours") })
		}, nil},
		{"another error", func(t *testing.T, dir string) {
			alter(t, dir, "labels.npy", func(x []int32) { x[2] = 77 })
		}, func(*Shards) error { return broken }, nil},
		{"no error", func(*testing.T, string) {}, sampling, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := write(t, ds, 2)
			c.damage(t, dir)
			s := open(t, dir, Options{})
			err := s.Damage(c.work(s))
			if (err == nil) != (c.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v lacks %q", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "goroutine ") {
				t.Errorf("it shows a stack: %v", err)
			}
		})
	}
}

// A copy on the node's disk may be damaged while the file itself is whole: what is read is what
// counts.
func TestDamageOfAStagedCopyIsFound(t *testing.T) {
	dir, stage := write(t, small(t), 2), t.TempDir()
	if err := open(t, dir, Options{Stage: stage}).VerifyHashes(0, 2, true); err != nil {
		t.Fatal(err)
	}
	copies, err := filepath.Glob(filepath.Join(stage, "*", "indices.npy"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies: %v (%v)", copies, err)
	}
	alter(t, filepath.Dir(copies[0]), "indices.npy", func(x []int32) { x[3] = -9 })
	s := open(t, dir, Options{Stage: stage})
	err = s.VerifyHashes(0, 2, true)
	if !errors.Is(err, ErrAltered) || !strings.Contains(err.Error(), copies[0]) {
		t.Errorf("hashes: %v", err)
	}
	if err := s.Damage(sampling(s)); err == nil || !strings.Contains(err.Error(), copies[0]) ||
		!strings.Contains(err.Error(), "is removed") {
		t.Errorf("damage: %v", err)
	}
	if err := open(t, dir, Options{Stage: stage}).VerifyHashes(0, 2, true); err != nil {
		t.Errorf("the next start: %v", err)
	}
}

// Copies that somebody removed while they are mapped are no damage, and do not hide what ended the
// work.
func TestRemovedCopiesAreNoDamage(t *testing.T) {
	dir, stage := write(t, small(t), 2), t.TempDir()
	s := open(t, dir, Options{Stage: stage})
	copies, err := filepath.Glob(filepath.Join(stage, "*"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies: %v (%v)", copies, err)
	}
	if err := os.RemoveAll(copies[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.VerifyHashes(0, 2, true); err != nil {
		t.Errorf("hashes: %v", err)
	}
	ours := mem.Contain(func() error { panic("ours") })
	if err := s.Damage(ours); err != nil {
		t.Errorf("damage: %v", err)
	}
}
