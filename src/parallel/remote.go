package parallel

import (
	"errors"
	"fmt"
	"slices"

	"halognn/src/comm"
	"halognn/src/fault"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
	"halognn/src/trace"
)

// remoteDrawer draws minibatches where every rank holds the in-edges of its own vertices alone. A
// hop whose frontier others own takes two rounds, each a collective of the pipeline:
//
//	local     collective                 local      collective                   local
//	sample ──> ask 2 ──────────────────> answer 2 ──> reply 2 ─────────────────> extend 2 ──> ask 3
//	seeds,     counts and words, ids     draws for    sizes, neighbours          block,
//	hop 1      to the owners             the askers   back                       next frontier
//
// A round first sends arrays of known length, counts or sizes, and then the arrays whose lengths
// these are. Whoever waits for the first half starts the second: to the pipeline a round is one
// collective, whose end waits for nothing but its start on all ranks.
//
// Every round has two communicators of its own: one for first halves, which the lane starts, and one
// for second halves, which one goroutine starts minibatch by minibatch. So all ranks start what is on
// one communicator in the same order, also in the last round before the gate of a look-ahead cache,
// after which a minibatch waits while the lane starts that round of the next.
//
// The key of a minibatch stays with its rank: owners are sent the word that names the draws, and so
// make those that the rank would make itself.
type remoteDrawer struct {
	o          DrawerOptions
	ranks      int
	parts      graph.PartIndex // of ranks
	first      int             // the first hop that has rounds
	ask, reply [][2]comm.Comm  // by hop, from first: of the first and of the second halves
	ones       []int           // [K] one count for every rank
	samplers   pool[*sample.Remote]
	idle       chan remoteDraws // of minibatches that are drawn
	drawn
}

// remoteDraws is what a minibatch carries from round to round. Arrays are reused by the next hop, and
// by another minibatch once this one is drawn: it may then wait in a window.
type remoteDraws struct {
	asking sample.Asking
	answer sample.Answer

	d           *remoteDrawer
	comm        comm.Comm // of the second half of the round under way
	half        request   // its first half
	asks, asked []int64   // [2K] count and word, by rank: sent, received
	words       []uint64  // [K] received
	wanted      []int     // [K] vertices that each rank asks for
	wantIDs     []graph.VertexID
	edges       []int // [K] neighbours that each rank returns
}

// newRemoteDrawer makes the samplers and communicators. rows [K+1] are the first vertices of each
// rank; elsewhere says that seeds may be vertices of any rank. Collective.
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
	d.ask, d.reply = make([][2]comm.Comm, d.rounds()), make([][2]comm.Comm, d.rounds())
	for i := range d.rounds() {
		for _, own := range []*comm.Comm{&d.ask[i][0], &d.ask[i][1], &d.reply[i][0], &d.reply[i][1]} {
			var err error
			if *own, err = c.Dup(); err != nil {
				return nil, errors.Join(err, d.close())
			}
		}
	}
	return d, nil
}

// hops of a minibatch.
func (d *remoteDrawer) hops() int { return d.o.Sampling.Hops() }

