// Package infer runs forward passes of a session and scores the predictions. It does so for the
// vertices that a user requests, and for the evaluations of a training run.
//
//	Predict   a session and a trained model ──> predictions and embeddings, written by rank 0
//	Over(s)   Sampled   minibatches of given vertices, through the pipe of the session
//	          Full      layer l of all own vertices, chunk by chunk; remote rows of layer l-1 come
//	                    by the exchange, as in training; two layers at a time, in memory or files:
//	                    [own, F] ──> [own, H] ──> ... ──> [own, C]
//	          Score     counts how well vertices were predicted; Quality adds up the ranks' scores
package infer

import (
	"context"
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// chunkBytes is the largest number of bytes of rows that one chunk of layer-wise inference reads,
// unless a single vertex has more neighbours. Tests make it small.
var chunkBytes = job.ChunkBytes

// Passes are the forward passes of a session. They run over minibatches of given vertices, or over
// all vertices layer by layer.
type Passes struct{ *session.Session }

// Over returns the forward passes of an open session.
func Over(s *session.Session) Passes { return Passes{s} }

// open opens a session for forward passes, without a cache because every row is read once.
// Every rank infers its own vertices, however the model was trained. Collective.
func open(env session.Env, o job.Spec, metric string) (Passes, error) {
	o.Cache.Policy, o.Mode = policy.None, job.Mode{}
	o.Locality, o.Sums = job.Locality{}, o.Sums && !o.TrySums
	o.AsNodes = o.AsNodes && !o.TryNodes
	s := Passes{session.New(env, metric)}
	s.Forward = true
	// if one rank fails here, all ranks return its error, so that none waits for it
	err := s.OpenModel(o)
	if err == nil {
		err = s.CheckScratch()
	}
	err = comm.Agree(s.Comm, err)
	if err == nil {
		err = s.OpenStore()
	}
	if err == nil {
		err = s.OpenDevice()
	}
	if err == nil {
		err = s.OpenRows(s.Job.Cache, residence.Position{Epoch: 1}, nil)
	}
	if err != nil {
		return Passes{}, s.EndedBy(err)
	}
	return s, nil
}

// Of computes the logits of the given own vertices with all neighbours, layer by layer. The
// vertices are in ascending order. It passes the logits of one vertex after another to the function
// `take`, so that the caller need not keep all of them. The slice z is valid until take returns.
// Collective.
func (s Passes) Of(ctx context.Context, vertices []graph.VertexID,
	take func(i int, z []float32)) error {
	return s.full(ctx, nil,
		s.pick(len(vertices), func(i int) graph.VertexID { return vertices[i] }, take))
}

// pick returns a takeLogits that passes the logits of n own vertices, in ascending order, to the
// function `take`, and drops all other logits.
func (s Passes) pick(n int, vertex func(i int) graph.VertexID,
	take func(i int, z []float32)) takeLogits {
	i, first, classes := 0, int(s.Shards.Meta.Offsets[s.First]), s.Job.Model.Out
	return func(at int, logits []float32) {
		for ; i < n; i++ {
			row := int(vertex(i)) - first - at
			if row*classes >= len(logits) {
				return
			}
			take(i, logits[row*classes:(row+1)*classes])
		}
	}
}

// Full returns the logits of all own vertices, an array [own vertices, classes] in host memory
// outside the heap. The caller frees them. Collective.
func (s Passes) Full(ctx context.Context) ([]float32, error) {
	classes := s.Job.Model.Out
	all := mem.Make[float32](s.ownRows() * classes)
	err := s.full(ctx, nil, func(at int, logits []float32) { copy(all[at*classes:], logits) })
	if err != nil {
		mem.Free(all)
		return nil, err
	}
	return all, nil
}

// Embeddings returns the embeddings of own vertices, computed with all neighbours. If an embedding
// is not finite, it returns an error. The caller frees them. Collective.
func (s Passes) Embeddings(ctx context.Context) ([]float32, error) {
	rows, err := s.Full(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.finite("the embeddings", nn.Finite(rows)); err != nil {
		mem.Free(rows)
		return nil, err
	}
	return rows, nil
}

// finite returns an error on every rank if ok is false on any rank, which means that this rank has
// numbers that are not finite. The error calls them by the given name. Collective.
func (s Passes) finite(name string, ok bool) error {
	bad, err := comm.AgreeAny(s.Comm, !ok)
	if err == nil && bad {
		err = comm.AgreedOn(s.Comm, fmt.Errorf("%s are not finite: %w", name, nn.ErrDiverged))
	}
	return err
}

// takeLogits is a function that is called once for each chunk. It gets the logits [n, classes] of n
// consecutive own vertices, the first of which is own vertex number at. The caller overwrites the
// logits after the function returns.
type takeLogits func(at int, logits []float32)

// full runs the model over all own vertices. It computes layer l of every vertex before it begins
// layer l+1, so that no row is computed twice. The function `take` gets the logits. The function
// hidden, unless it is nil, gets the rows that the last layer reads.
//
// Memory: the hidden rows of the own vertices for two layers, or for all layers with jumping
// knowledge; they are in files if Env.ScratchDir is given. The input rows of depth+1 chunks or, if
// rows are read in place, of one span of chunks. The logits of one chunk or span.
func (s Passes) full(ctx context.Context, hidden putRows, take takeLogits) error {
	in := layerInput{Rows: s.Shards.Rows()}
	in.Tables = s.Store.Tables
	for _, kind := range job.Rows(&s.Shards.Meta) {
		in.Cols = max(in.Cols, kind.Cols)
	}
	if in.stored = s.Shards.Schema.Typed(); s.Learned.Cols > 0 {
		in.stored, in.Cols = true, max(in.Cols, s.Learned.Cols)
	}
	block, err := s.columnsAtOnce()
	if err != nil {
		return err
	}
	var logits []float32 // logits of a chunk or span
	defer func() { mem.Free(logits) }()
	handOn := func(at int, y compute.Matrix) error {
		logits = mem.Grow(logits, len(y.Data))
		download(s.Device, logits, y.Data)
		s.Model.Undo(logits)
		take(at, logits)
		return nil
	}
	var kept []layerRows // rows of the layers that a later layer still reads
	defer func() {
		for i := range kept {
			kept[i].free()
		}
	}()
	last := s.Job.Model.Layers - 1
	// mapped rows that the last layer reads; nil if it reads the rows of the previous layer
	var mapped *mappedRows
	defer func() { mapped.free() }()
	for l := range last + 1 {
		var next layerRows
		var see, put putRows
		if s.givesLogits(l) {
			put = handOn
		}
		err := s.During(fmt.Sprintf("layer %d", l), func() (err error) {
			if l == last && mapped != nil {
				return mapped.infer(ctx, put)
			}
			if l == last-1 {
				see = hidden
				if mapped, err = s.mappedFor(last, block); err != nil {
					return err
				}
			}
			if mapped != nil {
				put = mapped.put
			}
			if l > 0 {
				rows := &kept[len(kept)-1]
				if rows.block < rows.cols {
					next, err = s.inferColumns(ctx, l, rows, see, put)
					return err
				}
				in = s.inputOf(rows, 0)
			}
			next, err = s.inferLayer(ctx, l, in, block, see, put)
			return err
		})
		if err != nil {
			return err
		}
		if len(kept) > 0 && !s.Job.Model.Jumps() {
			kept[0].free()
			kept = kept[1:]
		}
		kept = append(kept, next)
	}
	if s.Job.Model.Jumps() {
		return s.inferOutput(kept, handOn)
	}
	return nil
}

// inferOutput makes the logits of the own vertices from their rows of all layers, chunk by chunk.
func (s Passes) inferOutput(layers []layerRows, put putRows) error {
	rows := layers[0].rows
	chunk := s.Job.Model.OutputRows(chunkBytes)
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
		y, err := s.Model.OutputOf(part, hi-lo)
		if err == nil {
			err = put(lo, y)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// layerInput is what the chunks of a layer read: the rows of the previous layer, in the tables that
// Store.FetcherOf takes.
type layerInput struct {
	compute.Rows
	// whether the rows are in the session's store, because they are learned or differ by vertex
	// type; Cols is then the width of the widest rows
	stored bool
	// whether the rows are in memory and not in a file; another process may shorten a file
	inMemory bool
}

// inputOf returns the block of rows that begins with column first, as the input of chunks. It has a
// table for each own part. Rows of other parts are fetched.
func (s Passes) inputOf(rows *layerRows, first int) layerInput {
	in := compute.Rows{Cols: rows.width(first), Type: rows.of.DType(),
		Tables: make([][]byte, s.Shards.Meta.Parts)}
	offsets := s.Shards.Meta.Offsets
	for p := s.First; p < s.Last; p++ {
		lo, hi := int(offsets[p]-offsets[s.First]), int(offsets[p+1]-offsets[s.First])
		if lo < hi {
			in.Tables[p] = rows.part(first, lo, hi)
		}
	}
	return layerInput{Rows: in, inMemory: rows.file == nil}
}

// pass describes what a pass computes from the rows of each chunk.
type pass struct {
	layer int // layer that reads the rows
	// whether only to add up the neighbours' rows, column by column, and not compute the layer
	sums bool
	// whether the sums are not rounded, because the rows are already mapped to the layer's width
	exact bool
}

// stored returns the type in which the device stores the rows that this pass adds up.
func (p pass) stored(dev compute.Device) compute.Elements {
	if p.exact {
		return compute.Float32s
	}
	return compute.CapabilitiesOf(dev).Stores
}

// open makes the strategy that computes the layer of a chunk. Collective.
func (p pass) open(o parallel.Options, byColumns bool) (*parallel.Strategy, error) {
	if o.Mapped = p.exact; p.sums {
		return parallel.NewAggregates(o)
	}
	o.Resident = p.layer == 0 && !byColumns // resident rows are feature rows
	return parallel.NewLayer(o, p.layer)
}

// putRows is a function that gets rows y, on the device, of consecutive own vertices. The first is
// own vertex number at.
type putRows func(at int, y compute.Matrix) error

// followedBy returns a function that first calls the function `inspect`, unless it is nil, and
// afterwards the function `store`.
func (inspect putRows) followedBy(store putRows) putRows {
	if inspect == nil {
		return store
	}
	return func(at int, y compute.Matrix) error {
		if err := inspect(at, y); err != nil {
			return err
		}
		return store(at, y)
	}
}

// inferLayer runs layer l over all own vertices, chunk by chunk. It passes the layer's rows to the
// function `inspect`, unless that is nil, and then to the function `store`. If store is nil, it
// returns the rows. In a file they are stored in blocks of columns; a block has `block` columns.
func (s Passes) inferLayer(ctx context.Context, l int, in layerInput, block int,
	inspect, store putRows,
) (out layerRows, err error) {
	if store == nil {
		if out, err = s.makeLayer(l, block); err != nil {
			return out, err
		}
		store = func(at int, y compute.Matrix) error { return out.put(s.Device, at, 0, y) }
	}
	err = s.inferChunks(ctx, in, s.chunks(max(1, in.RowBytes())), pass{layer: l},
		inspect.followedBy(store))
	if err != nil {
		out.free()
	}
	return out, err
}

// makeLayer makes room for the rows of layer l. Collective.
func (s Passes) makeLayer(l, block int) (layerRows, error) {
	_, cols := s.Job.Model.Widths(l)
	return s.makeRows(cols, block,
		s.Job.Model.Stored(l, compute.CapabilitiesOf(s.Device).Stores))
}

// makeRows makes room for rows of the own vertices. Collective, because all ranks must fail if one
// of them has no room. Otherwise they would wait for its rows.
func (s Passes) makeRows(cols, block int, of compute.Elements) (layerRows, error) {
	out, err := makeLayerRows(s.ScratchDir, s.ownRows(), cols, block, of)
	if err := comm.Agree(s.Comm, err); err != nil {
		out.free()
		return out, err
	}
	return out, nil
}

// givesLogits reports whether the rows of layer l are logits, not hidden rows.
func (s Passes) givesLogits(l int) bool {
	return l == s.Job.Model.Layers-1 && !s.Job.Model.Jumps()
}

// inferChunks makes rows of the chunks of all own vertices, and passes them to the function
// `store`. If the rank cannot read rows in place, it makes a pipeline that prepares the chunks and
// runs the layer over them. Collective.
func (s Passes) inferChunks(ctx context.Context, in layerInput, chunks chunks, of pass,
	store putRows) (err error) {
	if s.readsInPlace(in) {
		return s.inferInPlace(ctx, in, chunks, of, store)
	}
	n, err := comm.AgreeMax(s.Comm, chunks.len())
	if err != nil {
		return err
	}
	var fetch *exchange.Fetcher
	if in.stored {
		fetch, err = s.Store.Fetcher(nil, true)
	} else {
		fetch, err = s.Store.FetcherOf(in.Rows)
	}
	if err != nil {
		return err
	}
	o := s.StrategyOptions()
	if s.Job.Reads() {
		o.Sample = sample.Neighbours(sample.All)
	}
	o.MaxSeeds, o.Exchange, o.Cols = max(1, chunks.most), fetch.Exchange, in.Cols
	o.Undigested = true
	edges, err := s.EdgeRows(&o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, edges()) }()
	strategy, err := of.open(o, s.Job.Mode.Columns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, strategy.Close()) }()
	pipe, err := s.NewPipe(strategy, 0)
	if err != nil {
		return err
	}
	defer pipe.Close()

	admit := func(i int, m *parallel.Minibatch) {
		// a rank that has fewer chunks than others takes part with empty chunks at the end
		i = min(i, chunks.len())
		lo, hi := chunks.chunkRange(i)
		m.Seeds = mem.Grow(m.Seeds, hi-lo)
		for k := range m.Seeds {
			m.Seeds[k] = chunks.bounds[0] + graph.VertexID(lo+k)
		}
		m.Key, m.Train = s.evalKey(0, s.First, i), false
	}
	at := 0
	run := func(_ int, m *parallel.Minibatch) error {
		y, err := strategy.Forward(m)
		if err != nil {
			return err
		}
		if err := store(at, y); err != nil {
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

func (s Passes) ownRows() int {
	offsets := s.Shards.Meta.Offsets
	return int(offsets[s.Last] - offsets[s.First])
}

// chunks describes how the own vertices are divided into chunks.
type chunks struct {
	// [chunks+1] first vertex of every chunk, and then the end of the last chunk
	bounds []graph.VertexID
	most   int // number of vertices of the largest chunk
}

func (c *chunks) len() int { return len(c.bounds) - 1 }

// chunkRange returns the range [lo, hi) of the vertices of chunk i, counted from the first own
// vertex. If i is the number of chunks, the range is empty.
func (c *chunks) chunkRange(i int) (lo, hi int) {
	first := c.bounds[0]
	return int(c.bounds[i] - first), int(c.bounds[min(i+1, c.len())] - first)
}

// chunks cuts the vertices of each own part so that a chunk's vertices and in-edges refer to at
// most chunkBytes of rows. The last bits of a matrix product depend on the size of the chunk. No
// chunk has vertices of two parts, so the chunks are the same on any number of ranks.
func (s Passes) chunks(rowBytes int) (c chunks) {
	offsets := s.Shards.Meta.Offsets
	// the first vertex whose in-edges this rank holds
	budget, first := int64(chunkBytes/rowBytes), int64(s.Topology.First)
	c.bounds = []graph.VertexID{graph.VertexID(offsets[s.First])}
	for p := s.First; p < s.Last; p++ {
		for lo, end := offsets[p], offsets[p+1]; lo < end; {
			hi := first + s.Topology.Graph.NextChunk(lo-first, end-first, budget)
			c.most = max(c.most, int(hi-lo))
			c.bounds = append(c.bounds, graph.VertexID(hi))
			lo = hi
		}
	}
	return c
}
