package sample

import (
	"slices"

	"halognn/src/base/mem"
)

// A table has the random numbers of all vertices. With it, the number of a neighbour costs one
// read, instead of a read of the neighbour's original id and two calls of random.Mix. A hop gets a
// table if it looks up more neighbours than the table has entries to renew. If numbers last several
// steps, few entries are renewed.

// Limits for tables. A graph of more than tableVertices gets no table, because a table takes 4
// bytes a vertex for each hop, and once more if numbers last several steps. If numbers last more
// than tableLasts steps, all entries are computed anew at each step.
const (
	tableVertices = 1 << 24
	tableLasts    = 1 << 16
)

// tables are a sampler's tables of numbers, one for each hop of a minibatch.
type tables struct {
	hops []table
	next int // table to overwrite for another word, once every hop has a table
	// Vertices by phase, for the moment that the field of holds. The vertices of phase p are
	// byPhase[starts[p]:starts[p+1]].
	of      moment
	byPhase []int32
	starts  []int
}

// table has the random numbers of all vertices that one key word gives, for one hop.
type table struct {
	word    uint64
	when    moment
	numbers []uint32 // [N] number of each vertex; empty if not yet computed
}

// find returns a table of the random numbers that all vertices have at moment m, for draws with the
// given key word. Minibatches have the given number of hops. The hop will look up the numbers of
// the given number of neighbours. If these are too few for a table to be worth its cost, find
// returns nil.
func (t *tables) find(m moment, word uint64, original []int32, hops int,
	neighbours int64) []uint32 {
	n := len(original)
	if m.lasts == 0 || n > tableVertices || neighbours*int64(m.lasts) < int64(n) {
		return nil
	}
	at := slices.IndexFunc(t.hops, func(one table) bool { return one.word == word })
	switch {
	case at >= 0:
	case len(t.hops) < hops:
		at = len(t.hops)
		t.hops = append(t.hops, table{})
	// no hop uses the same word again, so the whole table would be computed for this hop alone
	case neighbours < int64(n):
		return nil
	default:
		at = t.next % len(t.hops)
		t.next++
	}
	one := &t.hops[at]
	numbers, steps := m.keyedNumbers(word), m.step-one.when.step
	known := len(one.numbers) == n && one.word == word && one.when.lasts == m.lasts &&
		one.when.phases == m.phases && steps >= 0 && steps < m.lasts
	switch {
	case known && steps == 0:
		return one.numbers
	case known && m.lasts <= tableLasts:
		t.sort(m, original)
		for i := one.when.step + 1; i <= m.step; i++ {
			p := (m.lasts - i%m.lasts) % m.lasts // phase of the vertices that change their number
			for _, v := range t.byPhase[t.starts[p]:t.starts[p+1]] {
				one.numbers[v] = numbers.of(original[v])
			}
		}
	default:
		one.numbers = mem.Grow(one.numbers, n)
		for v, id := range original {
			one.numbers[v] = numbers.of(id)
		}
	}
	one.word, one.when = word, m
	return one.numbers
}

// sort orders the vertices by phase.
func (t *tables) sort(m moment, original []int32) {
	if t.of.lasts == m.lasts && t.of.phases == m.phases && len(t.byPhase) == len(original) {
		return
	}
	numbers := m.keyedNumbers(0)
	t.of, t.starts = m, make([]int, m.lasts+2)
	for _, id := range original {
		t.starts[numbers.phase(id)+2]++
	}
	for p := range m.lasts {
		t.starts[p+2] += t.starts[p+1]
	}
	t.byPhase = mem.Grow(t.byPhase, len(original))
	for v, id := range original {
		p := numbers.phase(id) + 1
		t.byPhase[t.starts[p]] = int32(v)
		t.starts[p]++
	}
}

func (t *tables) free() {
	for i := range t.hops {
		mem.Free(t.hops[i].numbers)
	}
	mem.Free(t.byPhase)
	*t = tables{}
}

func (t *tables) bytes() int64 {
	n := cap(t.byPhase)
	for i := range t.hops {
		n += cap(t.hops[i].numbers)
	}
	return int64(n)*4 + int64(cap(t.starts))*8
}
