// Package random makes random words of 64 bits that are pure functions of a key. So a word does not
// depend on threads or on the order of draws, and can be drawn again.
//
//	Mix(key)                         one word
//	Stream(key): Next(), Next(), ... the words Mix(key + Golden), Mix(key + 2 Golden), ...
//
// This is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) with the constants of Stafford's variant 13.
// It uses only integer arithmetic, so words are equal on every machine. It must not be used for
// secrets.
package random

// Golden is 2^64 divided by the golden ratio, rounded to an odd number. Its multiples are spread
// evenly over all words. A stream adds it to its state for every word.
const Golden = 0x9E3779B97F4A7C15

// Mix is the finaliser of SplitMix64. It is a bijection of words in which every bit of the input
// affects every bit of the output.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Stream is a sequence of random words. The number itself is the state of the sequence.
type Stream uint64

// Next returns the next word.
func (s *Stream) Next() uint64 {
	*s += Golden
	return Mix(uint64(*s))
}
