package meter

import (
	"errors"
	"fmt"
	"time"

	"halognn/src/devices/compute"
)

// Rates are the peak rates of a device.
type Rates struct {
	Copy    float64 `json:"copy_bytes_per_second"`    // read and written by a copy
	Product float64 `json:"product_flops_per_second"` // peak, or of a matrix product

	// peak rates of all instruction sets, if a device can measure them
	Peaks []compute.Peak `json:"peaks,omitempty"`
}

// width is the number of columns of the matrices that are used to measure rates.
const width = 512

// MeasureRates measures the rate of copies by copying the given number of elements. On a device
// without its own memory it adds a bias to them in place instead. The rate of products is taken
// from the device's Peaks. If the device has no Peaks, MeasureRates multiplies matrices that are
// large enough to take a few milliseconds. The fastest of several tries counts. MeasureRates
// allocates twice the memory of the elements, or less if the device has less free memory.
func MeasureRates(d compute.Device, elements int) (Rates, error) {
	const float = 4 // bytes
	accelerator := d.Capabilities().Accelerator
	if accelerator != nil {
		elements = min(elements, accelerator.FreeBytes()/(4*float))
	}
	rows := elements / width
	if rows == 0 {
		return Rates{}, errors.New("there is too little device memory left to measure rates")
	}
	var arrays [3][]float32
	for i, n := range []int{rows * width, rows * width, width * width} {
		var err error
		if arrays[i], err = d.Alloc(n); err != nil {
			return Rates{}, fmt.Errorf("measuring rates: %w", err)
		}
		defer d.Free(arrays[i])
	}
	x, y, w := arrays[0], arrays[1], compute.Matrix{Rows: width, Cols: width, Data: arrays[2]}
	matrix := func(data []float32, rows int) compute.Matrix {
		return compute.Matrix{Rows: rows, Cols: width, Data: data[:rows*width]}
	}
	pass := func() { d.AddBias(matrix(y, rows), w.Data[:width]) }
	if accelerator != nil {
		pass = func() { accelerator.Copy(y, x) }
	}
	if accelerator != nil {
		if err := wake(d, pass); err != nil {
			return Rates{}, err
		}
	}
	each, err := fastest(d, pass)
	if err != nil {
		return Rates{}, err
	}
	r := Rates{Copy: 2 * float * float64(len(y)) / each}
	if c := d.Capabilities(); c.Peaks != nil {
		r.Peaks = c.Peaks()
		if r.Product = compute.BestPeak(r.Peaks, c.Precision); r.Product > 0 {
			return r, nil
		}
	}
	for n := min(rows, 64); ; n = min(rows, 2*n) {
		each, err := fastest(d, func() { d.MatMul(matrix(y, n), matrix(x, n), w, false) })
		if err != nil {
			return Rates{}, err
		}
		r.Product = max(r.Product, 2*width*width*float64(n)/each)
		if each > 5e-3 || n == min(rows, 1<<16) {
			return r, nil
		}
	}
}

// wake keeps a device busy for some time before it is measured, because an idle device has a low
// clock rate, which rises slowly.
func wake(d compute.Device, call func()) error {
	const enough = 200 * time.Millisecond
	for begin := time.Now(); time.Since(begin) < enough; {
		call()
		if err := d.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// fastest returns the seconds of one call in the fastest of several series. A series takes some
// milliseconds.
func fastest(d compute.Device, call func()) (seconds float64, err error) {
	timed := func(calls int) (float64, error) {
		begin := time.Now()
		for range calls {
			call()
		}
		err := d.Sync()
		return time.Since(begin).Seconds(), err
	}
	// the first call may allocate scratch memory, so its time does not count
	if _, err := timed(1); err != nil {
		return 0, err
	}
	first, err := timed(1)
	if err != nil {
		return 0, err
	}
	seconds = first
	calls := min(100, max(1, int(5e-3/max(first, 1e-9))))
	for range 3 {
		took, err := timed(calls)
		if err != nil {
			return 0, err
		}
		seconds = min(seconds, took/float64(calls))
	}
	return max(seconds, 1e-9), nil
}
