package pickle_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"halognn/src/dataset/pickle"
	"halognn/src/dataset/pickle/pickletest"
)

func TestReadCSR(t *testing.T) {
	m, err := pickle.ReadCSR(pickletest.CSR(5,
		[][]pickletest.Entry{{{Col: 4, Value: 2.5}, {Col: 0, Value: -1}}, nil,
			{{Col: 2, Value: 1}}}))
	if err != nil {
		t.Fatal(err)
	}
	if m.Rows != 3 || m.Cols != 5 || !slices.Equal(m.Indptr, []int64{0, 2, 2, 3}) ||
		!slices.Equal(m.Indices, []int64{4, 0, 2}) ||
		!slices.Equal(m.Values, []float64{2.5, -1, 1}) {
		t.Errorf("got %+v", m)
	}
}

func TestReadArray(t *testing.T) {
	a, err := pickle.ReadArray(pickletest.OneHot(3, []int{2, -1, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	if a.Rows != 4 || a.Cols != 3 ||
		!slices.Equal(a.Values, []float64{0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0}) {
		t.Errorf("got %+v", a)
	}
}

func TestReadLists(t *testing.T) {
	l, err := pickle.ReadLists(pickletest.Lists([][]int{{1, 70000}, nil, {0}}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.Keys, []int64{0, 1, 2}) || !slices.Equal(l.Offsets, []int64{0, 2, 2, 3}) ||
		!slices.Equal(l.Values, []int64{1, 70000, 0}) {
		t.Errorf("got %+v", l)
	}
}

// Integers come in every width that Python 2 chooses.
func TestIntegerForms(t *testing.T) {
	l, err := pickle.ReadLists([]byte("\x80\x02}(K\x07](K\xffM\xff\xffJ\xfe\xff\xff\xff" +
		"\x8a\x00\x8a\x02\x00\xff\x8a\x05\x00\x00\x00\x00\x01eu."))
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{255, 65535, -2, 0, -256, 1 << 32}; !slices.Equal(l.Values, want) {
		t.Errorf("got %v, want %v", l.Values, want)
	}
}

func TestBadPickles(t *testing.T) {
	csr := pickletest.CSR(5, [][]pickletest.Entry{{{Col: 1, Value: 1}}})
	lists := pickletest.Lists([][]int{{1}, {0}})
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "truncated"},
		{"forbidden global", pickletest.Global("os", "system", "echo gotcha"),
			`"os.system" is refused`},
		{"forbidden builtin", pickletest.Global("__builtin__", "eval", "1"),
			`"__builtin__.eval" is refused`},
		{"known global called otherwise", pickletest.Global("numpy", "dtype", "O8"),
			"in a way no Planetoid file does"},
		{"object dtype", bytes.Replace(csr, []byte("U\x02i4"), []byte("U\x02O8"), 1), `dtype "O8"`},
		{"protocol 4", []byte("\x80\x04."), "protocol 4"},
		{"unknown opcode", []byte("\x80\x02F1.0\n."), "opcode 0x46"},
		{"other object", lists, "want a scipy.sparse csr_matrix"},
		{"none", []byte("\x80\x02N."), "holds None"},
		{"stop on nothing", []byte("\x80\x02."), "stack is empty"},
		{"pop below a mark", []byte("\x80\x02}(K\x01u"), "without a value"},
		{"memo never stored", []byte("\x80\x02h\x09."), "never stored"},
		{"mark missing", []byte("\x80\x02t."), "mark is missing"},
		{"column outside", pickletest.CSR(1, [][]pickletest.Entry{{{Col: 3, Value: 1}}}),
			"column 3 of 1"},
		{"rows and offsets differ",
			bytes.Replace(csr, []byte("_shapeJ\x01"), []byte("_shapeJ\x02"), 1),
			"do not fit together"},
		{"array shorter than its shape",
			bytes.Replace(csr, []byte("(K\x01J\x02"), []byte("(K\x01J\x03"), 1),
			"shape [3] with 8 bytes"},
		{"class never built", []byte("\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81."),
			"without a usable shape"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pickle.ReadCSR(c.data)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	for n := range csr {
		if _, err := pickle.ReadCSR(csr[:n]); err == nil {
			t.Errorf("no error for the first %d of %d bytes", n, len(csr))
		}
	}
}

// A list shared by many keys would make a small file grow without bound.
func TestSharedListsAreRefused(t *testing.T) {
	b := []byte("\x80\x02](" + strings.Repeat("K\x01", 1000) + "eq\x00}(")
	b = append(b, strings.Repeat("K\x01h\x00", 1000)+"u."...)
	_, err := pickle.ReadLists(b)
	if err == nil || !strings.Contains(err.Error(), "shared between keys") {
		t.Errorf("got %v", err)
	}
}

// For any bytes the readers return, without a panic or excessive memory.
func FuzzPickle(f *testing.F) {
	f.Add(pickletest.CSR(5, [][]pickletest.Entry{{{Col: 4, Value: 2.5}}, nil}))
	f.Add(pickletest.OneHot(3, []int{2, -1, 0}))
	f.Add(pickletest.Lists([][]int{{1, 2}, nil}))
	f.Add(pickletest.Global("os", "system", "true"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := pickle.ReadCSR(data); err == nil && len(m.Indptr) > len(data) {
			t.Errorf("%d row offsets from %d bytes", len(m.Indptr), len(data))
		}
		if a, err := pickle.ReadArray(data); err == nil && len(a.Values) > len(data) {
			t.Errorf("%d values from %d bytes", len(a.Values), len(data))
		}
		if l, err := pickle.ReadLists(data); err == nil && len(l.Values)+len(l.Keys) > 2*len(data) {
			t.Errorf("%d items from %d bytes", len(l.Values), len(data))
		}
	})
}
