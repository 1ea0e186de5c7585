package dataset

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// moments holds the mean of each column over the rows of some vertices, and the sum of the squared
// distances of the numbers from that mean. Both are updated row by row by Welford's method, which
// loses no digits where the mean is large.
type moments struct {
	counts []bool // whether the row of each vertex counts; nil if all rows count
	n      float64
	mean   []float64
	square []float64
}

func (m *moments) add(first, cols int, rows []float32) {
	for begin := 0; begin < len(rows); begin += cols {
		if m.counts != nil && !m.counts[first+begin/cols] {
			continue
		}
		m.n++
		for c, x := range rows[begin : begin+cols] {
			d := float64(x) - m.mean[c]
			m.mean[c] += d / m.n
			m.square[c] += d * (float64(x) - m.mean[c])
		}
	}
}

// scalingFile is the name of the file with the scaling of a type whose rows were standardized:
// float64 [2, F], shifts and factors.
func scalingFile(s *graph.Schema, t int) string {
	if s.Typed() {
		return "scaling." + s.Types[t] + ".npy"
	}
	return "scaling.npy"
}

// Scaling returns a hash of how the feature rows of all types were standardized, or "" if none
// were.
func (m *Meta) Scaling() string {
	var sums []string
	for t := range m.Schema.NumTypes() {
		sums = append(sums, m.Files[scalingFile(&m.Schema, t)].XXH64)
	}
	return strings.TrimRight(strings.Join(sums, ","), ",")
}

// scaling turns a number x of column c into (x - shift[c]) * factor[c].
type scaling struct {
	shift, factor []float64
	row           []float32
}

func (f *scaling) of(rows []float32) []float32 {
	f.row = append(f.row[:0], rows...)
	for i, x := range rows {
		c := i % len(f.shift)
		f.row[i] = float32((float64(x) - f.shift[c]) * f.factor[c])
	}
	return f.row
}

// standardizeAs takes the shifts and scales of another dataset, which was standardized, for this
// one.
func (s *source) standardizeAs(dir string) error {
	other, err := Open(dir)
	if err != nil {
		return fmt.Errorf("--standardize-as: %w", err)
	}
	defer other.Close()
	schema, kind := &other.Meta.Schema, 0
	if schema.Typed() != (s.kind != "") {
		return fmt.Errorf("--standardize-as: %s: %w: only one of the two graphs has vertex "+
			"types; give a dataset that is like the graph to import", dir, ErrMismatch)
	}
	if s.kind != "" {
		if kind, err = schema.Type(s.kind); err != nil {
			return fmt.Errorf("--standardize-as: %s: %w: %w", dir, ErrMismatch, err)
		}
	}
	if other.Meta.Scaling() == "" {
		return fmt.Errorf("--standardize-as: %s: %w: it was not standardized; import it with "+
			"--standardize", dir, ErrMismatch)
	}
	of, file := other.Meta.Table(kind), scalingFile(schema, kind)
	if err := s.reorder(of, other.Meta.Name); err != nil {
		return fmt.Errorf("--standardize-as: %w", err)
	}
	cols := 0
	if s.features != nil {
		cols = s.features.cols
	}
	if cols != of.Features {
		return fmt.Errorf("--standardize-as: %w: there are %d feature columns here%s, but %d in "+
			"%s; give the same columns in the same order",
			ErrMismatch, cols, s.nameSuffix(), of.Features, dir)
	}
	if _, has := other.Meta.Files[file]; !has { // a type without features has no scaling
		return nil
	}
	both, err := npy.Map[float64](filepath.Join(dir, file), 2, cols)
	if err != nil {
		return fmt.Errorf("--standardize-as: %w", err)
	}
	defer both.Close()
	for _, x := range both.Data {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("--standardize-as: %s: %w: its scaling holds %g; run `halognn "+
				"check %s`",
				filepath.Join(dir, file), ErrValue, x, dir)
		}
	}
	data := slices.Clone(both.Data)
	s.scaling = &scaling{shift: data[:cols], factor: data[cols:]}
	s.notes = append(s.notes, "features shifted and scaled as those of "+other.Meta.Name)
	return nil
}

// reorder brings the columns of a node table into the order of another dataset, if both have names
// of columns. It returns an error if they do not have the same names.
func (s *source) reorder(of Table, name string) error {
	if s.features == nil || s.features.names == nil || of.Names == nil ||
		slices.Equal(s.features.names, of.Names) {
		return nil
	}
	f := s.features
	order := make([]int, len(of.Names))
	var lacking []string
	for i, column := range of.Names {
		if order[i] = slices.Index(f.names, column); order[i] < 0 {
			lacking = append(lacking, column)
		}
	}
	unknown := slices.DeleteFunc(slices.Clone(f.names), func(column string) bool {
		return slices.Contains(of.Names, column)
	})
	if len(lacking)+len(unknown) > 0 {
		return fmt.Errorf("%w: there are %d feature columns here, but %d in %s (columns only "+
			"there: %s; columns only here: %s); give the same columns, in any order",
			ErrMismatch, f.cols, of.Features, name,
			cmp.Or(few(lacking), "none"), cmp.Or(few(unknown), "none"))
	}
	columns := slices.Clone(f.columns)
	for i, from := range order {
		f.columns[i] = columns[from] // the function `write` reads columns in this order
	}
	f.names = of.Names
	s.note("feature columns have the order of %s, by their names", name)
	return nil
}

// standardize reads all features once to find the scaling, which is applied when they are written.
// Columns with only one value are shifted, but not scaled.
func (s *source) standardize(split graph.Split) error {
	cols := s.features.cols
	m := &moments{mean: make([]float64, cols), square: make([]float64, cols)}
	over := fmt.Sprintf("all %d vertices", s.vertices)
	if len(split.Train) > 0 {
		m.counts = make([]bool, s.vertices)
		for _, v := range split.Train {
			m.counts[v] = true
		}
		over = fmt.Sprintf("the %d training vertices", len(split.Train))
	}
	reader := &RowWriter{table: Table{FeatureType: Float32}, cols: cols, look: m.add}
	if err := s.features.write(reader); err != nil {
		return s.features.fault(err)
	}
	constant := 0
	s.scaling = &scaling{shift: m.mean, factor: make([]float64, cols)}
	for c, sum := range m.square {
		s.scaling.factor[c] = 1
		if deviation := math.Sqrt(sum / m.n); deviation > 0 {
			s.scaling.factor[c] = 1 / deviation
		} else {
			constant++
		}
	}
	note := "features standardized: mean 0 and variance 1 over " + over
	if constant > 0 {
		note += fmt.Sprintf("; %d columns do not vary there and were only shifted", constant)
	}
	s.notes = append(s.notes, note)
	return nil
}
