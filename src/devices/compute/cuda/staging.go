//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"halognn/src/devices/compute"
)

// stagingBuffer implements compute.StagingBuffer. Pinned and device memory have the same layout, so
// that one copy uploads everything:
//
//	rows made on the host     own [D,F] | reduced [D,F] | all [S,F] | types
//	or on the device          refs [S] | addresses of mapped rows | indptr, indices, weights, scale
//	then, in both cases       segments, vertices, labels of all layers
//	then, on the device       rows that do not lie there, copied | mapped rows, fetched later
//
// Rows of vertex types are always made on the host. The rows that the host makes have the type in
// which the device stores rows.
type stagingBuffer struct {
	d        *Device
	host     compute.Host
	resident *residence // where the rows of the tables are; nil if no rows are resident
	// whether to send the rows themselves, and never matrices that the host makes of them
	apart  bool
	copies bool // whether to copy mapped rows too, instead of reading them in place
	pinned buffer
	exact  bool // whether matrices made of rows are float32 (Inputs.Exact)
	// bytes that pinned memory should have for all expected inputs; 0 if that is not known
	room   int
	device buffer
	end    int // offset at which the bytes end that are copied to the device
	arrays []sent
	held   *heldRows // rows of a cache that are in device memory; nil if there are none
	// the drawing whose missing rows this buffer sends; nil if the host drew the minibatch
	drawn   *drawing
	missing int              // number of rows of the drawing that are not resident
	cold    []compute.RowRef // rows that are sent in the copy
	mapped  []uint64         // addresses of rows that the device itself fetches

	// events: copied is the end of the copy, and read the end of the kernels that read the device
	// memory
	copied, read unsafe.Pointer
	filled       bool // whether the event copied has been recorded
	taken        bool // whether the event read has been recorded

	own, all                       bool // whether the matrices own and all are wanted
	joined                         bool // Inputs.Joined
	reduce                         compute.Reduction
	weighted, counted, scaled      bool
	destinations, frontier, cols   int
	onHost                         bool // whether the host made the wanted matrices
	madeInStep                     bool // Inputs.MadeInStep
	call                           compute.Call
	ownAt, reducedAt, allAt        int
	refsAt, fromAt, ptrAt, indexAt int
	countsAt, weightsAt, scaleAt   int
	rowsAt, rowBytes               int
	typesAt                        []int
	types                          []compute.Matrix // rows of vertex types, in device memory
}

// NewStagingBuffer implements compute.Accelerator.
func (d *Device) NewStagingBuffer(host compute.Host, resident bool) compute.StagingBuffer {
	b := &stagingBuffer{d: d, host: host}
	if resident {
		b.resident, b.held = &d.resident, &d.held
	}
	return b
}

// Send implements compute.StagingBuffer.
func (b *stagingBuffer) Send(in *compute.Inputs) error {
	if err := b.ready(); err != nil {
		return err
	}
	b.layout(in)
	if err := b.reserve(false); err != nil {
		return err
	}
	b.fill(in)
	b.call = in.RowsCall(!b.onHost)
	c := b.d.c
	if b.taken {
		must("sending a minibatch", C.gpu_order(c, C.HALOGNN_UP, b.read))
	}
	must("sending a minibatch",
		C.gpu_upload(c, C.HALOGNN_UP, b.device.p, (*C.char)(b.pinned.p), C.int64_t(b.end)))
	b.fetch()
	b.complement()
	must("sending a minibatch", C.gpu_record(c, C.HALOGNN_UP, b.copied))
	b.filled = true
	return nil
}

// complement completes the references of a drawn minibatch: it adds references to the rows that
// were sent.
func (b *stagingBuffer) complement() {
	if b.drawn == nil || b.missing == 0 {
		return
	}
	s, c := b.drawn, b.d.c
	must("sending a minibatch", C.gpu_place_refs(c, C.HALOGNN_UP, s.what.refs, s.what.missing_at,
		C.int64_t(b.missing), (*C.uint64_t)(unsafe.Add(b.device.p, b.refsAt))))
	must("sending a minibatch", C.gpu_record(c, C.HALOGNN_UP, s.sent))
	s.used = true
}

