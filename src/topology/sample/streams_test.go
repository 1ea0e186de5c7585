package sample

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"halognn/src/topology/graph"
)

// lists makes seed lists of the given lengths out of 0, 1, 2, ...
func lists(lengths ...int) [][]graph.VertexID {
	out := make([][]graph.VertexID, len(lengths))
	next := graph.VertexID(0)
	for k, n := range lengths {
		for range n {
			out[k] = append(out[k], next)
			next++
		}
	}
	return out
}

func mustStreams(t *testing.T, seeds [][]graph.VertexID, o StreamOptions) *Streams {
	t.Helper()
	s, err := NewStreams(seeds, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Free)
	return s
}

// epoch returns the pieces of an epoch: [step][stream].
func epoch(s *Streams, e int) [][][]graph.VertexID {
	pieces := make([][][]graph.VertexID, s.Steps())
	for step := range pieces {
		for k := range s.Streams() {
			pieces[step] = append(pieces[step], s.Piece(e, step, k, nil))
		}
	}
	return pieces
}

func TestSteps(t *testing.T) {
	for _, c := range []struct {
		lengths []int
		o       StreamOptions
		steps   int
	}{
		{[]int{10, 11}, StreamOptions{Batch: 4}, 3},
		{[]int{10, 11}, StreamOptions{Batch: 4, Seeds: SeedsGlobal}, 3},
		{[]int{1, 20}, StreamOptions{Batch: 4}, 5},
		{[]int{1, 20}, StreamOptions{Batch: 4, Seeds: SeedsGlobal}, 3},
		{[]int{1, 20}, StreamOptions{Batch: 8, Scope: ScopeGlobal}, 3},
		{[]int{1, 20}, StreamOptions{Batch: 8, Scope: ScopeGlobal, Seeds: SeedsGlobal}, 3},
		{[]int{0, 0, 3}, StreamOptions{Batch: 1}, 3},
		{[]int{0, 2}, StreamOptions{Batch: 100}, 1},
	} {
		if got := mustStreams(t, lists(c.lengths...), c.o).Steps(); got != c.steps {
			t.Errorf("%v, %+v: %d steps, want %d", c.lengths, c.o, got, c.steps)
		}
	}
}

func TestStreamLaws(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 300 {
		lengths := make([]int, 1+r.IntN(6))
		total := 0
		for k := range lengths {
			lengths[k] = r.IntN(40) * r.IntN(2)
			total += lengths[k]
		}
		if total == 0 {
			continue
		}
		own := lists(lengths...)
		for _, o := range []StreamOptions{
			{}, {Scope: ScopeGlobal}, {Seeds: SeedsGlobal},
			{Scope: ScopeGlobal, Seeds: SeedsGlobal},
		} {
			o.Batch, o.Seed = 1+r.IntN(30), uint64(round)
			s := mustStreams(t, own, o)
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d, streams %v, %+v, %d steps: %s", seed, lengths, o, s.Steps(),
					fmt.Sprintf(format, args...))
			}
			var all []graph.VertexID
			global := make([]int, s.Steps())
			sizes := make([][]int, s.Streams())
			streams := make([][]graph.VertexID, s.Streams())
			for step, pieces := range epoch(s, 5) {
				for k, piece := range pieces {
					if len(piece) != s.PieceLen(step, k) || len(piece) > s.MaxPiece() {
						fail("piece of stream %d at step %d has %d seeds; PieceLen is %d, "+
							"MaxPiece %d", k, step, len(piece), s.PieceLen(step, k), s.MaxPiece())
					}
					sizes[k] = append(sizes[k], len(piece))
					streams[k] = append(streams[k], piece...)
					global[step] += len(piece)
				}
				if global[step] != s.GlobalSeeds(step) {
					fail("step %d has %d seeds, GlobalSeeds says %d", step, global[step],
						s.GlobalSeeds(step))
				}
			}
			for k := range streams {
				if slices.Max(sizes[k])-slices.Min(sizes[k]) > 1 {
					fail("pieces of stream %d have %v seeds", k, sizes[k])
				}
				if o.Scope == ScopeRank && slices.Max(sizes[k]) > o.Batch {
					fail("stream %d has a piece of %d seeds, batch %d", k, slices.Max(sizes[k]),
						o.Batch)
				}
				all = append(all, streams[k]...)
				slices.Sort(streams[k])
				if o.Seeds == SeedsLocal && !slices.Equal(streams[k], own[k]) {
					fail("stream %d passes over %v", k, streams[k])
				}
			}
			slices.Sort(all)
			if !slices.Equal(all, slices.Concat(own...)) {
				fail("an epoch passes over %v", all)
			}
			if slices.Max(global)-slices.Min(global) > 1 || o.Scope == ScopeGlobal &&
				slices.Max(global) > o.Batch {
				fail("global minibatches of %v seeds", global)
			}
		}
	}
}

func TestShufflesDifferAndRepeat(t *testing.T) {
	for _, scope := range []SeedScope{SeedsLocal, SeedsGlobal} {
		o := StreamOptions{Batch: 50, Seed: 1, Seeds: scope}
		a, b := mustStreams(t, lists(100, 100), o), mustStreams(t, lists(100, 100), o)
		first := fmt.Sprint(epoch(a, 0))
		if fmt.Sprint(epoch(a, 1)) == first {
			t.Errorf("scope %d: epochs 0 and 1 have one order", scope)
		}
		epoch(b, 2) // takes the place of epoch 0
		epoch(a, 2)
		if fmt.Sprint(epoch(b, 0)) != first || fmt.Sprint(epoch(a, 0)) != first {
			t.Errorf("scope %d: epoch 0 does not repeat", scope)
		}
		o.Seed = 2
		if fmt.Sprint(epoch(mustStreams(t, lists(100, 100), o), 0)) == first {
			t.Errorf("scope %d: seeds 1 and 2 have one order", scope)
		}
		p := epoch(a, 0)
		if o.Seeds == SeedsLocal && p[0][0][0]+100 == p[0][1][0] && p[0][0][1]+100 == p[0][1][1] &&
			p[0][0][2]+100 == p[0][1][2] {
			t.Error("two streams have one order")
		}
	}
}

