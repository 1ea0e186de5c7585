package parallel

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
)

// composePushPull makes push-pull parallelism (P3, Gandhi and Iyer, OSDI 2021): every rank has
// minibatches of its own and some columns of the features of all vertices. No feature row travels.
// The edges of a minibatch's input hop are pushed to all ranks. Each rank aggregates its columns
// for the minibatches of all ranks, and multiplies the results by its columns of the first layer's
// weights. In the step it sends the products, which are as wide as hidden rows, to the ranks of the
// minibatches, which add them up. Everything after that is data parallelism:
//
//	         local     collective       local               local
//	draw ──> pack ──> push ──────────> join ─────────────> assemble
//	         own hop   hops of all      into one, and where  own columns, for all
//	                                    its rows lie
//
//	forward   columns W1ᵀ [rows of rank 0 | rank 1 | ...]  ─ all-to-all ─> shares, added
//	          of the minibatches of all                          ──> bias ... layer 1 ...
//	backward  gradient of the sums of all  <─ all-gather ─ gradient of the own sums <─ layer 1 ...
//	          ──> gradient of W1, own columns, of all minibatches; zero elsewhere ──> Gradients
//
// The weights are on all ranks and updated alike, so checkpoints do not differ from those of other
// modes.
func composePushPull(s *Strategy) error {
	o := &s.o
	columns, err := o.Model.Columns(o.FirstCol, o.FirstCol+o.Cols)
	if err != nil {
		return err
	}
	rank, ranks := o.Comm.Rank(), o.Comm.Size()
	sums := &columnSums{columns: columns, shares: make([]compute.Matrix, ranks)}
	needs := s.needs
	needs.Joined = false // own rows and aggregates are multiplied separately
	rows := &columnRows{assembly: assembly{needs, s.layers, s.landing}, x: o.Exchange, rank: rank,
		ranks: ranks}
	s.between, s.rows = Between{forward: sums.forward, weigh: sums.weigh, carries: sums}, rows
	if sums.mover, err = newMover(o, o.Comm, 0); err != nil {
		return err
	}
	if rows.comm, err = o.Comm.Dup(); err != nil {
		return err
	}
	return s.drawOwn()
}

// columnRows implements Rows for ranks that hold some columns of all rows. Each rank makes, from
// its columns, its part of what the input layers of all ranks' minibatches read.
type columnRows struct {
	assembly
	x           *exchange.Exchange
	rank, ranks int
	comm        comm.Comm // for the collectives of preparation
}

func (p *columnRows) release(*Minibatch)    {}
func (p *columnRows) bytes() (int64, int64) { return p.x.Bytes(), 0 }

func (p *columnRows) close() error {
	if p.comm == nil {
		return nil
	}
	return p.comm.Free()
}

// stages implements Rows.
func (p *columnRows) stages() []Stage {
	return []Stage{
		local(trace.Plan, "pack", p.pack),
		collective(trace.Ask, "push", p.startPush, nil),
		local(trace.Plan, "join", p.join),
		local(trace.Gather, "assemble", func(m *Minibatch) error {
			p.batch(m)
			return p.landing.land(m, &m.pushed.hop, p.needs)
		}),
	}
}

// counters counts every row of the frontier as local, because each rank reads its columns of the
// row in memory.
func (p *columnRows) counters(m *Minibatch) (trace.Counters, error) {
	err := m.Fetch.Check(len(m.pushed.frontier))
	if m.Fetch.Remote > 0 && err == nil {
		err = fmt.Errorf("%d rows are remote, but none should be; this is a bug in halognn",
			m.Fetch.Remote)
	}
	n := int64(len(m.Sampled.Frontier))
	return trace.Counters{Frontier: n, Local: n, Loaded: n}, err
}

// pushed holds the input hops of all ranks, as far as this rank needs them.
type pushed struct {
	p        *columnRows
	size     []int64 // [3K] size of the own hop (sources, destinations, edges), once for each rank
	sizes    []int64 // [3K] the same numbers for the hop of each rank
	own, all []int32 // messages of the own hop and of all ranks' hops, as hopWords
	words    []int   // [K] length of each rank's hop
	rows     []int   // [K] number of destinations of each rank's hop: rows computed for that rank
	mine     []int   // [K] number of own destinations, repeated for every rank
	ones     []int   // [K] 1 for every rank, because each rank gets one size
	sends    []int   // [K] length of the own hop, repeated for every rank
	first    int     // index of the first own destination among all destinations

	// The hops of all ranks merged into one, whose destinations are in rank order.
	frontier []graph.VertexID
	block    graph.Block
	weights  []float32
	groups   graph.Grouper
	hop      nn.Hop // the merged hop, made of the arrays above
}

func (x *pushed) bytes() int64 {
	return int64(cap(x.size)+cap(x.sizes)+cap(x.block.Indptr))*8 +
		int64(cap(x.own)+cap(x.all)+cap(x.frontier)+cap(x.block.Indices)+cap(x.weights))*4 +
		x.groups.Bytes()
}

