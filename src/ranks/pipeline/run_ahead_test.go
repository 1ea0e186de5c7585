package pipeline

// These tests let pipelines see the items to come, within a run and from one into the next.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// gate makes a first station that arrives and passes, as a collective or in order.
func gate[T any](ordered bool, arrive, pass func(*T) error) Stage[T] {
	if ordered {
		return Stage[T]{Name: "gate", Arrive: arrive, Ordered: pass}
	}
	return Stage[T]{Name: "gate", Arrive: arrive,
		Start: func(it *T) (Request, error) { return finished{}, pass(it) }}
}

// Whatever depth, foresight, pool and kind of gate: items arrive in order, each finds at the gate
// that the items ahead of it have arrived, and never more than depth+1 items are between the gate
// and the end of their consumption.
func TestForesight(t *testing.T) {
	type item struct{ number int }
	for k, c := range slices.Repeat([]struct{ n, depth, ahead, workers int }{
		{20, 0, 0, 1}, {20, 0, 3, 1}, {20, 2, 0, 2}, {20, 2, 1, 2}, {20, 3, 7, 4}, {5, 4, 30, 2},
		{1, 1, 4, 1}, {0, 1, 4, 1},
	}, 3) {
		ordered, collectives := k%3 > 0, k%3 < 2 // with an ordered gate also without any collective
		name := fmt.Sprintf("%+v, ordered gate %t, collectives %t", c, ordered, collectives)
		var arrived, started, consumed atomic.Int64
		items := make([]*item, c.depth+1+c.ahead)
		for i := range items {
			items[i] = new(item)
		}
		stages := []Stage[item]{
			{Name: "local", Local: func(*item) error { return nil }},
			gate(ordered, func(it *item) error {
				if got := arrived.Add(1) - 1; got != int64(it.number) {
					return fmt.Errorf("item %d arrived as number %d", it.number, got)
				}
				return nil
			}, func(it *item) error {
				if got := arrived.Load(); got < int64(min(c.n, it.number+c.ahead+1)) {
					return fmt.Errorf("item %d passes when %d have arrived", it.number, got)
				}
				if between := started.Add(1) - consumed.Load(); between > int64(c.depth+1) {
					return fmt.Errorf("%d items between gate and end at item %d", between,
						it.number)
				}
				return nil
			}),
			{Name: "local again", Local: func(*item) error { return nil }},
		}
		if collectives {
			stages = append(stages,
				Stage[item]{Name: "second",
					Start: func(*item) (Request, error) { return finished{}, nil }})
		}
		p, err := New(items, stages, Options{Depth: c.depth, Ahead: c.ahead, Workers: c.workers})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 { // the second run finds no rest of the first
			arrived.Store(0)
			started.Store(0)
			consumed.Store(0)
			err = p.Run(context.Background(), c.n, func(i int, it *item) { it.number = i },
				func(i int, it *item) error {
					if it.number != i {
						return fmt.Errorf("item %d consumed as %d", it.number, i)
					}
					consumed.Add(1)
					return nil
				})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := arrived.Load(); got != int64(c.n) {
				t.Errorf("%s: %d items arrived, want %d", name, got, c.n)
			}
		}
		p.Close()
	}
}

func slotsFor(depth, ahead int) []*batch {
	items := make([]*batch, depth+1+ahead)
	for k := range items {
		items[k] = &batch{}
	}
	return items
}

// foreseeing adds to the gate of stages an Arrive that notes which items have been seen, and a
// check that who passes it finds what Ahead promises.
type foreseeing struct {
	t        *testing.T
	n, ahead int
	arrived  int // goroutine of the gate only
	consumed *atomic.Int32
	depth    int
}

func (f *foreseeing) stages(stages []Stage[batch]) []Stage[batch] {
	s := &stages[slices.IndexFunc(stages, func(s Stage[batch]) bool { return s.Local == nil })]
	s.Arrive = func(b *batch) error {
		if b.number != f.arrived {
			f.t.Errorf("item %d arrives, want %d", b.number, f.arrived)
		}
		f.arrived++
		return nil
	}
	check := func(b *batch) {
		if want := min(f.n, b.number+1+f.ahead); f.arrived != want {
			f.t.Errorf("item %d passes when %d have arrived, want %d", b.number, f.arrived, want)
		}
		if c := int(f.consumed.Load()); c < b.number-f.depth {
			f.t.Errorf("item %d passes when %d have been consumed; the depth is %d", b.number, c,
				f.depth)
		}
	}
	if pass := s.Ordered; pass != nil {
		s.Ordered = func(b *batch) error { check(b); return pass(b) }
	}
	if start := s.Start; start != nil {
		s.Start = func(b *batch) (Request, error) { check(b); return start(b) }
	}
	return stages
}

