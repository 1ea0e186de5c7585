package dataset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// arrays is a set of NumPy arrays with names: an .npz archive, or a directory of .npy files.
type arrays interface {
	Has(name string) bool
	Names() []string
	Reader(name string) (*npy.Reader, error)
	Close() error
}

// npyDir is a directory of .npy files as arrays.
type npyDir string

func (d npyDir) path(name string) string { return filepath.Join(string(d), name+".npy") }
func (d npyDir) Has(name string) bool    { return exists(d.path(name)) }
func (d npyDir) Close() error            { return nil }

func (d npyDir) Reader(name string) (*npy.Reader, error) { return npy.OpenReader(d.path(name)) }

func (d npyDir) Names() []string { return filesIn(string(d), ".npy") }

// joined is an archive together with the arrays beside it. It looks a name up in the archive first.
type joined struct {
	arrays
	beside npyDir
}

func (j joined) Has(name string) bool { return j.arrays.Has(name) || j.beside.Has(name) }

func (j joined) Names() []string {
	return append(slices.Clone(j.arrays.Names()), j.beside.Names()...)
}

func (j joined) Reader(name string) (*npy.Reader, error) {
	if j.arrays.Has(name) {
		return j.arrays.Reader(name)
	}
	return j.beside.Reader(name)
}

// openArrays opens a directory of .npy files or an .npz archive.
func openArrays(path string) (arrays, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return undotted(npyDir(path)), nil
	}
	z, err := npy.OpenZip(path)
	if err != nil {
		return nil, err
	}
	return undotted(z), nil
}

// undotted returns the arrays of a under their usual names: an array adj_matrix.indptr is found as
// adj_indptr.
func undotted(a arrays) arrays {
	if a.Has("adj_matrix.indptr") {
		return dotted{a}
	}
	return a
}

// dotted is an attributed graph whose arrays are called adj_matrix.data, attr_matrix.data and so
// on.
type dotted struct{ arrays }

func (d dotted) inner(name string) string {
	for _, of := range []string{"adj", "attr"} {
		if part, is := strings.CutPrefix(name, of+"_"); is && d.arrays.Has(of+"_matrix."+part) {
			return of + "_matrix." + part
		}
	}
	return name
}

func (d dotted) Has(name string) bool                    { return d.arrays.Has(d.inner(name)) }
func (d dotted) Reader(name string) (*npy.Reader, error) { return d.arrays.Reader(d.inner(name)) }

func (d dotted) Names() []string {
	names := slices.Clone(d.arrays.Names())
	for i, name := range names {
		for _, of := range []string{"adj", "attr"} {
			if part, is := strings.CutPrefix(name, of+"_matrix."); is {
				names[i] = of + "_" + part
			}
		}
	}
	return names
}

// arraySource is a set of arrays with the path that error messages show.
type arraySource struct {
	arrays
	path string // path of an archive, a directory, or the one .npy file that is read
}

func (a arraySource) name(key string) string {
	if strings.HasSuffix(a.path, ".npy") {
		return a.path
	}
	return a.path + ": " + key
}

// first returns the first of the keys that names an array of the set. It returns "" if none does.
func (a arraySource) first(keys ...string) string {
	for _, k := range keys {
		if a.Has(k) {
			return k
		}
	}
	return ""
}

// begin returns the first numbers of an array of one or two dimensions as texts, column by column.
// It keeps the numbers as they are stored, because a float32 could not hold 20200131. For any other
// array it returns nil.
func (a arraySource) begin(key string) [][]string {
	r, err := a.Reader(key)
	if err != nil {
		return nil
	}
	defer r.Close()
	if len(r.Shape) == 0 || len(r.Shape) > 2 || r.IsText() {
		return nil
	}
	cols := 1
	if len(r.Shape) == 2 {
		cols = r.Shape[1]
	}
	if cols > r.Elems() { // an array without rows may claim any number of columns
		return nil
	}
	first := make([]float64, min(firstValues*cols, r.Elems()))
	n, _ := npy.Read(r, first)
	return beginOf(first[:n], cols)
}

// beginOfOne returns the first numbers of an array as texts, if the array has one column. For an
// array with several columns it returns nil.
func (a arraySource) beginOfOne(key string) []string {
	if columns := a.begin(key); len(columns) == 1 {
		return columns[0]
	}
	return nil
}

