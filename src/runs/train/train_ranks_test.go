package train

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/step/parallel"
	"halognn/tests/race"
)

// The memory of a rank, with as many vertices and rows for each, grows no faster than the number of
// ranks K: the second difference of its bytes over K, 2K and 4K, of the mean rank, is less than
// that of an array of K^2 words of 4 bytes. Nor do the arrays of any one call on the Go heap, of
// whatever rank, have K^2 such words in the mean. What a single rank takes outside the heap counts
// only in the mean of all.
func TestMemoryOfARankGrowsNoFasterThanRanks(t *testing.T) {
	race.Alone(t)
	if testing.Short() {
		t.Skip("-short")
	}
	for name, change := range map[string]func(*Options){
		"nodes as one, a divided cache, sums": func(o *Options) {
			o.AsNodes, o.Sums = true, true
			o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.5,
				Placement: policy.PlacementGroup}
		},
		"hybrid, partitioned": func(o *Options) {
			of, err := parallel.ModeOf("hybrid")
			if err != nil {
				t.Fatal(err)
			}
			o.Mode, o.Partitioned = of.Mode, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			numbers, words := []int{64, 128, 256}, func(k int) float64 { return 4 * float64(k*k) }
			var heap, outside, square []float64
			for _, k := range numbers {
				of := memoryOfRanks(t, k, change)
				heap, outside = append(heap, of.heap), append(outside, of.outside)
				square = append(square, words(k))
				if k == 256 && of.largest >= words(k) {
					t.Errorf("an array has %.0f bytes: a word for each pair of %d ranks",
						of.largest, k)
				}
			}
			// 0 for a + b K; arrays outside the heap take whole pages, so it is never quite 0
			second := func(x []float64) float64 { return x[2] - 3*x[1] + 2*x[0] }
			for what, of := range map[string][]float64{"on": heap, "outside": outside} {
				got, far := second(of), second(square)
				t.Logf("a rank of %v takes %.0f bytes %s the heap; second difference %.0f", numbers,
					of, what, got)
				if got >= far {
					t.Errorf("the second difference %s the heap is %.0f or more", what, far)
				}
			}
		})
	}
}

// memory is that of ranks that have ended an epoch: the mean bytes of a rank on the Go heap and
// outside, and those of the largest array on the heap: the mean of the arrays of one call.
type memory struct{ heap, outside, largest float64 }

func memoryOfRanks(t *testing.T, ranks int, change func(*Options)) (m memory) {
	t.Helper()
	// Every array that is many times as long is in the profile of the heap.
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1 << 15
	o := sageOptions()
	o.Batch, o.Epochs, o.EvalEvery = 4, 1, 0
	change(&o)
	shards := sessiontest.Graph(t, ranks, 12*ranks)
	heap := func() float64 {
		runtime.GC() // a profile is that of the last collection but one
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return float64(s.HeapAlloc)
	}
	before, outside := heap(), mem.Allocated()
	var arrived, measured sync.WaitGroup
	arrived.Add(ranks)
	measured.Add(1)
	go func() {
		defer measured.Done()
		arrived.Wait()
		m.heap = (heap() - before) / float64(ranks)
		m.outside = float64(mem.Allocated()-outside) / float64(ranks)
		records := make([]runtime.MemProfileRecord, 1<<16)
		n, _ := runtime.MemProfile(records, false)
		for _, r := range records[:n] {
			m.largest = max(m.largest, float64(r.AllocBytes)/float64(r.AllocObjects))
		}
	}()
	dir := t.TempDir()
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		var once sync.Once // a rank that fails does not let the others wait
		defer once.Do(arrived.Done)
		of := shards
		if o.Partitioned {
			own, err := shard.Open(shards.Dir, shard.Options{Rank: c.Rank(), Ranks: ranks})
			if err != nil {
				return err
			}
			defer own.Close()
			of = own
		}
		env := sessiontest.Env(c, of)
		env.RanksPerNode, env.Workers = 8, 1
		_, err := Run(context.Background(), Env{Env: env, Dir: dir, OnSteps: func(begin bool) {
			if !begin {
				once.Do(arrived.Done)
				measured.Wait()
			}
		}}, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
