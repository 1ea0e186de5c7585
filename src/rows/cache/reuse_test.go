package cache

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// independent draws steps in which every vertex is read with its own probability, whatever the
// others do: what Reuse assumes.
func independent(r *rand.Rand, p []float32, steps int) [][]graph.VertexID {
	trace := make([][]graph.VertexID, steps)
	for t := range trace {
		for v, x := range p {
			if r.Float32() < x {
				trace[t] = append(trace[t], graph.VertexID(v))
			}
		}
	}
	return trace
}

// steady runs a look-ahead cache over the trace and returns the rows a step transfers in the second
// half.
func steady(t *testing.T, n, capacity, window int, trace [][]graph.VertexID) float64 {
	l := must[*Lookahead](t)(NewLookahead(LookaheadOptions{Vertices: n, Capacity: capacity,
		Window: window}))
	defer l.Free()
	half := len(trace) / 2
	before := 0
	x := run(t, l, nil, trace, func(step int, _ []graph.VertexID, x *table) {
		if step == half-1 {
			before = x.transferred
		}
	})
	return float64(x.transferred-before) / float64(len(trace)-half)
}

// skewed has few hot and many cold vertices.
func skewed(r *rand.Rand, n int) []float32 {
	p := make([]float32, n)
	for v := range p {
		x := r.Float32()
		p[v] = 0.6 * x * x * x
	}
	return p
}

// What is predicted of a cache that looks ahead is what it does, and the planned window is as good
// as a far wider one. Steps are independent.
func TestReuseIsWhatLookingAheadFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 20))
	const n, steps = 3000, 240
	p := skewed(r, n)
	trace := independent(r, p, steps)
	reuse := NewReuse(1)
	reuse.Add(p[:n/3])
	reuse.Add(p[n/3:])
	total := 0
	for _, s := range trace {
		total += len(s)
	}
	if mean := float64(total) / steps; math.Abs(reuse.Uses()/mean-1) > 0.02 {
		t.Errorf("%.1f uses a step, predicted %.1f", mean, reuse.Uses())
	}
	for _, capacity := range []int{30, 150, 600, 1500, 2500} {
		window := PlanWindow(WindowOptions{Capacity: capacity, Steps: steps, Reuse: reuse})
		planned, best := steady(t, n, capacity, window, trace), steady(t, n, capacity, steps, trace)
		predicted := reuse.Fetched(capacity, window, math.MaxInt32) // without a beginning
		t.Logf("capacity %d: window %d transfers %.1f rows a step, predicted %.1f; all steps "+
			"known: %.1f", capacity, window, planned, predicted, best)
		if planned > 1.01*best {
			t.Errorf("capacity %d: window %d transfers %.1f rows a step, one of all steps %.1f",
				capacity, window, planned, best)
		}
		if math.Abs(predicted-best) > 0.01*best+1 {
			t.Errorf("capacity %d: %.1f rows a step predicted, the best is %.1f", capacity,
				predicted, best)
		}
	}
}

// lasting draws steps in which a vertex is read with probability p while its number is good, which
// a number is with probability share; each has a new one every so many steps, at a phase of its
// own.
func lasting(r *rand.Rand, p, share []float32, lasts, steps int) (trace [][]graph.VertexID,
	drawn []float32) {
	trace, drawn = make([][]graph.VertexID, steps), make([]float32, len(p))
	for v := range p {
		good, phase := r.Float32() < share[v], r.IntN(lasts)
		if good {
			drawn[v] = p[v]
		}
		for t := range trace {
			if (t+phase)%lasts == 0 {
				good = r.Float32() < share[v]
			}
			if good && r.Float32() < p[v] {
				trace[t] = append(trace[t], graph.VertexID(v))
			}
		}
	}
	return trace, drawn
}

// Numbers that last are predicted too: a cache fetches fewer rows than by means, and the more the
// longer they last.
func TestReuseOfNumbersThatLast(t *testing.T) {
	const n, steps = 6000, 300
	for _, lasts := range []int{4, 16, 64} {
		r := rand.New(rand.NewPCG(3, uint64(lasts)))
		p, share, mean := skewed(r, n), make([]float32, n), make([]float32, n)
		for v := range p {
			share[v] = min(1, 1.1*r.Float32())
			p[v], mean[v] = p[v]/2, p[v]/2*share[v]
		}
		trace, drawn := lasting(r, p, share, lasts, steps)
		means, reuse := NewReuse(1), NewReuse(lasts)
		means.Add(mean)
		reuse.AddDrawn(drawn, mean)
		for _, capacity := range []int{100, 600, 1500, 3000} {
			window := PlanWindow(WindowOptions{Capacity: capacity, Steps: steps, Reuse: reuse})
			got := steady(t, n, capacity, window, trace)
			predicted := reuse.Fetched(capacity, window, math.MaxInt32)
			without := means.Fetched(capacity, window, math.MaxInt32)
			t.Logf("numbers of %d steps, capacity %d: window %d transfers %.1f rows a step, "+
				"predicted %.1f, by means %.1f", lasts, capacity, window, got, predicted, without)
			if math.Abs(predicted-got) > 0.05*got+2 ||
				lasts == 64 && capacity > 100 && without < 1.2*got {
				t.Errorf("numbers of %d steps, capacity %d: %.1f rows a step, predicted %.1f, by "+
					"means %.1f", lasts, capacity, got, predicted, without)
			}
		}
	}
}

