//go:build cgo && mpi

package mpi

/*
#include "engine.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
)

type kind int

const (
	alltoallv kind = iota
	alltoallThen
	firsts // all first messages that this rank receives for one alltoallThen
	allgatherv
	allreduce
	barrier
	send
	recv
	// The operations below block in MPI. Each begins with a non-blocking barrier, so that the
	// engine makes the blocking call only when every rank has arrived. Until then it serves other
	// operations.
	dup
	split
	node
	free
)

var names = [...]string{"MPI_Ialltoallv", "MPI_Isend", "MPI_Irecv", "MPI_Iallgatherv",
	"MPI_Iallreduce", "MPI_Ibarrier",
	"MPI_Isend", "MPI_Irecv",
	"MPI_Comm_dup", "MPI_Comm_split", "MPI_Comm_split_type", "MPI_Comm_free"}

// operation is a request: one call of a method of comm.Comm, which may take several MPI calls. The
// caller's goroutine prepares it, and the engine starts and finishes it. The goroutine that waits
// for it takes the result and gives the operation back for reuse.
type operation struct {
	engine *engine
	number int           // number by which the C side knows the operation
	done   chan struct{} // holds a token once the operation is complete

	kind       kind
	comm       *communicator
	send, recv []byte
	sum        []float32
	rowBytes   int
	out, in    cut
	packedOut  []byte // rows to send that were copied together, off the Go heap (see cut)
	packedIn   []byte
	more       *more      // state of an alltoallThen
	of         *operation // for an operation firsts: the alltoallThen to which the messages belong
	peer       int        // for a message: the other rank
	// [size] index of the first message to each rank that is not with the pacer yet
	pieces     []int
	color, key int
	made       *communicator // result of dup, split and node

	pins      runtime.Pinner // keeps buffers on the Go heap where they are
	parts     int            // number of MPI calls that have not completed
	completed bool
	err       error
}

func (op *operation) name() string { return names[op.kind] }

// pin keeps a buffer in place while MPI uses it. Memory outside the Go heap does not move.
func (op *operation) pin(buf []byte) {
	if len(buf) > 0 {
		op.pins.Pin(unsafe.SliceData(buf))
	}
}

// Wait implements comm.Request.
func (op *operation) Wait() error {
	err := op.wait()
	if err == nil {
		op.engine.give(op)
	}
	return err
}

func (op *operation) wait() error {
	<-op.done
	op.engine.unwaited.Add(-1)
	return op.err
}

// reset clears the operation, so that it can be used again.
func (op *operation) reset() {
	op.pins.Unpin()
	op.comm, op.made, op.send, op.recv, op.sum = nil, nil, nil, nil, nil
	if op.of = nil; op.more != nil {
		op.more.then = comm.Then{}
	}
	op.completed = false
}

// startCalls makes the MPI calls of the operation.
func (op *operation) startCalls() error {
	switch op.kind {
	case alltoallv:
		return op.startAlltoallv()
	case alltoallThen:
		return op.more.start(op)
	case allgatherv:
		return op.startAllgatherv()
	case send, recv:
		return op.startMessage()
	case allreduce:
		for at := 0; ; at += maxCount {
			n := min(maxCount, len(op.sum)-at)
			if err := op.part(C.hgnn_allreduce(op.comm.id,
				(*C.float)(unsafe.SliceData(op.sum[at:])), C.int(n), op.owner())); err != nil {
				return err
			}
			if at+n == len(op.sum) {
				return nil
			}
		}
	}
	return op.part(C.hgnn_barrier(op.comm.id, op.owner()))
}

// part counts an MPI call of the operation as started. If rc is an error, it returns this error.
func (op *operation) part(rc C.int) error {
	if rc != 0 {
		return fault(op.name(), rc)
	}
	op.parts++
	return nil
}

func (op *operation) owner() C.int { return C.int(op.number) }

func (op *operation) startAlltoallv() error {
	rowBytes := C.int(op.rowBytes)
	for _, m := range op.in.messages {
		rows := op.recv[m.first*op.rowBytes:]
		if err := op.part(C.hgnn_recv(op.comm.id, pointer(rows), C.int(m.rows), rowBytes,
			C.int(m.peer), collectiveTag, op.owner())); err != nil {
			return err
		}
	}
	messages := op.out.messages
	if op.comm.window > 0 {
		op.engine.pacer.enqueue(op)
		messages = nil
	}
	for _, m := range messages {
		rows := op.send[m.first*op.rowBytes:]
		if err := op.part(C.hgnn_send(op.comm.id, pointer(rows), C.int(m.rows), rowBytes,
			C.int(m.peer), collectiveTag, op.owner())); err != nil {
			return err
		}
	}
	send, recv := op.send, op.recv
	if op.out.packed > 0 {
		op.packedOut = mem.Make[byte](op.out.packed * op.rowBytes)
		op.out.pack(op.packedOut, op.send, op.rowBytes, false)
		send = op.packedOut
	}
	if op.in.packed > 0 {
		op.packedIn = mem.Make[byte](op.in.packed * op.rowBytes)
		recv = op.packedIn
	}
	return op.part(C.hgnn_alltoallv(op.comm.id, pointer(send), counts(op.out.counts),
		counts(op.out.displs),
		pointer(recv), counts(op.in.counts), counts(op.in.displs), rowBytes, op.owner()))
}

// startAllgatherv starts one collective or, if counts exceed the limit, broadcasts of at most limit
// rows each. Every rank knows the counts of all ranks, so all make the same choice.
func (op *operation) startAllgatherv() error {
	rowBytes, rank := C.int(op.rowBytes), op.comm.rank
	if len(op.in.messages) == 0 {
		return op.part(C.hgnn_allgatherv(op.comm.id, pointer(op.send), C.int(op.in.counts[rank]),
			pointer(op.recv),
			counts(op.in.counts), counts(op.in.displs), rowBytes, op.owner()))
	}
	for _, m := range op.in.messages {
		rows := op.recv[m.first*op.rowBytes:]
		if err := op.part(C.hgnn_bcast(op.comm.id, pointer(rows), C.int(m.rows), rowBytes,
			C.int(m.peer), op.owner())); err != nil {
			return err
		}
	}
	return nil
}

// startMessage sends op.send or receives op.recv, in MPI messages of at most maxCount bytes. Sender
// and receiver cut the bytes in the same way.
func (op *operation) startMessage() error {
	start, buf := func(p unsafe.Pointer, n int) C.int {
		return C.hgnn_send(op.comm.id, p, C.int(n), 1, C.int(op.peer), messageTag, op.owner())
	}, op.send
	if op.kind == recv {
		start, buf = func(p unsafe.Pointer, n int) C.int {
			return C.hgnn_recv(op.comm.id, p, C.int(n), 1, C.int(op.peer), messageTag, op.owner())
		}, op.recv
	}
	for at := 0; ; at += maxCount {
		n := min(maxCount, len(buf)-at)
		if err := op.part(start(pointer(buf[at:]), n)); err != nil {
			return err
		}
		if at+n == len(buf) {
			return nil
		}
	}
}

// The tags of MPI messages. Between two ranks, MPI matches messages with the same tag in the order
// in which they are started. Messages of an all-to-all have other tags than those of StartSend and
// StartRecv, so that one is never received as the other.
const (
	collectiveTag = iota
	messageTag
	thenTag // first of several tags, which are used in turn
)

// finish does the rest of an operation when all its MPI calls have completed.
func (op *operation) finish() error {
	if op.packedIn != nil {
		op.in.pack(op.packedIn, op.recv, op.rowBytes, true)
	}
	mem.Free(op.packedIn)
	mem.Free(op.packedOut)
	op.packedIn, op.packedOut = nil, nil
	switch {
	case op.kind >= dup:
		return op.setUp()
	// if the other operation has failed, its buffers may have been freed
	case op.kind == firsts && !op.of.completed:
		return op.of.more.follow(op.of)
	}
	return nil
}

// setUp makes or frees a communicator. All ranks have arrived at this operation, so the call blocks
// only until each of them has noticed it.
func (op *operation) setUp() error {
	var made, rc C.int
	switch op.kind {
	case dup:
		rc = C.hgnn_comm_dup(op.comm.id, &made)
	case split:
		rc = C.hgnn_comm_split(op.comm.id, C.int(op.color), C.int(op.key), &made)
	case node:
		rc = C.hgnn_comm_node(op.comm.id, &made)
	case free:
		rc = C.hgnn_comm_free(op.comm.id)
	}
	if rc != 0 {
		return fault(op.name(), rc)
	}
	var err error
	if made != 0 {
		op.made, err = op.engine.communicator(made)
	}
	return err
}

// pointer returns nil for an empty buffer, because Go may give any two empty buffers the same
// address.
func pointer(rows []byte) unsafe.Pointer {
	if len(rows) == 0 {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(rows))
}

func counts(c []int32) *C.int32_t { return (*C.int32_t)(unsafe.SliceData(c)) }
