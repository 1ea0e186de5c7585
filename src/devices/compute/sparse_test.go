package compute_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// sparseRows makes n rows in two tables, and the same as float32 rows.
func sparseRows(rng *rand.Rand, dtype compute.DType, n, cols int) (sparse, dense compute.Rows) {
	tables, numbers := make([][]byte, 2), make([]float32, n*cols)
	sparse = compute.Rows{Cols: cols, Type: dtype}
	for i := range n {
		t := rng.IntN(2)
		first, length := len(tables[t])/dtype.Size(), int32(0)
		for c := range cols {
			if rng.IntN(4) > 0 || i%5 == 0 { // some rows are empty
				continue
			}
			x := float32(1)
			tables[t] = binary.LittleEndian.AppendUint32(tables[t], uint32(c))
			if dtype == compute.Sparse {
				x = float32(rng.NormFloat64())
				tables[t] = binary.LittleEndian.AppendUint32(tables[t], math.Float32bits(x))
			}
			numbers[i*cols+c] = x
			length++
		}
		sparse.Of = append(sparse.Of, compute.MakeRowRef(t, first))
		sparse.Lengths = append(sparse.Lengths, length)
		dense.Of = append(dense.Of, compute.MakeRowRef(0, i))
	}
	sparse.Tables = tables
	dense.Cols, dense.Tables = cols, [][]byte{mem.Bytes(numbers)}
	return sparse, dense
}

// expand returns a sparse matrix as a dense one, of its rows or of its columns.
func expand(x *compute.SparseMatrix, byColumns bool) []float32 {
	out := make([]float32, x.Rows*x.Cols)
	s, values := x.Entries, x.Values
	if byColumns {
		s, values = x.Transposed, x.TransposedValues
	}
	for i := range s.Len() {
		for e := s.Indptr[i]; e < s.Indptr[i+1]; e++ {
			r, c := i, int(s.Indices[e])
			if byColumns {
				r, c = c, r
			}
			out[r*x.Cols+c] += values[e]
		}
	}
	return out
}

// Rows that stay sparse are the rows, means and sums of dense ones, by rows and by columns, however
// their segments are cut into groups; a maker is used for matrices of any size.
func TestSparseRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var maker compute.SparseMaker
	defer maker.Free()
	for _, dtype := range []compute.DType{compute.Sparse, compute.SparseOnes} {
		for _, cols := range []int{1, 3, 40} {
			n := 1 + rng.IntN(60)
			sparse, dense := sparseRows(rng, dtype, n, cols)
			near := func(what string, x *compute.SparseMatrix, want []float32) {
				for _, by := range []bool{false, true} {
					for i, got := range expand(x, by) {
						if d := math.Abs(float64(got - want[i])); !(d <= 1e-5) {
							t.Fatalf("%v, %d columns, %s, by columns %v: element %d is %g, want %g",
								dtype, cols, what, by, i, got, want[i])
						}
					}
				}
			}
			d := rng.IntN(n) + 1
			want := compute.Matrix{Rows: d, Cols: cols, Data: make([]float32, d*cols)}
			ref.Host{}.GatherRows(want, dense)
			own, err := maker.Own(&sparse, d, true)
			if err != nil {
				t.Fatal(err)
			}
			near("own rows", own, want.Data)
			s := compute.Segments{Indptr: []int64{0}}
			var weights []float32
			for range d {
				for k := range rng.IntN(6) {
					i := int32(rng.IntN(n))
					if k%2 == 0 {
						i = ^i // begins a group
					}
					s.Indices, weights = append(s.Indices, i), append(weights, rng.Float32())
				}
				s.Indptr = append(s.Indptr, int64(len(s.Indices)))
			}
			for _, c := range []struct {
				how     compute.Reduction
				weights []float32
			}{{compute.ReduceMean, nil}, {compute.ReduceSum, nil}, {compute.ReduceSum, weights}} {
				ref.Host{}.SegmentRows(want, c.how, s, c.weights, dense)
				got, err := maker.Reduce(&sparse, c.how, s, c.weights, true)
				if err != nil {
					t.Fatal(err)
				}
				near(c.how.String(), got, want.Data)
			}
			all, err := maker.Dense(&sparse)
			if err != nil {
				t.Fatal(err)
			}
			if string(all.Tables[0]) != string(dense.Tables[0]) {
				t.Errorf("%v, %d columns: the rows become other ones where they become dense",
					dtype, cols)
			}
		}
	}
}

// A column that there is not, as a damaged file may have, is an error and no fault of memory.
func TestSparseRowsOfBadColumns(t *testing.T) {
	var maker compute.SparseMaker
	defer maker.Free()
	rows := compute.Rows{Cols: 3, Type: compute.SparseOnes, Tables: [][]byte{{3, 0, 0, 0}},
		Of: []compute.RowRef{0}, Lengths: []int32{1}}
	s := compute.Segments{Indptr: []int64{0, 1}, Indices: []int32{0}}
	_, own := maker.Own(&rows, 1, false)
	_, sum := maker.Reduce(&rows, compute.ReduceSum, s, nil, false)
	_, dense := maker.Dense(&rows)
	for _, err := range []error{own, sum, dense} {
		if err == nil || !strings.Contains(err.Error(), "column 3 of 3") {
			t.Errorf("got %v", err)
		}
	}
}
