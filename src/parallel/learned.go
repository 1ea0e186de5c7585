package parallel

import (
	"errors"
	"iter"

	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/fault"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/npy"
	"halognn/src/sample"
	"halognn/src/trace"
)

// LearnedRows are the learned rows of a strategy that trains. Two exchanges of them, which are equal but
// for their communicators, serve the preparation of minibatches and the step.
type LearnedRows struct {
	Rows      *nn.Learned
	Ask, Move *exchange.Exchange
}

// withLearned is Rows for models that learn rows: these are fetched as others are while a minibatch is
// prepared, but for those that a step under way changes, which cross late, when it has. At depth 0 none
// is under way. Gradients go back the same way.
//
//	preparing   frontier ──> ids ───────────────> owner
//	            rows     <─────────────────────── early
//	step        rows     <─────────────────────── late           forward
//	            gradients ──────────────────────> Learned.Add    backward
//	update                                        Learned.Update
type withLearned struct {
	Rows
	ask    *exchange.Exchange
	learns []bool
	ranks  int
	under  underWay
	sums   *learnedSums // of the step
}

// learnedOf are the learned rows that a minibatch reads.
type learnedOf struct {
	ids   []graph.VertexID // type by type
	first []int            // [T] where those of a type begin
	own   []int32          // own vertices of them
	plan  exchange.Plan
	late  exchange.Late
	waits bool         // some rank may have late rows
	means learnedMeans // of types that are averaged
	rows  []float32    // what the input layer reads of each type
	grads []float32    // [own, cols]
}

func (e *learnedOf) bytes() int64 {
	return 4*int64(cap(e.ids)+cap(e.rows)+cap(e.own)+cap(e.grads)) + e.plan.Bytes() + e.late.Bytes() +
		e.means.bytes()
}

// makeRoom makes room for the gradients of own rows.
func (e *learnedOf) makeRoom(cols int) { e.grads = mem.Grow(e.grads[:0], len(e.own)*cols)[:0] }

func (e *learnedOf) free() {
	mem.Free(e.ids)
	mem.Free(e.rows)
	mem.Free(e.own)
	mem.Free(e.grads)
	e.plan.Free()
	e.late.Free()
	e.means.free()
}

// addLearned adds the fetching of learned rows to a strategy that trains a model with some.
func addLearned(s *Strategy) error {
	o := s.o.Learned
	if o.Rows == nil {
		return nil
	}
	if compute.CapabilitiesOf(s.o.Device).Accelerator != nil {
		return errors.New("rows are learned on CPUs alone: set compute.device=cpu")
	}
	learns, rank := s.o.Model.Config.Learns, s.o.Comm.Rank()
	own := int(s.o.Rows[rank+1] - s.o.Rows[rank])
	sums := new(learnedSums)
	if o.Ask.Adds() {
		sums.at = mem.Make[int32](own)
	}
	s.rows = &withLearned{s.rows, o.Ask, learns, s.o.Comm.Size(), newUnderWay(s.o.Depth, own), sums}
	r := &learning{o, s.o.Model, s.o.Device, s.o.Host, learns, rank, s.o.Comm.Size(), sums}
	s.between = Between{forward: r.forward, weigh: r.weigh}
	return nil
}

// stages implements Rows. Those of learned rows come last, beyond the gate of a cache that looks ahead:
// at most depth minibatches are between them and their step.
func (w *withLearned) stages() []Stage {
	return append(w.Rows.stages(),
		local(trace.Plan, "learned", w.plan),
		collective(trace.Exchange, "learned ids",
			func(m *Minibatch) (request, error) { return w.ask.StartAsk(&m.learned.plan), nil }, w.part),
		local(trace.Slice, "learned slice",
			func(m *Minibatch) error { return m.learned.late.Slice(w.ask, false) }),
		collective(trace.Exchange, "learned rows",
			func(m *Minibatch) (request, error) { return m.learned.late.StartEarly(w.ask), nil }, nil),
		local(trace.Gather, "learned spread",
			func(m *Minibatch) error { m.learned.late.Spread(w.ask); return nil }))
}

// plan finds who has the learned rows.
func (w *withLearned) plan(m *Minibatch) error {
	return m.learned.ask(w.ask, &m.edges, m.edges.Sources(&m.Sampled), w.learns)
}

