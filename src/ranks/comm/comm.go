// Package comm defines how ranks communicate: by a few non-blocking collectives on communicators.
// It has two things built on this contract: a world whose ranks are goroutines of one process, and
// a reproducible allreduce that works with any implementation. Package comm/mpi implements the
// contract with MPI, and comm/commtest tests both implementations.
//
//	rank r           request = c.StartAlltoallv(send, recv, ...)      (returns at once)
//	  issuer ──────────────┐
//	  engine ──────────────┴─ MPI_Ialltoallv ── test ── test ── done ─┐
//	  waiter ─────────────────────────────── request.Wait() ──────────┴─ buffers may be used again
//
// All ranks must start the operations on one communicator in the same order. Operations on
// different communicators may be in any order. The package knows no graphs, features or training.
package comm

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
)

// ErrAborted is wrapped by errors that Wait returns because the job has failed or was aborted.
var ErrAborted = errors.New("another rank ended the job")

// ErrMismatch is wrapped by errors about ranks that disagree on an operation, count or setting.
var ErrMismatch = errors.New("the ranks disagree")

// Request is a pending operation. The caller must not touch its buffers until Wait returns. To give
// up a computation, first wait for its requests, and then free their buffers.
type Request interface {
	// Wait blocks until the operation is complete on this rank. Any goroutine may call it, once.
	Wait() error
}

// Comm is one rank's handle of a communicator. Start methods may be called from any goroutine, but
// the calls on one communicator must come in the same order on every rank. Requests on several
// communicators progress independently.
//
// Counts are numbers of rows of rowBytes bytes, because a 32-bit MPI count of bytes would overflow
// at 2 GiB. An implementation splits counts above its limit. Start methods copy slices of counts,
// so the caller may change these as soon as a Start method returns. A send buffer must not overlap
// its receive buffer. Buffers may be longer than the counts say.
//
// Start methods return no error. If their arguments are wrong, Wait returns the error.
type Comm interface {
	Rank() int
	Size() int

	// StartAlltoallv sends sendRows[r] rows to every rank r and receives recvRows[r] from it. send
	// and recv hold the rows in rank order without gaps. If rank i sends to rank j, its sendRows[j]
	// must equal recvRows[i] of rank j.
	StartAlltoallv(send, recv []byte, sendRows, recvRows []int, rowBytes int) Request

	// StartAlltoallThen is StartAlltoallv with a second payload in the same messages. The receiver
	// learns the size of the second payload from the rows of the first one (see Then).
	StartAlltoallThen(send, recv []byte, sendRows, recvRows []int, rowBytes int, then Then) Request

	// StartAllgatherv sends this rank's rows to all ranks. It receives recvRows[r] rows of every
	// rank r into recv, in rank order.
	StartAllgatherv(send, recv []byte, recvRows []int, rowBytes int) Request

	// StartAllreduceSum adds buf over all ranks in place, in an order that the implementation
	// chooses. This is fast, but the last bits of sums may depend on the implementation and on the
	// number of ranks. A Summer with SumReproducible gives the same bits everywhere.
	StartAllreduceSum(buf []float32) Request

	// StartBarrier completes when every rank has started it.
	StartBarrier() Request

	// StartSend sends buf to another rank, and StartRecv receives len(buf) bytes from one. Sender
	// and receiver must give the same length, because MPI notices only a message that is too long.
	// The k-th StartSend from rank a to rank b is received by the k-th StartRecv of rank b from
	// rank a, whatever other ranks and collectives do. Prefer collectives; messages are for
	// buffers that collectives do not support.
	StartSend(buf []byte, to int) Request
	StartRecv(buf []byte, from int) Request

	// DeviceMemory reports whether buffers of messages, not of collectives, may be on a GPU.
	DeviceMemory() Support

	// Dup returns a new communicator with the same ranks. Collective; blocks.
	Dup() (Comm, error)

	// Split returns the communicator of the ranks that gave the same color >= 0, ordered by key,
	// and by rank if keys are equal. Collective; blocks. Like Dup and Node it is for set-up: all
	// ranks must make these calls in the same order, also across communicators.
	Split(color, key int) (Comm, error)

	// Node returns the communicator of the ranks that share this rank's memory. Collective; blocks.
	Node() (Comm, error)

	// Abort ends the job because this rank has failed with cause; the error names the rank. It
	// returns at once. Any goroutine may call it; only the first call in a job has an effect. If
	// ranks are goroutines, every request of every rank on any communicator, pending or later, then
	// ends with an error that wraps ErrAborted and the cause; when Wait returns, the buffers are no
	// longer in use. Under MPI, requests may never end, because the processes are about to end.
	Abort(cause error)

	// Free releases a communicator made by Dup, Split or Node whose requests have all been waited
	// for. Every rank must call Free. It does not wait for the other ranks, so a rank that fails
	// may call it in a deferred function.
	Free() error
}

