package parallel

import (
	"errors"

	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/fault"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/npy"
	"halognn/src/trace"
)

// LearnedRows are the learned rows of a strategy that trains. Two exchanges of them, which are equal but
// for their communicators, serve the preparation of minibatches and the step.
type LearnedRows struct {
	Rows      *nn.Learned
	Ask, Move *exchange.Exchange
}

// withLearned is Rows for models that learn rows: while a minibatch is prepared, the owners of the
// learned rows that it reads are told. The rows themselves are those after the step before, so they
// cross in the step, and their gradients go back the same way.
//
//	preparing   frontier ──> ids ─────────────────────────> owner
//	step        rows     <───────────────────────────────── slice        forward
//	            gradients ────────────────────────────────> Learned.Add  backward
//	update                                                  Learned.Update
type withLearned struct {
	Rows
	ask    *exchange.Exchange
	learns []bool
}

// learnedOf are the learned rows that a minibatch reads.
type learnedOf struct {
	ids   []graph.VertexID // type by type
	plan  exchange.Plan
	asked []int32   // own vertices whose rows others read
	rows  []float32 // [ids, cols]
	own   []int32   // own vertices whose rows this rank reads, and
	grads []float32 // their gradients
}

func (e *learnedOf) bytes() int64 {
	return 4*int64(cap(e.ids)+cap(e.asked)+cap(e.rows)+cap(e.own)+cap(e.grads)) + e.plan.Bytes()
}

func (e *learnedOf) free() {
	mem.Free(e.ids)
	mem.Free(e.asked)
	mem.Free(e.rows)
	mem.Free(e.own)
	mem.Free(e.grads)
	e.plan.Free()
}

// addLearned makes a strategy read learned rows, if its model does and is trained.
func addLearned(s *Strategy) error {
	o := s.o.Learned
	if o.Rows == nil {
		return nil
	}
	if compute.CapabilitiesOf(s.o.Device).Accelerator != nil {
		return errors.New("rows are learned on CPUs alone: set compute.device=cpu")
	}
	learns := s.o.Model.Config.Learns
	s.rows = &withLearned{s.rows, o.Ask, learns}
	s.between = &learning{s.o.Learned, s.o.Model, s.o.Host, learns, s.o.Comm.Rank(), s.o.Comm.Size()}
	return nil
}

func (w *withLearned) stages() []Stage {
	return append([]Stage{
		local(trace.Plan, "learned", w.plan),
		collective(trace.Exchange, "learned ids",
			func(m *Minibatch) (request, error) { return w.ask.StartAsk(&m.learned.plan), nil }, nil),
	}, w.Rows.stages()...)
}

// plan finds who has the learned rows.
func (w *withLearned) plan(m *Minibatch) error {
	e, vertices := &m.learned, m.edges.Sources(&m.Sampled)
	e.ids = mem.Grow(e.ids[:0], len(vertices))[:0]
	for t, learns := range w.learns {
		if lo, hi := m.sources(t, len(w.learns)); learns {
			e.ids = append(e.ids, vertices[lo:hi]...)
		}
	}
	return w.ask.Plan(&e.plan, e.ids)
}

// sources returns where the sources of the input layer of type t, of so many, begin and end.
func (m *Minibatch) sources(t, types int) (lo, hi int) {
	if types == 1 && !m.edges.sorted {
		return 0, len(m.Sampled.Frontier)
	}
	if t > 0 {
		lo = m.edges.Types()[t-1]
	}
	return lo, m.edges.Types()[t]
}

func (w *withLearned) bytes() (int64, int64) {
	exchange, idle := w.Rows.bytes()
	return exchange + w.ask.Bytes(), idle
}

// learning is the Between of models that learn rows: before the first layer these come from their
// owners, and after its backward their gradients go there.
type learning struct {
	LearnedRows
	model  *nn.Model
	host   compute.Host
	learns []bool

	rank, ranks int
}

func (*learning) arrived() error { return nil } // each message is waited for