// ask plans what is asked of the learned rows of a minibatch, of whose edges and vertices types learn
// some.
func (e *learnedOf) ask(x *exchange.Exchange, edges *LayerEdges, vertices []graph.VertexID,
	learns []bool) error {
	e.ids = mem.Grow(e.ids[:0], len(vertices))[:0]
	if len(e.first) != len(learns) {
		e.first = make([]int, len(learns))
	}
	for t, is := range learns {
		if lo, hi := edges.sources(t, len(learns), len(vertices)); is {
			e.first[t] = len(e.ids)
			e.ids = append(e.ids, vertices[lo:hi]...)
		}
	}
	e.means.list(edges, learns, e.first)
	if err := x.Find(&e.plan, e.ids); err != nil {
		return err
	}
	x.Request(&e.plan, e.ids, exchange.Wants{Edges: &e.means.Edges})
	return nil
}

// asked counts the vertices of each rank whose rows are read, themselves or in sums.
func (e *learnedOf) asked(x *exchange.Exchange) []int {
	of := make([]int, x.Ranks())
	for _, part := range e.plan.Parts {
		if rank := x.OwnerOf(int(part)); rank != x.Rank() {
			of[rank]++
		}
	}
	return of
}

// part decides which rows are late. Minibatches come in order.
func (w *withLearned) part(m *Minibatch) error {
	e := &m.learned
	if err := e.late.Begin(&e.plan); err != nil {
		return err
	}
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
	e.own = mem.Grow(e.own[:0], len(e.ids))[:0]
	for i, v := range e.ids {
		if e.plan.Landing(i) == nil {
			e.own = append(e.own, int32(v-w.ask.First()))
			w.under.read(int32(v - w.ask.First()))
		}
	}
	return nil
}

// underWay knows which steps may be under way when a minibatch passes the gate: those of the depth
// minibatches before it. From the ids that reach the owner of a row it knows which steps read the
// row, and so change it. So which rows are late depends on no clock, and no step changes the early
// rows of a minibatch before it is trained.
type underWay struct {
	key    sample.Key
	step   int32   // the number of its step, from 1
	items  int     // minibatches so far
	begun  []int32 // [depth+1] the step of minibatch i, at i % (depth+1)
	last   []int32 // [own vertices] the last step that reads the row; 0: none
	before []int32 // and the one before
}

func newUnderWay(depth, own int) underWay {
	return underWay{begun: make([]int32, depth+1), last: mem.Make[int32](own),
		before: mem.Make[int32](own)}
}

// begin begins the next minibatch. It returns the first of the steps that may be under way.
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

// sources returns where the sources of type t begin and end in the input layer, for a graph with
// that many types, of so many vertices.
func (e *LayerEdges) sources(t, types, all int) (lo, hi int) {
	if types == 1 && !e.sorted {
		return 0, all
	}
	return e.order.begin(t), e.Types()[t]
}

func (w *withLearned) bytes() (int64, int64) {
	exchange, idle := w.Rows.bytes()
	return exchange + w.ask.Bytes() + w.under.bytes() + w.sums.bytes(), idle
}

func (w *withLearned) close() error {
	w.under.free()
	w.sums.free()
	return w.Rows.close()
}

// learning is Between for models that learn rows: before the first layer the late ones come from their
// owners, and after its backward the gradients of all go there.
type learning struct {
	LearnedRows
	model  *nn.Model
	device compute.Device
	host   compute.Host
	learns []bool

	rank, ranks int
	sums        *learnedSums
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
		if err := e.late.Slice(r.Move, true); err != nil {
			return err
		}
		if err := e.late.StartLate(r.Move).Wait(); err != nil {
			return err
		}
		e.late.Land(r.Move)
		phases.End(trace.Shuffle)
		phases.Begin(trace.Forward)
	}
	all := 0
	for _, of := range r.types(m) {
		all += of.read
	}
	x, at := matrixOf(&e.rows, compute.Float32s, all, r.Rows.Cols), 0
	for t, of := range r.types(m) {
		to := x.RowsAt(at, at+of.read)
		at += of.read
		r.read(to, m, t, of)
		if len(in.Types) > 0 {
			in.Types[t] = to
		} else {
			in.X = to
		}
	}
	in.Gradient = in.Train
	r.count(m)
	return nil
}

// read sets x to what the input layer reads of a type: its rows, or their means.
func (r *learning) read(x compute.Matrix, m *Minibatch, t int, of ofLearned) {
	a, rows := &m.learned.means, r.Move.RowsOf(&m.learned.plan, t)
	if !a.types[t].averaged {
		rows.Of = rows.Of[of.first : of.first+of.read]
		r.host.GatherRows(x, rows)
		return
	}
	means, own := a.types[t].means, a.types[t].own
	r.host.SegmentRows(x.RowsAt(0, means.len()), compute.ReduceMean, a.segments(means), nil, rows)
	r.host.SegmentRows(x.RowsAt(means.len(), x.Rows), compute.ReduceMean, a.segments(own), nil, rows)
}

