package comm

import "fmt"

// Support says whether an implementation has a capability: yes, no or unknown.
type Support int

const (
	Unknown Support = iota
	Unsupported
	Supported
)

// CheckMessage returns an error if rank may not exchange messages with peer. Implementations of
// Comm call it.
func CheckMessage(rank, size, peer int) error {
	if peer < 0 || peer >= size || peer == rank {
		return fmt.Errorf("rank %d cannot exchange a message with rank %d; the peer must be "+
			"another of the %d ranks", rank, peer, size)
	}
	return nil
}

// Ended returns a channel that is closed when the job fails, so that code outside this package can
// stop waiting for other ranks. Under MPI the channel is nil, because a rank that fails ends the
// processes of all ranks.
func Ended(c Comm) <-chan struct{} {
	if m, ok := c.(*member); ok {
		return m.group.world.ended
	}
	return nil
}

// message is one end of a message between ranks of this process: its send or its receive. It is
// also the request of this end. The end that comes second copies the bytes.
type message struct {
	group    *group
	rank     int
	peer     int
	receives bool
	buf      []byte
	done     chan struct{} // holds a token when the bytes have arrived
	copying  bool
	pending  bool // whether Wait has not been called yet
}

// mailboxes hold sends that have no receive yet, and receives that have no send yet. Slot
// [r*size+q] has the waiting ends of messages from rank r to rank q, in order. They are either all
// sends or all receives.
type mailboxes struct {
	waiting [][]*message
	spare   []*message
}

// StartSend implements Comm.
func (m *member) StartSend(buf []byte, to int) Request { return m.startMessage(buf, to, false) }

// StartRecv implements Comm.
func (m *member) StartRecv(buf []byte, from int) Request { return m.startMessage(buf, from, true) }

// DeviceMemory implements Comm.
func (m *member) DeviceMemory() Support {
	if m.group.world.Copy != nil {
		return Supported
	}
	return Unsupported
}

func (m *member) startMessage(buf []byte, peer int, receives bool) Request {
	if err := CheckMessage(m.rank, m.Size(), peer); err != nil {
		return failed{m.misuse(err)}
	}
	mine, other, err := m.group.match(m.rank, peer, receives, buf)
	if err != nil {
		return failed{err}
	}
	if other != nil {
		m.group.transfer(mine, other)
	}
	return mine
}

// match adds a send or receive of a rank, and returns it as mine. If the other end of the message
// came first, match returns that as other, and the caller must copy the bytes. Otherwise other is
// nil.
func (g *group) match(rank, peer int, receives bool, buf []byte) (mine, other *message, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freed[rank] {
		return nil, nil,
			fmt.Errorf("rank %d starts a message on communicator %d, which it has freed", rank,
				g.id)
	}
	// after a failure the other rank may have freed its buffer
	if err := g.world.failure(); err != nil {
		return nil, nil, err
	}
	m := g.newEnd()
	m.rank, m.peer, m.receives, m.buf, m.pending = rank, peer, receives, buf, true
	box := g.box(m)
	if len(*box) > 0 && (*box)[0].receives != receives {
		other = (*box)[0]
		*box = (*box)[:copy(*box, (*box)[1:])]
		m.copying, other.copying = true, true
		return m, other, nil
	}
	*box = append(*box, m)
	if g.left[peer] {
		g.lonely(m)
	}
	return m, nil, nil
}

// newEnd returns an empty end of a message. The caller holds g.mu.
func (g *group) newEnd() *message {
	if last := len(g.mail.spare) - 1; last >= 0 {
		m := g.mail.spare[last]
		g.mail.spare = g.mail.spare[:last]
		return m
	}
	return &message{group: g, done: make(chan struct{}, 1)}
}

// box returns the mailbox in which an end waits for its other end. The caller holds g.mu.
func (g *group) box(m *message) *[]*message {
	if g.mail.waiting == nil {
		g.mail.waiting = make([][]*message, len(g.ranks)*len(g.ranks))
	}
	from, to := m.rank, m.peer
	if m.receives {
		from, to = to, from
	}
	return &g.mail.waiting[from*len(g.ranks)+to]
}

// lonely ends the job because the other rank of a message has returned without its send or receive.
// The caller holds g.mu.
func (g *group) lonely(m *message) {
	what := "sends %d bytes to"
	if m.receives {
		what = "waits for %d bytes from"
	}
	g.world.Abort(fmt.Errorf("%w: rank %d "+what+" rank %d, which has returned without them "+
		"(communicator %d)",
		ErrMismatch, m.rank, len(m.buf), m.peer, g.id))
}

// forsake ends the job if a message waits for a rank whose function has returned. The caller holds
// g.mu.
func (g *group) forsake(rank int) {
	for _, box := range g.mail.waiting {
		for _, m := range box {
			if m.peer == rank {
				g.lonely(m)
			}
		}
	}
}

// transfer copies a message whose two ends have met.
func (g *group) transfer(mine, other *message) {
	from, to := mine, other
	if mine.receives {
		from, to = other, mine
	}
	var err error
	arrived := false
	defer func() { // this must run even after a panic, because Wait waits for the copying to end
		g.mu.Lock()
		mine.copying, other.copying = false, false
		g.idle.Broadcast()
		g.mu.Unlock()
		if arrived {
			mine.done <- struct{}{}
			other.done <- struct{}{}
		}
	}()
	switch {
	case len(from.buf) != len(to.buf):
		err = fmt.Errorf("%w: rank %d sends rank %d a message of %d bytes, but rank %d expects "+
			"%d (communicator %d)",
			ErrMismatch, from.rank, to.rank, len(from.buf), to.rank, len(to.buf), g.id)
	case g.world.Copy != nil:
		err = g.world.Copy(to.buf, from.buf)
	default:
		copy(to.buf, from.buf)
	}
	if err != nil {
		g.world.Abort(err)
	}
	arrived = err == nil
}

// Wait implements Request.
func (m *message) Wait() error {
	g := m.group
	g.claim(&m.pending)
	select {
	case <-m.done:
	default:
		select {
		case <-m.done:
		case <-g.world.ended:
			g.mu.Lock()
			defer g.mu.Unlock()
			// wait until nothing is copied, because after Wait the buffer belongs to the caller
			for m.copying {
				g.idle.Wait()
			}
			return g.world.failure()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m.buf = nil
	g.mail.spare = append(g.mail.spare, m)
	return nil
}
