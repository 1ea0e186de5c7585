package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// tiny is a graph of five vertices, two features, three classes.
func tiny(t *testing.T, dir, featureType string) *Writer {
	t.Helper()
	g, err := graph.FromEdges(5, []graph.VertexID{0, 1, 4}, []graph.VertexID{1, 0, 2})
	if err != nil {
		t.Fatal(err)
	}
	w, err := Create(dir, Meta{Name: "tiny", Task: task.Multiclass, Features: 2, Classes: 3,
		FeatureType: featureType})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Topology(g); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(w.WriteFeatures(2, featureType, nil, func(rows *RowWriter) error {
		for v := range 5 {
			if err := rows.Write([]float32{float32(v), 0.1}); err != nil {
				return err
			}
		}
		return nil
	}), w.Labels(mem.Bytes([]int32{0, 2, 1, -1, 0})),
		w.Splits(graph.Split{Train: []graph.VertexID{4, 0}, Valid: []graph.VertexID{1},
			Test: []graph.VertexID{2}}))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWriteOpenVerify(t *testing.T) {
	for _, featureType := range []string{Float32, Float16, Int8} {
		dir := filepath.Join(t.TempDir(), "sub", "tiny")
		if err := tiny(t, dir, featureType).Close(); err != nil {
			t.Fatal(err)
		}
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := d.Verify(); err != nil {
			t.Error(err)
		}
		row := make([]float32, 2)
		d.FeatureRow(row, 3)
		want := [2]float32{3, 0.1}
		switch featureType {
		case Float16:
			want[1] = npy.ToFloat16(0.1).Float32()
		case Int8: // 95.25 steps of 4 / 127, and 127 of 0.1 / 127
			want = [2]float32{95 * float32(4./127), 127 * (float32(0.1) / 127)}
		}
		if [2]float32(row) != want ||
			len(d.FeatureRows(0, 0, d.Meta.Vertices)) != 5*d.Meta.Table(0).RowBytes() {
			t.Errorf("%s: features of vertex 3 are %v", featureType, row)
		}
		if !slices.Equal(d.Split.Train, []graph.VertexID{0, 4}) ||
			!slices.Equal(npy.View[int32](d.Labels.Data), []int32{0, 2, 1, -1, 0}) ||
			!slices.Equal(d.Graph.InNeighbours(2), []graph.VertexID{4}) {
			t.Errorf("%s: read back train %v, labels %v, in-neighbours %v", featureType,
				d.Split.Train, d.Labels, d.Graph.InNeighbours(2))
		}
		if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 1 {
			t.Errorf("left beside the dataset: %v", entries)
		}
	}
}

func TestWhatIsLeftOutIsEmpty(t *testing.T) {
	dir := t.TempDir() // an empty directory may be the target
	w, err := Create(dir, Meta{Name: "bare", Task: task.None})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := graph.FromEdges(3, nil, nil)
	if err := errors.Join(w.Topology(g), w.Close()); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Verify(); err != nil ||
		!slices.Equal(npy.View[int32](d.Labels.Data), []int32{-1, -1, -1}) ||
		d.Meta.Table(0).RowBytes() != 0 {
		t.Errorf("labels %v, %v", d.Labels, err)
	}
}

func TestMultilabel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	w, err := Create(dir, Meta{Task: task.Multilabel, Classes: 2})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := graph.FromEdges(2, nil, nil)
	if err := errors.Join(w.Topology(g), w.Labels([]uint8{1, 0, 1, 1}),
		w.Close()); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Verify(); err != nil || !slices.Equal(d.Labels.Data, []uint8{1, 0, 1, 1}) {
		t.Errorf("%v, %v", d.Labels.Data, err)
	}
}

