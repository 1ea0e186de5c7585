//go:build cgo

package infer

import (
	"slices"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/cuda"
)

// A device with its own memory infers by columns to the bits that it infers with all at once.
func TestOffboardInfersByColumns(t *testing.T) {
	library := computetest.CUDALibrary(t, "../../..")
	defer func(headroom func() (int64, error)) { fileHeadroom = headroom }(fileHeadroom)
	fileHeadroom = func() (int64, error) { return 0, nil }
	o, shards := sageOptions(), generated(t)
	o.Model.Hidden = 40
	for _, p := range []compute.Precision{compute.PrecisionFloat32, compute.PrecisionBF16} {
		gpu := func() (compute.Device, error) {
			return cuda.Open(cuda.Options{Memory: 2 << 20, Library: library, Precision: p})
		}
		wantHidden, want, _ := inferRows(t, shards, 1, o, "", gpu)
		hidden, got, blocks := inferRows(t, shards, 1, o, t.TempDir(), gpu)
		if blocks != 3 || !slices.Equal(hidden, wantHidden) || !slices.Equal(got, want) {
			t.Errorf("%s: in %d blocks, %d hidden values or %d logits differ from those of all at "+
				"once", p, blocks, len(hidden), len(got))
		}
	}
}
