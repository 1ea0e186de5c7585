package dataset

import (
	"fmt"
	"math"
	"path/filepath"

	"halognn/src/npy"
)

// RowWriter writes feature rows in vertex order, rounded to float16 (to nearest, ties to even) if
// the dataset has that type.
type RowWriter struct {
	w      *Writer
	out    *npy.Writer
	cols   int
	next   int // vertex of the next row
	half   []npy.Float16
	closed bool

	moments *moments // if set, rows update it and are not written
	scaling *scaling // applied before rounding
}

// Features begins features.npy of rows x cols; dtype is Float32, Float16 or "" for the type in
// Meta. Rows follow through the RowWriter, which must be closed before the Writer.
func (w *Writer) Features(rows, cols int, dtype string) (*RowWriter, error) {
	if int64(rows) != w.Meta.Vertices {
		return nil, fmt.Errorf("%w: %d feature rows for %d vertices", ErrMismatch, rows,
			w.Meta.Vertices)
	}
	if dtype != "" {
		w.Meta.FeatureType = dtype
	}
	w.Meta.Features = cols
	if err := w.Meta.check(); err != nil {
		return nil, err
	}
	out, err := npy.Create(filepath.Join(w.tmp, "features.npy"), w.Meta.rowType(), rows, cols)
	if err != nil {
		return nil, err
	}
	w.rows = &RowWriter{w: w, out: out, cols: cols}
	return w.rows, nil
}

// Write appends one or several whole rows. NaN, infinity, and values outside the range of float16
// are errors that name vertex and column.
func (r *RowWriter) Write(rows []float32) error {
	if err := r.Check(r.next, rows); err != nil {
		return err
	}
	return r.WriteChecked(rows)
}

// Check returns an error for the first value that Write would reject in the rows of vertices from
// first on. It does not depend on the rows written, so that several goroutines may check rows that
// one of them then passes to WriteChecked.
func (r *RowWriter) Check(first int, rows []float32) error {
	if r.cols == 0 && len(rows) > 0 || r.cols > 0 && len(rows)%r.cols != 0 {
		return fmt.Errorf("%w: %d values are not a whole number of rows of %d", ErrMismatch,
			len(rows), r.cols)
	}
	limit := float32(math.MaxFloat32)
	if r.w.Meta.FeatureType == Float16 && r.moments == nil && r.scaling == nil {
		limit = halfLimit
	}
	for i, x := range rows {
		if !(x <= limit && x >= -limit) { // NaN compares false
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

// WriteChecked is Write for rows that passed Check.
func (r *RowWriter) WriteChecked(rows []float32) error {
	if r.cols > 0 {
		r.next += len(rows) / r.cols
	}
	switch {
	case r.moments != nil:
		if r.cols > 0 {
			r.moments.add(r.next-len(rows)/r.cols, r.cols, rows)
		}
		return nil
	case r.scaling != nil && r.cols > 0:
		rows = r.scaling.of(rows)
	}
	if r.w.Meta.FeatureType == Float32 {
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

// Close completes the file; too few or too many rows are an error.
func (r *RowWriter) Close() error {
	r.closed = true
	if err := r.out.Close(); err != nil {
		return err
	}
	r.w.Meta.Files["features.npy"] = r.out.Info()
	return nil
}

func (r *RowWriter) abort() {
	if !r.closed {
		r.closed = true
		r.out.Abort()
	}
}
