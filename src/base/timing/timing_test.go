package timing

import (
	"math"
	"runtime"
	"testing"
	"time"
)

func TestThreadCountsNoSleep(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := Thread()
	time.Sleep(200 * time.Millisecond)
	slept := Thread() - begin
	for begin = Thread(); Thread()-begin < 2*slept+time.Millisecond; {
	}
	if slept > 100*time.Millisecond {
		t.Errorf("a sleep of 200 ms took %v of CPU time", slept)
	}
}

func TestMedian(t *testing.T) {
	for want, x := range map[float64][]float64{0: nil, 2: {3, 1, 2}, 2.5: {4, 1, 3, 2}} {
		if got := Median(x); got != want {
			t.Errorf("the median of %v is %g", x, got)
		}
	}
}

func TestReadRate(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if rate := ReadRate(make([]int32, 1000), 1<<16, 1); !(rate > 0) || math.IsInf(rate, 1) {
		t.Errorf("%g reads a second", rate)
	}
}
