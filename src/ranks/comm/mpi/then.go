//go:build cgo && mpi

package mpi

/*
#include "engine.h"
*/
import "C"

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
)

// more is the state of an all-to-all with a second payload. The receiver knows how many rows the
// first payload has, called the known rows, but not how many follow. A rank sends two kinds of
// messages to another:
//
//	first    the known rows, then rows that follow, each as far as there is room
//	others   the rest of the known rows, then the rest of the rows that follow
//
// MPI accepts a message that is shorter than the receive buffer, so the receiver need not know the
// length of the first message. It reads from the known rows how many rows follow. Those that were
// not in the first message are then received straight into their place. Each operation has its own
// tag for its messages, because it still receives some when later operations have begun. A rank
// that has no known rows for another sends it nothing.
type more struct {
	then comm.Then
	// [size] whether this rank sends to each rank (to), and whether it receives from each rank (of)
	to, of []bool
	// the rows that follow the known rows: those sent (out) and received (in); for the known rows
	// the operation has its own cuts
	out, in cut
	// first messages to send (sent) and to receive (heads), in rank order, outside the Go heap;
	// kept for reuse
	sent, heads []byte
	tag         C.int
}

// firstBytes limits all first messages of an operation together: they have at most this many bytes
// of known rows, and at most this many bytes of rows that follow. A single first message has at
// most firstMost bytes of known rows and of rows that follow, because many MPIs send such short
// messages without a handshake. Tests lower firstBytes, on all ranks.
var firstBytes = 1 << 20

const firstMost = 16 << 10

// tags is the number of tags that operations use in turn. MPI guarantees at least 32767 tags.
const tags = 1 << 14

func (c *communicator) firstRows(rowBytes int) int {
	return min(firstMost, firstBytes/c.size) / rowBytes
}

// plan runs when the operation is prepared. It decides which rows are in which message.
func (m *more) plan(op *operation, sendRows, recvRows []int, then comm.Then) {
	c := op.comm
	m.then = then
	m.to, m.of = others(m.to, sendRows, c.rank), others(m.of, recvRows, c.rank)
	op.out.planFirst(sendRows, false, c.rank, c.firstRows(op.rowBytes), maxCount)
	op.in.planFirst(recvRows, false, c.rank, c.firstRows(op.rowBytes), maxCount)
	m.out.planFirst(then.SendRows, then.ToAll, c.rank, c.firstRows(then.RowBytes), maxCount)
	copy(op.recv[op.in.first[c.rank]*op.rowBytes:],
		op.send[op.out.first[c.rank]*op.rowBytes:][:sendRows[c.rank]*op.rowBytes])
}

// others returns for each rank whether that rank has rows, and false for this rank (`self`). The
// result uses the memory of the given slice (`are`).
func others(are []bool, rows []int, self int) []bool {
	are = are[:0]
	for r, n := range rows {
		are = append(are, r != self && n > 0)
	}
	return are
}

// start passes to MPI the messages that need not wait.
func (m *more) start(op *operation) error {
	c := op.comm
	m.tag = thenTag + C.int(c.thens%tags)
	c.thens++
	op.parts++ // for heads
	heads := c.engine.take()
	heads.kind, heads.comm, heads.of = firsts, c, op
	c.engine.underway++
	most := c.firstRows(m.then.RowBytes) * m.then.RowBytes
	m.heads = mem.Grow(m.heads[:0], op.in.firstRows()*op.rowBytes+(c.size-1)*most)
	m.sent = mem.Grow(m.sent[:0], op.out.firstRows()*op.rowBytes+m.out.firstRows()*m.then.RowBytes)
	into, from := m.heads, m.sent
	for r, sends := range m.of {
		if !sends {
			continue
		}
		n := int(op.in.counts[r])*op.rowBytes + most
		if err := heads.part(C.hgnn_recv(c.id, pointer(into[:n]), C.int(n), 1, C.int(r), m.tag,
			heads.owner())); err != nil {
			return err
		}
		into = into[n:]
	}
	if err := op.in.receive(heads, op.recv, op.rowBytes, m.tag); err != nil {
		return err
	}
	for r, gets := range m.to {
		if !gets {
			continue
		}
		n := op.out.take(from, op.send, op.rowBytes, r)
		n += m.out.take(from[n:], m.then.Send, m.then.RowBytes, r)
		if err := op.part(C.hgnn_send(c.id, pointer(from[:n]), C.int(n), 1, C.int(r), m.tag,
			op.owner())); err != nil {
			return err
		}
		from = from[n:]
	}
	if err := op.out.deliver(op, op.send, op.rowBytes, m.tag); err != nil {
		return err
	}
	if err := m.out.deliver(op, m.then.Send, m.then.RowBytes, m.tag); err != nil {
		return err
	}
	if heads.parts == 0 { // no other rank sends rows to this rank
		c.engine.complete(heads, mem.Contain(heads.finish))
	}
	return nil
}

