package parallel

import (
	"errors"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// LearnedRows are the learned rows of a strategy that trains. There are two exchanges for them,
// which differ only in their communicators: Ask is for the preparation of minibatches, Move for the
// step. Where ranks of a node fetch as one, rows come by two other exchanges, NodesAsk and
// NodesMove, and only sums and gradients come by Ask and Move.
type LearnedRows struct {
	Rows                *nn.Learned
	Ask, Move           *exchange.Exchange
	NodesAsk, NodesMove *exchange.Exchange // nil if each rank fetches for itself
}

// withLearned is Rows for models that learn rows. Most learned rows are fetched early, while the
// minibatch is prepared. A row is late if a step that is still under way changes it. Late rows are
// sent in the minibatch's own step, after that change. At pipeline depth 0 no step is under way, so
// no row is late. Gradients go back the same way.
//
//	preparing   frontier ──> ids ───────────────> owner
//	            rows     <─────────────────────── early
//	step        rows     <─────────────────────── late           forward
//	            gradients ──────────────────────> Learned.Add    backward
//	update                                        Learned.Update
//
// Where ranks of a node fetch as one, the owners only say which rows are late. The ranks of the
// node then fetch the early rows together while the minibatch is prepared. They also request the
// late rows then, and receive these in the step. Gradients still go from each rank to the owners,
// because they must be added in the order of the ranks; a sum made within a node first would break
// this order.
type withLearned struct {
	Rows
	ask    *exchange.Exchange
	nodes  *exchange.Exchange // nil if each rank fetches for itself
	waits  bool               // rows may be late
	learns []bool
	ranks  int
	under  underWay
	places ownPlaces
}

// learnedOf are the learned rows that a minibatch reads.
type learnedOf struct {
	ids     []graph.VertexID // vertices with learned rows, type by type
	first   []int            // [T] where each type begins in ids
	types   []ofLearned
	read    int     // number of rows that the input layer reads of all learned types
	own     []int32 // vertices of ids that this rank owns
	plan    exchange.Plan
	halves  [2]exchange.Plan // set if ranks of a node fetch as one: early rows, late rows
	late    exchange.Late
	waits   bool         // some rank may have late rows
	means   learnedMeans // means of the rows of types that are averaged
	rows    []float32    // [read, cols] input of the layer, then its gradient
	readers learnedReaders
	given   learnedGiven
}

// ofLearned is a vertex type whose rows are learned.
type ofLearned struct {
	kind int
	// Index in ids of the type's first vertex (first), and number of the type's vertices
	// (vertices).
	first, vertices int
	// Index of the type's first row in the input of all types (lo), and number of the type's rows
	// (read).
	lo, read int
	at       int // index of the type's first row in the input of learned types
}

func (e *learnedOf) bytes() int64 {
	return 4*int64(cap(e.ids)+cap(e.rows)+cap(e.own)) + e.plan.Bytes() + e.halves[0].Bytes() +
		e.halves[1].Bytes() + e.late.Bytes() + e.means.bytes() + e.readers.bytes() + e.given.bytes()
}

func (e *learnedOf) free() {
	mem.Free(e.ids)
	mem.Free(e.rows)
	mem.Free(e.own)
	e.plan.Free()
	e.halves[0].Free()
	e.halves[1].Free()
	e.late.Free()
	e.means.free()
	e.readers.free()
	e.given.free()
}

// addLearned makes a strategy fetch learned rows, if the model that it trains has any.
func addLearned(s *Strategy) error {
	o := s.o.Learned
	if o.Rows == nil {
		return nil
	}
	if compute.CapabilitiesOf(s.o.Device).Accelerator != nil {
		return errors.New("rows are learned only on CPUs: set compute.device=cpu")
	}
	learns, rank := s.o.Model.Config.Learns, s.o.Comm.Rank()
	own := int(s.o.Rows[rank+1] - s.o.Rows[rank])
	s.rows = &withLearned{Rows: s.rows, ask: o.Ask, nodes: o.NodesAsk, waits: s.o.Depth > 0,
		learns: learns, ranks: s.o.Comm.Size(), under: newUnderWay(s.o.Depth, own),
		places: ownPlaces{own: own}}
	r := &learning{LearnedRows: o, model: s.o.Model, device: s.o.Device, host: s.o.Host, rank: rank,
		ranks: s.o.Comm.Size(), late: s.o.Depth > 0}
	s.between = Between{forward: r.forward, weigh: r.weigh, end: r.end}
	return nil
}

// stages implements Rows. The stages of learned rows come last, after the gate of a cache that
// looks ahead, so at most depth minibatches lie between them and their step. These stages also make
// all lists of indices that the step needs, so that this work is done for several minibatches at a
// time. Only which rows are late is decided in order.
func (w *withLearned) stages() []Stage {
	stages := append(w.Rows.stages(),
		local(trace.Plan, "learned", w.plan),
		collective(trace.Exchange, "learned ids",
			func(m *Minibatch) (request, error) { return w.ask.StartAsk(&m.learned.plan), nil },
			nil),
		local(trace.Plan, "learned given", w.begin),
		ordered(trace.Plan, "learned late", nil, w.part),
		local(trace.Slice, "learned slice", w.slice),
		collective(trace.Exchange, "learned rows",
			func(m *Minibatch) (request, error) { return m.learned.late.StartEarly(w.ask), nil },
			nil),
		local(trace.Gather, "learned spread",
			func(m *Minibatch) error { m.learned.late.Spread(w.ask); return nil }))
	if w.nodes == nil {
		return stages
	}
	early := w.half("learned early ", false)
	stages = append(append(stages, w.planHalf(early, false)), early.stages()...)
	stages = append(stages, local(trace.Gather, "learned early put", func(m *Minibatch) error {
		e := &m.learned
		e.late.PutApart(w.nodes, &e.halves[0], false, 0, len(e.late.Apart(false)))
		return nil
	}))
	if !w.waits {
		return stages
	}
	late := w.half("learned late ", true)
	stages = append(append(stages, w.planHalf(late, true)), late.unite()...)
	return append(stages, late.ask())
}

// half returns the route by which the early rows (or, if late is set, the late rows) come to a rank
// whose node fetches as one. The names of its stages begin with the text `what`.
func (w *withLearned) half(what string, late bool) route {
	k := 0
	if late {
		k = 1
	}
	return route{x: w.nodes, what: what, rank: w.nodes.Rank(),
		fetch: func(m *Minibatch) *exchange.Plan { return &m.learned.halves[k] }}
}

// planHalf is the stage that lists the rows which the route r requests.
func (w *withLearned) planHalf(r route, late bool) Stage {
	return local(trace.Plan, r.what+"plan", func(m *Minibatch) error {
		return r.x.Plan(r.fetch(m), m.learned.late.Apart(late))
	})
}

// plan finds the owners of the learned rows.
func (w *withLearned) plan(m *Minibatch) error {
	e := &m.learned
	if err := e.ask(w.ask, &m.edges, m.edges.Sources(&m.Sampled), w.learns); err != nil {
		return err
	}
	if m.Train {
		e.readers.makeLists(e, w.ask)
	}
	return nil
}

// ask plans the requests for the learned rows of a minibatch with these edges and vertices. The
// argument learns[t] says whether type t learns rows.
func (e *learnedOf) ask(x *exchange.Exchange, edges *LayerEdges, vertices []graph.VertexID,
	learns []bool) error {
	e.ids = mem.Grow(e.ids[:0], len(vertices))[:0]
	if len(e.first) != len(learns) {
		e.first = make([]int, len(learns))
	}
	e.types = e.types[:0]
	for t, is := range learns {
		if lo, hi := edges.sources(t, len(learns), len(vertices)); is {
			e.first[t] = len(e.ids)
			e.types = append(e.types, ofLearned{kind: t, first: len(e.ids), vertices: hi - lo,
				lo: edges.First(t), read: hi - lo})
			e.ids = append(e.ids, vertices[lo:hi]...)
		}
	}
	e.means.list(edges, learns, e.first)
	e.read = 0
	for i := range e.types {
		of := &e.types[i]
		if a := &e.means.types[of.kind]; a.averaged {
			of.read = a.rows()
		}
		of.at = e.read
		e.read += of.read
	}
	if err := x.Find(&e.plan, e.ids); err != nil {
		return err
	}
	x.Request(&e.plan, e.ids, exchange.Wants{Edges: &e.means.Edges})
	return nil
}

// begin lists what other ranks ask for, and the gradients that they will return.
func (w *withLearned) begin(m *Minibatch) error {
	e := &m.learned
	if err := e.late.Begin(&e.plan, w.nodes != nil); err != nil {
		return err
	}
	if m.Train {
		e.given.list(&e.late, w.ranks, &w.places)
	}
	return nil
}

// part separates late rows from early ones. It is called for one minibatch after the other, in
// order. It also notes the rows of sums, because a sum is late if one of its rows is.
func (w *withLearned) part(m *Minibatch) error {
	e := &m.learned
	if e.waits = false; !m.Train {
		return nil
	}
	since := w.under.begin(m.Key)
	e.waits = since < w.under.step
	for rank := range w.ranks {
		for place, own := range e.late.Asked(rank) {
			if w.under.read(own) >= since {
				e.late.Put(rank, place)
			}
		}
		for place, own := range e.late.Members(rank) {
			if w.under.read(own) >= since {
				e.late.Put(rank, place)
			}
		}
	}
	for _, own := range e.own {
		w.under.read(own)
	}
	return nil
}

// slice makes the early rows and sums that others ask for.
func (w *withLearned) slice(m *Minibatch) error {
	l := &m.learned.late
	l.Cut()
	l.Make(w.ask, false, 0, l.Vectors(false))
	return nil
}

// underWay knows which steps may be under way when a minibatch passes the gate. These are the steps
// of the minibatches just before it; their number is the depth of the pipeline. From the ids that
// ranks send, the owner of a row learns which steps read the row, and so change it. Therefore
// timing does not affect which rows are late, and no step changes an early row of a minibatch
// between its fetch and its training.
type underWay struct {
	key    sample.Key
	step   int32   // number of the current step, from 1
	items  int     // number of minibatches so far
	begun  []int32 // [depth+1] step of minibatch i, at index i % (depth+1)
	last   []int32 // [own vertices] number of the last step that reads the row; 0 if none does
	before []int32 // [own vertices] number of the step before last that reads the row; 0 if none
}

func newUnderWay(depth, own int) underWay {
	return underWay{begun: make([]int32, depth+1), last: mem.Make[int32](own),
		before: mem.Make[int32](own)}
}

// begin begins the next minibatch. It returns the first step that may be under way.
func (u *underWay) begin(k sample.Key) (since int32) {
	if u.items == 0 || k.Epoch != u.key.Epoch || k.Step != u.key.Step {
		u.key = k
		u.step++
	}
	n := len(u.begun)
	u.begun[u.items%n] = u.step
	since = u.begun[max(0, u.items-n+1)%n]
	u.items++
	return since
}

// read notes that the minibatch reads the row of an own vertex. It returns the last earlier step
// that reads the row.
func (u *underWay) read(own int32) int32 {
	if u.last[own] < u.step {
		u.before[own], u.last[own] = u.last[own], u.step
	}
	return u.before[own]
}

func (u *underWay) bytes() int64 { return 4 * int64(cap(u.last)+cap(u.before)) }

func (u *underWay) free() {
	mem.Free(u.last)
	mem.Free(u.before)
}

// sources returns the range of the sources of type t in the input layer, for a graph with the given
// number of types. The argument `vertices` is the number of the graph's vertices.
func (e *LayerEdges) sources(t, types, vertices int) (lo, hi int) {
	if types == 1 && !e.sorted {
		return 0, vertices
	}
	return e.order.begin(t), e.Types()[t]
}

// counters implements Rows. Of learned rows it counts only those that the node fetches as one. The
// step counts all others.
func (w *withLearned) counters(m *Minibatch) (trace.Counters, error) {
	c, err := w.Rows.counters(m)
	for k := range m.learned.halves {
		if w.nodes != nil && (k == 0 || w.waits) {
			c.NodeBytes += m.learned.halves[k].NodeBytes
		}
	}
	return c, err
}

func (w *withLearned) bytes() (int64, int64) {
	exchange, idle := w.Rows.bytes()
	if w.nodes != nil {
		exchange += w.nodes.Bytes()
	}
	return exchange + w.ask.Bytes() + w.under.bytes() + w.places.bytes(), idle
}

func (w *withLearned) close() error {
	w.under.free()
	w.places.free()
	return w.Rows.close()
}

// learning is Between for models that learn rows: the late rows arrive before the first layer, and
// the gradients of all learned rows go to their owners after its backward. It works in tiles on the
// threads of the device, on indices that were listed while the minibatch was prepared.
type learning struct {
	LearnedRows
	model  *nn.Model
	device compute.Device
	host   compute.Host

	rank, ranks int
	late        bool    // rows may be late
	back        request // the gradients of a minibatch on their way to the rows' owners
}

func (r *learning) forward(m *Minibatch, l int, in *nn.Input, phases Phases) error {
	if l > 0 {
		return nil
	}
	if err := m.point(fault.Shuffle, r.rank); err != nil {
		return err
	}
	e := &m.learned
	if e.waits {
		phases.End(trace.Forward)
		phases.Begin(trace.Shuffle)
		if err := r.receiveLate(e); err != nil {
			return err
		}
		phases.End(trace.Shuffle)
		phases.Begin(trace.Forward)
	}
	x := matrixOf(&e.rows, compute.Float32s, e.read, r.Rows.Cols)
	for _, of := range e.types {
		to := x.RowsAt(of.at, of.at+of.read)
		r.readInput(to, m, of)
		if len(in.Types) > 0 {
			in.Types[of.kind] = to
		} else {
			in.X = to
		}
	}
	in.Gradient = in.Train && !in.Folded
	r.count(m)
	return nil
}

// receiveLate brings the late rows and sums to their places.
func (r *learning) receiveLate(e *learnedOf) error {
	if r.moves() {
		r.tiles(e.late.Vectors(true), func(lo, hi int) { e.late.Make(r.Move, true, lo, hi) })
		if err := e.late.StartLate(r.Move).Wait(); err != nil {
			return err
		}
		r.tiles(e.late.Landed(), func(lo, hi int) { e.late.Land(r.Move, lo, hi) })
	}
	if r.NodesMove == nil {
		return nil
	}
	if err := r.NodesMove.Complete(&e.halves[1]); err != nil {
		return err
	}
	r.tiles(len(e.late.Apart(true)), func(lo, hi int) {
		e.late.PutApart(r.NodesMove, &e.halves[1], true, lo, hi)
	})
	return nil
}

// moves reports whether Move brings late rows or sums.
func (r *learning) moves() bool { return r.NodesMove == nil || r.Move.MakesSums() }

// tileRows is the number of rows of a tile: few enough that two threads both get tiles. A tile is
// about 10 us of work.
const tileRows = 64

// tiles calls the function `work` for ranges that cover n rows, on the threads of the device.
func (r *learning) tiles(n int, work func(lo, hi int)) {
	compute.InTiles(r.device, (n+tileRows-1)/tileRows, func(i int) {
		work(i*tileRows, min((i+1)*tileRows, n))
	})
}

// readInput sets x to what the input layer reads of the vertex type that the argument of describes:
// its rows or their means.
func (r *learning) readInput(x compute.Matrix, m *Minibatch, of ofLearned) {
	e, rows := &m.learned, r.Move.RowsOf(&m.learned.plan, of.kind)
	a := &e.means.types[of.kind]
	if !a.averaged {
		r.tiles(of.read, func(lo, hi int) {
			part := rows
			part.Of = rows.Of[of.first+lo : of.first+hi]
			r.host.GatherRows(x.RowsAt(lo, hi), part)
		})
		return
	}
	rows.Mixed = true // the tables may have rows of other sizes, which no mean reads
	at := 0
	for _, s := range [...]span{a.means, a.own} {
		to := x.RowsAt(at, at+s.len())
		at += s.len()
		r.tiles(s.len(), func(lo, hi int) {
			r.host.SegmentRows(to.RowsAt(lo, hi), compute.ReduceMean,
				e.means.segments(span{s.first + lo, s.first + hi}), nil, rows)
		})
	}
}

// count adds the received rows and sums to the counters, and also the bytes of ids, late bits, rows
// and sums, and in training the bytes of the gradients.
func (r *learning) count(m *Minibatch) {
	e, p, moved := &m.learned, &m.learned.plan, &m.moved
	size := int64(4 * r.Rows.Cols)
	sent, got := e.late.Bits()
	sends, gets := p.Vectors()
	moved.Bytes += p.IDBytes + int64(sent)
	moved.Got += p.ServedIDBytes() + int64(got)
	moved.Collectives += 2
	if m.Train { // gradients
		moved.Rows, moved.Sums = moved.Rows+gets, moved.Sums+p.Sums
		moved.Bytes, moved.Got = moved.Bytes+gets*size, moved.Got+sends*size
		moved.Collectives++
	}
	moved.Sums += p.Sums
	if e.waits {
		sent, got = e.late.Rows()
		moved.Late += int64(got)
		moved.LateBytes += int64(sent) * size
		if r.moves() {
			moved.Collectives++
		}
	}
	if r.NodesMove == nil {
		moved.Rows, moved.Bytes, moved.Got = moved.Rows+gets, moved.Bytes+sends*size,
			moved.Got+gets*size
		return
	}
	sums := p.Sums
	moved.Rows += sums
	moved.Bytes, moved.Got = moved.Bytes+r.sumsSent(e)*size, moved.Got+sums*size
	for k := range e.halves {
		h := &e.halves[k]
		if k == 1 && !r.late {
			break
		}
		moved.Collectives += h.Collectives
		moved.Bytes, moved.Got = moved.Bytes+h.IDBytes, moved.Got+h.ServedIDBytes()
		if k == 1 && !e.waits {
			break
		}
		moved.Rows, moved.Shared = moved.Rows+h.Remote, moved.Shared+h.Shared
		moved.Bytes, moved.Got = moved.Bytes+h.RowBytes, moved.Got+h.Came()
		if k == 1 {
			moved.Late, moved.LateBytes = moved.Late+h.Remote, moved.LateBytes+h.RowBytes
		}
	}
}

// sumsSent returns how many sums this rank sends.
func (r *learning) sumsSent(e *learnedOf) (n int64) {
	for rank := range r.ranks {
		n += int64(e.late.Sums(rank))
	}
	return n
}

// weigh sends the gradients of the rows that the first layer has read to the rows' owners. They
// travel while the last weight gradients are summed over the ranks.
func (r *learning) weigh(m *Minibatch, l int, grad compute.Matrix, _ Phases) error {
	if l > 0 {
		return nil
	}
	e, p := &m.learned, &m.learned.plan
	x := r.gradient(e, grad)
	e.readers.add(r.device, p.Received(), false, x)
	r.back = r.Move.StartBack(p)
	e.readers.add(r.device, r.Rows.Add(r.rank, e.own), true, x)
	return nil
}

// end adds the gradients that other ranks have sent for this rank's rows.
func (r *learning) end(m *Minibatch, phases Phases) error {
	phases.End(trace.Backward)
	phases.Begin(trace.Shuffle)
	if err := r.back.Wait(); err != nil {
		return err
	}
	phases.End(trace.Shuffle)
	phases.Begin(trace.Backward)
	e := &m.learned
	for rank := range r.ranks {
		if rank != r.rank {
			own, of := e.given.verticesReadBy(rank)
			r.device.SegmentSum(r.Rows.Add(rank, own), of, nil, e.plan.Returned(), false)
		}
	}
	return nil
}

// gradient returns the gradient of what the input layer has read of learned types, in the memory of
// that input.
func (r *learning) gradient(e *learnedOf, grad compute.Matrix) (x compute.Matrix) {
	all := matrixOf(&e.rows, compute.Float32s, e.read, r.Rows.Cols)
	for _, of := range e.types {
		x = r.model.RowGradient(all.RowsAt(of.at, of.at+of.read), of.kind,
			grad.RowsAt(of.lo, of.lo+of.read))
	}
	if len(e.types) == 1 {
		return x
	}
	return all
}
