package comm

import (
	"errors"
	"fmt"
	"sync"

	"halognn/src/base/mem"
)

// SumMode chooses how a Summer adds.
type SumMode int

const (
	SumAuto         SumMode = iota // SumReproducible up to MaxReproducible ranks, else SumFast
	SumReproducible                // adds in rank order: the same result with every Comm
	// SumFast adds by StartAllreduceSum. The last bit depends on the implementation.
	SumFast
)

// MaxReproducible is the largest number of ranks for which SumAuto sums reproducibly. With more
// ranks, the messages of the all-to-all become so small that latency dominates.
const MaxReproducible = 64

// SumOptions sets how a Summer adds. The zero value is SumAuto with a plain loop.
type SumOptions struct {
	Mode SumMode
	// Add does sum[i] += x[i]; nil means AddInto. Every Summer calls it from its own goroutine.
	Add func(sum, x []float32)
	// If Halves is not nil, vectors are sent as bfloat16 and always added in rank order, for any
	// number of ranks. If it is nil, vectors are sent as float32. Halves cannot be combined with
	// SumFast, where the MPI library adds the numbers that are sent.
	Halves Halves
}

// Halves converts numbers to the nearest bfloat16 and back; a NaN stays a NaN. The arguments dst
// and x have the same length. Several goroutines may call a method at once.
type Halves interface {
	ToBF16(dst []uint16, x []float32)
	FromBF16(dst []float32, x []uint16)
}

// Reproducible reports whether a Summer of size ranks adds in rank order.
func (o *SumOptions) Reproducible(size int) bool {
	return o.Mode == SumReproducible ||
		o.Mode == SumAuto && (size <= MaxReproducible || o.Halves != nil)
}

// SumBytes returns the bytes that ranks send each other to add a vector of n floats in rank order.
// The argument `size` is the number of ranks. Each rank adds one slice of the vector: all other
// ranks send it their slices, and it sends the sum back to all of them. If halves is true, floats
// are sent as bfloat16, except for the first `exact` floats.
func SumBytes(n, exact, size int, halves bool) int64 {
	bytes := 4 * n
	if halves {
		bytes = 2 * halvesEnd(n, exact)
	}
	return 2 * int64(size-1) * int64(bytes)
}

// AddInto adds x to sum, element by element: sum[i] += x[i]. Both slices have the same length.
func AddInto(sum, x []float32) {
	x = x[:len(sum)]
	for i := range sum {
		sum[i] += x[i]
	}
}

// Summer adds vectors over all ranks, several at a time, with the same bits on all ranks and with
// every Comm (docs/design/07-reproducible-numbers.md). A vector passes through these steps:
//
//	           caller       adder of this rank                     caller
//	Start ──> all-to-all ──> add the slices in rank order ──> all-gather ──> Wait
//	          (scatter)      slice r is added by rank r        (gather)
//
// Each of the two collectives has its own communicator, on which collectives start in the order of
// the calls of Start, and vector i+1 is sent while vector i is added. With K ranks, a vector of n
// floats makes each rank send 2n(K-1)/K floats, as in a bandwidth-optimal allreduce.
//
// With SumOptions.Halves each rank rounds the numbers that it sends. The rank that adds a slice
// adds these numbers as float32 and rounds the sum. All ranks, including this one, get the rounded
// sum. If there is only one rank, it sends nothing, and so rounds nothing.
type Summer struct {
	scatter, gather Comm // gather is nil if sums are not reproducible
	add             func(sum, x []float32)
	halves          Halves
	total, one      []float32     // buffers of the adder: a piece of a sum, and a rank's part of it
	queue           chan *Sum     // vectors whose slices are under way, oldest first
	stopped         chan struct{} // closed when the adder has returned
	sent            int64         // bytes that all ranks have sent each other

	mu      sync.Mutex
	free    []*Sum
	pending int // number of sums started and not waited for
	closed  bool
}

