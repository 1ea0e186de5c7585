package access

import (
	"cmp"
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// OwnParts returns, for each vertex, the probability that a minibatch of the vertex's own part
// reads it. By this score the vertices of a part are ordered, hottest first.
//
//	part   [N]  part of each vertex
//	train  [P]  training vertices of each part
//	batch       number of seeds in a part's minibatch. All parts have the same number of steps
//	            in an epoch: the number that the part with the most seeds needs
//	result [N]
//
// Every part is analysed separately, with Inclusion, which counts the seeds' own rows. If a part
// has no training vertices, its vertices get 0. It takes P times the time of Inclusion, and 12 N +
// N/8 bytes, of which the result takes 4 N.
func (m *Graph) OwnParts(part []int32, train [][]graph.VertexID, batch int,
	fanouts []int) ([]float32, error) {
	n := m.in.NumVertices()
	if len(part) != n {
		return nil, fmt.Errorf("access: own parts: part numbers are given for %d vertices, but "+
			"the graph has %d vertices",
			len(part), n)
	}
	if batch < 1 {
		return nil, fmt.Errorf("access: own parts: batch is %d; it must be at least 1", batch)
	}
	steps := 1
	for _, seeds := range train {
		steps = max(steps, (len(seeds)+batch-1)/batch)
	}
	heat := mem.Make[float32](n)
	for k, seeds := range train {
		if len(seeds) == 0 {
			continue
		}
		p, err := m.Inclusion(seeds, float64(len(seeds))/float64(steps), fanouts)
		if err != nil {
			mem.Free(heat)
			return nil, fmt.Errorf("part %d: %w", k, err)
		}
		for v, of := range part {
			if int(of) == k {
				heat[v] = p[v]
			}
		}
		mem.Free(p)
	}
	return heat, nil
}

// HotRows returns those rows of a part that a minibatch of the reader is likeliest to read. It
// returns at most count row numbers within the part, hottest first. Ties go to the higher
// out-degree, then to the lower row. A part is stored with its hottest rows first, by the settings
// it was ordered with. A run with other settings needs HotRows to find its own hottest rows. The
// list lies outside the Go heap.
//
// It takes the time of Reads and of sorting the part, and 8 bytes of memory for each vertex of the
// graph and 4 for each row of the part.
func (m *Graph) HotRows(r *Workload, part Range, count int) ([]int32, error) {
	if err := checkLocal(m.in.NumVertices(), []Range{part}); err != nil {
		return nil, fmt.Errorf("access: hot rows: %w", err)
	}
	p, err := m.Reads(r)
	if err != nil {
		return nil, err
	}
	defer mem.Free(p)
	own := p[part.First:part.End]
	rows := mem.Make[int32](len(own))
	for i := range rows {
		rows[i] = int32(i)
	}
	slices.SortFunc(rows, func(a, b int32) int {
		return cmp.Or(cmp.Compare(own[b], own[a]),
			cmp.Compare(m.degree(part.First+graph.VertexID(b)),
				m.degree(part.First+graph.VertexID(a))), cmp.Compare(a, b))
	})
	return rows[:min(max(count, 0), len(rows))], nil
}