func (r *learning) forward(m *Minibatch, l int, in *nn.Input, phases Phases) error {
	if l > 0 {
		return nil
	}
	if err := m.point(fault.Shuffle, r.rank); err != nil {
		return err
	}
	phases.End(trace.Forward)
	phases.Begin(trace.Shuffle)
	e, p := &m.learned, &m.learned.plan
	e.asked = mem.Grow(e.asked[:0], len(p.Asked()))
	copy(e.asked, p.Asked())
	if err := r.Move.SliceRows(p); err != nil {
		return err
	}
	if err := r.Move.StartRows(p).Wait(); err != nil {
		return err
	}
	phases.End(trace.Shuffle)
	phases.Begin(trace.Forward)
	rows := p.Rows
	rows.Cols, rows.Type = r.Rows.Cols, compute.Float32
	x := matrixOf(&e.rows, len(e.ids), rows.Cols)
	r.host.GatherRows(x, rows)
	err := r.each(m, func(t, first, n, lo int) error {
		if of := x.RowsAt(first, first+n); len(in.Types) > 0 {
			in.Types[t] = of
		} else {
			in.X = of
		}
		return nil
	})
	if err != nil {
		return err
	}
	in.Gradient = in.Train
	r.count(m)
	return nil
}

// each calls f with every type whose rows are learned: the first of its n rows in ids, and among the
// sources of the input layer.
func (r *learning) each(m *Minibatch, f func(t, first, n, lo int) error) error {
	first := 0
	for t, learns := range r.learns {
		if !learns {
			continue
		}
		lo, hi := m.sources(t, len(r.learns))
		if err := f(t, first, hi-lo, lo); err != nil {
			return err
		}
		first += hi - lo
	}
	return nil
}

// count adds the rows that came, and the bytes of ids and of rows; of gradients as many, if trained.
func (r *learning) count(m *Minibatch) {
	p, ways := &m.learned.plan, int64(1)
	if m.Train {
		ways = 2
	}
	size := int64(4 * r.Rows.Cols)
	m.moved.Rows += ways * p.Remote
	m.moved.Bytes += p.IDBytes + p.Served*size + (ways-1)*p.Remote*size
	m.moved.Got += p.Served*exchange.IDBytes + p.Remote*size + (ways-1)*p.Served*size
	m.moved.Rounds += 1 + ways
}

// weigh sends the gradients of the rows that the first layer has read to the owners of these.
func (r *learning) weigh(m *Minibatch, l int, grad compute.Matrix, phases Phases) error {
	if l > 0 {
		return nil
	}
	e, p, cols := &m.learned, &m.learned.plan, r.Rows.Cols
	e.own, e.grads = mem.Grow(e.own[:0], len(e.ids))[:0], mem.Grow(e.grads[:0], len(e.ids)*cols)[:0]
	err := r.each(m, func(t, first, n, lo int) error {
		g, err := r.model.RowGradient(t, grad.RowsAt(lo, lo+n))
		for i := 0; i < n && err == nil; i++ {
			if to := p.Landing(first + i); to != nil {
				copy(to, mem.Bytes(g.Row(i)))
				continue
			}
			e.own = append(e.own, int32(e.ids[first+i]-r.Move.First()))
			e.grads = append(e.grads, g.Row(i)...)
		}
		return err
	})
	if err != nil {
		return err
	}
	phases.End(trace.Backward)
	phases.Begin(trace.Shuffle)
	if err := exchange.StartBack(r.Move, p).Wait(); err != nil {
		return err
	}
	phases.End(trace.Shuffle)
	phases.Begin(trace.Backward)
	for rank := range r.ranks {
		own, grads := e.own, e.grads
		if rank != r.rank {
			back, from, to := p.Returned(rank)
			own, grads = e.asked[from:to], npy.View[float32](back)
		}
		r.Rows.Add(rank, own, grads)
	}
	return nil
}

func (r *learning) backward(_ *Minibatch, _ int, grad compute.Matrix, _ Phases) (compute.Matrix, error) {
	return grad, nil
}
func (*learning) bytes() (allocated, pinned int64) { return 0, 0 } // they outlive strategies
func (*learning) close() error                     { return nil }