// follow runs when all known rows have arrived. It asks Expect where the rows that follow belong,
// and receives them.
func (m *more) follow(op *operation) error {
	c := op.comm
	most := c.firstRows(m.then.RowBytes) * m.then.RowBytes
	at := 0
	for r, n := range op.in.counts {
		if !m.of[r] {
			continue
		}
		copy(op.recv[op.in.first[r]*op.rowBytes:], m.heads[at:at+int(n)*op.rowBytes])
		at += int(n)*op.rowBytes + most
	}
	recv, rows, err := m.then.Receive(c.size)
	if err != nil {
		return err
	}
	op.pin(recv)
	m.in.planFirst(rows, false, c.rank, c.firstRows(m.then.RowBytes), maxCount)
	at = 0
	for r, n := range m.in.counts {
		to := recv[m.in.first[r]*m.then.RowBytes:]
		if r == c.rank {
			copy(to[:rows[r]*m.then.RowBytes], m.then.Send[m.out.first[r]*m.then.RowBytes:])
			continue
		}
		if !m.of[r] {
			if rows[r] > 0 {
				return fmt.Errorf("alltoallv: %d rows of the second payload are expected from "+
					"rank %d, which sends no rows of the first", rows[r], r)
			}
			continue
		}
		at += int(op.in.counts[r]) * op.rowBytes
		copy(to, m.heads[at:at+int(n)*m.then.RowBytes])
		at += most
	}
	return m.in.receive(op, recv, m.then.RowBytes, m.tag)
}

// planFirst plans what a rank sends, or what it receives, in an all-to-all that uses only messages.
// The first message to each rank has at most `firstLimit` rows, and each later message has at most
// `limit` rows. Rows from a rank to itself are in no message. If uniform is true, the same rows go
// to all ranks.
func (c *cut) planFirst(rows []int, uniform bool, self, firstLimit, limit int) {
	c.counts = mem.Grow(c.counts, len(rows))
	c.first, c.messages, c.packed = c.first[:0], c.messages[:0], 0
	first := 0
	for r, n := range rows {
		c.first = append(c.first, first)
		c.counts[r] = int32(min(n, firstLimit))
		if r == self {
			c.counts[r] = 0
		} else {
			for done := int(c.counts[r]); done < n; done += limit {
				c.messages = append(c.messages, message{r, first + done, min(limit, n-done)})
			}
		}
		if !uniform {
			first += n
		}
	}
}

// firstRows returns the number of rows that are in the first messages to all ranks.
func (c *cut) firstRows() (rows int) {
	for _, n := range c.counts {
		rows += int(n)
	}
	return rows
}

// take fills the buffer `to` with the rows of the first message that goes to rank r. It returns the
// number of bytes of these rows.
func (c *cut) take(to, rows []byte, rowBytes, r int) int {
	return copy(to[:int(c.counts[r])*rowBytes], rows[c.first[r]*rowBytes:])
}

// deliver sends the later messages, those after the first one to each rank, as parts of op. The
// method receive receives them.
func (c *cut) deliver(op *operation, rows []byte, rowBytes int, tag C.int) error {
	for _, m := range c.messages {
		err := op.part(C.hgnn_send(op.comm.id, pointer(rows[m.first*rowBytes:]), C.int(m.rows),
			C.int(rowBytes), C.int(m.peer), tag, op.owner()))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cut) receive(op *operation, rows []byte, rowBytes int, tag C.int) error {
	for _, m := range c.messages {
		err := op.part(C.hgnn_recv(op.comm.id, pointer(rows[m.first*rowBytes:]), C.int(m.rows),
			C.int(rowBytes), C.int(m.peer), tag, op.owner()))
		if err != nil {
			return err
		}
	}
	return nil
}
