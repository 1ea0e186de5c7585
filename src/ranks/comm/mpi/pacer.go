//go:build cgo && mpi

package mpi

/*
#include "engine.h"
*/
import "C"

import "slices"

// piecesUnderWay is the number of pieces in a window.
const piecesUnderWay = 6

// pacer sends the messages of paced communicators a few at a time. So other messages of this rank,
// such as gradients, wait only for the rows in the window and not for whole minibatches. A piece
// counts as under way until its receiver takes it (MPI_Issend). So pieces do not pile up in the
// buffers of sockets and switches, where other messages cannot overtake them. Only the engine's
// goroutine may use a pacer.
//
//	rows      peer 1 ■■■■■■   peer 2 ■■■■   peer 3 ■■■■■     waiting, one to each peer in turn
//	             └── as many as the window holds ──> link
//	gradients ─────────────────────────────────────> link
type pacer struct {
	waiting []piece // pieces in the order of sending; pieces before index first have been sent
	first   int
	slots   []piece // pieces under way
	free    []int   // indices of free slots
	bytes   int     // number of bytes under way
	starts  []piece // result of takePieces
}

// piece is one message of an all-to-all.
type piece struct {
	op *operation
	message
}

func (p piece) bytes() int { return p.rows * p.op.rowBytes }

// enqueue queues the messages of an all-to-all, one to each rank in turn. It begins with the rank
// after this one. Messages to one rank stay in the order in which the receiver expects them.
func (p *pacer) enqueue(op *operation) {
	messages, size := op.out.messages, op.comm.size
	op.parts += len(messages)
	op.pieces = slices.Grow(op.pieces[:0], size)[:size]
	for i := len(messages) - 1; i >= 0; i-- {
		op.pieces[messages[i].peer] = i
	}
	if p.first > len(p.waiting)/2 {
		p.waiting, p.first = p.waiting[:copy(p.waiting, p.waiting[p.first:])], 0
	}
	for left := len(messages); left > 0; {
		for k := 1; k <= size; k++ {
			peer := (op.comm.rank + k) % size
			i := op.pieces[peer]
			if i < len(messages) && messages[i].peer == peer {
				p.waiting = append(p.waiting, piece{op, messages[i]})
				op.pieces[peer]++
				left--
			}
		}
	}
}

// takePieces removes waiting pieces from the queue until the window is full, and returns them. If
// no piece is under way, it returns a piece even if that is larger than the window. The result is
// valid until the next call.
func (p *pacer) takePieces() []piece {
	p.starts = p.starts[:0]
	for ; p.first < len(p.waiting); p.first++ {
		m := p.waiting[p.first]
		if m.op.completed { // the operation has failed
			continue
		}
		if p.bytes > 0 && p.bytes+m.bytes() > m.op.comm.window {
			break
		}
		p.bytes += m.bytes()
		p.starts = append(p.starts, m)
	}
	return p.starts
}

// sendPiece sends a piece by MPI.
func (p *pacer) sendPiece(m piece) error {
	slot := len(p.slots)
	if last := len(p.free) - 1; last >= 0 {
		slot, p.free = p.free[last], p.free[:last]
		p.slots[slot] = m
	} else {
		p.slots = append(p.slots, m)
	}
	op := m.op
	rc := C.hgnn_ssend(op.comm.id, pointer(op.send[m.first*op.rowBytes:]), C.int(m.rows),
		C.int(op.rowBytes), C.int(m.peer), collectiveTag, C.int(-1-slot))
	if rc != 0 {
		return fault(op.name(), rc)
	}
	return nil
}

// slotOf returns the slot of a piece, given the number of its owner in MPI calls. The result paced
// is false if the number belongs to an operation and not to a piece.
func slotOf(owner C.int) (slot int, paced bool) { return int(-1 - owner), owner < 0 }

// taken frees the slot of a piece that its receiver has taken. It returns the operation to which
// the piece belongs.
func (p *pacer) taken(slot int) *operation {
	m := p.slots[slot]
	p.slots[slot] = piece{}
	p.free = append(p.free, slot)
	p.bytes -= m.bytes()
	return m.op
}