// hasCodes reports whether an array may hold codes of the lists of a split: 0 for train, 1 for
// valid, 2 for test and -1 for none. It must have one dimension, hold no other number, and hold 2
// at least once, because 0 and 1 alone could be anything.
func (a arraySource) hasCodes(key string) bool {
	r, err := a.Reader(key)
	if err != nil {
		return false
	}
	defer r.Close()
	two := false
	if len(r.Shape) != 1 || r.IsText() {
		return false
	}
	err = eachChunk(r, r.Left(), func(part []float64) error {
		for _, x := range part {
			if two = two || x == 2; x != 0 && x != 1 && x != 2 && x != -1 {
				return ErrValue
			}
		}
		return nil
	})
	return err == nil && two
}

// open opens an array that must have one of the given numbers of dimensions.
func (a arraySource) open(key string, dims ...int) (*npy.Reader, error) {
	r, err := a.Reader(key)
	if err != nil {
		return nil, err
	}
	for _, d := range dims {
		if len(r.Shape) == d {
			return r, nil
		}
	}
	_ = r.Close()
	want := strings.Trim(strings.ReplaceAll(fmt.Sprint(dims), " ", " or "), "[]")
	if want += " dimensions"; want == "1 dimensions" {
		want = "1 dimension"
	}
	return nil, fmt.Errorf("%s: shape %s, want %s", a.name(key), npy.ShapeString(r.Shape), want)
}

// all reads a whole array of one dimension, or of two dimensions if one of them is 1.
func all[T npy.Element](a arraySource, key string) ([]T, error) {
	r, err := a.open(key, 1, 2)
	if err != nil {
		return nil, err
	}
	if len(r.Shape) == 2 && r.Shape[0] != 1 && r.Shape[1] != 1 {
		_ = r.Close()
		return nil, fmt.Errorf("%s has shape %s, but needs one dimension", a.name(key),
			npy.ShapeString(r.Shape))
	}
	return npy.ReadAll[T](r)
}

// addPairs adds the edges of an array [2, E] (all sources, then all destinations) or [E, 2].
func addPairs(e *edgeSource, a arraySource, key string) (err error) {
	r, err := a.open(key, 2)
	if err != nil {
		return err
	}
	defer r.Close()
	defer func() {
		if errors.Is(err, npy.ErrType) && strings.Contains(r.DType, "f") {
			err = fmt.Errorf("%w; ends of edges must be whole numbers: leave out edges without a "+
				"source or a target, and save the array as int64", err)
		}
	}()
	if r.IsText() {
		return fmt.Errorf("%s: %w: the edges name vertices by words, but an array must name them "+
			"by their rows, from 0 on; save the edges as a table and import that by --format "+
			"csv, which numbers words", a.name(key),
			ErrValue)
	}
	wide := r.Shape[0] == 2 // [2, E], as in PyG and OGB; an array [2, 2] is taken as [2, E]
	if !wide && r.Shape[1] != 2 {
		return fmt.Errorf("%s has shape %s, but needs [2, edges] or [edges, 2]", a.name(key),
			npy.ShapeString(r.Shape))
	}
	n := r.Elems() / 2
	// This layout has all sources before all destinations, so the sources are held in memory.
	if wide != r.Fortran {
		return addSides(e, a, key, r, n)
	}
	at := 0
	// each chunk has an even number of elements, so it cuts no pair
	return eachChunk(r, 2*n, func(part []int64) error {
		for i := 0; i < len(part); i += 2 {
			if err := e.addEdge(part[i], part[i+1]); err != nil {
				return fmt.Errorf("%s: edge %d: %w", a.name(key), at, err)
			}
			at++
		}
		return nil
	})
}

func addSides(e *edgeSource, a arraySource, key string, r *npy.Reader, n int) error {
	if err := fits(a.name(key), fmt.Sprintf("%d edges", n), int64(n)*4); err != nil {
		return err
	}
	sources := mem.Make[int32](n)
	defer mem.Free(sources)
	i := 0
	if err := eachChunk(r, n, func(part []int64) error {
		for _, u := range part {
			if u < 0 || u >= e.from.limit() {
				return fmt.Errorf("%s: edge %d: %w", a.name(key), i, e.from.vertexRange(u))
			}
			sources[i] = int32(u)
			i++
		}
		return nil
	}); err != nil {
		return err
	}
	i = 0
	return eachChunk(r, n, func(part []int64) error {
		for _, v := range part {
			if err := e.addEdge(int64(sources[i]), v); err != nil {
				return fmt.Errorf("%s: edge %d: %w", a.name(key), i, err)
			}
			i++
		}
		return nil
	})
}

