package sample

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/devices/compute/cpu"
	"halognn/src/topology/graph"
	"halognn/tests/race"
)

// numbered is a Spec of a kind that draws by numbers, with any of their settings.
func numbered(kind Kind, r *rand.Rand, fanouts ...int) Spec {
	return Spec{Kind: kind, Fanouts: fanouts, Numbers: Numbers{
		Shared: true, Dependency: []int{0, 1, 2, 7}[r.IntN(4)], Layers: r.IntN(2) == 0, Steps: 3,
		Streams: 1 + r.IntN(3),
	}}
}

// labor is a Spec of kind Labor in a job of one step an epoch.
func labor(fanouts ...int) Spec {
	return Spec{Kind: Labor, Fanouts: fanouts}.InJob(1, 1, 1, 1)
}

// star has vertex 0, whose in-neighbours are the others in order.
func star(degree int) *Topology {
	t := &Topology{Graph: graph.CSC{Indptr: make([]int64, degree+2)},
		Original: make([]int32, degree+1)}
	for v := range degree + 1 {
		t.Original[v] = int32(v)
		t.Graph.Indptr[v+1] = int64(degree)
		if v > 0 {
			t.Graph.Indices = append(t.Graph.Indices, graph.VertexID(v))
		}
	}
	return t
}

// For one destination, labor has the law of neighbour: every neighbour is drawn with probability
// fanout/degree, every two with that of a uniform subset. Shared numbers of poisson draw each by
// itself.
func TestNumbersInclusion(t *testing.T) {
	const degree, fanout, draws = 12, 5, 30000
	topology := star(degree)
	for _, spec := range []Spec{
		labor(fanout),
		// Draws of every third step have no number in common.
		{Kind: Labor, Fanouts: []int{fanout}, Numbers: Numbers{Dependency: 3, Steps: 1}},
		{Kind: Poisson, Fanouts: []int{fanout}, Numbers: Numbers{Shared: true, Steps: 1}},
	} {
		s := mustNew(t, topology, Options{Spec: spec})
		var mb Minibatch
		var pairs [degree][degree]float64
		for i := range draws {
			key := Key{Seed: 3, Step: i * max(1, spec.Numbers.Dependency)}
			if err := s.Sample(&mb, []graph.VertexID{0}, key); err != nil {
				t.Fatal(err)
			}
			for _, a := range mb.Frontier[1:] {
				for _, b := range mb.Frontier[1:] {
					pairs[a-1][b-1]++
				}
			}
		}
		mb.Free()
		const q = fanout / float64(degree)
		for a := range degree {
			for b := range degree {
				p := q
				switch {
				case a == b:
				case spec.Kind == Labor:
					p = q * (fanout - 1) / (degree - 1)
				default:
					p = q * q
				}
				z := (pairs[a][b] - draws*p) / math.Sqrt(draws*p*(1-p))
				if math.Abs(z) > 4.5 {
					t.Errorf("%v, neighbours %d and %d: %g of %d, %.1f standard deviations from %g",
						spec, a, b, pairs[a][b], draws, z, draws*p)
				}
			}
		}
	}
}

// Sums over what poisson draws by shared numbers are unbiased, also where some vertices are
// likelier.
func TestSharedPoissonIsUnbiased(t *testing.T) {
	race.Alone(t)
	shared := func(fanouts ...int) Spec {
		return Spec{Kind: Poisson, Fanouts: fanouts, Numbers: Numbers{Shared: true, Steps: 1}}
	}
	unbiased(t, 61, 1, shared(5), shared(8, 3))
	unbiased(t, 62, 4, shared(5))
}

