package shard

import (
	"slices"
	"strings"

	"halognn/src/topology/graph"
)

// Sizes returns shards that have the sizes in m but no data: no topology, labels, identity and
// original ids. The splits are the first vertices of each part.
func Sizes(m *Meta, dir string) *Shards {
	s := &Shards{Meta: *m, Dir: dir, last: m.Vertices}
	for k := range m.Splits {
		next := graph.VertexID(m.Offsets[k])
		for i := range s.split {
			list := &s.split[i]
			list.offsets = append(list.offsets, len(list.ids))
			for range *m.Splits[k].listSize(i) {
				list.ids, next = append(list.ids, next), next+1
			}
		}
	}
	for i := range s.split {
		s.split[i].offsets = append(s.split[i].offsets, len(s.split[i].ids))
	}
	for name, info := range m.layout() {
		if strings.HasPrefix(name, "part-") || strings.HasPrefix(name, "split-") {
			continue
		}
		bytes := int64(info.DType[2] - '0') // types are texts such as "<i4"
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

// HasTopology reports whether the shards have data, and not only sizes.
func (s *Shards) HasTopology() bool { return s.topology.Graph.Indptr != nil }
