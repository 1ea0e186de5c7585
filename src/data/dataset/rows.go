package dataset

import (
	"fmt"
	"math"
	"path/filepath"

	"halognn/src/base/npy"
)

// RowWriter writes feature rows in the order of the vertices, in the type of the dataset. It rounds
// numbers to float16 (to nearest, ties to even), or to multiples of the column's scale.
type RowWriter struct {
	w      *Writer
	out    *npy.Writer
	name   string // name of the file
	table  Table
	cols   int
	next   int // vertex of the next row
	half   []npy.Float16
	bytes  *quantizer // for Int8 rows
	closed bool

	entries *entries // converts rows to sparse ones; nil unless the type is Sparse
	scaling *scaling // scaling of the rows before they are stored; may be nil
	// If look is not nil, rows are passed to it and are not written.
	look func(first, cols int, rows []float32)
	// If watch is not nil, it is called with dense rows before they are written.
	watch func(rows []float32) error
}

// WriteFeatures writes features.npy with cols columns, and for Int8 the scales. The argument
// `dtype` is one of FeatureTypes. The scaling f, which may be nil, is applied before rows are
// stored. The function `write` must write all rows. It is called twice for Int8, first to find the
// largest number of each column, and twice for Sparse, first to count entries.
func (w *Writer) WriteFeatures(cols int, dtype string, f *scaling,
	write func(*RowWriter) error) error {
	if dtype == Sparse && cols == 0 { // without columns there are no zeros to leave out
		dtype = Float32
	}
	if dtype == Sparse {
		if err := w.countEntries(cols, write); err != nil {
			return err
		}
		dtype = w.Meta.FeatureType
	}
	if dtype == Int8 {
		q := &quantizer{largest: make([]float32, cols)}
		if err := write(&RowWriter{table: Table{FeatureType: Float32}, cols: cols, scaling: f,
			look: q.look}); err != nil {
			return err
		}
		if err := q.choose(); err != nil {
			return err
		}
		w.bytes = q
	}
	rows, err := w.Features(int(w.Meta.Vertices), cols, dtype)
	if err != nil {
		return err
	}
	rows.scaling = f
	if err := write(rows); err != nil {
		return err
	}
	return rows.Close()
}

// Features begins a file features.npy of rows x cols numbers. The argument `dtype` is Float32,
// Float16, or "" for the type in Meta. The caller writes the rows with the RowWriter, and closes it
// before the Writer.
func (w *Writer) Features(rows, cols int, dtype string) (*RowWriter, error) {
	if int64(rows) != w.Meta.Vertices {
		return nil, fmt.Errorf("%w: there are %d feature rows, but %d vertices need one row each",
			ErrMismatch, rows,
			w.Meta.Vertices)
	}
	if dtype != "" {
		w.Meta.FeatureType = dtype
	}
	w.Meta.Features = cols
	if err := w.Meta.check(); err != nil {
		return nil, err
	}
	if w.Meta.FeatureType == Int8 {
		if w.bytes == nil {
			return nil, fmt.Errorf("dataset: int8 rows need scales, which WriteFeatures finds")
		}
		if err := put(w, ScaleFile, w.bytes.scale, cols); err != nil {
			return nil, err
		}
	}
	return w.table(0)
}

// TypeFeatures works like Features, for the vertices of type t of a typed graph. Topology must have
// been written before. The types are written one after the other.
func (w *Writer) TypeFeatures(t, cols int, dtype string) (*RowWriter, error) {
	w.Meta.Tables[t].Features = cols
	if dtype != "" {
		w.Meta.Tables[t].FeatureType = dtype
	}
	if err := w.Meta.checkTable(t); err != nil {
		return nil, err
	}
	return w.table(t)
}

// table begins the file with the rows of one type.
func (w *Writer) table(t int) (*RowWriter, error) {
	r := &RowWriter{w: w, name: TableFile(&w.Meta.Schema, t), table: w.Meta.Table(t),
		bytes: w.bytes, entries: w.entries}
	r.cols = r.table.Features
	info := r.table.File(r.table.Vertices)
	var err error
	r.out, err = npy.Create(filepath.Join(w.tmp, r.name), info.DType, info.Shape...)
	if err != nil {
		return nil, err
	}
	w.rows = r
	return r, nil
}

