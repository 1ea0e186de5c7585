package dataset_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
)

// Numbers to predict come from columns of a table or of an array; vertices without any are in no
// split, and the dataset can be verified.
func TestImportNumbers(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name  string
		make  func(t testing.TB, dir string, o *dataset.ImportOptions)
		names []string
		want  []float64
	}{
		{"table", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			nodes("id,f,volt,angle\na,1,0.5,-3\nb,1,,\nc,2,2,1e-3\n")(t, dir, o)
			o.Table.Labels = []string{"volt", "angle"}
		}, []string{"volt", "angle"}, []float64{0.5, -3, nan, nan, 2, 1e-3}},
		{"array", inArrays(plus("y", func(t testing.TB) []byte {
			return array(t, []float64{-1, nan, 3}, 3)
		})), nil, []float64{-1, nan, 3}},
	} {
		dir := t.TempDir()
		o := dataset.ImportOptions{Out: filepath.Join(dir, "new"), Task: "regression",
			Split: "50/50/0"}
		c.make(t, dir, &o)
		r, err := dataset.Import(o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		d, err := dataset.Open(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		got := npy.View[float32](d.Labels.Data)
		if r.Task != "regression" || r.Classes != len(c.want)/3 || r.Labelled != 2 ||
			len(d.Split.Train) != 1 || len(d.Split.Valid) != 1 ||
			d.Split.Train[0] == 1 || d.Split.Valid[0] == 1 {
			t.Errorf("%s: %+v, split %v", c.name, r, d.Split)
		}
		if !slices.EqualFunc(got, c.want, func(x float32, y float64) bool {
			return x == float32(y) || x != x && y != y
		}) || !slices.Equal(d.Meta.Provenance.Classes, c.names) {
			t.Errorf("%s: %v of %v, want %v of %v", c.name, got, d.Meta.Provenance.Classes, c.want,
				c.names)
		}
		if err := errors.Join(d.Verify(), d.Close()); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
