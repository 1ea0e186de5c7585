// Package exchange brings together the feature rows of a minibatch's input frontier: those a rank can read stay where
// they lie, the others are fetched from the ranks that own them. Hidden states of layer-wise inference, or any other
// matrix whose rows are spread over ranks like the vertices, are fetched the same way.
//
//	frontier   v0  v1  v2  v3  v4  v5  ...        vertex ids, distinct
//	             │ part of v: search in Offsets [P+1]; rank of part: part / (P/K)
//	Plan         │
//	             ├─ own part       Of[i] = (part, row)          Tables[part]   own shard, mapped
//	             ├─ part of a peer Of[i] = (part, row)          Tables[part]   a peer's shard on this node, mapped
//	             ├─ in the cache   Of[i] = (P, slot)            Tables[P]      Cache.Table
//	             └─ remote         Of[i] = (P+1, position)      Tables[P+1]    receive buffer
//
//	remote ids, by owning part, then in frontier order:        rank r asks            rank s is asked
//	    counts   how many rows of each owner                   asked   [K]  ───────>  wanted   [K]
//	    ids      rows relative to the owner's first vertex     askIDs  [R]  ───────>  wantIDs  [S]
//	    slice    the owner copies them together                                       wantRows [S, rowBytes]
//	    rows     in the order asked for, so they land in place received [R] <───────  wantRows
//
// Nothing is copied twice and nothing permuted: readers follow Plan.Rows (docs/design/05-rows-stay-where-they-lie.md). Grouping by part, not only by
// rank, gives the owner runs of rows of one table, which it copies with one call each.
//
// With a cache that changes, Plan is in two halves, for what the cache holds depends on the minibatches
// before: Locate finds the remote vertices, Decide is told which of them are in Buffer and what else to
// fetch, and when all rows of the minibatch have been read Keep copies those that stay.
//
// The stages of one minibatch are, in pipeline terms, Plan (local), StartCounts with FinishCounts, StartIDs, SliceRows
// (local), StartRows. Many plans may be in flight. One communicator is enough for the three collectives: its
// operations must come in one order on all ranks, and the pipeline's lane starts them in a schedule that is a pure
// function of what all ranks agree on; operations in flight on one communicator progress independently. It must
// be a communicator of its own, because gradients and layer shuffles follow other schedules.
//
// All arrays lie outside the Go heap, grow with slack and are kept; in steady state a plan allocates nothing. The package
// does not know how frontiers are sampled, who decides what is cached, or where tables come from.
package exchange

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/graph"
)

// Slicer is the part of compute.Host that serving rows needs.
type Slicer interface {
	// SliceRows copies rows ids[i] of table, rowBytes bytes each, to dst, in order.
	SliceRows(dst, table []byte, rowBytes int, ids []int32)
}

// Cache holds copies of rows of other ranks. It must be safe for concurrent use, and a row it has named must stay until
// the plan that it was named for has been used.
type Cache interface {
	// Row returns the row of Table that holds vertex v, or -1. It is asked only about vertices that are remote.
	Row(v graph.VertexID) int
	// Table returns the rows, of the exchange's columns and type.
	Table() []byte
}

// SharedCache is a Cache whose table also holds what other ranks of this node keep. Their rows are read like those of their parts, and
// counted as a peer's.
type SharedCache interface {
	Cache
	// Own returns the rows [first, end) of Table that this rank keeps.
	Own() (first, end int)
}

// Options says where rows lie. All ranks give the same Offsets, Cols and Type.
type Options struct {
	// Offsets [P+1]: part k is vertices [Offsets[k], Offsets[k+1]). P is a multiple of the number of ranks K; rank r owns
	// parts [r*P/K, (r+1)*P/K). Parts may be empty.
	Offsets []int64

	// Tables [P] are the rows of the parts that this rank can read: its own, and those of peers that share its memory. nil for
	// the others, whose rows are fetched. They must stay until the last plan has been used.
	Tables [][]byte

	Cols int // elements of a row
	Type compute.DType

	Host  Slicer
	Cache Cache // a fixed set of rows, for Plan; nil for none

	// Buffer holds copies of rows that change from step to step, for Locate and Decide; nil for none. Keep writes it.
	Buffer []byte
}

