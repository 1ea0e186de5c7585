package shard

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"halognn/src/dataset"
	"halognn/src/mem"
)

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
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, s.Files[name].Bytes),
			0o666); err != nil {
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
	if err := os.WriteFile(filepath.Join(dir, "labels.npy"),
		make([]byte, s.Files["labels.npy"].Bytes), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{Stage: stage}); !errors.Is(err, ErrAltered) ||
		!strings.Contains(err.Error(), "labels.npy") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(stage, "*", "labels.npy*[^k]")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCopiedTopologyOutlivesItsName(t *testing.T) {
	ds := makeDataset(t, rand.New(rand.NewPCG(3, 2)), 60,
		dataset.Meta{Name: "weights", Task: dataset.Multiclass,
			Features: 2, Classes: 3, Weighted: true})
	l, part := layout(t, ds, 4)
	dir, shared := write(t, ds, 4), t.TempDir()
	o := Options{CopyTopology: true, SharedMemory: shared}
	a, b := open(t, dir, o), open(t, dir, o)
	copies, _ := filepath.Glob(filepath.Join(shared, "*", "*.npy"))
	if files := a.topologyFiles(); len(copies) != len(files) || len(files) != 5 {
		t.Errorf("copied %v, want %v", copies, files)
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

// Jobs that come and go on one node share the copy and take its name away under each other's hands.
func TestCopiesComeAndGo(t *testing.T) {
	ds := small(t)
	dir, shared := write(t, ds, 4), t.TempDir()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 25 {
				s, err := Open(dir, Options{CopyTopology: true, SharedMemory: shared})
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(s.Topology().Graph.Validate(), s.UnlinkShared(),
					s.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if left, _ := os.ReadDir(shared); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
