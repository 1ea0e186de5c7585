package compute

import "halognn/src/base/random"

// Dropout bits are a pure function of (run seed, epoch, step, stream, layer, vertex, column), so a
// mask can be computed on any device, in any order, and again in a test. Three functions compute
// the bits. Each is called as rarely as possible:
//
//	NewDropoutKey   64-bit mixing, once per layer and minibatch   -> K0, K1
//	DropoutKey.Row  64-bit mixing, once per row                   -> two 32-bit words
//	DropoutRow.Bits 32-bit multiplies, shifts and xors for each element, which compilers vectorise
//
// The 64-bit mixing is random.Mix, which kernels call mix64. The 32-bit mixing is lowbias32 (C.
// Wellons, 2018).

const (
	// The text "dropout!" as a number. It makes the dropout bits independent of the sampler's
	// random bits, which use the same seed.
	dropoutDomain = 0x64726f706f757421
	weyl32        = 0x9e3779b9 // the upper half of random.Golden
)

// DropoutKey is the key of the dropout bits of one layer in one minibatch. A bit depends only on
// the key, the vertex and the column. So masks do not depend on the rank, the device or the order
// of rows. Make it with NewDropoutKey.
type DropoutKey struct{ K0, K1 uint32 }

// NewDropoutKey returns the key of one layer in one minibatch. The argument `stream` is the
// minibatch's stream of seeds, not the rank.
func NewDropoutKey(seed uint64, epoch, step, stream, layer int) DropoutKey {
	h := random.Mix(seed ^ dropoutDomain)
	for _, part := range [...]int{epoch, step, stream, layer} {
		h = random.Mix(h + random.Golden*(uint64(part)+1))
	}
	return DropoutKey{K0: uint32(h), K1: uint32(h >> 32)}
}

// DropoutRow is the state from which the bits of one vertex's row are computed.
type DropoutRow struct{ lo, hi uint32 }

// Row returns the state of the row of a vertex. The argument `vertex` is the vertex's id in the
// dataset.
func (k DropoutKey) Row(vertex int32) DropoutRow {
	h := random.Mix((uint64(k.K1)<<32 | uint64(k.K0)) + random.Golden*(uint64(uint32(vertex))+1))
	return DropoutRow{lo: uint32(h), hi: uint32(h >> 32)}
}

// Bits returns 32 random bits for a column. The element in this column is kept if the bits, read as
// a number, are at least DropoutThreshold(p).
func (r DropoutRow) Bits(column int) uint32 {
	x := r.lo + uint32(column)*weyl32
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x>>15 ^ r.hi
	x *= 0x846ca68b
	return x ^ x>>16
}

// DropoutThreshold returns p * 2^32, rounded down. An element is dropped if its bits, read as a
// number, are below this threshold. It panics unless 0 <= p < 1.
func DropoutThreshold(p float32) uint32 {
	if !(p >= 0 && p < 1) {
		panic("compute: dropout probability outside [0,1)")
	}
	return uint32(float64(p) * (1 << 32))
}

// DropoutScale returns 1/(1-p), by which kept elements are multiplied.
func DropoutScale(p float32) float32 { return float32(1 / (1 - float64(p))) }
