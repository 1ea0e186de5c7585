//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"halognn/src/devices/compute"
)

// heldRows are the rows of a cache that are in device memory. They are one table of compute.Rows.
// Kernels read rows in this device's memory directly. Other rows are in the memory of peers and are
// fetched from there.
type heldRows struct {
	table      int
	rowBytes   int
	p          unsafe.Pointer // address of own rows, which are rows [first, end) of the table
	first, end int
	// block of the arena; kept when the cache changes, because peers may still read it
	block, size int
	peers       []reached
	align       int // alignment in bytes that all rows of peers have
}

// reached describes rows [first, end) of the table, which are in a peer's memory.
type reached struct {
	first, end int
	address    uint64
	// address of the mapped memory of another process; nil if the peer is in this process
	opened unsafe.Pointer
}

// has reports whether this device holds a row, and returns the index of the row among those that it
// holds.
func (h *heldRows) has(ref compute.RowRef) (row int, ok bool) {
	row = ref.Row()
	return row - h.first, h.p != nil && ref.Table() == h.table && row >= h.first && row < h.end
}

// address returns the device address of a row that a peer holds. For other rows it returns 0.
func (h *heldRows) address(ref compute.RowRef) uint64 {
	if len(h.peers) == 0 || ref.Table() != h.table {
		return 0
	}
	row := ref.Row()
	for i := range h.peers {
		if p := &h.peers[i]; row >= p.first && row < p.end {
			return p.address + uint64((row-p.first)*h.rowBytes)
		}
	}
	return 0
}

// process returns a random name of this process. Process ids do not suffice, because processes in
// different containers may have the same id.
var process = sync.OnceValue(func() string { return rand.Text() })

// rowsName has what other ranks of the node need to read held rows.
type rowsName struct {
	Process string
	Device  int
	Address uint64 // address of the rows in the memory of the process
	// handle by which other processes open the allocation; nil if it cannot be shared
	Memory   []byte
	Why      string // reason why the allocation cannot be shared
	Offset   int    // offset of the rows in the allocation
	Table    int
	First    int
	End      int
	RowBytes int
}

// HoldRows implements compute.Accelerator.
func (d *Device) HoldRows(table, first int, rows []byte, rowBytes int) (name []byte, err error) {
	h := &d.held
	if h.p != nil || len(h.peers) > 0 {
		panic("compute/cuda: HoldRows was called before")
	}
	if len(rows) == 0 {
		return nil, nil
	}
	if len(rows) > h.size {
		if h.size > 0 {
			d.arena.release(h.block)
			h.size = 0
		}
		if h.block, err = d.arena.alloc(len(rows), useRows); err != nil {
			return nil, err
		}
		h.size = len(rows)
	}
	h.table, h.rowBytes, h.p = table, rowBytes, d.at(h.block)
	h.first, h.end = first, first+len(rows)/rowBytes
	must("rows of a cache", C.gpu_upload(d.c, C.HALOGNN_COMPUTE, h.p,
		(*C.char)(unsafe.Pointer(unsafe.SliceData(rows))), C.int64_t(len(rows))))
	err = d.Sync()
	runtime.KeepAlive(unsafe.SliceData(rows)) // the rows must live until they have been read
	if err != nil {
		return nil, err
	}
	n := rowsName{
		Process: process(), Device: d.number, Address: uint64(uintptr(h.p)),
		Memory: make([]byte, C.HALOGNN_MEMORY_NAME), Table: table, First: h.first, End: h.end,
		RowBytes: rowBytes,
	}
	from := h.p
	if d.base != nil {
		from, n.Offset = d.base, h.block
	}
	if err := failure("sharing device memory", C.gpu_share(d.c, from,
		(*C.uchar)(unsafe.SliceData(n.Memory)))); err != nil {
		n.Memory, n.Why = nil, err.Error()
	}
	return json.Marshal(&n)
}

// ReachRows implements compute.Accelerator.
func (d *Device) ReachRows(name []byte) error {
	var n rowsName
	if err := json.Unmarshal(name, &n); err != nil {
		return fmt.Errorf("reading where a peer holds its rows in device memory: %w", err)
	}
	h := &d.held
	if h.p != nil && (n.Table != h.table || n.RowBytes != h.rowBytes) {
		return errors.New("a peer holds rows of another table")
	}
	r := reached{first: n.First, end: n.End, address: n.Address}
	switch {
	case n.Process == process():
		err := failure(fmt.Sprintf("reaching device %d", n.Device),
			C.gpu_approach(d.c, C.int(n.Device)))
		if err != nil {
			return err
		}
	case n.Memory == nil:
		return errors.New(n.Why)
	default:
		if err := failure("reaching the memory of a peer's device", C.gpu_reach(d.c,
			(*C.uchar)(unsafe.SliceData(n.Memory)), &r.opened)); err != nil {
			return err
		}
		r.address = uint64(uintptr(r.opened)) + uint64(n.Offset)
	}
	if h.align == 0 {
		h.align = widest
	}
	h.table, h.rowBytes = n.Table, n.RowBytes
	h.align = alignOf(h.align, r.address, uint64(h.rowBytes))
	h.peers = append(h.peers, r)
	return nil
}

// DropRows implements compute.Accelerator.
func (d *Device) DropRows() error {
	h := &d.held
	if h.p == nil && len(h.peers) == 0 {
		return nil
	}
	errs := []error{d.idle()}
	for _, p := range h.peers {
		if p.opened != nil {
			errs = append(errs, failure("leaving a peer's memory", C.gpu_leave(d.c, p.opened)))
		}
	}
	d.held = heldRows{block: h.block, size: h.size}
	return errors.Join(errs...)
}
