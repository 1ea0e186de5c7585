//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"errors"
	"fmt"
	mathbits "math/bits"
	"runtime"
	"sync"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// This does not compile unless package compute has the same limits as the C kernels.
var (
	_ [compute.MostDrawnFanout]struct{} = [C.HALOGNN_FANOUT]struct{}{}
	_ [compute.MostDrawnHops]struct{}   = [C.HALOGNN_HOPS]struct{}{}
)

// drawer implements compute.Drawer. It has the topology on the device, and what all drawings share.
// Drawings run one after the other on the stream HALOGNN_DRAW.
type drawer struct {
	d         *Device
	o         compute.DrawOptions
	of        C.halognn_cuda_topology
	blocks    []int          // offsets in the arena of the blocks that the drawer has allocated
	scratch   unsafe.Pointer // scratch memory of halognn_cuda_draw
	elsewhere int            // number of rows that are not resident

	mu        sync.Mutex // held during Start
	valueBits int        // number of bits of a value in the map
	// tag of the last drawing in the map; if it is 0, the next drawing fills the map first
	tag uint32
}

// NewDrawer implements compute.Accelerator.
func (d *Device) NewDrawer(o compute.DrawOptions) (compute.Drawer, error) {
	if err := checkDraws(&o); err != nil {
		return nil, err
	}
	r := &drawer{d: d, o: o, valueBits: o.ValueBits}
	if r.valueBits == 0 {
		most := o.Seeds
		for _, h := range o.Hops {
			most = max(most, h.Destinations+h.Edges, h.Sources)
		}
		r.valueBits = mathbits.Len(uint(most))
	}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, r.Free())
	}
	return r, nil
}

// checkDraws returns an error if no drawing is possible with the options.
func checkDraws(o *compute.DrawOptions) error {
	vertices := len(o.Original)
	if len(o.Indptr) != vertices+1 || len(o.Hops) < 1 || len(o.Hops) > compute.MostDrawnHops ||
		o.Seeds < 1 {
		return fmt.Errorf("compute/cuda: cannot draw %d hops (1 to %d) from %d seeds (at least "+
			"1) on %d vertices with %d row pointers (one more than vertices)", len(o.Hops),
			compute.MostDrawnHops, o.Seeds, vertices, len(o.Indptr))
	}
	for _, h := range o.Hops {
		if h.Fanout < 1 || h.Fanout > compute.MostDrawnFanout ||
			h.Destinations+h.Edges > compute.MostDrawnHop {
			return fmt.Errorf("compute/cuda: drawing a hop with fanout %d, of up to %d "+
				"destinations and %d edges", h.Fanout, h.Destinations, h.Edges)
		}
	}
	return nil
}

// open copies the topology to the device.
func (r *drawer) open() error {
	vertices := len(r.o.Original)
	r.of.vertices, r.of.edges = C.int64_t(vertices), C.int64_t(len(r.o.Indices))
	r.of.num_parts = C.int(len(r.o.Parts) - 1)
	where := r.where()
	defer mem.Free(where)
	at := func(bytes int) (p unsafe.Pointer, err error) { return r.d.block(&r.blocks, bytes) }
	var err error
	put := func(x []byte) (p unsafe.Pointer) {
		if err == nil {
			p, err = at(len(x))
		}
		if err == nil && len(x) > 0 {
			must("the topology", C.gpu_upload(r.d.c, C.HALOGNN_COMPUTE, p,
				(*C.char)(unsafe.Pointer(unsafe.SliceData(x))), C.int64_t(len(x))))
		}
		return p
	}
	r.of.indptr = (*C.int64_t)(put(mem.Bytes(r.o.Indptr)))
	r.of.indices = (*C.int32_t)(put(mem.Bytes(r.o.Indices)))
	r.of.original = (*C.int32_t)(put(mem.Bytes(r.o.Original)))
	r.of.parts = (*C.int64_t)(put(mem.Bytes(r.o.Parts)))
	if where != nil {
		r.of.where = (*C.uint64_t)(put(mem.Bytes(where)))
	}
	if err != nil {
		// queued work may still read the array where, so wait for it
		return errors.Join(err, r.d.Sync())
	}
	p, err := at(4 * vertices)
	if err != nil {
		return err
	}
	r.of._map = (*C.uint32_t)(p)
	what := r.drawing(nil)
	if r.scratch, err = at(int(C.gpu_draw_scratch(&what))); err != nil {
		return err
	}
	must("the topology", C.gpu_zero(r.d.c, C.HALOGNN_COMPUTE, r.scratch, C.HALOGNN_DRAW_COUNTERS))
	err = r.d.Sync() // after this, other streams may read the topology
	runtime.KeepAlive(where)
	return err
}

