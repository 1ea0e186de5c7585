package dataset

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"halognn/src/base/npy"
)

// entries converts rows to the entries that are not 0. A first pass over all rows counts the
// entries, and a second pass writes them.
type entries struct {
	ends    []int64 // [rows+1] where the entries of each row begin
	ones    bool    // all values are 1
	row     []float32
	columns []int32 // columns of the current row that have an entry
	buffer  []int32
}

// countEntries makes the first pass. It also writes where the entries of each row begin.
func (w *Writer) countEntries(cols int, write func(*RowWriter) error) error {
	e := &entries{ends: []int64{0}, ones: true, row: make([]float32, cols)}
	err := write(&RowWriter{table: Table{FeatureType: Float32}, cols: cols, entries: e})
	if err != nil {
		return err
	}
	if n := int64(len(e.ends) - 1); n != w.Meta.Vertices {
		return fmt.Errorf("%w: there are %d feature rows, but %d vertices need one row each",
			ErrMismatch, n, w.Meta.Vertices)
	}
	w.Meta.FeatureType, w.Meta.Entries, w.entries = Sparse, e.ends[len(e.ends)-1], e
	if e.ones {
		w.Meta.FeatureType = SparseOnes
	}
	return put(w, RowEndsFile, e.ends, len(e.ends))
}

// addDense adds dense rows. If out is nil, it only counts their entries.
func (e *entries) addDense(out *npy.Writer, rows []float32) error {
	for cols := len(e.row); len(rows) > 0; rows = rows[cols:] {
		e.columns = e.columns[:0]
		for c, x := range rows[:cols] {
			if x != 0 {
				e.columns = append(e.columns, int32(c))
			}
		}
		if err := e.put(out, rows); err != nil {
			return err
		}
	}
	return nil
}

// add adds one row with the given entries. Its entries may be in any order; entries of the same
// column are added up.
func (e *entries) add(out *npy.Writer, columns []int32, values []float32) error {
	for k, c := range columns {
		e.row[c] += values[k]
	}
	e.columns = append(e.columns[:0], columns...)
	slices.Sort(e.columns)
	e.columns = slices.DeleteFunc(slices.Compact(e.columns),
		func(c int32) bool { return e.row[c] == 0 })
	for _, c := range e.columns {
		if !finite(e.row[c]) {
			return badFeature(len(e.ends)-1, int(c), e.row[c])
		}
	}
	err := e.put(out, e.row)
	for _, c := range columns {
		e.row[c] = 0
	}
	return err
}

// put adds the entries of the current row, whose columns e.columns lists.
func (e *entries) put(out *npy.Writer, row []float32) error {
	if out == nil {
		for _, c := range e.columns {
			e.ones = e.ones && row[c] == 1
		}
		e.ends = append(e.ends, e.ends[len(e.ends)-1]+int64(len(e.columns)))
		return nil
	}
	e.buffer = e.buffer[:0]
	for _, c := range e.columns {
		if e.buffer = append(e.buffer, c); !e.ones {
			e.buffer = append(e.buffer, int32(math.Float32bits(row[c])))
		}
	}
	return npy.Write(out, e.buffer)
}

// CheckRowEnds returns an error if the row boundaries do not run from 0 to the number of entries.
// It accepts missing boundaries, which other checks report.
func CheckRowEnds(ends []int64, entries int64) error {
	if n := len(ends); n > 0 && (ends[0] != 0 || ends[n-1] != entries) {
		return fmt.Errorf("%s: %w: rows begin at entry %d and end at %d, but there are %d entries",
			RowEndsFile, ErrMismatch, ends[0], ends[n-1], entries)
	}
	return nil
}

// CheckEntries reports the first entry whose column is out of order or out of range, and the first
// value that is not a finite number. Row v has the entries ends[v] to ends[v+1]-1.
func CheckEntries(data []byte, t Table, ends []int64) error {
	size := int64(t.Type().Size())
	first, end := ends[0], ends[len(ends)-1]
	if n := int64(len(data)); first < 0 || n%size != 0 || end-first != n/size {
		return fmt.Errorf("%w: the rows have the entries %d to %d, but the file has %d entries",
			ErrMismatch, first, end,
			int64(len(data))/size)
	}
	for v := range len(ends) - 1 {
		if ends[v+1] < ends[v] || ends[v+1] > end {
			return fmt.Errorf("%w: row %d begins at entry %d and ends at %d", ErrMismatch, v,
				ends[v], ends[v+1])
		}
		last := -1
		for k := ends[v]; k < ends[v+1]; k++ {
			entry := data[(k-first)*size:]
			c := int(int32(binary.LittleEndian.Uint32(entry)))
			if c <= last || c >= t.Features {
				return fmt.Errorf("%w: row %d has column %d of %d after column %d", ErrValue, v, c,
					t.Features, last)
			}
			last = c
			if size > 4 {
				if x := math.Float32frombits(binary.LittleEndian.Uint32(entry[4:])); !finite(x) {
					return badFeature(v, c, x)
				}
			}
		}
	}
	return nil
}
