package parallel

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// changing are the dynamic policies, each with the minibatches that it sees in advance.
var changing = []struct {
	name  string
	ahead int
	make  func(capacity int) (cache.Policy, error)
}{
	{"sieve", 0, func(c int) (cache.Policy, error) { return cache.NewSieve(vertices, c) }},
	{"prefetch", 0, func(c int) (cache.Policy, error) {
		return cache.NewPrefetch(cache.PrefetchOptions{
			Vertices: vertices, Capacity: c, Gamma: 0.9, Delta: 2,
			Degree: func(v graph.VertexID) int { return int(v) % 5 },
		})
	}},
	{"lookahead", 3, func(c int) (cache.Policy, error) {
		return cache.NewLookahead(cache.LookaheadOptions{Vertices: vertices, Capacity: c,
			Window: 3})
	}},
	{"lookahead, levelled", 5, func(c int) (cache.Policy, error) {
		return cache.NewLookahead(cache.LookaheadOptions{Vertices: vertices, Capacity: c, Window: 5,
			Level: true})
	}},
}

const capacity = 40

// piped is a rank's strategy in a pipeline, as in a training run.
type piped struct {
	*Pipe
	data   *Strategy
	policy cache.Policy
	rows   []byte
}

func (w *world) pipe(c comm.Comm, kind, depth int) (*piped, error) {
	k := changing[kind]
	policy, err := k.make(capacity)
	if err != nil {
		return nil, err
	}
	p := &piped{policy: policy, rows: mem.Make[byte](policy.Slots() * cols * 4)}
	p.data, err = w.data(c, compute.Float32, Options{
		Drawing: Drawing{Sample: sample.Neighbours(4, 3), Labels: w.oneLabel()},
		Reading: Reading{Policy: policy, Ahead: k.ahead, Depth: depth},
	}, everything, 2, p.rows...)
	if err != nil {
		return nil, err
	}
	p.Pipe, err = NewPipe(p.data, pipeline.Options{Depth: depth, Ahead: k.ahead, Workers: 1})
	return p, err
}

func (p *piped) free() {
	p.Pipe.Close()
	p.data.Close()
	p.policy.Free()
	mem.Free(p.rows)
}

