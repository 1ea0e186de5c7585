package compute

import (
	"fmt"
	"math"
	"unsafe"

	"halognn/src/base/mem"
)

// SparseMatrix has only those entries of a matrix that are not 0. They are stored row by row and,
// for gradients, a second time column by column. Its product with w, and the gradient of w, are
// sums over segments (SegmentKernels.SegmentSum):
//
//	y  = x wᵀ     SegmentSum(y, x.Entries, x.Values, wᵀ, false)          y [R,O], x [R,F], wᵀ [F,O]
//	dw = dyᵀ x    SegmentSum(dwᵀ, x.Transposed, x.TransposedValues, dy, false)
//
// So a row of y is a sum in the order of the entries of the row of x. A row of dwᵀ is a sum in the
// order of the entries of the column of x.
type SparseMatrix struct {
	Rows, Cols int
	Entries    Segments // segment r has the columns of row r's entries
	Values     []float32
	// Segment c has the rows of the entries in column c. It is empty if no backward follows.
	Transposed       Segments
	TransposedValues []float32
}

// SparseMaker makes sparse matrices from sparse rows. It owns the arrays of these matrices, and the
// next matrices use them again. Free frees the arrays. One goroutine at a time may use a
// SparseMaker.
type SparseMaker struct {
	own, reduced SparseMatrix
	sum          []float32 // [F]
	in           []int32   // [F] 1 + the last segment that has an entry in each column
	dense        []float32
	of           []RowRef // references to the rows that Dense has made
}

// entries returns the entries of row i as a slice of numbers. The result width says how many
// numbers an entry has: one for its column and, for type Sparse, one for the bits of its value.
func (r *Rows) entries(i int) (all []int32, width int) {
	width = r.Type.Size() / 4
	n := int(r.Lengths[i]) * width
	if n == 0 {
		return nil, width
	}
	bytes := r.Tables[r.Of[i].Table()][r.Of[i].Row()*width*4:][:4*n]
	return unsafe.Slice((*int32)(unsafe.Pointer(&bytes[0])), n), width
}

// value returns the value of the first entry in the list `all`, in which an entry has `each`
// numbers.
func value(all []int32, each int) float32 {
	if each == 1 {
		return 1
	}
	return math.Float32frombits(uint32(all[1]))
}

// checkColumn returns an error for a column that does not exist.
func (r *Rows) checkColumn(c int32) error {
	if uint32(c) < uint32(r.Cols) {
		return nil
	}
	return fmt.Errorf("a sparse row has an entry in column %d of %d; run `halognn check` on the "+
		"parts", c, r.Cols)
}

// Own returns the first n rows as a matrix. If backward is true, the matrix has its transpose too.
func (m *SparseMaker) Own(rows *Rows, n int, backward bool) (*SparseMatrix, error) {
	x, entries := &m.own, 0
	for _, k := range rows.Lengths[:n] {
		entries += int(k)
	}
	x.reset(n, rows.Cols, entries)
	for i := range n {
		all, each := rows.entries(i)
		for ; len(all) > 0; all = all[each:] {
			if err := rows.checkColumn(all[0]); err != nil {
				return nil, err
			}
			x.add(all[0], value(all, each))
		}
		x.endRow(i)
	}
	x.transpose(backward)
	return x, nil
}

// Reduce returns the mean or sum of the rows of each segment, as Host.SegmentRows does. Entries of
// the same column are added in the order of the segment's rows. In a row of the result, columns are
// in the order in which they first occur in the segment.
func (m *SparseMaker) Reduce(rows *Rows, how Reduction, s Segments, weights []float32,
	backward bool) (*SparseMatrix, error) {
	x := &m.reduced
	x.reset(s.Len(), rows.Cols, 0)
	m.sum, m.in = mem.Grow(m.sum, rows.Cols), mem.Grow(m.in, rows.Cols)
	clear(m.in)
	for d := range s.Len() {
		lo, hi := s.Indptr[d], s.Indptr[d+1]
		most := 0
		for _, i := range s.Indices[lo:hi] {
			most += int(rows.Lengths[SourceOf(i)])
		}
		first := len(x.Values)
		x.grow(min(most, rows.Cols))
		for e := lo; e < hi; e++ {
			w := float32(1)
			if weights != nil {
				w = weights[e]
			}
			all, each := rows.entries(int(SourceOf(s.Indices[e])))
			for ; len(all) > 0; all = all[each:] {
				c, v := all[0], value(all, each)
				if err := rows.checkColumn(c); err != nil {
					return nil, err
				}
				if m.in[c] != int32(d)+1 {
					m.in[c], m.sum[c] = int32(d)+1, w*v
					x.add(c, 0)
				} else {
					m.sum[c] += w * v
				}
			}
		}
		scale := float32(1)
		if how == ReduceMean {
			scale = 1 / float32(max(1, hi-lo))
		}
		for k, c := range x.Entries.Indices[first:] {
			x.Values[first+k] = m.sum[c] * scale
		}
		x.endRow(d)
	}
	x.transpose(backward)
	return x, nil
}

