package compute

// DType is the element type of stored feature rows.
type DType uint8

// The element types a shard may hold. Rows travel in the shard's type and are converted at use.
const (
	Float32 DType = iota
	Float16
)

// Size returns the bytes of one element.
func (t DType) Size() int {
	if t == Float16 {
		return 2
	}
	return 4
}

// String returns the NumPy name of the type.
func (t DType) String() string {
	if t == Float16 {
		return "float16"
	}
	return "float32"
}

// RowRef refers to one feature row: a table and a row of that table.
type RowRef uint64

// RefRowBits leaves 2^16 tables of up to 2^48 rows each.
const RefRowBits = 48

// MakeRowRef packs a table number and a row of that table.
func MakeRowRef(table, row int) RowRef { return RowRef(table)<<RefRowBits | RowRef(row) }

// Table returns the number of the table that holds the row.
func (r RowRef) Table() int { return int(r >> RefRowBits) }

// Row returns the row within the table.
func (r RowRef) Row() int { return int(r & (1<<RefRowBits - 1)) }

// Rows is a list of feature rows, each wherever it lies: the rank's own shard, a peer's shard, a
// cache, a receive buffer. Nothing is copied or permuted to make one
// (docs/design/05-rows-stay-where-they-lie.md). Row i is row Of[i].Row() of Tables[Of[i].Table()].
type Rows struct {
	Cols   int
	Type   DType
	Tables [][]byte // each a whole number of rows of Cols elements
	Of     []RowRef
}

// RowBytes returns the bytes of a stored row.
func (r *Rows) RowBytes() int { return r.Cols * r.Type.Size() }

// Host has the kernels that prepare minibatches. Its methods are single-threaded and safe for
// concurrent use.
type Host interface {
	// GatherRows sets dst[i] = row i of rows, converted to float32, for the first dst.Rows rows.
	GatherRows(dst Matrix, rows Rows)

	// SegmentMeanRows sets dst[d] to the mean of the rows rows[i], i in segment d, summed in edge
	// order in float32 and divided by the segment's length; an empty segment gives a zero row.
	SegmentMeanRows(dst Matrix, s Segments, rows Rows)

	// SliceRows copies rows ids[i] of table (rowBytes bytes each) to dst, in order: the rows that a
	// rank sends to another one.
	SliceRows(dst, table []byte, rowBytes int, ids []int32)

	// AddInto sets sum[i] += x[i]: the rank-order sum of the reproducible allreduce.
	AddInto(sum, x []float32)
}

// CheckGatherRows checks the arguments of GatherRows. The host itself checks that Of refers to rows
// of tables.
func CheckGatherRows(dst Matrix, rows Rows) { checkColumns("GatherRows", dst, rows.Cols) }

// CheckSegmentMeanRows checks the arguments of SegmentMeanRows likewise.
func CheckSegmentMeanRows(dst Matrix, s Segments, rows Rows) {
	checkReduction("SegmentMeanRows", dst, s)
	checkColumns("SegmentMeanRows", dst, rows.Cols)
}

// CheckSliceRows checks the arguments of SliceRows. The host itself checks the range of ids.
func CheckSliceRows(dst []byte, rowBytes int, ids []int32) {
	CheckLengths("SliceRows", len(dst), rowBytes*len(ids))
}
