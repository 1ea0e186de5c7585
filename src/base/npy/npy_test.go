package npy

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
)

var golden = []float32{0, 0.25, 0.5, 0.75, 1, 1.25}

func TestMapReadsWhatNumPyWrote(t *testing.T) {
	for _, name := range []string{"c.npy", "v2.npy"} {
		a, err := Map[float32](filepath.Join("testdata", name), -1, 2)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.Data, golden) || !slices.Equal(a.Shape, []int{3, 2}) {
			t.Errorf("%s: got %v of shape %v", name, a.Data, a.Shape)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	a, err := Map[int64]("testdata/empty.npy", -1, 5)
	if err != nil || len(a.Data) != 0 {
		t.Errorf("empty array: %v, %v", a, err)
	}
}

func TestRefusals(t *testing.T) {
	whole, err := os.ReadFile("testdata/c.npy")
	if err != nil {
		t.Fatal(err)
	}
	edit := func(f func(b []byte) []byte) string {
		path := filepath.Join(t.TempDir(), "edited.npy")
		if err := os.WriteFile(path, f(slices.Clone(whole)), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := func(old, new string) string {
		return edit(func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(new), 1) })
	}
	float := func(path string) error { _, err := Map[float32](path); return err }
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"missing", float("testdata/none.npy"), "none.npy"},
		{"truncated", float(edit(func(b []byte) []byte { return b[:len(b)-3] })),
			"found 149 bytes, expected 152"},
		{"truncated header", float(edit(func(b []byte) []byte { return b[:40] })),
			"truncated in its header"},
		{"too long", float(edit(func(b []byte) []byte { return append(b, 0) })),
			"found 153 bytes, expected 152"},
		{"elements of no bytes",
			float(replace("'<f4', 'fortran_order': False, 'shape': (3, 2), }              ",
				"'|S0', 'fortran_order': False, 'shape': (3, 999999999999999), }")),
			"not a plain type"},
		{"empty file", float(edit(func([]byte) []byte { return nil })), "not a NumPy array file"},
		{"not npy", float(edit(func(b []byte) []byte { b[0] = 'x'; return b })),
			"not a NumPy array file"},
		{"version", float(edit(func(b []byte) []byte { b[6] = 9; return b })), "version 9"},
		{"no shape", float(replace("'shape'", "'shade'")), "cannot use the header"},
		{"absurd shape", float(replace("(3, 2), }          ", "(0, 9999999999999999999), }")),
			"not a possible one"},
		{"negative shape", float(replace("(3, 2)", "(-3,2)")), "not a possible one"},
		{"big-endian", float("testdata/big_endian.npy"), "big-endian"},
		{"objects", float("testdata/objects.npy"), "Python objects"},
		{"fortran", float("testdata/fortran.npy"), "Fortran order"},
		{"type", func() error { _, err := Map[int32]("testdata/c.npy", 3, 2); return err }(),
			"found <f4 [3 2], expected <i4 [3 2]"},
		{"shape", func() error { _, err := Map[float32]("testdata/c.npy", -1, 7); return err }(),
			"found <f4 [3 2], expected <f4 [? 7]"},
		{"rank", func() error { _, err := Map[float32]("testdata/c.npy", 6); return err }(),
			"expected <f4 [6]"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) ||
			!strings.Contains(c.err.Error(), ".npy") {
			t.Errorf("%s: error %v, want the file and %q", c.name, c.err, c.want)
		}
	}
}