// Whatever a cache decides, a minibatch has the vertices of the reference sampler and the rows of
// the feature matrix, although cached rows are read, fetched and overwritten while other
// minibatches are in flight. Minibatches that are not trained run between epochs.
func TestBatchesFromACacheThatChanges(t *testing.T) {
	w := newWorld(t, 4)
	before := mem.Allocated()
	for kind, k := range changing {
		for _, depth := range []int{0, 2} {
			var hits, early int64
			err := comm.RunWorld(2, func(c comm.Comm) error {
				p, err := w.pipe(c, kind, depth)
				if err != nil {
					return err
				}
				defer p.free()
				for epoch, train := range []bool{true, false, true} {
					admit := func(i int, m *Minibatch) {
						m.Key = sample.Key{Seed: 3, Epoch: epoch, Step: i, Stream: c.Rank()}
						m.Train, m.GlobalSeeds = train, 99
						m.SetSeeds(seedsOf(c.Rank()+i, 20*(i%4)))
					}
					err := p.Run(context.Background(), 12, admit, func(i int, m *Minibatch) error {
						if c.Rank() == 0 {
							hits += m.Fetch.Cached
							early += m.Fetch.Early
						}
						if !train && m.Fetch.Cached+m.Fetch.Early > 0 {
							return fmt.Errorf("a minibatch that is not trained reads %d rows of "+
								"the cache and changes it", m.Fetch.Cached)
						}
						return w.check(m, []int{4, 3})
					})
					if err != nil {
						return fmt.Errorf("pass %d: %w", epoch, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s, depth %d: %v", k.name, depth, err)
			}
			if hits == 0 {
				t.Errorf("%s, depth %d: nothing was read from the cache", k.name, depth)
			}
			t.Logf("%s, depth %d: %d rows from the cache, %d fetched besides misses", k.name, depth,
				hits, early)
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// In steady state a minibatch with a dynamic cache allocates nothing on any rank.
func TestDecidingAllocatesNothing(t *testing.T) {
	if race.Detector {
		t.Skip("the race detector allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	w := newWorld(t, 2)
	measure := func(kind int) (perItem float64, err error) {
		var few, many float64
		err = comm.RunWorld(2, func(c comm.Comm) error {
			p, err := w.pipe(c, kind, 2)
			if err != nil {
				return err
			}
			defer p.free()
			admit := func(i int, m *Minibatch) {
				m.Key = sample.Key{Epoch: 1, Step: i % 7, Stream: c.Rank()}
				m.Train = true
				m.SetSeeds(fixedSeeds)
			}
			run := func(n int) func() {
				return func() {
					if e := p.Run(context.Background(), n, admit,
						func(int, *Minibatch) error { return nil }); e != nil {
						err = e
					}
				}
			}
			for _, n := range []int{40, 10, 70} { // the first warms up
				if c.Rank() > 0 { // rank 0 measures the whole process
					for range 3 {
						run(n)()
					}
					continue
				}
				x := testing.AllocsPerRun(2, run(n))
				switch n {
				case 10:
					few = x
				case 70:
					many = x
				}
			}
			return err
		})
		return (many - few) / 60, err
	}
	for kind, k := range changing {
		// The runtime allocates where goroutines queue up, more so on a busy machine, so the test
		// takes the least: the program itself would allocate every time.
		least := math.Inf(1)
		for range 4 {
			perItem, err := measure(kind)
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			if least = min(least, perItem); least <= 0.05 {
				break
			}
		}
		if least > 0.05 {
			t.Errorf("%s: %g allocations a minibatch", k.name, least)
		}
	}
}

// slow is a policy that takes its time.
type slow struct{ cache.Policy }

const feeding, scoring = 10 * time.Millisecond, 150 * time.Millisecond

func (s slow) Feed(remote []graph.VertexID, worth []uint8) {
	time.Sleep(feeding)
	s.Policy.Feed(remote, worth)
}

func (s slow) Step(remote []graph.VertexID, d *cache.Decision) {
	time.Sleep(scoring)
	s.Policy.Step(remote, d)
}

// The policy's time, including that of look-ahead, is a separate phase; a minibatch that is not
// trained has none of it.
func TestTimeOfThePolicyStandsAlone(t *testing.T) {
	w := newWorld(t, 4)
	err := comm.RunWorld(2, func(c comm.Comm) error {
		p, err := w.pipe(c, 2, 1)
		if err != nil {
			return err
		}
		defer p.free()
		p.data.rows.(*fetched).keeper.(*deciding).policy = slow{p.policy}
		for _, train := range []bool{true, false} {
			admit := func(i int, m *Minibatch) {
				m.Key = sample.Key{Epoch: 1, Step: i, Stream: c.Rank()}
				m.Train = train
				m.SetSeeds(fixedSeeds)
			}
			// The least of many, because any one may lose its CPU.
			least := [trace.NumPhases]time.Duration{}
			err := p.Run(context.Background(), 6, admit, func(i int, _ *Minibatch) error {
				took := p.Took()
				if got := took[trace.Score] >= feeding+scoring; got != train {
					return fmt.Errorf("trained: %t, but the policy took %v", train,
						took[trace.Score])
				}
				for k := range took {
					if i == 0 || took[k] < least[k] {
						least[k] = took[k]
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			for _, k := range []trace.Phase{trace.Sample, trace.Plan, trace.Slice, trace.Gather} {
				if least[k] <= 0 || least[k] >= scoring {
					return fmt.Errorf("%s took %v at least; the policy's %v are not part of it", k,
						least[k], scoring)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
