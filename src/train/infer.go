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
// the rows that the last layer reads, which are freed once it returns. Collective.
//
// Memory: two layers' rows of the own vertices (with jumping knowledge those of all layers), in files
// if Env.ScratchDir is given, and the input rows of depth+1 chunks. Source: layer-wise inference as
// in GraphSAGE's and DGL's full-neighbour evaluation.
func (s *session) inferAll(ctx context.Context, hidden func(*layerRows)) ([]float32, error) {
	in := layerInput{s.store.Tables, s.Shards.Meta.Features, s.Shards.Meta.Type()}
	block, err := s.columnsAtOnce()
	if err != nil {
		return nil, err
	}
	var kept []layerRows // of the layers that are still read
	defer func() {
		for i := range kept {
			kept[i].free()
		}
	}()
	for l := range s.o.Model.Layers {
		if hidden != nil && l > 0 && l == s.o.Model.Layers-1 {
			hidden(&kept[len(kept)-1])
		}
		var next layerRows
		err := s.during(fmt.Sprintf("layer %d", l), func() (err error) {
			if l > 0 {
				rows := &kept[len(kept)-1]
				if rows.block < rows.cols {
					next, err = s.inferColumns(ctx, l, rows)
					return err
				}
				in = layerInput{s.ownTables(rows.data, rows.cols), rows.cols, compute.Float32}
			}
			next, err = s.inferLayer(ctx, l, in, block)
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
	classes, rows := s.o.Model.Out, layers[0].rows
	out := mem.Make[float32](rows * classes)
	chunk := s.o.Model.OutputRows(chunkBytes)
	part, buffers := make([][]float32, len(layers)), make([][]float32, len(layers))
	defer func() {
		for _, b := range buffers {
			mem.Free(b)
		}
	}()
	for lo := 0; lo < rows; lo += chunk {
		hi := min(lo+chunk, rows)
		for l := range layers {
			part[l] = layers[l].view(&buffers[l], lo, hi)
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

// layerInput is what chunks read of the layer before: tables as of Store.FetcherOf.
type layerInput struct {
	tables [][]byte
	cols   int
	dtype  compute.DType
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

// inferLayer runs layer l over all own vertices, chunk by chunk. Rows that go to a file lie in
// blocks of so many columns.
func (s *session) inferLayer(ctx context.Context, l int, in layerInput, block int) (out layerRows,
	err error) {
	if out, err = s.makeRows(l, block); err != nil {
		return out, err
	}
	err = s.inferChunks(ctx, in, s.chunks(in.cols*in.dtype.Size()),
		func(o parallel.Options) (*parallel.Strategy, error) {
			o.Resident = l == 0 && !s.job.Mode.Columns // those are other rows
			return parallel.NewLayer(o, l)
		},
		func(at int, y compute.Matrix) error { return out.put(s.Device, at, 0, y) })
	if err != nil {
		out.free()
	}
	return out, err
}

// makeRows makes the rows of layer l. Logits, which are handed on, are never a file. Collective:
// all ranks learn whether one has no room, before any waits for its rows.
func (s *session) makeRows(l, block int) (layerRows, error) {
	_, cols := s.o.Model.Widths(l)
	dir := s.ScratchDir
	if s.givesLogits(l) {
		dir = ""
	}
	out, err := makeLayerRows(dir, s.ownRows(), cols, block)
	if err := comm.Agree(s.Comm, err); err != nil {
		out.free()
		return out, err
	}
	return out, nil
}

// givesLogits reports whether the rows of layer l are logits, and no hidden rows.
func (s *session) givesLogits(l int) bool {
	return l == s.o.Model.Layers-1 && !s.o.Model.Jumps()
}

// inferChunks runs a strategy over the chunks of all own vertices, through a pipeline of its own,
// and hands on what it makes of them: y for the own vertices from number at on. Collective.
func (s *session) inferChunks(ctx context.Context, in layerInput, chunks chunks,
	newStrategy func(parallel.Options) (*parallel.Strategy, error),
	take func(at int, y compute.Matrix) error) (err error) {
	n, err := comm.AgreeMax(s.Comm, chunks.len())
	if err != nil {
		return err
	}
	fetch, err := s.store.FetcherOf(in.tables, in.cols, in.dtype)
	if err != nil {
		return err
	}
	o := s.strategyOptions()
	if s.job.Reads() {
		o.Sample = sample.Neighbours(sample.All)
	}
	o.MaxSeeds, o.Exchange, o.Cols = max(1, chunks.most), fetch.Exchange, in.cols
	strategy, err := newStrategy(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, strategy.Close()) }()
	pipe, err := s.newPipe(strategy, 0)
	if err != nil {
		return err
	}
	defer pipe.Close()

	admit := func(i int, m *parallel.Minibatch) {
		i = min(i, chunks.len()) // ranks with fewer chunks take part with empty ones
		lo, hi := chunks.at(i)
		m.Seeds = mem.Grow(m.Seeds, hi-lo)
		for k := range m.Seeds {
			m.Seeds[k] = chunks.bounds[0] + graph.VertexID(lo+k)
		}
		m.Key, m.Train = s.o.evalKey(0, s.first, i), false
	}
	at := 0
	run := func(_ int, m *parallel.Minibatch) error {
		y, err := strategy.Forward(m)
		if err != nil {
			return err
		}
		if err := take(at, y); err != nil {
			return err
		}
		at += y.Rows
		return nil
	}
	if err := pipe.Run(ctx, n, admit, run); err != nil {
		return err
	}
	return fetch.Close()
}

// ownRows returns the number of own vertices.
func (s *session) ownRows() int {
	offsets := s.Shards.Meta.Offsets
	return int(offsets[s.last] - offsets[s.first])
}

// chunks are the own vertices, cut into chunks.
type chunks struct {
	bounds []graph.VertexID // the first vertex of every chunk, then the end of the last one
	most   int              // vertices of the largest
}

func (c *chunks) len() int { return len(c.bounds) - 1 }

// at returns the vertices of chunk i, counted from the first own one; none if i is len.
func (c *chunks) at(i int) (lo, hi int) {
	first := c.bounds[0]
	return int(c.bounds[i] - first), int(c.bounds[min(i+1, c.len())] - first)
}

// chunks cuts the own vertices so that the vertices of a chunk and their in-edges refer to at most
// chunkBytes of rows.
func (s *session) chunks(rowBytes int) (c chunks) {
	offsets := s.Shards.Meta.Offsets
	lo, end := offsets[s.first], offsets[s.last]
	budget := int64(chunkBytes / rowBytes)
	c.bounds = []graph.VertexID{graph.VertexID(lo)}
	for lo < end {
		first := int64(s.topology.First) // of the rows held here
		hi := first + s.topology.Graph.NextChunk(lo-first, end-first, budget)
		c.most = max(c.most, int(hi-lo))
		c.bounds = append(c.bounds, graph.VertexID(hi))
		lo = hi
	}
	return c
}
