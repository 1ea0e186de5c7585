package cache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/timing"
	"halognn/src/topology/graph"
)

// The sizes of one rank of four on ogbn-products with fanouts 15, 10, 5 and a batch of 1024.
const (
	benchVertices = 2_400_000
	benchCapacity = 300_000
	benchRemote   = 100_000
	benchSteps    = 40
)

// benchTrace draws distinct vertices; the probability of a vertex falls with the square of its
// rank, and ranks are independent of ids: the worst case for the processor's caches.
func benchTrace() [][]graph.VertexID {
	r := rand.New(rand.NewPCG(1, 2))
	seen := make([]int32, benchVertices)
	trace := make([][]graph.VertexID, benchSteps)
	for t := range trace {
		trace[t] = mem.Make[graph.VertexID](benchRemote)[:0]
		for len(trace[t]) < benchRemote {
			x := r.Float64()
			// prime to the vertices: a permutation
			v := uint64(x*x*x*benchVertices) * 1_500_007 % benchVertices
			if seen[v] != int32(t+1) {
				seen[v] = int32(t + 1)
				trace[t] = append(trace[t], graph.VertexID(v))
			}
		}
	}
	return trace
}

// hottest returns the first capacity vertices of the trace's ranking.
func hottest(capacity int) []graph.VertexID {
	list := make([]graph.VertexID, capacity)
	for i := range list {
		list[i] = graph.VertexID(uint64(i) * 1_500_007 % benchVertices)
	}
	return list
}

// measure runs step, which handles n vertices, and reports nanoseconds a vertex, the mean of the
// steps; and the median of the rate of vertices over the machine's rate of reads from an array of 4
// bytes a vertex of the graph, taken between the steps, so that other programs slow both.
func measure(b *testing.B, n int, step func(i int)) {
	array := mem.Make[int32](benchVertices)
	defer mem.Free(array)
	for i := range array {
		array[i] = int32(i)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took, limits, ratios []float64
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		begin := timing.Thread()
		step(i)
		took = append(took, (timing.Thread()-begin).Seconds()*1e9/float64(n))
		i++
		b.StopTimer()
		limits = append(limits, timing.ReadRate(array, 1<<19, i)/1e6)
		ratios = append(ratios, 1e3/took[len(took)-1]/limits[len(limits)-1])
		b.StartTimer()
	}
	sum := 0.0
	for _, x := range took {
		sum += x
	}
	b.ReportMetric(sum/float64(len(took)), "ns/vertex")
	b.ReportMetric(timing.Median(limits), "Mreads/s")
	b.ReportMetric(timing.Median(ratios), "vertices/read")
}

// BenchmarkLookup: the goal is vertices/read >= 0.5.
func BenchmarkLookup(b *testing.B) {
	trace := benchTrace()
	slots := mem.Make[int32](benchRemote)
	for _, kind := range []IndexKind{IndexDense, IndexHash} {
		b.Run(fmt.Sprintf("index=%s", [...]string{"", "dense", "hash"}[kind]), func(b *testing.B) {
			x := NewIndex(benchVertices, benchCapacity, kind)
			defer x.Free()
			for i, v := range hottest(benchCapacity) {
				x.Set(v, int32(i))
			}
			misses := 0
			measure(b, benchRemote, func(i int) { misses = x.Lookup(trace[i%benchSteps], slots) })
			b.ReportMetric(1-float64(misses)/benchRemote, "hit-rate")
		})
	}
}

// BenchmarkStep measures the whole decision of a step: looking up, scoring, choosing; for a buffer
// with a round every 64 steps, or every 16.
func BenchmarkStep(b *testing.B) {
	trace := benchTrace()
	degree := func(v graph.VertexID) int { return int(v) % 1000 }
	prefetch := func(layout Layout, delta int) func() (Policy, error) {
		return func() (Policy, error) {
			return NewPrefetch(PrefetchOptions{
				Vertices: benchVertices, Capacity: benchCapacity,
				Initial: hottest(2 * benchCapacity)[benchCapacity:],
				Gamma:   0.95, Delta: delta, Degree: degree, Layout: layout,
			})
		}
	}
	lookahead := func(window int, kind IndexKind) func() (Policy, error) {
		return func() (Policy, error) {
			return NewLookahead(LookaheadOptions{Vertices: benchVertices, Capacity: benchCapacity,
				Window: window, Index: kind})
		}
	}
	for _, c := range []struct {
		name string
		make func() (Policy, error)
	}{
		{"static", func() (Policy,
			error) {
			return NewStatic(benchVertices, hottest(benchCapacity))
		}},
		{"prefetch/layout=dense/delta=0", prefetch(LayoutDense, 0)},
		{"prefetch/layout=dense/delta=64", prefetch(LayoutDense, 64)},
		{"prefetch/layout=dense/delta=16", prefetch(LayoutDense, 16)},
		{"prefetch/layout=compact/delta=0", prefetch(LayoutCompact, 0)},
		{"prefetch/layout=compact/delta=64", prefetch(LayoutCompact, 64)},
		{"sieve", func() (Policy, error) { return NewSieve(benchVertices, benchCapacity) }},
		{"lookahead/window=4/index=dense", lookahead(4, IndexDense)},
		{"lookahead/window=16/index=dense", lookahead(16, IndexDense)},
		{"lookahead/window=16/index=hash", lookahead(16, IndexHash)},
	} {
		b.Run("policy="+c.name, func(b *testing.B) {
			p := must[Policy](b)(c.make())
			defer p.Free()
			var d Decision
			defer d.Free()
			fed, misses, early, steps := 0, 0, 0, 0
			one := func(i int) {
				if l, ok := p.(*Lookahead); ok {
					for ; fed <= i+l.Window(); fed++ {
						l.Feed(trace[fed%benchSteps], nil)
					}
				}
				p.Step(trace[i%benchSteps], &d)
				misses, early, steps = misses+d.Misses, early+len(d.Early), steps+1
			}
			const warm = benchSteps / 2
			for i := range warm { // grow the arrays, fill the cache
				one(i)
			}
			misses, early, steps = 0, 0, 0
			measure(b, benchRemote, func(i int) { one(warm + i) })
			b.ReportMetric(1-float64(misses+early)/float64(steps*benchRemote), "hit-rate")
			b.ReportMetric(float64(p.Bytes())/benchCapacity, "B/row")
		})
	}
}

// BenchmarkOptimum measures the offline optimum, by vertex.
func BenchmarkOptimum(b *testing.B) {
	trace := benchTrace()
	o := must[*Optimum](b)(NewOptimum(benchVertices, benchCapacity, false))
	defer o.Free()
	measure(b, benchRemote, func(i int) { o.Step(trace[i%benchSteps]) })
}

// BenchmarkPlace divides rows among four devices.
func BenchmarkPlace(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 3))
	p := make([]float32, benchVertices)
	for v := range p {
		x := r.Float32()
		p[v] = x * x * x
	}
	measure(b, benchVertices, func(int) {
		g := must[*Placement](b)(Place(p, 4, benchCapacity, 0.3))
		g.Free()
	})
}
