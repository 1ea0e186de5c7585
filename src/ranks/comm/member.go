package comm

import (
	"fmt"
	"sort"
)

func (m *member) Rank() int { return m.rank }
func (m *member) Size() int { return len(m.group.ranks) }

// StartAlltoallv implements Comm.
func (m *member) StartAlltoallv(send, recv []byte, sendRows, recvRows []int, rowBytes int) Request {
	if err := CheckAlltoallv(m.Size(), send, recv, sendRows, recvRows, rowBytes); err != nil {
		return failed{m.misuse(err)}
	}
	return m.start(call{kind: "alltoallv", rowBytes: rowBytes, send: send, recv: recv,
		sendRows: sendRows, recvRows: recvRows})
}

// StartAlltoallThen implements Comm. The last rank to join copies the second payloads.
func (m *member) StartAlltoallThen(send, recv []byte, sendRows, recvRows []int, rowBytes int,
	then Then) Request {
	err := CheckAlltoallv(m.Size(), send, recv, sendRows, recvRows, rowBytes)
	if err == nil {
		err = then.CheckSend(sendRows)
	}
	if err != nil {
		return failed{m.misuse(err)}
	}
	return m.start(call{kind: alltoallThen, rowBytes: rowBytes, send: send, recv: recv,
		sendRows: sendRows, recvRows: recvRows, then: then})
}

const alltoallThen = "alltoallv and more"

// StartAllgatherv implements Comm.
func (m *member) StartAllgatherv(send, recv []byte, recvRows []int, rowBytes int) Request {
	if err := CheckAllgatherv(m.rank, m.Size(), send, recv, recvRows, rowBytes); err != nil {
		return failed{m.misuse(err)}
	}
	return m.start(call{kind: "allgatherv", rowBytes: rowBytes, send: send, recv: recv,
		recvRows: recvRows})
}

// StartAllreduceSum implements Comm. The last rank to join adds all buffers, in rank order.
func (m *member) StartAllreduceSum(buf []float32) Request {
	return m.start(call{kind: "allreduce", sum: buf})
}

// StartBarrier implements Comm.
func (m *member) StartBarrier() Request { return m.start(call{kind: "barrier"}) }

func (m *member) start(c call) Request {
	p, err := m.group.start(m.rank, c)
	if err != nil {
		return failed{err}
	}
	return p
}

// Dup implements Comm.
func (m *member) Dup() (Comm, error) { return m.split(call{kind: "dup", key: m.rank}) }

// Split implements Comm.
func (m *member) Split(color, key int) (Comm, error) {
	if color < 0 {
		return nil, m.misuse(fmt.Errorf("split: color %d is negative", color))
	}
	return m.split(call{kind: "split", color: color, key: key})
}

// Node implements Comm. Every World.NodeSize consecutive world ranks pretend to share a node.
func (m *member) Node() (Comm, error) {
	node := 0
	if size := m.group.world.NodeSize; size > 0 {
		node = m.group.ranks[m.rank] / size
	}
	return m.split(call{kind: "node", color: node, key: m.rank})
}

func (m *member) split(c call) (Comm, error) {
	p, err := m.group.start(m.rank, c)
	if err != nil {
		return nil, err
	}
	if err := p.settle(); err != nil {
		return nil, err
	}
	made := p.made
	p.release()
	return made, nil
}

// Abort implements Comm.
func (m *member) Abort(cause error) {
	m.group.world.Abort(fmt.Errorf("rank %d: %w", m.group.ranks[m.rank], cause))
}

