//go:build cgo

package cuda

import (
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/meter"
)

// A meter of a device with a stopwatch counts every kernel, also in a staging buffer, reads its
// time after the device has passed it, and leaks no events.
func TestMeter(t *testing.T) {
	for _, resident := range []int{1, 0} { // 0: the host computes the rows
		testMeter(t, resident)
	}
}

func testMeter(t *testing.T, resident int) {
	d := open(t)
	m := meter.New(d)
	const rows, cols = 100, 8
	x, err := d.Alloc(rows * cols)
	if err != nil {
		t.Fatal(err)
	}
	matrix := compute.Matrix{Rows: rows, Cols: cols, Data: x}
	box := d.NewStagingBuffer(hostOf(t), true)
	in := &compute.Inputs{Rows: compute.Rows{Cols: cols, Tables: [][]byte{make([]byte, 4*cols)}},
		Sources: true}
	for range rows {
		in.Rows.Of = append(in.Rows.Of, compute.MakeRowRef(0, 0))
	}
	if err := d.Resident(in.Rows.Tables, []int{resident}, nil, 4*cols); err != nil {
		t.Fatal(err)
	}
	m.Start()
	for step := range 3 {
		if err := box.Send(in); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := box.Open(); err != nil {
			t.Fatal(err)
		}
		d.AddBias(matrix, x[:cols])
		d.ReLU(matrix, 0, compute.DropoutKey{}, nil)
		if err := box.Close(); err != nil {
			t.Fatal(err)
		}
		if step == 1 {
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	d.AddBias(matrix, x[:cols]) // the meter is off
	r := m.Report(meter.Rates{Copy: 1, Product: 1})
	want := map[string]int64{"input rows": int64(resident) * 3 * rows * (4*cols + 8 + 4*cols),
		"AddBias": 3 * 4 * (2*rows*cols + cols), "ReLU": 3 * 8 * rows * cols}
	if len(r.Kernels) != len(want) {
		t.Errorf("counted %v", r.Kernels)
	}
	for _, k := range r.Kernels {
		if k.Calls != 3 || k.Bytes != want[k.Name] || !(k.Seconds > 0 && k.Seconds < r.Seconds) {
			t.Errorf("counted %+v in %g s, want %d bytes", k, r.Seconds, want[k.Name])
		}
	}
	if err := box.Free(); err != nil {
		t.Error(err)
	}
	d.Free(x)
	if err := m.Free(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}