// Sum is a vector that is being added. It implements Request.
type Sum struct {
	owner *Summer
	buf   []float32
	exact int // number of floats at the start of buf that are not rounded
	// [size] this rank's slice of each rank's vector, in rank order. The sum replaces the first.
	slices []float32
	// With halves: packed has buf as it is sent, and packedSlices is used instead of slices.
	packed, packedSlices []uint16
	// [size] number of floats, or halves, sent to each rank, and received from each rank.
	sendRows, recvRows []int
	ready              chan struct{} // holds a token when the adder has set moving or err
	moving             Request       // the collective that was started last
	err                error
}

// NewSummer makes a Summer on duplicates of c. Collective; all ranks must give the same mode.
func NewSummer(c Comm, o SumOptions) (*Summer, error) {
	if o.Halves != nil && o.Mode == SumFast {
		return nil, errors.New("sums by the library cannot travel as bfloat16")
	}
	s := &Summer{add: o.Add}
	if s.add == nil {
		s.add = AddInto
	}
	if c.Size() > 1 {
		s.halves = o.Halves
	}
	var err error
	if s.scatter, err = c.Dup(); err != nil {
		return nil, fmt.Errorf("communicator of the gradient sum: %w", err)
	}
	if !o.Reproducible(c.Size()) {
		return s, nil
	}
	if s.gather, err = c.Dup(); err != nil {
		return nil, fmt.Errorf("communicator of the gradient sum: %w", err)
	}
	s.queue, s.stopped = make(chan *Sum, 64), make(chan struct{})
	go s.addArrived()
	return s, nil
}

// Reproducible reports whether the sums of s are added in rank order.
func (s *Summer) Reproducible() bool { return s.gather != nil }

// Sent returns the bytes that all ranks have sent each other for the vectors so far. Sums by the
// library count as if they were added in rank order, which sends the fewest bytes.
func (s *Summer) Sent() int64 { return s.sent }

// Start begins to replace buf by its sum over all ranks. Every rank must start vectors of the same
// lengths in the same order. Two goroutines must not call Start of one Summer at the same time. The
// caller must not touch buf until Wait of the Sum returns.
func (s *Summer) Start(buf []float32) *Sum { return s.StartExact(buf, 0) }

// StartExact is like Start, but never rounds the first `exact` numbers of buf. They may be counts
// that are sent together with gradients.
func (s *Summer) StartExact(buf []float32, exact int) *Sum {
	sum := s.take()
	sum.buf, sum.exact = buf, exact
	size, rank := s.scatter.Size(), s.scatter.Rank()
	s.sent += SumBytes(len(buf), exact, size, s.halves != nil)
	if !s.Reproducible() {
		sum.moving = s.scatter.StartAllreduceSum(buf)
		sum.ready <- struct{}{}
		return sum
	}
	for r := range size {
		sum.sendRows[r] = s.sliceEnd(sum, r) - s.sliceEnd(sum, r-1)
	}
	own := sum.sendRows[rank]
	for r := range size {
		sum.recvRows[r] = own
	}
	if s.halves != nil {
		sum.packed = mem.Grow(sum.packed, halvesEnd(len(buf), exact))
		sum.packedSlices = mem.Grow(sum.packedSlices, own*size)
		s.pack(sum.packed, buf, exact)
		sum.moving = s.scatter.StartAlltoallv(mem.Bytes(sum.packed), mem.Bytes(sum.packedSlices),
			sum.sendRows, sum.recvRows, 2)
	} else {
		sum.slices = mem.Grow(sum.slices, own*size)
		sum.moving = s.scatter.StartAlltoallv(mem.Bytes(buf), mem.Bytes(sum.slices), sum.sendRows,
			sum.recvRows, 4)
	}
	s.queue <- sum
	return sum
}

// sliceEnd returns where the slice of rank r ends in a vector, in the form that is sent.
func (s *Summer) sliceEnd(sum *Sum, r int) int {
	end := sliceEnd(len(sum.buf), r, s.scatter.Size())
	if s.halves != nil {
		return halvesEnd(end, sum.exact)
	}
	return end
}

