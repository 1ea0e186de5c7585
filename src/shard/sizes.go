package shard

import (
	"slices"
	"strings"

	"halognn/src/graph"
)

// Sizes returns shards that have the sizes that m tells and no data: without topology, labels,
// identity and original ids, and with splits that are the first vertices of each part.
func Sizes(m *Meta, dir string) *Shards {
	s := &Shards{Meta: *m, Dir: dir, last: m.Vertices}
	for _, list := range []*splitView{&s.train, &s.valid, &s.test} {
		list.offsets = []int{0}
	}
	for k, size := range m.Splits {
		next := graph.VertexID(m.Offsets[k])
		for _, x := range []struct {
			list *splitView
			n    int
		}{{&s.train, size.Train}, {&s.valid, size.Valid}, {&s.test, size.Test}} {
			for range x.n {
				x.list.ids, next = append(x.list.ids, next), next+1
			}
			x.list.offsets = append(x.list.offsets, len(x.list.ids))
		}
	}
	for name, info := range m.layout() {
		if strings.HasPrefix(name, "part-") {
			continue
		}
		bytes := int64(info.DType[2] - '0') // as "<i4"
		for _, n := range info.Shape {
			bytes *= int64(n)
		}
		s.mapped += bytes
		if slices.Contains(perVertex, name) {
			s.mappedRows += bytes
		}
	}
	return s
}

// HasTopology reports whether the shards have data, and not sizes alone.
func (s *Shards) HasTopology() bool { return s.topology.Graph.Indptr != nil }
