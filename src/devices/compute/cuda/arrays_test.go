//go:build cgo

package cuda

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// placed returns a matrix in device memory.
func placed(t *testing.T, d *Device, rows, cols int, host []float32) compute.Matrix {
	t.Helper()
	data, err := d.Alloc(rows * cols)
	if err != nil {
		t.Fatal(err)
	}
	d.Upload(data, host)
	return compute.Matrix{Rows: rows, Cols: cols, Data: data}
}

func (d *Device) read(x []float32) []float32 {
	host := make([]float32, len(x))
	d.Download(host, x)
	return host
}

// While a minibatch is open, a kernel that is given an array that was not sent is a bug; it is not
// uploaded meanwhile.
func TestArraysMustBeSent(t *testing.T) {
	d := open(t)
	in, tables := randomInputs(rand.New(rand.NewPCG(7, 7)), 8, compute.Float32)
	in.Sources, in.Rows.Tables = true, tables
	box := d.NewStagingBuffer(ref.Host{}, false)
	if err := box.Send(in); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := box.Open(); err != nil {
		t.Fatal(err)
	}
	logits := placed(t, d, 2, 2, []float32{1, 2, 3, 4})
	func() {
		defer func() {
			text := fmt.Sprint(recover())
			if !strings.Contains(text, "were not sent with the minibatch") {
				t.Errorf("labels that were not sent: %s", text)
			}
		}()
		d.SoftmaxCrossEntropy(compute.Matrix{}, logits, []int32{0, 1}, 1)
	}()
	if err := box.Close(); err != nil {
		t.Error(err)
	}
	d.SoftmaxCrossEntropy(compute.Matrix{}, logits, []int32{0, 1}, 1) // with none open
	if err := box.Free(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// Scratch is of one launch: the next has it, and one that borrows it twice panics.
func TestScratchIsOfOneLaunch(t *testing.T) {
	d := open(t)
	x := placed(t, d, 3, 2, []float32{1, 2, 3, 4, 5, 6})
	sum := placed(t, d, 1, 2, []float32{0, 0}).Data
	d.scratch.lent = true // as within a launch
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "borrows its scratch twice") {
				t.Errorf("scratch that is lent twice: %s", text)
			}
		}()
		d.ColumnSum(sum, x)
	}()
	d.scratch.lent = false
	d.ColumnSum(sum, x)
	if got := d.read(sum); got[0] != 9 || got[1] != 12 || d.scratch.lent {
		t.Errorf("the sums are %v, and scratch is lent: %t", got, d.scratch.lent)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}
