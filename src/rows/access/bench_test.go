package access

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"halognn/src/base/mem"
	"halognn/src/base/timing"
	"halognn/src/topology/graph"
)

var (
	benchVertices = flag.Int("bench.vertices", 2_400_000, "vertices of the benchmark graph; the "+
		"goal is set at the size of a graph at hand")
	benchDegree = flag.Int("bench.degree", 16, "mean degree of the benchmark graph")
)

// benchGraph has no locality at all: every in-neighbour is anywhere, so that the caches help least.
// Degrees vary by a factor of 16.
var benchGraph = sync.OnceValue(func() *graph.CSC {
	n := *benchVertices
	r := rand.New(rand.NewPCG(1, 2))
	g := &graph.CSC{Indptr: mem.Make[int64](n + 1)}
	for v := range n {
		degree := *benchDegree * (1 + r.IntN(16)) * 2 / 17
		g.Indptr[v+1] = g.Indptr[v] + int64(degree)
	}
	g.Indices = mem.Make[graph.VertexID](int(g.Indptr[n]))
	for e := range g.Indices {
		g.Indices[e] = graph.VertexID(r.IntN(n))
	}
	return g
})

// BenchmarkVIP reports edges gathered per second and core over all hops, the random reads per
// second the machine makes of an array of N floats, taken in between, and their ratio; the goal is
// edges/read >= 0.8.
func BenchmarkVIP(b *testing.B) {
	g := benchGraph()
	n := g.NumVertices()
	// The speed does not depend on Out being the true transpose.
	m, err := New(g, Options{Workers: 1, Out: g})
	if err != nil {
		b.Fatal(err)
	}
	array := mem.Make[float32](n)
	defer mem.Free(array)
	for i := range array {
		array[i] = 1
	}
	fanouts := []int{15, 10, 5}
	for _, share := range []float64{0.002, 0.02, 0.2} {
		train := make([]graph.VertexID, 0, n)
		for _, v := range rand.New(rand.NewPCG(1, 3)).Perm(n)[:int(share*float64(n))] {
			train = append(train, graph.VertexID(v))
		}
		for name, analysis := range map[string]func([]graph.VertexID, float64, []int) ([]float32,
			error){"vip": m.VIP, "inclusion": m.Inclusion} {
			b.Run(fmt.Sprintf("analysis=%s/train=%g", name, share), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var rates, limits, ratios []float64
				for b.Loop() {
					before := timing.ReadRate(array, 1<<22, len(limits))
					begin := processTime()
					p, err := analysis(train, 1024, fanouts)
					if err != nil {
						b.Fatal(err)
					}
					took := (processTime() - begin).Seconds()
					mem.Free(p)
					limits = append(limits,
						(before+timing.ReadRate(array, 1<<22, -len(limits)))/2e6)
					rates = append(rates, float64(g.NumEdges())*float64(len(fanouts))/took/1e6)
					ratios = append(ratios, rates[len(rates)-1]/limits[len(limits)-1])
				}
				b.ReportMetric(timing.Median(rates), "Medges/s")
				b.ReportMetric(timing.Median(limits), "Mreads/s")
				b.ReportMetric(timing.Median(ratios), "edges/read")
			})
		}
	}
}

// processTime returns the CPU time of the process so far, because an analysis runs on several
// threads.
func processTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
