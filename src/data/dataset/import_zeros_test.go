package dataset_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// Dense features that are mostly zeros are told, and refused where they become large.
func TestDenseZerosAreTold(t *testing.T) {
	const n = 300
	x := make([]float32, n*n)
	for v := range n {
		x[v*n+v] = 1
	}
	dir := t.TempDir()
	o := dataset.ImportOptions{
		Format: "npz", In: filepath.Join(dir, "g.npz"), Out: filepath.Join(dir, "d"),
	}
	archive(t, o.In,
		map[string][]byte{"edge_index": array(t, []int64{0, 1}, 2, 1), "x": array(t, x, n, n)})
	_, r := imported(t, o)
	want := "99.67 % of the features are zeros: 351.6 KiB as float32; --feature-type sparse " +
		"keeps them in 4.688 KiB"
	if !strings.Contains(r.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, r)
	}
	o.DryRun = true
	if dry, err := dataset.Import(o); err != nil ||
		!strings.Contains(dry.String(), "99.67 % of the features are zeros") {
		t.Errorf("a dry run: %v\n%s", err, dry)
	}
	o.DryRun = false
	typed := dataset.ImportOptions{
		Format: "npz", In: filepath.Join(dir, "t.npz"), Out: filepath.Join(dir, "t"),
	}
	archive(t, typed.In, map[string][]byte{
		"edge_index,a,r,a": array(t, []int64{0, 1}, 2, 1),
		"x,a":              array(t, x, n, n),
	})
	_, r = imported(t, typed)
	typed.DryRun = true
	dry, err := dataset.Import(typed)
	if err != nil || !slices.Equal(dry.Notes, r.Notes) {
		t.Errorf("a dry run with types: %v, notes %q and then %q", err, dry.Notes, r.Notes)
	}
	want = "note      a: 99.67 % of the features are zeros: 351.6 KiB as float32; --feature-type " +
		"float16 keeps them in 175.8 KiB"
	if !strings.Contains(r.String(), want) {
		t.Errorf("with types, the report lacks %q:\n%s", want, r)
	}
	dataset.SetLargeFeatures(t, 1<<18)
	for _, typed.DryRun = range []bool{false, true} {
		typed.Out = filepath.Join(dir, "u")
		if _, err := dataset.Import(typed); err == nil ||
			!strings.Contains(err.Error(), "--feature-type float16 stores these in") {
			t.Errorf("with types, %t: %v", typed.DryRun, err)
		}
	}
	o.Out = filepath.Join(dir, "e")
	if _, err := dataset.Import(o); err == nil ||
		!strings.Contains(err.Error(), "--feature-type sparse stores these in") ||
		!strings.Contains(err.Error(), "g.npz: x") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(o.Out); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	o.FeatureType = dataset.Float32
	if _, r := imported(t, o); strings.Contains(r.String(), "zeros") {
		t.Errorf("a type was asked for:\n%s", r)
	}
}
