package nn

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"halognn/src/base/mem/memtest"
)

// Any bytes are either rejected, or give tensors that can be written and read again.
func FuzzSafetensors(f *testing.F) {
	for _, tensors := range [][]Tensor{
		nil,
		{{Name: "a", Shape: []int{2, 3}, Data: make([]float32, 6)},
			{Name: "b", Data: []float32{7}}},
		{{Name: "empty", Shape: []int{0, 4}}, {Name: "c", Shape: []int{1}, Data: []float32{1}}},
	} {
		var b bytes.Buffer
		if err := FormatSafetensors(&b, tensors, map[string]string{"kind": "sage"}); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		memtest.Bounded(t, 64<<20, func() {
			tensors, metadata, err := ParseSafetensors(content)
			if err != nil {
				return
			}
			var b bytes.Buffer
			if err := FormatSafetensors(&b, tensors, metadata); err != nil {
				t.Fatal(err)
			}
			again, meta, err := ParseSafetensors(b.Bytes())
			if err != nil {
				t.Fatalf("what was read and written is refused: %v", err)
			}
			same := cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateNaNs()}
			if d := cmp.Diff(tensors, again, same) + cmp.Diff(metadata, meta, same); d != "" {
				t.Errorf("written and read again: %s", d)
			}
		})
	})
}
