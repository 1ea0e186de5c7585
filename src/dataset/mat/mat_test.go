package mat_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/dataset/mat"
	"halognn/src/dataset/mat/mattest"
)

var (
	sparse = mattest.Matrix{Name: "Network", Rows: 4, Cols: 3, Sparse: true,
		Entries: []mattest.Entry{{Row: 1, Col: 0, Value: 1}, {Row: 3, Col: 0, Value: 2.5},
			{Row: 0, Col: 2, Value: -7}}}
	labels = mattest.Matrix{Name: "Label", Rows: 3, Cols: 1, Values: []float64{1, 2, 1}}
	wide   = mattest.Matrix{Name: "X", Rows: 2, Cols: 2, Values: []float64{0.5, 1, -1, 300}}
)

func open(t *testing.T, content []byte) (*mat.File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.mat")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := mat.Open(path)
	if err == nil {
		t.Cleanup(func() { _ = f.Close() })
	}
	return f, err
}

func TestReadsEveryLayout(t *testing.T) {
	for name, form := range map[string]mattest.Form{
		"plain":      {},
		"compressed": {Compress: true},
		"big-endian": {Order: binary.BigEndian},
		"both":       {Compress: true, Order: binary.BigEndian},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := open(t, mattest.File(form, sparse, labels, wide))
			if err != nil {
				t.Fatal(err)
			}
			var got []mattest.Entry
			v := f.Lookup("network")
			if v == nil || v.Rows != 4 || v.Cols != 3 || !v.Sparse {
				t.Fatalf("Network is %+v", v)
			}
			if err := v.Entries(func(row, col int32, x float64) error {
				got = append(got, mattest.Entry{Row: int(row), Col: int(col), Value: x})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, sparse.Entries) {
				t.Errorf("entries %v, want %v", got, sparse.Entries)
			}
			for _, m := range []mattest.Matrix{labels, wide} {
				x, err := f.Lookup(m.Name).Dense()
				if err != nil || !slices.Equal(x, m.Values) {
					t.Errorf("%s: got %v, %v", m.Name, x, err)
				}
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	good := mattest.File(mattest.Form{}, sparse)
	squeezed := mattest.File(mattest.Form{Compress: true}, sparse)
	patched := func(at int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[at:], b)
		return c
	}
	hdf5 := patched(124, 0, 2)
	flipped := bytes.Clone(squeezed)
	flipped[len(flipped)-1] ^= 1 // the checksum of zlib
	outside := sparse
	outside.Rows = 2
	for _, c := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty", nil, "shorter than the header"},
		{"other file", []byte(strings.Repeat("x,y\n", 100)), "no byte order mark"},
		{"MATLAB 7.3", hdf5, "save -v7"},
		{"truncated", good[:len(good)-9], "truncated"},
		{"truncated, compressed", squeezed[:len(squeezed)-9], "truncated"},
		{"cut in a tag", good[:131], "truncated"},
		{"checksum", flipped, "at its end"},
		{"entry outside", mattest.File(mattest.Form{}, outside), "lies in row 3"},
		{"dense", mattest.File(mattest.Form{},
			mattest.Matrix{Name: "Network", Rows: 1, Cols: 1, Values: []float64{3}}),
			"it is double"},
		{"complex", patched(128+8+8+1, 0x08), "it is complex"},
		{"a struct", patched(128+8+8, 2), "it is a struct"},
		{"a size beyond the element", patched(128+8+16+4, 0xff, 0xff, 0xff, 0),
			"that holds at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := open(t, c.content)
			if err == nil {
				err = f.Lookup("Network").Entries(func(row, col int32,
					x float64) error {
					return nil
				})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "test.mat") {
				t.Errorf("got %v, want an error with %q and the file", err, c.want)
			}
			if !errors.Is(err, mat.ErrFormat) {
				t.Errorf("%v does not wrap ErrFormat", err)
			}
		})
	}
}

func TestVisitEndsEntries(t *testing.T) {
	f, err := open(t, mattest.File(mattest.Form{}, sparse))
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	if err := f.Lookup("Network").Entries(func(int32, int32,
		float64) error {
		return stop
	}); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

// For any bytes the reader returns, without a panic or excessive memory.
func FuzzMat(f *testing.F) {
	f.Add(mattest.File(mattest.Form{}, sparse, labels, wide))
	f.Add(mattest.File(mattest.Form{Compress: true}, sparse))
	f.Add(mattest.File(mattest.Form{Order: binary.BigEndian}, labels))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := mat.NewFile(bytes.NewReader(data), int64(len(data)), "fuzz.mat")
		if err != nil {
			return
		}
		for i := range m.Variables {
			v := &m.Variables[i]
			if x, err := v.Dense(); err == nil && len(x) > 1032*len(data) {
				t.Errorf("%d numbers from %d bytes", len(x), len(data))
			}
			_ = v.Entries(func(row, col int32, _ float64) error {
				if row < 0 || int(row) >= v.Rows || col < 0 || int(col) >= v.Cols {
					t.Fatalf("entry (%d, %d) of %s", row, col, v)
				}
				return nil
			})
		}
	})
}