// ofLearned says where the rows of a type lie: from first on in the list of vertices, and from lo on
// among those that the input layer reads, which are as many as read.
type ofLearned struct{ first, lo, read int }

// types yields the types whose rows are learned.
func (r *learning) types(m *Minibatch) iter.Seq2[int, ofLearned] {
	return func(yield func(int, ofLearned) bool) {
		first := 0
		for t, learns := range r.learns {
			if !learns {
				continue
			}
			lo, hi := m.edges.sources(t, len(r.learns), len(m.Sampled.Frontier))
			of := ofLearned{first, m.edges.First(t), hi - lo}
			if first += hi - lo; m.learned.means.types[t].averaged {
				of.read = m.learned.means.types[t].rows()
			}
			if !yield(t, of) {
				return
			}
		}
	}
}

// count adds the rows and sums received, the bytes of ids, late bits, rows and sums, and in training
// the gradients.
func (r *learning) count(m *Minibatch) {
	e, p, ways := &m.learned, &m.learned.plan, int64(1)
	if m.Train {
		ways = 2
	}
	size := int64(4 * r.Rows.Cols)
	sent, got := e.late.Bits()
	served, read := p.Vectors()
	m.moved.Rows += ways * read
	m.moved.Sums += ways * p.Sums
	m.moved.Bytes += p.IDBytes + int64(sent) + (served+(ways-1)*read)*size
	m.moved.Got += p.ServedIDBytes() + int64(got) + (read+(ways-1)*served)*size
	m.moved.Collectives += 1 + ways
	if e.waits {
		sent, got = e.late.Rows()
		m.moved.Late += int64(got)
		m.moved.LateBytes += int64(sent) * size
		m.moved.Collectives++
	}
}

// weigh sends the gradients of the rows that the first layer has read to the owners of these.
func (r *learning) weigh(m *Minibatch, l int, grad compute.Matrix, phases Phases) error {
	if l > 0 {
		return nil
	}
	e, p, cols := &m.learned, &m.learned.plan, r.Rows.Cols
	e.makeRoom(cols)
	averaged, err := r.averaged(m, grad)
	if err != nil {
		return err
	}
	for t, of := range r.types(m) {
		lo, hi := m.edges.sources(t, len(r.learns), len(m.Sampled.Frontier))
		var g compute.Matrix
		if e.means.types[t].averaged {
			g = averaged.RowsAt(of.first, of.first+hi-lo)
		} else {
			if g, err = r.model.RowGradient(t, grad.RowsAt(of.lo, of.lo+of.read)); err != nil {
				return err
			}
		}
		for i := range g.Rows {
			e.give(of.first+i, g.Row(i), e.means.types[t].averaged)
		}
	}
	for i := len(e.ids); i < averaged.Rows; i++ { // of sums
		e.give(i, averaged.Row(i), true)
	}
	phases.End(trace.Backward)
	phases.Begin(trace.Shuffle)
	if err := r.Move.StartBack(p).Wait(); err != nil {
		return err
	}
	phases.End(trace.Shuffle)
	phases.Begin(trace.Backward)
	for rank := range r.ranks {
		own, grads := e.own, e.grads
		if rank != r.rank {
			back := npy.View[float32](p.Returned(rank))
			own, grads = r.sums.spread(r.device, &e.late, rank, back, cols)
		}
		r.Rows.Add(rank, own, grads)
	}
	return nil
}

// give puts the gradient of the row, or the sum, at a place to where it goes.
func (e *learnedOf) give(place int, grad []float32, averaged bool) {
	to := e.plan.Landing(place)
	switch {
	case to == nil:
		e.grads = append(e.grads, grad...)
	case !averaged || e.means.read(place): // else it is of a vertex that is in sums alone
		copy(to, mem.Bytes(grad))
	}
}

// averaged returns the gradients of the rows of types that are averaged, at their places, and of
// sums.
func (r *learning) averaged(m *Minibatch, grad compute.Matrix) (rows compute.Matrix, err error) {
	e := &m.learned
	if e.means.count() == 0 {
		return rows, nil
	}
	sums := e.means.gradients(r.Rows.Cols)
	for t, of := range r.types(m) {
		if !e.means.types[t].averaged {
			continue
		}
		g, err := r.model.RowGradient(t, grad.RowsAt(of.lo, of.lo+of.read))
		if err != nil {
			return rows, err
		}
		e.means.back(sums, t, g)
	}
	return e.means.spread(r.device, len(e.plan.Rows.Of), sums), nil
}
