package plan

import (
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/shard/shardtest"
	"halognn/src/rows/policy"
	"halognn/src/topology/sample"
)

// Nodes that are not alike are planned: ranks of a small one ask several of a larger one, and of
// some ranks that ask them they ask nothing. Parts are of unequal sizes.
func TestUnequalNodesArePlanned(t *testing.T) {
	graph := generatedOptions
	graph.Kind = "rmat" // hubs make parts unequal
	s := shardtest.Open(t, graph, shardtest.Options{Parts: 8})
	least, most := s.Vertices, int64(0)
	for k := range s.Parts {
		n := s.Offsets[k+1] - s.Offsets[k]
		least, most = min(least, n), max(most, n)
	}
	if least == most {
		t.Error("all parts have the same size")
	}
	for name, change := range map[string]func(j *Job){
		"no cache":   func(*Job) {},
		"static":     func(j *Job) { j.Cache.Policy = policy.VIP },
		"look-ahead": func(j *Job) { j.Cache.Policy = policy.Lookahead },
		"sums":       func(j *Job) { j.Sums = true },
		"all rows": func(j *Job) {
			j.Sample = sample.Neighbours(sample.All, sample.All,
				sample.All)
		},
	} {
		j := planJob()
		j.AsNodes, j.RanksPerNode = true, 3
		change(&j)
		before := mem.Allocated()
		p, err := New(s, j, given) // all ranks are analysed
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.Analysed != 8 || p.Traffic.Shared <= 0 || p.Traffic.Rows <= 0 {
			t.Errorf("%s: %d ranks, %+v", name, p.Analysed, p.Traffic)
		}
		if left := mem.Allocated() - before; left != 0 {
			t.Errorf("%s: %d bytes were not given back", name, left)
		}
	}
}