// One vertex in Dependency changes its number at each step, and after so many steps each has done
// so once; the law of its numbers does not depend on how long they last.
func TestNumbersLast(t *testing.T) {
	const vertices, lasts = 64000, 16
	spec := Spec{Kind: Labor, Numbers: Numbers{Dependency: lasts, Steps: 10}}
	at := func(i int) (all []uint32) {
		k := Key{Seed: 9, Epoch: i / 10, Step: i % 10}
		n := spec.moment(k).keyedNumbers(spec.word(k, 1))
		for v := range int32(vertices) {
			all = append(all, n.of(v))
		}
		return all
	}
	changes := make([]int, vertices)
	before := at(20)
	for i := 21; i <= 20+lasts; i++ {
		now, changed := at(i), 0.0
		for v := range now {
			if now[v] != before[v] {
				changes[v]++
				changed++
			}
		}
		mean := float64(vertices) / lasts
		if z := (changed - mean) / math.Sqrt(mean*(1-1./lasts)); math.Abs(z) > 4.5 {
			t.Errorf("step %d: %g of %d numbers change, want about %g", i, changed, vertices, mean)
		}
		before = now
	}
	for v, n := range changes {
		if n != 1 {
			t.Fatalf("vertex %d changes its number %d times in %d steps", v, n, lasts)
		}
	}
	sum := 0.0
	for _, r := range before {
		sum += float64(r) / numbersEnd
	}
	if z := (sum/vertices - 0.5) * math.Sqrt(12*vertices); math.Abs(z) > 4.5 {
		t.Errorf("numbers are %g of their range on average", sum/vertices)
	}
}

// edgesBy returns the distinct edges of a hop by the original ids of their ends.
func edgesBy(mb *Minibatch, l int, into map[[2]int32]bool) {
	b := &mb.Blocks[l]
	for d := range b.NumDst {
		for _, s := range b.Indices[b.Indptr[d]:b.Indptr[d+1]] {
			into[[2]int32{mb.Original[s], mb.Original[d]}] = true
		}
	}
}

// Where all ranks have their numbers in common, a global minibatch has the same edges in each hop
// whatever the number of ranks that share its seeds; where they have not, others.
func TestEdgesDoNotDependOnRanks(t *testing.T) {
	r := rand.New(rand.NewPCG(63, 0))
	topology := randomTopology(r, 400)
	seeds := someSeeds(r, 400, 24)
	for _, share := range []Sharing{Together, Alone, InNodes} {
		var alone []map[[2]int32]bool
		for _, ranks := range []int{1, 2, 4} {
			spec := Spec{Kind: Labor, Fanouts: []int{5, 4, 3}, Numbers: Numbers{Share: share,
				Dependency: 4}}.InJob(6, ranks, ranks, 2)
			edges := []map[[2]int32]bool{{}, {}, {}}
			s := mustNew(t, topology, Options{Spec: spec})
			var mb Minibatch
			for k := range ranks {
				key := Key{Seed: 1, Epoch: 2, Step: 3, Stream: k}
				err := s.Sample(&mb, seeds[k*len(seeds)/ranks:(k+1)*len(seeds)/ranks], key)
				if err != nil {
					t.Fatal(err)
				}
				for l := range mb.Blocks {
					edgesBy(&mb, l, edges[l])
				}
			}
			mb.Free()
			if ranks == 1 {
				alone = edges
			}
			same := slices.EqualFunc(edges, alone, maps.Equal)
			if want := ranks == 1 || share == Together ||
				share == InNodes && ranks == 2; same != want {
				t.Errorf("share %v, %d ranks: edges are those of one rank: %v, want %v", share,
					ranks, same, want)
			}
		}
	}
}

// With one number for all hops a seed draws the same neighbours in each; with one for each, others.
func TestNumbersOfAllHops(t *testing.T) {
	topology := star(60)
	for _, layers := range []bool{true, false} {
		spec := labor(5, 5, 5)
		spec.Numbers.Layers = layers
		var mb Minibatch
		err := mustNew(t, topology, Options{Spec: spec}).Sample(&mb, []graph.VertexID{0},
			Key{Step: 3})
		if err != nil {
			t.Fatal(err)
		}
		drawn := func(l int) []int32 {
			return slices.Sorted(slices.Values(mb.Blocks[l].Indices[:5]))
		}
		if same := slices.Equal(drawn(0), drawn(2)) &&
			slices.Equal(drawn(1), drawn(2)); same != layers {
			t.Errorf("one number for all hops: %v; the same neighbours are drawn: %v", layers, same)
		}
		mb.Free()
	}
}

