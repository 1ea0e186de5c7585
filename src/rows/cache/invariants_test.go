//go:build invariants

package cache

import (
	"strings"
	"testing"

	"halognn/src/topology/graph"
)

// wantsPanic runs f and wants an invariant to be broken in the words given.
func wantsPanic(t *testing.T, words string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		said, _ := recover().(string)
		if !strings.HasPrefix(said, "invariant: ") || !strings.Contains(said, words) {
			t.Errorf("panicked with %q, want an invariant and %q", said, words)
		}
	}()
	f()
}

// A step of a sieve whose state is damaged panics: it holds 3, 2 and 1, newest first.
func TestASieveIsChecked(t *testing.T) {
	for words, damage := range map[string]func(*Sieve){
		"":                      func(*Sieve) {},
		"slots in the list":     func(s *Sieve) { s.older[s.tail] = s.head },
		"follows":               func(s *Sieve) { s.newer[s.tail] = s.tail },
		"but the index says":    func(s *Sieve) { s.index.Set(2, s.head) },
		"waits for an insert":   func(s *Sieve) { s.insert[s.head] = 1 },
		"but the tail is slot":  func(s *Sieve) { s.tail = s.head },
		"the hand is at slot 3": func(s *Sieve) { s.hand = 3 },
		"lies at":               func(s *Sieve) { move(s.index, 2) },
		"its counter says":      func(s *Sieve) { s.index.keys++ },
	} {
		s := must[*Sieve](t)(NewSieve(1000, 4))
		var d Decision
		s.Step([]graph.VertexID{1, 2, 3}, &d)
		damage(s)
		step := func() { s.Step([]graph.VertexID{1}, &d) }
		if words == "" {
			step()
		} else {
			wantsPanic(t, words, step)
		}
		s.Free()
		d.Free()
	}
}

// move puts the entry of a vertex elsewhere in a hash, where it is not found.
func move(x *Index, v graph.VertexID) {
	at := x.find(v)
	last := uint64(len(x.table) - 1)
	to := (at + last/2) & last
	x.table[to], x.table[at] = x.table[at], 0
}

// A step of a look-ahead cache whose state is damaged panics. It keeps 1 for its next use, and 2
// and 3 for none.
func TestALookaheadIsChecked(t *testing.T) {
	for words, damage := range map[string]func(*Lookahead){
		"":                                 func(*Lookahead) {},
		"with a booked row do not add up":  func(l *Lookahead) { l.held++ },
		"the bookings have":                func(l *Lookahead) { l.bookings.free[4]++ },
		"are vacant, but the counter says": func(l *Lookahead) { l.vacant++ },
		"but the index says":               func(l *Lookahead) { l.index.Set(2, entryOf(3)) },
		"the ring is broken":               func(l *Lookahead) { l.older[l.newer[4]] = l.newer[4] },
	} {
		l := must[*Lookahead](t)(NewLookahead(LookaheadOptions{Vertices: 1000, Capacity: 4,
			Window: 3}))
		var d Decision
		for _, step := range [][]graph.VertexID{{1, 2, 3}, {}, {}, {1}} {
			l.Feed(step, nil)
		}
		l.Step([]graph.VertexID{1, 2, 3}, &d)
		damage(l)
		step := func() { l.Step(nil, &d) }
		if words == "" {
			step()
		} else {
			wantsPanic(t, words, step)
		}
		l.Free()
		d.Free()
	}
}
