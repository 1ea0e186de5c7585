//go:build cgo

package cpu

/*
#cgo noescape halognn_check_refs
#cgo nocallback halognn_check_refs
#cgo noescape halognn_gather_rows
#cgo nocallback halognn_gather_rows
#cgo noescape halognn_segment_rows
#cgo nocallback halognn_segment_rows
#include "halognn_cpu.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"halognn/src/devices/compute"
)

var _ compute.Host = (*Host)(nil)

// Host implements compute.Host. If a kernel cannot read a mapped file, the Host panics as Go code
// would, so that mem.Guard can name the file.
type Host struct {
	level   level
	vectors bool // whether the SIMD level has vector instructions
}

// NewHost returns the kernels that prepare minibatches. The argument `simd` is a SIMD level, as in
// Options.
func NewHost(simd string) (*Host, error) {
	k, err := openLevel(simd)
	if err != nil {
		return nil, err
	}
	return &Host{k, levelName(k) != "scalar"}, catchFaults()
}

// GatherRows implements compute.Host.
func (h *Host) GatherRows(dst compute.Matrix, rows compute.Rows) {
	compute.CheckGatherRows(dst, rows)
	var space [fewTables]C.halognn_table
	var pins runtime.Pinner
	defer pins.Unpin()
	tables := tablesOf(space[:0], rows, &pins)
	of := rows.Of[:dst.Rows:len(rows.Of)] // the slice must not include the rest of a recycled array
	panicIfNoRow("GatherRows", of, tables)
	n, cols := size(dst)
	panicOnFault(C.halognn_gather_rows(h.level, written(dst), n, cols,
		elements(&rows), unsafe.SliceData(tables), refs(of)))
}

// SegmentRows implements compute.Host.
func (h *Host) SegmentRows(dst compute.Matrix, how compute.Reduction, s compute.Segments,
	weights []float32, rows compute.Rows) {
	compute.CheckSegmentRows(dst, how, s, weights, rows)
	var space [fewTables]C.halognn_table
	var pins runtime.Pinner
	defer pins.Unpin()
	tables := tablesOf(space[:0], rows, &pins)
	used, n, of := s.Indices[s.Indptr[0]:s.Indptr[s.Len()]], C.int64_t(len(rows.Of)), refs(rows.Of)
	if rows.InOrder {
		n, of = tables[0].rows, nil
	}
	if e := C.halognn_check_sources(int32s(used), C.int64_t(len(used)), n); e >= 0 {
		panic(fmt.Sprintf("compute: SegmentRows: an index is %d, but there are %d rows",
			compute.SourceOf(used[e]), n))
	}
	switch {
	case rows.InOrder:
	case rows.Mixed:
		panicIfNoneRead("SegmentRows", used, rows.Of, tables)
	default:
		panicIfNoRow("SegmentRows", rows.Of, tables)
	}
	segments, cols := size(dst)
	panicOnFault(C.halognn_segment_rows(h.level, written(dst), segments, cols,
		int64s(s.Indptr), int32s(s.Indices), C.int(how), int32s(s.Counts), floats(weights),
		elements(&rows), unsafe.SliceData(tables), of))
}

// SliceRows implements compute.Host.
func (h *Host) SliceRows(dst, table []byte, rowBytes int, ids []int32) {
	compute.CheckSliceRows(dst, rowBytes, ids)
	rows := len(table) / max(1, rowBytes)
	if i := checkIDs(ids, rows); i >= 0 {
		panic(fmt.Sprintf("compute: SliceRows: id %d is %d, but the table has %d rows", i, ids[i],
			rows))
	}
	panicOnFault(C.halognn_slice_rows(h.level, bytes(dst), C.int64_t(len(ids)), C.int64_t(rowBytes),
		bytes(table), int32s(ids)))
}

// AddInto implements compute.Host.
func (h *Host) AddInto(sum, x []float32) {
	compute.CheckLengths("AddInto", len(sum), len(x))
	addInto(h.level, sum, x)
}

// ToBF16 implements compute.Host.
func (h *Host) ToBF16(dst []uint16, x []float32) {
	compute.CheckLengths("ToBF16", len(dst), len(x))
	n := C.int64_t(len(x))
	C.halognn_to_bf16(h.level, halves(dst), n, 1, n, floats(x), n)
}

// FromBF16 implements compute.Host.
func (h *Host) FromBF16(dst []float32, x []uint16) {
	compute.CheckLengths("FromBF16", len(dst), len(x))
	n := C.int64_t(len(x))
	C.halognn_from_bf16(h.level, floats(dst), 1, n, halves(x), n)
}

// elements returns the types of the elements of rows, in the form in which kernels take them.
func elements(rows *compute.Rows) C.halognn_elements {
	as := C.halognn_elements{bytes: C.int(rows.Type.Size()), wide: C.HALOGNN_NO_WIDE}
	if rows.Type == compute.BFloat16 {
		as.bf16 = 1
	}
	if rows.Wide != 0 {
		as.wide, as.wide_bytes = C.int64_t(rows.Wide), C.int(rows.WideType.Size())
	}
	if len(rows.Scale) > 0 {
		as.scale = floats(rows.Scale)
	}
	return as
}

func refs(x []compute.RowRef) *C.uint64_t { return (*C.uint64_t)(unsafe.SliceData(x)) }

// fewTables is the number of tables that are described on the stack. It suffices for the rank's own
// rows, a cache, a receive buffer and the other ranks of a node.
const fewTables = 64

// tablesOf appends descriptions of the tables for C to space. Tables in the Go heap are pinned,
// because C gets a pointer to pointers.
func tablesOf(space []C.halognn_table, rows compute.Rows, pins *runtime.Pinner) []C.halognn_table {
	rowBytes := rows.Cols * rows.Type.Size()
	for i, t := range rows.Tables {
		if len(t) > 0 {
			pins.Pin(unsafe.SliceData(t))
		}
		n := len(t) / max(1, rowBytes)
		if i >= rows.Wide && rows.Wide != 0 {
			// a wide row takes the place of several rows, so no wide row can begin at the last of
			// them; C takes a negative number for a large one
			n = max(0, n-rows.WideType.Size()/rows.Type.Size()+1)
		}
		space = append(space, C.halognn_table{
			base: unsafe.Pointer(unsafe.SliceData(t)),
			rows: C.int64_t(n),
		})
	}
	return space
}

func panicIfNoRow(kernel string, of []compute.RowRef, tables []C.halognn_table) {
	i := C.halognn_check_refs(refs(of), C.int64_t(len(of)), unsafe.SliceData(tables),
		C.int64_t(len(tables)))
	if i >= 0 {
		panic(fmt.Sprintf("compute: %s: row %d is row %d of table %d, which is not there", kernel,
			i, of[i].Row(), of[i].Table()))
	}
}

// panicIfNoneRead does what panicIfNoRow does, for the rows that edges read.
func panicIfNoneRead(kernel string, edges []int32, of []compute.RowRef, tables []C.halognn_table) {
	var some [512]compute.RowRef
	for ; len(edges) > 0; edges = edges[min(len(edges), len(some)):] {
		n := min(len(edges), len(some))
		for k, s := range edges[:n] {
			some[k] = of[compute.SourceOf(s)]
		}
		panicIfNoRow(kernel, some[:n], tables)
	}
}

// fault is the panic value of a failed read. It has the methods by which mem.Guard recognises that
// Go code could not read memory.
type fault uintptr

func (f fault) Error() string {
	return fmt.Sprintf("compute: reading address %#x failed: a mapped file has shrunk or its "+
		"disk has failed", uintptr(f))
}
func (f fault) RuntimeError() {}
func (f fault) Addr() uintptr { return uintptr(f) }

// panicOnFault panics unless addr, the address that a kernel could not read, is 0.
func panicOnFault(addr C.uintptr_t) {
	if addr != 0 {
		panic(fault(addr))
	}
}
