//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// address returns the device address of a row in mapped host memory. It returns 0 if the row is not
// mapped.
func (r *residence) address(ref compute.RowRef) uint64 {
	if r == nil {
		return 0
	}
	t := ref.Table()
	if t >= len(r.mapped) || r.mapped[t] == 0 {
		return 0
	}
	return r.mapped[t] + uint64(ref.Row()*r.rowBytes)
}

// MapRows implements compute.Accelerator. A table whose rows are all resident is not mapped. The
// pages of a file are pinned where they are, in the page cache of the system. If the driver or the
// file system refuses this, a copy is pinned. Some drivers refuse pages that cannot be written.
func (d *Device) MapRows(limit int, always bool) (bytes int, kept error) {
	r := &d.resident
	r.always = always
	r.mapped, r.pinned, r.copied, r.align = make([]uint64, len(r.tables)),
		make([][]byte, len(r.tables)), make([][]byte, len(r.tables)), widest
	for t, table := range r.tables {
		if len(table) == 0 || t < len(r.count) && r.count[t]*r.rowBytes >= len(table) {
			continue
		}
		if bytes+len(table) > limit {
			kept = fmt.Errorf("rows of %s more would exceed the %s that may be pinned",
				mega(len(table)), mega(limit-bytes))
			continue
		}
		if err := d.pin(t, table); err != nil {
			kept = err
			continue
		}
		bytes += len(table)
		r.align = alignOf(r.align, r.mapped[t], uint64(r.rowBytes))
	}
	return bytes, kept
}

// widest is the number of bytes that a thread reads at a time.
const widest = 16

// alignOf returns the largest power of two, at most align, that divides both address and row.
func alignOf(align int, address, row uint64) int {
	for (address|row)%uint64(align) != 0 {
		align /= 2
	}
	return align
}

// pin pins and maps a table. If this is refused, it maps a copy of the table.
func (d *Device) pin(t int, table []byte) error {
	r := &d.resident
	at, err := d.mapHost(table)
	if err != nil {
		copied := mem.Make[byte](len(table))
		copy(copied, table)
		var second error
		if at, second = d.mapHost(copied); second != nil {
			mem.Free(copied)
			return fmt.Errorf("pinning %s of rows: %w; is the limit of locked memory (ulimit -l) "+
				"too low?", mega(len(table)), second)
		}
		r.copied[t], table = copied, copied
	}
	r.mapped[t], r.pinned[t] = uint64(uintptr(at)), table
	return nil
}

// mapHost pins memory and returns its device address.
func (d *Device) mapHost(x []byte) (at unsafe.Pointer, err error) {
	if code := C.gpu_map_host(d.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(x))),
		C.int64_t(len(x)), &at); code != 0 {
		return nil, errors.New(C.GoString(C.gpu_error(code)))
	}
	return at, nil
}

// UnmapRows implements compute.Accelerator.
func (d *Device) UnmapRows() error {
	r := &d.resident
	if r.mapped == nil {
		return nil
	}
	errs := []error{d.idle()}
	for t, x := range r.pinned {
		if x != nil {
			errs = append(errs, failure("unpinning rows",
				C.gpu_unmap_host(d.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(x))))))
		}
		mem.Free(r.copied[t])
	}
	r.mapped, r.pinned, r.copied = nil, nil, nil
	return errors.Join(errs...)
}

// RowRates implements compute.Accelerator. The first minibatch is not counted, because buffers grow
// for it. Every minibatch is uploaded first in one way and then in the other.
func (d *Device) RowRates(minibatches []compute.Rows) (copied, mapped float64, err error) {
	boxes := [2]*stagingBuffer{{d: d, resident: &d.resident, held: &d.held, apart: true,
		copies: true},
		{d: d, resident: &d.resident, held: &d.held, apart: true}}
	defer func() { err = errors.Join(err, boxes[0].Free(), boxes[1].Free()) }()
	bytes, took := 0, [2]time.Duration{}
	for i, rows := range minibatches {
		for way, b := range boxes {
			begin := time.Now()
			if err := b.Send(&compute.Inputs{Rows: rows, Sources: true}); err != nil {
				return 0, 0, err
			}
			if err := b.ready(); err != nil {
				return 0, 0, err
			}
			if i > 0 {
				took[way] += time.Since(begin)
			}
		}
		if i > 0 {
			bytes += len(boxes[0].cold) * boxes[0].rowBytes
		}
	}
	rate := func(t time.Duration) float64 { return float64(bytes) / max(t, 1).Seconds() }
	return rate(took[0]), rate(took[1]), nil
}
