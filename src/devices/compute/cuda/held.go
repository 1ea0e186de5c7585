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

// heldRows are the rows of a cache, one table of compute.Rows, that lie in device memory. Some lie
// in this device's memory, where kernels read them; others in that of peers, from which they are
// fetched.
type heldRows struct {
	table       int
	rowBytes    int
	p           unsafe.Pointer // own rows [first, end)
	first, end  int
	block, size int // block of the arena, kept from one cache to the next: peers may still read it
	peers       []reached
	align       int // common alignment of peers' rows
}

// reached describes rows [first, end) of the table, which lie in a peer's memory.
type reached struct {
	first, end int
	address    uint64
	opened     unsafe.Pointer // mapping of another process's memory; nil for memory of this process
}

// has returns the index of a row among the rows that this device holds.
func (h *heldRows) has(ref compute.RowRef) (row int, ok bool) {
	row = ref.Row()
	return row - h.first, h.p != nil && ref.Table() == h.table && row >= h.first && row < h.end
}

// address returns the device address of a row that a peer holds; 0 for others.
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

// process names this process to others, which may have the same id in another container.
var process = sync.OnceValue(func() string { return rand.Text() })

// rowsName is what other ranks of the node must know to read held rows.
type rowsName struct {
	Process  string
	Device   int
	Address  uint64 // address in the process
	Memory   []byte // name of the allocation for other processes; nil if it cannot be shared
	Why      string // why the allocation cannot be shared
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
	runtime.KeepAlive(unsafe.SliceData(rows)) // until they have been read
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