// A vertex of a million neighbours draws exactly its fanout, parallel edges are neighbours of their
// own with one number, and a row without neighbours draws nothing.
func TestNumbersOfOddRows(t *testing.T) {
	const degree = 1 << 20
	hub := star(degree)
	var mb Minibatch
	defer mb.Free()
	seeds := []graph.VertexID{0, 1}
	for _, fanout := range []int{1, 15} {
		spec, key := labor(fanout), Key{Step: 7}
		if err := mustNew(t, hub, Options{Spec: spec}).Sample(&mb, seeds[:1], key); err != nil {
			t.Fatal(err)
		}
		numbers, most := spec.moment(key).keyedNumbers(spec.word(key, 1)), uint32(0)
		for _, v := range mb.Frontier[1:] {
			most = max(most, numbers.of(int32(v)))
		}
		below := 0
		for v := range int32(degree) {
			if numbers.of(v+1) <= most {
				below++
			}
		}
		if n := mb.Blocks[0].NumEdges(); n != fanout || below != fanout ||
			len(mb.Frontier) != fanout+1 {
			t.Errorf("fanout %d: %d drawn, %d vertices; %d numbers are not above theirs", fanout, n,
				len(mb.Frontier), below)
		}
	}
	twice := star(10)
	for i := range twice.Graph.Indices { // 1 1 1 1 1 2 2 2 2 2
		twice.Graph.Indices[i] = graph.VertexID(1 + i/5)
	}
	for step := range 8 {
		err := mustNew(t, twice, Options{Spec: labor(5)}).Sample(&mb, seeds,
			Key{Step: step})
		if err != nil || mb.Blocks[0].NumEdges() != 5 || len(mb.Frontier) > 3 ||
			mb.Frontier[len(mb.Frontier)-1] != mb.Frontier[mb.Blocks[0].Indices[4]] {
			t.Fatalf("step %d: %v, frontier %v, block %v", step, err, mb.Frontier, mb.Blocks[0])
		}
		for _, s := range mb.Blocks[0].Indices {
			if s != mb.Blocks[0].Indices[0] {
				t.Errorf("step %d: of two neighbours with five edges each, both are drawn", step)
			}
		}
	}
}

func TestNth(t *testing.T) {
	r := rand.New(rand.NewPCG(64, 0))
	for range 2000 {
		words := make([]uint64, 1+r.IntN(70))
		for i := range words {
			words[i] = r.Uint64()>>r.IntN(64)<<8 | uint64(i)
		}
		sorted := slices.Sorted(slices.Values(words))
		for n := 1; n <= len(words); n++ {
			if got := nth(words, n); got != sorted[n-1] {
				t.Fatalf("%d-th of %v: %d, want %d", n, words, got, sorted[n-1])
			}
		}
	}
}

