package infer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
)

// If the graph has only one part, its rank holds all rows that a layer reads. A device that reads
// host memory then reduces neighbours' rows where they lie, and reads the edges as the graph stores
// them. No rows are sampled, renumbered, planned or fetched.
//
//	edges of a span of chunks ─┐
//	rows [N, in], anywhere ────┴─ reduce ──> aggregates of the span
//	own rows, in order ──────────────────────────┴─ the layer, over chunks ─────> its rows
//
// A pipeline that prepares chunks adds rows in the same order and multiplies the same tiles, so the
// bits are the same. Edges from several parts would first have to be sorted by part, as
// parallel.LayerEdges.Group does.

// Tests set alwaysPrepare to compare passes in place with chunks that a pipeline prepares.
var alwaysPrepare bool

// Counters for tests: passesInPlace counts passes, and chunksTogether counts chunks that are
// multiplied in one product with the chunk before.
var passesInPlace, chunksTogether atomic.Int64

// readsInPlace reports whether a pass over these rows may read them in place.
func (s Passes) readsInPlace(in layerInput) bool {
	return !alwaysPrepare && !in.stored && !in.Type.IsSparse() &&
		compute.CapabilitiesOf(s.Device).Accelerator == nil && s.Job.ReadsInPlace() &&
		s.Topology.Columns.Plain()
}

// inPlace is a pass that reads rows in place.
type inPlace struct {
	Passes
	pass
	rows compute.Rows // all rows in order: row v belongs to vertex v
	// the same rows, if they are in memory in the type that layers read; otherwise empty
	hidden compute.Matrix
	stored compute.Elements

	// memory for the aggregates of a span, and for its own rows
	sums, own []float32
	refs      []compute.RowRef // references to the own rows
	indptr    []int64          // edges of a span
	sources   []int32
}

