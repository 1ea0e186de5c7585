package sample

import (
	"cmp"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/topology/graph"
)

// Reference samples a minibatch with plain maps and loops. The Sampler of the Spec must give the
// same bits. If the topology has weights, that Sampler must have Options.Weights set. The topology
// t must hold all rows, and the seeds must be distinct vertices of it. The caller frees the result.
func Reference(t *Topology, spec Spec, seeds []graph.VertexID, key Key) *Minibatch {
	return referenceNear(t, spec, Near{}, seeds, key)
}

// referenceNear does what Reference does, with Options.Near.
func referenceNear(t *Topology, spec Spec, near Near, seeds []graph.VertexID, key Key) *Minibatch {
	layers := spec.Hops()
	m := &Minibatch{Blocks: make([]graph.Block, layers),
		Transposes: make([]graph.BlockTranspose, layers), Estimates: spec.Estimates()}
	local := make(map[graph.VertexID]int32)
	var frontier []graph.VertexID
	number := func(v graph.VertexID) int32 {
		if _, seen := local[v]; !seen {
			local[v] = int32(len(frontier))
			frontier = append(frontier, v)
		}
		return local[v]
	}
	for _, v := range seeds {
		number(v)
	}
	for h := range layers {
		destinations, l := frontier, layers-1-h
		if !t.Columns.Plain() {
			m.Blocks[l] = referenceColumns(t, destinations, spec, h, key, number)
			m.Blocks[l].NumSrc = len(frontier)
			continue
		}
		draw := func(v graph.VertexID) ([]int64, func(e int64) float32) {
			if set := likelier(near.Vertices, h, key); set != nil && spec.kind() == Poisson {
				return referencePrefer(t, v, spec, h, key, set)
			}
			return referenceDraw(t, v, referenceRow(t, v, spec, key), spec, h, 0, key)
		}
		if spec.kind() == LADIES {
			row := func(v graph.VertexID) []int64 { return referenceRow(t, v, spec, key) }
			draw = referenceLayer(t, row, destinations, spec.Vertices[h], key.hop(h+1),
				likelier(near.Vertices, h, key), key.Favour)
		}
		indptr, indices, weights := []int64{0}, []int32(nil), []float32(nil)
		for _, v := range destinations {
			drawn, inverse := draw(v)
			for _, e := range drawn {
				indices = append(indices, number(t.Graph.Indices[e]))
				switch {
				case t.Weights != nil:
					weights = append(weights, t.Weights[e]*inverse(e))
				case m.Estimates:
					weights = append(weights, inverse(e))
				}
			}
			indptr = append(indptr, int64(len(indices)))
		}
		m.Blocks[l] = graph.Block{NumSrc: len(frontier), NumDst: len(destinations),
			Indptr: keep(indptr), Indices: keep(indices), Weights: keep(weights)}
	}
	for l := 1; l < layers; l++ {
		m.Blocks[l].Transpose(&m.Transposes[l])
	}
	original := make([]int32, len(frontier))
	for i, v := range frontier {
		original[i] = t.Original[v]
	}
	m.Frontier, m.Original = keep(frontier), keep(original)
	m.Seeds = m.Frontier[:len(seeds)]
	return m
}

// referenceDraw returns the edges that v draws, as positions in Indices, and a function that
// returns 1/q for an edge. The argument `row` has the edges of one relation. If v draws all of
// them, they are in stored order. Otherwise their number is the fanout or a binomial draw, and
// Floyd's algorithm chooses them, in the order drawn.
func referenceDraw(t *Topology, v graph.VertexID, row []int64, spec Spec, h, relation int, key Key,
) (drawn []int64, inverse func(e int64) float32) {
	fanout, degree := int64(spec.fanoutBy(h, relation)), int64(len(row))
	count := min(fanout, degree)
	if fanout == All {
		count = degree
	}
	if spec.Numbered() && count < degree {
		return referenceNumbers(t, row, int(fanout), spec, h, key, func(int64) float64 {
			return float64(fanout) / float64(degree)
		})
	}
	hop, scale := relationWord(key.hop(h+1), relation), float32(1)
	if spec.kind() == Poisson && count < degree {
		s := countStream(hop, t.Original[v])
		count = s.binomial(degree, float64(fanout)/float64(degree))
		scale = float32(float64(degree) / float64(fanout))
	}
	inverse = func(int64) float32 { return scale }
	if count == degree {
		return row, inverse
	}
	return referenceSubset(row, count, vertexStream(hop, t.Original[v])), inverse
}