// fetch queues a kernel that reads the rows whose addresses have been sent.
func (b *stagingBuffer) fetch() {
	if n := len(b.mapped); n > 0 {
		must("fetching rows",
			C.gpu_fetch_rows(b.d.c, C.HALOGNN_UP,
				unsafe.Add(b.device.p, b.rowsAt+len(b.cold)*b.rowBytes), C.int64_t(n),
				C.int64_t(b.rowBytes), (*C.uint64_t)(unsafe.Add(b.device.p, b.fromAt)),
				C.int(b.align())))
	}
}

// ready makes the events, on the first call. On later calls it waits until pinned memory may be
// written again.
func (b *stagingBuffer) ready() error {
	if b.copied == nil {
		return errors.Join(failure("an event", C.gpu_make_event(b.d.c, 0, &b.copied)),
			failure("an event", C.gpu_make_event(b.d.c, 0, &b.read)))
	}
	if !b.filled {
		return nil
	}
	return failure("the copy of an earlier minibatch", C.gpu_wait(b.d.c, b.copied))
}

// take reserves bytes in the layout and returns their offset.
func (b *stagingBuffer) take(bytes int) int {
	at := b.end
	b.end += (bytes + alignment - 1) / alignment * alignment
	return at
}

// array reserves room for a host array in the layout and returns its offset.
func array[T int32 | int64 | uint8 | float32](b *stagingBuffer, x []T) int {
	if len(x) == 0 {
		return b.end
	}
	bytes := len(x) * int(unsafe.Sizeof(x[0]))
	s := sent{host: unsafe.Pointer(unsafe.SliceData(x)), bytes: bytes, offset: b.take(bytes)}
	if ids, ok := any(x).([]int32); ok {
		s.lowest, s.above = bounds(ids)
	}
	b.arrays = append(b.arrays, s)
	return s.offset
}

// layout reserves room for everything that is sent. Matrices of rows and means are made on the host
// or on the device, whichever sends fewer bytes over the bus; both give the same bits. If rows must
// always be read in place, the device makes them.
func (b *stagingBuffer) layout(in *compute.Inputs) {
	b.end, b.arrays, b.cold, b.mapped = 0, b.arrays[:0], b.cold[:0], b.mapped[:0]
	b.own, b.reduce, b.all, b.destinations, b.cols = in.Own, in.Reduce, in.Sources, in.Destinations,
		in.Rows.Cols
	b.madeInStep = in.MadeInStep
	b.joined = in.Joined && in.Own && in.Reduce != compute.NoReduction
	b.weighted, b.counted, b.scaled = in.EdgeWeights != nil, in.Input.Counts != nil,
		in.Rows.Scale != nil
	reduced := boolInt(in.Reduce != compute.NoReduction)
	b.frontier = in.Frontier()
	if reduced == 0 && !in.Sources {
		b.frontier = in.Destinations
	}
	b.drawn, b.missing = nil, b.frontier
	if in.Drawing != nil {
		b.drawn, b.missing = in.Drawing.(*drawing), len(in.Rows.Of)
	}
	b.rowBytes = in.Rows.Cols * in.Rows.Type.Size()
	for _, ref := range in.Rows.Of[:b.missing] {
		if b.onDevice(ref) {
			continue
		}
		if at := b.address(ref); at != 0 {
			b.mapped = append(b.mapped, at)
		} else {
			b.cold = append(b.cold, ref)
		}
	}
	b.exact = in.Exact
	width := in.Rows.Cols * b.stored().Size()
	apart, made := (len(b.cold)+len(b.mapped))*b.rowBytes+8*(b.frontier+len(b.mapped)), 0
	if in.Own {
		made += in.Destinations * width
	}
	if reduced > 0 {
		made += in.Destinations * width
		apart += 8*len(in.Input.Indptr) + 4*len(in.Input.Indices) + 4*len(in.EdgeWeights) +
			4*len(in.Input.Counts)
	}
	if in.Sources {
		made += b.frontier * width
	}
	mixed := in.Rows.Wide != 0 // the device's kernels do not read tables with rows of several types
	inPlace := b.apart || len(b.mapped) > 0 && b.resident.always
	if b.onHost = (mixed || made <= apart && !inPlace) && b.drawn == nil; b.onHost {
		b.cold, b.mapped = b.cold[:0], b.mapped[:0]
		b.ownAt, b.reducedAt, b.allAt = b.take(boolInt(in.Own)*in.Destinations*width),
			b.take(reduced*in.Destinations*width),
			b.take(boolInt(in.Sources)*b.frontier*width)
	} else {
		b.refsAt, b.fromAt = b.take(8*b.missing), b.take(8*len(b.mapped))
		if reduced > 0 && b.drawn == nil {
			b.ptrAt, b.indexAt, b.weightsAt = array(b, in.Input.Indptr), array(b, in.Input.Indices),
				array(b, in.EdgeWeights)
			b.countsAt = array(b, in.Input.Counts)
		}
		b.scaleAt = array(b, in.Rows.Scale)
	}
	b.typesAt = b.typesAt[:0]
	for _, rows := range in.Types {
		b.typesAt = append(b.typesAt, b.take(rows.Len()*rows.Cols*b.stored().Size()))
	}
	for _, s := range in.Segments {
		array(b, s.Indptr)
		array(b, s.Indices)
		array(b, s.Edges)
	}
	for _, w := range in.Weights {
		array(b, w)
	}
	for _, v := range in.Vertices {
		array(b, v)
	}
	array(b, in.Labels)
	b.rowsAt = b.take(len(b.cold) * b.rowBytes)
	b.end = max(b.end, alignment)
}

