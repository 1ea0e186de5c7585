//go:build cgo

package sample

// These tests draw minibatches on an emulated device, and compare them with the reference's.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"halognn/src/base/random"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/cuda"
	"halognn/src/topology/graph"
)

// openCard opens an emulated device whose work runs at random times, whose blocks of threads begin
// anywhere, and whose allocations lie apart.
func openCard(t *testing.T) *cuda.Device {
	t.Helper()
	t.Setenv("HALOGNN_EMULATED_SEED", "7")
	d, err := cuda.Open(cuda.Options{Memory: 48 << 20,
		Library: computetest.CUDALibrary(t, "../../.."),
		Apart:   true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// toHost copies an array to the host. It has words of 32 bits.
func toHost[T int32 | int64 | float32](d *cuda.Device, of []T) []T {
	host := make([]T, len(of))
	if len(of) == 0 {
		return host
	}
	words := len(of) * int(unsafe.Sizeof(of[0])) / 4
	d.Download(unsafe.Slice((*float32)(unsafe.Pointer(&host[0])), words),
		unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(of))), words))
	return host
}

// draws are the options of minibatches of up to so many seeds.
func draws(t *Topology, parts []int64, seeds int, o compute.DrawOptions,
	fanouts ...int) compute.DrawOptions {
	limits, _ := Neighbours(fanouts...).Limits(seeds, len(t.Original), int64(len(t.Graph.Indices)))
	o.Indptr, o.Indices, o.Original, o.Parts = t.Graph.Indptr, asRows(t.Graph.Indices), t.Original,
		parts
	o.Seeds = limits.Vertices[0]
	for h, f := range fanouts {
		o.Hops = append(o.Hops, compute.DrawnHops{Fanout: f, Destinations: limits.Vertices[h],
			Edges: limits.Edges[h], Sources: limits.Vertices[h+1],
			Transposed: !o.Grouped || h+1 < len(fanouts)})
	}
	return o
}

