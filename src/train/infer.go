package train

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/job"
	"halognn/src/mem"
	"halognn/src/parallel"
	"halognn/src/sample"
)

// chunkBytes bounds the rows that one chunk of layer-wise inference reads, unless a single vertex
// has more neighbours. Tests make it small.
var chunkBytes = job.ChunkBytes

// inferAll computes the logits of all own vertices with all neighbours, layer by layer: layer l of
// every vertex before layer l+1 of any, so that nothing is computed twice. It returns [own
// vertices, classes] in host memory outside the heap; the caller frees it. hidden, if given, gets
// the rows [own vertices, cols] that the last layer reads, which are freed once it returns.
// Collective.
//
// Memory: two layers' rows of the own vertices (with jumping knowledge those of all layers), in files
// if Env.ScratchDir is given, and the input rows of depth+1 chunks. Source: layer-wise inference as in GraphSAGE's and DGL's
// full-neighbour evaluation.
func (s *session) inferAll(
	ctx context.Context, hidden func(rows []float32, cols int),
) ([]float32, error) {
	tables, cols, dtype := s.store.Tables, s.Shards.Meta.Features, s.Shards.Meta.Type()
	var kept []layerRows // of the layers that are still read
	defer func() {
		for i := range kept {
			kept[i].free()
		}
	}()
	for l := range s.o.Model.Layers {
		if hidden != nil && l > 0 && l == s.o.Model.Layers-1 {
			hidden(kept[len(kept)-1].data, cols)
		}
		var next layerRows
		err := s.during(fmt.Sprintf("layer %d", l), func() (err error) {
			next, err = s.inferLayer(ctx, l, tables, cols, dtype)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(kept) > 0 && !s.o.Model.Jumps() {
			kept[0].free()
			kept = kept[1:]
		}
		kept = append(kept, next)
		_, cols = s.o.Model.Widths(l)
		dtype, tables = compute.Float32, s.ownTables(next.data, cols)
	}
	if s.o.Model.Jumps() {
		return s.inferOutput(kept)
	}
	logits := kept[0].data // of the last layer: never a file
	kept = nil
	return logits, nil
}

// inferOutput makes the logits of the own vertices from their rows of all layers, chunk by chunk.
func (s *session) inferOutput(layers []layerRows) ([]float32, error) {
	hidden, classes := s.o.Model.Hidden, s.o.Model.Out
	rows := len(layers[0].data) / hidden
	out := mem.Make[float32](rows * classes)
	chunk := s.o.Model.OutputRows(chunkBytes)
	part := make([][]float32, len(layers))
	for lo := 0; lo < rows; lo += chunk {
		hi := min(lo+chunk, rows)
		for l := range layers {
			part[l] = layers[l].data[lo*hidden : hi*hidden]
		}
		y, err := s.model.OutputOf(part, hi-lo)
		if err != nil {
			mem.Free(out)
			return nil, err
		}
		s.Device.Download(out[lo*classes:hi*classes], y.Data)
	}
	return out, nil
}

// ownTables cuts the rows [own, cols] into the tables of the own parts; all others are fetched.
func (s *session) ownTables(rows []float32, cols int) [][]byte {
	offsets := s.Shards.Meta.Offsets
	tables := make([][]byte, s.Shards.Meta.Parts)
	at := 0
	for p := s.first; p < s.last; p++ {
		n := int(offsets[p+1]-offsets[p]) * cols
		if n > 0 {
			tables[p] = unsafe.Slice((*byte)(unsafe.Pointer(&rows[at])), 4*n)
		}
		at += n
	}
	return tables
}

// inferLayer runs layer l over all own vertices, chunk by chunk, through a pipeline of its own.
func (s *session) inferLayer(ctx context.Context, l int, tables [][]byte, cols int,
	dtype compute.DType) (out layerRows, err error) {
	chunks, most := s.chunks(cols * dtype.Size())
	n, err := comm.AgreeMax(s.Comm, len(chunks)-1)
	if err != nil {
		return out, err
	}
	fetch, err := s.store.FetcherOf(tables, cols, dtype)
	if err != nil {
		return out, err
	}
	spec := sample.Neighbours(sample.All)
	if !s.job.Reads() {
		spec = sample.Spec{}
	}
	o := s.strategyOptions()
	o.Sample, o.MaxSeeds, o.Exchange, o.Cols = spec, max(1, most), fetch.Exchange, cols
	o.Resident = l == 0 && !s.job.ByColumns // those are other rows
	strategy, err := parallel.NewLayer(s.o.Mode, o, l)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, strategy.Close()) }()
	pipe, err := s.newPipe(strategy, 0)
	if err != nil {
		return out, err
	}
	defer pipe.Close()

	_, width := s.o.Model.Widths(l)
	first := chunks[0]
	dir := s.ScratchDir
	if l == s.o.Model.Layers-1 && !s.o.Model.Jumps() {
		dir = "" // logits, which are handed on
	}
	// All ranks learn whether one has no room, before any waits for its rows.
	out, err = makeLayerRows(dir, int(chunks[len(chunks)-1]-first)*width)
	if err := comm.Agree(s.Comm, err); err != nil {
		out.free()
		return out, err
	}
	admit := func(i int, m *parallel.Minibatch) {
		i = min(i, len(chunks)-1) // ranks with fewer chunks take part with empty ones
		lo, hi := chunks[i], chunks[min(i+1, len(chunks)-1)]
		m.Seeds = mem.Grow(m.Seeds, int(hi-lo))
		for k := range m.Seeds {
			m.Seeds[k] = lo + graph.VertexID(k)
		}
		m.Key, m.Train = s.o.evalKey(0, s.first, i), false
	}
	at := 0
	run := func(_ int, m *parallel.Minibatch) error {
		y, err := strategy.Forward(m)
		if err != nil {
			return err
		}
		s.Device.Download(out.data[at:at+len(y.Data)], y.Data)
		at += len(y.Data)
		return nil
	}
	if err := pipe.Run(ctx, n, admit, run); err != nil {
		out.free()
		return out, err
	}
	return out, fetch.Close()
}

// chunks cuts the own vertices so that the vertices of a chunk and their in-edges refer to at most
// chunkBytes of rows. It returns the first vertex of every chunk followed by the end of the last
// one, and the number of vertices in the largest chunk.
func (s *session) chunks(rowBytes int) (bounds []graph.VertexID, most int) {
	offsets := s.Shards.Meta.Offsets
	lo, end := offsets[s.first], offsets[s.last]
	budget := int64(chunkBytes / rowBytes)
	bounds = []graph.VertexID{graph.VertexID(lo)}
	for lo < end {
		first := int64(s.topology.First) // of the rows held here
		hi := first + s.topology.Graph.NextChunk(lo-first, end-first, budget)
		most = max(most, int(hi-lo))
		bounds = append(bounds, graph.VertexID(hi))
		lo = hi
	}
	return bounds, most
}
