package dataset_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// Arrays are told, too: what each was taken as, which other could have been, and times.
func TestArraysAreTold(t *testing.T) {
	var o dataset.ImportOptions
	inArrays(func(t testing.TB) map[string][]byte {
		return map[string][]byte{
			"features":  array(t, make([]float32, 3), 3, 1),
			"edge_time": array(t, []int64{5, 6}, 2),
			"labels":    array(t, []float64{1, math.NaN(), 2}, 3),
		}
	})(t, t.TempDir(), &o)
	_, r := imported(t, o)
	for _, want := range []string{
		"g.npz: x: feature (rather than features; --keys x=NAME says which)",
		"g.npz: features: ignored",
		"g.npz: edge_time: time, not used",
		"array edge_time is ignored: it is a time",
		"g.npz: edge_index: edges",
		"g.npz: y: label (rather than labels",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, r)
		}
	}
}

// The arrays of an attributed graph may have a point in their names, as of GNN benchmarks, and
// other archives of a directory are no silent loss.
func TestOtherArrays(t *testing.T) {
	ends, columns := csr(true)
	indptr, indices, values := sparseFeatures()
	dir := t.TempDir()
	o := dataset.ImportOptions{
		Format: "npz", In: filepath.Join(dir, "g.npz"), Out: filepath.Join(dir, "d"),
	}
	n := len(ends) - 1
	members := map[string][]byte{
		"adj_matrix.indptr":   array(t, ends, n+1),
		"adj_matrix.indices":  array(t, columns, len(columns)),
		"adj_matrix.shape":    array(t, []int64{int64(n), int64(n)}, 2),
		"attr_matrix.indptr":  array(t, indptr, n+1),
		"attr_matrix.indices": array(t, indices, len(indices)),
		"attr_matrix.data":    array(t, values, len(values)),
		"attr_matrix.shape":   array(t, []int64{int64(n), 3}, 2),
	}
	archive(t, o.In, members)
	if d, r := imported(t, o); d.Meta.Features != 3 || d.Meta.Edges != int64(len(tinyIndices)) ||
		!strings.Contains(r.String(), "attr_data to attr_shape, 4 columns: feature") {
		t.Errorf("%s", r)
	}
	for name, content := range members {
		write(t, filepath.Join(dir, "npy", name+".npy"), content)
	}
	write(t, filepath.Join(dir, "npy", "foo_matrix.bar.npy"), array(t, []int64{1}, 1))
	o.In, o.Out = filepath.Join(dir, "npy"), filepath.Join(dir, "f")
	if d, r := imported(t, o); d.Meta.Features != 3 || d.Meta.Edges != int64(len(tinyIndices)) ||
		!strings.Contains(r.String(), "array foo_matrix.bar is not read") {
		t.Errorf("%s", r)
	}
	write(t, filepath.Join(dir, "in", "x"), nil)
	o.In, o.Out = filepath.Join(dir, "in"), filepath.Join(dir, "e")
	archive(t, filepath.Join(o.In, "graph.npz"),
		map[string][]byte{"edge_index": array(t, []int64{0, 1}, 2, 1)})
	archive(t, filepath.Join(o.In, "data.npz"),
		map[string][]byte{"feature": array(t, []float32{1, 2}, 2, 1)})
	if _, err := dataset.Import(o); err == nil ||
		!strings.Contains(err.Error(), "data.npz (feature) would not be read") ||
		!strings.Contains(err.Error(), "graph.npz reads that archive alone") {
		t.Errorf("features in another archive: %v", err)
	}
}
