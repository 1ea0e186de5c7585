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

// more is the state of an all-to-all with a second payload, whose counts the receiver does not
// know. Each pair of ranks exchanges two kinds of messages:
//
//	first    the known rows, then rows that follow, each as far as there is room
//	others   the rest of the known rows, then the rest of the rows that follow
//
// A receive may be longer than its message, so the first one needs no count. From the known rows
// the receiver learns how many rows follow. Rows that follow and were not in the first message are
// received straight into their place. Each operation's messages have their own tag, because it
// still receives when later operations have begun. Ranks without known rows for each other send
// nothing.
type more struct {
	then        comm.Then
	to, of      []bool // [size] whether this rank sends to each rank, and receives from it
	out, in     cut    // for the rows that follow; the operation has its own for the known rows
	sent, heads []byte // first messages by rank, off the heap; kept for reuse
	tag         C.int
}

// firstBytes is the most bytes of known rows that the first messages of an operation may have in
// all, and also the most bytes of rows that follow. One message has at most firstMost bytes of
// each, because many MPIs send such short messages without a handshake. Tests lower it, on all
// ranks.
var firstBytes = 1 << 20

const firstMost = 16 << 10

// tags is the number of tags that operations use in turn. MPI guarantees at least 32767.
const tags = 1 << 14

func (c *communicator) firstRows(rowBytes int) int {
	return min(firstMost, firstBytes/c.size) / rowBytes
}

// plan decides, when the operation is prepared, which message carries which rows.
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

// others reports which ranks have rows, not counting the rank self.
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
	m.heads = mem.Grow(m.heads[:0], op.in.inside()*op.rowBytes+(c.size-1)*most)
	m.sent = mem.Grow(m.sent[:0], op.out.inside()*op.rowBytes+m.out.inside()*m.then.RowBytes)
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
	if heads.parts == 0 { // no other rank sends anything
		c.engine.complete(heads, mem.Contain(heads.finish))
	}
	return nil
}

// follow receives the second payload once all first rows have arrived.
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

// planFirst plans one side of an all-to-all that uses only messages. The argument firstLimit limits
// the rows of the first message to each rank, and limit the rows of the others. The rank's own rows
// are in no message. If uniform is set, all ranks get the same rows.
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

// inside returns the number of rows in first messages.
func (c *cut) inside() (rows int) {
	for _, n := range c.counts {
		rows += int(n)
	}
	return rows
}

// take copies the rows of the first message to a rank, and returns their bytes.
func (c *cut) take(to, rows []byte, rowBytes, r int) int {
	return copy(to[:int(c.counts[r])*rowBytes], rows[c.first[r]*rowBytes:])
}

// deliver sends the messages after the first, as parts of op. The method receive receives them.
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
