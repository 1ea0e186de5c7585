//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// residence says where the device reads the rows of some tables. Of table t, count[t] rows are in
// device memory, beginning at row first[t] of the array p. Other rows may be mapped in host memory.
type residence struct {
	tables       [][]byte
	rowBytes     int
	p            unsafe.Pointer
	count, first []int
	// [tables] index of each row among the resident rows of its table, or -1 if it is not resident;
	// nil if the resident rows are the first rows of the table
	slots [][]int32

	mapped []uint64 // [tables] device address of each table; 0 if it is not mapped
	pinned [][]byte // [tables] the pinned memory: the table itself or its copy
	copied [][]byte // [tables] the copy of the table; nil if there is none
	align  int      // alignment in bytes that the addresses of all mapped rows have
	// whether the device always reads mapped rows in place, instead of getting means from the host
	always bool
}

// holds returns the index of a row among all resident rows. The result ok is false if the row is
// not resident.
func (r *residence) holds(ref compute.RowRef) (row int, ok bool) {
	if r == nil {
		return 0, false
	}
	t := ref.Table()
	if t >= len(r.count) {
		return 0, false
	}
	slot := ref.Row()
	if s := r.slots[t]; s != nil {
		slot = int(s[slot])
	}
	return r.first[t] + slot, uint(slot) < uint(r.count[t])
}

// whole reports whether all rows of all tables are on the device.
func (r *residence) whole() bool {
	if r == nil || len(r.tables) == 0 {
		return false
	}
	for t, n := range r.count {
		if n*r.rowBytes < len(r.tables[t]) {
			return false
		}
	}
	return true
}

// Resident implements compute.Accelerator. It may be called only once.
func (d *Device) Resident(tables [][]byte, count []int, hot [][]int32, rowBytes int) error {
	r := &d.resident
	if r.tables != nil {
		panic("compute/cuda: Resident was called before")
	}
	r.tables, r.rowBytes, r.count = tables, rowBytes, count
	r.first, r.slots = make([]int, len(count)), make([][]int32, len(count))
	total := 0
	for t, n := range count {
		r.first[t] = total
		total += n
	}
	if total == 0 {
		return nil
	}
	at, err := d.arena.alloc(total*rowBytes, useRows)
	if err != nil {
		return err
	}
	r.p = d.at(at)
	for t, n := range count {
		if n == 0 {
			continue
		}
		rows := tables[t]
		if hot != nil && hot[t] != nil {
			rows = r.collect(t, hot[t][:n])
			defer mem.Free(rows)
		}
		must("resident rows", C.gpu_upload(d.c, C.HALOGNN_COMPUTE,
			unsafe.Add(r.p, r.first[t]*rowBytes), (*C.char)(unsafe.Pointer(unsafe.SliceData(rows))),
			C.int64_t(n*rowBytes)))
	}
	return d.Sync()
}

// collect numbers the hot rows of a table in their order, as resident rows. It returns copies of
// them in that order.
func (r *residence) collect(t int, hot []int32) []byte {
	slots := mem.Make[int32](len(r.tables[t]) / r.rowBytes)
	for i := range slots {
		slots[i] = -1
	}
	rows := mem.Make[byte](len(hot) * r.rowBytes)
	for i, row := range hot {
		slots[row] = int32(i)
		copy(rows[i*r.rowBytes:(i+1)*r.rowBytes], r.tables[t][int(row)*r.rowBytes:])
	}
	r.slots[t] = slots
	return rows
}

// close frees the host memory of r.
func (r *residence) close(d *Device) error {
	err := d.UnmapRows()
	for _, s := range r.slots {
		mem.Free(s)
	}
	r.slots = nil
	return err
}
