package cache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// ICS 2022, section 3.2: six vertices, two devices with room for two, a = 0.3.
func TestPlaceWorkedExample(t *testing.T) {
	g := must[*Placement](t)(Place([]float32{4. / 6, 1, 1, 1, 5. / 6, 5. / 6}, 2, 2, 0.3))
	defer g.Free()
	for d, want := range [][]graph.VertexID{{1, 3}, {4, 2}} {
		if got := g.Held(d); !slices.Equal(got, want) {
			t.Errorf("device %d holds %v, want %v", d+1, got, want)
		}
	}
	device, slot := g.Lookup(0)
	defer mem.Free(device)
	defer mem.Free(slot)
	if want := []int16{-1, 0, 1, 0, 1, -1}; !slices.Equal(device, want) {
		t.Errorf("devices %v, want %v", device, want)
	}
	if want := []int32{-1, 0, 1, 1, 0, -1}; !slices.Equal(slot, want) {
		t.Errorf("slots %v, want %v", slot, want)
	}
}

func TestPlaceEnds(t *testing.T) {
	p := []float32{.9, .8, .7, .6, .5, .4, .3, .2, .1, 0}
	for _, c := range []struct {
		name           string
		devices, slots int
		a              float64
		want           [][]graph.VertexID
	}{
		{"replicate", 3, 3, 1, [][]graph.VertexID{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}},
		{"one device", 1, 3, 0, [][]graph.VertexID{{0, 1, 2}}},
		{"no room", 2, 0, 0, [][]graph.VertexID{{}, {}}},
		// Gained after round 0: .6, .5 and 0, so that device 1 keeps vertex 1; after round 1: .6,
		// .8 and .4, so that device 2 keeps vertex 0.
		{"spread", 3, 3, 0, [][]graph.VertexID{{8, 1, 3}, {0, 6, 4}, {7, 5, 2}}},
		{"more room than rows", 2, 20, 0,
			[][]graph.VertexID{{0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8}}},
		// .6 > .8*.7, but .5 < .8*.8
		{"stops at a refusal", 2, 3, 0.8, [][]graph.VertexID{{0, 1, 3}, {0, 1, 2}}},
	} {
		g := must[*Placement](t)(Place(p, c.devices, c.slots, c.a))
		for d := range g.Devices() {
			if got := g.Held(d); !slices.Equal(got, c.want[d]) {
				t.Errorf("%s: device %d holds %v, want %v", c.name, d, got, c.want[d])
			}
		}
		g.Free()
	}
	// A gain that is not above the loss is no reason to move a row.
	g := must[*Placement](t)(Place([]float32{1, 1, 1, 1}, 2, 2, 1))
	defer g.Free()
	if !slices.Equal(g.Held(0), g.Held(1)) {
		t.Errorf("equal likelihoods, a = 1: the devices hold %v and %v", g.Held(0), g.Held(1))
	}
}

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

// Every device holds its own vertices, the likeliest first, and fewer than there is room for if it
// has no more that are read.
func TestPlaceOwned(t *testing.T) {
	p := []float32{.1, .5, 0, .4, .9, .2, .3, .3}
	owner := func(v graph.VertexID) int { return min(int(v)/3, 2) - 1 } // 0 to 2 belong to nobody
	g := must[*Placement](t)(PlaceOwned(p, 3, 2, owner))
	defer g.Free()
	for d, want := range [][]graph.VertexID{{4, 3}, {6, 7}, nil} {
		if got := g.Held(d); !slices.Equal(got, want) {
			t.Errorf("device %d holds %v, want %v", d, got, want)
		}
	}
	if g.Rows() != 4 || g.Bytes() != 16 {
		t.Errorf("%d rows in %d bytes", g.Rows(), g.Bytes())
	}
	if _, err := PlaceOwned([]float32{-1}, 1, 1, owner); err == nil {
		t.Error("a likelihood below 0 is no error")
	}
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
