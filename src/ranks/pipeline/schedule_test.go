package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// law is one run of runs that go on, with collectives before the gate: what ranks agree on.
type law struct {
	shape        string
	depth, ahead int
	runs         []int // items of each
	stop         int   // the last run stops after so many items; 0: it does not
}

// want returns the collectives that a rank starts, with the items counted over all runs.
func (l law) want() (names []string) {
	var collectives []string
	for k, letter := range l.shape {
		if letter == 'C' {
			collectives = append(collectives, fmt.Sprintf("C%d", k))
		}
	}
	begun, parked := 0, 0
	for k, n := range l.runs {
		o := order(l.shape, n, l.depth)
		o.Ahead, o.Parked, o.Next = l.ahead, parked, min(l.ahead, l.next(k))
		last, come := n, n+o.Next
		if l.stop > 0 && k == len(l.runs)-1 {
			last, come = min(n, l.stop+l.depth), min(come, l.stop+l.depth+l.ahead)
		}
		for i, c := range o.Schedule() {
			if c < o.Before && i < come || c >= o.Before && i < last {
				names = append(names, operationName(begun+i, collectives[c]))
			}
		}
		begun, parked = begun+n, o.Next
	}
	return names
}

// next returns the items of the runs after run k; after the last one there would be more.
func (l law) next(k int) (n int) {
	for _, more := range l.runs[k+1:] {
		n += more
	}
	if l.stop > 0 {
		n += 3
	}
	return n
}

// before returns the collectives before the gate.
func (l law) before() int { return strings.Count(l.shape[:strings.Index(l.shape, "G")], "C") }

// rank runs one rank.
func (l law) rank(t *testing.T, w, gradients *world, rank int, seed uint64) {
	type item struct{ number int } // counted over all runs
	pause := randomPause(seed, uint64(rank))
	begun, arrived, consumed := 0, 0, 0
	in := 0 // the run
	var mu sync.Mutex
	stages := []Stage[item]{}
	for k, letter := range l.shape {
		name := fmt.Sprintf("%c%d", letter, k)
		switch letter {
		case 'L':
			stages = append(stages, Stage[item]{Name: name,
				Local: func(*item) error { pause(); return nil }})
		case 'C':
			stages = append(stages, Stage[item]{Name: name,
				Start: func(it *item) (Request, error) {
					pause()
					return w.start(rank, operationName(it.number, name)), nil
				}, Finish: func(*item) error { pause(); return nil }})
		case 'G':
			stages = append(stages, Stage[item]{Name: name, Arrive: func(it *item) error {
				if it.number != arrived {
					return fmt.Errorf("item %d arrived as number %d", it.number, arrived)
				}
				arrived++
				return nil
			}, Ordered: func(it *item) error {
				pause()
				mu.Lock()
				defer mu.Unlock()
				end := begun + l.runs[in] + min(l.ahead, l.next(in))
				want := min(end, it.number+l.ahead+1)
				if l.stop > 0 && in == len(l.runs)-1 && it.number >= begun+l.stop &&
					l.before() == 0 {
					// Finished after the stop, but not consumed.
					want = max(it.number+1, min(arrived, want))
				}
				if arrived != want {
					return fmt.Errorf("item %d passes when %d have arrived, want %d", it.number,
						arrived, want)
				}
				if it.number > consumed+l.depth {
					return fmt.Errorf("item %d passes when %d are consumed", it.number, consumed)
				}
				return nil
			}})
		}
	}
	items := make([]*item, l.depth+1+l.ahead)
	for k := range items {
		items[k] = new(item)
	}
	p := mustNew(t, items, stages, Options{Depth: l.depth, Ahead: l.ahead, Workers: 1 + rank})
	defer p.Close()
	for k, n := range l.runs {
		mu.Lock()
		in = k
		mu.Unlock()
		done := 0
		err := p.RunOn(context.Background(), n, l.next(k),
			func(i int, it *item) { it.number = begun + i },
			func(i int, it *item) error {
				if it.number != begun+i || i != done {
					t.Errorf("item %d is consumed as %d of run %d", it.number, i, k)
				}
				pause()
				done++
				err := gradients.start(rank, fmt.Sprint("gradients ", it.number)).Wait()
				mu.Lock()
				consumed++
				mu.Unlock()
				if l.stop > 0 && k == len(l.runs)-1 && done == l.stop {
					return ErrStop
				}
				return err
			})
		want := n
		if l.stop > 0 && k == len(l.runs)-1 {
			want = l.stop
		}
		if err != nil || done != want {
			t.Errorf("%+v: rank %d consumed %d of %d items of run %d: %v", l, rank, done, want, k,
				err)
		}
		mu.Lock()
		begun += n
		mu.Unlock()
	}
}

