package comm

import (
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// late is the world as rank 2 sees it, which hears of everything a little later than the others.
type late struct{ Comm }

func (l late) StartAllgatherv(send, recv []byte, rows []int, rowBytes int) Request {
	return lateRequest{l.Comm.StartAllgatherv(send, recv, rows, rowBytes), l.Rank()}
}

type lateRequest struct {
	Request
	rank int
}

func (r lateRequest) Wait() error {
	err := r.Request.Wait()
	if r.rank == 2 {
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// A mate that ends without a word is reported, once; one that leaves is not, nor who ends after it.
func TestMates(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("mates find each other on Linux alone")
	}
	for _, c := range []struct {
		name     string
		ends     []int // in this order
		leaves   bool
		reported []int
	}{
		{"another is killed", []int{2}, false, []int{2}},
		{"the first is killed", []int{0}, false, []int{0}},
		{"a second one dies", []int{2, 1}, false, []int{2}},
		{"all leave", []int{1, 0, 2}, true, nil},
		{"the last one leaves", []int{2, 1}, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			var reported []int
			mates := make([]*Mates, 3)
			peers := func(m *Mates) []net.Conn {
				m.mu.Lock()
				defer m.mu.Unlock()
				return slices.Clone(m.peers)
			}
			err := RunWorld(3, func(w Comm) (err error) {
				mates[w.Rank()], err = WatchMates(late{w}, func(rank int) {
					mu.Lock()
					defer mu.Unlock()
					reported = append(reported, rank)
				})
				if n := len(peers(mates[w.Rank()])); w.Rank() == 0 && n < 2 {
					t.Errorf("rank 0 goes on while %d of 2 mates are watched", n)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range c.ends {
				open := peers(mates[r])
				if c.leaves {
					mates[r].Leave()
				}
				mates[r].over.Store(true) // it sees nothing any more
				for _, peer := range open {
					_ = peer.Close()
				}
				// For those who would report it, on a busy machine.
				time.Sleep(500 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(reported, c.reported) {
				t.Errorf("reported were %v, want %v", reported, c.reported)
			}
		})
	}
}

// Of ranks that fail at once the lowest tells why; of one that fails after another, the first.
func TestOneOfTheMatesSpeaks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("mates find each other on Linux alone")
	}
	defer func(usual func(*Mates), at func()) { hear, begin = usual, at }(hear, begin)
	for _, c := range []struct {
		name   string
		fail   []int
		apart  bool
		speaks int
	}{
		{"at once", []int{1, 2}, false, 1}, {"all at once", []int{2, 1, 0}, false, 0},
		{"one after another", []int{2, 0, 1}, true, 2}, {"one", []int{1}, false, 1},
	} {
		// however late a busy machine starts them
		hears := func(m *Mates, of ...int) {
			for heard := false; !heard; time.Sleep(time.Millisecond) {
				m.mu.Lock()
				heard = !slices.ContainsFunc(of,
					func(r int) bool { return !slices.Contains(m.failed, r) })
				m.mu.Unlock()
			}
		}
		var all sync.WaitGroup
		all.Add(len(c.fail))
		begin = func() {
			if all.Done(); !c.apart { // one that is late would find a word, and give none
				all.Wait()
			}
		}
		hear = func(m *Mates) {
			if !c.apart {
				hears(m, c.fail...)
			}
		}
		mates := make([]*Mates, 3)
		err := RunWorld(3, func(w Comm) (err error) {
			mates[w.Rank()], err = WatchMates(w, func(rank int) {
				t.Errorf("%s: rank %d is reported dead", c.name, rank)
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		spoke := make([]bool, 3)
		for _, r := range c.fail {
			wg.Go(func() { spoke[r] = mates[r].Speaks() })
			if c.apart {
				wg.Wait()
				for _, m := range mates {
					hears(m, c.fail[0]) // those after it are late, and give no word
				}
			}
		}
		wg.Wait()
		for r, got := range spoke {
			if got != (r == c.speaks) {
				t.Errorf("%s: rank %d speaks: %t", c.name, r, got)
			}
		}
	}
	if !(*Mates)(nil).Speaks() {
		t.Error("a rank without mates says nothing")
	}
}