func TestWriterRefuses(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name string
		do   func(w *Writer) error
		want string
	}{
		{"label too large",
			func(w *Writer) error { return w.Labels(mem.Bytes([]int32{0, 0, 3, 0, 0})) },
			"label of vertex 2 is 3"},
		{"label below -1",
			func(w *Writer) error { return w.Labels(mem.Bytes([]int32{-2, 0, 0, 0, 0})) },
			"label of vertex 0 is -2"},
		{"too few labels", func(w *Writer) error { return w.Labels(nil) },
			"0 bytes of labels"},
		{"bad mark", func(w *Writer) error {
			w.Meta.Task = task.Multilabel
			return w.Labels(slices.Repeat([]uint8{2}, 15))
		},
			"class 0 is 2"},
		{"split out of range",
			func(w *Writer) error { return w.Splits(graph.Split{Test: []graph.VertexID{5}}) },
			"test split, entry 0: vertex 5"},
		{"overlap", func(w *Writer) error {
			return w.Splits(graph.Split{Train: []graph.VertexID{1}, Test: []graph.VertexID{1}})
		}, "listed twice"},
		{"seed without label", func(w *Writer) error {
			return errors.Join(w.Splits(graph.Split{Train: []graph.VertexID{1}}), w.Close())
		}, "vertex 1 is in a split but has no label"},
		{"twice", func(w *Writer) error {
			return errors.Join(w.Splits(graph.Split{}),
				w.Splits(graph.Split{}))
		}, "written twice"},
		{"rows for other vertices",
			func(w *Writer) error { _, err := w.Features(4, 2, ""); return err },
			"4 feature rows, but 5 vertices"},
		{"NaN", func(w *Writer) error {
			r, _ := w.Features(5, 2, Float32)
			return r.Write([]float32{0, 0, 0, nan})
		}, "vertex 1, column 1 is NaN"},
		{"infinity in a later row", func(w *Writer) error {
			r, _ := w.Features(5, 2, Float32)
			return errors.Join(r.Write(make([]float32, 6)),
				r.Write([]float32{float32(math.Inf(-1)), 0}))
		}, "vertex 3, column 0 is -Inf"},
		{"beyond float16", func(w *Writer) error {
			r, _ := w.Features(5, 2, Float16)
			return r.Write([]float32{70000, 0})
		}, "float16 ends at 65504"},
		{"bytes without scales",
			func(w *Writer) error { _, err := w.Features(5, 2, Int8); return err }, "need scales"},
		{"a scale below what float32 holds", func(w *Writer) error {
			return w.WriteFeatures(2, Int8, nil, func(r *RowWriter) error {
				return r.Write([]float32{0, 1e-40, 0, 0, 0, 0, 0, 0, 1, 0})
			})
		}, "largest number of column 1 is 1e-40"},
		{"a scale above", func(w *Writer) error {
			return w.WriteFeatures(2, Int8,
				&scaling{shift: []float64{0, 0}, factor: []float64{1e30, 1}},
				func(r *RowWriter) error {
					return r.Write([]float32{0, 0, 0, 0, 1e9, 0, 0, 0, 1, 0})
				})
		}, "vertex 2, column 0 is +Inf"},
		{"NaN in bytes", func(w *Writer) error {
			return w.WriteFeatures(2, Int8, nil, func(r *RowWriter) error {
				return r.Write([]float32{0, 0, nan, 0, 0, 0, 0, 0, 1, 0})
			})
		}, "vertex 1, column 0 is NaN"},
		{"half a row", func(w *Writer) error {
			r,
				_ := w.Features(5, 2, "")
			return r.Write([]float32{0})
		}, "not a whole number of rows"},
		{"rows missing", func(w *Writer) error { r, _ := w.Features(5, 2, ""); return r.Close() },
			"0 bytes of elements were written"},
		{"rows not closed", func(w *Writer) error {
			_,
				err := w.Features(5, 2, "")
			return errors.Join(err, w.Close())
		},
			"rows were not closed"},
		{"type", func(w *Writer) error { _, err := w.Features(5, 2, "float8"); return err },
			"float8"},
	} {
		parent := t.TempDir()
		w, err := Create(filepath.Join(parent, "d"), Meta{Task: task.Multiclass, Classes: 3})
		if err != nil {
			t.Fatal(err)
		}
		g, _ := graph.FromEdges(5, nil, nil)
		if err := w.Topology(g); err != nil {
			t.Fatal(err)
		}
		if err := c.do(w); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		w.Abort()
		if left, _ := os.ReadDir(parent); len(left) != 0 {
			t.Errorf("%s: left behind: %v", c.name, left)
		}
	}
}

func TestCreateKeepsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, Meta{}); !errors.Is(err, ErrExists) ||
		!strings.Contains(err.Error(), "not empty") {
		t.Errorf("a filled directory: %v", err)
	}
	if _, err := Create(filepath.Join(dir, "mine"), Meta{}); !errors.Is(err, ErrExists) {
		t.Errorf("a file: %v", err)
	}
}

// damage changes one file of a fresh dataset and returns the error of Open or, if it has none, of
// Verify.
func damage(t *testing.T, name string, change func(b []byte) []byte) error {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny")
	if err := tiny(t, dir, Float32).Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b = change(b); b == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Verify()
}

func TestDamageIsNamed(t *testing.T) {
	last := func(x ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[len(b)-len(x):], x); return b }
	}
	cut := func(b []byte) []byte { return b[:len(b)-4] }
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte
		want       []string
	}{
		{"flipped bit", "features.npy", last(1), []string{"features.npy", "XXH64"}},
		{"NaN", "features.npy", last(0, 0, 0xc0, 0x7f),
			[]string{"features.npy: features: vertex 4, column 1 is NaN"}},
		{"label", "labels.npy", last(9, 0, 0, 0), []string{"labels.npy: label of vertex 4 is 9"}},
		{"source", "indices.npy", last(5, 0, 0, 0),
			[]string{"indices.npy: edge 2 comes from vertex 5"}},
		{"indptr", "indptr.npy", last(7), []string{"indptr.npy", "runs from 0 to"}},
		{"split", "test.npy", last(4, 0, 0, 0), []string{"test.npy", "vertex 4 is listed twice"}},
		{"truncated", "features.npy", cut,
			[]string{"features.npy", "truncated", "found 164 bytes, expected 168"}},
		{"missing", "labels.npy", func([]byte) []byte { return nil }, []string{"labels.npy"}},
		{"another array", "train.npy", func(b []byte) []byte {
			return bytes.Replace(b, []byte("'<i4'"), []byte("'<f4'"), 1)
		}, []string{"train.npy", "found <f4 [2], expected <i4 [2]"}},
		{"no meta", metaFile, func([]byte) []byte { return nil },
			[]string{"is not a dataset", "halognn generate"}},
		{"meta of another format", metaFile, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"format": 1`), []byte(`"format": 9`), 1)
		}, []string{metaFile, "version 9"}},
		{"meta with other counts", metaFile, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"vertices": 5`), []byte(`"vertices": 6`), 1)
		}, []string{metaFile, "features.npy", "expected <f4 [6 2]"}},
		{"meta cut short", metaFile, cut, []string{metaFile, "unexpected end"}},
	} {
		err := damage(t, c.file, c.change)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", c.name, err, want)
			}
		}
	}
}