// block allocates a block of device memory and appends its offset to blocks.
func (d *Device) block(blocks *[]int, bytes int) (unsafe.Pointer, error) {
	at, err := d.arena.alloc(bytes, useDrawing)
	if err != nil {
		return nil, err
	}
	*blocks = append(*blocks, at)
	return d.at(at), nil
}

// where returns, for each vertex, the place of its row on the device, in the form in which kernels
// read it. It returns nil if no row is resident.
func (r *drawer) where() []compute.RowRef {
	resident := &r.d.resident
	r.elsewhere = len(r.o.Original)
	if !r.o.Resident || resident.p == nil {
		return nil
	}
	where := mem.Make[compute.RowRef](len(r.o.Original))
	for p := range len(r.o.Parts) - 1 {
		for v := r.o.Parts[p]; v < r.o.Parts[p+1]; v++ {
			where[v] = C.HALOGNN_ELSEWHERE
			if row, ok := resident.holds(compute.MakeRowRef(p, int(v-r.o.Parts[p]))); ok {
				where[v] = compute.MakeRowRef(residentTable, row)
				r.elsewhere--
			}
		}
	}
	return where
}

// Free implements compute.Drawer.
func (r *drawer) Free() error {
	err := r.d.idle()
	for _, at := range r.blocks {
		r.d.arena.release(at)
	}
	r.blocks = nil
	return err
}

// drawing describes a drawing for kernels. The arrays of the drawing begin at s.p. If s is nil,
// only the bounds are set.
func (r *drawer) drawing(s *drawing) (w C.halognn_cuda_drawing) {
	o, bytes := &r.o, 0
	w.topology, w.scratch = r.of, r.scratch
	w.num_seeds, w.hops = C.int64_t(o.Seeds), C.int(len(o.Hops))
	w.self, w.grouped = cBool(o.SelfEdges), cBool(o.Grouped)
	switch o.Weights {
	case compute.DrawnMean:
		w.weighting = C.HALOGNN_WEIGHTS_MEAN
	case compute.DrawnSymmetric:
		w.weighting = C.HALOGNN_WEIGHTS_SYMMETRIC
	default:
		w.weighting = C.HALOGNN_WEIGHTS_PLAIN
	}
	take := func(n int) (p unsafe.Pointer) {
		if s != nil && s.p != nil {
			p = unsafe.Add(s.p, bytes)
		}
		bytes += (n + alignment - 1) / alignment * alignment
		return p
	}
	vertices := o.Hops[len(o.Hops)-1].Sources
	w.drawn = (*C.halognn_cuda_drawn)(take(C.sizeof_halognn_cuda_drawn))
	w.seeds = (*C.int32_t)(take(4 * o.Seeds))
	w.frontier, w.original = (*C.int32_t)(take(4*vertices)), (*C.int32_t)(take(4*vertices))
	w.refs = (*C.uint64_t)(take(8 * vertices))
	if r.elsewhere > 0 {
		w.missing, w.missing_at = (*C.int32_t)(take(4*vertices)), (*C.int32_t)(take(4*vertices))
	}
	for i, h := range o.Hops {
		to, edges := &w.hop[i], h.Edges
		to.fanout = C.int(h.Fanout)
		to.destinations, to.edges, to.sources = C.int64_t(h.Destinations), C.int64_t(h.Edges),
			C.int64_t(h.Sources)
		if o.SelfEdges {
			edges += h.Destinations
		}
		to.indptr, to.indices = (*C.int64_t)(take(8*(h.Destinations+1))),
			(*C.int32_t)(take(4*edges))
		if o.Weights != compute.DrawnUnweighted {
			to.weights = (*C.float)(take(4 * edges))
		}
		if !h.Transposed {
			continue
		}
		to.out_indptr = (*C.int64_t)(take(8 * (h.Sources + 1)))
		to.out_indices, to.out_edges = (*C.int32_t)(take(4*edges)), (*C.int32_t)(take(4*edges))
		if o.Weights != compute.DrawnUnweighted {
			to.out_weights = (*C.float)(take(4 * edges))
		}
	}
	if s != nil {
		s.bytes = bytes
	}
	return w
}

// drawing implements compute.Drawing.
type drawing struct {
	r      *drawer
	blocks []int // offsets in the arena of the blocks that the drawing has allocated
	p      unsafe.Pointer
	bytes  int
	// memory outside the Go heap, because C code must not get Go memory that contains Go pointers
	what *C.halognn_cuda_drawing
	// pinned memory for the header, the seeds, and as many vertices as can be missing; allocated at
	// once, because the device would stop if memory were pinned while steps run
	pinned      unsafe.Pointer
	pinnedBytes int
	drawn       compute.Drawn

	// events: done passes when the header has arrived, read when kernels have read what was drawn,
	// and sent when a copy to the drawn arrays has ended
	done, read, sent unsafe.Pointer
	// whether the events done, read and sent were recorded; begun becomes false when somebody has
	// waited for done
	begun, taken, used bool
}