// Where a window knows too little to fill the cache, rows that stay for no known use are predicted
// too, and those that it begins with. Which of them give way is decided better than by age, so a
// cache that gets full may fetch less than predicted.
func TestPredictionOfCachesThatAreNotFull(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 22))
	const n, steps = 3000, 240
	p := skewed(r, n)
	trace := independent(r, p, steps)
	reuse := NewReuse(1)
	reuse.Add(p)
	for _, capacity := range []int{600, 1500, 2500, 2900, 3000, 9000} {
		for _, window := range []int{1, 2, 3, 6, 12, 60} {
			start := must[[]graph.VertexID](t)(Start(n, capacity, slices.Values(trace[:window+1])))
			l := must[*Lookahead](t)(NewLookahead(LookaheadOptions{
				Vertices: n, Capacity: capacity, Window: window, Initial: start,
			}))
			got := float64(run(t, l, start, trace, nil).transferred) / steps
			l.Free()
			mem.Free(start)
			predicted := reuse.Fetched(capacity, window, steps)
			t.Logf("capacity %d, window %d: %.1f rows a step, predicted %.1f",
				capacity, window, got, predicted)
			full := reuse.occupied(0, steps) >= float64(capacity) // some time
			if got > 1.02*predicted+1 || !full && predicted > 1.02*got+1 {
				t.Errorf("capacity %d, window %d: %.1f rows a step, predicted %.1f",
					capacity, window, got, predicted)
			}
		}
	}
}

func TestPlanWindow(t *testing.T) {
	half, rare := make([]float32, 1000), make([]float32, 1000)
	for v := range half {
		half[v], rare[v] = 0.5, 1e-3
	}
	always := []float32{1, 1, 1, 1}
	for _, c := range []struct {
		name     string
		p        []float32
		capacity int
		steps    int
		memory   int64
		want     int
	}{
		{"a use in every step", always, 4, 100, 0, 2},
		{"no vertices", nil, 10, 100, 0, 1},
		{"never read", []float32{0, 0}, 10, 100, 0, 1},
		{"no room", half, 0, 100, 0, 1},
		{"half of the ways are one step long", half, 250, 100, 0, 2},
		{"room for nearly all", half, 990, 100, 0, 13},
		{"room for more than there is", half, 2000, 100, 0, 125},
		{"known to the end of the run", rare, 500, 20, 0, 25},
		{"wider than an epoch", half, 990, 6, 0, 13},
		{"one step", half, 100, 1, 0, 2},
		{"bounded by memory", rare, 500, 1000, 10 * (100 + 25), 10},
		{"memory for nothing", rare, 500, 1000, 1, 1},
	} {
		reuse := NewReuse(1)
		reuse.Add(c.p)
		if got := PlanWindow(WindowOptions{Capacity: c.capacity, Steps: c.steps, Epochs: 3,
			Reuse: reuse, Memory: c.memory, StepBytes: 100}); got != c.want {
			t.Errorf("%s: window %d, want %d", c.name, got, c.want)
		}
		for _, window := range []int{0, 1, 5, 1000} {
			if f := reuse.Fetched(c.capacity, window, 3*c.steps); !(f >= 0 && f <= reuse.Uses()) {
				t.Errorf("%s: window %d is predicted to fetch %g of %g uses", c.name, window, f,
					reuse.Uses())
			}
		}
	}
}

// A start of another run costs transfers, nothing else.
func TestInitialRowsOfALookahead(t *testing.T) {
	if _, err := Start(-1, 2, nil); err == nil {
		t.Error("a graph of -1 vertices was taken")
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 21))
		n, capacity := 2+r.IntN(60), 1+r.IntN(15)
		trace := randomTrace(r, n, 1+r.IntN(40), r.IntN(min(n, 20)), float64(r.IntN(3)))
		var initial []graph.VertexID
		for _, v := range r.Perm(n)[:min(n, r.IntN(capacity+1))] {
			initial = append(initial, graph.VertexID(v))
		}
		window := r.IntN(len(trace) + 1)
		l := must[*Lookahead](t)(NewLookahead(LookaheadOptions{Vertices: n, Capacity: capacity,
			Window: window, Initial: initial}))
		if l.HighWater() > capacity {
			t.Fatalf("seed %d: %d rows held, capacity %d", seed, l.HighWater(), capacity)
		}
		if got, least := run(t, l, initial, trace, nil).transferred,
			optimum(t, n, capacity, trace, true); got < least {
			t.Fatalf("seed %d: %d transfers, the fewest are %d", seed, got, least)
		}
		before := mem.Allocated()
		l.Free()
		if mem.Allocated() >= before {
			t.Fatalf("seed %d: nothing was given back", seed)
		}
	}
}
