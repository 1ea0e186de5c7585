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
	firsts // the first messages that this rank receives for an alltoallThen
	allgatherv
	allreduce
	barrier
	send
	recv
	// These operations block in MPI. They begin with a barrier, so that the engine blocks only once
	// every rank has arrived; until then it serves other operations.
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
// caller's goroutine prepares it, the engine starts and finishes it, and the waiting goroutine
// takes the result and returns the operation for reuse.
type operation struct {
	engine *engine
	number int           // number by which the C side names the operation
	done   chan struct{} // holds a token when it is complete

	kind       kind
	comm       *communicator
	send, recv []byte
	sum        []float32
	rowBytes   int
	out, in    cut
	packedOut  []byte // rows that are sent packed, off the Go heap
	packedIn   []byte
	more       *more      // state of an alltoallThen
	of         *operation // for firsts: the operation to which the messages belong
	peer       int        // for a message: the other rank
	pieces     []int      // [size] first message to each rank that the pacer has not sent yet
	color, key int
	made       *communicator // result of dup, split and node

	pins      runtime.Pinner // buffers on the Go heap stay where they are
	parts     int            // number of MPI operations that have not completed
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

// start gives the operation to MPI.
func (op *operation) start() error {
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

// part counts an MPI operation as started or, if rc is an error, returns this error.
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
		op.engine.pacer.add(op)
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
// rows. All ranks know all counts, so they make the same choice.
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

// startMessage sends op.send or receives op.recv, in messages of at most maxCount bytes. Both ends
// cut in the same way.
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

// Tags. MPI matches messages of two ranks that have the same tag in the order in which they start.
// The tags differ so that messages of an all-to-all are not matched with those of StartSend and
// StartRecv.
const (
	collectiveTag = iota
	messageTag
	thenTag // first of several tags, which are used in turn
)

// finish runs when all parts of the operation have completed.
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
	// after a failure of the other operation its buffers may be gone
	case op.kind == firsts && !op.of.completed:
		return op.of.more.follow(op.of)
	}
	return nil
}

// setUp makes or frees a communicator. All ranks have arrived, so it blocks only until each of them
// has noticed.
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
