package ranking

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

func newJob(t *testing.T, s *shard.Shards, change func(*job.Spec)) *job.Job {
	t.Helper()
	spec := job.Spec{
		Model: nn.Config{Kind: "sage", Layers: 2, Hidden: 4}, Sample: sample.Neighbours(4, 3),
		Batch: 32, Seed: 5, Epochs: 2,
		RanksPerNode: 1, Cache: policy.Settings{Alpha: 0.5},
	}
	if change != nil {
		change(&spec)
	}
	j, err := job.New(s, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// A ranking holds, at every capacity that it reaches, what its policy holds with the graph at hand,
// and expects as many rows beside it.
func TestRankingIsThePolicy(t *testing.T) {
	s := shardtest.Open(t,
		dataset.GenerateOptions{Kind: dataset.SBM, Vertices: 900, Degree: 8, Features: 2,
			Classes: 3, Seed: 3}, shardtest.Options{Parts: 4})
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	const alpha = 0.8
	for _, c := range []struct {
		name   string
		change func(*job.Spec)
	}{
		{"4 ranks", nil},
		{"2 ranks", func(s *job.Spec) { s.Ranks = 2 }},
		{"2 nodes", func(s *job.Spec) { s.RanksPerNode = 2 }},
		{"2 ranks, streams of parts", func(s *job.Spec) { s.Ranks, s.StreamPerPart = 2, true }},
		{"global seeds", func(s *job.Spec) { s.GlobalSeeds = true }},
	} {
		j := newJob(t, s, c.change)
		for _, name := range policy.Names(func(p *policy.Policy) bool { return p.Rank != nil }) {
			p := policy.Find(name)
			if _, err := Write(j, p, m, alpha, 1); err != nil {
				t.Fatal(err)
			}
			r, err := Open(j, p)
			if err != nil {
				t.Fatal(err)
			}
			most := access.Capacity(alpha, s.Vertices, j.Ranks)
			for rank := range j.Ranks {
				reader := j.Workload(rank, 1)
				reads, err := m.Reads(reader)
				if err != nil {
					t.Fatal(err)
				}
				for _, capacity := range []int{0, 1, 7, most / 3, most - 1, most} {
					want, err := p.Hold(m, reader, capacity)
					if err != nil {
						t.Fatal(err)
					}
					left, err := access.Expected(reads, reader.Local, want)
					if err != nil {
						t.Fatal(err)
					}
					got, expected, err := r.Hold(rank, capacity)
					if err != nil || !slices.Equal(got, want) {
						t.Errorf("%s, %s, rank %d, capacity %d: %d vertices, want %d (%v)", c.name,
							name, rank, capacity, len(got), len(want), err)
					}
					if math.Abs(expected-left) > 1e-6*(1+left) {
						t.Errorf("%s, %s, rank %d, capacity %d: expects %g rows, want %g", c.name,
							name, rank, capacity, expected, left)
					}
					mem.Free(got)
					mem.Free(want)
				}
				mem.Free(reads)
			}
		}
	}
}

// Only the ranking of the very job is found, and only as far as it goes; a damaged one is named.
func TestRankingsOfOtherJobs(t *testing.T) {
	s := shardtest.Open(t,
		dataset.GenerateOptions{Kind: dataset.SBM, Vertices: 600, Degree: 8, Features: 2,
			Classes: 3, Seed: 3}, shardtest.Options{Parts: 2})
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	vip, oracle := policy.Find(policy.VIP), policy.Find(policy.Oracle)
	j := newJob(t, s, nil)
	path, err := Write(j, vip, m, 0.1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(j, oracle, m, 0.1, 1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name        string
		change      func(*job.Spec)
		vip, oracle bool // is found
	}{
		{"the same", nil, true, true},
		{"what no ranking depends on",
			func(s *job.Spec) { s.Cache.Alpha, s.Depth, s.Model.Hidden = 0.05, 9, 8 }, true, true},
		{"another seed", func(s *job.Spec) { s.Seed = 6 }, true, false},
		{"other epochs", func(s *job.Spec) { s.Epochs = 3 }, true, false},
		{"other fanouts", func(s *job.Spec) { s.Sample = sample.Neighbours(4, 4) }, false, false},
		{"another batch", func(s *job.Spec) { s.Batch = 33 }, false, false},
		{"a global batch", func(s *job.Spec) { s.GlobalBatch = true }, false, false},
		{"global seeds", func(s *job.Spec) { s.GlobalSeeds = true }, false, false},
		{"one rank", func(s *job.Spec) { s.Ranks = 1 }, false, false},
		{"one node", func(s *job.Spec) { s.RanksPerNode = 2 }, false, false},
		{"another halo", func(s *job.Spec) { s.Cache.HaloHops = 1 }, false, false},
	} {
		other := newJob(t, s, c.change)
		_, errVIP := Open(other, vip)
		_, errOracle := Open(other, oracle)
		if (errVIP == nil) != c.vip || (errOracle == nil) != c.oracle {
			t.Errorf("%s: vip %v, oracle %v", c.name, errVIP, errOracle)
		}
		for _, err := range []error{errVIP, errOracle} {
			if err != nil && !errors.Is(err, ErrMissing) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	r, err := Open(j, vip)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Hold(0, 31); !errors.Is(err, ErrMissing) ||
		!strings.Contains(err.Error(),
			"lists only 30 vertices for rank 0, whose cache has room for 31") {
		t.Errorf("more than is ranked: %v", err)
	}
	if err := os.Truncate(filepath.Join(path, "rank-0001.npy"), 150); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Hold(1, 30); err == nil || !strings.Contains(err.Error(), "rank-0001.npy") ||
		!strings.Contains(err.Error(), "halognn analyze") {
		t.Errorf("a truncated file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(path, metaFile), []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(j, vip); err == nil || errors.Is(err, ErrMissing) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("an empty meta.json: %v", err)
	}
}

// A ranking is of the seeds of one split: a run of another one finds none.
func TestRankingIsOfASplit(t *testing.T) {
	const n = 40
	g := graph.CSC{Indptr: make([]int64, n+1)}
	splits := make([]graph.Split, 2)
	for v := range graph.VertexID(n) {
		g.Indices = append(g.Indices, (v+1)%n)
		g.Indptr[v+1] = int64(v) + 1
		for k := range splits {
			list := splits[k].Lists()[(int(v)+k)%2]
			*list = append(*list, v)
		}
	}
	dir := filepath.Join(t.TempDir(), "data")
	w, err := dataset.Create(dir, dataset.Meta{Name: "d", Task: task.Multiclass, Classes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Topology(&g), w.Labels(mem.Bytes(make([]int32, n))),
		w.Splits(splits[0], splits[1]), w.Close()); err != nil {
		t.Fatal(err)
	}
	s := shardtest.Cut(t, dir, shardtest.Options{Parts: 2})
	other, err := shard.Open(s.Dir, shard.Options{Split: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	vip := policy.Find(policy.VIP)
	if _, err := Write(newJob(t, s, nil), vip, m, 0.5, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(newJob(t, other, nil), vip); !errors.Is(err, ErrMissing) {
		t.Errorf("split 1 with the ranking of split 0: %v", err)
	}
}