// Free implements Comm.
func (m *member) Free() error {
	g := m.group
	if g == g.world.root {
		return fmt.Errorf("rank %d frees the communicator of the whole world", m.rank)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freed[m.rank] {
		return fmt.Errorf("rank %d frees communicator %d twice", m.rank, g.id)
	}
	g.freed[m.rank] = true
	if g.frees++; g.frees == len(g.ranks) {
		g.world.drop(g)
	}
	return nil
}

// misuse adds the rank and the communicator's number to an error about wrong arguments.
func (m *member) misuse(err error) error {
	return fmt.Errorf("rank %d of communicator %d: %w; this is a bug in halognn",
		m.rank, m.group.id, err)
}

// offsets sets at[r] to the first row of rank r, and at[len(rows)] to the number of rows.
func offsets(at, rows []int) {
	at[0] = 0
	for r, n := range rows {
		at[r+1] = at[r] + n
	}
}

// meet checks that p fits the ranks that joined earlier, and copies the rows between them and p.
func (s *meeting) meet(p *post, earlier []int) error {
	for _, r := range earlier {
		q := &s.posts[r]
		if q.kind != p.kind || q.rowBytes != p.rowBytes || len(q.sum) != len(p.sum) {
			return s.mismatch("rank %d started %s, rank %d %s", r, q.describe(), p.rank,
				p.describe())
		}
		if err := s.deliver(p, q); err != nil {
			return err
		}
		if err := s.deliver(q, p); err != nil {
			return err
		}
	}
	return s.deliver(p, p)
}

// deliver copies the rows that the rank sender sends to the rank receiver.
func (s *meeting) deliver(sender, receiver *post) error {
	var rows []byte
	var sent int
	switch sender.kind {
	case "alltoallv", alltoallThen:
		sent = sender.sendAt[receiver.rank+1] - sender.sendAt[receiver.rank]
		rows = sender.send[sender.sendAt[receiver.rank]*sender.rowBytes:]
	case "allgatherv":
		sent = sender.recvAt[sender.rank+1] - sender.recvAt[sender.rank]
		rows = sender.send
	default:
		return nil
	}
	first := receiver.recvAt[sender.rank]
	if expected := receiver.recvAt[sender.rank+1] - first; sent != expected {
		return s.mismatch("rank %d sends rank %d %d rows in %s, but rank %d expects %d",
			sender.rank, receiver.rank, sent, sender.kind, receiver.rank, expected)
	}
	copy(receiver.recv[first*receiver.rowBytes:], rows[:sent*sender.rowBytes])
	return nil
}

func (s *meeting) mismatch(format string, args ...any) error {
	return fmt.Errorf("%w: %s (operation %d of communicator %d); this is a bug in halognn",
		ErrMismatch,
		fmt.Sprintf(format, args...), s.number, s.group.id)
}

func (p *post) describe() string {
	switch p.kind {
	case "alltoallv", "allgatherv", alltoallThen:
		return fmt.Sprintf("%s of rows of %d bytes", p.kind, p.rowBytes)
	case "allreduce":
		return fmt.Sprintf("%s of %d floats", p.kind, len(p.sum))
	}
	return p.kind
}

// finish does the work that needs the rows of all ranks. The last rank to have copied calls it.
func (s *meeting) finish() error {
	switch s.posts[0].kind {
	case alltoallThen:
		return s.follow()
	case "allreduce":
		total := s.posts[0].sum
		for r := 1; r < len(s.posts); r++ {
			AddInto(total, s.posts[r].sum)
		}
		for r := 1; r < len(s.posts); r++ {
			copy(s.posts[r].sum, total)
		}
	case "dup", "split", "node":
		s.split()
	}
	return nil
}

// follow copies the second payloads of an all-to-all (see Then). If Expect returns an error on a
// rank, only the request of this rank fails.
func (s *meeting) follow() error {
	for r := range s.posts {
		offsets(s.posts[r].sendAt, s.posts[r].then.SendRows)
	}
	for r := range s.posts {
		to, width := &s.posts[r], s.posts[r].then.RowBytes
		recv, rows, err := to.then.Receive(len(s.posts))
		if to.err = err; err != nil {
			continue
		}
		for q, n := range rows {
			from := &s.posts[q]
			begin, end := from.sendAt[r], from.sendAt[r+1]
			if from.then.ToAll {
				begin, end = 0, end-begin
			}
			if end-begin != n || from.then.RowBytes != width {
				return s.mismatch("rank %d sends rank %d %d more rows of %d bytes, but rank %d "+
					"expects %d of %d", q, r, end-begin, from.then.RowBytes, r, n, width)
			}
			recv = recv[copy(recv[:n*width], from.then.Send[begin*width:]):]
		}
	}
	return nil
}

// split makes the communicators that a Dup, Split or Node returns on its ranks.
func (s *meeting) split() {
	order := make([]int, len(s.posts))
	for r := range order {
		order[r] = r
	}
	sort.SliceStable(order, func(i, j int) bool {
		a, b := &s.posts[order[i]], &s.posts[order[j]]
		return a.color < b.color || a.color == b.color && a.key < b.key
	})
	for begin := 0; begin < len(order); {
		end := begin
		var ranks []int
		for ; end < len(order) && s.posts[order[end]].color == s.posts[order[begin]].color; end++ {
			ranks = append(ranks, s.group.ranks[order[end]])
		}
		g := s.group.world.newGroup(ranks)
		for i := begin; i < end; i++ {
			s.posts[order[i]].made = &member{group: g, rank: i - begin}
		}
		begin = end
	}
}
