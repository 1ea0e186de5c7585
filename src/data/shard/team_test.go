package shard

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/model/task"
)

// meeting lets goroutines meet as a team.
type meeting struct {
	mu   sync.Mutex
	full *sync.Cond
	here int
	all  [][]byte
	last [][]byte // what all gave when they last met
	met  int
}

type seat struct {
	*meeting
	rank, size int
}

func (s seat) Rank() int { return s.rank }
func (s seat) Size() int { return s.size }

func (s seat) Gather(mine []byte) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[s.rank] = mine
	if s.here++; s.here == s.size {
		s.last, s.all, s.here = s.all, make([][]byte, s.size), 0
		s.met++
		s.full.Broadcast()
		return s.last, nil
	}
	for turn := s.met; turn == s.met; {
		s.full.Wait()
	}
	return s.last, nil
}

func (s seat) Agree(mine error) error {
	text := ""
	if mine != nil {
		text = mine.Error()
	}
	all, _ := s.Gather([]byte(text))
	for _, text := range all {
		if len(text) > 0 {
			return errors.New(string(text))
		}
	}
	return nil
}

// together writes parts by a team and returns the error of each.
func together(dir string, ds *dataset.Dataset, l Layout, size int) []error {
	r := &meeting{all: make([][]byte, size)}
	r.full = sync.NewCond(&r.mu)
	errs := make([]error, size)
	var group sync.WaitGroup
	for rank := range size {
		group.Go(func() { errs[rank] = Write(dir, ds, l, seat{r, rank, size}) })
	}
	group.Wait()
	return errs
}

// contents returns the bytes of all files below a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		all.WriteString(name + "\n" + string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// Any number of processes write the bytes that one does; 400,000 entries are several ranges.
func TestTeamsWriteTheSameBytes(t *testing.T) {
	for _, c := range []struct {
		n    int
		meta dataset.Meta
	}{
		{80_000,
			dataset.Meta{
				Name: "weights", Task: task.Multiclass, Features: 2, Classes: 2, Weighted: true,
			}},
		{90, dataset.Meta{Name: "bytes", Task: task.Multilabel, Features: 4, Classes: 2,
			FeatureType: dataset.Int8}},
	} {
		ds := makeDataset(t, rand.New(rand.NewPCG(5, 2)), c.n, c.meta)
		l, _ := layout(t, ds, 4)
		want := ""
		for _, size := range []int{1, 2, 3, 4, 7} {
			dir := filepath.Join(t.TempDir(), "parts")
			if err := errors.Join(together(dir, ds, l, size)...); err != nil {
				t.Fatal(err)
			}
			got := contents(t, dir)
			if size == 1 {
				want = got
			}
			if got != want {
				t.Errorf("%s: %d processes write other bytes than one", c.meta.Name, size)
			}
			if err := open(t, dir, Options{}).Verify(); err != nil {
				t.Errorf("%s: %d processes: %v", c.meta.Name, size, err)
			}
			if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
				t.Errorf("%s: %d processes leave %v", c.meta.Name, size, left)
			}
		}
	}
}

// Where one of a team fails all fail, and nothing is left.
func TestATeamLeavesNothingOfAFailure(t *testing.T) {
	ds := small(t)
	l, _ := layout(t, ds, 4)
	for _, damage := range []struct {
		at   int // an edge
		want string
	}{{0, "in-neighbour"}, {len(ds.Graph.Indices) - 1, "in-neighbour"}} {
		g := *ds.Graph
		copied := *ds
		g.Indices = append(g.Indices[:0:0], g.Indices...)
		g.Indices[damage.at] = 1 << 30
		copied.Graph = &g
		dir := filepath.Join(t.TempDir(), "parts")
		for rank, err := range together(dir, &copied, l, 3) {
			if err == nil || !strings.Contains(err.Error(), damage.want) {
				t.Errorf("process %d: %v", rank, err)
			}
		}
		if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	// an output that is there already
	dir := write(t, ds, 4)
	for rank, err := range together(dir, ds, l, 2) {
		if err == nil || !strings.Contains(err.Error(), "exists") {
			t.Errorf("process %d: %v", rank, err)
		}
	}
}
