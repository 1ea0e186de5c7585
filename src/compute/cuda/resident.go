//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/compute"
)

// residence is which rows lie on the device for good: the first rows[t] of table t, from row first[t] of one table.
type residence struct {
	p           unsafe.Pointer
	rows, first []int
}

// holds returns where a row lies among the resident ones.
func (r *residence) holds(ref compute.RowRef) (row int, ok bool) {
	if r == nil {
		return 0, false
	}
	t := ref.Table()
	if t >= len(r.rows) || ref.Row() >= r.rows[t] {
		return 0, false
	}
	return r.first[t] + ref.Row(), true
}

// Resident implements compute.Offboard. It is called once.
func (d *Device) Resident(tables [][]byte, rows []int, rowBytes int) error {
	if d.resident.p != nil {
		panic("compute/cuda: Resident was called before")
	}
	total := 0
	for _, n := range rows {
		total += n
	}
	if total == 0 {
		return nil
	}
	at, err := d.arena.alloc(total*rowBytes, useRows)
	if err != nil {
		return err
	}
	d.resident = residence{p: d.at(at), rows: rows, first: make([]int, len(rows))}
	next := 0
	for t, n := range rows {
		d.resident.first[t] = next
		if n > 0 {
			must("resident rows", C.gpu_upload(d.c, C.HALOGNN_COMPUTE, unsafe.Add(d.resident.p, next*rowBytes),
				(*C.char)(unsafe.Pointer(unsafe.SliceData(tables[t]))), C.int64_t(n*rowBytes)))
		}
		next += n
	}
	return d.Sync()
}