// referenceSubset chooses edges of a row by Floyd's algorithm. The argument count is their number.
func referenceSubset(row []int64, count int64, s stream) (drawn []int64) {
	degree := int64(len(row))
	taken := make(map[uint64]bool)
	for j := uint64(degree - count); j < uint64(degree); j++ {
		pick := s.below(j + 1)
		if taken[pick] {
			pick = j
		}
		taken[pick] = true
		drawn = append(drawn, row[pick])
	}
	return drawn
}

// referenceColumns draws a hop relation by relation.
func referenceColumns(t *Topology, destinations []graph.VertexID, spec Spec, h int, key Key,
	number func(graph.VertexID) int32) (b graph.Block) {
	c := &t.Columns
	b.NumDst = len(destinations)
	var indices, targets, ends []int32
	var weights []float32
	indptr := []int64{0}
	for r := range c.NumRelations() {
		for d, v := range destinations {
			kind, first, _ := c.Of(v)
			if kind != c.Target(r) {
				continue
			}
			begin, end := c.Indptr[int(first)+c.Place(r)], c.Indptr[int(first)+c.Place(r)+1]
			of := spec
			if !c.Links(r) {
				of.Links = nil
			}
			row := slices.DeleteFunc(referenceRow(t, v, of, key),
				func(e int64) bool { return e < begin || e >= end })
			if len(row) == 0 {
				continue
			}
			drawn, inverse := referenceDraw(t, v, row, spec, h, r, key)
			for _, e := range drawn {
				indices = append(indices, number(t.Graph.Indices[e]))
				if spec.Estimates() {
					weights = append(weights, inverse(e))
				}
			}
			indptr, targets = append(indptr, int64(len(indices))), append(targets, int32(d))
		}
		ends = append(ends, int32(len(targets)))
	}
	b.Indptr, b.Indices, b.Targets, b.Ends = keep(indptr), keep(indices), keep(targets), keep(ends)
	b.Weights = keep(weights)
	return b
}

// referenceRow returns the edges that v may draw: all except those that the minibatch leaves out
// because they are its links.
func referenceRow(t *Topology, v graph.VertexID, spec Spec, key Key) (row []int64) {
	var without map[graph.VertexID]bool
	if spec.Links.Excludes() {
		without = map[graph.VertexID]bool{}
		for _, n := range spec.Links.streams.numbers(key.Epoch, key.Step, key.Stream, nil) {
			l := spec.Links.links[n]
			without[l.Source] = without[l.Source] || l.Target == v
			without[l.Target] = without[l.Target] || l.Source == v
		}
	}
	for e := t.Graph.Indptr[v-t.First]; e < t.Graph.Indptr[v-t.First+1]; e++ {
		if !without[t.Graph.Indices[e]] {
			row = append(row, e)
		}
	}
	return row
}

// referenceLayer draws about n of the in-neighbours of all destinations together. It returns what
// referenceDraw returns.
func referenceLayer(t *Topology, row func(graph.VertexID) []int64, destinations []graph.VertexID,
	n int, hop uint64, near []uint64, favour float64,
) func(v graph.VertexID) ([]int64, func(e int64) float32) {
	// The order of sources is that of a block, because the rounding of sums depends on it.
	var sources []graph.VertexID
	mass := map[graph.VertexID]float64{}
	sources = append(sources, destinations...)
	for _, v := range destinations {
		mass[v] = 0
	}
	for _, v := range destinations {
		edges := row(v)
		for _, e := range edges {
			u, share := t.Graph.Indices[e], 1/float64(len(edges))
			if t.Weights != nil {
				share = 0
				if sum := t.WeightSums[v]; sum > 0 {
					share = float64(t.Weights[e]) / float64(sum)
				}
			}
			if _, seen := mass[u]; !seen {
				sources = append(sources, u)
			}
			mass[u] += float64(share * share)
		}
	}
	q := make([]float64, len(sources))
	for i, u := range sources {
		q[i] = mass[u]
	}
	probabilities(q, n)
	if near != nil {
		for i, u := range sources {
			if isNear(near, u) {
				q[i] = float64(q[i] * favour)
			}
		}
		probabilities(q, n)
	}
	inverse := map[graph.VertexID]float32{}
	for i, u := range sources {
		if s := vertexStream(hop, t.Original[u]); q[i] == 1 || q[i] > 0 && s.unit() < q[i] {
			inverse[u] = float32(1 / q[i])
		}
	}
	return func(v graph.VertexID) (drawn []int64, of func(e int64) float32) {
		for _, e := range row(v) {
			if _, taken := inverse[t.Graph.Indices[e]]; taken {
				drawn = append(drawn, e)
			}
		}
		return drawn, func(e int64) float32 { return inverse[t.Graph.Indices[e]] }
	}
}

