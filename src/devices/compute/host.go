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

	// The elements of a sparse row are its entries, and rows may have different numbers of entries:
	Sparse     // a column, int32, and its value, float32
	SparseOnes // only a column: all values are 1
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

// RowRef refers to one feature row: a table and a row of that table.
type RowRef uint64

// RefRowBits is the number of bits of a RowRef for the row. It allows 2^16 tables of up to 2^48
// rows each.
const RefRowBits = 48

// MakeRowRef packs a table number and a row of that table.
func MakeRowRef(table, row int) RowRef { return RowRef(table)<<RefRowBits | RowRef(row) }

// Table returns the number of the table that holds the row.
func (r RowRef) Table() int { return int(r >> RefRowBits) }

// Row returns the row within the table.
func (r RowRef) Row() int { return int(r & (1<<RefRowBits - 1)) }

// Rows is a list of references to feature rows. Each row stays where it lies: in the rank's own
// shard, a peer's shard, a cache or a receive buffer. To make the list, no row is copied or moved
// (docs/design/05-rows-stay-where-they-lie.md). Row i is row Of[i].Row() of Tables[Of[i].Table()].
type Rows struct {
	Cols   int
	Type   DType
	Tables [][]byte // each has a whole number of rows of Cols elements
	Of     []RowRef

	// InOrder says that row i is row i of Tables[0], and that Of is not used. Only SegmentRows takes
	// such rows.
	InOrder bool

	// Only for sparse rows. If all entries of the graph are numbered, vertex v has the entries
	// Ends[v] to Ends[v+1]-1; Ends [N+1]. Row i consists of the Lengths[i] entries of its table
	// from entry Of[i].Row() on.
	Ends    []int64
	Lengths []int32

	// Scale [Cols] multiplies the columns of results that are computed from Int8 rows. The sums
	// are exact before they are multiplied. If Scale is nil, nothing is multiplied.
	Scale []float32

	// If Wide is not 0, the tables from number Wide on hold sums of rows. Their type, WideType, is
	// wider than Type. In every table, row i begins at byte i times RowBytes.
	Wide     int
	WideType DType

	// Mixed says that some entries of the slice Of refer to rows of another size. The segments that
	// SegmentRows gets must not contain these entries.
	Mixed bool
}

// At returns where row i lies.
func (r *Rows) At(i int) RowRef {
	if r.InOrder {
		return MakeRowRef(0, i)
	}
	return r.Of[i]
}

// TypeOf returns the element type of row i.
func (r *Rows) TypeOf(i int) DType {
	if r.Wide != 0 && r.At(i).Table() >= r.Wide {
		return r.WideType
	}
	return r.Type
}

// SumType returns the type in which the sum (or maximum) of rows is sent to another rank, and the
// largest number of rows in one sum. Sums of Int8 rows are sent exactly as Int16. A maximum keeps
// the rows' type. Everything else is sent as Float32.
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

// Reduction is how the rows of a segment become one row.
type Reduction uint8

// The reductions. An empty segment gives a zero row.
const (
	NoReduction Reduction = iota
	ReduceMean
	ReduceSum
	ReduceMax
)

// String returns the name of the reduction's result, such as "mean".
func (r Reduction) String() string {
	return [...]string{"nothing", "mean", "sum", "maximum"}[r]
}

// Host has the kernels that prepare minibatches. Its methods are single-threaded and safe for
// concurrent use.
type Host interface {
	// GatherRows sets dst[i] to row i of rows, for the first dst.Rows rows. The row is converted to
	// float32, scaled, and rounded to the type of dst.
	GatherRows(dst Matrix, rows Rows)

	// SegmentRows sets dst[d] to the reduction of the rows i in segment d. weights [E] may be given
	// only for ReduceSum; nil means that the sum is not weighted. A segment may consist of groups
	// (see Segments). Then the rows of each group are added up in order, and the sums of the groups
	// are added in order. So if another rank has added up a group, its sum leads to the same bits.
	// At the end the result is rounded to the type of dst.
	SegmentRows(dst Matrix, how Reduction, s Segments, weights []float32, rows Rows)

	// SliceRows copies the rows ids[i] of table to dst, in order. A row has rowBytes bytes. A rank
	// so collects the rows that it sends to another rank.
	SliceRows(dst, table []byte, rowBytes int, ids []int32)

	// SparseAdam updates some rows of p, and of their moments m and v, with the sums of the rows'
	// gradients.
	SparseAdam(p, m, v Matrix, of RowGradients, o SparseAdamOptions)

	// AddInto adds x[i] to sum[i]. The reproducible allreduce uses it to add in the order of ranks.
	AddInto(sum, x []float32)

	// ToBF16 sets dst[i] to x[i] as bfloat16, rounded as PrecisionBF16 rounds. FromBF16 converts
	// bfloat16 to float32.
	ToBF16(dst []uint16, x []float32)
	FromBF16(dst []float32, x []uint16)
}

// CheckGatherRows checks the arguments of GatherRows, except that each Host must itself check that
// Of refers to rows of the tables.
func CheckGatherRows(dst Matrix, rows Rows) {
	checkStoredColumns("GatherRows", dst, rows.Cols)
	if rows.InOrder {
		panic("compute: GatherRows takes no rows in order; give references")
	}
}

// CheckSegmentRows checks the arguments of SegmentRows, except that each Host must itself check
// that Of refers to rows of the tables.
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

// checkHow checks that the reduction allows the weights, and that they fit the edges.
func checkHow(how Reduction, s Segments, weights []float32) {
	if how < ReduceMean || how > ReduceMax || weights != nil && how != ReduceSum {
		panic(fmt.Sprintf("compute: SegmentRows: %v with %d weights; it is a mean, a sum or a "+
			"maximum, and only sums have weights", how, len(weights)))
	}
	if weights != nil {
		CheckLengths("SegmentRows", len(s.Indices), len(weights))
	}
}

// CheckSliceRows checks the arguments of SliceRows, except that each Host must itself check the
// range of ids.
func CheckSliceRows(dst []byte, rowBytes int, ids []int32) {
	CheckLengths("SliceRows", len(dst), rowBytes*len(ids))
}
