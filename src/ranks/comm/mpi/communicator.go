//go:build cgo && mpi

package mpi

/*
#include "engine.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"halognn/src/ranks/comm"
)

// communicator implements comm.Comm.
type communicator struct {
	engine     *engine
	id         C.int // number of the communicator; 0 is the world
	rank, size int
	freed      bool
	window     int // bytes of pieces that may be under way (see Pace); 0 means no limit
	// number of operations of kind alltoallThen that were started so far; only the engine's
	// goroutine uses it
	thens int
}

// failed is the request of an operation that could not be started.
type failed struct{ err error }

func (f failed) Wait() error { return f.err }

// communicator returns the Go handle of a communicator, given its number on the C side. Only the
// engine's goroutine may call it.
func (e *engine) communicator(id C.int) (*communicator, error) {
	var rank, size C.int
	if rc := C.hgnn_comm_info(id, &rank, &size); rc != 0 {
		return nil, fault("MPI_Comm_rank", rc)
	}
	return &communicator{engine: e, id: id, rank: int(rank), size: int(size)}, nil
}

func (c *communicator) Rank() int { return c.rank }
func (c *communicator) Size() int { return c.size }

// Pace implements comm.Pacer.
func (c *communicator) Pace(window int) { c.window = window }

func (c *communicator) operation(k kind) *operation {
	op := c.engine.take()
	op.kind, op.comm = k, c
	return op
}

// StartAlltoallv implements comm.Comm.
func (c *communicator) StartAlltoallv(send, recv []byte, sendRows, recvRows []int,
	rowBytes int) comm.Request {
	err := comm.CheckAlltoallv(c.size, send, recv, sendRows, recvRows, rowBytes)
	if err = c.usable(err, rowBytes); err != nil {
		return failed{err}
	}
	op := c.operation(alltoallv)
	op.send, op.recv, op.rowBytes = send, recv, rowBytes
	op.pin(send)
	op.pin(recv)
	piece := maxCount
	if c.window > 0 {
		piece = max(1, c.window/piecesUnderWay/rowBytes)
	}
	op.out.plan(sendRows, maxCount, piece)
	op.in.plan(recvRows, maxCount, piece)
	return c.engine.hand(op)
}

// StartAlltoallThen implements comm.Comm.
func (c *communicator) StartAlltoallThen(send, recv []byte, sendRows, recvRows []int, rowBytes int,
	then comm.Then) comm.Request {
	err := comm.CheckAlltoallv(c.size, send, recv, sendRows, recvRows, rowBytes)
	if err == nil {
		err = then.CheckSend(sendRows)
	}
	if err = c.usable(err, max(rowBytes, then.RowBytes)); err != nil {
		return failed{err}
	}
	op := c.operation(alltoallThen)
	op.send, op.recv, op.rowBytes = send, recv, rowBytes
	op.pin(send)
	op.pin(recv)
	op.pin(then.Send)
	if op.more == nil {
		op.more = new(more)
	}
	op.more.plan(op, sendRows, recvRows, then)
	return c.engine.hand(op)
}

// StartAllgatherv implements comm.Comm.
func (c *communicator) StartAllgatherv(send, recv []byte, recvRows []int,
	rowBytes int) comm.Request {
	err := comm.CheckAllgatherv(c.rank, c.size, send, recv, recvRows, rowBytes)
	if err = c.usable(err, rowBytes); err != nil {
		return failed{err}
	}
	op := c.operation(allgatherv)
	op.send, op.recv, op.rowBytes = send, recv, rowBytes
	op.pin(send)
	op.pin(recv)
	op.in.planGather(recvRows, maxCount)
	if len(op.in.messages) > 0 {
		copy(recv[op.in.first[c.rank]*rowBytes:], send[:recvRows[c.rank]*rowBytes])
	}
	return c.engine.hand(op)
}

// StartAllreduceSum implements comm.Comm with MPI_Iallreduce.
func (c *communicator) StartAllreduceSum(buf []float32) comm.Request {
	if err := c.usable(nil, 1); err != nil {
		return failed{err}
	}
	op := c.operation(allreduce)
	op.sum = buf
	if len(buf) > 0 {
		op.pins.Pin(unsafe.SliceData(buf))
	}
	return c.engine.hand(op)
}

// StartSend implements comm.Comm.
func (c *communicator) StartSend(buf []byte, to int) comm.Request {
	op, err := c.message(send, buf, to)
	if err != nil {
		return failed{err}
	}
	op.send = buf
	return c.engine.hand(op)
}

// StartRecv implements comm.Comm.
func (c *communicator) StartRecv(buf []byte, from int) comm.Request {
	op, err := c.message(recv, buf, from)
	if err != nil {
		return failed{err}
	}
	op.recv = buf
	return c.engine.hand(op)
}

func (c *communicator) message(k kind, buf []byte, peer int) (*operation, error) {
	if err := c.usable(comm.CheckMessage(c.rank, c.size, peer), 1); err != nil {
		return nil, err
	}
	op := c.operation(k)
	op.peer = peer
	op.pin(buf)
	return op, nil
}

// DeviceMemory implements comm.Comm.
func (c *communicator) DeviceMemory() comm.Support { return deviceMemory }

// StartBarrier implements comm.Comm.
func (c *communicator) StartBarrier() comm.Request {
	if err := c.usable(nil, 1); err != nil {
		return failed{err}
	}
	return c.engine.hand(c.operation(barrier))
}

// Dup implements comm.Comm.
func (c *communicator) Dup() (comm.Comm, error) { return c.derive(dup, 0, 0) }

// Split implements comm.Comm.
func (c *communicator) Split(color, key int) (comm.Comm, error) {
	if color < 0 || color > math.MaxInt32 || key != int(int32(key)) {
		return nil, c.usable(fmt.Errorf("split: color %d is not in [0, 2^31) or key %d has more "+
			"than 32 bits", color, key), 1)
	}
	return c.derive(split, color, key)
}

// Node implements comm.Comm with MPI_COMM_TYPE_SHARED.
func (c *communicator) Node() (comm.Comm, error) { return c.derive(node, 0, 0) }

func (c *communicator) derive(k kind, color, key int) (comm.Comm, error) {
	if err := c.usable(nil, 1); err != nil {
		return nil, err
	}
	op := c.operation(k)
	op.color, op.key = color, key
	c.engine.hand(op)
	if err := op.wait(); err != nil {
		return nil, err
	}
	made := op.made
	c.engine.give(op)
	return made, nil
}

// Abort implements comm.Comm. It makes Run return the error.
func (c *communicator) Abort(cause error) {
	c.engine.fail(fmt.Errorf("rank %d: %w", c.engine.rank, cause))
}

// Free implements comm.Comm. The engine frees the communicator once every rank has called Free.
func (c *communicator) Free() error {
	if c.id == 0 {
		return errors.New("the communicator of the whole world cannot be freed")
	}
	if err := c.usable(nil, 1); err != nil {
		return err
	}
	c.freed = true
	c.engine.hand(c.operation(free))
	return nil
}

// usable returns an error if the arguments of an operation are wrong. If an earlier check has found
// an error (`err`), usable returns that error. Otherwise it checks the rules of MPI. It adds the
// rank to the error.
func (c *communicator) usable(err error, rowBytes int) error {
	switch {
	case err != nil:
	case c.freed:
		err = errors.New("the communicator has been freed")
	case rowBytes > math.MaxInt32:
		err = fmt.Errorf("a row has %d bytes; with MPI it must have fewer than 2^31", rowBytes)
	default:
		return nil
	}
	return fmt.Errorf("rank %d: %w", c.rank, err)
}
