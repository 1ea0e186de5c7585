package parallel

import (
	"errors"
	"fmt"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// remoteDrawer draws minibatches where each rank holds only the in-edges of its own vertices. A hop
// with frontier vertices of other ranks takes two collectives of the pipeline:
//
//	local     collective   local          collective      local
//	sample ──> ask 2 ─────> answer 2 ────> reply 2 ──────> extend 2 ──> ask 3
//	seeds,     ids to the   draws for      sizes and       block,
//	hop 1      owners       the askers     neighbours back next frontier
//
// Counts and sizes precede the payloads, so that receivers know how long these are.
//
// The key of a minibatch stays with its rank. The rank sends owners the random word of the hop, so
// that they make the same draws as the rank itself would make.
type remoteDrawer struct {
	o        DrawerOptions
	ranks    int
	parts    graph.PartIndex // finds the rank that owns a vertex
	first    int             // the first hop that asks
	comm     comm.Comm       // for all hops; nil if no hop asks
	ones     []int           // [K] 1 for every rank, because each gets one count
	samplers pool[*sample.Remote]
	idle     chan remoteDraws // states that no minibatch uses at present
	drawn
}

// remoteDraws is the state of a minibatch's draws between two collectives. Its arrays are reused by
// the next hop. Once the minibatch is drawn, another minibatch gets them, because a drawn minibatch
// may wait long and does not need them.
type remoteDraws struct {
	asking sample.Asking
	answer sample.Answer

	d           *remoteDrawer
	asks, asked []int64  // [2K] for each rank: number of ids, and random word; sent and received
	words       []uint64 // [K] random words received from each rank
	wanted      []int    // [K] number of ids in wantIDs from each rank
	wantIDs     []graph.VertexID
	edges       []int // [K] number of neighbours that each rank returns
}

// newRemoteDrawer makes the samplers and communicators. The list `rows` [K+1] has the first vertex
// of each rank. If seeds may be vertices of any rank, `elsewhere` is true. Collective.
func newRemoteDrawer(
	c comm.Comm, rows []int64, elsewhere bool, o DrawerOptions, around drawn,
) (*remoteDrawer, error) {
	d := &remoteDrawer{
		o: o, ranks: c.Size(), parts: graph.NewPartIndex(rows), first: 2,
		samplers: make(pool[*sample.Remote], o.Samplers), drawn: around,
		idle: make(chan remoteDraws, o.Samplers+2*o.Sampling.Hops()),
	}
	if elsewhere {
		d.first = 1
	}
	for range d.ranks {
		d.ones = append(d.ones, 1)
	}
	for range o.Samplers {
		s, err := sample.NewRemote(o.Topology, o.Sampling)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.samplers <- s
	}
	var err error
	if d.comm, err = c.Dup(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *remoteDrawer) hops() int { return d.o.Sampling.Hops() }

// askingHops returns how many hops ask other ranks.
func (d *remoteDrawer) askingHops() int {
	if d.ranks == 1 {
		return 0
	}
	return max(0, d.hops()+1-d.first)
}

// close frees samplers and communicators.
func (d *remoteDrawer) close() error {
	d.samplers.free()
	for range len(d.idle) {
		r := <-d.idle
		r.free()
	}
	if d.comm == nil {
		return nil
	}
	return d.comm.Free()
}

// Bytes implements Draw.
func (d *remoteDrawer) Bytes() int64 {
	bytes := d.samplers.bytes()
	for range len(d.idle) {
		r := <-d.idle
		bytes += r.bytes()
		d.idle <- r
	}
	return bytes
}

// stages returns the stages from the seeds to the blocks.
func (d *remoteDrawer) stages() []Stage {
	stages := []Stage{local(trace.Sample, "sample", d.sample)}
	for i := range d.askingHops() {
		h := d.first + i
		stages = append(stages,
			d.asking(h, func(m *Minibatch) error { return d.extend(m, h) })...)
	}
	return stages
}

// asking returns the stages in which hop h asks other ranks. The last of them runs the function
// extend.
func (d *remoteDrawer) asking(h int, extend func(*Minibatch) error) []Stage {
	name := func(what string) string { return fmt.Sprintf("%s %d", what, h) }
	return []Stage{
		collective(trace.Ask, name("ask"), d.startAsk, nil),
		local(trace.Sample, name("answer"), d.answer),
		collective(trace.Ask, name("reply"), d.startReply, nil),
		local(trace.Sample, name("extend"), extend),
	}
}

// sample draws the hops that need no other rank, and prepares the requests of the first hop that
// does.
func (d *remoteDrawer) sample(m *Minibatch) error {
	if err := d.begin(m); err != nil {
		return err
	}
	m.Scored = m.Seeds
	select {
	case m.draws = <-d.idle:
	default:
	}
	alone := d.hops() - d.askingHops()
	return d.samplers.with(func(s *sample.Remote) error {
		if err := s.Begin(&m.Sampled, m.Seeds, d.hops()); err != nil {
			return err
		}
		d.o.copyLabels(m)
		for h := 1; h <= alone; h++ {
			if err := d.group(m, s, h); err != nil {
				return err
			}
			if n := m.draws.asking.Vertices(); n > 0 {
				return fmt.Errorf("%d seeds belong to other ranks; this is a bug in halognn", n)
			}
			err := errors.Join(s.Draw(&m.draws.asking), s.Extend(&m.Sampled, h, &m.draws.asking))
			if err != nil {
				return err
			}
		}
		return d.next(m, s, alone+1)
	})
}

// next groups the frontier for hop h, or completes the minibatch after the last hop.
func (d *remoteDrawer) next(m *Minibatch, s *sample.Remote, h int) error {
	if h <= d.hops() {
		return d.group(m, s, h)
	}
	s.End(&m.Sampled)
	d.o.digest(m)
	d.end(m)
	select {
	case d.idle <- m.draws:
	default:
		m.draws.free()
	}
	m.draws = remoteDraws{}
	return nil
}

func (d *remoteDrawer) group(m *Minibatch, s *sample.Remote, h int) error {
	return s.Ask(&m.draws.asking, &d.parts, d.ranks, d.rank, m.Sampled.Frontier, m.Key, h, m.Train)
}

// startAsk asks every rank to draw for its vertices in the minibatch, and sends the random word of
// the hop.
func (d *remoteDrawer) startAsk(m *Minibatch) (request, error) {
	if err := m.point(fault.Ask, d.rank); err != nil {
		return nil, err
	}
	r, count := &m.draws, &m.asked
	r.d = d
	r.asks, r.asked = mem.Grow(r.asks, 2*d.ranks), mem.Grow(r.asked, 2*d.ranks)
	if len(r.wanted) != d.ranks {
		r.wanted, r.words = make([]int, d.ranks), make([]uint64, d.ranks)
		r.edges = make([]int, d.ranks)
	}
	for k, n := range r.asking.Words {
		r.asks[2*k], r.asks[2*k+1] = int64(n), int64(r.asking.Word)
	}
	count.Asked += int64(r.asking.Vertices())
	count.Collectives++
	count.Bytes += int64(d.ranks)*sample.AskBytes + int64(len(r.asking.IDs))*sample.VertexBytes
	return d.comm.StartAlltoallThen(mem.Bytes(r.asks), mem.Bytes(r.asked), d.ones, d.ones,
		sample.AskBytes, comm.Then{Send: mem.Bytes(r.asking.IDs), SendRows: r.asking.Words,
			RowBytes: sample.VertexBytes, Expect: (*askedFor)(m)}), nil
}

// askedFor and repliedTo are a minibatch that implements comm.Expecter: askedFor for the requests
// of other ranks, repliedTo for the replies to this rank's requests.
type (
	askedFor  Minibatch
	repliedTo Minibatch
)

// Expect makes room for the vertices that other ranks ask about. Their counts have just arrived.
func (m *askedFor) Expect() ([]byte, []int, error) {
	r := &m.draws
	total, most := 0, int64(r.d.o.Topology.Graph.NumVertices())
	if l := r.d.o.Sampling.Links; l.Excludes() {
		most += l.MostLeftOut()
	}
	for k := range r.wanted {
		n := r.asked[2*k]
		if n < 0 || n > most {
			return nil, nil, fmt.Errorf(
				"rank %d asks for the neighbours of %d vertices of rank %d, which has fewer; the "+
					"two see different parts or memory is damaged: give all ranks the same "+
					"directory of parts, and run `halognn check` on it", k, n, r.d.rank)
		}
		r.wanted[k], r.words[k] = int(n), uint64(r.asked[2*k+1])
		total += int(n)
	}
	r.wantIDs = mem.Grow(r.wantIDs[:0], total)
	return mem.Bytes(r.wantIDs), r.wanted, nil
}

// answer draws for the ranks that ask, and for the minibatch's own vertices.
func (d *remoteDrawer) answer(m *Minibatch) error {
	r := &m.draws
	return d.samplers.with(func(s *sample.Remote) error {
		r.asking.Reserve(nil)
		if err := s.Answer(&r.answer, r.wantIDs, r.wanted, r.words, &r.asking); err != nil {
			return err
		}
		m.asked.Answered += int64(r.answer.Vertices)
		return s.Draw(&r.asking)
	})
}

// startReply sends each rank what its vertices have drawn: sizes and neighbours.
func (d *remoteDrawer) startReply(m *Minibatch) (request, error) {
	if err := m.point(fault.Reply, d.rank); err != nil {
		return nil, err
	}
	r, count := &m.draws, &m.asked
	count.Collectives++
	count.Bytes += int64(len(r.answer.Sizes)) + int64(len(r.answer.Neighbours))*sample.VertexBytes
	return d.comm.StartAlltoallThen(r.answer.Sizes, r.asking.Sizes, r.answer.Count, r.asking.Count,
		r.asking.Reply.Column(), comm.Then{Send: mem.Bytes(r.answer.Neighbours),
			SendRows: r.answer.Edges, RowBytes: r.asking.Reply.Edge, Expect: (*repliedTo)(m)}), nil
}

// Expect makes room for the neighbours that other ranks return. Their counts have just arrived.
func (m *repliedTo) Expect() ([]byte, []int, error) {
	r := &m.draws
	if err := r.asking.Edges(r.edges); err != nil {
		return nil, nil, err
	}
	r.asking.Reserve(r.edges)
	m.asked.Drawn += int64(len(r.asking.Neighbours) * sample.VertexBytes / r.asking.Reply.Edge)
	return mem.Bytes(r.asking.Neighbours), r.edges, nil
}

// extend adds the replies to the block, and asks for the next hop.
func (d *remoteDrawer) extend(m *Minibatch, h int) error {
	return d.samplers.with(func(s *sample.Remote) error {
		if err := s.Extend(&m.Sampled, h, &m.draws.asking); err != nil {
			return err
		}
		return d.next(m, s, h+1)
	})
}

func (r *remoteDraws) bytes() int64 {
	return r.asking.Bytes() + r.answer.Bytes() +
		int64(cap(r.asks)+cap(r.asked))*8 + int64(cap(r.wantIDs))*4
}

// free frees the arrays.
func (r *remoteDraws) free() {
	r.asking.Free()
	r.answer.Free()
	mem.Free(r.asks)
	mem.Free(r.asked)
	mem.Free(r.wantIDs)
}
