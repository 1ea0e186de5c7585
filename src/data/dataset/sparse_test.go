package dataset_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
)

// sparseSource writes a graph whose features are a CSR matrix: entries in any order, of which two
// of a column add up, and one is 0.
func sparseSource(t *testing.T, values []float32) string {
	t.Helper()
	in := t.TempDir()
	put := func(name string, f func(path string) error) {
		if err := f(filepath.Join(in, name+".npy")); err != nil {
			t.Fatal(err)
		}
	}
	ints := func(name string, x []int64, shape ...int) {
		put(name, func(p string) error { _, err := npy.WriteFile(p, x, shape...); return err })
	}
	ints("edge_index", []int64{0, 1, 1, 2}, 2, 2)
	ints("y", []int64{0, 1, 0}, 3)
	ints("attr_indptr", []int64{0, 3, 3, 6}, 4)
	ints("attr_indices", []int64{4, 1, 4, 0, 2, 3}, 6)
	ints("attr_shape", []int64{3, 5}, 2)
	put("attr_data", func(p string) error { _, err := npy.WriteFile(p, values, 6); return err })
	return in
}

// Sparse features are the entries that are not 0, by row and ascending column, from a CSR matrix as
// from dense rows; where all values are 1 there are columns alone.
func TestSparseFeatures(t *testing.T) {
	for _, c := range []struct {
		values  []float32
		named   string
		entries []int32
	}{
		{[]float32{2, -1.5, 1, 1, 0, 4}, dataset.Sparse,
			[]int32{1, bits(-1.5), 4, bits(3), 0, bits(1), 3, bits(4)}},
		{[]float32{0.5, 1, 0.5, 1, 0, 1}, dataset.SparseOnes, []int32{1, 4, 0, 3}},
	} {
		in := sparseSource(t, c.values)
		twin := t.TempDir()
		if err := os.CopyFS(twin, os.DirFS(in)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"indptr", "indices", "data", "shape"} {
			if err := os.Remove(filepath.Join(twin, "attr_"+name+".npy")); err != nil {
				t.Fatal(err)
			}
		}
		v := c.values
		dense := []float32{0, v[1], 0, 0, v[0] + v[2], 0, 0, 0, 0, 0, v[3], 0, v[4], v[5], 0}
		if _, err := npy.WriteFile(filepath.Join(twin, "x.npy"), dense, 3, 5); err != nil {
			t.Fatal(err)
		}
		for _, source := range []string{in, twin} {
			out := filepath.Join(t.TempDir(), "out")
			r, err := dataset.Import(dataset.ImportOptions{Format: "npz", In: source, Out: out,
				FeatureType: dataset.Sparse})
			if err != nil {
				t.Fatal(err)
			}
			d, err := dataset.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			got := npy.View[int32](d.FeatureRows(0, 0, 3))
			if r.FeatureType != c.named || d.Meta.FeatureType != c.named ||
				!slices.Equal(got, c.entries) || !slices.Equal(d.RowEnds, []int64{0, 2, 2, 4}) ||
				d.Meta.Entries != 4 || r.SparseEntries != 4 {
				t.Errorf("%s: %s, entries %v, ends %v", source, d.Meta.FeatureType, got, d.RowEnds)
			}
			if err := d.Verify(); err != nil {
				t.Error(err)
			}
		}
	}
}

func bits(x float32) int32 { return int32(math.Float32bits(x)) }

