// Package comm is the contract between ranks: a handful of non-blocking collectives on communicators, an
// in-process world whose ranks are goroutines, and the reproducible allreduce built on the contract alone.
// Package comm/mpi implements the same contract on MPI; comm/commtest is one suite for both.
//
//	rank r           request = c.StartAlltoallv(send, recv, ...)      (returns at once)
//	  lane   ──────────────┐
//	  engine ──────────────┴─ MPI_Ialltoallv ── test ── test ── done ─┐
//	  waiter ─────────────────────────────── request.Wait() ──────────┴─ buffers may be used again
//
// On one communicator all ranks must start the same operations in the same order; on different communicators
// the order is free. The package knows nothing about graphs, features or training.
package comm

import "errors"

// ErrAborted is wrapped by every error that a wait returns because another rank failed or the world was shut down.
var ErrAborted = errors.New("another rank ended the job")

// Request is an operation under way. The buffers of the operation belong to it until Wait returns.
type Request interface {
	// Wait blocks until the operation is complete on this rank. It may be called once, from any goroutine.
	Wait() error
}

// Comm is one rank's handle of a communicator. Start methods may be called from any goroutine, but the calls on one
// communicator must come in the same order on every rank. Requests on several communicators progress independently.
//
// Counts are rows of rowBytes bytes: MPI counts are 32-bit, and bytes overflow them at 2 GiB. An implementation
// splits what exceeds its limit; callers need not know.
type Comm interface {
	Rank() int
	Size() int

	// StartAlltoallv sends sendRows[r] rows to every rank r and receives recvRows[r] from it. send and recv hold the
	// rows in rank order without gaps. Every rank's sendRows[j] must equal rank j's recvRows for it.
	StartAlltoallv(send, recv []byte, sendRows, recvRows []int, rowBytes int) Request

	// StartAllgatherv sends this rank's rows to all; recv receives recvRows[r] rows of every rank r, in rank order.
	StartAllgatherv(send, recv []byte, recvRows []int, rowBytes int) Request

	// StartAllreduceSum adds buf over all ranks in place, in an order of the implementation's choice: fast, but sums
	// may differ in the last bit between implementations and rank counts. ReproducibleSum is the other choice.
	StartAllreduceSum(buf []float32) Request

	// StartBarrier completes when every rank has started it.
	StartBarrier() Request

	// Dup returns a new communicator with the same ranks. Collective; blocks.
	Dup() (Comm, error)

	// Split returns the communicator of the ranks that gave the same color, ordered by key, then rank. Collective; blocks.
	Split(color, key int) (Comm, error)

	// Node returns the communicator of the ranks that share this rank's memory. Collective; blocks.
	Node() (Comm, error)

	// Free releases a communicator made by Dup, Split or Node. Collective.
	Free() error
}
