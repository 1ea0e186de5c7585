package cache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// cost is what a step is expected to cost all devices: nothing for an own row, a for a peer's, 1
// for any other.
func cost(g *Placement, p []float32, a float64) (sum float64) {
	for self := range g.Devices() {
		device, slot := g.Lookup(self)
		for v, x := range p {
			switch {
			case device[v] < 0:
				sum += float64(x)
			case int(device[v]) != self:
				sum += a * float64(x)
			}
		}
		mem.Free(device)
		mem.Free(slot)
	}
	return sum
}

// Laws on random likelihoods: devices are full, no row lies twice on one, look-ups lead to the row
// and prefer the own copy, the rows held are the hottest ones, and placing by a costs no more than
// replicating.
func TestPlaceLaws(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 12))
		p := make([]float32, r.IntN(80))
		positive := 0
		for v := range p {
			if p[v] = float32(r.IntN(12)) / 12 * r.Float32(); p[v] > 0 {
				positive++
			}
		}
		devices, slots, a := 1+r.IntN(5), r.IntN(20), r.Float64()
		if seed%4 == 0 {
			a = 0
		}
		g := must[*Placement](t)(Place(p, devices, slots, a))
		copies := make([]int, len(p))
		for d := range devices {
			if len(g.Held(d)) != min(slots, positive) {
				t.Fatalf("seed %d: device %d holds %d rows, not %d", seed, d, len(g.Held(d)),
					min(slots, positive))
			}
			seen := map[graph.VertexID]bool{}
			for _, v := range g.Held(d) {
				if seen[v] || p[v] == 0 {
					t.Fatalf("seed %d: device %d holds vertex %d, twice or in vain", seed, d, v)
				}
				seen[v] = true
				copies[v]++
			}
		}
		coldest, hottest := float32(2), float32(0) // held, not held
		for v, n := range copies {
			if n > 0 {
				coldest = min(coldest, p[v])
			} else {
				hottest = max(hottest, p[v])
			}
		}
		if hottest > coldest {
			t.Errorf("seed %d: a row of likelihood %v is held but one of %v is not", seed, coldest,
				hottest)
		}
		for self := range devices {
			device, slot := g.Lookup(self)
			for v, n := range copies {
				d := device[v]
				if (d < 0) != (n == 0) || d >= 0 && g.Held(int(d))[slot[v]] != graph.VertexID(v) {
					t.Fatalf("seed %d: device %d is led to device %d, slot %d for vertex %d", seed,
						self, d, slot[v], v)
				}
				if own := slices.Contains(g.Held(self), graph.VertexID(v)); own && int(d) != self {
					t.Fatalf("seed %d: device %d is led to %d for its own vertex %d", seed, self, d,
						v)
				}
			}
			mem.Free(device)
			mem.Free(slot)
		}
		same := must[*Placement](t)(Place(p, devices, slots, 1))
		if x, y := cost(g, p, a), cost(same, p, a); x > y+1e-9 {
			t.Errorf("seed %d: costs %v, but %v if all hold the same", seed, x, y)
		}
		same.Free()
		g.Free()
	}
}
