// Package comm is the contract between ranks: a handful of non-blocking collectives on
// communicators, an in-process world whose ranks are goroutines, and the reproducible allreduce
// built on the contract alone. Package comm/mpi implements the same contract on MPI; comm/commtest
// is one suite for both.
//
//	rank r           request = c.StartAlltoallv(send, recv, ...)      (returns at once)
//	  issuer ──────────────┐
//	  engine ──────────────┴─ MPI_Ialltoallv ── test ── test ── done ─┐
//	  waiter ─────────────────────────────── request.Wait() ──────────┴─ buffers may be used again
//
// On one communicator all ranks must start the same operations in the same order; on different
// communicators the order is free. The package knows nothing about graphs, features or training.
package comm

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
)

// ErrAborted is wrapped by every error that a wait returns because another rank failed or the world
// was shut down.
var ErrAborted = errors.New("another rank ended the job")

// ErrMismatch is wrapped by errors about ranks that disagree on an operation, count or setting.
var ErrMismatch = errors.New("the ranks disagree")

// Request is a pending operation. Its buffers belong to it until Wait returns. To give up a
// computation, wait for its requests, then free their buffers.
type Request interface {
	// Wait blocks until the operation is complete on this rank. It may be called once, from any
	// goroutine.
	Wait() error
}

// Comm is one rank's handle of a communicator. Start methods may be called from any goroutine, but
// the calls on one communicator must come in the same order on every rank. Requests on several
// communicators progress independently.
//
// Counts are numbers of rows of rowBytes bytes, because a 32-bit MPI count of bytes would overflow
// at 2 GiB. An implementation splits counts above its limit. Slices of counts are copied: they may
// be changed as soon as Start returns. A send buffer must not overlap its receive buffer. Buffers
// may be longer than the counts say.
//
// Start methods return no error. If their arguments are wrong, Wait returns the error.
type Comm interface {
	Rank() int
	Size() int

	// StartAlltoallv sends sendRows[r] rows to every rank r and receives recvRows[r] from it. send
	// and recv hold the rows in rank order without gaps. If rank i sends to rank j, its sendRows[j]
	// must equal recvRows[i] of rank j.
	StartAlltoallv(send, recv []byte, sendRows, recvRows []int, rowBytes int) Request

	// StartAlltoallThen is StartAlltoallv with a second payload in the same messages, whose sizes
	// the receiver learns from the first rows: see Then.
	StartAlltoallThen(send, recv []byte, sendRows, recvRows []int, rowBytes int, then Then) Request

	// StartAllgatherv sends this rank's rows to all; recv receives recvRows[r] rows of every rank
	// r, in rank order.
	StartAllgatherv(send, recv []byte, recvRows []int, rowBytes int) Request

	// StartAllreduceSum adds buf over all ranks in place, in an order that the implementation
	// chooses: fast, but sums may differ in the last bit between implementations and rank counts. A
	// Summer with SumReproducible gives the same bits everywhere.
	StartAllreduceSum(buf []float32) Request

	// StartBarrier completes when every rank has started it.
	StartBarrier() Request

	// StartSend sends buf to another rank, and StartRecv receives len(buf) bytes from one. Both
	// ends must give the same length, as MPI notices only a message that is too long. Messages from
	// one rank to another are matched in the order in which each of the two starts them, and do not
	// depend on other ranks or on collectives. Prefer collectives: messages are for buffers that
	// collectives cannot take.
	StartSend(buf []byte, to int) Request
	StartRecv(buf []byte, from int) Request

	// DeviceMemory reports whether buffers of messages may lie in the memory of a GPU. Buffers of
	// collectives may not.
	DeviceMemory() Support

	// Dup returns a new communicator with the same ranks. Collective; blocks.
	Dup() (Comm, error)

	// Split returns the communicator of the ranks that gave the same color >= 0, ordered by key,
	// then rank. Collective; blocks. Like Dup and Node it is for set-up: all ranks must make these
	// calls in the same order, also across communicators.
	Split(color, key int) (Comm, error)

	// Node returns the communicator of the ranks that share this rank's memory. Collective; blocks.
	Node() (Comm, error)

	// Abort ends the job because this rank has failed with cause; the error names the rank. It
	// returns at once and may be called from any goroutine. In process, all pending and later
	// requests of every rank, on any communicator, then end with an error that wraps ErrAborted and
	// the cause; when Wait returns, its buffers are no longer in use. Under MPI requests may never
	// end, because the processes are about to end. Only the first call in a job has an effect.
	Abort(cause error)

	// Free releases a communicator made by Dup, Split or Node whose requests have all been waited
	// for. Every rank must call it, but it returns at once, so that it may be deferred in a rank
	// that fails.
	Free() error
}

// Then is a second payload that follows the rows of an all-to-all, here called the first rows.
// SendRows[r] rows of Send go to rank r, in rank order without gaps. With ToAll they are always the
// rows at the beginning of Send. A rank that gets no first rows from another gets no message from
// it, and so no second payload. The counts belong to the request, too, until Wait returns. When the
// first rows of all ranks have arrived, Expect is called once, on any goroutine. It must return the
// receive buffer and the number of rows that each rank sends. Wait returns the error of Expect.
type Then struct {
	Send     []byte
	SendRows []int
	RowBytes int
	ToAll    bool
	Expect   Expecter
}

// Expecter knows how many rows follow the first rows of an all-to-all. Expect must not wait for
// anything.
type Expecter interface {
	Expect() (recv []byte, rows []int, err error)
}

// CheckSend checks the second payload that a rank sends after the given rows. Implementations of
// Comm call it.
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

// Receive calls Expect and checks its answer; a panic of Expect becomes an error. Implementations
// of Comm call it.
func (t *Then) Receive(size int) (recv []byte, rows []int, err error) {
	err = mem.Contain(func() (err error) { recv, rows, err = t.Expect.Expect(); return err })
	if err == nil {
		err = checkRows("alltoallv: receive", size, recv, rows, t.RowBytes)
	}
	return recv, rows, err
}

// Pacer is a Comm that can cut all-to-alls into pieces if both ends know all counts. At most window
// bytes of a rank's pieces are under way at a time, so that messages on other communicators wait
// only for these bytes. This helps on a slow link. A window as large as what the link carries in
// about 30 ms keeps the link busy. Every rank sets the same window, before its first all-to-all; 0
// means no limit.
type Pacer interface{ Pace(window int) }

// Pace sets the window of c if c is a Pacer. Other implementations need none: their ranks share
// memory and use no link.
func Pace(c Comm, window int) {
	if p, ok := c.(Pacer); ok {
		p.Pace(window)
	}
}

// CheckAlltoallv checks one rank's arguments of an all-to-all among size ranks. Implementations of
// Comm call it.
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

// CheckAllgatherv is CheckAlltoallv for an all-gather. The argument rank is the caller's rank.
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
		return fmt.Errorf("%s counts are for %d ranks, but the communicator has %d", what,
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
