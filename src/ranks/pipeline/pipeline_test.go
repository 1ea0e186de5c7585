package pipeline

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// batch is the item of these tests: its number and the stages it has passed.
type batch struct {
	number int
	passed []string
}

func prepareBatch(i int, b *batch) { b.number, b.passed = i, b.passed[:0] }

func newBatches(depth int) []*batch {
	items := make([]*batch, depth+1)
	for k := range items {
		items[k] = &batch{}
	}
	return items
}

// stagesOf makes one stage per letter of shape, L local, O ordered, G so and the gate, C collective
// on w. An ordered stage fails unless items come to it in order. pause is called where a stage may
// take time.
func stagesOf(shape string, w *world, rank int, pause func()) (stages []Stage[batch],
	passed []string) {
	for k, letter := range shape {
		name := fmt.Sprintf("%c%d", letter, k)
		pass := func(b *batch) error {
			pause()
			b.passed = append(b.passed, name)
			return nil
		}
		switch letter {
		case 'L':
			stages = append(stages, Stage[batch]{Name: name, Local: pass})
		case 'O', 'G':
			next, arrive := 0, func(*batch) error { return nil }
			if letter == 'O' {
				arrive = nil
			}
			stages = append(stages, Stage[batch]{Name: name, Arrive: arrive,
				Ordered: func(b *batch) error {
					if b.number == 0 { // another run
						next = 0
					}
					if b.number != next {
						return fmt.Errorf("item %d comes when %d should", b.number, next)
					}
					next++
					return pass(b)
				}})
		default:
			start := func(b *batch) (Request,
				error) {
				return w.start(rank, operationName(b.number, name)), nil
			}
			stages = append(stages, Stage[batch]{Name: name, Start: start, Finish: pass})
		}
		passed = append(passed, name)
	}
	return stages, passed
}

func operationName(item int, stage string) string { return fmt.Sprintf("item %d %s", item, stage) }

// scheduled returns the operations that n items start, in order.
func scheduled(shape string, n, depth int) []string {
	var collectives, names []string
	for k, letter := range shape {
		if letter == 'C' {
			collectives = append(collectives, fmt.Sprintf("C%d", k))
		}
	}
	for i, c := range order(shape, n, depth).Schedule() {
		names = append(names, operationName(i, collectives[c]))
	}
	return names
}

// order returns that of n items of a shape without foresight.
func order(shape string, n, depth int) Order {
	o := Order{Items: n, Collectives: strings.Count(shape, "C"), Depth: depth}
	if gate := strings.Index(shape, "G"); gate > 0 {
		o.Before = strings.Count(shape[:gate], "C")
	}
	return o
}

