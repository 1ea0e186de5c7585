package sample

import (
	"fmt"

	"halognn/src/topology/graph"
)

// check returns an error unless a minibatch of a whole topology is what the package comment says:
// blocks that fit each other, a frontier of distinct vertices, transposes that are inverse, and as
// many edges as the fanouts draw. See package invariant.
func (s *Fused) check(spec *Spec, mb *Minibatch) error {
	seen := make(map[graph.VertexID]bool, len(mb.Frontier))
	for i, v := range mb.Frontier {
		if uint(v) >= uint(len(s.topology.Original)) || seen[v] {
			return fmt.Errorf("sample: frontier vertex %d is %d: outside the graph, or twice", i, v)
		}
		if mb.Original[i] != s.topology.Original[v] {
			return fmt.Errorf("sample: vertex %d has original id %d, but needs %d",
				v, mb.Original[i],
				s.topology.Original[v])
		}
		seen[v] = true
	}
	for l := range mb.Blocks {
		b := &mb.Blocks[l]
		if err := b.Validate(); err != nil {
			return fmt.Errorf("sample: layer %d: %w", l, err)
		}
		sources, destinations := len(mb.Frontier), len(mb.Seeds)
		if l > 0 {
			sources = mb.Blocks[l-1].NumDst
		}
		if l+1 < len(mb.Blocks) {
			destinations = b.NumDst // compared with the next layer's sources
		}
		if b.NumSrc != sources || b.NumDst != destinations {
			return fmt.Errorf("sample: layer %d has %d sources and %d destinations, but needs %d "+
				"and %d",
				l, b.NumSrc, b.NumDst, sources, destinations)
		}
		if l > 0 && !s.options.ForwardOnly {
			if err := inverse(b, &mb.Transposes[l]); err != nil {
				return fmt.Errorf("sample: layer %d: %w", l, err)
			}
		}
		if spec.kind() == Neighbour && spec.Links == nil && s.topology.Columns.Plain() {
			if err := s.checkDrawn(b, spec.Fanouts[len(mb.Blocks)-1-l], mb.Frontier); err != nil {
				return fmt.Errorf("sample: layer %d: %w", l, err)
			}
		}
	}
	return nil
}

// checkDrawn returns an error unless every destination has as many edges as its fanout draws.
func (s *Fused) checkDrawn(b *graph.Block, fanout int, frontier []graph.VertexID) error {
	for d, v := range frontier[:b.NumDst] {
		want := s.topology.Degree(v)
		if fanout != All {
			want = min(want, int64(fanout))
		}
		if got := b.Indptr[d+1] - b.Indptr[d]; got != want {
			return fmt.Errorf("vertex %d has %d drawn edges, but needs %d", v, got, want)
		}
	}
	return nil
}

// inverse returns an error unless the transpose has every edge of the block once, at its source.
func inverse(b *graph.Block, t *graph.BlockTranspose) error {
	if len(t.Indptr) != b.NumSrc+1 || len(t.Edges) != b.NumEdges() {
		return fmt.Errorf("the transpose has %d rows and %d edges, but the block has %d sources "+
			"and %d edges",
			len(t.Indptr)-1, len(t.Edges), b.NumSrc, b.NumEdges())
	}
	seen := make([]bool, b.NumEdges())
	for source := range b.NumSrc {
		for _, e := range t.Edges[t.Indptr[source]:t.Indptr[source+1]] {
			if seen[e] || int(b.Indices[e]) != source {
				return fmt.Errorf("edge %d, of source %d, is listed for source %d", e, b.Indices[e],
					source)
			}
			seen[e] = true
		}
	}
	return nil
}