// Then is a second payload that follows the rows of an all-to-all, here called the first rows.
// SendRows[r] rows of Send go to rank r; Send has them in rank order without gaps. If ToAll is set,
// every rank gets the rows at the beginning of Send. A rank that gets no first rows from another
// gets no second payload either. The caller must not change SendRows until Wait returns. When all
// first rows have arrived, Expect is called once, on any goroutine. It must return the receive
// buffer and the number of rows that each rank sends. Wait returns the error of Expect.
type Then struct {
	Send     []byte
	SendRows []int
	RowBytes int
	ToAll    bool
	Expect   Expecter
}

// Expecter knows how many rows follow the first rows of an all-to-all. Expect must not wait.
type Expecter interface {
	Expect() (recv []byte, rows []int, err error)
}

// CheckSend returns an error if the second payload of a rank breaks a rule. The rank sends
// before[r] rows of the first payload to rank r. Implementations of Comm call it.
func (t *Then) CheckSend(before []int) error {
	size := len(before)
	if t.RowBytes <= 0 || t.Expect == nil {
		return fmt.Errorf("alltoallv: a row of the second payload has %d bytes and needs at "+
			"least 1, or there is no Expecter", t.RowBytes)
	}
	for r, n := range t.SendRows {
		if n > 0 && r < size && before[r] == 0 {
			return fmt.Errorf("alltoallv: the second payload has %d rows for rank %d, but the "+
				"first has none", n, r)
		}
	}
	if !t.ToAll || len(t.SendRows) != size {
		return checkRows("alltoallv: send", size, t.Send, t.SendRows, t.RowBytes)
	}
	for r, n := range t.SendRows {
		if n < 0 || n > len(t.Send)/t.RowBytes {
			return fmt.Errorf("alltoallv: send count for rank %d is %d, but the buffer has %d "+
				"bytes, for rows of %d bytes", r, n, len(t.Send), t.RowBytes)
		}
	}
	return nil
}

// Receive calls Expect and checks what it returns. A panic of Expect becomes an error.
// Implementations of Comm call it.
func (t *Then) Receive(size int) (recv []byte, rows []int, err error) {
	err = mem.Contain(func() (err error) { recv, rows, err = t.Expect.Expect(); return err })
	if err == nil {
		err = checkRows("alltoallv: receive", size, recv, rows, t.RowBytes)
	}
	return recv, rows, err
}

// Pacer is a Comm that can cut the messages of a StartAlltoallv into pieces. A rank has at most
// window bytes of pieces under way at a time, so that messages on other communicators wait only for
// these bytes. This helps on a slow link. A window of the bytes that the link carries in about 30
// ms keeps the link busy. Every rank must set the same window before its first all-to-all. A window
// of 0 means no limit.
type Pacer interface{ Pace(window int) }

// Pace sets the window of c if c is a Pacer. Otherwise it does nothing, because the ranks share
// memory and use no link.
func Pace(c Comm, window int) {
	if p, ok := c.(Pacer); ok {
		p.Pace(window)
	}
}

// CheckAlltoallv returns an error if one rank's arguments of an all-to-all among size ranks break a
// rule. Implementations of Comm call it.
func CheckAlltoallv(size int, send, recv []byte, sendRows, recvRows []int, rowBytes int) error {
	if rowBytes <= 0 {
		return fmt.Errorf("alltoallv: a row has %d bytes; it needs at least 1", rowBytes)
	}
	if same(send, recv) {
		return errors.New("alltoallv: the send buffer is the receive buffer")
	}
	if err := checkRows("alltoallv: send", size, send, sendRows, rowBytes); err != nil {
		return err
	}
	return checkRows("alltoallv: receive", size, recv, recvRows, rowBytes)
}

// CheckAllgatherv is CheckAlltoallv for an all-gather. The argument `rank` is the caller's rank.
func CheckAllgatherv(rank, size int, send, recv []byte, recvRows []int, rowBytes int) error {
	if rowBytes <= 0 {
		return fmt.Errorf("allgatherv: a row has %d bytes; it needs at least 1", rowBytes)
	}
	if same(send, recv) {
		return errors.New("allgatherv: the send buffer is the receive buffer")
	}
	if err := checkRows("allgatherv: receive", size, recv, recvRows, rowBytes); err != nil {
		return err
	}
	if own := recvRows[rank] * rowBytes; len(send) < own {
		return fmt.Errorf(
			"allgatherv: send buffer has %d bytes, but the %d rows of rank %d need %d",
			len(send), recvRows[rank], rank, own)
	}
	return nil
}

// same detects overlapping buffers only if they begin at the same address, which is cheap to check.
func same(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

func checkRows(what string, size int, buf []byte, rows []int, rowBytes int) error {
	if len(rows) != size {
		return fmt.Errorf("%s counts are for %d ranks, but the communicator has %d ranks", what,
			len(rows), size)
	}
	total := 0
	for r, n := range rows {
		if n < 0 {
			return fmt.Errorf("%s count for rank %d is %d; it must be at least 0", what, r, n)
		}
		total += n
	}
	if len(buf)/rowBytes < total {
		return fmt.Errorf("%s buffer has %d bytes, but its %d rows of %d bytes need %d",
			what, len(buf), total, rowBytes, total*rowBytes)
	}
	return nil
}