// What numbers cannot be is refused.
func TestNumbersRefused(t *testing.T) {
	topology := star(3)
	for want, o := range map[string]Options{
		"sample.dependency is -1": {Spec: Spec{Kind: Labor, Fanouts: []int{2},
			Numbers: Numbers{Dependency: -1, Steps: 1}}},
		"the Spec has 0 steps per epoch": {Spec: Spec{Kind: Labor, Fanouts: []int{2}}},
	} {
		if _, err := New(topology, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Tables of numbers follow the steps of a run, those of another stream or epoch too, in any order.
func TestTablesFollow(t *testing.T) {
	r := rand.New(rand.NewPCG(65, 0))
	topology := randomTopology(r, 300)
	for _, numbers := range []Numbers{{Dependency: 1}, {Dependency: 5},
		{Dependency: 5, Layers: true},
		{Dependency: 1 << 20}} {
		spec := Spec{Kind: Labor, Fanouts: []int{6, 4, 9}, Numbers: numbers}.InJob(8, 1, 1, 1)
		s := mustNew(t, topology, Options{Spec: spec})
		var mb Minibatch
		for i, at := range []int{0, 1, 2, 3, 4, 5, 6, 8, 12, 11, 40, 41, 41, 47} {
			key := Key{Seed: 2, Epoch: at / 8, Step: at % 8, Stream: i / 5 % 2}
			seeds := someSeeds(r, 300, 20)
			if err := s.Sample(&mb, seeds, key); err != nil {
				t.Fatal(err)
			}
			want := Reference(topology, spec, seeds, key)
			if d := difference(&mb, want); d != "" {
				t.Fatalf("%+v, step %d: %s", numbers, at, d)
			}
			want.Free()
		}
		mb.Free()
	}
}

// Where a hop has a table, poisson reads numbers from it, to count as well as to choose. Those here
// are of no minibatch, so that what is computed again is seen.
func TestNumbersAreReadFromTables(t *testing.T) {
	const degree, fanout = 40, 10
	topology, spec := star(degree), Spec{Kind: Poisson, Numbers: Numbers{Shared: true, Steps: 1}}
	var h hop
	defer h.free()
	h.start(topology, []graph.VertexID{0}, topology.Original[:1], make([]int64, 2))
	h.setDraws(fanout, 1, spec.moment(Key{}))
	h.begin[0], h.degree[0] = 0, degree
	for low := range 3 {
		h.table = make([]uint32, degree+1)
		var want []int64
		for v := range h.table {
			if h.table[v] = 1 << 31; v > 0 && v%8 <= low {
				h.table[v] = 1 << 29
				want = append(want, int64(v-1))
			}
		}
		d := newDrawer()
		pos := make([]int64, len(want))
		if n := h.countBelow(0); n != int64(len(want)) {
			t.Fatalf("%d counted, want %d of the table", n, len(want))
		}
		if d.chooseBelow(pos, &h, 0); !slices.Equal(pos, want) {
			t.Errorf("draws %v, want %v of the table", pos, want)
		}
		d.free()
	}
}

// Every level of the kernel draws what plain Go does: of rows of every length around those of
// vectors, of a hub, of parallel edges, whose numbers are equal, with a table of numbers and
// without.
func TestNumbersAtEveryLevel(t *testing.T) {
	race.Alone(t)
	r := rand.New(rand.NewPCG(66, 0))
	const n = 3000
	topology := &Topology{Graph: graph.CSC{Indptr: []int64{0}}, Original: make([]int32, n)}
	for v := range n {
		topology.Original[v] = int32(n - v)
		degree, of := v%150, n
		if v == 7 {
			degree = 1 << 17
		} else if v%5 == 0 {
			of = 1 + degree/3
		}
		for range degree {
			topology.Graph.Indices = append(topology.Graph.Indices, graph.VertexID(r.IntN(of)))
		}
		topology.Graph.Indptr = append(topology.Graph.Indptr, int64(len(topology.Graph.Indices)))
	}
	var levels []string
	for _, simd := range []string{"scalar", "avx2", "avx512"} {
		if _, err := cpu.NewHost(simd); err != nil {
			t.Log(err)
			continue
		}
		levels = append(levels, simd)
	}
	key := Key{Seed: 4, Step: 13}
	for _, fanout := range []int{1, 5, 16, 64, 65} {
		for _, lasts := range []int{1, 9} {
			spec := Spec{Kind: Labor, Fanouts: []int{fanout}, Numbers: Numbers{Dependency: lasts}}
			spec = spec.InJob(40, 1, 1, 1)
			for _, seeds := range [][]graph.VertexID{someSeeds(r, n, n), {0, 8, 25, 149, 7}, {40}} {
				want := Reference(topology, spec, seeds, key)
				for _, simd := range levels {
					t.Setenv("HALOGNN_SIMD", simd)
					s := mustNew(t, topology, Options{Spec: spec})
					var mb Minibatch
					if err := s.Sample(&mb, seeds, key); err != nil {
						t.Fatal(err)
					}
					if d := difference(&mb, want); d != "" {
						t.Fatalf("%s, fanout %d, lasting %d, %d seeds: %.300s", simd, fanout, lasts,
							len(seeds), d)
					}
					mb.Free()
				}
				want.Free()
			}
		}
	}
}
