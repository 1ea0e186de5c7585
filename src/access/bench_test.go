package access

import (
	"flag"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"halognn/src/graph"
	"halognn/src/mem"
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

// readRate measures the machine's limit: independent random 4-byte reads of an array, per second.
// Positions are computed, so that only the reads themselves miss the cache; the processor overlaps
// as many as it can.
func readRate(array []float32, start int) float64 {
	const reads = 1 << 22
	n, s, sum := uint64(len(array)), uint64(start), float32(0)
	begin := cpuTime()
	for range reads {
		s += 0x9E3779B97F4A7C15
		word := s ^ s>>32
		hi, _ := bits.Mul64(word*0xBF58476D1CE4E5B9, n)
		sum += array[hi]
	}
	rate := reads / (cpuTime() - begin).Seconds()
	sink = sum
	return rate
}

var sink float32

// cpuTime returns the CPU time of the calling thread so far, which excludes other programs, unlike
// the time of day.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

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
					before := readRate(array, len(limits))
					begin := processTime()
					p, err := analysis(train, 1024, fanouts)
					if err != nil {
						b.Fatal(err)
					}
					took := (processTime() - begin).Seconds()
					mem.Free(p)
					limits = append(limits, (before+readRate(array, -len(limits)))/2e6)
					rates = append(rates, float64(g.NumEdges())*float64(len(fanouts))/took/1e6)
					ratios = append(ratios, rates[len(rates)-1]/limits[len(limits)-1])
				}
				b.ReportMetric(median(rates), "Medges/s")
				b.ReportMetric(median(limits), "Mreads/s")
				b.ReportMetric(median(ratios), "edges/read")
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
