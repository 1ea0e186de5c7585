package comm

import (
	"fmt"
	"sync"
)

// group is a communicator among goroutines. A meeting is one collective operation: the k-th
// operations of all ranks on the communicator form meeting k.
//
//	open  ┌ meeting 7: ranks 0, 2 joined   ┐ ┌ meeting 8: 2   ┐        next = [8 7 9]
//	      └ posts [0] [1] [2]              ┘ └ posts ...      ┘
//
// A rank that joins a meeting copies rows between itself and the ranks that joined earlier. So the
// ranks share the copying. A meeting is complete when all ranks have joined and copied. It is
// reused when all have called Wait, so in the long run nothing is allocated.
type group struct {
	world *World
	id    int   // number of the communicator; 0 is the world
	ranks []int // rank in the world of each rank of this communicator

	mu    sync.Mutex
	idle  sync.Cond  // signals that no rank is copying rows of a meeting
	base  uint64     // number of the meeting open[0], counted from the first meeting
	open  []*meeting // meetings that not all ranks have joined, oldest first
	spare []*meeting
	next  []uint64 // [size] number of the meeting that each rank joins next
	left  []bool   // [size] whether the rank's function has returned
	gone  int      // number of ranks that left
	freed []bool   // [size] whether the rank has called Free
	frees int
	mail  mailboxes
}

// meeting is one collective operation of a group, complete when all its ranks have joined.
type meeting struct {
	group   *group
	number  uint64
	posts   []post
	joined  []int // ranks that have joined, in the order in which they joined
	copying int   // number of ranks copying at the moment
	copied  int   // number of ranks that have exchanged rows with all ranks that joined earlier
	waited  int
}

// call holds the arguments of a rank's operation. The kind of the operation decides which are used.
type call struct {
	kind               string
	rowBytes           int
	send, recv         []byte
	sendRows, recvRows []int // the slices of the caller, which is free to change them later
	then               Then
	sum                []float32
	color, key         int
}

// post is what one rank contributes to a meeting. It is also the rank's request.
type post struct {
	call
	meeting        *meeting
	rank           int
	sendAt, recvAt []int         // [size+1] first row of each rank in send and in recv
	made           *member       // communicator that Dup, Split or Node returns
	done           chan struct{} // holds one token when the operation is complete
	err            error         // this rank's error; valid when the operation is complete
	pending        bool          // whether Wait has not been called yet
}

// member is one rank's handle of a group.
type member struct {
	group *group
	rank  int
}

// failed is the request of an operation that could not be started.
type failed struct{ err error }

func (f failed) Wait() error { return f.err }

// start begins the next operation of a rank. It exchanges rows with the ranks that joined earlier.
// If this rank is the last, it completes the operation. If the arguments of two ranks do not match,
// it ends the job.
func (g *group) start(rank int, c call) (*post, error) {
	p, earlier, err := g.join(rank, c)
	if err != nil {
		return nil, err
	}
	p.exchange(earlier)
	return p, nil
}

// exchange copies the rows between this rank and the ranks that joined the meeting before it
// (`earlier`). If this rank is the last, it finishes the operation.
func (p *post) exchange(earlier []int) {
	s, g := p.meeting, p.meeting.group
	complete := false
	defer func() { // also after a panic, because other ranks wait for the copying to end
		g.mu.Lock()
		if s.copying--; s.copying == 0 {
			g.idle.Broadcast()
		}
		g.mu.Unlock()
		if complete {
			for r := range s.posts {
				s.posts[r].done <- struct{}{}
			}
		}
	}()
	if err := s.meet(p, earlier); err != nil {
		g.world.Abort(err) // this rank has not copied, so the operation never completes
		return
	}
	g.mu.Lock()
	s.copied++
	last := s.copied == len(g.ranks)
	g.mu.Unlock()
	if last {
		if err := s.finish(); err != nil {
			g.world.Abort(err)
			return
		}
		complete = true
	}
}