// referencePrefer is referenceDraw for kind Poisson with near neighbours. It chooses separately
// among near neighbours and among the others.
func referencePrefer(t *Topology, v graph.VertexID, spec Spec, h int, key Key, set []uint64,
) (drawn []int64, inverse func(e int64) float32) {
	fanout, hop := int64(spec.Fanouts[h]), key.hop(h+1)
	var near, far []int64
	for e := t.Graph.Indptr[v-t.First]; e < t.Graph.Indptr[v-t.First+1]; e++ {
		if isNear(set, t.Graph.Indices[e]) {
			near = append(near, e)
		} else {
			far = append(far, e)
		}
	}
	all := append(slices.Clone(near), far...)
	if fanout == All || int64(len(all)) <= fanout {
		slices.Sort(all)
		return all, func(int64) float32 { return 1 }
	}
	ofNear, ofOthers := favour(int64(len(all)), int64(len(near)), fanout, key.Favour)
	if spec.Numbered() {
		return referenceNumbers(t, referenceRow(t, v, spec, key), int(fanout), spec, h, key,
			func(e int64) float64 {
				if isNear(set, t.Graph.Indices[e]) {
					return ofNear
				}
				return ofOthers
			})
	}
	count := countStream(hop, t.Original[v])
	choose := func(from []int64, q float64, s stream) {
		n := count.binomial(int64(len(from)), q)
		if int(n) == len(from) {
			drawn = append(drawn, from...)
			return
		}
		pos := make([]int64, n)
		new(picks).choose(pos, 0, int64(len(from)), s)
		for _, p := range pos {
			drawn = append(drawn, from[p])
		}
	}
	choose(near, ofNear, vertexStream(hop, t.Original[v]))
	choose(far, ofOthers, farStream(hop, t.Original[v]))
	return drawn, func(e int64) float32 {
		if isNear(set, t.Graph.Indices[e]) {
			return float32(1 / ofNear)
		}
		return float32(1 / ofOthers)
	}
}

// referenceNumbers is referenceDraw for draws by random numbers of vertices. The row has more edges
// than the fanout. Kind Poisson draws each edge with probability q(e), kind Labor the edges with
// the smallest numbers. A source has one number in a hop, whatever the relation.
func referenceNumbers(t *Topology, row []int64, fanout int, spec Spec, h int, key Key,
	q func(e int64) float64) (drawn []int64, inverse func(e int64) float32) {
	numbers := map[int64]uint64{} // random numbers of the sources of the row's edges
	step, lasts := key.Epoch*spec.Numbers.Steps+key.Step, max(1, spec.Numbers.Dependency)
	for _, e := range row {
		id := uint64(uint32(t.Original[t.Graph.Indices[e]]))
		phase := int(random.Mix(fold(phasing, key.Seed)^id) >> 32 * uint64(lasts) >> 32)
		word := random.Mix(spec.word(key, h+1) + uint64((step+phase)/lasts)*random.Golden)
		numbers[e] = random.Mix(word^id) >> 32
		if spec.kind() == Labor || numbers[e] < below(q(e)) {
			drawn = append(drawn, e)
		}
	}
	if spec.kind() == Labor {
		slices.SortStableFunc(drawn, func(a, b int64) int {
			return cmp.Compare(numbers[a], numbers[b])
		})
		drawn = drawn[:fanout]
		slices.Sort(drawn)
		return drawn, func(int64) float32 { return 1 }
	}
	return drawn, func(e int64) float32 { return inverseBelow(below(q(e))) }
}

// keep copies s out of the Go heap, because the arrays of a Minibatch lie outside it.
func keep[T mem.Number](s []T) []T {
	out := mem.Make[T](len(s))
	copy(out, s)
	return out
}
