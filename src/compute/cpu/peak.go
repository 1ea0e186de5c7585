//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import "time"

// peakLoop is a loop of independent multiply-adds on registers.
type peakLoop struct {
	ISA, Precision string
	number         C.int
}

// peakLoops returns those that this machine can run; of one precision, the widest vectors last.
func peakLoops() (loops []peakLoop) {
	for i := C.int(0); ; i++ {
		p := C.halognn_peak_of(i)
		if p == nil {
			return loops
		}
		if l := (peakLoop{C.GoString(p.isa), C.GoString(p.precision), i}); l.run(1) > 0 {
			loops = append(loops, l)
		}
	}
}

// run runs so many rounds and returns the floating-point operations in them.
func (l peakLoop) run(rounds int) int { return int(C.halognn_peak_run(l.number, C.int64_t(rounds))) }

// rate returns the operations a second of the calling thread: the best of some tries, each long
// enough for the clock and short enough to fit between two time slices of others.
func (l peakLoop) rate() float64 {
	rounds := 1000
	for try := time.Duration(0); try < 200*time.Microsecond; rounds *= 2 {
		begin := time.Now()
		l.run(rounds)
		try = time.Since(begin)
	}
	best := 0.0
	for range 20 {
		begin := time.Now()
		flops := l.run(rounds)
		best = max(best, float64(flops)/time.Since(begin).Seconds())
	}
	return best
}
