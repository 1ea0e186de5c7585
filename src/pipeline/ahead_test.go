package pipeline

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// Whatever depth, foresight, pool and end: items arrive in order, every start finds the items ahead of it arrived, and never more than depth+1
// items are between their first collective and the end of their consumption.
func TestForesight(t *testing.T) {
	type item struct{ number int }
	for _, c := range []struct{ n, depth, ahead, workers, stopAt int }{
		{20, 0, 0, 1, -1}, {20, 0, 3, 1, -1}, {20, 2, 0, 2, -1}, {20, 2, 1, 2, -1}, {20, 3, 7, 4, -1}, {5, 4, 30, 2, -1}, {1, 1, 4, 1, -1},
		{20, 2, 5, 2, 0}, {20, 2, 5, 2, 9}, {20, 0, 4, 1, 18}, {20, 4, 2, 3, 19},
	} {
		name := fmt.Sprintf("%+v", c)
		var arrived, started, consumed atomic.Int64
		items := make([]*item, c.depth+1+c.ahead)
		for i := range items {
			items[i] = new(item)
		}
		last := func() int64 { // items that will ever arrive
			if c.stopAt < 0 {
				return int64(c.n)
			}
			return int64(min(c.n, c.stopAt+len(items)))
		}
		stages := []Stage[item]{
			{Name: "local", Local: func(*item) error { return nil }},
			{
				Name: "first",
				Arrive: func(it *item) error {
					if got := arrived.Add(1) - 1; got != int64(it.number) {
						return fmt.Errorf("item %d arrived as number %d", it.number, got)
					}
					return nil
				},
				Start: func(it *item) (Request, error) {
					if got := arrived.Load(); got < min(last(), int64(it.number+c.ahead+1)) {
						return nil, fmt.Errorf("item %d starts when %d have arrived", it.number, got)
					}
					if between := started.Add(1) - consumed.Load(); between > int64(c.depth+1) {
						return nil, fmt.Errorf("%d items between start and end at item %d", between, it.number)
					}
					return finished{}, nil
				},
			},
			{Name: "second", Start: func(*item) (Request, error) { return finished{}, nil }},
		}
		p, err := New(items, stages, Options{Depth: c.depth, Ahead: c.ahead, Workers: c.workers})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 { // the second run finds no rest of the first
			arrived.Store(0)
			started.Store(0)
			consumed.Store(0)
			err = p.Run(context.Background(), c.n, func(i int, it *item) { it.number = i }, func(i int, it *item) error {
				if it.number != i {
					return fmt.Errorf("item %d consumed as %d", it.number, i)
				}
				if i == c.stopAt {
					consumed.Store(int64(c.n)) // what is finished after a stop is not counted
					return ErrStop
				}
				consumed.Add(1)
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := arrived.Load(); got != last() {
				t.Errorf("%s: %d items arrived, want %d", name, got, last())
			}
		}
		p.Close()
	}
}

func TestAnErrorOnArrivalEndsTheRun(t *testing.T) {
	stages := []Stage[int]{{
		Name: "first", Arrive: func(*int) error { return context.DeadlineExceeded },
		Start: func(*int) (Request, error) { return finished{}, nil },
	}}
	p, err := New([]*int{new(int), new(int), new(int)}, stages, Options{Depth: 1, Ahead: 1, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Run(context.Background(), 5, func(int, *int) {}, func(int, *int) error { return nil }); err == nil {
		t.Error("no error")
	}
}
