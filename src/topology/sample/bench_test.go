package sample

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/timing"
	"halognn/src/topology/graph"
)

var (
	benchVertices = flag.Int("bench.vertices", 240_000,
		"vertices of the benchmark graph; the goal is set at 2400000")
	benchDegree = flag.Int("bench.degree", 50, "mean in-degree of the benchmark graph")
)

// benchTopology is a power-law graph with communities: in-degrees follow d^-2.3 up to N/100, seven
// in ten neighbours have near numbers, the others any, low ones more often, as in a partitioned
// graph with hot vertices first.
var benchTopology = sync.OnceValue(func() *Topology {
	n, mean := *benchVertices, float64(*benchDegree)
	r := rand.New(rand.NewPCG(1, 2))
	degrees := make([]float64, n)
	total := 0.0
	for v := range degrees {
		degrees[v] = min(math.Pow(1-r.Float64(), -1/1.3), float64(n)/100)
		total += degrees[v]
	}
	g := graph.CSC{Indptr: mem.Make[int64](n + 1)}
	for v, d := range degrees {
		g.Indptr[v+1] = g.Indptr[v] + int64(d*mean*float64(n)/total+0.5)
	}
	g.Indices = mem.Make[graph.VertexID](int(g.Indptr[n]))
	const community = 5000
	for v := range n {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			if u := r.Uint64(); u%10 < 7 {
				g.Indices[e] = graph.VertexID((v/community*community + int(u>>32)%community) % n)
			} else {
				f := r.Float64()
				g.Indices[e] = graph.VertexID(float64(n) * f * f)
			}
		}
	}
	original := mem.Make[int32](n)
	for v, o := range r.Perm(n) {
		original[v] = int32(o)
	}
	return &Topology{Graph: g, Original: original}
})

const benchBatch = 1024

var benchFanouts = []int{15, 10, 5}

// measure runs sample over random minibatches. It reports the medians of edges per second, of the
// machine's reads per second between the minibatches, and of their ratio: other programs slow both.
// One worker is measured by the time of its thread, several by the time of day.
func measure(b *testing.B, workers int,
	sample func(mb *Minibatch, seeds []graph.VertexID, key Key) error) {
	t := benchTopology()
	r := rand.New(rand.NewPCG(3, 4))
	batches := make([][]graph.VertexID, 8)
	for i := range batches {
		taken := map[graph.VertexID]bool{}
		for len(batches[i]) < benchBatch {
			if v := graph.VertexID(r.IntN(len(t.Original))); !taken[v] {
				taken[v] = true
				batches[i] = append(batches[i], v)
			}
		}
	}
	var mb Minibatch
	defer mb.Free()
	step := 0
	one := func() {
		if err := sample(&mb, batches[step%len(batches)], Key{Step: step}); err != nil {
			b.Fatal(err)
		}
		step++
	}
	for range batches { // grow the arrays
		one()
	}
	clock := timing.Thread
	if workers > 1 {
		started := time.Now()
		clock = func() time.Duration { return time.Since(started) }
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var rates, limits, ratios, frontier []float64
	b.ReportAllocs()
	for b.Loop() {
		begin := clock()
		one()
		rates = append(rates, float64(mb.NumEdges())/(clock()-begin).Seconds()/1e6)
		b.StopTimer()
		limits = append(limits, timing.ReadRate(t.Graph.Indices, 1<<20, step)/1e6)
		ratios = append(ratios, rates[len(rates)-1]/limits[len(limits)-1])
		frontier = append(frontier, float64(len(mb.Frontier)))
		b.StartTimer()
	}
	b.ReportMetric(timing.Median(rates), "Medges/s")
	b.ReportMetric(timing.Median(limits), "Mreads/s")
	b.ReportMetric(timing.Median(ratios), "edges/read")
	b.ReportMetric(timing.Median(frontier), "frontier")
}

// BenchmarkSample: the goal, at -bench.vertices=2400000 with one worker, is edges/read >= 1/3.
func BenchmarkSample(b *testing.B) {
	fused := func(o Options) func(b *testing.B) {
		return func(b *testing.B) {
			o.Fanouts, o.MaxSeeds = benchFanouts, benchBatch
			s := mustNew(b, benchTopology(), o)
			measure(b, o.Workers, s.Sample)
		}
	}
	b.Run("sampler=fused/map=dense/workers=1/transposes=no", fused(Options{ForwardOnly: true}))
	b.Run("sampler=poisson/map=dense/workers=1/transposes=no",
		fused(Options{Spec: Spec{Kind: Poisson}, ForwardOnly: true}))
	for name, numbers := range map[string]Numbers{"labor": {Steps: 1},
		"labor64": {Steps: 1, Dependency: 64}} {
		b.Run("sampler="+name+"/map=dense/workers=1/transposes=no",
			fused(Options{Spec: Spec{Kind: Labor, Numbers: numbers}, ForwardOnly: true}))
	}
	b.Run("sampler=near/map=dense/workers=1/transposes=no", func(b *testing.B) {
		t, spec := benchTopology(), Spec{Kind: Poisson, Fanouts: benchFanouts}
		near := NewNear(spec, len(t.Original), len(t.Graph.Indices))
		defer near.Free()
		for _, set := range near.Vertices {
			for w := range len(set) / 5 { // the hottest fifth
				set[w] = math.MaxUint64
			}
		}
		near.MarkEdges(t.Graph.Indices, 0, (len(t.Graph.Indices)+63)/64)
		s := mustNew(b, t, Options{Spec: spec, Near: near, MaxSeeds: benchBatch, ForwardOnly: true})
		measure(b, 1, func(mb *Minibatch, seeds []graph.VertexID, key Key) error {
			key.Favour = 8
			return s.Sample(mb, seeds, key)
		})
	})
	b.Run("sampler=fused/map=hash/workers=1/transposes=no",
		fused(Options{ForwardOnly: true, Map: MapHash}))
	for _, workers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("sampler=fused/map=dense/workers=%d/transposes=yes", workers),
			fused(Options{Workers: workers}))
	}
}