// Exchange plans and fetches rows for one rank. Its methods may be called concurrently for different plans, as far as
// the order of collectives on the communicator allows.
type Exchange struct {
	comm     comm.Comm
	rank     int
	ranks    int
	perRank  int // parts of each rank
	parts    graph.PartIndex
	first    graph.VertexID // of this rank's vertices
	rows     int            // of this rank
	cols     int
	dtype    compute.DType
	rowBytes int
	tables   [][]byte         // [P+1] parts, then the cache
	base     []compute.RowRef // [P] reference of vertex 0 if it were in the part's table: add the vertex (wraps around)
	remote   []uint8          // [P] 1 for parts that must be fetched
	host     Slicer
	cache    Cache
	kept     [2]int  // rows of the cache's table that are this rank's own: from, to
	firsts   []int32 // [P] first row of the part among its owner's rows
	ones     []int   // [K] one count for every rank
}

// Rank returns the rank whose exchange it is.
func (x *Exchange) Rank() int { return x.rank }

// New returns the exchange of this rank. c must be used by nothing else while plans are in flight (see the package comment);
// the caller makes it with Dup and frees it. All faults are reported at once.
func New(c comm.Comm, o Options) (*Exchange, error) {
	if err := check(c, o); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	parts, k, r := len(o.Offsets)-1, c.Size(), c.Rank()
	x := &Exchange{
		comm: c, rank: r, ranks: k, perRank: parts / k, parts: graph.NewPartIndex(o.Offsets),
		cols: o.Cols, dtype: o.Type, rowBytes: o.Cols * o.Type.Size(),
		tables: make([][]byte, parts+1), base: make([]compute.RowRef, parts), remote: make([]uint8, parts),
		host: o.Host, cache: o.Cache, firsts: make([]int32, parts), ones: make([]int, k),
	}
	x.first = graph.VertexID(o.Offsets[r*x.perRank])
	x.rows = int(o.Offsets[(r+1)*x.perRank]) - int(x.first)
	copy(x.tables, o.Tables)
	for p := range parts {
		x.firsts[p] = int32(o.Offsets[p] - o.Offsets[p/x.perRank*x.perRank])
		x.base[p] = compute.MakeRowRef(p, 0) - compute.RowRef(o.Offsets[p])
		if o.Tables[p] == nil {
			x.remote[p] = 1
		}
	}
	x.tables[parts] = o.Buffer
	if o.Cache != nil {
		x.tables[parts] = o.Cache.Table()
		x.kept = [2]int{0, math.MaxInt}
		if c, ok := o.Cache.(SharedCache); ok {
			x.kept[0], x.kept[1] = c.Own()
		}
	}
	for i := range x.ones {
		x.ones[i] = 1
	}
	return x, nil
}

// maxParts leaves table numbers for the cache and the receive buffer.
const maxParts = 1<<16 - 2

// check reports every fault of the arguments of New.
func check(c comm.Comm, o Options) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.Cols < 1 {
		fault("rows have %d columns; they need at least 1", o.Cols)
	}
	if o.Cache != nil && o.Buffer != nil {
		fault("there is a Cache and a Buffer; rows are kept in one of them")
	}
	if o.Host == nil {
		fault("there is no Host to copy rows with")
	}
	parts, k := len(o.Offsets)-1, c.Size()
	switch {
	case parts < 1 || parts > maxParts:
		fault("%d parts; there must be 1 to %d", parts, maxParts)
	case parts%k != 0:
		fault("%d parts cannot be shared evenly by %d ranks; use a number of ranks that divides it", parts, k)
	case o.Offsets[0] != 0:
		fault("offsets start at %d, not 0", o.Offsets[0])
	case o.Offsets[parts] > graph.MaxVertices:
		fault("%d vertices; at most %d are supported", o.Offsets[parts], graph.MaxVertices)
	case len(o.Tables) != parts:
		fault("%d tables for %d parts", len(o.Tables), parts)
	default:
		faults = append(faults, checkTables(c.Rank(), parts/k, o)...)
	}
	return errors.Join(faults...)
}

// checkTables reports offsets that fall, and tables that are missing or do not fit their part.
func checkTables(rank, perRank int, o Options) (faults []error) {
	for p, table := range o.Tables {
		rows := o.Offsets[p+1] - o.Offsets[p]
		want := rows * int64(o.Cols*o.Type.Size())
		switch own := p/perRank == rank; {
		case rows < 0:
			faults = append(faults, fmt.Errorf("offsets fall from %d to %d at part %d", o.Offsets[p], o.Offsets[p+1], p))
		case table == nil && own && rows > 0:
			faults = append(faults, fmt.Errorf("rank %d owns part %d but has no table of its %d rows", rank, p, rows))
		case table != nil && int64(len(table)) != want:
			faults = append(faults, fmt.Errorf("the table of part %d has %d bytes; %d rows of %d %s columns are %d",
				p, len(table), rows, o.Cols, o.Type, want))
		}
	}
	return faults
}
