//go:build cgo && mpi

package mpi

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestPacerLaws: every message leaves once, those to one rank in their order, no more bytes are
// under way than the window holds, unless one piece is larger, and none waits while there is room.
func TestPacerLaws(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var p pacer
		c := &communicator{size: 1 + rng.IntN(5), window: 1 + rng.IntN(200)}
		c.rank = rng.IntN(c.size)
		wanted, sent, most := map[string]int{}, map[string]int{}, 0
		var flying []piece
		for round := 0; round < 20 || len(flying) > 0 || p.first < len(p.waiting); round++ {
			if round < 20 { // all-to-alls begin while others are under way
				op := &operation{comm: c, number: round, rowBytes: 1 + rng.IntN(9)}
				rows := make([]int, c.size)
				for r := range rows {
					rows[r] = rng.IntN(60)
				}
				op.out.plan(rows, 1000, 1+rng.IntN(20))
				for _, m := range op.out.messages {
					most = max(most, m.rows*op.rowBytes)
				}
				p.enqueue(op)
				if op.parts != len(op.out.messages) {
					t.Fatalf("seed %d: %d parts of %d messages", seed, op.parts,
						len(op.out.messages))
				}
				for r, n := range rows {
					if op.out.counts[r] == 0 {
						wanted[fmt.Sprint(round, " ", r)] = n
					}
				}
			}
			for _, m := range p.takePieces() {
				key := fmt.Sprint(m.op.number, " ", m.peer)
				if m.first != m.op.out.first[m.peer]+sent[key] {
					t.Fatalf("seed %d: row %d goes to rank %d after %d rows", seed, m.first, m.peer,
						sent[key])
				}
				sent[key] += m.rows
				flying = append(flying, m)
			}
			if p.bytes > max(c.window, most) {
				t.Fatalf("seed %d: %d bytes under way, the window is %d", seed, p.bytes, c.window)
			}
			if waits := p.first < len(p.waiting); waits && (len(flying) == 0 ||
				p.bytes+p.waiting[p.first].bytes() <= c.window) {
				t.Fatalf("seed %d: a piece waits, and there is room", seed)
			}
			if len(flying) > 0 {
				k := rng.IntN(len(flying))
				p.slots = append(p.slots[:0], flying[k])
				p.taken(0)
				p.free = p.free[:0]
				flying = append(flying[:k], flying[k+1:]...)
			}
		}
		for key, n := range wanted {
			if sent[key] != n {
				t.Fatalf("seed %d: %d rows of %d (all-to-all, rank) %s", seed, sent[key], n, key)
			}
		}
	}
}