// join enters a rank into the meeting of its next operation. It returns the ranks that joined
// earlier. If the job has failed or must fail now, it returns an error. Otherwise the rank counts
// as copying, until exchange has run.
func (g *group) join(rank int, c call) (p *post, earlier []int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freed[rank] {
		return nil, nil, fmt.Errorf("rank %d starts %s on communicator %d, which it has freed",
			rank, c.kind, g.id)
	}
	number := g.next[rank]
	g.next[rank]++
	if number-g.base == uint64(len(g.open)) {
		g.open = append(g.open, g.take(number))
	}
	s := g.open[number-g.base]
	p = &s.posts[rank]
	p.call, p.pending, p.err = c, true, nil
	offsets(p.sendAt, c.sendRows)
	offsets(p.recvAt, c.recvRows)
	if g.gone > 0 {
		g.checkLeft(s, p)
	}
	// after a failure other ranks may have freed their buffers, so nothing may be copied
	if err := g.world.failure(); err != nil {
		return nil, nil, err
	}
	earlier = s.joined
	s.joined = append(s.joined, rank)
	if len(s.joined) == len(g.ranks) { // ranks join meetings in order, so meetings fill up in order
		g.open = append(g.open[:0], g.open[1:]...)
		g.base++
	}
	s.copying++
	return p, earlier, nil
}

// take returns an empty meeting, which may be a recycled one.
func (g *group) take(number uint64) *meeting {
	if last := len(g.spare) - 1; last >= 0 {
		s := g.spare[last]
		g.spare = g.spare[:last]
		s.number, s.joined, s.copied, s.waited = number, s.joined[:0], 0, 0
		return s
	}
	n := len(g.ranks)
	s := &meeting{group: g, number: number, posts: make([]post, n), joined: make([]int, 0, n)}
	for r := range s.posts {
		s.posts[r] = post{meeting: s, rank: r, done: make(chan struct{}, 1),
			sendAt: make([]int, n+1), recvAt: make([]int, n+1)}
	}
	return s
}

// Wait implements Request.
func (p *post) Wait() error {
	if err := p.settle(); err != nil {
		return err
	}
	p.release()
	return nil
}

// claim marks a request as waited for. It panics if Wait has been called before.
func (g *group) claim(pending *bool) {
	g.mu.Lock()
	was := *pending
	*pending = false
	g.mu.Unlock()
	if !was {
		panic("comm: Wait called twice on one request")
	}
}

// settle blocks until the operation is complete or the job has failed. Even after a failure it
// waits until no rank copies into or out of the buffers, which then belong to the caller again.
func (p *post) settle() error {
	g := p.meeting.group
	g.claim(&p.pending)
	select {
	case <-p.done:
		return p.err
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-g.world.ended:
	}
	g.mu.Lock()
	for p.meeting.copying > 0 {
		g.idle.Wait()
	}
	g.mu.Unlock()
	return g.world.failure()
}

// release recycles the meeting when every rank has called Wait.
func (p *post) release() {
	s, g := p.meeting, p.meeting.group
	g.mu.Lock()
	defer g.mu.Unlock()
	p.call, p.made = call{}, nil
	if s.waited++; s.waited == len(g.ranks) {
		g.spare = append(g.spare, s)
	}
}

// leave records that the function of a world rank has returned. If other ranks wait in a meeting
// that this rank has not joined, the job fails.
func (g *group) leave(worldRank int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r := range g.ranks {
		if g.ranks[r] != worldRank {
			continue
		}
		g.left[r] = true
		g.gone++
		for _, s := range g.open {
			for _, q := range s.joined {
				g.checkLeft(s, &s.posts[q])
			}
		}
		g.forsake(r)
	}
}

// checkLeft ends the job if a returned rank has not joined p's operation. The caller holds g.mu.
func (g *group) checkLeft(s *meeting, p *post) {
	for r := range g.left {
		if g.left[r] && g.next[r] <= s.number {
			g.world.Abort(fmt.Errorf("%w: rank %d is in %s, but rank %d has returned without "+
				"calling it (operation %d of communicator %d)",
				ErrMismatch, p.rank, p.kind, r, s.number, g.id))
			return
		}
	}
}
