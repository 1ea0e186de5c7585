package simulate

import (
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// generated is a small graph in six parts.
func generated(t *testing.T) *shard.Shards {
	t.Helper()
	return generatedOf(t, 600)
}

func generatedOf(t *testing.T, vertices int) *shard.Shards {
	t.Helper()
	return ordered(t, vertices, nil)
}

// ordered is generated with the vertices of a part in order of a score.
func ordered(t *testing.T, vertices int,
	score func(testing.TB, *dataset.Dataset, []int32) []float32) *shard.Shards {
	t.Helper()
	graph := dataset.GenerateOptions{Vertices: vertices, Degree: 6, Features: 6, Classes: 4,
		Seed: 1}
	return shardtest.Open(t, graph, shardtest.Options{Parts: 6, Order: score})
}

func options() Options {
	return Options{
		Spec: job.Spec{
			Sample: sample.Neighbours(3, 2), Batch: 16, Seed: 4, Epochs: 2,
			Cache: policy.Settings{Gamma: 0.9, Delta: 3, Evict: true, Initial: policy.Degree},
		},
		Policies: Policies(), Alphas: []float64{0, 0.1, 0.5, 1, 5}, Workers: 2,
	}
}

func simulated(t *testing.T, s *shard.Shards, o Options) *Result {
	t.Helper()
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	r, err := sim.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each part ordered for a run begins with the vertices that the run's minibatches of that part read
// most.
func TestPartsOrderedForARun(t *testing.T) {
	o := options()
	s := ordered(t, 600, func(t testing.TB, d *dataset.Dataset, part []int32) []float32 {
		m, err := access.New(d.Graph, access.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		train := make([][]graph.VertexID, 6)
		for _, v := range d.Split.Train {
			train[part[v]] = append(train[part[v]], v)
		}
		heat, err := m.OwnParts(part, train, o.Batch, o.Sample.Fanouts)
		if err != nil {
			t.Fatal(err)
		}
		return heat
	})
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for k := range s.Parts {
		r := sim.reader(k, 1)
		p, err := m.Reads(r)
		if err != nil {
			t.Fatal(err)
		}
		for v := s.Offsets[k] + 1; v < s.Offsets[k+1]; v++ {
			if p[v] > p[v-1]+1e-6 {
				t.Errorf("part %d: row %d is read with %g, the one before with %g", k,
					v-s.Offsets[k], p[v], p[v-1])
			}
		}
		mem.Free(p)
	}
}

// A planned window is as good as knowing all minibatches, also in a run of many epochs; without
// evictions, a buffer is the static cache that it is filled by.
func TestPlannedWindowIsTheOptimum(t *testing.T) {
	s := generated(t)
	o := options()
	o.Alphas, o.Epochs, o.Cache.Evict = []float64{0.05, 0.1, 0.2, 0.5, 1}, 6, false
	o.Ranks, o.Batch = 3, 20
	r := simulated(t, s, o)
	at := func(name string) []int64 { return r.Rows[slices.Index(o.Policies, name)] }
	for i, alpha := range o.Alphas {
		got, best := at(policy.Lookahead)[i], at(policy.Optimum)[i]
		t.Logf("alpha %g: a window of %d of %d steps transfers %d rows, the optimum %d, the "+
			"static oracle %d", alpha, r.Windows[slices.Index(o.Policies, policy.Lookahead)][i],
			r.Steps, got, best, at(policy.Oracle)[i])
		if float64(got) > 1.01*float64(best) {
			t.Errorf("alpha %g: a window of %d steps transfers %d rows, the optimum %d", alpha,
				r.Windows[slices.Index(o.Policies, policy.Lookahead)][i], got, best)
		}
		if at(policy.Prefetch)[i] != at(policy.Degree)[i] {
			t.Errorf("alpha %g: a buffer that evicts nothing transfers %d rows, a static cache %d",
				alpha, at(policy.Prefetch)[i], at(policy.Degree)[i])
		}
	}
}