func TestParseFractions(t *testing.T) {
	for text, want := range map[string]Fractions{
		"60/20/20":         {0.6, 0.2, 0.2},
		"0.6/0.2/0.2":      {0.6, 0.2, 0.2},
		"0.33/0.56/0.11":   {0.33, 0.56, 0.11},
		"3.5/5/10":         {0.035, 0.05, 0.1},
		"10/1/2":           {0.1, 0.01, 0.02},
		"1/1/1":            {0.01, 0.01, 0.01},
		"0.5%/0.2%/0.4%":   {0.005, 0.002, 0.004},
		" 60 % / 20% /20%": {0.6, 0.2, 0.2},
	} {
		f, err := ParseFractions(text)
		for i := range f {
			if math.Abs(f[i]-want[i]) > 1e-15 {
				err = errors.Join(err, fmt.Errorf("share %d is %g", i, f[i]))
			}
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for bad, want := range map[string]string{
		"":            "want three",
		"60/40":       "want three",
		"a/b/c":       `"a" is no share`,
		"-1/50/51":    "no share",
		"60/20/20/0":  "want three",
		"NaN/1/1":     "no share",
		"0/0/0":       "all shares are 0",
		"60/20/30":    "adds up to 110 percent: write shares that add up to at most 100",
		"90%/20%/20%": "adds up to 130 percent",
		"0.7/0.2/0.2": "adds up to 1.1: write shares that add up to at most 1, or percent as " +
			"0.7%/0.2%/0.2%",
		"0.6/5/10":  "write percent as 0.6%/5%/10%, or fractions that add up to at most 1",
		"60%/20/20": "write percent as 60%/20%/20%",
		"1/0/0":     "write everything as 100/0/0, or percent as 1%/0%/0%",
	} {
		f, err := ParseFractions(bad)
		if !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", bad, f, err)
		}
	}
}

func TestSplitLaws(t *testing.T) {
	for _, c := range []struct {
		name, shares       string
		n                  int
		train, valid, test int
	}{
		{"all", "60/20/20", 101, 60, 20, 21}, {"exact", "60/20/20", 10, 6, 2, 2},
		{"some", "8/2/10", 1000, 80, 20, 100},
		{"none", "60/20/20", 0, 0, 0, 0}, {"one", "50/25/25", 1, 0, 0, 1},
		{"no test", "90/10/0", 10, 9, 1, 0},
	} {
		f, err := ParseFractions(c.shares)
		if err != nil {
			t.Fatal(err)
		}
		vertices := make([]graph.VertexID, c.n)
		for i := range vertices {
			vertices[i] = graph.VertexID(2 * i)
		}
		s := f.Split(vertices, 7)
		if len(s.Train) != c.train || len(s.Valid) != c.valid || len(s.Test) != c.test {
			t.Errorf("%s: %d, %d, %d vertices", c.name, len(s.Train), len(s.Valid), len(s.Test))
		}
		if err := s.Validate(2 * c.n); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		again, other := f.Split(vertices, 7), f.Split(vertices, 8)
		if !slices.Equal(again.Train, s.Train) || c.train > 1 &&
			slices.Equal(other.Train, s.Train) {
			t.Errorf("%s: the split does not follow its seed", c.name)
		}
	}
}

func TestStreamsAreUniform(t *testing.T) {
	s := newStream(1, 2)
	const draws = 100000
	var sum, squares, mean float64
	count := make([]int, 7)
	for range draws {
		x := float64(s.noise())
		sum, squares = sum+x, squares+x*x
		mean += s.float()
		count[s.intn(7)]++
	}
	if m, v := sum/draws, squares/draws; math.Abs(m) > 0.02 || math.Abs(v-1) > 0.03 ||
		math.Abs(mean/draws-0.5) > 0.01 {
		t.Errorf("noise has mean %g and variance %g, floats have mean %g", m, v, mean/draws)
	}
	for i, k := range count {
		if math.Abs(float64(k)-draws/7) > 5*math.Sqrt(draws/7) {
			t.Errorf("intn(7) gave %d %d times of %d", i, k, draws)
		}
	}
	if a, b := newStream(1, 2, 3), newStream(1, 3, 2); a == b {
		t.Error("keys in another order name the same stream")
	}
}
