package comm

import (
	"errors"
	"testing"
	"time"
)

// A rank that finds a mismatch does not count as one that has copied, even if it is done before
// ranks that fit: the last of these took the operation for complete, and died of unequal lengths.
func TestMismatchIsNeverComplete(t *testing.T) {
	w := NewWorld(3)
	joined := make([]*post, 3)
	earlier := make([][]int, 3)
	for r, n := range []int{4, 4, 3} {
		var err error
		joined[r], earlier[r], err = w.root.join(r,
			call{kind: "allreduce", sum: make([]float32, n)})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []int{2, 0, 1} {
		joined[r].exchange(earlier[r])
	}
	mustSettle(t, joined, ErrMismatch)
}

// A rank that panics while it copies frees those that wait for it.
func TestPanicEndsCopying(t *testing.T) {
	w := NewWorld(2)
	joined := make([]*post, 2)
	earlier := make([][]int, 2)
	for r := range joined {
		var err error
		joined[r], earlier[r], err = w.root.join(r, call{kind: "alltoallv", rowBytes: 4,
			sendRows: []int{1, 1}, recvRows: []int{1, 1}}) // rows of a send that is empty
		if err != nil {
			t.Fatal(err)
		}
	}
	for r, p := range joined {
		func() {
			defer func() { w.Abort(recover().(error)) }()
			p.exchange(earlier[r])
		}()
	}
	mustSettle(t, joined, ErrAborted)
}

func mustSettle(t *testing.T, joined []*post, want error) {
	t.Helper()
	for r, p := range joined {
		settled := make(chan error, 1)
		go func() { settled <- p.settle() }()
		select {
		case err := <-settled:
			if !errors.Is(err, want) {
				t.Errorf("rank %d: the operation came to %v, want %v", r, err, want)
			}
		case <-time.After(5 * time.Minute):
			t.Fatalf("rank %d hangs", r)
		}
	}
}
