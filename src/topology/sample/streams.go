package sample

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// BatchScope says which seeds the batch size counts.
type BatchScope int

// The scopes of the batch size.
const (
	// Seeds of one stream in a step, so the global minibatch grows with the number of streams.
	ScopeRank   BatchScope = iota
	ScopeGlobal            // seeds of all streams together in a step, for scaling studies
)

// SeedScope says which seeds are shuffled together.
type SeedScope int

// The scopes of a shuffle.
const (
	SeedsLocal  SeedScope = iota // each stream has the seeds of its own part
	SeedsGlobal                  // one permutation over all seeds; needs a replicated topology
)

// MaxBatch is the largest batch size: more seeds than any graph has.
const MaxBatch = graph.MaxVertices

// StreamOptions says how the seeds of an epoch are cut. Zero values are the defaults, except Batch,
// which has none.
type StreamOptions struct {
	Batch int
	Scope BatchScope
	Seeds SeedScope
	Seed  uint64 // seed of the run

	// Original is the original id of every vertex of the graph. If given, seeds are sorted by it
	// before they are shuffled (within each stream, or all together for SeedsGlobal), so that
	// results do not depend on the numbering of vertices nor, for SeedsGlobal, on the partition. If
	// nil, seeds are shuffled from the given order.
	Original []int32
}

// Streams defines the order of the seeds: the seeds of stream k at step s of an epoch.
//
//	K streams, n[k] seeds each, n together; batch B; S steps an epoch
//
//	           step 0    1    2
//	stream 0   | 4  | 3  | 3  |     n[0] = 10
//	stream 1   | 3  | 4  | 4  |     n[1] = 11
//	global       7    7    7
//
// Steps: S = max over k of ceil(n[k]/B) for ScopeRank; S = ceil(n/B) for ScopeGlobal, for any K.
//
// SeedsLocal: stream k shuffles its seeds by (seed, epoch, k) and cuts them into S pieces in order.
// Pieces of a stream differ by at most one seed: n[k] mod S of them have one more. The larger
// pieces of stream k begin, cyclically, where those of stream k-1 end, so that the global
// minibatches also differ by at most one, and for ScopeGlobal no global minibatch exceeds B.
//
// SeedsGlobal: all seeds are shuffled by (seed, epoch), cut into S near-equal global minibatches,
// and each global minibatch into K near-equal pieces, in stream order; the number of steps depends
// only on n, not on n[k] (ScopeRank: as if every stream had n/K seeds, so S = ceil(n/(K*B))).
//
// All streams have the same number of steps; a stream with fewer seeds than steps has empty pieces,
// which count with weight 0. Streams needs no communication and is safe for concurrent use.
type Streams struct {
	options   StreamOptions
	available int // number of seeds that are cut into steps of the batch size
	steps     int
	all       []graph.VertexID // [n] the seeds of stream k are all[offsets[k]:offsets[k+1]]
	offsets   []int            // [K+1] where the seeds of each stream begin in all
	larger    []int            // [K] step at which the larger pieces of each stream start
	orders    []order          // [K] shuffled seeds of each stream; one element for SeedsGlobal
	// the links, if seeds are indices of links; nil if seeds are vertices
	links *Links
}

// order holds the shuffled seeds of one stream. It keeps two epochs, because the pipeline may
// already prepare the next epoch.
type order struct {
	sync.Mutex
	slots [2]struct {
		tag   int // the epoch + 1; zero means no epoch
		seeds []graph.VertexID
	}
}