// halvesEnd returns the index at which the first n numbers of a packed vector end. The first
// `exact` numbers are not rounded, and take two halves each.
func halvesEnd(n, exact int) int { return n + min(n, exact) }

// pack converts a vector for sending: the first numbers stay float32, the others become bfloat16.
func (s *Summer) pack(dst []uint16, x []float32, exact int) {
	exact = min(exact, len(x))
	copy(mem.Bytes(dst), mem.Bytes(x[:exact]))
	s.halves.ToBF16(dst[2*exact:], x[exact:])
}

// unpack converts a packed vector back to floats.
func (s *Summer) unpack(dst []float32, packed []uint16, exact int) {
	exact = min(exact, len(dst))
	copy(mem.Bytes(dst[:exact]), mem.Bytes(packed))
	s.halves.FromBF16(dst[exact:], packed[2*exact:][:len(dst)-exact])
}

// sliceEnd returns the index at which the slice of rank r ends in a vector of n floats.
func sliceEnd(n, r, size int) int { return (r + 1) * n / size }

// addArrived adds slices as soon as they have arrived, in the order of the calls of Start. After
// each it starts to gather the sums.
func (s *Summer) addArrived() {
	defer close(s.stopped)
	for sum := range s.queue {
		switch sum.err = sum.moving.Wait(); {
		case sum.err != nil:
		case s.halves != nil:
			sum.moving = s.gather.StartAllgatherv(mem.Bytes(s.addPacked(sum)),
				mem.Bytes(sum.packed), sum.sendRows, 2)
		default:
			sum.moving = s.gather.StartAllgatherv(mem.Bytes(s.addSlices(sum)), mem.Bytes(sum.buf),
				sum.sendRows, 4)
		}
		sum.ready <- struct{}{}
	}
}

// addSlices adds up this rank's slices from all ranks, and returns the sum.
func (s *Summer) addSlices(sum *Sum) []float32 {
	own := sum.recvRows[0]
	total := sum.slices[:own]
	for r := 1; r < len(sum.recvRows); r++ {
		s.add(total, sum.slices[r*own:(r+1)*own])
	}
	return total
}

// addedAtOnce is how many packed numbers are added at a time: few enough to stay in a core's cache.
const addedAtOnce = 4096

// addPacked is addSlices for a packed vector.
func (s *Summer) addPacked(sum *Sum) []uint16 {
	rank, size := s.scatter.Rank(), s.scatter.Size()
	first, end := sliceEnd(len(sum.buf), rank-1, size), sliceEnd(len(sum.buf), rank, size)
	// the variable whole counts exact numbers of the slice, and own the halves of the slice
	whole, own := max(0, sum.exact-first), sum.recvRows[rank]
	for lo := 0; lo < end-first; lo += addedAtOnce {
		n, exact, at := min(addedAtOnce, end-first-lo), max(0, whole-lo), halvesEnd(lo, whole)
		s.total, s.one = mem.Grow(s.total, n), mem.Grow(s.one, n)
		s.unpack(s.total, sum.packedSlices[at:], exact)
		for r := 1; r < size; r++ {
			s.unpack(s.one, sum.packedSlices[r*own+at:], exact)
			s.add(s.total, s.one)
		}
		s.pack(sum.packedSlices[at:][:halvesEnd(n, exact)], s.total, exact)
	}
	return sum.packedSlices[:own]
}

// Wait blocks until the vector is the sum over all ranks. Any goroutine may call it, once.
func (sum *Sum) Wait() error {
	<-sum.ready
	err := sum.err
	if err == nil {
		err = sum.moving.Wait()
	}
	s := sum.owner
	if err == nil && s.halves != nil {
		s.unpack(sum.buf, sum.packed, sum.exact)
	}
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

// Close frees the communicators and buffers. It returns an error and frees nothing if Wait has not
// been called for all sums. A second Close does nothing.
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
		mem.Free(sum.packed)
		mem.Free(sum.packedSlices)
	}
	mem.Free(s.total)
	mem.Free(s.one)
	s.free = nil
	if err := s.scatter.Free(); err != nil {
		return err
	}
	return s.gather.Free()
}
