// Package random makes random words that are pure functions of a key: what is drawn depends neither
// on threads nor on order, and can be drawn again.
//
//	Mix(key)                         one word
//	Stream(key): Next(), Next(), ... the words Mix(key + Golden), Mix(key + 2 Golden), ...
//
// That is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) with the constants of Stafford's variant 13.
// Integer arithmetic only: words are equal on every machine. Not for secrets.
package random

// Golden is 2^64 divided by the golden ratio, an odd number: its multiples are spread evenly over
// the words. It is the step between the words of a stream.
const Golden = 0x9E3779B97F4A7C15

// Mix is the finaliser of SplitMix64: a bijection in which every input bit moves every output bit.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Stream is a sequence of random words. Its value is the state.
type Stream uint64

// Next returns the next word.
func (s *Stream) Next() uint64 {
	*s += Golden
	return Mix(uint64(*s))
}