// free frees the arrays.
func (x *pushed) free() {
	mem.Free(x.size)
	mem.Free(x.sizes)
	mem.Free(x.own)
	mem.Free(x.all)
	mem.Free(x.frontier)
	mem.Free(x.block.Indptr)
	mem.Free(x.block.Indices)
	mem.Free(x.weights)
	x.groups.Free()
}

// hopWords are the arrays of a hop in a message.
type hopWords struct {
	degrees []int32 // [D] number of edges of each destination
	sources []int32 // [E] positions in the frontier
	ids     []int32 // [S] the frontier
	weights []int32 // [E] bits of float32; empty if edges have no weights
}

// cut cuts the message of a hop of the given size into its arrays.
func (p *columnRows) cut(words []int32, size []int64) (h hopWords) {
	s, d, e := size[0], size[1], size[2]
	h.degrees, words = words[:d], words[d:]
	h.sources, words = words[:e], words[e:]
	h.ids, words = words[:s], words[s:]
	h.weights = words[:p.length(size)-s-d-e]
	return h
}

func (p *columnRows) length(size []int64) int64 {
	return HopWords(p.needs, size[0], size[1], size[2])
}

// pack writes the message that carries the input hop of this rank's minibatch.
func (p *columnRows) pack(m *Minibatch) error {
	x, s := &m.pushed, &m.Sampled
	if len(x.ones) != p.ranks {
		x.words, x.rows = make([]int, p.ranks), make([]int, p.ranks)
		x.mine, x.ones, x.sends = make([]int, p.ranks), make([]int, p.ranks), make([]int, p.ranks)
		for r := range x.ones {
			x.ones[r] = 1
		}
	}
	// A model without neighbours has no edges, and reads only the seeds.
	h := nn.Hop{Sources: len(s.Frontier), Destinations: len(s.Frontier)}
	if len(s.Blocks) > 0 {
		h = m.edges.Hop(s, 0, p.needs, false)
	}
	x.size, x.sizes = mem.Grow(x.size, hopSize*p.ranks), mem.Grow(x.sizes, hopSize*p.ranks)
	x.size[0], x.size[1], x.size[2] = int64(h.Sources), int64(h.Destinations), int64(h.Edges)
	x.own = mem.Grow(x.own, int(p.length(x.size)))
	to := p.cut(x.own, x.size)
	for d := range to.degrees {
		to.degrees[d] = 0
		if h.Edges > 0 {
			to.degrees[d] = int32(h.Forward.Indptr[d+1] - h.Forward.Indptr[d])
		}
	}
	copy(to.sources, h.Forward.Indices)
	for i, v := range s.Frontier {
		to.ids[i] = int32(v)
	}
	for e := range to.weights {
		to.weights[e] = int32(math.Float32bits(h.Weights[e]))
	}
	return nil
}

// hopSize is the number of integers in a hop's size: sources, destinations, edges.
const hopSize = 3

// startPush sends this rank's input hop to all ranks. The hop's size goes first.
func (p *columnRows) startPush(m *Minibatch) (request, error) {
	if err := errors.Join(m.point(fault.Ask, p.rank), m.point(fault.Exchange, p.rank)); err != nil {
		return nil, err
	}
	x := &m.pushed
	x.p = p
	for r := range p.ranks {
		copy(x.size[hopSize*r:], x.size[:hopSize])
		x.sends[r] = len(x.own)
	}
	m.asked.Collectives++
	m.asked.Bytes += int64(p.ranks-1) * (HopSizeBytes + 4*int64(len(x.own)))
	return p.comm.StartAlltoallThen(mem.Bytes(x.size), mem.Bytes(x.sizes), x.ones, x.ones,
		HopSizeBytes, comm.Then{Send: mem.Bytes(x.own), SendRows: x.sends, RowBytes: 4, ToAll: true,
			Expect: (*hopsOf)(m)}), nil
}

// hopsOf is a minibatch that implements comm.Expecter for the input hops of all ranks.
type hopsOf Minibatch

// Expect makes room for the hops of all ranks, whose sizes have arrived.
func (m *hopsOf) Expect() ([]byte, []int, error) {
	x, p := &m.pushed, m.pushed.p
	var sum [hopSize]int64
	all := 0
	for r := range p.ranks {
		size := x.sizes[hopSize*r:][:hopSize]
		for k, n := range size {
			sum[k] += n
		}
		x.words[r], x.rows[r] = int(p.length(size)), int(size[1])
		x.mine[r] = int(x.size[1])
		all += x.words[r]
	}
	if max(sum[0], sum[2]) > math.MaxInt32 {
		return nil, nil, fmt.Errorf("the input hops of %d ranks together have %d vertices and %d "+
			"edges; push-pull can have at most %d of each; choose a smaller sample.batch, or "+
			"parallel.mode=data", p.ranks, sum[0], sum[2], math.MaxInt32)
	}
	x.all = mem.Grow(x.all, all)
	x.frontier = mem.Grow(x.frontier, int(sum[0]))
	x.block.NumSrc, x.block.NumDst = int(sum[0]), int(sum[1])
	x.block.Indptr = mem.Grow(x.block.Indptr, x.block.NumDst+1)
	x.block.Indices = mem.Grow(x.block.Indices, int(sum[2]))
	x.weights = mem.Grow(x.weights, int(p.length(sum[:])-sum[0]-sum[1]-sum[2]))
	return mem.Bytes(x.all), x.words, nil
}

