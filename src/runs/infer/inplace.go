package infer

import (
	"context"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/topology/graph"
)

// The rank of the only part has all rows of a layer before it. On a device that reads host memory it
// reduces them where they lie, by the edges as the graph stores them: nothing is sampled, numbered,
// planned or fetched.
//
//	edges of a span of chunks ─┐
//	rows [N, in], anywhere ────┴─ reduce ──> aggregates of the span
//	own rows, in order ──────────────────────────┴─ the layer, chunk by chunk ──> its rows
//
// Rows are added in the same order, and products have the same sizes, as for chunks that a pipeline
// prepares, so the bits are the same. Edges from several parts would first have to be sorted by
// part (parallel.LayerEdges.Group).

// spanRows is the least number of vertices whose neighbours are reduced in one call, so that all
// threads have tiles, and long ones do not delay the rest. Chunks of hubs have few vertices.
const spanRows = 4096

// alwaysPrepare is set by tests that compare with what a pipeline prepares.
var alwaysPrepare bool

// inPlace returns the rows [N, in.Cols] that a pass reads, and true, if this rank can reduce them
// where they lie.
func (s Passes) inPlace(in layerInput) (x compute.Matrix, ok bool) {
	if alwaysPrepare || in.stored || len(in.Tables) != 1 || !s.Job.Reads() {
		return x, false
	}
	device, needs := compute.CapabilitiesOf(s.Device), s.Model.Config.Fixed().Needs()
	// Copied edges, and weights of edges, are made by a pipeline.
	if device.Accelerator != nil || !needs.OnlySums() || needs.Copies() || needs.EdgeRows || needs.Weights != nn.NoWeights ||
		!s.Topology.Columns.Plain() {
		return x, false
	}
	for _, e := range []compute.Elements{compute.Float32s, device.Stores} {
		if e.DType() == in.Type && len(in.Tables[0]) == s.ownRows()*in.Cols*e.Size() {
			return matrixOf(e, in.Tables[0], s.ownRows(), in.Cols), true
		}
	}
	return x, false
}

// inferInPlace runs a pass over the chunks, which reads the rows x, and passes the rows that it
// makes to put.
func (s Passes) inferInPlace(ctx context.Context, x compute.Matrix, chunks chunks, of pass,
	put putRows) error {
	stored := of.stored(s.Device)
	var sums, own []float32
	var spare []int64
	defer func() { mem.Free(sums); mem.Free(own); mem.Free(spare) }()
	needs, most := s.Model.Config.Fixed().Needs(), min(spanRows+chunks.most, x.Rows)
	sums, spare = mem.Make[float32](stored.Floats(most*x.Cols)), mem.Make[int64](most+1)
	for i, end := 0, 0; i < chunks.len(); i = end {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.Watch.Alive()
		first := chunks.bounds[i]
		for end < chunks.len() && int(chunks.bounds[end]-first) < spanRows {
			end++
		}
		n := int(chunks.bounds[end] - first)
		span := stored.In(sums[:stored.Floats(n*x.Cols)], n, x.Cols)
		reduce(s.Device, span, needs.Aggregate, segments(&s.Topology.Graph, first, spare[:n+1]), x)
		for ; i < end; i++ {
			lo, hi := chunks.at(i)
			y := span.RowsAt(lo-int(first-chunks.bounds[0]), hi-int(first-chunks.bounds[0]))
			if !of.sums {
				in := nn.Input{Hop: nn.Hop{Sources: hi - lo, Destinations: hi - lo}, Aggregate: y}
				if needs.Own {
					in.Own = s.storedRows(&own, stored, x.RowsAt(lo, hi))
				}
				var err error
				if y, err = s.Model.ForwardLayer(of.layer, &in); err != nil {
					return err
				}
			}
			if err := put(lo, y); err != nil {
				return err
			}
		}
	}
	return nil
}

// storedRows returns x as the given type, in place or in memory, which grows as needed.
func (s Passes) storedRows(memory *[]float32, of compute.Elements, x compute.Matrix,
) compute.Matrix {
	if x.Elements() == of {
		return x
	}
	*memory = mem.Grow(*memory, of.Floats(x.Rows*x.Cols))
	y := of.In(*memory, x.Rows, x.Cols)
	s.Host.ToBF16(y.BF16, x.Data)
	return y
}

// segments returns the in-edges of consecutive vertices from first on, whose sources are rows of
// the whole graph. indptr has an entry more than there are vertices.
func segments(g *graph.CSC, first graph.VertexID, indptr []int64) compute.Segments {
	of := g.Indptr[first : int(first)+len(indptr)]
	for i, at := range of {
		indptr[i] = at - of[0]
	}
	edges := g.Indices[of[0]:of[len(of)-1]]
	return compute.Segments{Indptr: indptr,
		Indices: unsafe.Slice((*int32)(unsafe.SliceData(edges)), len(edges))}
}

func reduce(dev compute.Device, out compute.Matrix, how compute.Reduction, s compute.Segments,
	x compute.Matrix) {
	switch how {
	case compute.ReduceMean:
		dev.SegmentMean(out, s, x)
	case compute.ReduceSum:
		dev.SegmentSum(out, s, nil, x, false)
	default:
		dev.SegmentMax(out, compute.Matrix{}, s, x)
	}
}
