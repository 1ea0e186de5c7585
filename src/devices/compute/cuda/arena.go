package cuda

import (
	"fmt"
	"slices"
	"sync"

	"halognn/src/devices/compute"
)

// alignment is the alignment of every block, in bytes. No row needs more.
const alignment = compute.Alignment

// arena allocates and frees blocks in the range [0,size). It takes the lowest free range that is
// large enough. A call takes O(free ranges) time; a run has a few dozen free ranges.
type arena struct {
	mu   sync.Mutex
	size int
	free []span       // free ranges in ascending order; no two of them touch
	held map[int]held // allocated blocks; the keys are offsets
	// bytes of allocated blocks, now and the most so far
	taken, most [uses]int

	// if take is set, take and give allocate and free separate blocks instead
	take func(bytes int) (at int, err error)
	give func(at int)
}

// span is [at, end).
type span struct{ at, end int }

type held struct {
	bytes int
	use   use
}

// use says what device memory is used for. The error about too little memory names it.
type use int

const (
	useModel use = iota // memory from Device.Alloc: parameters, moments, activations, gradients
	useRows
	useInputs
	useScratch
	useDrawing
	uses
)

func (u use) String() string {
	return [...]string{"model, optimiser and activations", "resident feature rows",
		"inputs of minibatches", "partial sums", "topology and drawn minibatches"}[u]
}

// cure returns the settings that reduce the memory of a use.
func (u use) cure() string {
	return [...]string{"sample.batch, model.hidden or sample.fanouts", "compute.gpu_rows",
		"sample.batch, sample.fanouts or pipeline.depth",
		"sample.batch or model.hidden", "pipeline.depth, sample.batch or sample.fanouts, or set " +
			"sample.on=host"}[u]
}

func newArena(size int) *arena {
	size = size / alignment * alignment
	return &arena{size: size, free: []span{{0, size}}, held: map[int]held{}}
}

// alloc allocates a block of at least the given number of bytes and returns its offset.
func (a *arena) alloc(bytes int, u use) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, err := a.place(bytes, u)
	if err == nil {
		a.taken[u] += a.held[at].bytes
		a.most[u] = max(a.most[u], a.taken[u])
	}
	return at, err
}

func (a *arena) place(bytes int, u use) (int, error) {
	if a.take != nil {
		return a.allocApart(max(1, bytes), u)
	}
	bytes = max(1, (bytes+alignment-1)/alignment) * alignment
	for i, f := range a.free {
		if f.end-f.at < bytes {
			continue
		}
		if a.free[i].at += bytes; a.free[i].at == f.end {
			a.free = slices.Delete(a.free, i, i+1)
		}
		a.held[f.at] = held{bytes, u}
		return f.at, nil
	}
	return 0, a.full(bytes, u)
}

// allocApart allocates a separate block of exactly the given number of bytes.
func (a *arena) allocApart(bytes int, u use) (int, error) {
	if bytes > a.freeBytes() {
		return 0, a.full(bytes, u)
	}
	at, err := a.take(bytes)
	if err == nil {
		a.free[0].at += bytes
		a.held[at] = held{bytes, u}
	}
	return at, err
}

// full returns the error of an allocation that does not fit. It names the size and use of the
// block, the uses that have the rest of the memory, and the setting to lower.
func (a *arena) full(bytes int, u use) error {
	text := fmt.Sprintf("%s for %v do not fit into the %s that are free of %s:", mega(bytes), u,
		mega(a.freeBytes()), mega(a.size))
	var taken [uses]int
	for _, h := range a.held {
		taken[h.use] += h.bytes
	}
	for u, n := range taken {
		if n > 0 {
			text += fmt.Sprintf(" %v take %s;", use(u), mega(n))
		}
	}
	cure := u.cure()
	if u != useRows && taken[useRows] > 0 {
		cure = "compute.gpu_rows, " + cure
	}
	return fmt.Errorf("compute/cuda: %w: %s lower %s", ErrMemory, text, cure)
}

func mega(bytes int) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// freeBytes returns the bytes that are free.
func (a *arena) freeBytes() int {
	n := 0
	for _, f := range a.free {
		n += f.end - f.at
	}
	return n
}

// release frees a block. It panics if there is no block at the offset, because freeing a block
// twice is a bug.
func (a *arena) release(at int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h, ok := a.held[at]
	if !ok {
		panic(fmt.Sprintf("compute/cuda: freeing device memory at offset %d, which is not "+
			"allocated", at))
	}
	delete(a.held, at)
	a.taken[h.use] -= h.bytes
	if a.take != nil {
		a.free[0].at -= h.bytes
		a.give(at)
		return
	}
	i, _ := slices.BinarySearchFunc(a.free, at, func(f span, at int) int { return f.at - at })
	s := span{at, at + h.bytes}
	if i < len(a.free) && a.free[i].at == s.end {
		s.end = a.free[i].end
		a.free = slices.Delete(a.free, i, i+1)
	}
	if i > 0 && a.free[i-1].end == s.at {
		a.free[i-1].end = s.end
		return
	}
	a.free = slices.Insert(a.free, i, s)
}