func mustNew[T any](t testing.TB, items []*T, stages []Stage[T], o Options) *Pipeline[T] {
	t.Helper()
	p, err := New(items, stages, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// watchdog ends the tests with all stacks when f hangs: a deadlock is the fault these tests look
// for.
func watchdog(t *testing.T, f func()) {
	t.Helper()
	timer := time.AfterFunc(10*time.Minute, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		panic(t.Name() + " hangs")
	})
	defer timer.Stop()
	f()
}

// goroutinesReturnTo waits until no more than n goroutines are left.
func goroutinesReturnTo(t *testing.T, n int) {
	t.Helper()
	for range 60_000 { // a minute: a busy machine schedules them late
		if runtime.NumGoroutine() <= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	t.Fatalf("%d goroutines are left, want %d", runtime.NumGoroutine(), n)
}

func TestEveryShapeOfStagesKeepsOrder(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, shape := range []string{"", "L", "C", "LL", "CC", "LC", "CL", "LCL", "CLC", "CCCC",
		"LLCCLL", "LCCLCL",
		"O", "OO", "LO", "OL", "OC", "CO", "LOLCLO", "OCOCO", "LOLCCLOL"} {
		for _, depth := range []int{0, 1, 2, 3, 7} {
			t.Run(fmt.Sprintf("%s/depth=%d", shape, depth), func(t *testing.T) {
				w := newWorld(t, 1)
				stages, passed := stagesOf(shape, w, 0, func() {})
				p := mustNew(t, newBatches(depth), stages, Options{Depth: depth, Workers: 3})
				defer p.Close()
				for _, n := range []int{0, 1, 2, 20, 3} { // one pipeline, many runs
					w.ops, w.next[0] = nil, 0
					next := 0
					err := p.Run(context.Background(), n, prepareBatch,
						func(i int, b *batch) error {
							if i != next || b.number != i || !slices.Equal(b.passed, passed) {
								t.Errorf("got item %d as %d after stages %v; want %d after %v",
									b.number, i, b.passed, next, passed)
							}
							next++
							return nil
						})
					if err != nil || next != n {
						t.Errorf("consumed %d of %d items: %v", next, n, err)
					}
					if want := scheduled(shape, n, depth); !slices.Equal(w.names(), want) {
						t.Errorf("%d items started %v, want %v", n, w.names(), want)
					}
				}
			})
		}
	}
	goroutinesReturnTo(t, before)
}

// TestRanksAtRandomSpeeds is the argument of the package comment put to work: whatever the speeds,
// pool sizes and depths, with collectives in consume as well, nothing hangs and all ranks start the
// schedule.
func TestRanksAtRandomSpeeds(t *testing.T) {
	const n, ranks = 12, 3
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, workers := range []int{1, 2, 8} {
		for _, depth := range []int{0, 1, 2, 3, 4, 10} {
			t.Run(fmt.Sprintf("workers=%d/depth=%d", workers, depth), func(t *testing.T) {
				features, gradients := newWorld(t, ranks), newWorld(t, ranks)
				// which collectives there are must agree, and no more
				shapes := [ranks]string{"LCCLCL", "OCCOCO", "LCCOCL"}
				if depth%2 == 1 {
					shapes = [ranks]string{"LLCCLCL", "OOCCOCO", "LOCCLCO"}
				}
				rank := func(rank int) {
					pause := randomPause(seed, uint64(rank))
					stages, passed := stagesOf(shapes[rank], features, rank, pause)
					p := mustNew(t, newBatches(depth), stages,
						Options{Depth: depth, Workers: workers})
					defer p.Close()
					next := 0
					err := p.Run(context.Background(), n, prepareBatch,
						func(i int, b *batch) error {
							if b.number != next || !slices.Equal(b.passed, passed) {
								t.Errorf("rank %d: item %d after stages %v; want %d after %v", rank,
									b.number, b.passed, next, passed)
							}
							next++
							pause()
							return gradients.start(rank, fmt.Sprint("gradients ", i)).Wait()
						})
					if err != nil || next != n {
						t.Errorf("rank %d consumed %d of %d items: %v", rank, next, n, err)
					}
				}
				watchdog(t, func() {
					var all sync.WaitGroup
					for r := range ranks {
						all.Go(func() { rank(r) })
					}
					all.Wait()
				})
				if want := scheduled(shapes[0], n, depth); !slices.Equal(features.names(), want) {
					t.Errorf("ranks started %v\nwant %v", features.names(), want)
				}
			})
		}
	}
}

// randomPause returns a function that sleeps for 0 to 300 µs, mostly not at all; safe for
// concurrent use.
func randomPause(seed, stream uint64) func() {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, stream))
	return func() {
		mu.Lock()
		d := max(0, rng.IntN(600)-300)
		mu.Unlock()
		if d > 0 {
			time.Sleep(time.Duration(d) * time.Microsecond)
		}
	}
}