// NewStreams copies the seeds of all streams, which must be the same on every rank. It is an error
// if there are no seeds at all.
func NewStreams(seedsPerStream [][]graph.VertexID, o StreamOptions) (*Streams, error) {
	s := &Streams{options: o, offsets: []int{0}}
	n, most := 0, 0
	for _, seeds := range seedsPerStream {
		n += len(seeds)
		most = max(most, len(seeds))
		s.offsets = append(s.offsets, n)
	}
	if err := o.check(seedsPerStream, n); err != nil {
		return nil, fmt.Errorf("seed order: %w", err)
	}
	switch {
	case o.Scope == ScopeGlobal:
		s.available = n
	case o.Seeds == SeedsGlobal:
		s.available = ceil(n, len(seedsPerStream))
	default:
		s.available = most
	}
	s.steps = ceil(s.available, o.Batch)
	s.all = mem.Make[graph.VertexID](n)
	s.orders = make([]order, len(seedsPerStream))
	larger := 0
	for k, seeds := range seedsPerStream {
		copy(s.all[s.offsets[k]:], seeds)
		s.larger = append(s.larger, larger)
		larger = (larger + len(seeds)) % s.steps
	}
	if o.Seeds == SeedsGlobal {
		s.orders = s.orders[:1]
	}
	if o.Original != nil {
		byOriginal := func(a, b graph.VertexID) int {
			return cmp.Compare(o.Original[a], o.Original[b])
		}
		for k := range s.orders {
			slices.SortFunc(s.shuffled(k), byOriginal)
		}
	}
	s.options.Original = nil // no longer needed, and the caller may unmap it
	return s, nil
}

// check returns all errors, joined.
func (o *StreamOptions) check(seedsPerStream [][]graph.VertexID, n int) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	if o.Batch < 1 || o.Batch > MaxBatch {
		fault("batch is %d; it must be 1 to %d", o.Batch, MaxBatch)
	}
	if o.Scope != ScopeRank && o.Scope != ScopeGlobal {
		fault("batch scope %d is unknown", o.Scope)
	}
	if o.Seeds != SeedsLocal && o.Seeds != SeedsGlobal {
		fault("seed scope %d is unknown", o.Seeds)
	}
	switch {
	case len(seedsPerStream) == 0:
		fault("there are no streams")
	case n == 0:
		fault("none of %d streams has a training seed; check the training split of the data set",
			len(seedsPerStream))
	}
	limit := graph.MaxVertices
	if o.Original != nil {
		limit = len(o.Original)
	}
	for k, seeds := range seedsPerStream {
		for _, v := range seeds {
			if v < 0 || int(v) >= limit {
				faults = append(faults,
					seedError("stream %d: seed %d: %w (the graph has %d vertices)", k, v,
						graph.ErrVertexRange, limit))
				break
			}
		}
	}
	return errors.Join(faults...)
}

// Free frees the memory.
func (s *Streams) Free() {
	mem.Free(s.all)
	for k := range s.orders {
		for i := range s.orders[k].slots {
			mem.Free(s.orders[k].slots[i].seeds)
		}
	}
	*s = Streams{}
}

// Bytes returns the memory of the seeds and of the orders made so far.
func (s *Streams) Bytes() int64 {
	n := cap(s.all)
	for k := range s.orders {
		for i := range s.orders[k].slots {
			n += cap(s.orders[k].slots[i].seeds)
		}
	}
	return int64(n) * 4
}

// Steps returns S, the number of steps of an epoch, the same on every rank.
func (s *Streams) Steps() int { return s.steps }

// Streams returns K.
func (s *Streams) Streams() int { return len(s.larger) }

// Warning returns a warning about unusual settings, or "".
func (s *Streams) Warning() string {
	if s.options.Batch <= s.available {
		return ""
	}
	return fmt.Sprintf("batch %d is larger than the %d training seeds it is cut from: every "+
		"epoch is a single step", s.options.Batch, s.available)
}

// Piece returns the seeds of a stream at a step of an epoch, in the memory of dst if they fit. The
// first call for an epoch shuffles the stream's seeds, O(n[k]), or all n seeds for SeedsGlobal;
// later calls only copy the piece. If seeds stand for links, Piece returns the ends of the links
// and of their negatives.
func (s *Streams) Piece(epoch, step, stream int, dst []graph.VertexID) []graph.VertexID {
	if s.links == nil {
		return s.numbers(epoch, step, stream, dst)
	}
	s.links.withMinibatch(epoch, step, stream, func(r *rated) { dst = append(dst[:0], r.seeds...) })
	return dst
}

