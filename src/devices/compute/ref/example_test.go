package ref_test

import (
	"fmt"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// Two destinations read the rows of three sources: the first sources 0 and 2, the second none. Any
// device that computes this has the same method.
func ExampleDevice_SegmentMean() {
	dev := ref.New()
	rows := compute.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 2, 30, 40, 5, 6}}
	edges := compute.Segments{Indptr: []int64{0, 2, 2}, Indices: []int32{0, 2}}
	mean := compute.Matrix{Rows: 2, Cols: 2, Data: make([]float32, 4)}
	dev.SegmentMean(mean, edges, rows)
	fmt.Println(mean.Data[:2], mean.Data[2:])
	// Output:
	// [3 4] [0 0]
}