// Dense returns the sparse rows as dense rows of float32, for layers that do not begin with a
// linear map.
func (m *SparseMaker) Dense(rows *Rows) (Rows, error) {
	n := len(rows.Of)
	m.dense = mem.Grow(m.dense, n*rows.Cols)
	clear(m.dense)
	m.of = mem.Grow(m.of, n)
	for i := range n {
		row := m.dense[i*rows.Cols:]
		all, each := rows.entries(i)
		for ; len(all) > 0; all = all[each:] {
			if err := rows.checkColumn(all[0]); err != nil {
				return Rows{}, err
			}
			row[all[0]] = value(all, each)
		}
		m.of[i] = MakeRowRef(0, i)
	}
	return Rows{Cols: rows.Cols, Tables: [][]byte{mem.Bytes(m.dense)}, Of: m.of}, nil
}

// Bytes returns the memory of the arrays.
func (m *SparseMaker) Bytes() int64 {
	return m.own.bytes() + m.reduced.bytes() + int64(cap(m.sum)+cap(m.in)+cap(m.dense))*4 +
		int64(cap(m.of))*8
}

// Free frees the arrays.
func (m *SparseMaker) Free() {
	m.own.free()
	m.reduced.free()
	mem.Free(m.sum)
	mem.Free(m.in)
	mem.Free(m.dense)
	mem.Free(m.of)
	*m = SparseMaker{}
}

// reset makes x an empty matrix of the given size, with memory for the given number of entries.
func (x *SparseMatrix) reset(rows, cols, entries int) {
	x.Rows, x.Cols = rows, cols
	x.Entries.Indptr = mem.Grow(x.Entries.Indptr, rows+1)
	x.Entries.Indptr[0] = 0
	x.Entries.Indices, x.Values = x.Entries.Indices[:0], x.Values[:0]
	x.grow(entries)
}

// grow makes room for n further entries.
func (x *SparseMatrix) grow(n int) {
	have := len(x.Values)
	if need := have + n; need > cap(x.Values) {
		indices, values := mem.Make[int32](need+need/2), mem.Make[float32](need+need/2)
		copy(indices, x.Entries.Indices)
		copy(values, x.Values)
		mem.Free(x.Entries.Indices)
		mem.Free(x.Values)
		x.Entries.Indices, x.Values = indices[:have], values[:have]
	}
}

func (x *SparseMatrix) add(c int32, v float32) {
	x.Entries.Indices, x.Values = append(x.Entries.Indices, c), append(x.Values, v)
}

func (x *SparseMatrix) endRow(i int) { x.Entries.Indptr[i+1] = int64(len(x.Values)) }

// transpose lists the entries of each column, in the order of rows. If wanted is false, it does
// nothing.
func (x *SparseMatrix) transpose(wanted bool) {
	if !wanted {
		return
	}
	t := &x.Transposed
	t.Indptr = mem.Grow(t.Indptr, x.Cols+1)
	t.Indices = mem.Grow(t.Indices, len(x.Values))
	x.TransposedValues = mem.Grow(x.TransposedValues, len(x.Values))
	clear(t.Indptr)
	for _, c := range x.Entries.Indices {
		t.Indptr[c+1]++
	}
	for c := range x.Cols {
		t.Indptr[c+1] += t.Indptr[c]
	}
	for r := range x.Rows {
		for e := x.Entries.Indptr[r]; e < x.Entries.Indptr[r+1]; e++ {
			c := x.Entries.Indices[e]
			at := t.Indptr[c]
			t.Indices[at], x.TransposedValues[at] = int32(r), x.Values[e]
			t.Indptr[c]++
		}
	}
	copy(t.Indptr[1:], t.Indptr[:x.Cols])
	t.Indptr[0] = 0
}

func (x *SparseMatrix) bytes() int64 {
	return int64(cap(x.Entries.Indptr)+cap(x.Transposed.Indptr))*8 + int64(cap(x.Entries.Indices)+
		cap(x.Values)+cap(x.Transposed.Indices)+cap(x.TransposedValues))*4
}

func (x *SparseMatrix) free() {
	mem.Free(x.Entries.Indptr)
	mem.Free(x.Entries.Indices)
	mem.Free(x.Values)
	mem.Free(x.Transposed.Indptr)
	mem.Free(x.Transposed.Indices)
	mem.Free(x.TransposedValues)
}
