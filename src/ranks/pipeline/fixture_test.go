package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// world is a communicator of n ranks in this process: the k-th operation of every rank is one
// collective, complete when all ranks have started it. Operations carry a name, and ranks that
// start different ones under one number are reported: with MPI they would exchange the wrong data
// or hang.
type world struct {
	t     *testing.T
	ranks int
	down  chan struct{} // closed by abort
	once  sync.Once
	cause error // why; valid after down

	mu   sync.Mutex
	next []int // by rank
	ops  []*operation
}

type operation struct {
	name    string
	missing int
	done    chan struct{}
	world   *world
}

var errAborted = errors.New("aborted")

func newWorld(t *testing.T, ranks int) *world {
	return &world{t: t, ranks: ranks, down: make(chan struct{}), next: make([]int, ranks)}
}

// abort ends all operations, under way and to come. The first cause counts.
func (w *world) abort(cause error) {
	w.once.Do(func() {
		w.cause = cause
		close(w.down)
	})
}

func (w *world) start(rank int, name string) *operation {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.next[rank]
	w.next[rank]++
	if k == len(w.ops) {
		w.ops = append(w.ops,
			&operation{name: name, missing: w.ranks, done: make(chan struct{}), world: w})
	}
	op := w.ops[k]
	if op.name != name {
		w.t.Errorf("operation %d is %q on rank %d but %q on another", k, name, rank, op.name)
	}
	if op.missing--; op.missing == 0 {
		close(op.done)
	}
	return op
}

// started reports whether a rank has started an operation.
func (w *world) started(rank int, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.ops[:w.next[rank]]
	return slices.ContainsFunc(own, func(op *operation) bool { return op.name == name })
}

// names returns the operations in the order in which they were started.
func (w *world) names() []string {
	var names []string
	for _, op := range w.ops {
		names = append(names, op.name)
	}
	return names
}

func (op *operation) Wait() error {
	select {
	case <-op.done:
		return nil
	case <-op.world.down:
		return fmt.Errorf("%s: %w: %w", op.name, errAborted, op.world.cause)
	}
}