// addCompressed adds an edge for every stored entry of a scipy CSR matrix, whatever its value: from
// the entry's row to its column. If byColumn is set, the matrix is a CSC matrix.
func addCompressed(e *edgeSource, a arraySource, indptrKey, indicesKey string,
	byColumn bool) error {
	ends, err := rowEnds(e.from, a, indptrKey, indicesKey)
	if err != nil {
		return err
	}
	r, err := a.open(indicesKey, 1)
	if err != nil {
		return err
	}
	defer r.Close()
	at, row := int64(0), 0
	return eachChunk(r, r.Left(), func(part []int64) error {
		for _, c := range part {
			for ends[row+1] <= at {
				row++
			}
			u, v := int64(row), c
			if byColumn {
				u, v = v, u
			}
			if err := e.addEdge(u, v); err != nil {
				return fmt.Errorf("%s: entry %d: %w", a.name(indicesKey), at, err)
			}
			at++
		}
		return nil
	})
}

// rowEnds reads the row offsets of a CSR matrix that has a row for each vertex, and checks them.
func rowEnds(s *source, a arraySource, indptrKey, indicesKey string) ([]int64, error) {
	ends, err := all[int64](a, indptrKey)
	if err != nil {
		return nil, err
	}
	r, err := a.open(indicesKey, 1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if len(ends) != s.vertices+1 {
		return nil, fmt.Errorf("%s has %d row offsets, but %d vertices need one more; save the "+
			"matrix again",
			a.name(indptrKey), len(ends), s.vertices)
	}
	for v := range s.vertices {
		if ends[v+1] < ends[v] {
			return nil, fmt.Errorf("%s: row offsets fall from %d to %d at row %d; save the "+
				"matrix again",
				a.name(indptrKey), ends[v],
				ends[v+1], v)
		}
	}
	if ends[0] != 0 || ends[s.vertices] != int64(r.Elems()) {
		return nil, fmt.Errorf("%s: row offsets run from %d to %d, but %s has %d entries; save "+
			"the matrix again",
			a.name(indptrKey),
			ends[0], ends[s.vertices], indicesKey, r.Elems())
	}
	return ends, nil
}

// setCSRFeatures registers a scipy CSR matrix as the features. They are read now, and written to
// the dataset later.
func setCSRFeatures(s *source, a arraySource, prefix string) error {
	shape, err := all[int64](a, prefix+"_shape")
	if err != nil {
		return err
	}
	if len(shape) != 2 || shape[0] != int64(s.vertices) || shape[1] < 0 ||
		shape[1] > graph.MaxVertices {
		return fmt.Errorf("%s: the shape is %v, but there must be a row for each of the %d "+
			"vertices", a.name(prefix+"_shape"),
			shape, s.vertices)
	}
	ends, err := rowEnds(s, a, prefix+"_indptr", prefix+"_indices")
	if err != nil {
		return err
	}
	columns, err := all[int32](a, prefix+"_indices")
	if err != nil {
		return err
	}
	values, err := all[float32](a, prefix+"_data")
	if err != nil {
		return err
	}
	for k, c := range columns {
		if c < 0 || int64(c) >= shape[1] {
			return fmt.Errorf("%s: entry %d is in column %d of %d: %w",
				a.name(prefix+"_indices"), k,
				c, shape[1], ErrValue)
		}
	}
	if len(values) != len(columns) {
		return fmt.Errorf("%s has %d values, but %d entries need one value each; save the matrix "+
			"again",
			a.name(prefix+"_data"), len(values),
			len(columns))
	}
	return s.setFeatures(a.name(prefix+"_data"), int(shape[1]), Float32, int64(len(columns)),
		func(w *RowWriter) error { return writeSparse(w, ends, columns, values) })
}

// writeSparse writes the rows of a CSR matrix. Entries with the same row and column add up, as in
// scipy. If the rows are stored dense, it takes time proportional to rows times columns, and memory
// for one row.
func writeSparse(w *RowWriter, ends []int64, columns []int32, values []float32) error {
	if w.entries != nil {
		for v := range len(ends) - 1 {
			lo, hi := ends[v], ends[v+1]
			if err := w.entries.add(w.out, columns[lo:hi], values[lo:hi]); err != nil {
				return err
			}
		}
		return nil
	}
	row := make([]float32, w.cols)
	for v := range len(ends) - 1 {
		for k := ends[v]; k < ends[v+1]; k++ {
			row[columns[k]] += values[k]
		}
		if err := w.Write(row); err != nil {
			return err
		}
		for _, c := range columns[ends[v]:ends[v+1]] {
			row[c] = 0
		}
	}
	return nil
}

// setDenseFeatures registers an array [vertices, columns] of features, which is streamed to the
// dataset later.
func setDenseFeatures(s *source, a arraySource, key string) error {
	r, err := a.Reader(key)
	if err != nil {
		return err
	}
	h, words := r.Header, r.IsText()
	if err := r.Close(); err != nil {
		return err
	}
	if words {
		return fmt.Errorf("%s: %w: it holds words, but features must be numbers; make a column "+
			"of 0 and 1 for each word", a.name(key), ErrValue)
	}
	if len(h.Shape) != 2 {
		return fmt.Errorf("%s has shape %s, but needs 2 dimensions; numpy.reshape(x, (len(x), "+
			"-1)) has a row of features for each vertex", a.name(key), npy.ShapeString(h.Shape))
	}
	if h.Shape[0] != s.vertices {
		return fmt.Errorf("%s has %d rows, but %d vertices need one row each, in their order",
			a.name(key), h.Shape[0], s.vertices)
	}
	if h.Fortran && h.Shape[0] > 1 && h.Shape[1] > 1 {
		return fmt.Errorf("%s: it is stored by columns; save it again with numpy.ascontiguousarray",
			a.name(key))
	}
	if slices.ContainsFunc(a.begin(key),
		func(values []string) bool { return timeOf("", values) != "" }) {
		s.note("%s: a column of the features seems to be a time; it is read as float32, which "+
			"keeps 7 digits",
			filepath.Base(a.name(key)))
	}
	stored := Float32
	if strings.HasSuffix(h.DType, "f2") {
		stored = Float16
	}
	return s.setFeatures(a.name(key), h.Shape[1], stored, -1, func(w *RowWriter) error {
		r, err := a.open(key, 2)
		if err != nil || h.Shape[1] == 0 {
			return err
		}
		defer r.Close()
		rows := make([]float32, max(1, (1<<16)/h.Shape[1])*h.Shape[1])
		for r.Left() > 0 {
			n, err := npy.Read(r, rows)
			if err != nil {
				return err
			}
			if err := w.Write(rows[:n]); err != nil {
				return err
			}
		}
		return nil
	})
}

// readLabels reads the labels from an array: classes from [N] or [N, 1], or several labels a
// vertex, each 0 or 1, from [N, C].
func readLabels(s *source, a arraySource, key string) error {
	r, err := a.open(key, 1, 2)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Shape[0] != s.vertices {
		return fmt.Errorf("%s has %d rows, but %d vertices need one label each, in their order",
			a.name(key), r.Shape[0], s.vertices)
	}
	if !regression(s) && r.IsText() && (len(r.Shape) == 1 || r.Shape[1] == 1) {
		names, err := npy.ReadText(r)
		if err == nil {
			err = s.nameClasses(names)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.name(key), err)
		}
		return nil
	}
	cols := 1
	if len(r.Shape) == 2 {
		cols = r.Shape[1]
	}
	if cols > 1 && r.Fortran {
		return fmt.Errorf("%s: it is stored by columns; save it again with numpy.ascontiguousarray",
			a.name(key))
	}
	if regression(s) {
		return readNumbers(s, a, key, r, cols)
	}
	if cols != 1 {
		if err := s.makeMarks(cols, a.name(key)); err != nil {
			return err
		}
	}
	set := func(i int, y float64) error { return s.setMark(i/cols, i%cols, y) }
	var classes numberedClasses
	declared := s.origin.Classes > 0
	switch {
	case cols != 1:
		if n := len(s.classNames); n > 0 && n != cols {
			return fmt.Errorf("%s has %d columns, but origin.json names %d classes; give one "+
				"name for each column", a.name(key), cols,
				n)
		}
	case declared:
		set = s.setLabel
	default:
		set = func(v int, y float64) error { return classes.set(s, v, y) }
		classes.labels = mem.Make[int32](s.vertices)
		s.labels = classes.labels
	}
	i := 0
	err = eachChunk(r, r.Elems(), func(part []float64) error {
		for _, y := range part {
			if err := set(i, y); err != nil {
				return err
			}
			i++
		}
		return nil
	})
	switch {
	case err == nil && cols == 1 && declared && s.classes > s.origin.Classes:
		err = fmt.Errorf("there is a label of class %d, but origin.json says that there are %d "+
			"classes, counted from 0: %w; correct one of the two",
			s.classes-1, s.origin.Classes, ErrValue)
	case err == nil && cols == 1 && !declared:
		err = s.takeClasses(&classes)
	case err == nil && cols != 1:
		err = s.finishMarks()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.name(key), err)
	}
	return nil
}
