package dataset_test

import (
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// Ids of numbers with a point are exact, or an error: how large they may be is the type's.
func TestIDsOfNumbersWithAPoint(t *testing.T) {
	half := func(bits ...uint16) []byte {
		var data []byte
		for _, b := range bits {
			data = append(data, byte(b), byte(b>>8))
		}
		return texts("<f2", data, "3", "")
	}
	for _, c := range []struct {
		ids  []byte
		want string
	}{
		{array(t, []float32{1, 2, 16777215}, 3), ""},
		{array(t, []float32{1, 2, 16777217}, 3), "f4 hold whole numbers below 2^24"},
		{array(t, []float32{1, 2, -16777216}, 3), "vertex 2"},
		{array(t, []float64{1, 2, 16777217}, 3), ""},
		{array(t, []float64{1, 2, 1 << 53}, 3), "2^53"},
		{half(0x3c00, 0x4000, 0x67ff), ""}, // 1, 2, 2047
		{half(0x3c00, 0x4000, 0x6800), "f2 hold whole numbers below 2^11"},
		{array(t, []int64{1, 2, 1 << 60}, 3), ""},
	} {
		o := dataset.ImportOptions{Out: filepath.Join(t.TempDir(), "d")}
		inArrays(plus("ids", func(testing.TB) []byte { return c.ids }))(t, t.TempDir(), &o)
		if _, err := dataset.Import(o); c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
