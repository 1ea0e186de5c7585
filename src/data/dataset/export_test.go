package dataset

import (
	"testing"

	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// SetMemory sets the memory that imports take as available, until the test ends.
func SetMemory(t testing.TB, bytes int64) {
	before := available
	available = func() (int64, error) { return bytes, nil }
	t.Cleanup(func() { available = before })
}

// SetLargeFeatures sets from how many bytes on features that are mostly zeros are refused, until
// the test ends.
func SetLargeFeatures(t testing.TB, bytes int64) {
	before := largeFeatures
	largeFeatures = bytes
	t.Cleanup(func() { largeFeatures = before })
}

// FeatureRow sets dst [Features] to the features of v, as float32.
func (d *Dataset) FeatureRow(dst []float32, v graph.VertexID) {
	begin, end := int(v)*d.Meta.Features, (int(v)+1)*d.Meta.Features
	if d.Meta.FeatureType == Int8 {
		q, _ := npy.Elements[int8](d.tables[0])
		for i, x := range q[begin:end] {
			dst[i] = float32(x) * d.Scale[i]
		}
		return
	}
	if d.Meta.FeatureType == Float16 {
		half, _ := npy.Elements[npy.Float16](d.tables[0]) // Open checked the type
		for i, h := range half[begin:end] {
			dst[i] = h.Float32()
		}
		return
	}
	rows, _ := npy.Elements[float32](d.tables[0])
	copy(dst, rows[begin:end])
}
