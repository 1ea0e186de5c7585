package dataset

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"halognn/src/dataset/mat"
)

// readMat reads MATLAB 5 files in one of two layouts, distinguished by their variables.
//
//	attributed graph   Network [N, N], Attributes [N, F] sparse or dense, Label [N, 1] or [N, C]
//	Facebook100        A [N, N], local_info [N, 7]: one file a school; a directory is joined, the
//	                   largest school first
//
// Both store each edge in both directions.
func readMat(s *source) error {
	paths := []string{s.options.In}
	if info, err := os.Stat(s.options.In); err != nil {
		return err
	} else if info.IsDir() {
		paths, _ = filepath.Glob(filepath.Join(s.options.In, "*.mat")) // the pattern is sound
	}
	var files []*mat.File
	facebook := 0
	for _, path := range paths {
		f, err := mat.Open(path)
		if err != nil {
			return err
		}
		s.release = append(s.release, func() { _ = f.Close() })
		files = append(files, f)
		if f.Lookup("local_info") != nil {
			facebook++
		}
	}
	switch {
	case len(files) > 0 && facebook == len(files):
		return readFacebook(s, paths, files)
	case len(files) == 1:
		return readAttributedMat(s, paths[0], files[0])
	}
	return fmt.Errorf("%s: %d .mat files, %d of them from Facebook100 (with local_info); want "+
		"one file, or a directory of Facebook100 only", s.options.In, len(files), facebook)
}

// lookup returns the first of the named variables that exists.
func lookup(f *mat.File, names ...string) *mat.Variable {
	for _, n := range names {
		if v := f.Lookup(n); v != nil {
			return v
		}
	}
	return nil
}

func readAttributedMat(s *source, path string, f *mat.File) error {
	network := lookup(f, "Network", "A")
	if network == nil {
		have := make([]string, len(f.Variables))
		for i := range f.Variables {
			have[i] = f.Variables[i].String()
		}
		return fmt.Errorf("%s: no variable Network or A; it holds %s", path,
			strings.Join(have, ", "))
	}
	if network.Rows != network.Cols {
		return fmt.Errorf("%s: %s, want a square matrix", path, network)
	}
	if err := s.setVertices(int64(network.Rows), path); err != nil {
		return err
	}
	if v := lookup(f, "Attributes", "X"); v != nil {
		if err := setMatFeatures(s, path, v); err != nil {
			return err
		}
	}
	if err := addNetwork(s, path, network, 0); err != nil {
		return err
	}
	if v := lookup(f, "Label", "Class", "gnd", "group"); v != nil {
		return readMatLabels(s, path, v)
	}
	return nil
}

// addNetwork adds an edge row -> column for every nonzero entry, numbering vertices from first.
func addNetwork(s *source, path string, v *mat.Variable, first int64) error {
	return eachEntry(v, func(row, col int, x float64) error {
		if x == 0 {
			return nil
		}
		return s.addEdge(first+int64(row), first+int64(col))
	})
}

// eachEntry yields the entries of a sparse matrix, or all of a dense one.
func eachEntry(v *mat.Variable, yield func(row, col int, value float64) error) error {
	if v.Sparse {
		return v.Entries(func(row, col int32,
			x float64) error {
			return yield(int(row), int(col), x)
		})
	}
	values, err := v.Dense()
	if err != nil {
		return err
	}
	for i, x := range values {
		if err := yield(i%v.Rows, i/v.Rows, x); err != nil {
			return err
		}
	}
	return nil
}

func setMatFeatures(s *source, path string, v *mat.Variable) error {
	if v.Rows != s.vertices {
		return fmt.Errorf("%s: %s, want a row for each of the %d vertices", path, v, s.vertices)
	}
	file := path + ": " + v.Name
	if v.Sparse {
		m, err := fillSparse(v.Rows, v.Cols,
			func(yield func(row, col int, value float64) error) error {
				return eachEntry(v,
					yield)
			})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return s.setSparse(file, v.Cols, m)
	}
	return s.setFeatures(file, v.Cols, Float32, -1, func(w *RowWriter) error {
		values, err := v.Dense()
		if err != nil {
			return err
		}
		row := make([]float32, v.Cols)
		for r := range v.Rows {
			for c := range row {
				row[c] = float32(values[c*v.Rows+r])
			}
			if err := w.Write(row); err != nil {
				return err
			}
		}
		return nil
	})
}

// readMatLabels reads one label a vertex, counted from 1 as in MATLAB or from 0, or a matrix of
// marks.
func readMatLabels(s *source, path string, v *mat.Variable) error {
	fail := func(err error) error {
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", path, v.Name, err)
		}
		return err
	}
	rows, cols := v.Rows, v.Cols
	if rows == 1 && cols == s.vertices && s.vertices > 1 { // a row vector
		rows, cols = cols, rows
	}
	if rows != s.vertices || cols < 1 {
		return fmt.Errorf("%s: %s, want a row for each of the %d vertices", path, v, s.vertices)
	}
	if cols > 1 {
		if err := s.makeMarks(cols, path); err != nil {
			return err
		}
		return fail(eachEntry(v, s.setMark))
	}
	labels, err := v.Dense()
	if err != nil || len(labels) == 0 {
		return err
	}
	least := math.Inf(1)
	for _, y := range labels {
		if y >= 0 { // NaN and -1 mean no label
			least = min(least, y)
		}
	}
	for i, y := range labels {
		if least >= 1 && y >= 0 {
			y--
		}
		if err := s.setLabel(i, y); err != nil {
			return fail(err)
		}
	}
	return nil
}