// onDevice reports whether a row is in this device's memory.
func (b *stagingBuffer) onDevice(ref compute.RowRef) bool {
	_, resident := b.resident.holds(ref)
	if resident || b.held == nil {
		return resident
	}
	_, held := b.held.has(ref)
	return held
}

// address returns the device address of a row that is mapped in host memory, or that a peer holds.
// For other rows it returns 0.
func (b *stagingBuffer) address(ref compute.RowRef) uint64 {
	if b.copies {
		return 0
	}
	if at := b.resident.address(ref); at != 0 || b.held == nil {
		return at
	}
	return b.held.address(ref)
}

// align returns the alignment in bytes that all rows have for which the method address returns an
// address.
func (b *stagingBuffer) align() int {
	switch {
	case b.held == nil || b.held.align == 0:
		return b.resident.align
	case b.resident.align == 0:
		return b.held.align
	}
	return min(b.resident.align, b.held.align)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Reserve implements compute.StagingBuffer.
func (b *stagingBuffer) Reserve(in *compute.Inputs, g compute.Growth, most int) error {
	if err := b.ready(); err != nil {
		return err
	}
	b.layout(in)
	at := compute.RowsAnywhere
	switch {
	case b.apart || b.resident != nil && b.resident.always:
		at = compute.RowsInPlace
	case g.Alone && !b.onHost && len(b.cold)+len(b.mapped) == 0 && b.resident.whole():
		at = compute.RowsOnDevice
	}
	b.room = in.PinnedRoom(g, b.stored(), at, most)
	return b.reserve(b.room > b.pinned.bytes)
}

// reserve makes room for the layout in pinned memory and on the device. Pinning takes milliseconds,
// in which no kernel starts. So if the caller wants more room (`more`), or if pinned memory is too
// small, reserve pins a quarter more than the layout needs, because minibatches of one kind differ
// by less than that. If all expected inputs need more, it pins as much as they need. Kernels that
// are still running may read the device memory that it gets, so the copy waits for them.
func (b *stagingBuffer) reserve(more bool) error {
	if more || b.end > b.pinned.bytes {
		if err := b.unpin(); err != nil {
			return err
		}
		least := b.end + b.end/4
		err := b.pin(max(least, b.room))
		// inputs as large as expected may never come, so less memory may do
		if err != nil && b.room > least {
			b.room = 0
			err = b.pin(least)
		}
		if err != nil {
			return err
		}
	}
	whole := max(b.rowsAt+(len(b.cold)+len(b.mapped))*b.rowBytes, b.end)
	if whole <= b.device.bytes {
		return nil
	}
	whole += whole / 4
	b.release()
	at, err := b.d.arena.alloc(whole, useInputs)
	if err != nil {
		return err
	}
	b.device = buffer{b.d.at(at), whole}
	must("sending a minibatch", C.gpu_record(b.d.c, C.HALOGNN_COMPUTE, b.read))
	b.taken = true
	return nil
}

// pin allocates pinned memory of the given size.
func (b *stagingBuffer) pin(bytes int) error {
	err := pinning("a minibatch", bytes,
		C.gpu_alloc_host(b.d.c, C.int64_t(bytes), &b.pinned.p))
	if err == nil {
		b.pinned.bytes = bytes
	}
	return err
}

// unpin frees the pinned memory. Its copy to the device must have ended.
func (b *stagingBuffer) unpin() error {
	err := failure("freeing pinned memory", C.gpu_free_host(b.d.c, b.pinned.p))
	b.pinned = buffer{}
	return err
}

// release frees the device memory of the buffer.
func (b *stagingBuffer) release() {
	if b.device.p != nil {
		b.d.arena.release(b.d.offset(b.device.p))
	}
	b.device = buffer{}
}

// pinnedAt returns n elements of pinned memory, beginning at an offset in bytes.
func pinnedAt[T any](b *stagingBuffer, offset, n int) []T {
	return unsafe.Slice((*T)(unsafe.Add(b.pinned.p, offset)), n)
}

// fill writes the inputs into pinned memory, at the offsets of the layout.
func (b *stagingBuffer) fill(in *compute.Inputs) {
	if b.onHost {
		b.gatherOnHost(in)
	} else {
		b.collect(in)
	}
	b.types = b.types[:0]
	for t, rows := range in.Types {
		m := b.pinnedMatrix(b.typesAt[t], rows.Len(), rows.Cols)
		rows.Make(b.host, m)
		b.types = append(b.types, b.sentMatrix(b.typesAt[t], m.Rows, m.Cols))
	}
	for _, s := range b.arrays {
		copy(pinnedAt[byte](b, s.offset, s.bytes), unsafe.Slice((*byte)(s.host), s.bytes))
	}
}

// pinnedMatrix returns a matrix that lies in pinned memory.
func (b *stagingBuffer) pinnedMatrix(offset, rows, cols int) compute.Matrix {
	of := b.stored()
	return of.MatrixIn(pinnedAt[float32](b, offset, of.Floats(rows*cols)), rows, cols)
}

// sentMatrix returns the matrix in device memory that is the copy of a pinnedMatrix.
func (b *stagingBuffer) sentMatrix(offset, rows, cols int) compute.Matrix {
	of := b.stored()
	at := (*float32)(unsafe.Add(b.device.p, offset))
	return of.MatrixIn(unsafe.Slice(at, of.Floats(rows*cols)), rows, cols)
}

// gatherOnHost gathers and aggregates rows on the host, into pinned memory.
func (b *stagingBuffer) gatherOnHost(in *compute.Inputs) {
	matrix := func(offset, rows int) compute.Matrix { return b.pinnedMatrix(offset, rows, b.cols) }
	if in.Own {
		b.host.GatherRows(matrix(b.ownAt, in.Destinations), in.Rows)
	}
	if in.Reduce != compute.NoReduction {
		b.host.SegmentRows(matrix(b.reducedAt, in.Destinations), in.Reduce, in.Input,
			in.EdgeWeights, in.Rows)
	}
	if in.Sources {
		b.host.GatherRows(matrix(b.allAt, b.frontier), in.Rows)
	}
}

// Indices of the tables of a kernel that reads rows: resident rows; rows that were copied, followed
// by rows that were fetched; rows of a cache.
const (
	residentTable = iota
	sentTable
	heldTable
)

// collect writes, for each row, a reference to its place on the device. It also writes the rows
// that have to be copied.
func (b *stagingBuffer) collect(in *compute.Inputs) {
	if in.Reduce != compute.NoReduction && b.drawn == nil {
		compute.CheckInputs(in)
		above := int32(0)
		for _, i := range in.Input.Indices {
			above = max(above, compute.SourceOf(i)+1)
		}
		if int(above) > b.frontier {
			panic(fmt.Sprintf("compute: SegmentRows: an index is %d, but there are %d rows",
				above-1, b.frontier))
		}
	}
	refs, next, fetched := pinnedAt[compute.RowRef](b, b.refsAt, b.missing), 0, len(b.cold)
	for i, ref := range in.Rows.Of[:b.missing] {
		if row, ok := b.resident.holds(ref); ok {
			refs[i] = compute.MakeRowRef(residentTable, row)
		} else if b.onDevice(ref) {
			row, _ := b.held.has(ref)
			refs[i] = compute.MakeRowRef(heldTable, row)
		} else if b.address(ref) != 0 {
			refs[i] = compute.MakeRowRef(sentTable, fetched)
			fetched++
		} else {
			refs[i] = compute.MakeRowRef(sentTable, next)
			next++
		}
	}
	copy(pinnedAt[uint64](b, b.fromAt, len(b.mapped)), b.mapped)
	rowBytes := b.rowBytes
	rows := pinnedAt[byte](b, b.rowsAt, len(b.cold)*rowBytes)
	for i, ref := range b.cold {
		copy(rows[i*rowBytes:(i+1)*rowBytes],
			in.Rows.Tables[ref.Table()][ref.Row()*rowBytes:(ref.Row()+1)*rowBytes])
	}
}

// Open implements compute.StagingBuffer.
func (b *stagingBuffer) Open() (own, reduced, all compute.Matrix, err error) {
	d := b.d
	if !b.filled || d.open != nil {
		panic("compute/cuda: a staging buffer is opened that was not sent, or while another is " +
			"open")
	}
	defer d.probe.Start(b.call).Done()
	must("receiving a minibatch", C.gpu_order(d.c, C.HALOGNN_COMPUTE, b.copied))
	d.open = b
	if !b.onHost {
		return b.gather()
	}
	at := func(wanted bool, offset, rows int) (m compute.Matrix) {
		if wanted {
			m = b.sentMatrix(offset, rows, b.cols)
		}
		return m
	}
	own, all = at(b.own, b.ownAt, b.destinations), at(b.all, b.allAt, b.frontier)
	reduced = at(b.reduce != compute.NoReduction, b.reducedAt, b.destinations)
	if !b.joined {
		return own, reduced, all, nil
	}
	pair, err := b.resultMatrix(&d.reduced, b.destinations, 2*b.cols)
	if err == nil {
		d.Join(compute.Joining{Pair: pair, A: own, B: reduced})
	}
	return compute.Matrix{}, pair, all, err
}

// resultMatrix returns a matrix in a buffer of the device, for the result of a kernel that reads
// rows.
func (b *stagingBuffer) resultMatrix(r *buffer, rows, cols int) (compute.Matrix, error) {
	of := b.stored()
	if err := b.d.reserve(r, max(1, of.Floats(rows*cols))*4, useInputs); err != nil {
		return compute.Matrix{}, err
	}
	return r.matrix(of, rows, cols), nil
}

// stored returns the type in which the device stores rows. The host makes rows in the same type.
func (d *Device) stored() compute.Elements { return d.precision.Stored() }

// stored returns the type of matrices that are made of rows.
func (b *stagingBuffer) stored() compute.Elements {
	if b.exact {
		return compute.Float32s
	}
	return b.d.stored()
}

// Types implements compute.StagingBuffer.
func (b *stagingBuffer) Types() []compute.Matrix { return b.types }

// gather makes the wanted matrices on the device. They are in buffers of the device that all
// staging buffers share.
func (b *stagingBuffer) gather() (own, reduced, all compute.Matrix, err error) {
	d, cols := b.d, C.int64_t(b.cols)
	rows := d.scattered
	*rows = C.halognn_cuda_rows{of: (*C.uint64_t)(unsafe.Add(b.device.p, b.refsAt)),
		bytes: C.int(b.rowBytes / max(1, b.cols))}
	if b.drawn != nil {
		rows.of = b.drawn.what.refs
	}
	if b.scaled {
		rows.scale = (*C.float)(unsafe.Add(b.device.p, b.scaleAt))
	}
	rows.tables[sentTable] = unsafe.Add(b.device.p, b.rowsAt)
	rows.tables[residentTable] = rows.tables[sentTable]
	if b.resident != nil && b.resident.p != nil {
		rows.tables[residentTable] = b.resident.p
	}
	rows.tables[heldTable] = rows.tables[sentTable]
	if b.held != nil && b.held.p != nil {
		rows.tables[heldTable] = b.held.p
	}
	at := func(wanted bool, r *buffer, n, cols int) (m compute.Matrix) {
		if wanted && err == nil {
			m, err = b.resultMatrix(r, n, cols)
		}
		return m
	}
	width := b.cols
	if b.joined {
		width *= 2
	}
	own, all = at(b.own && !b.joined, &d.own, b.destinations, b.cols),
		at(b.all, &d.all, b.frontier, b.cols)
	reduced = at(b.reduce != compute.NoReduction, &d.reduced, b.destinations, width)
	if err != nil {
		return own, reduced, all, err
	}
	to, copied := matrix(reduced), matrix(own)
	if b.joined {
		to, copied = half(reduced, 1), half(reduced, 0)
	}
	if b.own && b.reduce == compute.NoReduction {
		must("gathering rows", C.gpu_gather_rows(d.c, matrix(own), C.int64_t(own.Rows), cols,
			rows))
	}
	if b.reduce != compute.NoReduction {
		var weights *C.float
		if b.weighted {
			weights = (*C.float)(unsafe.Add(b.device.p, b.weightsAt))
		}
		var counts *C.int32_t
		if b.counted {
			counts = (*C.int32_t)(unsafe.Add(b.device.p, b.countsAt))
		}
		indptr, indices := (*C.int64_t)(unsafe.Add(b.device.p, b.ptrAt)),
			(*C.int32_t)(unsafe.Add(b.device.p, b.indexAt))
		if b.drawn != nil {
			last := &b.drawn.what.hop[b.drawn.what.hops-1]
			indptr, indices = last.indptr, last.indices
			if b.weighted {
				weights = last.weights
			}
		}
		must("reducing rows", C.gpu_segment_rows(d.c, to, copied,
			C.int64_t(reduced.Rows), cols, indptr, indices, C.int(b.reduce), counts, weights, rows))
	}
	if b.all {
		must("gathering rows", C.gpu_gather_rows(d.c, matrix(all), C.int64_t(all.Rows), cols,
			rows))
	}
	return own, reduced, all, nil
}

// find returns the array that was sent from host address p, or a longer array that begins there. If
// there is none, it returns nil.
func (b *stagingBuffer) find(p unsafe.Pointer, bytes int) *sent {
	if b == nil {
		return nil
	}
	for i := range b.arrays {
		if s := &b.arrays[i]; s.host == p && bytes <= s.bytes {
			return s
		}
	}
	return nil
}

// PinnedBytes implements compute.StagingBuffer.
func (b *stagingBuffer) PinnedBytes() int64 { return int64(b.pinned.bytes) }

// Close implements compute.StagingBuffer.
func (b *stagingBuffer) Close() error {
	if b.d.open != b { // the step ended before this buffer was opened
		return nil
	}
	b.d.open = nil
	b.taken = true
	if s := b.drawn; s != nil {
		s.taken = true
		must("reading a minibatch", C.gpu_record(b.d.c, C.HALOGNN_COMPUTE, s.read))
	}
	return failure("reading a minibatch", C.gpu_record(b.d.c, C.HALOGNN_COMPUTE, b.read))
}

// Free implements compute.StagingBuffer.
func (b *stagingBuffer) Free() error {
	if b.copied == nil {
		return nil
	}
	errs := []error{b.ready()}
	if b.taken {
		errs = append(errs, failure("reading a minibatch", C.gpu_wait(b.d.c, b.read)))
	}
	b.release()
	errs = append(errs, b.unpin(), failure("freeing an event", C.gpu_free_event(b.d.c, b.copied)),
		failure("freeing an event", C.gpu_free_event(b.d.c, b.read)))
	b.copied, b.read, b.filled, b.taken = nil, nil, false, false
	return errors.Join(errs...)
}