// join merges the hops of all ranks into one, and locates the rows of the merged hop. This rank has
// its own columns of these rows. A vertex that is in two minibatches appears twice.
func (p *columnRows) join(m *Minibatch) error {
	x := &m.pushed
	b, from, dst, edge := &x.block, x.all, 0, 0
	src := b.NumDst // where the next source that is not a destination goes
	b.Indptr[0] = 0
	for r := range p.ranks {
		h := p.cut(from, x.sizes[hopSize*r:])
		from = from[x.words[r]:]
		n := len(h.degrees)
		if r == p.rank {
			x.first = dst
		}
		for d, k := range h.degrees {
			b.Indptr[dst+d+1] = b.Indptr[dst+d] + int64(k)
		}
		for i, v := range h.ids[:n] {
			x.frontier[dst+i] = graph.VertexID(v)
		}
		for i, v := range h.ids[n:] {
			x.frontier[src+i] = graph.VertexID(v)
		}
		for e, s := range h.sources {
			if int(s) < n {
				b.Indices[edge+e] = s + int32(dst)
			} else {
				b.Indices[edge+e] = s + int32(src-n)
			}
		}
		for e, w := range h.weights {
			x.weights[edge+e] = math.Float32frombits(uint32(w))
		}
		dst, src, edge = dst+n, src+len(h.ids)-n, edge+len(h.sources)
	}
	x.hop = nn.Hop{Sources: b.NumSrc, Destinations: b.NumDst, Edges: edge, Weights: x.weights,
		Forward: compute.Segments{Indptr: b.Indptr, Indices: b.Indices}}
	if err := p.x.Plan(&m.Fetch, x.frontier); err != nil {
		return err
	}
	if p.needs.Aggregate != compute.NoReduction {
		x.groups.ByPart(b.Indptr, b.Indices, x.weights, m.Fetch.Parts, p.x.Parts())
	}
	return nil
}

// columnSums adds up what each rank has computed for an input layer from its columns:
//
//	forward   [rows of rank 0 | rank 1 | ...] of own columns ─ all-to-all ─> [K] shares
//	backward  gradient of own rows ── all-gather ──> [of rank 0 | rank 1 | ...]
type columnSums struct {
	mover
	columns    *nn.Columns
	input      nn.Input         // input of the layer, for the own columns only
	got, dsums []float32        // in device memory: got for the shares, dsums for the gradients
	shares     []compute.Matrix // [K] views of got
}

// close frees memory and communicator.
func (s *columnSums) close() error {
	s.columns.Close()
	s.device.Free(s.got)
	s.device.Free(s.dsums)
	return s.mover.close()
}

// bytes returns the host memory: allocated by package mem, or pinned.
func (s *columnSums) bytes() (allocated, pinned int64) {
	if compute.CapabilitiesOf(s.device).Accelerator != nil {
		return 0, s.carrier.bytes()
	}
	return s.columns.Bytes() + int64(len(s.got)+len(s.dsums))*4, 0
}

// forward replaces the input layer's rows by the shares of all ranks.
func (s *columnSums) forward(m *Minibatch, l int, in *nn.Input, phases Phases) error {
	if l > 0 {
		return nil
	}
	x := &m.pushed
	s.input = nn.Input{Hop: x.hop, Own: in.Own, Aggregate: in.Aggregate, Train: in.Train}
	y, err := s.columns.Forward(&s.input)
	if err != nil {
		return err
	}
	if err := s.enter(m, trace.Forward, phases); err != nil {
		return err
	}
	n, k := in.Destinations, len(s.shares)
	got, err := s.rows(&s.got, compute.Float32s, k*n, y.Cols)
	if err != nil {
		return err
	}
	if err := s.exchange(&m.moved, y.Data, got.Data, x.rows, x.mine, y.Cols); err != nil {
		return err
	}
	for r := range s.shares {
		s.shares[r] = got.RowsAt(r*n, (r+1)*n)
	}
	in.X, in.Own, in.Aggregate = compute.Matrix{}, compute.Matrix{}, compute.Matrix{}
	in.Shares, in.Gradient = s.shares, in.Train
	s.leave(trace.Forward, phases)
	return nil
}

// weigh computes the weight gradients of this rank's columns. The argument `dsum` is the gradient
// with respect to the sums of this rank's minibatch.
func (s *columnSums) weigh(m *Minibatch, l int, dsum compute.Matrix, phases Phases) error {
	if l > 0 {
		return nil
	}
	if err := s.enter(m, trace.Backward, phases); err != nil {
		return err
	}
	x := &m.pushed
	dsums, err := s.rows(&s.dsums, compute.Float32s, x.hop.Destinations, dsum.Cols)
	if err != nil {
		return err
	}
	if err := s.exchange(&m.moved, dsum.Data, dsums.Data, nil, x.rows, dsum.Cols); err != nil {
		return err
	}
	s.leave(trace.Backward, phases)
	s.columns.Backward(&s.input, dsums)
	return nil
}