// TestForesightAtRandomSpeeds: ranks at random speeds, each with a window of its own, start the
// schedule of their common depth; every item is known Ahead items before it starts, in order, and
// the last ones as early as there are any.
func TestForesightAtRandomSpeeds(t *testing.T) {
	const n, ranks = 14, 3
	// two ranks decide in order before their first collective
	shapes := [ranks]string{"LLCCLCL", "LOCCOCO", "LOCCLCL"}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, depth := range []int{0, 1, 2, 3, 10} {
		for _, windows := range [][ranks]int{{1, 1, 1}, {0, 3, 7}, {n, n, n}, {100, 0, 5}} {
			t.Run(fmt.Sprintf("depth=%d/ahead=%v", depth, windows), func(t *testing.T) {
				features, gradients := newWorld(t, ranks), newWorld(t, ranks)
				rank := func(rank int) {
					pause := randomPause(seed, uint64(rank))
					stages, passed := stagesOf(shapes[rank], features, rank, pause)
					var consumed atomic.Int32
					f := &foreseeing{t: t, n: n, ahead: windows[rank], consumed: &consumed,
						depth: depth}
					p := mustNew(t, slotsFor(depth, f.ahead), f.stages(stages),
						Options{Depth: depth, Ahead: f.ahead, Workers: 1 + rank})
					defer p.Close()
					for range 2 {
						f.arrived = 0
						consumed.Store(0)
						err := p.Run(context.Background(), n, prepareBatch,
							func(i int, b *batch) error {
								if b.number != i || !slices.Equal(b.passed, passed) {
									t.Errorf("rank %d: item %d after stages %v; want %d after %v",
										rank, b.number, b.passed, i, passed)
								}
								pause()
								if err := gradients.start(rank,
									fmt.Sprint("gradients ", i)).Wait(); err != nil {
									return err
								}
								consumed.Add(1)
								return nil
							})
						if err != nil || consumed.Load() != n {
							t.Errorf("rank %d consumed %d of %d items: %v", rank, consumed.Load(),
								n, err)
						}
					}
				}
				watchdog(t, func() {
					var all sync.WaitGroup
					for r := range ranks {
						all.Go(func() { rank(r) })
					}
					all.Wait()
				})
				once := scheduled(shapes[0], n, depth)
				if want := slices.Concat(once, once); !slices.Equal(features.names(), want) {
					t.Errorf("ranks started %v\nwant %v", features.names(), want)
				}
			})
		}
	}
}

// TestStopDoesNotWaitForWhatIsForeseen: ranks that stop finish the items that may have started a
// collective somewhere, which the depth bounds, and not those that have only been looked at.
func TestStopDoesNotWaitForWhatIsForeseen(t *testing.T) {
	const ranks, n, last = 3, 40, 6
	for _, depth := range []int{0, 1, 4} {
		for _, ahead := range []int{1, 5, n} {
			t.Run(fmt.Sprintf("depth=%d/ahead=%d", depth, ahead), func(t *testing.T) {
				w := newWorld(t, ranks)
				rank := func(rank int) {
					shape := []string{"LLCLCC", "LOCLCC", "OLCOCC"}[rank]
					stages, _ := stagesOf(shape, w, rank, randomPause(3, uint64(rank)))
					ahead := ahead + rank
					p := mustNew(t, slotsFor(depth, ahead), stages,
						Options{Depth: depth, Ahead: ahead, Workers: 2})
					defer p.Close()
					for range 2 {
						consumed := 0
						err := p.Run(context.Background(), n, prepareBatch,
							func(i int, _ *batch) error {
								consumed++
								if i == last {
									return ErrStop
								}
								return nil
							})
						if err != nil || consumed != last+1 {
							t.Errorf("rank %d consumed %d items: %v", rank, consumed, err)
						}
					}
				}
				watchdog(t, func() {
					var all sync.WaitGroup
					for r := range ranks {
						all.Go(func() { rank(r) })
					}
					all.Wait()
				})
				once := scheduled("LLCLCC", last+1+depth, depth)
				if want := slices.Concat(once, once); !slices.Equal(w.names(), want) {
					t.Errorf("two stopped runs started %v\nwant %v", w.names(), want)
				}
			})
		}
	}
}

// An error of Arrive ends the run like that of any stage.
func TestArriveThatFails(t *testing.T) {
	stages, _ := stagesOf("LC", newWorld(t, 1), 0, func() {})
	stages[1].Arrive = func(b *batch) error {
		if b.number == 7 {
			return errBoom
		}
		return nil
	}
	p := mustNew(t, slotsFor(2, 3), stages, Options{Depth: 2, Ahead: 3, Workers: 2})
	defer p.Close()
	watchdog(t, func() {
		consumed := 0
		err := p.Run(context.Background(), 20, prepareBatch,
			func(int, *batch) error { consumed++; return nil })
		if !errors.Is(err, errBoom) || err.Error() != "item 7: stage C1: boom" || consumed > 4 {
			t.Errorf("%d items consumed, then %v", consumed, err)
		}
	})
}