// With collectives before the gate ranks at random speeds start the same ones in the order of the
// schedule, run after run, also where the last one stops; what the gate knows of an item is what
// Ahead promises. The same with no collective before it, and with none after it.
func TestCollectivesBeforeTheGate(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	trials := 400
	if testing.Short() {
		trials = 40
	}
	// Ranks sleep most of the time: a dozen trials run at once.
	var all errgroup.Group
	all.SetLimit(12)
	for trial := range trials {
		all.Go(func() error { return tryGate(t, seed, uint64(trial)) })
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

// tryGate runs ranks under a law drawn by (seed, trial).
func tryGate(t *testing.T, seed, trial uint64) error {
	random := rand.New(rand.NewPCG(seed, trial))
	l := law{depth: random.IntN(7), ahead: random.IntN(9)}
	l.shape = []string{"LCLCLGLCCLC", "CGC", "CCCCGCCCL", "LCLGL", "LGCC", "LCGLCL"}[random.IntN(6)]
	for range 1 + random.IntN(4) {
		l.runs = append(l.runs, l.ahead+random.IntN(8)) // a run has what was prepared for it
	}
	l.runs = slices.DeleteFunc(l.runs, func(n int) bool { return n == 0 })
	if n := len(l.runs); n > 0 && random.IntN(2) == 0 {
		l.stop = 1 + random.IntN(l.runs[n-1])
	}
	const ranks = 3
	w, gradients := newWorld(t, ranks), newWorld(t, ranks)
	watchdog(t, func() {
		var all sync.WaitGroup
		for r := range ranks {
			all.Go(func() { l.rank(t, w, gradients, r, seed+trial) })
		}
		all.Wait()
	})
	if want := l.want(); !slices.Equal(w.names(), want) {
		return fmt.Errorf("trial %d, %+v: ranks started %v\nwant %v", trial, l, w.names(), want)
	}
	return nil
}

// The law in numbers: an item is admitted, and passes the gate, after what it waits for is
// complete.
func TestScheduleWithGate(t *testing.T) {
	for _, c := range []int{1, 3, 5, 7} {
		for before := 1; before <= c; before++ {
			for _, depth := range []int{0, 1, 2, 4, 9} {
				for _, ahead := range []int{0, 1, 5} {
					const n = 25
					type start struct{ item, collective int }
					at := map[start]int{}
					for i, k := range (Order{Items: n, Collectives: c, Depth: depth, Before: before,
						Ahead: ahead}).Schedule() {
						if _, twice := at[start{i, k}]; twice {
							t.Fatalf("item %d starts collective %d twice", i, k)
						}
						at[start{i, k}] = len(at)
					}
					if len(at) != n*c {
						t.Fatalf("%d of %d collectives", len(at), n*c)
					}
					for i := range n {
						if j := i + ahead; j < n && before < c &&
							at[start{j, before - 1}] > at[start{i, before}] {
							t.Errorf("item %d passes the gate before item %d has come to it", i, j)
						}
						if j := i + depth + 1 + ahead; j < n &&
							at[start{i, c - 1}] > at[start{j, 0}] {
							t.Errorf("item %d starts before item %d is complete, whose slot it "+
								"needs", j, i)
						}
						for k := range c - 1 {
							if at[start{i, k}] > at[start{i, k + 1}] {
								t.Errorf("item %d: collective %d after %d", i, k, k+1)
							}
						}
					}
				}
			}
		}
	}
}
