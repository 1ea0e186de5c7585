package compute

import (
	"fmt"
	"math"
	"slices"
)

// DType is the element type of stored feature rows.
type DType uint8

// The element types of feature rows. Rows are sent to other ranks in their stored type, and
// converted when they are used.
const (
	Float32 DType = iota
	Float16
	Int8  // multiplied by a scale for each column; see Rows.Scale
	Int16 // only for sums of Int8 rows

	BFloat16 // only for hidden rows; feature rows of datasets are never bfloat16

	// The elements of a sparse row are its entries. Rows may have different numbers of entries.
	Sparse     // an entry has a column, which is an int32, and a value, which is a float32
	SparseOnes // an entry has only a column, and its value is 1
)

type dtype struct {
	name string
	size int
}

var dtypes = [...]dtype{
	Float32: {"float32", 4}, Float16: {"float16", 2}, Int8: {"int8", 1},
	Int16: {"int16", 2}, BFloat16: {"bfloat16", 2},
	Sparse: {"sparse", 8}, SparseOnes: {"sparse-ones", 4},
}

// Size returns the bytes of one element.
func (t DType) Size() int { return dtypes[t].size }

// String returns the NumPy name of the type.
func (t DType) String() string { return dtypes[t].name }

// TypeNamed returns the type of feature rows that has the given name in a dataset.
func TypeNamed(name string) (t DType, known bool) {
	i := slices.IndexFunc(dtypes[:], func(t dtype) bool { return t.name == name })
	t = DType(max(0, i))
	return t, i >= 0 && t != Int16 && t != BFloat16
}

// IsSparse reports whether rows of this type are sparse.
func (t DType) IsSparse() bool { return t == Sparse || t == SparseOnes }

// RowRef refers to one feature row. It consists of the number of a table, and the number of a row
// in this table.
type RowRef uint64

// RefRowBits is the number of bits of a RowRef that are for the row. So there can be 2^16 tables of
// up to 2^48 rows each.
const RefRowBits = 48

// MakeRowRef packs a table number and a row of that table.
func MakeRowRef(table, row int) RowRef { return RowRef(table)<<RefRowBits | RowRef(row) }

// Table returns the number of the table that holds the row.
func (r RowRef) Table() int { return int(r >> RefRowBits) }

// Row returns the number of the row in its table.
func (r RowRef) Row() int { return int(r & (1<<RefRowBits - 1)) }

// Rows is a list of references to feature rows. The rows themselves may be in the rank's own shard,
// a peer's shard, a cache or a receive buffer. No row is copied or moved to make the list
// (docs/design/05-rows-stay-where-they-lie.md). Row i is row Of[i].Row() of Tables[Of[i].Table()].
type Rows struct {
	Cols   int
	Type   DType
	Tables [][]byte // each has a whole number of rows of Cols elements
	Of     []RowRef

	// If InOrder is set, row i is row i of Tables[0], and Of is not used. Only SegmentRows accepts
	// such rows.
	InOrder bool

	// Ends and Lengths are only for sparse rows. If all entries of the graph are numbered, the
	// entries of vertex v are Ends[v] to Ends[v+1]-1, so Ends has N+1 elements. Row i has
	// Lengths[i] entries, which begin with entry Of[i].Row() of its table.
	Ends    []int64
	Lengths []int32

	// Scale [Cols] has factors for the columns of results that are computed from Int8 rows. Sums of
	// rows are exact before they are multiplied by Scale. If Scale is nil, results are not
	// multiplied.
	Scale []float32

	// If Wide is not 0, the tables from number Wide on have sums of rows. The type of these sums is
	// WideType, which has more bytes than Type. In every table, row i begins at byte i*RowBytes.
	Wide     int
	WideType DType

	// If Mixed is set, some entries of the slice Of refer to rows of another size. Segments that
	// are passed to SegmentRows must not refer to these entries.
	Mixed bool
}

// Row returns the reference of row i.
func (r *Rows) Row(i int) RowRef {
	if r.InOrder {
		return MakeRowRef(0, i)
	}
	return r.Of[i]
}

// TypeOf returns the element type of row i.
func (r *Rows) TypeOf(i int) DType {
	if r.Wide != 0 && r.Row(i).Table() >= r.Wide {
		return r.WideType
	}
	return r.Type
}