// inferInPlace runs a pass over the chunks and calls the function `put` with the rows that the pass
// computes.
func (s Passes) inferInPlace(ctx context.Context, in layerInput, chunks chunks, of pass,
	put putRows) error {
	passesInPlace.Add(1)
	p := inPlace{Passes: s, pass: of, rows: in.Rows, stored: of.stored(s.Device)}
	defer p.free()
	if in.inMemory && in.Type == p.stored.DType() {
		p.hidden = matrixOf(p.stored, in.Tables[0], s.ownRows(), in.Cols)
	} else {
		p.rows.InOrder = true
	}
	for i, end := 0, 0; i < chunks.len(); i = end {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.Watch.Alive()
		end = p.spanFrom(i, chunks)
		sums, err := p.reduce(chunks.bounds[i], chunks.bounds[end])
		if err != nil {
			return err
		}
		first, _ := chunks.chunkRange(i)
		for next := i; i < end; i = next {
			next = p.groupEnd(i, end, chunks)
			lo, _ := chunks.chunkRange(i)
			_, hi := chunks.chunkRange(next - 1)
			y, err := p.computeRows(lo, hi, sums.RowsAt(lo-first, hi-first))
			if err == nil {
				err = put(lo, y)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// spanFrom returns the end of the span that begins with chunk i. A span is a number of chunks whose
// neighbours are reduced at once. It is bounded in edges, and takes several chunks to keep all
// threads busy, because chunks with hubs have few rows.
func (p *inPlace) spanFrom(i int, chunks chunks) (end int) {
	indptr, first := p.Topology.Graph.Indptr, chunks.bounds[i]
	rows, edges := job.SpanOf(p.rows.Cols, chunkBytes)
	for end = i + 1; end < chunks.len(); end++ {
		last := chunks.bounds[end+1]
		if int(last-first) > rows || indptr[last]-indptr[first] > int64(edges) {
			break
		}
	}
	return end
}

// groupEnd returns the end of the group of chunks that begins with chunk i and is multiplied at
// once. The group ends at chunk end or before. All its chunks except the last consist of whole
// tiles, so the bits are those of single products. Threads then wait for each other once a group
// and not once a chunk.
func (p *inPlace) groupEnd(i, end int, chunks chunks) (next int) {
	tile := compute.CapabilitiesOf(p.Device).ProductTile
	for next = i + 1; next < end && tile > 0; next++ {
		begin, hi := chunks.chunkRange(next - 1)
		if (hi-begin)%tile != 0 { // a span of several chunks has at most compute.SameTiles vertices
			break
		}
	}
	if !p.pass.sums {
		chunksTogether.Add(int64(next - i - 1))
	}
	return next
}

func (p *inPlace) free() {
	mem.Free(p.refs)
	mem.Free(p.sums)
	mem.Free(p.own)
	mem.Free(p.indptr)
	mem.Free(p.sources)
}

// reduceRows is the number of vertices whose neighbours a thread reduces at a time.
const reduceRows = 64

// reduce returns the aggregates of the in-neighbours of vertices first to end-1. If the rows are in
// a file, the kernels of the host read them, because these return an error if the file shrinks.
func (p *inPlace) reduce(first, end graph.VertexID) (compute.Matrix, error) {
	edges, err := p.edges(first, end)
	if err != nil {
		return compute.Matrix{}, err
	}
	n := int(end - first)
	p.sums = mem.Grow(p.sums, p.stored.Floats(n*p.rows.Cols))
	sums, how := p.stored.MatrixIn(p.sums, n, p.rows.Cols), p.Model.Config.Fixed().Needs().Aggregate
	switch {
	case p.hidden.Cols == 0:
		inTiles(p.Device, n, func(lo, hi int) {
			p.Host.SegmentRows(sums.RowsAt(lo, hi), how, compute.Segments{
				Indptr: edges.Indptr[lo : hi+1], Indices: edges.Indices}, nil, p.rows)
		})
	case how == compute.ReduceMean:
		p.Device.SegmentMean(sums, edges, p.hidden)
	case how == compute.ReduceSum:
		p.Device.SegmentSum(sums, edges, nil, p.hidden, false)
	default:
		p.Device.SegmentMax(sums, compute.Matrix{}, edges, p.hidden)
	}
	return sums, nil
}

// inTiles calls do for all of n rows, some on each thread of the device.
func inTiles(dev compute.Device, n int, do func(lo, hi int)) {
	compute.InTiles(dev, (n+reduceRows-1)/reduceRows, func(tile int) {
		do(tile*reduceRows, min(n, (tile+1)*reduceRows))
	})
}

// edges copies the edges into vertices first to end-1. Their sources are numbered as rows of the
// whole graph. It checks the edges, because the file that they are mapped from may be damaged, or
// may shrink meanwhile.
func (p *inPlace) edges(first, end graph.VertexID) (compute.Segments, error) {
	g, n := &p.Topology.Graph, int(end-first)
	p.indptr = mem.Grow(p.indptr, n+1)
	rows := p.indptr
	copy(rows, g.Indptr[first:int(end)+1])
	begin := rows[0]
	for i, last := 0, int64(0); i < len(rows); i++ {
		at := rows[i]
		if at < last || at > int64(len(g.Indices)) {
			return compute.Segments{}, p.damage(first, end)
		}
		rows[i], last = at-begin, at
	}
	p.sources = mem.Grow(p.sources, int(rows[n]))
	var met atomic.Pointer[error]
	inTiles(p.Device, n, func(lo, hi int) {
		err := mem.Guard(func() error {
			from, to := g.Indices[begin+rows[lo]:begin+rows[hi]], p.sources[rows[lo]:rows[hi]]
			for e, u := range from {
				if uint32(u) >= uint32(len(p.Topology.Original)) {
					return p.damage(first+graph.VertexID(lo), first+graph.VertexID(hi))
				}
				to[e] = int32(u)
			}
			return nil
		})
		if err != nil {
			met.CompareAndSwap(nil, &err)
		}
	})
	if err := met.Load(); err != nil {
		return compute.Segments{}, *err
	}
	return compute.Segments{Indptr: rows, Indices: p.sources}, nil
}

// damage returns the error of the first vertex from first to end-1 whose edges break a rule.
func (p *inPlace) damage(first, end graph.VertexID) error {
	for v := first; v < end; v++ {
		if err := p.Topology.Graph.CheckRow(v, len(p.Topology.Original)); err != nil {
			return fmt.Errorf("in-neighbours of vertex %d: %w", v, err)
		}
	}
	return errors.New("edges changed while they were read")
}

// computeRows returns what the pass computes for the own rows [lo,hi). The argument `sums` has the
// aggregates of their neighbours.
func (p *inPlace) computeRows(lo, hi int, sums compute.Matrix) (compute.Matrix, error) {
	if p.pass.sums {
		return sums, nil
	}
	in := nn.Input{Hop: nn.Hop{Sources: hi - lo, Destinations: hi - lo}, Aggregate: sums}
	if p.Model.Config.Fixed().Needs().Own {
		in.Own = p.ownRowsAt(lo, hi)
	}
	return p.Model.ForwardLayer(p.layer, &in)
}

// ownRowsAt returns the rows [lo,hi) as layers read them.
func (p *inPlace) ownRowsAt(lo, hi int) compute.Matrix {
	if p.hidden.Cols > 0 {
		return p.hidden.RowsAt(lo, hi)
	}
	p.own = mem.Grow(p.own, p.stored.Floats((hi-lo)*p.rows.Cols))
	own := p.stored.MatrixIn(p.own, hi-lo, p.rows.Cols)
	p.refs = mem.Grow(p.refs, hi-lo)
	inTiles(p.Device, hi-lo, func(from, end int) {
		rows := p.rows
		rows.InOrder, rows.Of = false, p.refs[from:end]
		for i := range rows.Of {
			rows.Of[i] = compute.MakeRowRef(0, lo+from+i)
		}
		p.Host.GatherRows(own.RowsAt(from, end), rows)
	})
	return own
}
