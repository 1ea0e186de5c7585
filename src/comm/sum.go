package comm

import (
	"fmt"
	"sync"

	"halognn/src/mem"
)

// SumMode chooses how a Summer adds.
type SumMode int

const (
	SumAuto         SumMode = iota // SumReproducible up to MaxReproducible ranks, SumFast beyond
	SumReproducible                // in rank order: one result for every implementation of Comm
	// StartAllreduceSum: the last bit depends on the implementation and its algorithm
	SumFast
)

// MaxReproducible is the largest number of ranks for which SumAuto sums reproducibly: with more
// ranks the messages of its all-to-all shrink until latency dominates.
const MaxReproducible = 64

// SumOptions sets how a Summer adds. The zero value is SumAuto with a plain loop.
type SumOptions struct {
	Mode SumMode
	// sum[i] += x[i]; nil means AddInto. Every Summer calls it from a goroutine of its own.
	Add func(sum, x []float32)
}

// AddInto adds x to sum, element by element: sum[i] += x[i]. They have the same length.
func AddInto(sum, x []float32) {
	x = x[:len(sum)]
	for i := range sum {
		sum[i] += x[i]
	}
}

// Summer adds vectors over all ranks, several at a time, bit-identically on all ranks and over
// every implementation of Comm (docs/design/07-reproducible-numbers.md). A vector goes through
//
//	           caller       adder of this rank                     caller
//	Start ──> all-to-all ──> add the slices in rank order ──> all-gather ──> Wait
//	          (scatter)      slice r is added by rank r        (gather)
//
// Each of the two collectives has its own communicator, on which the order is that of the Starts,
// and bucket i+1 travels while bucket i is added. It moves 2n(K-1)/K floats a rank, as a
// bandwidth-optimal allreduce does.
type Summer struct {
	scatter, gather Comm // gather is nil if sums are fast
	add             func(sum, x []float32)
	queue           chan *Sum     // vectors whose slices are on their way, oldest first
	stopped         chan struct{} // closed when the adder has returned

	mu      sync.Mutex
	free    []*Sum
	pending int // started, not waited for
	closed  bool
}

// Sum is a vector being added: a Request.
type Sum struct {
	owner *Summer
	buf   []float32
	// this rank's slice as every rank sent it, in rank order; the sum replaces the first
	slices []float32
	// floats of each rank's slice; of this rank's slice from each rank
	sendRows, recvRows []int
	ready              chan struct{} // holds a token when the adder has set moving or err
	moving             Request       // the last collective
	err                error
}

// NewSummer makes a Summer on duplicates of c. Collective; every rank gives the same mode.
func NewSummer(c Comm, o SumOptions) (*Summer, error) {
	s := &Summer{add: o.Add}
	if s.add == nil {
		s.add = AddInto
	}
	var err error
	if s.scatter, err = c.Dup(); err != nil {
		return nil, fmt.Errorf("communicator of the gradient sum: %w", err)
	}
	if o.Mode == SumFast || o.Mode == SumAuto && c.Size() > MaxReproducible {
		return s, nil
	}
	if s.gather, err = c.Dup(); err != nil {
		return nil, fmt.Errorf("communicator of the gradient sum: %w", err)
	}
	s.queue, s.stopped = make(chan *Sum, 64), make(chan struct{})
	go s.addArrived()
	return s, nil
}

// Reproducible reports whether sums are added in rank order.
func (s *Summer) Reproducible() bool { return s.gather != nil }

// Start begins to replace buf by its sum over all ranks. Every rank starts vectors of the same
// lengths in the same order; starts of one Summer must not overlap. buf belongs to the Sum until
// its Wait returns.
func (s *Summer) Start(buf []float32) *Sum {
	sum := s.take()
	sum.buf = buf
	if !s.Reproducible() {
		sum.moving = s.scatter.StartAllreduceSum(buf)
		sum.ready <- struct{}{}
		return sum
	}
	size, rank := s.scatter.Size(), s.scatter.Rank()
	own := sliceEnd(len(buf), rank, size) - sliceEnd(len(buf), rank-1, size)
	for r := range size {
		sum.sendRows[r] = sliceEnd(len(buf), r, size) - sliceEnd(len(buf), r-1, size)
		sum.recvRows[r] = own
	}
	sum.slices = mem.Grow(sum.slices, own*size)
	sum.moving = s.scatter.StartAlltoallv(mem.Bytes(buf), mem.Bytes(sum.slices), sum.sendRows,
		sum.recvRows, 4)
	s.queue <- sum
	return sum
}

// sliceEnd returns where the slice of rank r ends in a vector of n floats.
func sliceEnd(n, r, size int) int { return (r + 1) * n / size }

// addArrived adds the slices that have arrived, in the order of the Starts, and starts gathering
// the sums.
func (s *Summer) addArrived() {
	defer close(s.stopped)
	rank := s.scatter.Rank()
	for sum := range s.queue {
		if sum.err = sum.moving.Wait(); sum.err == nil {
			own := sum.recvRows[rank]
			total := sum.slices[:own]
			for r := 1; r < len(sum.recvRows); r++ {
				s.add(total, sum.slices[r*own:(r+1)*own])
			}
			sum.moving = s.gather.StartAllgatherv(mem.Bytes(total), mem.Bytes(sum.buf),
				sum.sendRows, 4)
		}
		sum.ready <- struct{}{}
	}
}

// Wait blocks until the vector is the sum over all ranks. It may be called once, from any
// goroutine.
func (sum *Sum) Wait() error {
	<-sum.ready
	err := sum.err
	if err == nil {
		err = sum.moving.Wait()
	}
	s := sum.owner
	sum.buf, sum.moving, sum.err = nil, nil, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, sum)
	s.pending--
	return err
}

func (s *Summer) take() *Sum {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		panic("comm: Start on a closed Summer")
	}
	s.pending++
	if last := len(s.free) - 1; last >= 0 {
		sum := s.free[last]
		s.free = s.free[:last]
		return sum
	}
	size := s.scatter.Size()
	return &Sum{owner: s, ready: make(chan struct{}, 1), sendRows: make([]int, size),
		recvRows: make([]int, size)}
}

// Close frees the communicators and buffers. It returns an error and frees nothing while sums have
// not been waited for. A second Close does nothing.
func (s *Summer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.pending > 0 {
		return fmt.Errorf("closing a gradient sum with %d vectors under way: wait for them first",
			s.pending)
	}
	if !s.Reproducible() {
		return s.scatter.Free()
	}
	close(s.queue)
	<-s.stopped
	for _, sum := range s.free {
		mem.Free(sum.slices)
	}
	s.free = nil
	if err := s.scatter.Free(); err != nil {
		return err
	}
	return s.gather.Free()
}
