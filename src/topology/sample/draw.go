package sample

import (
	"math/bits"

	"halognn/src/base/random"
)

// The purposes of random numbers. No two purposes share a sequence.
const (
	drawing uint64 = iota + 1
	shuffling
	numbering
	phasing
	negating
)

// fold turns a purpose and a key into one word.
func fold(purpose, seed uint64, key ...int) uint64 {
	h := random.Mix(random.Mix(seed) + purpose*random.Golden)
	for _, k := range key {
		h = random.Mix(h + random.Golden + uint64(k))
	}
	return h
}

// hop returns the word of hop h >= 1. Together with a vertex it keys the vertex's random numbers.
func (k Key) hop(h int) uint64 { return fold(drawing, k.Seed, k.Epoch, k.Step, k.Stream, h) }

// relationWord returns the word that keys a hop's draws by one relation. For the first relation it
// is the hop's word, as in graphs without relations.
func relationWord(hop uint64, relation int) uint64 {
	if relation == 0 {
		return hop
	}
	return random.Mix(hop + uint64(relation)*random.Golden)
}

// stream is a sequence of random words.
type stream uint64

// vertexStream is the random sequence from which a vertex draws.
func vertexStream(hop uint64, original int32) stream {
	return stream(random.Mix(hop ^ uint64(uint32(original))))
}

// countStream is the random sequence for the number of neighbours that a vertex draws, if this
// number is random.
func countStream(hop uint64, original int32) stream {
	return vertexStream(random.Mix(hop+random.Golden), original)
}

func (s *stream) next() uint64 { return (*random.Stream)(s).Next() }

// below returns a number in [0,n), for n >= 1; all are exactly equally likely. It multiplies
// instead of dividing, and redraws the few words that would make some numbers likelier (Lemire,
// Fast Random Integer Generation in an Interval, 2019).
func (s *stream) below(n uint64) uint64 {
	hi, lo := bits.Mul64(s.next(), n)
	if lo < n {
		for reject := -n % n; lo < reject; {
			hi, lo = bits.Mul64(s.next(), n)
		}
	}
	return hi
}

// unit returns a number in [0,1), a multiple of 2^-53.
func (s *stream) unit() float64 { return float64(s.next()>>11) * 0x1p-53 }

// trialMean is the largest expected number of successes that invert draws from one random number.
// With a larger one, the probability of no success, with which invert starts, could underflow to 0.
const trialMean = 32

// binomial returns how many of n trials succeed, each with probability p in (0,1] and independent
// of the others. O(1 + n min(p,1-p)). Products are converted to float64 explicitly, so that no
// compiler fuses them with a sum: the result is the same on every machine.
func (s *stream) binomial(n int64, p float64) int64 {
	if p >= 1 {
		return n
	}
	if p > 0.5 {
		return n - s.binomial(n, 1-p)
	}
	k := int64(0)
	for most := int64(trialMean / p); n > 0; n -= most {
		k += s.invert(min(n, most), p)
	}
	return k
}

// invert draws a binomial number by inversion: it subtracts the probabilities of 0, 1, ...
// successes from one random number until nothing is left. The variable at is the probability of k,
// from which the probability of k+1 follows.
func (s *stream) invert(n int64, p float64) (k int64) {
	odds := p / (1 - p)
	all := float64(float64(n+1) * odds)
	u, at := s.unit(), power(1-p, n)
	for u >= at && at > 0 && k < n {
		u -= at
		k++
		at = float64(at * (all/float64(k) - odds))
	}
	return k
}

// power returns x to the power of n >= 0, by repeated squaring. It uses only products, which are
// equal on every machine.
func power(x float64, n int64) float64 {
	y := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			y = float64(y * x)
		}
		x = float64(x * x)
	}
	return y
}

// maskFanout is the largest fanout at which a 64-bit mask still tells most draws apart from earlier
// ones.
const maskFanout = 64

// choose sets pos to len(pos) distinct numbers of [begin, begin+degree), in the order drawn, by
// Floyd's algorithm; every subset is equally likely. For j = degree-len(pos) .. degree-1 it draws
// from [0,j], and takes j itself if the number drawn is already taken. It requires len(pos) <
// degree. It reads no memory but pos and the random words, so the draws of many vertices overlap.
func (p *picks) choose(pos []int64, begin, degree int64, s stream) {
	switch {
	case degree <= 64:
		chooseMask(pos, begin, degree, s)
	case len(pos) <= maskFanout:
		chooseScan(pos, begin, degree, s)
	default:
		p.chooseSet(pos, begin, degree, s)
	}
}

// chooseMask does what choose does, for degree <= 64. Its variable taken has a bit for each number
// that is taken.
func chooseMask(pos []int64, begin, degree int64, s stream) {
	var taken uint64
	j := uint64(degree) - uint64(len(pos))
	for i := range pos {
		hi, lo := bits.Mul64(s.next(), j+1)
		if lo <= j {
			hi = s.redraw(hi, lo, j+1)
		}
		if taken>>(hi&63)&1 != 0 {
			hi = j
		}
		taken |= 1 << (hi & 63)
		pos[i] = begin + int64(hi)
		j++
	}
}

// chooseScan does what choose does, for few draws. It compares a draw with all numbers taken, but
// only if a mask of the lowest six bits of these numbers shows a possible match.
func chooseScan(pos []int64, begin, degree int64, s stream) {
	var taken uint64
	j := uint64(degree) - uint64(len(pos))
	for i := range pos {
		hi, lo := bits.Mul64(s.next(), j+1)
		if lo <= j {
			hi = s.redraw(hi, lo, j+1)
		}
		if taken>>(hi&63)&1 != 0 {
			for _, q := range pos[:i] {
				if q == begin+int64(hi) {
					hi = j
					break
				}
			}
		}
		taken |= 1 << (hi & 63)
		pos[i] = begin + int64(hi)
		j++
	}
}

// redraw is the rare path of the method stream.below. It is not inlined, so that the loops above
// stay small.
//
//go:noinline
func (s *stream) redraw(hi, lo, n uint64) uint64 {
	for reject := -n % n; lo < reject; {
		hi, lo = bits.Mul64(s.next(), n)
	}
	return hi
}

// picks is the set of numbers taken for fanouts too large for chooseScan: open addressing, at most
// half full. An entry is stamp<<32 | number, and an entry of an older stamp is empty, so that
// nothing is cleared between vertices. The zero value is ready for use; the table grows with the
// largest draw so far, not with the fanout.
type picks struct {
	table []uint64
	stamp uint32
}

func (p *picks) chooseSet(pos []int64, begin, degree int64, s stream) {
	if size := 2 << bits.Len(uint(len(pos)-1)); size > len(p.table) {
		p.table, p.stamp = make([]uint64, size), 0
	}
	if p.stamp++; p.stamp == 0 {
		clear(p.table)
		p.stamp = 1
	}
	j := uint64(degree) - uint64(len(pos))
	for i := range pos {
		t := s.below(j + 1)
		if !p.add(t) {
			t = j // larger than all before, so it cannot be taken
			p.add(t)
		}
		pos[i] = begin + int64(t)
		j++
	}
}

// add puts t in the set and reports whether it was not there.
func (p *picks) add(t uint64) bool {
	entry := uint64(p.stamp)<<32 | t
	mask := uint64(len(p.table) - 1)
	for slot := random.Mix(t) & mask; ; slot = (slot + 1) & mask {
		switch old := p.table[slot]; {
		case old == entry:
			return false
		case old>>32 != uint64(p.stamp):
			p.table[slot] = entry
			return true
		}
	}
}