// Write appends one or several whole rows. NaN, infinity, and values outside the range of float16
// are errors, which name vertex and column.
func (r *RowWriter) Write(rows []float32) error {
	if err := r.Check(r.next, rows); err != nil {
		return err
	}
	return r.WriteChecked(rows)
}

// Check returns an error for the first value that Write would reject. The first row is that of
// vertex `first`. Check does not depend on the rows written before, so several goroutines may check
// rows, which one of them then passes to WriteChecked.
func (r *RowWriter) Check(first int, rows []float32) error {
	if r.cols == 0 && len(rows) > 0 || r.cols > 0 && len(rows)%r.cols != 0 {
		return fmt.Errorf("%w: %d values are not a whole number of rows of %d columns", ErrMismatch,
			len(rows), r.cols)
	}
	if r.scaling != nil { // WriteChecked checks the number that is stored, after scaling
		return r.within(math.MaxFloat32, first, rows)
	}
	return r.within(r.limit(), first, rows)
}

// limit returns the largest number that the stored type can hold.
func (r *RowWriter) limit() float32 {
	if r.table.FeatureType == Float16 {
		return halfLimit
	}
	return math.MaxFloat32
}

// within returns an error for the first value whose size exceeds the limit. The first row is that
// of vertex `first`.
func (r *RowWriter) within(limit float32, first int, rows []float32) error {
	for i, x := range rows {
		if !(x <= limit && x >= -limit) { // this is also true for NaN
			return badFeature(first+i/r.cols, i%r.cols, x)
		}
	}
	return nil
}

// halfLimit is the largest float32 that rounds to a finite float16.
const halfLimit = 65519.996

func badFeature(vertex, column int, x float32) error {
	if x > halfLimit && x <= math.MaxFloat32 || x < -halfLimit && x >= -math.MaxFloat32 {
		return fmt.Errorf("features: vertex %d, column %d is %g: %w: float16 ends at 65504; use "+
			"float32 or scale the column", vertex, column, x, ErrValue)
	}
	return fmt.Errorf("features: vertex %d, column %d is %g: %w; repair or remove it in the source",
		vertex, column, x, ErrValue)
}

// WriteChecked works like Write, for rows that passed Check.
func (r *RowWriter) WriteChecked(rows []float32) error {
	if r.cols == 0 {
		return nil
	}
	first := r.next
	r.next += len(rows) / r.cols
	if r.entries != nil {
		return r.entries.addDense(r.out, rows)
	}
	if r.scaling != nil {
		rows = r.scaling.of(rows)
		if err := r.within(r.limit(), first, rows); err != nil {
			return fmt.Errorf("standardized %w", err)
		}
	}
	if r.watch != nil {
		if err := r.watch(rows); err != nil {
			return err
		}
	}
	switch {
	case r.look != nil:
		r.look(first, r.cols, rows)
		return nil
	case r.bytes != nil:
		return npy.Write(r.out, r.bytes.round(rows))
	case r.table.FeatureType == Float32:
		return npy.Write(r.out, rows)
	}
	if cap(r.half) < len(rows) {
		r.half = make([]npy.Float16, len(rows))
	}
	half := r.half[:len(rows)]
	for i, x := range rows {
		half[i] = npy.ToFloat16(x)
	}
	return npy.Write(r.out, half)
}

// Close completes the file. It returns an error if there were too few or too many rows.
func (r *RowWriter) Close() error {
	r.closed = true
	if err := r.out.Close(); err != nil {
		return err
	}
	r.w.Meta.Files[r.name] = r.out.Info()
	if r.bytes != nil {
		r.w.notes = append(r.w.notes, r.bytes.notes(r.w.Meta.FeatureNames)...)
	}
	return nil
}

func (r *RowWriter) abort() {
	if !r.closed {
		r.closed = true
		r.out.Abort()
	}
}