// NewDrawing implements compute.Drawer.
func (r *drawer) NewDrawing() (compute.Drawing, error) {
	s := &drawing{r: r}
	s.drawn.MostMissing = min(r.elsewhere, r.o.Hops[len(r.o.Hops)-1].Sources)
	r.drawing(s)
	var err error
	if s.p, err = r.d.block(&s.blocks, s.bytes); err != nil {
		return nil, err
	}
	s.what = new(C.halognn_cuda_drawing)
	*s.what = r.drawing(s)
	bytes := headerBytes + 4*(r.o.Seeds+s.drawn.MostMissing)
	err = pinning("a drawing", bytes, C.gpu_alloc_host(r.d.c, C.int64_t(bytes), &s.pinned))
	if err == nil {
		s.pinnedBytes = bytes
		err = errors.Join(failure("an event", C.gpu_make_event(r.d.c, 0, &s.done)),
			failure("an event", C.gpu_make_event(r.d.c, 0, &s.read)),
			failure("an event", C.gpu_make_event(r.d.c, 0, &s.sent)))
	}
	if err == nil { // kernels that are queued may still read what was in this memory before
		s.taken = true
		err = failure("a drawing", C.gpu_record(r.d.c, C.HALOGNN_COMPUTE, s.read))
	}
	if err != nil {
		return nil, errors.Join(err, s.Free())
	}
	return s, nil
}

// headerBytes is the size of the header in pinned memory.
const headerBytes = alignment * ((C.sizeof_halognn_cuda_drawn + alignment - 1) / alignment)

// The methods header and seeds return parts of the pinned memory: the header, and the room for the
// seeds.
func (s *drawing) header() *C.halognn_cuda_drawn { return (*C.halognn_cuda_drawn)(s.pinned) }
func (s *drawing) seeds() []int32 {
	return unsafe.Slice((*int32)(unsafe.Add(s.pinned, headerBytes)), s.r.o.Seeds)
}

// lacks returns the part of the pinned memory for n vertices whose rows are not resident.
func (s *drawing) lacks(n int) []int32 {
	return unsafe.Slice((*int32)(unsafe.Add(s.pinned, headerBytes+4*s.r.o.Seeds)), n)
}

