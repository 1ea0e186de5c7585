package infer

import (
	"cmp"
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
)

// productLinks and productRows bound the number of scores that are made at a time, so that they
// stay in the processor's cache.
const (
	productLinks = 256
	productRows  = 2048
)

// scoreBlock scores the rows of a block as possible targets of each link's source. It passes the
// scores to the function `receive`. It leaves out rows whose vertex has a known link or edge with
// the source. Scores that are inner products come from a matrix product, and its last bits depend
// on its size. Such a score may differ from the score that the rater computes alone. The function
// `receive` also gets the largest difference (`slack`), and a function that returns the score of
// the rater for row k (`exact`).
func (r *ranking) scoreBlock(first graph.VertexID, rows compute.Matrix, receive seen) {
	_, kind := r.of.Shards.Schema.LinkEnds()
	r.of.Topology.Columns.OfType(kind, first, first+graph.VertexID(rows.Rows),
		func(from, end graph.VertexID) {
			for ; from < end; from += productRows {
				next := min(from+productRows, end)
				r.window(from, rows.RowsAt(int(from-first), int(next-first)), receive)
			}
		})
}

// seen is a function that gets the scores of consecutive rows as targets of link i. The first score
// is that of the row of vertex v.
type seen func(i int, v graph.VertexID, scores []float32, slack float32, exact func(k int) float32)

func (r *ranking) window(first graph.VertexID, rows compute.Matrix, see seen) {
	product, longest := r.products(), 0.0
	// to first order, the matrix product is off by D 2^-24 times the lengths of both vectors, for
	// vectors of D elements; rounding the elements to the device's precision adds to that
	off := float64(r.cols+2)*0x1p-22 +
		math.Ldexp(1, r.of.Device.Capabilities().Precision.Dropped()-22)
	for k := 0; product && k < rows.Rows; k++ {
		longest = max(longest, r.rater.Square(rows.Row(k)))
	}
	for lo, hi := 0, 0; lo < len(r.links); lo = hi {
		hi = min(lo+productLinks, len(r.links))
		r.scores = mem.Grow(r.scores, (hi-lo)*rows.Rows)
		scores := compute.Matrix{Rows: hi - lo, Cols: rows.Rows, Data: r.scores}
		if product {
			r.of.Device.MatMul(scores, r.sources.RowsAt(lo, hi), rows, false)
		}
		r.parallel(lo, hi, func(i int) {
			source, x, slack := r.sources.Row(i), scores.Row(i-lo), float32(0)
			if product {
				slack = float32(off * math.Sqrt(longest*r.rater.Square(source)))
			}
			known := r.known[r.links[i].Source]
			at, _ := slices.BinarySearch(known, first)
			for k := 0; k < len(x); k++ {
				end := len(x)
				if at < len(known) {
					end = min(end, int(known[at]-first))
					at++
				}
				for j := k; j < end && !product; j++ {
					x[j] = r.rater.Rate(source, rows.Row(j))
				}
				see(i, first+graph.VertexID(k), x[k:end], slack, func(j int) float32 {
					if !product {
						return x[k+j]
					}
					return r.rater.Rate(source, rows.Row(k+j))
				})
				k = end
			}
		})
	}
}

// products reports whether scores come from matrix products instead of one call of the rater a row.
func (r *ranking) products() bool {
	return r.rater.Products() && r.of.Device.Capabilities().Accelerator == nil
}

// best is one of the best partners of a vertex.
type best struct {
	score float32
	id    graph.VertexID
}

// compare orders partners best first, and equal scores by original id. A NaN comes first, so that
// it is kept and the caller can refuse it.
func (r *ranking) compare(a, b best) int {
	return cmp.Or(cmp.Compare(-a.score, -b.score),
		cmp.Compare(r.of.Topology.Original[a.id], r.of.Topology.Original[b.id]))
}

// top finds the k best partners of each vertex in list, all of which the rank owns. It looks among
// all vertices that have no link or edge with the vertex. The search is exact, block by block.
func top(s Passes, own []float32, list []graph.VertexID, k int) ([][]best, error) {
	r := ranking{of: s, rater: s.Model.Rater(s.Job.Links.Pairs), cols: s.Job.Model.Out}
	r.sources = compute.Matrix{Rows: len(list), Cols: r.cols,
		Data: mem.Make[float32](len(list) * r.cols)}
	defer func() { mem.Free(r.sources.Data); mem.Free(r.scores) }()
	for i, v := range list {
		r.links = append(r.links, graph.Link{Source: v, Target: v})
		copy(r.sources.Row(i), r.target(own, i))
		r.rater.Prepare(r.sources.Row(i))
	}
	if err := r.know(); err != nil {
		return nil, err
	}
	kept := make([][]best, len(list))
	err := r.of.eachBlock(own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		r.scoreBlock(first, rows, func(i int, v graph.VertexID, x []float32, slack float32,
			exact func(int) float32) {
			list := kept[i]
			for j, x := range x {
				if len(list) == k && x < list[k-1].score-slack {
					continue
				}
				b := best{exact(j), v + graph.VertexID(j)}
				at, _ := slices.BinarySearchFunc(list, b, r.compare)
				if at < k {
					list = slices.Insert(list[:min(len(list), k-1)], at, b)
				}
			}
			kept[i] = list
		})
	})
	return kept, err
}