// TestNextItemIsCompleteDuringConsume: with depth 1 and more, item i+1 passes its last stage while
// item i is consumed, and no more than Depth+1 items are ever in flight.
func TestNextItemIsCompleteDuringConsume(t *testing.T) {
	const n = 20
	for _, shape := range []string{"L", "C", "O", "LCLCLCL", "CCCC", "LOLCOCOL"} {
		for _, depth := range []int{1, 2, 3, 4, 10} {
			t.Run(fmt.Sprintf("%s/depth=%d", shape, depth), func(t *testing.T) {
				complete := make([]chan struct{}, n)
				for i := range complete {
					complete[i] = make(chan struct{})
				}
				stages, _ := stagesOf(shape, newWorld(t, 1), 0, func() {})
				stages = append(stages,
					Stage[batch]{Name: "last",
						Local: func(b *batch) error { close(complete[b.number]); return nil }})
				p := mustNew(t, newBatches(depth), stages, Options{Depth: depth, Workers: 1})
				defer p.Close()
				admitted := 0
				watchdog(t, func() {
					err := p.Run(context.Background(), n,
						func(i int, b *batch) { admitted++; prepareBatch(i, b) },
						func(i int, b *batch) error {
							if want := min(n, i+depth+1); admitted != want {
								t.Errorf("consuming item %d, %d items are admitted, want %d", i,
									admitted, want)
							}
							if i+1 < n {
								<-complete[i+1]
							}
							return nil
						})
					if err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestPoolIsAsWideAsAsked: the local stages of Workers items run at the same time, and never more.
func TestPoolIsAsWideAsAsked(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		var inside, most atomic.Int32
		all := make(chan struct{}) // closed once as many items as workers are inside the stage
		stage := Stage[batch]{Name: "meet", Local: func(*batch) error {
			now := inside.Add(1)
			defer inside.Add(-1)
			most.Store(max(most.Load(), now))
			if int(now) == workers {
				select {
				case <-all:
				default:
					close(all)
				}
			}
			<-all
			return nil
		}}
		p := mustNew(t, newBatches(7), []Stage[batch]{stage}, Options{Depth: 7, Workers: workers})
		watchdog(t, func() {
			if err := p.Run(context.Background(), 30, prepareBatch,
				func(int, *batch) error { return nil }); err != nil {
				t.Error(err)
			}
		})
		p.Close()
		if int(most.Load()) > workers {
			t.Errorf("%d local stages ran at once with %d workers", most.Load(), workers)
		}
	}
}

func TestOldestPendingItemIsTakenFirst(t *testing.T) {
	p := mustNew(t, newBatches(3), nil, Options{Depth: 3, Workers: 1})
	defer p.Close()
	for k, number := range []int{6, 4, 7, 5} {
		p.slots[k].number = number
		heap.Push(&p.pending, &p.slots[k])
	}
	var got []int
	for s := p.take(); s != nil; s = p.take() {
		got = append(got, s.number)
	}
	if want := []int{4, 5, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("taken in order %v, want %v", got, want)
	}
}

func TestOnWorkerSeesEveryGoroutineOnce(t *testing.T) {
	const workers = 6
	var calls [workers]atomic.Int32
	p := mustNew(t, newBatches(0), nil,
		Options{Workers: workers, OnWorker: func(w int) error { calls[w].Add(1); return nil }})
	p.Close()
	for w := range calls {
		if n := calls[w].Load(); n != 1 {
			t.Errorf("worker %d was announced %d times", w, n)
		}
	}
	before := runtime.NumGoroutine()
	_, err := New(newBatches(0), nil,
		Options{Workers: 2, OnWorker: func(w int) error {
			return fmt.Errorf("core %d is not ours",
				w)
		}})
	if err == nil || !strings.Contains(err.Error(), "core 0 is not ours") ||
		!strings.Contains(err.Error(), "core 1 is not ours") {
		t.Errorf("New returned %v", err)
	}
	goroutinesReturnTo(t, before)
}

func TestNewReportsAllFaults(t *testing.T) {
	local := func(*batch) error { return nil }
	_, err := New([]*batch{nil},
		[]Stage[batch]{{Name: "empty"}, {Name: "odd", Local: local, Finish: local},
			{Name: "gate", Ordered: local, Arrive: local},
			{Name: "both", Local: local, Ordered: local},
			{Name: "late", Ordered: local, Arrive: local}}, Options{Depth: 2, Workers: -1})
	for _, want := range []string{"give depth+1+ahead = 3", "workers is -1", "item 0 is nil",
		`"empty" must have`, `"odd" has Finish`,
		`"both" must have`, `"late" has Arrive, but only one stage can be the gate`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if _, err := New(newBatches(0), nil, Options{Depth: -1}); err == nil ||
		!strings.Contains(err.Error(), "depth is -1") {
		t.Errorf("depth -1: %v", err)
	}
}

// The consumer knows how long it was blocked before each item: long before the first, whose stages
// all take their time, and not after it has slept while the others were prepared. Every stage of
// every item has its span, and so has each wait; what has begun ends.
func TestWaitsAndSpans(t *testing.T) {
	const n, nap = 6, 50 * time.Millisecond
	var mu sync.Mutex
	spans, open, marks := map[string]int{}, map[uint64]string{}, uint64(0)
	begin := func(stage string) uint64 {
		mu.Lock()
		defer mu.Unlock()
		marks++
		open[marks] = stage
		return marks
	}
	observe := func(s Span) {
		mu.Lock()
		defer mu.Unlock()
		if s.Begin.IsZero() || s.Took <= 0 || open[s.Mark] != s.Stage {
			t.Errorf("span %+v, which began as %q", s, open[s.Mark])
		}
		delete(open, s.Mark)
		spans[s.Stage]++
	}
	stages, passed := stagesOf("LCL", newWorld(t, 1), 0, func() { time.Sleep(nap) })
	p := mustNew(t, newBatches(n-1), stages, Options{Depth: n - 1, Workers: n, Begin: begin,
		Observe: observe})
	defer p.Close()
	for range 2 { // the last run's is forgotten
		clear(spans)
		var first, last time.Duration
		err := p.Run(context.Background(), n, prepareBatch, func(i int, _ *batch) error {
			switch i {
			case 0:
				first = p.Waited()
				time.Sleep(time.Duration(2*n) * nap) // all are prepared meanwhile
			case n - 1:
				last = p.Waited()
			}
			return nil
		})
		if err != nil || first < 2*nap || last >= first {
			t.Errorf("%v; waited %v for the first item and %v for the last one", err, first, last)
		}
		for _, name := range append(passed, Wait) {
			if spans[name] != n {
				t.Errorf("%d spans of stage %s, want %d", spans[name], name, n)
			}
		}
		if len(open) > 0 {
			t.Errorf("spans that have not ended: %v", open)
		}
	}
}

// Every stage of every item has one span, and the consumer is told the same times, with what Arrive
// took besides.
func TestTimesOfEveryStage(t *testing.T) {
	const n, nap = 9, 200 * time.Microsecond
	var mu sync.Mutex
	spans := map[string][]time.Duration{}
	observe := func(s Span) {
		mu.Lock()
		defer mu.Unlock()
		local := strings.HasPrefix(s.Stage, "L") // two workers may end two items in any order
		if s.Begin.IsZero() || !local && s.Item != len(spans[s.Stage]) {
			t.Errorf("span %+v, after %d of this stage", s, len(spans[s.Stage]))
		}
		if spans[s.Stage] == nil {
			spans[s.Stage] = make([]time.Duration, 0, n)
		}
		for len(spans[s.Stage]) <= s.Item {
			spans[s.Stage] = append(spans[s.Stage], 0)
		}
		spans[s.Stage][s.Item] = s.Took
	}
	for _, shape := range []string{"LCLO", "LOLCL", "LCOCL"} {
		stages, passed := stagesOf(shape, newWorld(t, 1), 0, func() { time.Sleep(nap) })
		stages[1].Arrive = func(*batch) error { time.Sleep(nap); return nil }
		p := mustNew(t, slotsFor(2, 3), stages,
			Options{Depth: 2, Ahead: 3, Workers: 2, Observe: observe})
		for range 2 {
			clear(spans)
			err := p.Run(context.Background(), n, prepareBatch, func(i int, _ *batch) error {
				// four items arrive, and one passes
				if p.Waited() < 0 || i == 0 && p.Waited() < 5*nap {
					t.Errorf("%s: waited %v for item %d", shape, p.Waited(), i)
				}
				mu.Lock()
				defer mu.Unlock()
				for k, took := range p.Took() {
					want := spans[passed[k]][i]
					if k == 1 {
						want += nap
					}
					if took < nap || took < want || k != 1 && took != want {
						t.Errorf("%s: stage %s of item %d took %v, by its span %v", shape,
							passed[k], i, took, want)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range passed {
				if len(spans[name]) != n || slices.Contains(spans[name], 0) {
					t.Errorf("%s: spans %v of stage %s", shape, spans[name], name)
				}
			}
		}
		p.Close()
	}
}

// finished is a request that is complete from the start.
type finished struct{}

func (finished) Wait() error { return nil }

func TestSteadyStateAllocatesNothing(t *testing.T) {
	local := func(b *batch) error { b.number++; return nil }
	start := func(*batch) (Request, error) { return finished{}, nil }
	stages := []Stage[batch]{
		{Name: "a", Local: local}, {Name: "o", Ordered: local, Arrive: local},
		{Name: "b", Start: start, Finish: local},
		{Name: "c", Start: start}, {Name: "p", Ordered: local}, {Name: "d", Local: local},
	}
	for _, depth := range []int{0, 3} {
		p := mustNew(t, newBatches(depth), stages, Options{Depth: depth, Workers: 2})
		allocations := func(n int) float64 {
			return testing.AllocsPerRun(3, func() {
				if err := p.Run(context.Background(), n, prepareBatch,
					func(int, *batch) error { return nil }); err != nil {
					t.Fatal(err)
				}
			})
		}
		few, many := allocations(10), allocations(1010)
		if perItem := (many - few) / 1000; perItem > 0.02 {
			t.Errorf("depth %d: %g allocations an item (%g for 10 items, %g for 1010)", depth,
				perItem, few, many)
		}
		p.Close()
	}
}

func TestScheduleIsSortedByTickThenAge(t *testing.T) {
	type start struct{ tick, item, collective int }
	for _, n := range []int{0, 1, 2, 5, 17} {
		for c := range 9 {
			for _, depth := range []int{0, 1, 2, 3, 4, 7, 8, 10, 30} {
				g := c
				if depth > 0 {
					g = (c + depth - 1) / depth
				}
				var want, got []start
				for i := range n {
					for k := range c {
						want = append(want, start{i*g + k, i, k})
					}
				}
				slices.SortFunc(want, func(a, b start) int {
					if a.tick != b.tick {
						return a.tick - b.tick
					}
					return a.item - b.item
				})
				at := map[start]int{} // position by item and collective
				for i, k := range (Order{Items: n, Collectives: c, Depth: depth}).Schedule() {
					at[start{0, i, k}] = len(got)
					got = append(got, start{i*g + k, i, k})
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("n=%d C=%d depth=%d:\n got %v\nwant %v", n, c, depth, got, want)
				}
				for i := range n { // what freedom from deadlock and overlap stand on
					if next := i + depth + 1; c > 0 && next < n &&
						at[start{0, i, c - 1}] > at[start{0, next, 0}] {
						t.Errorf("n=%d C=%d depth=%d: item %d starts before item %d is complete, "+
							"whose slot it needs", n, c, depth, next, i)
					}
					if next := i + depth; c > 0 && depth > 0 && next < n && next > i &&
						at[start{0, i, c - 1}] > at[start{0, next, 0}] {
						t.Errorf("n=%d C=%d depth=%d: item %d is not complete before item %d "+
							"starts", n, c, depth, i, next)
					}
				}
			}
		}
	}
}
