//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"time"

	"halognn/src/devices/compute"
)

// peakLoop is a loop of independent multiply-adds that uses only registers.
type peakLoop struct {
	ISA       string
	Precision compute.Precision
	number    C.int
}

// peakLoops returns the loops that this machine can run. For each precision, the loop with the
// widest vectors comes last.
func peakLoops() (loops []peakLoop) {
	for i := C.int(0); ; i++ {
		p := C.halognn_peak_of(i)
		if p == nil {
			return loops
		}
		if l := (peakLoop{C.GoString(p.isa), compute.Precision(C.GoString(p.precision)),
			i}); l.run(1) > 0 {
			loops = append(loops, l)
		}
	}
}

func (l peakLoop) run(rounds int) int {
	return int(C.halognn_peak_run(l.number,
		C.int64_t(rounds)))
}

// peaks measures each loop on one thread and on all threads of the device, and returns the best of
// several tries. A try is long enough for the precision of the clock, and short enough that often
// no other program runs during it.
func (d *Device) peaks() (all []compute.Peak) {
	for _, l := range peakLoops() {
		rounds := 1000
		for try := time.Duration(0); try < 200*time.Microsecond; rounds *= 2 {
			begin := time.Now()
			l.run(rounds)
			try = time.Since(begin)
		}
		rate := func(pieces int, run func(pieces int, piece func(int))) (best float64) {
			flops := float64(pieces) * float64(l.run(rounds))
			for range 40 {
				begin := time.Now()
				run(pieces, func(int) { l.run(rounds) })
				best = max(best, flops/time.Since(begin).Seconds())
			}
			return best
		}
		all = append(all, compute.Peak{ISA: l.ISA, Precision: l.Precision,
			One: rate(1, func(_ int, piece func(int)) { piece(0) }),
			All: rate(4*(1+len(d.pool.workers)), d.pool.run)})
	}
	return all
}
