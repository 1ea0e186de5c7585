package npy

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"halognn/src/base/mem/memtest"
)

// fuzzHeap is what reading a few KB, which may inflate to a thousand times as much and become 8
// bytes an element, may take.
const fuzzHeap = 512 << 20

// sound returns small arrays of several types.
func sound(f *testing.F) (all [][]byte) {
	f.Helper()
	for _, h := range []Header{
		{DType: "<i8", Shape: []int{3}}, {DType: "<f4", Shape: []int{2, 2}, Fortran: true},
		{DType: "|u1", Shape: []int{}}, {DType: "|S3", Shape: []int{1}},
		{DType: "<f2", Shape: []int{0, 5}},
	} {
		size, err := dtypeSize(h.DType)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, append(h.format(), make([]byte, size*h.Elems())...))
	}
	return all
}

// readable reads an array as every kind of element, and returns how many there were.
func readable(t *testing.T, open func() (*Reader, error)) {
	read := func(elements func(r *Reader) (int, error)) {
		r, err := open()
		if err != nil {
			return
		}
		want := r.Elems()
		if n, err := elements(r); err == nil && n != want {
			t.Errorf("%d elements of %d", n, want)
		}
	}
	read(func(r *Reader) (int, error) { x, err := ReadAll[int64](r); return len(x), err })
	read(func(r *Reader) (int, error) { x, err := ReadAll[float32](r); return len(x), err })
	read(func(r *Reader) (int, error) { x, err := ReadAll[uint8](r); return len(x), err })
}

// Whatever a file holds, streaming and mapping it agree on whether it is an array.
func FuzzArray(f *testing.F) {
	path := filepath.Join(f.TempDir(), "a.npy")
	for _, a := range sound(f) {
		f.Add(a)
	}
	for _, name := range []string{"c.npy", "v2.npy", "empty.npy"} { // as NumPy writes them
		a, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		memtest.Bounded(t, fuzzHeap, func() {
			m, mapErr := Open(path)
			r, readErr := OpenReader(path)
			if (mapErr == nil) != (readErr == nil) {
				t.Errorf("mapping: %v, reading: %v", mapErr, readErr)
			}
			if mapErr == nil {
				_, _ = Elements[float32](m)
				_, _ = Elements[int64](m, -1)
				_ = m.Close()
			}
			if readErr == nil {
				_ = r.Close()
			}
			readable(t, func() (*Reader, error) { return OpenReader(path) })
		})
	})
}

// Whatever a file holds, its members are read or refused.
func FuzzZip(f *testing.F) {
	path := filepath.Join(f.TempDir(), "a.npz")
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for i, a := range sound(f) {
			w, err := z.CreateHeader(&zip.FileHeader{Name: string(rune('a'+i)) + ".npy",
				Method: method})
			if err != nil {
				f.Fatal(err)
			}
			_, _ = w.Write(a)
		}
		if err := z.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		memtest.Bounded(t, fuzzHeap, func() {
			z, err := OpenZip(path)
			if err != nil {
				return
			}
			defer z.Close()
			for _, name := range z.Names()[:min(len(z.Names()), 10)] {
				if !z.Has(name) {
					t.Errorf("%q is listed, and not there", name)
				}
				readable(t, func() (*Reader, error) { return z.Reader(name) })
				if r, err := z.Reader(name); err == nil {
					_, _ = ReadText(r)
				}
			}
		})
	})
}