// SumType returns the type in which the sum (or maximum) of rows is sent to another rank, and the
// largest number of rows in one sum. Sums of Int8 rows are sent as Int16, which is exact. A maximum
// is sent in the type of the rows. All other results are sent as Float32.
func (t DType) SumType(how Reduction, weighted bool) (of DType, most int) {
	switch {
	case t != Int8 || weighted:
		return Float32, math.MaxInt32
	case how == ReduceMax:
		return Int8, math.MaxInt32
	}
	return Int16, math.MaxInt16 / math.MaxInt8
}

// RowBytes returns the bytes of a stored row.
func (r *Rows) RowBytes() int { return r.Cols * r.Type.Size() }

// Reduction says how one row is made from the rows of a segment.
type Reduction uint8

// The reductions. For an empty segment they give a row of zeros.
const (
	NoReduction Reduction = iota
	ReduceMean
	ReduceSum
	ReduceMax
)

// String returns a name for the result of the reduction, such as "mean".
func (r Reduction) String() string {
	return [...]string{"nothing", "mean", "sum", "maximum"}[r]
}

// Host has the kernels that prepare minibatches. A method runs on the calling goroutine only.
// Several goroutines may call methods at once.
type Host interface {
	// GatherRows sets row i of dst to row i of rows, for all rows of dst. It converts a row to
	// float32, multiplies it by Scale, and rounds it to the type of dst.
	GatherRows(dst Matrix, rows Rows)

	// SegmentRows sets row d of dst to the reduction of the rows in segment d. Weights of the edges
	// [E] may be given only for ReduceSum; if they are nil, the sum is not weighted. A segment may
	// consist of groups (see Segments). In this case the rows of each group are added up first, in
	// order, and then the sums of the groups, in order. So the bits are the same if another rank
	// has added up a group. The result is rounded to the type of dst.
	SegmentRows(dst Matrix, how Reduction, s Segments, weights []float32, rows Rows)

	// SliceRows copies the rows ids[i] of table to dst, in order. A row has rowBytes bytes. A rank
	// uses this to collect the rows that it sends to another rank.
	SliceRows(dst, table []byte, rowBytes int, ids []int32)

	// SparseAdam updates some rows of p, and the moments of these rows in m and v. The argument of
	// lists one or more gradients for each row, which are added.
	SparseAdam(p, m, v Matrix, of RowGradients, o SparseAdamOptions)

	// AddInto adds x[i] to sum[i]. The reproducible allreduce uses it to add in the order of ranks.
	AddInto(sum, x []float32)

	// ToBF16 sets dst[i] to x[i] as bfloat16, rounded in the same way as by PrecisionBF16. FromBF16
	// converts bfloat16 to float32.
	ToBF16(dst []uint16, x []float32)
	FromBF16(dst []float32, x []uint16)
}

// CheckGatherRows checks the arguments of GatherRows. It does not check that Of refers to rows of
// the tables; each Host must do so.
func CheckGatherRows(dst Matrix, rows Rows) {
	checkStoredColumns("GatherRows", dst, rows.Cols)
	if rows.InOrder {
		panic("compute: GatherRows takes no rows in order; give references")
	}
}

// CheckSegmentRows checks the arguments of SegmentRows. It does not check that Of refers to rows of
// the tables; each Host must do so.
func CheckSegmentRows(dst Matrix, how Reduction, s Segments, weights []float32, rows Rows) {
	checkStoredReduction("SegmentRows", dst, s)
	checkStoredColumns("SegmentRows", dst, rows.Cols)
	if rows.InOrder && len(rows.Tables) == 0 {
		panic("compute: SegmentRows: there is no table whose rows are in order")
	}
	checkHow(how, s, weights)
	if s.Counts != nil {
		CheckLengths("SegmentRows", s.Len(), len(s.Counts))
	}
}

// checkHow checks that the reduction allows weights, if they are given, and that there is a weight
// for each edge.
func checkHow(how Reduction, s Segments, weights []float32) {
	if how < ReduceMean || how > ReduceMax || weights != nil && how != ReduceSum {
		panic(fmt.Sprintf("compute: SegmentRows: %v with %d weights; it is a mean, a sum or a "+
			"maximum, and only sums have weights", how, len(weights)))
	}
	if weights != nil {
		CheckLengths("SegmentRows", len(s.Indices), len(weights))
	}
}

// CheckSliceRows checks the arguments of SliceRows. It does not check the range of ids; each Host
// must do so.
func CheckSliceRows(dst []byte, rowBytes int, ids []int32) {
	CheckLengths("SliceRows", len(dst), rowBytes*len(ids))
}