// Start implements compute.Drawing.
func (s *drawing) Start(seeds []int32, keys compute.DrawKeys) error {
	r, c := s.r, s.r.d.c
	words, numbers := keys.Words, keys.Numbers
	if len(seeds) < 1 || len(seeds) > r.o.Seeds || len(words) != len(r.o.Hops) ||
		len(numbers) > 0 && len(numbers) != len(words) {
		return fmt.Errorf("compute/cuda: a drawing has %d hops and %d seeds, and numbers for %d "+
			"hops; it must have %d hops and 1 to %d seeds, and numbers for no hop or all",
			len(words), len(seeds), len(numbers), len(r.o.Hops), r.o.Seeds)
	}
	// nobody has waited for the last drawing, so the device may still read or write pinned memory
	if s.begun {
		if err := failure("a drawing", C.gpu_wait(c, s.done)); err != nil {
			return err
		}
	}
	copy(s.seeds(), seeds)
	w := s.what
	w.num_seeds = C.int64_t(len(seeds))
	for h, word := range words {
		w.hop[h].word = C.uint64_t(word)
		w.hop[h].numbers = C.halognn_cuda_numbers{}
		if len(numbers) > 0 {
			n := &numbers[h]
			w.hop[h].numbers = C.halognn_cuda_numbers{now: C.uint64_t(n.Now),
				next: C.uint64_t(n.Next), phases: C.uint64_t(n.Phases),
				turn: C.uint64_t(n.Turn), lasts: C.uint64_t(n.Lasts)}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.fresh = cBool(r.tag == 0); r.tag == 0 {
		// this drawing first fills the map with entries that have the greatest tag
		r.tag = 1<<(32-r.valueBits) - 1
	}
	r.tag--
	w.tag = C.uint32_t(r.tag << r.valueBits)
	code := C.int(0)
	do := func(f func() C.int) {
		if code == 0 {
			code = f()
		}
	}
	if s.taken {
		do(func() C.int { return C.gpu_order(c, C.HALOGNN_DRAW, s.read) })
	}
	if s.used {
		do(func() C.int { return C.gpu_order(c, C.HALOGNN_DRAW, s.sent) })
	}
	do(func() C.int {
		return C.gpu_upload(c, C.HALOGNN_DRAW, unsafe.Pointer(w.seeds),
			(*C.char)(unsafe.Pointer(unsafe.SliceData(s.seeds()))), C.int64_t(4*len(seeds)))
	})
	do(func() C.int { return C.gpu_draw(c, w) })
	do(func() C.int {
		return C.gpu_download(c, C.HALOGNN_DRAW, (*C.char)(s.pinned), unsafe.Pointer(w.drawn),
			C.sizeof_halognn_cuda_drawn)
	})
	do(func() C.int { return C.gpu_record(c, C.HALOGNN_DRAW, s.done) })
	s.begun = code == 0
	return failure("drawing a minibatch", code)
}

// Wait implements compute.Drawing.
func (s *drawing) Wait() (*compute.Drawn, error) {
	c := s.r.d.c
	if err := failure("drawing a minibatch", C.gpu_wait(c, s.done)); err != nil {
		return nil, err
	}
	s.begun = false
	x, head, hops := &s.drawn, s.header(), len(s.r.o.Hops)
	x.Faulty, x.Digest, x.Missing = head.fault != 0, uint64(head.digest), nil
	x.Vertices, x.Edges, x.Blocks = x.Vertices[:0], x.Edges[:0], x.Blocks[:0]
	for h := range hops + 1 {
		x.Vertices = append(x.Vertices, int(head.vertices[h]))
	}
	for h := range hops {
		x.Edges = append(x.Edges, int(head.edges[h]))
	}
	if x.Faulty {
		return x, nil
	}
	x.Original = onCard[int32](s.what.original, x.Frontier())
	for h := hops - 1; h >= 0; h-- {
		x.Blocks = append(x.Blocks, s.block(h))
	}
	return x, s.fetchMissing(int(head.missing))
}

// onCard returns device memory as a slice. The host must not read its elements.
func onCard[T, C any](p *C, n int) []T { return unsafe.Slice((*T)(unsafe.Pointer(p)), n) }

// block returns the arrays that were drawn for hop h.
func (s *drawing) block(h int) (b compute.DrawnBlock) {
	at, x, o := &s.what.hop[h], &s.drawn, &s.r.o
	destinations, sources, edges := x.Vertices[h], x.Vertices[h+1], x.Edges[h]
	if o.SelfEdges {
		edges += destinations
	}
	b.Forward = compute.Segments{Indptr: onCard[int64](at.indptr, destinations+1),
		Indices: onCard[int32](at.indices, edges), Above: int32(sources)}
	weighted := o.Weights != compute.DrawnUnweighted
	if weighted {
		b.Weights = onCard[float32](at.weights, edges)
	}
	if o.Hops[h].Transposed {
		b.Transposed = compute.Segments{Indptr: onCard[int64](at.out_indptr, sources+1),
			Indices: onCard[int32](at.out_indices, edges),
			Edges:   onCard[int32](at.out_edges, edges), Above: int32(destinations)}
		if weighted {
			b.TransposedWeights = onCard[float32](at.out_weights, edges)
		}
	}
	return b
}

// fetchMissing copies to the host the list of the n vertices whose rows are not resident.
func (s *drawing) fetchMissing(n int) error {
	if n == 0 {
		return nil
	}
	c, to := s.r.d.c, s.lacks(n)
	must("drawn vertices", C.gpu_download(c, C.HALOGNN_DOWN,
		(*C.char)(unsafe.Pointer(unsafe.SliceData(to))), unsafe.Pointer(s.what.missing),
		C.int64_t(4*n)))
	must("drawn vertices", C.gpu_record(c, C.HALOGNN_DOWN, s.done))
	if err := failure("drawn vertices", C.gpu_wait(c, s.done)); err != nil {
		return err
	}
	s.drawn.Missing = to
	return nil
}

// has reports whether an address lies in the memory of the drawing.
func (s *drawing) has(p unsafe.Pointer) bool {
	return s != nil && uintptr(p) >= uintptr(s.p) && uintptr(p) < uintptr(s.p)+uintptr(s.bytes)
}

// PinnedBytes implements compute.Drawing.
func (s *drawing) PinnedBytes() int64 { return int64(s.pinnedBytes) }

// Free implements compute.Drawing.
func (s *drawing) Free() error {
	d := s.r.d
	errs := []error{d.idle()}
	for _, at := range s.blocks {
		d.arena.release(at)
	}
	errs = append(errs, failure("freeing pinned memory", C.gpu_free_host(d.c, s.pinned)))
	for _, e := range []unsafe.Pointer{s.done, s.read, s.sent} {
		if e != nil {
			errs = append(errs, failure("freeing an event", C.gpu_free_event(d.c, e)))
		}
	}
	s.blocks, s.pinned, s.done, s.read, s.sent = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}