// Entries out of order or range, values that are no numbers, and rows that end before they begin
// are found; so are options that leave no zeros.
func TestBadSparseFeatures(t *testing.T) {
	table := dataset.Table{Vertices: 2, Features: 3, FeatureType: dataset.Sparse, Entries: 2}
	nan := int32(math.Float32bits(float32(math.NaN())))
	for _, c := range []struct {
		entries []int32
		ends    []int64
		want    string
	}{
		{[]int32{1, 0, 1, 0}, []int64{0, 2, 2}, "column 1 of 3 after column 1"},
		{[]int32{0, 0, 3, 0}, []int64{0, 2, 2}, "column 3 of 3"},
		{[]int32{-1, 0, 0, 0}, []int64{0, 1, 2}, "column -1"},
		{[]int32{0, nan, 0, 0}, []int64{0, 1, 2}, "NaN"},
		{[]int32{0, 0, 1, 0}, []int64{0, 3, 2}, "ends at 3"},
		{[]int32{0, 0, 1, 0}, []int64{0, 1, 5}, "5, but the file has 2 entries"},
	} {
		data := make([]byte, 0, 16)
		for _, x := range c.entries {
			data = binary.LittleEndian.AppendUint32(data, uint32(x))
		}
		if err := dataset.CheckEntries(data, table, c.ends); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v: %v, want %q", c.entries, c.ends, err, c.want)
		}
	}
	in := sparseSource(t, []float32{1, float32(math.Inf(1)), 1, 1, 1, 1})
	o := dataset.ImportOptions{Format: "npz", In: in, Out: filepath.Join(t.TempDir(), "out"),
		FeatureType: dataset.Sparse}
	if _, err := dataset.Import(o); !errors.Is(err, dataset.ErrValue) {
		t.Errorf("infinity: %v", err)
	}
	o.Standardize = true
	if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), "--standardize") {
		t.Errorf("standardized: %v", err)
	}
	o.Standardize, o.FeatureType = false, dataset.SparseOnes
	if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), "ask for sparse") {
		t.Errorf("sparse-ones: %v", err)
	}
	for _, ends := range [][]int64{{5, 7}, {0, 1}, {-1, 2}} {
		if err := dataset.CheckRowEnds(ends, 2); !errors.Is(err, dataset.ErrMismatch) {
			t.Errorf("rows %v of 2 entries: %v", ends, err)
		}
	}
}

// Of dense rows, which come in chunks, a value that is no number is named by its vertex. Rows
// without columns have no entries to leave out.
func TestSparseFeaturesFromDenseRows(t *testing.T) {
	in, n := t.TempDir(), 9000
	put := func(name string, x []float32, shape ...int) {
		if _, err := npy.WriteFile(filepath.Join(in, name+".npy"), x, shape...); err != nil {
			t.Fatal(err)
		}
	}
	_, err := npy.WriteFile(filepath.Join(in, "edge_index.npy"), []int64{0, 1, 1, 2}, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := npy.WriteFile(filepath.Join(in, "y.npy"), make([]int64, n), n); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, n)
	x[8500] = float32(math.NaN())
	put("x", x, n, 1)
	o := dataset.ImportOptions{Format: "npz", In: in, Out: filepath.Join(t.TempDir(), "out"),
		FeatureType: dataset.Sparse}
	if _, err := dataset.Import(o); err == nil ||
		!strings.Contains(err.Error(), "vertex 8500, column 0") {
		t.Errorf("NaN: %v", err)
	}
	put("x", nil, n, 0)
	if r, err := dataset.Import(o); err != nil || r.Features != 0 {
		t.Errorf("no columns: %+v, %v", r, err)
	}
}

// Sparse features that would take much more dense are refused, with both sizes, unless a flag says
// how.
func TestSparseStaysSmall(t *testing.T) {
	const n = 40000
	ends, columns := make([]int64, n+1), make([]int32, n)
	ones := make([]float32, n)
	for v := range columns {
		ends[v+1], columns[v], ones[v] = int64(v+1), int32(v), 1
	}
	dir := t.TempDir()
	o := dataset.ImportOptions{
		Format: "npz", In: filepath.Join(dir, "g.npz"), Out: filepath.Join(dir, "d"),
	}
	archive(t, o.In, map[string][]byte{
		"edge_index":   array(t, []int64{0, 1}, 2, 1),
		"attr_indptr":  array(t, ends, n+1),
		"attr_indices": array(t, columns, n),
		"attr_data":    array(t, ones, n),
		"attr_shape":   array(t, []int64{n, n}, 2),
		"num_nodes":    array(t, []int64{n}, 1),
	})
	if _, err := dataset.Import(o); err == nil ||
		!strings.Contains(err.Error(), "5.96 GiB as float32") ||
		!strings.Contains(err.Error(), "--feature-type sparse stores 625 KiB") {
		t.Errorf("%v", err)
	}
	o.FeatureType = dataset.Sparse
	if r, err := dataset.Import(o); err != nil || r.FeatureType != dataset.SparseOnes {
		t.Errorf("%v, %s", err, r.FeatureType)
	}
}