func TestWriter(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.npy")
	for _, rows := range []int{3, -1} {
		w, err := Create(path, "<f4", rows, 2)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if err := Write(w, golden[2*i:2*i+2]); err != nil {
				t.Fatal(err)
			}
		}
		if err := Write(w, []int32{1}); !errors.Is(err, ErrType) {
			t.Errorf("wrote int32 into float32: %v", err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := os.ReadFile("testdata/c.npy")
		if !bytes.Equal(got, want) {
			t.Errorf("rows=%d: file differs from NumPy's", rows)
		}
		if sum, err := Hash(path); err != nil || sum != w.Info().XXH64 ||
			w.Info().Bytes != int64(len(got)) {
			t.Errorf("rows=%d: info %+v, hash %s, %v", rows, w.Info(), sum, err)
		}
		w.Abort() // after Close: no effect
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

func TestWriterLeavesNothingHalfWritten(t *testing.T) {
	for _, c := range []struct {
		name  string
		shape []int
		elems int
		want  string
	}{
		{"too few", []int{3, 2}, 5,
			"20 bytes of elements were written, but shape [3 2] of <f4 needs 24 bytes"},
		{"too many", []int{3}, 4, "16 bytes"},
		{"half a row", []int{-1, 2}, 3, "not a whole number of rows"},
	} {
		dir := t.TempDir()
		_, err := WriteFile(filepath.Join(dir, "x.npy"), make([]float32, c.elems), c.shape...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if names, _ := os.ReadDir(dir); len(names) != 0 {
			t.Errorf("%s: left behind: %v", c.name, names)
		}
	}
}

func TestHeaderHasNumPysForm(t *testing.T) {
	for _, shape := range [][]int{{}, {7}, {3, 2},
		{1000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}} {
		b := Header{DType: "<i8", Shape: shape}.format()
		h, begin, err := ReadHeader(bytes.NewReader(b))
		if err != nil || begin != len(b) || begin%headerAlign != 0 ||
			!slices.Equal(h.Shape, shape) || h.DType != "<i8" {
			t.Errorf("%v: %q parsed as %+v, %d, %v", shape, b, h, begin, err)
		}
	}
}

func TestFloat16AgreesWithNumPy(t *testing.T) {
	z, err := OpenZip("testdata/half.npz")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	wide, _, err := ZipRead[float32](z, "wide")
	if err != nil {
		t.Fatal(err)
	}
	half, _, err := ZipRead[uint16](z, "half")
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range wide {
		if got := ToFloat16(x); uint16(got) != half[i] {
			t.Fatalf("ToFloat16(%g) = %04x, NumPy has %04x", x, got, half[i])
		}
	}
	all, _, err := ZipRead[float32](z, "all")
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range all {
		if got := Float16(i).Float32(); got != x {
			t.Fatalf("Float16(%04x) = %g, NumPy has %g", i, got, x)
		}
	}
	for i := range 1 << 16 {
		h := Float16(i)
		x := h.Float32()
		if back := ToFloat16(x); back != h && (x == x || back.Float32() == back.Float32()) {
			t.Fatalf("%04x -> %g -> %04x", h, x, back)
		}
	}
}

func TestZip(t *testing.T) {
	z, err := OpenZip("testdata/stored.npz")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if x, shape, err := ZipRead[float32](z, "x"); err != nil || !slices.Equal(x, golden) ||
		!slices.Equal(shape, []int{3, 2}) {
		t.Errorf("x: %v %v %v", x, shape, err)
	}
	if x, _, err := ZipRead[float64](z, "half"); err != nil || x[5] != 1.25 {
		t.Errorf("half as float64: %v %v", x, err)
	}
	if ids, _, err := ZipRead[int32](z, "ids"); err != nil || !slices.Equal(ids, []int32{3, 1, 2}) {
		t.Errorf("ids: %v %v", ids, err)
	}
	if mask, _, err := ZipRead[uint8](z, "mask"); err != nil || !slices.Equal(mask, []uint8{1, 0}) {
		t.Errorf("mask: %v %v", mask, err)
	}
	if r, err := z.Reader("format"); err != nil {
		t.Error(err)
	} else if words, err := ReadText(r); err != nil || !slices.Equal(words, []string{"csr"}) {
		t.Errorf("format: %v %v", words, err)
	}
	if _, _, err := ZipRead[int64](z, "nosuch"); err == nil ||
		!strings.Contains(err.Error(), "it holds x, ids") {
		t.Errorf("missing array: %v", err)
	}
	if _, _, err := ZipRead[int32](z, "x"); err == nil || !strings.Contains(err.Error(), "0.25") {
		t.Errorf("fraction read as an integer: %v", err)
	}
}

func TestZipNoticesDamage(t *testing.T) {
	b, err := os.ReadFile("testdata/stored.npz")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, mem.Bytes(golden[4:]))
	b[at] ^= 1
	path := filepath.Join(t.TempDir(), "damaged.npz")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	z, err := OpenZip(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if _, _, err := ZipRead[float32](z, "x"); err == nil ||
		!strings.Contains(err.Error(), "checksum") {
		t.Errorf("a flipped bit: %v", err)
	}
	if _, err := OpenZip("testdata/c.npy"); err == nil {
		t.Error("opened a .npy as an archive")
	}
}

// What a member claims is made room for, so a small file must not claim more than it can hold.
func TestZipRefusesImpossibleClaims(t *testing.T) {
	const elements = 1 << 46
	header := Header{DType: "<i8", Shape: []int{elements}}.format()
	var content bytes.Buffer
	deflate, err := flate.NewWriter(&content, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deflate.Write(header); err != nil {
		t.Fatal(err)
	}
	if err := deflate.Close(); err != nil {
		t.Fatal(err)
	}
	// an honest size of what is stored, and one beyond the file
	for _, stored := range []int{content.Len(), 1 << 50} {
		z := claims(t, content, zip.FileHeader{Name: "ids.npy", CompressedSize64: uint64(stored),
			UncompressedSize64: uint64(len(header)) + 8*elements})
		if _, _, err := ZipRead[int64](z, "ids"); !errors.Is(err, ErrFormat) ||
			!strings.Contains(err.Error(), "ids") {
			t.Errorf("%d bytes said to be stored: %v", stored, err)
		}
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	}
}

// claims opens an archive of one deflated array, whose header says what it likes.
func claims(t *testing.T, content bytes.Buffer, h zip.FileHeader) *Zip {
	t.Helper()
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	h.Method = zip.Deflate
	w, err := archive.CreateRaw(&h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "claims.npz")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	z, err := OpenZip(path)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// A claim that deflate could keep, and does not, costs no more than what is there.
func TestReadingMakesRoomForWhatIsThere(t *testing.T) {
	const elements, stored = 50_000_000, 400_000
	header := Header{DType: "|u1", Shape: []int{elements}}.format()
	var content bytes.Buffer
	deflate, err := flate.NewWriter(&content, flate.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deflate.Write(append(header, make([]byte, stored)...)); err != nil {
		t.Fatal(err)
	}
	if err := deflate.Close(); err != nil {
		t.Fatal(err)
	}
	z := claims(t, content, zip.FileHeader{Name: "x.npy", CompressedSize64: uint64(content.Len()),
		UncompressedSize64: uint64(len(header)) + elements})
	defer z.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err = ZipRead[int64](z, "x")
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTruncated) {
		t.Errorf("got %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*8*stored {
		t.Errorf("%d bytes of memory for %d elements that are there", took, stored)
	}
}

func TestReadAllTurnsFortranOrder(t *testing.T) {
	r, err := OpenReader("testdata/fortran.npy")
	if err != nil {
		t.Fatal(err)
	}
	if x, err := ReadAll[float64](r); err != nil ||
		!slices.Equal(x, []float64{0, 0.25, 0.5, 0.75, 1, 1.25}) {
		t.Errorf("%v %v", x, err)
	}
}

func TestCast(t *testing.T) {
	check := func(name string, err error, ok bool) {
		if (err == nil) != ok {
			t.Errorf("%s: error %v", name, err)
		}
	}
	check("int64 to int32", cast(make([]int32, 1), []int64{math.MaxInt32}), true)
	check("int64 over int32", cast(make([]int32, 1), []int64{math.MaxInt32 + 1}), false)
	check("negative to unsigned", cast(make([]uint64, 1), []int64{-1}), false)
	check("uint64 over int64", cast(make([]int64, 1), []uint64{1 << 63}), false)
	check("whole float", cast(make([]int64, 1), []float64{-3}), true)
	check("NaN to int", cast(make([]int64, 1), []float64{math.NaN()}), false)
	check("float 2^63", cast(make([]int64, 1), []float64{0x1p63}), false)
	check("rounded float", cast(make([]float32, 1), []float64{0.1}), true)
}
