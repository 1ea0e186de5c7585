//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"errors"
	"time"
	"unsafe"

	"halognn/src/devices/compute"
)

// stopwatch measures the time between events on the compute stream.
type stopwatch struct {
	d      *Device
	events []unsafe.Pointer
}

// NewStopwatch returns a stopwatch of the compute stream.
func (d *Device) NewStopwatch() compute.Stopwatch { return &stopwatch{d: d} }

// Mark implements compute.Stopwatch.
func (s *stopwatch) Mark(i int) error {
	for i >= len(s.events) {
		var e unsafe.Pointer
		if err := failure("an event", C.gpu_make_event(s.d.c, 1, &e)); err != nil {
			return err
		}
		s.events = append(s.events, e)
	}
	return failure("marking a moment", C.gpu_record(s.d.c, C.HALOGNN_COMPUTE, s.events[i]))
}

// Between implements compute.Stopwatch.
func (s *stopwatch) Between(i, j int) (time.Duration, error) {
	var ms C.float
	err := failure("the time between two marks",
		C.gpu_elapsed(s.d.c, s.events[i], s.events[j], &ms))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// Free implements compute.Stopwatch.
func (s *stopwatch) Free() error {
	var errs []error
	for _, e := range s.events {
		errs = append(errs, failure("freeing an event", C.gpu_free_event(s.d.c, e)))
	}
	s.events = nil
	return errors.Join(errs...)
}