// Runs that go on where the last one ended see into each other: all items are prepared once and
// arrive once, in order, and each starts when the Ahead items after it have arrived, whichever run
// those belong to.
func TestRunsThatGoOn(t *testing.T) {
	type item struct{ number int } // counted over all runs
	for k, c := range slices.Repeat([]struct {
		runs         []int
		depth, ahead int
	}{
		{[]int{20, 20, 20}, 2, 3}, {[]int{7, 7, 7, 7}, 0, 7}, {[]int{5, 8, 3, 9}, 4, 2},
		{[]int{6, 6}, 2, 0}, {[]int{1, 1, 1, 1}, 3, 1},
		{[]int{4, 0, 4}, 1, 2}, {[]int{3, 3, 3, 3}, 2, 10},
	}, 2) {
		ordered := k%2 > 0 // the number of cases is odd, so each has both kinds of gate
		t.Run(fmt.Sprintf("%+v, ordered gate %t", c, ordered), func(t *testing.T) {
			total := 0
			for _, n := range c.runs {
				total += n
			}
			items := make([]*item, c.depth+1+c.ahead)
			for i := range items {
				items[i] = new(item)
			}
			arrived, prepared, begun := 0, 0, 0 // begun: items of earlier runs
			seen := total                       // items that may be foreseen
			stages := []Stage[item]{
				{Name: "local", Local: func(*item) error { return nil }},
				gate(ordered, func(it *item) error {
					if it.number != arrived {
						return fmt.Errorf("item %d arrived as number %d", it.number, arrived)
					}
					arrived++
					return nil
				}, func(it *item) error {
					if want := min(seen, it.number+c.ahead+1); arrived < want {
						return fmt.Errorf("item %d passes when %d have arrived, want %d", it.number,
							arrived, want)
					}
					return nil
				}),
				{Name: "second", Start: func(*item) (Request, error) { return finished{}, nil }},
			}
			p, err := New(items, stages, Options{Depth: c.depth, Ahead: c.ahead, Workers: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for k, n := range c.runs {
				next := 0
				for _, more := range c.runs[k+1:] {
					next += more
				}
				seen = begun + n + min(next, c.ahead)
				err := p.RunOn(context.Background(), n, next, func(i int, it *item) {
					if begun+i != prepared {
						t.Errorf("item %d is prepared, want %d", begun+i, prepared)
					}
					it.number = begun + i
					prepared++
				}, func(i int, it *item) error {
					if it.number != begun+i {
						return fmt.Errorf("item %d consumed as %d", it.number, begun+i)
					}
					return nil
				})
				if err != nil {
					t.Fatalf("run %d: %v", k, err)
				}
				begun += n
			}
			if prepared != total || arrived != total {
				t.Errorf("%d items prepared, %d arrived, want %d", prepared, arrived, total)
			}
		})
	}
}

// What a run has prepared for the next one, that must take; a run that stops or fails has prepared
// nothing.
func TestRunsThatDoNotGoOn(t *testing.T) {
	for _, shape := range []string{"LCC", "LOLCC", "LO"} {
		t.Run(shape, func(t *testing.T) { runsThatDoNotGoOn(t, shape) })
	}
}

func runsThatDoNotGoOn(t *testing.T, shape string) {
	stages, _ := stagesOf(shape, newWorld(t, 1), 0, func() {})
	for k := range stages {
		// what was prepared in an earlier run has the number that it had there
		if stages[k].Ordered != nil {
			stages[k].Ordered = func(*batch) error { return nil }
		}
	}
	p := mustNew(t, slotsFor(1, 4), stages, Options{Depth: 1, Ahead: 4, Workers: 2})
	defer p.Close()
	prepared := 0
	run := func(n, next int, consume func(i int, b *batch) error) error {
		prepared = 0
		return p.RunOn(context.Background(), n, next,
			func(i int, b *batch) { prepared++; prepareBatch(i, b) }, consume)
	}
	fine := func(int, *batch) error { return nil }
	watchdog(t, func() {
		if err := run(6, 9, fine); err != nil || prepared != 10 {
			t.Errorf("%d items prepared: %v", prepared, err)
		}
		if err := run(1, 2, fine); err == nil || prepared != 0 {
			t.Errorf("a run of 3 items went on where 4 were prepared; %d more were", prepared)
		}
		if err := run(5, 3, func(i int, _ *batch) error {
			if i == 4 {
				return ErrStop
			}
			return nil
		}); err != nil || prepared != 4 {
			t.Errorf("%d items prepared beside 4: %v", prepared, err)
		}
		if err := run(2, 0, fine); err != nil || prepared != 2 {
			t.Errorf("%d items prepared after a run that stopped: %v", prepared, err)
		}
		if err := run(3, 3, func(int, *batch) error { return errBoom }); !errors.Is(err, errBoom) {
			t.Errorf("error %v", err)
		}
		if err := run(2, 0, fine); err != nil || prepared != 2 {
			t.Errorf("%d items prepared after a run that failed: %v", prepared, err)
		}
		if err := run(-1, 0, fine); err == nil {
			t.Error("a run of -1 items")
		}
	})
}
