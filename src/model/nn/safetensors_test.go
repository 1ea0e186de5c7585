package nn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSafetensorsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	want := []Tensor{
		{
			Name: "z.weight", Shape: []int{2, 3},
			Data: []float32{1, -2, 3, 4, 5, float32(math.Inf(1))},
		},
		{Name: "a.bias", Shape: []int{2}, Data: []float32{0.5, math.SmallestNonzeroFloat32}},
		{Name: "empty", Shape: []int{0, 4}, Data: []float32{}},
		{Name: "scalar \"ε\"", Shape: []int{}, Data: []float32{7}},
	}
	metadata := map[string]string{"format": "pt", "step": "12"}
	if err := WriteSafetensors(path, want, metadata); err != nil {
		t.Fatal(err)
	}
	got, gotMetadata, err := ReadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("tensors changed (-want +got):\n%s", d)
	}
	if d := cmp.Diff(metadata, gotMetadata); d != "" {
		t.Errorf("metadata changed (-want +got):\n%s", d)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("directory holds %v, want only the file", left)
	}
}

// The bytes equal those written by hand from the description of the format, which the reference
// implementation reads.
func TestSafetensorsBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	tensors := []Tensor{{Name: "w", Shape: []int{1, 2}, Data: []float32{1, -2}},
		{Name: "b", Shape: []int{1}, Data: []float32{0.5}}}
	if err := WriteSafetensors(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	header := `{"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},` +
		`"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}`
	header += strings.Repeat(" ", 128-8-len(header))
	want := "\x78\x00\x00\x00\x00\x00\x00\x00" + header + "\x00\x00\x80\x3f" + "\x00\x00\x00\xc0" +
		"\x00\x00\x00\x3f"
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, []byte(want)) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSafetensorsRefusesToWrite(t *testing.T) {
	one := []float32{1}
	for _, c := range []struct {
		name    string
		tensors []Tensor
		want    string
	}{
		{"a name twice", []Tensor{{Name: "a", Shape: []int{1}, Data: one},
			{Name: "a", Shape: []int{1}, Data: one}}, `"a" is taken`},
		{"the reserved name", []Tensor{{Name: "__metadata__", Shape: []int{1}, Data: one}},
			`"__metadata__" is taken`},
		{"shape and data differ", []Tensor{{Name: "a", Shape: []int{2}, Data: one}},
			"shape [2] but 1 elements"},
		{"negative extents", []Tensor{{Name: "a", Shape: []int{-1, -1}, Data: one}},
			"shape [-1 -1]"},
	} {
		path := filepath.Join(t.TempDir(), "m.safetensors")
		err := WriteSafetensors(path, c.tensors, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", c.name, err, c.want)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a file was left behind", c.name)
		}
	}
}

func TestSafetensorsDamage(t *testing.T) {
	file := func(header string, dataBytes int) []byte {
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return append(append(b, header...), make([]byte, dataBytes)...)
	}
	entry := func(dtype, shape, offsets string) string {
		return `{"w":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets +
			`}}`
	}
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty file", nil, "too few for a header"},
		{"header longer than the file", file("{}", 0)[:9],
			"a header of 2 bytes, but the file has only 9 bytes"},
		{"header length absurd", bytes.Repeat([]byte{0xff}, 64), "it claims a header"},
		{"header is no JSON", file("hello", 0), "header: invalid character"},
		{"entry of the wrong type", file(`{"w":[1]}`, 0), `header entry "w"`},
		{"half precision", file(entry("F16", "[2]", "[0,4]"), 4),
			`element type "F16"; convert it to float32`},
		{"cut short", file(entry("F32", "[2]", "[0,8]"), 7),
			"describes 8 bytes of elements, but the file holds 7"},
		{"bytes left over", file(entry("F32", "[2]", "[0,8]"), 9),
			"describes 8 bytes of elements, but the file holds 9"},
		{"shape and offsets differ", file(entry("F32", "[3]", "[0,8]"), 8),
			"of shape [3] lies at bytes 0 to 8"},
		{"a gap in front", file(entry("F32", "[1]", "[4,8]"), 8),
			"lies at bytes 4 to 8, but the tensor before it ends at byte 0"},
		{"offsets fall", file(entry("F32", "[1]", "[0,-4]"), 0), "lies at bytes 0 to -4"},
		{"negative extent", file(entry("F32", "[-1,-1]", "[0,4]"), 4), "of shape [-1 -1]"},
		{"extents overflow", file(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0),
			"of shape [4294967296 4294967296]"},
	} {
		path := filepath.Join(t.TempDir(), "damaged.safetensors")
		if err := os.WriteFile(path, c.file, 0o644); err != nil {
			t.Fatal(err)
		}
		_, _, err := ReadSafetensors(path)
		switch {
		case !errors.Is(err, ErrSafetensors):
			t.Errorf("%s: got %v, want ErrSafetensors", c.name, err)
		case !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path):
			t.Errorf("%s: got %v, want %q and the path in it", c.name, err, c.want)
		}
	}
	if _, _, err := ReadSafetensors("no-such-file"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
}