// numbers returns the seeds of a stream at a step. They are vertices or, if the task is links,
// indices of links.
func (s *Streams) numbers(epoch, step, stream int, dst []graph.VertexID) []graph.VertexID {
	lo, hi := s.bounds(step, stream)
	k := stream
	if s.options.Seeds == SeedsGlobal {
		k = 0
	}
	o := &s.orders[k]
	o.Lock()
	defer o.Unlock()
	slot := &o.slots[epoch&1]
	if slot.tag != epoch+1 {
		seeds := s.shuffled(k)
		slot.seeds = mem.Grow(slot.seeds, len(seeds))
		copy(slot.seeds, seeds)
		shuffle(slot.seeds, fold(shuffling, s.options.Seed, int(s.options.Seeds), epoch, k))
		slot.tag = epoch + 1
	}
	return append(dst[:0], slot.seeds[lo:hi]...)
}

// Source returns the seeds from which a stream draws, and its mean number of seeds a step. The
// caller must not change them.
func (s *Streams) Source(stream int) (seeds []graph.VertexID, perStep float64) {
	if s.links != nil {
		return s.links.source(stream)
	}
	if s.options.Seeds == SeedsGlobal {
		return s.all, float64(len(s.all)) / float64(s.steps*s.Streams())
	}
	seeds = s.shuffled(stream)
	return seeds, float64(len(seeds)) / float64(s.steps)
}

// shuffled returns the seeds, in their order before the shuffle, that the order with the index k
// shuffles.
func (s *Streams) shuffled(k int) []graph.VertexID {
	if s.options.Seeds == SeedsGlobal {
		return s.all
	}
	return s.all[s.offsets[k]:s.offsets[k+1]]
}

// shuffle permutes seeds, every order equally likely (Fisher and Yates).
func shuffle(seeds []graph.VertexID, key uint64) {
	random := stream(key)
	for i := len(seeds) - 1; i > 0; i-- {
		j := random.below(uint64(i) + 1)
		seeds[i], seeds[j] = seeds[j], seeds[i]
	}
}

// PieceLen returns the number of seeds of a stream at a step. It is the same in every epoch, and is
// the weight of the stream in the gradient.
func (s *Streams) PieceLen(step, stream int) int {
	lo, hi := s.bounds(step, stream)
	return hi - lo
}

// MaxPiece returns the number of seeds of the largest piece, or an upper bound if seeds stand for
// links.
func (s *Streams) MaxPiece() int {
	if s.links != nil {
		return s.links.mostSeeds(s.maxNumbers())
	}
	return s.maxNumbers()
}

func (s *Streams) maxNumbers() int {
	if s.options.Seeds == SeedsGlobal {
		return ceil(ceil(len(s.all), s.steps), s.Streams())
	}
	most := 0
	for k := range s.larger {
		most = max(most, s.offsets[k+1]-s.offsets[k])
	}
	return ceil(most, s.steps)
}

// GlobalSeeds returns the number of seeds of all streams together at a step, the same in every
// epoch. O(K).
func (s *Streams) GlobalSeeds(step int) int {
	n := 0
	for k := range s.larger {
		n += s.PieceLen(step, k)
	}
	return n
}

// bounds returns the range [lo, hi) of the stream's shuffled seeds that is its piece at a step.
func (s *Streams) bounds(step, stream int) (lo, hi int) {
	if s.options.Seeds == SeedsGlobal {
		from, to := cut(len(s.all), s.steps, step)
		lo, hi = cut(to-from, s.Streams(), stream)
		return from + lo, from + hi
	}
	n := s.offsets[stream+1] - s.offsets[stream]
	size, larger := n/s.steps, n%s.steps
	// before returns the number of larger pieces at steps below t. The larger pieces lie at steps
	// first, first+1, ... modulo the number of steps.
	before := func(t int) int {
		first := s.larger[stream]
		wrapped := max(first+larger-s.steps, 0)
		return min(t, wrapped) + min(max(t-first, 0), larger-wrapped)
	}
	return step*size + before(step), (step+1)*size + before(step+1)
}

// cut cuts n items into pieces of nearly equal size, and returns the range of piece i.
func cut(n, pieces, i int) (lo, hi int) { return i * n / pieces, (i + 1) * n / pieces }

func ceil(a, b int) int { return (a + b - 1) / b }