// rounds returns how many hops ask other ranks.
func (d *remoteDrawer) rounds() int {
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
	var errs []error
	for _, round := range slices.Concat(d.ask, d.reply) {
		for _, c := range round {
			if c != nil {
				errs = append(errs, c.Free())
			}
		}
	}
	return errors.Join(errs...)
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

// stages are those from the seeds to the blocks.
func (d *remoteDrawer) stages() []Stage {
	stages := []Stage{local(trace.Sample, "sample", d.sample)}
	for i := range d.rounds() {
		h := d.first + i
		stages = append(stages,
			d.round(h, func(m *Minibatch) error { return d.extend(m, h) })...)
	}
	return stages
}

// round returns the stages in which hop h asks, and then does what it is for.
func (d *remoteDrawer) round(h int, extend func(*Minibatch) error) []Stage {
	name := func(what string) string { return fmt.Sprintf("%s %d", what, h) }
	return []Stage{
		collective(trace.Ask, name("ask"), func(m *Minibatch) (request, error) {
			return d.startAsk(m, d.ask[h-d.first])
		}, nil),
		local(trace.Sample, name("answer"), d.answer),
		collective(trace.Ask, name("reply"), func(m *Minibatch) (request, error) {
			return d.startReply(m, d.reply[h-d.first])
		}, nil),
		local(trace.Sample, name("extend"), extend),
	}
}

// sample makes the hops that need no other rank, and asks for the first that does.
func (d *remoteDrawer) sample(m *Minibatch) error {
	if err := d.begin(m); err != nil {
		return err
	}
	m.Scored = m.Seeds
	select {
	case m.draws = <-d.idle:
	default:
	}
	alone := d.hops() - d.rounds()
	return d.samplers.with(func(s *sample.Remote) error {
		if err := s.Begin(&m.Sampled, m.Seeds, d.hops()); err != nil {
			return err
		}
		d.o.copyLabels(m)
		for h := 1; h <= alone; h++ {
			d.group(m, s, h)
			if n := len(m.draws.asking.IDs); n > 0 {
				return fmt.Errorf("%d seeds belong to other ranks; this is a bug in halognn", n)
			}
			err := errors.Join(s.Draw(&m.draws.asking), s.Extend(&m.Sampled, h, &m.draws.asking))
			if err != nil {
				return err
			}
		}
		d.next(m, s, alone+1)
		return nil
	})
}

// next groups the frontier for hop h, or completes the minibatch after the last one.
func (d *remoteDrawer) next(m *Minibatch, s *sample.Remote, h int) {
	if h <= d.hops() {
		d.group(m, s, h)
		return
	}
	s.End(&m.Sampled)
	m.Digest, m.Edges = m.Sampled.Digest(), m.Sampled.EdgesDigest(m.Key)
	d.end(m)
	select {
	case d.idle <- m.draws:
	default:
		m.draws.free()
	}
	m.draws = remoteDraws{}
}

func (d *remoteDrawer) group(m *Minibatch, s *sample.Remote, h int) {
	s.Ask(&m.draws.asking, &d.parts, d.ranks, d.rank, m.Sampled.Frontier, m.Key, h, m.Train)
}

// startAsk tells every rank how many of its vertices the minibatch asks for, and under which word;
// the ids follow.
func (d *remoteDrawer) startAsk(m *Minibatch, on [2]comm.Comm) (request, error) {
	if err := m.point(fault.Ask, d.rank); err != nil {
		return nil, err
	}
	r, count := &m.draws, &m.asked
	r.comm, r.d = on[1], d
	r.asks, r.asked = mem.Grow(r.asks, 2*d.ranks), mem.Grow(r.asked, 2*d.ranks)
	if len(r.wanted) != d.ranks {
		r.wanted, r.words = make([]int, d.ranks), make([]uint64, d.ranks)
		r.edges = make([]int, d.ranks)
	}
	for k, n := range r.asking.Count {
		r.asks[2*k], r.asks[2*k+1] = int64(n), int64(r.asking.Word)
	}
	count.Asked += int64(len(r.asking.IDs))
	count.Rounds++
	count.Bytes += int64(d.ranks) * sample.AskBytes
	r.half = on[0].StartAlltoallv(
		mem.Bytes(r.asks), mem.Bytes(r.asked), d.ones, d.ones, sample.AskBytes)
	return askRound{m}, nil
}

// askRound and replyRound are a minibatch's round of which the first half is under way.
type askRound struct{ m *Minibatch }
type replyRound struct{ m *Minibatch }

// Wait completes the first half, and starts and completes the second.
func (a askRound) Wait() error {
	r, count := &a.m.draws, &a.m.asked
	if err := r.half.Wait(); err != nil {
		return err
	}
	total, most := 0, int64(r.d.o.Topology.Graph.NumVertices())
	for k := range r.wanted {
		n := r.asked[2*k]
		if n < 0 || n > most {
			return fmt.Errorf("rank %d asks for the neighbours of %d vertices of rank %d, which "+
				"has fewer; the two see different parts or memory is damaged", k, n, r.d.rank)
		}
		r.wanted[k], r.words[k] = int(n), uint64(r.asked[2*k+1])
		total += int(n)
	}
	r.wantIDs = mem.Grow(r.wantIDs[:0], total)
	count.Answered += int64(total)
	count.Rounds++
	count.Bytes += int64(len(r.asking.IDs)) * sample.VertexBytes
	return r.comm.StartAlltoallv(
		mem.Bytes(r.asking.IDs), mem.Bytes(r.wantIDs), r.asking.Count, r.wanted,
		sample.VertexBytes).Wait()
}

// answer draws for whoever asks, and for the minibatch's own vertices.
func (d *remoteDrawer) answer(m *Minibatch) error {
	r := &m.draws
	return d.samplers.with(func(s *sample.Remote) error {
		r.asking.Room(nil)
		err := s.Answer(&r.answer, r.wantIDs, r.wanted, r.words, &r.asking)
		return errors.Join(err, s.Draw(&r.asking))
	})
}

// startReply sends everyone the sizes of what its vertices have drawn; the neighbours follow.
func (d *remoteDrawer) startReply(m *Minibatch, on [2]comm.Comm) (request, error) {
	if err := m.point(fault.Reply, d.rank); err != nil {
		return nil, err
	}
	r, count := &m.draws, &m.asked
	r.comm = on[1]
	count.Rounds++
	count.Bytes += int64(len(r.answer.Sizes))
	r.half = on[0].StartAlltoallv(r.answer.Sizes, r.asking.Sizes, r.wanted, r.asking.Count,
		r.asking.Reply.Vertex())
	return replyRound{m}, nil
}

// Wait is as that of askRound.
func (a replyRound) Wait() error {
	r, count := &a.m.draws, &a.m.asked
	if err := r.half.Wait(); err != nil {
		return err
	}
	if err := r.asking.Edges(r.edges); err != nil {
		return err
	}
	r.asking.Room(r.edges)
	edge := r.asking.Reply.Edge
	count.Drawn += int64(len(r.asking.Neighbours) * sample.VertexBytes / edge)
	count.Rounds++
	count.Bytes += int64(len(r.answer.Neighbours)) * sample.VertexBytes
	return r.comm.StartAlltoallv(mem.Bytes(r.answer.Neighbours), mem.Bytes(r.asking.Neighbours),
		r.answer.Edges, r.edges, edge).Wait()
}

// extend numbers what has come back, and asks for the next hop.
func (d *remoteDrawer) extend(m *Minibatch, h int) error {
	return d.samplers.with(func(s *sample.Remote) error {
		if err := s.Extend(&m.Sampled, h, &m.draws.asking); err != nil {
			return err
		}
		d.next(m, s, h+1)
		return nil
	})
}

// bytes returns the memory of the arrays.
func (r *remoteDraws) bytes() int64 {
	return r.asking.Bytes() + r.answer.Bytes() +
		int64(cap(r.asks)+cap(r.asked))*8 + int64(cap(r.wantIDs))*4
}

// free returns the arrays.
func (r *remoteDraws) free() {
	r.asking.Free()
	r.answer.Free()
	mem.Free(r.asks)
	mem.Free(r.asked)
	mem.Free(r.wantIDs)
}