// drawn draws a minibatch.
func drawn(t *testing.T, d compute.Drawing, seeds []graph.VertexID,
	keys compute.DrawKeys) *compute.Drawn {
	t.Helper()
	if err := d.Start(asRows(seeds), keys); err != nil {
		t.Fatal(err)
	}
	x, err := d.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// unlike describes how a drawn minibatch differs from the reference's, as o asks for it.
func unlike(d *cuda.Device, x *compute.Drawn, want *Minibatch, o *compute.DrawOptions,
	key Key) string {
	missing := graph.VertexID(-1)
	if len(x.Missing) > 0 {
		missing = graph.VertexID(x.Missing[0])
	}
	switch {
	case x.Faulty:
		return "it is faulty"
	case !slices.Equal(x.Missing, asRows(want.Frontier)): // no row is resident
		return fmt.Sprintf("the frontier has %d vertices from %d on, want %d", len(x.Missing),
			missing, len(want.Frontier))
	case !slices.Equal(toHost(d, x.Original), want.Original):
		return "other original ids"
	case x.Digest != want.EdgesDigest(key) || x.NumEdges() != want.NumEdges():
		return fmt.Sprintf("%d edges of digest %x, want %d of %x", x.NumEdges(), x.Digest,
			want.NumEdges(), want.EdgesDigest(key))
	}
	for l := range want.Blocks {
		b, from := want.Blocks[l], graph.BlockTranspose{}
		if o.SelfEdges {
			var own graph.Block
			b.SelfEdges(&own)
			b = own
		}
		b.Transpose(&from)
		if o.Grouped && l == 0 {
			part := make([]uint16, b.NumSrc)
			for s := range part {
				for o.Parts[part[s]+1] <= int64(want.Frontier[s]) {
					part[s]++
				}
			}
			new(graph.Grouper).ByPart(b.Indptr, b.Indices, nil, part, len(o.Parts)-1)
		}
		g := x.Blocks[l]
		if !slices.Equal(toHost(d, g.Forward.Indptr), b.Indptr) ||
			!slices.Equal(toHost(d, g.Forward.Indices), b.Indices) {
			return fmt.Sprintf("block %d has rows %v of %v, want %v of %v", l,
				toHost(d, g.Forward.Indptr), toHost(d, g.Forward.Indices), b.Indptr, b.Indices)
		}
		if h := len(want.Blocks) - 1 - l; o.Hops[h].Transposed &&
			(!slices.Equal(toHost(d, g.Transposed.Indptr), from.Indptr) ||
				!slices.Equal(toHost(d, g.Transposed.Indices), from.Indices) ||
				!slices.Equal(toHost(d, g.Transposed.Edges), from.Edges)) {
			return fmt.Sprintf("transpose %d is %v, %v, %v, want %v", l,
				toHost(d, g.Transposed.Indptr), toHost(d, g.Transposed.Indices),
				toHost(d, g.Transposed.Edges), from)
		}
	}
	return ""
}

// byNumbers is a Spec of kind Labor whose numbers last for several steps.
func byNumbers(fanouts ...int) Spec {
	return Spec{Kind: Labor, Fanouts: fanouts,
		Numbers: Numbers{Dependency: 3}}.InJob(5, 1, 1, 1)
}

// A minibatch drawn on a device is the reference's in every bit: whatever the degrees, hops, parts,
// the order of blocks and how often the tags of the map have run out.
func TestDrawnOnADevice(t *testing.T) {
	d := openCard(t)
	r := rand.New(rand.NewPCG(3, 5))
	try := func(name string, topology *Topology, o compute.DrawOptions, minibatches, seeds int,
		spec Spec) {
		fanouts := spec.Fanouts
		parts, n := []int64{0}, int64(len(topology.Original))
		for i := range o.Parts {
			parts = append(parts, parts[i]+r.Int64N(n-parts[i]+1))
		}
		parts = append(parts, n)
		o = draws(topology, parts, seeds, o, fanouts...)
		drawer, err := d.NewDrawer(o)
		if err != nil {
			t.Fatal(err)
		}
		slots := make([]compute.Drawing, 2)
		for i := range slots {
			if slots[i], err = drawer.NewDrawing(); err != nil {
				t.Fatal(err)
			}
		}
		keyOf := func(i int) Key { return Key{Seed: 1, Epoch: 2, Step: i, Stream: 3} }
		var chosen [2][]graph.VertexID
		start := func(i int) { // into the slot of minibatch i-2
			if i < minibatches {
				chosen[i%2] = someSeeds(r, len(topology.Original), max(1, seeds-i%3))
				if err := slots[i%2].Start(asRows(chosen[i%2]),
					spec.DrawKeys(keyOf(i))); err != nil {
					t.Fatal(err)
				}
			}
		}
		start(0)
		for i := range minibatches {
			start(i + 1) // two are under way
			seeds, key := chosen[i%2], keyOf(i)
			want := Reference(topology, spec, seeds, key)
			got, err := slots[i%2].Wait()
			if err != nil {
				t.Fatal(err)
			}
			if what := unlike(d, got, want, &o, key); what != "" {
				t.Fatalf("%s, minibatch %d of %d seeds: %s", name, i, len(seeds), what)
			}
			want.Free()
		}
		for _, s := range slots {
			if err := s.Free(); err != nil {
				t.Error(err)
			}
		}
		if err := drawer.Free(); err != nil {
			t.Error(err)
		}
	}
	more := func(parts int) []int64 { return make([]int64, parts-1) }
	for _, by := range []func(...int) Spec{Neighbours, labor, byNumbers} {
		kind := " by " + by(1).String()
		try("one hop"+kind, randomTopology(r, 90), compute.DrawOptions{Parts: more(1)}, 3, 12,
			by(64))
		try("two hops"+kind, randomTopology(r, 200),
			compute.DrawOptions{Parts: more(2), Grouped: true}, 3, 20, by(5, 7))
		try("three hops"+kind, randomTopology(r, 160),
			compute.DrawOptions{Parts: more(5), Grouped: true, SelfEdges: true}, 2, 9,
			by(3, 64, 2))
		try("four hops, own edges"+kind, randomTopology(r, 70),
			compute.DrawOptions{Parts: more(3), SelfEdges: true}, 2, 5, by(2, 3, 1, 4))
	}
	try("equal numbers", alike(300), compute.DrawOptions{}, 4, 305, labor(64, 2))
	tagged := randomTopology(r, 40) // 2 bits of tags: the map is filled every third time
	try("tags that run out", tagged, compute.DrawOptions{ValueBits: 30}, 9, 8,
		Neighbours(4, 4))
	try("no room for tags", tagged, compute.DrawOptions{ValueBits: 31}, 3, 8,
		Neighbours(4, 4))
	try("no edges", &Topology{Graph: graph.CSC{Indptr: make([]int64, 9)},
		Original: make([]int32, 8)},
		compute.DrawOptions{}, 2, 3, Neighbours(4, 4))

	// A hub draws from 70,000; and it is the only in-neighbour of others, whose edges a warp puts
	// in order.
	const n = 70_000
	hub := &Topology{Graph: graph.CSC{Indptr: make([]int64, n+1)}, Original: make([]int32, n)}
	for v := range n {
		hub.Original[v] = int32(n - 1 - v)
		if v == 7 {
			for u := range graph.VertexID(n) {
				hub.Graph.Indices = append(hub.Graph.Indices, (u*7919)%n)
			}
		} else if v < 3000 {
			hub.Graph.Indices = append(hub.Graph.Indices, 7)
		}
		hub.Graph.Indptr[v+1] = int64(len(hub.Graph.Indices))
	}
	o := draws(hub, []int64{0, n}, 2100, compute.DrawOptions{SelfEdges: true}, 1, 64)
	drawer, err := d.NewDrawer(o)
	if err != nil {
		t.Fatal(err)
	}
	slot, err := drawer.NewDrawing()
	if err != nil {
		t.Fatal(err)
	}
	var seeds []graph.VertexID
	for v := range graph.VertexID(2100) {
		seeds = append(seeds, 2099-v)
	}
	key := Key{Seed: 4, Epoch: 1}
	for _, spec := range []Spec{Neighbours(1, 64), labor(1, 64), byNumbers(1, 64)} {
		want := Reference(hub, spec, seeds, key)
		if what := unlike(d, drawn(t, slot, seeds, spec.DrawKeys(key)), want, &o,
			key); what != "" {
			t.Errorf("a hub by %v: %.2000s", spec, what)
		}
		want.Free()
	}
	freed(t, slot, drawer)
}

// alike has vertices that have one of their neighbours, and so its number, many times: others are
// less, or all, or all are others. No bound on numbers alone parts those that are equal.
func alike(degree int) *Topology {
	t := &Topology{Graph: graph.CSC{Indptr: []int64{0}}}
	for v := range graph.VertexID(degree + 5) {
		for k := range graph.VertexID(degree) {
			switch u := v; {
			case v >= 5: // few neighbours
				continue
			case v == 4:
				t.Graph.Indices = append(t.Graph.Indices, 5+k)
			default:
				if v > 0 && k%(10*v) == 0 {
					u = 5 + k
				}
				t.Graph.Indices = append(t.Graph.Indices, u)
			}
		}
		t.Graph.Indptr = append(t.Graph.Indptr, int64(len(t.Graph.Indices)))
		t.Original = append(t.Original, int32(v))
	}
	return t
}

// A drawing of three hops takes 28 launches at most, whatever its size, and the host waits once for
// it and once for the vertices whose rows are not resident.
func TestLaunchesOfADrawing(t *testing.T) {
	d := openCard(t)
	if cuda.Launches() == nil {
		t.Skip("launches are counted on the emulated device alone")
	}
	topology, key := randomTopology(rand.New(rand.NewPCG(2, 2)), 400), Key{Seed: 1}
	o := draws(topology, []int64{0, 400}, 60, compute.DrawOptions{Grouped: true}, 15, 10, 5)
	drawer, err := d.NewDrawer(o)
	if err != nil {
		t.Fatal(err)
	}
	slot, err := drawer.NewDrawing()
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []Spec{Neighbours(15, 10, 5), byNumbers(15, 10, 5)} {
		cuda.Launches()
		drawn(t, slot, someSeeds(rand.New(rand.NewPCG(2, 3)), 400, 60), spec.DrawKeys(key))
		kernels, waits := 0, 0
		for name, n := range cuda.Launches() {
			switch {
			case strings.HasPrefix(name, "draw/"):
				kernels += n
			case strings.HasPrefix(name, "wait"):
				waits += n
			case name != "copy up" && name != "copy down" && name != "zero":
				t.Errorf("%d of %s", n, name)
			}
		}
		if kernels < 20 || kernels > 28 || waits != 2 {
			t.Errorf("%v: %d kernels, %d waits", spec, kernels, waits)
		}
	}
	freed(t, slot, drawer)
}

// unmix is the inverse of random.Mix, by which a word of a vertex's sequence is chosen.
func unmix(x uint64) uint64 {
	unshift := func(x uint64, by int) uint64 {
		y := x
		for range 64 / by {
			y = x ^ y>>by
		}
		return y
	}
	inverse := func(odd uint64) uint64 {
		y := odd
		for range 6 { // Newton: each step doubles the bits that are right
			y *= 2 - odd*y
		}
		return y
	}
	x = unshift(x, 31) * inverse(0x94D049BB133111EB)
	x = unshift(x, 27) * inverse(0xBF58476D1CE4E5B9)
	return unshift(x, 30)
}

// Words that would favour some numbers are drawn again, which happens once in 2^40 draws: here the
// word of a hop is made so that the i-th word of a vertex is 0, the one that is always drawn again.
func TestDrawnAgainOnADevice(t *testing.T) {
	for x := range uint64(100) {
		if w := random.Mix(x * random.Golden); unmix(w) != x*random.Golden {
			t.Fatalf("unmix(%x) is %x", w, unmix(w))
		}
	}
	d := openCard(t)
	r := rand.New(rand.NewPCG(1, 9))
	for _, degree := range []int{7, 63, 65, 150} {
		topology := &Topology{Graph: graph.CSC{Indptr: []int64{0}}}
		for v := range 150 {
			if v == 0 {
				topology.Graph.Indices = someSeeds(r, 150, degree)
			}
			topology.Graph.Indptr = append(topology.Graph.Indptr, int64(degree))
			topology.Original = append(topology.Original, int32(1000-v))
		}
		const fanout = 5
		drawer, err := d.NewDrawer(draws(topology, []int64{0, 150}, 1, compute.DrawOptions{},
			fanout))
		if err != nil {
			t.Fatal(err)
		}
		slot, err := drawer.NewDrawing()
		if err != nil {
			t.Fatal(err)
		}
		row := make([]int64, degree)
		for e := range row {
			row[e] = int64(e)
		}
		for i := range uint64(fanout) {
			sequence := unmix(0) - (i+1)*random.Golden // its word i is 0
			hop := unmix(sequence) ^ uint64(uint32(topology.Original[0]))
			var want []graph.VertexID
			for _, e := range referenceSubset(row, fanout,
				vertexStream(hop, topology.Original[0])) {
				if u := topology.Graph.Indices[e]; u != 0 { // the seed is in the frontier already
					want = append(want, u)
				}
			}
			got := drawn(t, slot, []graph.VertexID{0},
				compute.DrawKeys{Words: []uint64{hop}})
			if !slices.Equal(got.Missing[1:], asRows(want)) {
				t.Errorf("degree %d, word %d again: drew %v, want %v", degree, i, got.Missing[1:],
					want)
			}
		}
		freed(t, slot, drawer)
	}
}

// What breaks a rule is found, and nothing outside the arrays is read or written: seeds that are no
// vertices or come twice, neighbours that are none, rows that leave the indices, fall or overlap.
func TestFaultsFoundOnADevice(t *testing.T) {
	d := openCard(t)
	for _, c := range []struct {
		name  string
		spoil func(*Topology)
		seeds []graph.VertexID
	}{
		{"nothing", func(*Topology) {}, []graph.VertexID{2, 1}},
		{"a seed that is no vertex", func(*Topology) {}, []graph.VertexID{2, 4}},
		{"a negative seed", func(*Topology) {}, []graph.VertexID{-1}},
		{"a seed twice", func(*Topology) {}, []graph.VertexID{1, 2, 1}},
		{"a neighbour that is no vertex", func(t *Topology) { t.Graph.Indices[4] = 4 },
			[]graph.VertexID{2}},
		{"a negative neighbour", func(t *Topology) { t.Graph.Indices[4] = -5 },
			[]graph.VertexID{2}},
		{"a row that falls", func(t *Topology) { t.Graph.Indptr[3] = 1 }, []graph.VertexID{2}},
		{"a row beyond the indices", func(t *Topology) { t.Graph.Indptr[3] = 9 },
			[]graph.VertexID{2}},
		{"a row of a neighbour", func(t *Topology) { t.Graph.Indptr[4] = 99 }, []graph.VertexID{2}},
		{"rows that overlap, of more edges than there are", func(t *Topology) {
			copy(t.Graph.Indptr, []int64{0, 8, 0, 8, 8}) // 1, whose row falls, is no neighbour
			copy(t.Graph.Indices, []graph.VertexID{0, 2, 3, 3, 2, 0, 3, 2})
		}, []graph.VertexID{0, 2}},
		{"one seed for all vertices", func(*Topology) {}, []graph.VertexID{2, 2, 2}},
	} {
		topology := &Topology{Original: []int32{3, 2, 1, 0},
			Graph: graph.CSC{Indptr: []int64{0, 2, 3, 6, 8},
				Indices: []graph.VertexID{1, 2, 0, 0, 1, 3, 2, 0}}}
		o := draws(topology, []int64{0, 4}, 3, compute.DrawOptions{}, 8, 2)
		c.spoil(topology)
		drawer, err := d.NewDrawer(o)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := drawer.NewDrawing()
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []Spec{Neighbours(8, 2), labor(8, 2)} {
			x := drawn(t, slot, c.seeds, spec.DrawKeys(Key{Seed: 1}))
			if x.Faulty != (c.name != "nothing") {
				t.Errorf("%s by %v: faulty is %v", c.name, spec, x.Faulty)
			}
		}
		freed(t, slot, drawer)
	}
}

// freed frees what draws, in order.
func freed(t *testing.T, all ...interface{ Free() error }) {
	t.Helper()
	for _, x := range all {
		if err := x.Free(); err != nil {
			t.Error(err)
		}
	}
}