func TestShuffleIsUniform(t *testing.T) {
	const draws = 24000
	counts := map[[4]graph.VertexID]float64{}
	for i := range draws {
		order := [4]graph.VertexID{0, 1, 2, 3}
		shuffle(order[:], fold(shuffling, 3, i))
		counts[order]++
	}
	x2 := 0.0
	for _, c := range counts {
		x2 += (c - draws/24) * (c - draws/24) / (draws / 24)
	}
	if p := (distuv.ChiSquared{K: 23}).Survival(x2); len(counts) != 24 || p < rare {
		t.Errorf("%d of 24 orders, probability %.2g", len(counts), p)
	}
}

// With original ids given, numbering the vertices anew changes nothing, and neither does the
// partition if seeds are global.
func TestSeedOrderFollowsOriginalIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 0))
	const n = 60
	original := make([]int32, n)
	vertexOf := make([]graph.VertexID, n)
	for v, o := range r.Perm(n) {
		original[v], vertexOf[o] = int32(o), graph.VertexID(v)
	}
	identity := make([]int32, n)
	for v := range identity {
		identity[v] = int32(v)
	}
	byOriginal := func(s *Streams, original []int32) (pieces []string) {
		for _, step := range epoch(s, 0) {
			var ids []int32
			for _, v := range slices.Concat(step...) {
				ids = append(ids, original[v])
			}
			pieces = append(pieces, fmt.Sprint(ids))
		}
		return pieces
	}
	plain := lists(20, 25, 15)
	renumbered := make([][]graph.VertexID, len(plain))
	for k := range plain {
		for _, o := range plain[k] {
			renumbered[k] = append(renumbered[k], vertexOf[o])
		}
		slices.Sort(renumbered[k])
	}
	for _, scope := range []SeedScope{SeedsLocal, SeedsGlobal} {
		o := StreamOptions{Batch: 12, Seeds: scope, Scope: ScopeGlobal}
		o.Original = identity
		want := byOriginal(mustStreams(t, plain, o), identity)
		o.Original = original
		if got := byOriginal(mustStreams(t, renumbered, o), original); !slices.Equal(got, want) {
			t.Errorf("scope %d: renumbering changes the pieces to %v from %v", scope, got, want)
		}
		o.Original = identity
		if got := byOriginal(mustStreams(t, lists(60), o), identity); scope == SeedsGlobal &&
			!slices.Equal(got, want) {
			t.Errorf("one stream has %v, three have %v", got, want)
		}
	}
}

func TestStreamFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		seeds [][]graph.VertexID
		o     StreamOptions
		want  string
	}{
		{"no batch", lists(3), StreamOptions{}, "batch is 0"},
		{"no streams", nil, StreamOptions{Batch: 1}, "no streams"},
		{"no seed anywhere", lists(0, 0), StreamOptions{Batch: 1},
			"none of 2 streams has a training seed"},
		{"unknown batch scope", lists(3), StreamOptions{Batch: 1, Scope: 7}, "batch scope 7"},
		{"unknown seed scope", lists(3), StreamOptions{Batch: 1, Seeds: 7}, "seed scope 7"},
		{"seed without an original id", lists(2, 3),
			StreamOptions{Batch: 1, Original: []int32{0, 1, 2, 3}},
			"stream 1: seed 4: vertex out of range"},
		{"negative seed", [][]graph.VertexID{{-1}}, StreamOptions{Batch: 1},
			"seed -1: vertex out of range"},
		{"all at once", lists(0), StreamOptions{Scope: 7}, "batch scope 7"},
	} {
		if _, err := NewStreams(c.seeds, c.o); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	for _, c := range []struct {
		lengths []int
		o       StreamOptions
		want    string
	}{
		{[]int{3, 5}, StreamOptions{Batch: 5}, ""},
		{[]int{3, 5}, StreamOptions{Batch: 6}, "batch 6 is larger than the 5 training seeds"},
		{[]int{3, 5}, StreamOptions{Batch: 5, Seeds: SeedsGlobal},
			"batch 5 is larger than the 4 training seeds"},
		{[]int{3, 5}, StreamOptions{Batch: 8, Scope: ScopeGlobal}, ""},
		{[]int{3, 5}, StreamOptions{Batch: 9, Scope: ScopeGlobal},
			"batch 9 is larger than the 8 training seeds"},
	} {
		if got := mustStreams(t, lists(c.lengths...), c.o).Warning(); !strings.HasPrefix(got,
			c.want) || c.want == "" && got != "" {
			t.Errorf("%v, %+v: warning %q, want %q", c.lengths, c.o, got, c.want)
		}
	}
}

func TestPiecesFromManyGoroutines(t *testing.T) {
	s := mustStreams(t, lists(50, 60), StreamOptions{Batch: 10})
	var want []string
	for e := range 3 {
		want = append(want, fmt.Sprint(epoch(s, e)))
	}
	var wait sync.WaitGroup
	for e := range 3 {
		for range 2 {
			wait.Go(func() {
				if got := fmt.Sprint(epoch(s, e)); got != want[e] {
					t.Errorf("epoch %d differs when prepared beside others", e)
				}
			})
		}
	}
	wait.Wait()
}
