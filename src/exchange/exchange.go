// Package exchange locates and fetches the feature rows of a minibatch's input frontier: rows that
// the rank can read stay where they lie, the others are fetched from their owners. It fetches any
// other matrix whose rows are distributed like the vertices in the same way, such as the hidden
// states of layer-wise inference.
//
//	frontier   v0  v1  v2  v3  v4  v5  ...        vertex ids, distinct
//	             │ part of v: search in Offsets [P+1]; rank of part: part / (P/K)
//	Plan         │
//	             ├─ own part       Of[i] = (part, row)          Tables[part]   own shard, mapped
//	             ├─ part of a peer Of[i] = (part, row)          Tables[part]   a peer's shard on this node, mapped
//	             ├─ in the cache   Of[i] = (P, slot)            Tables[P]      Cache.Table
//	             └─ remote         Of[i] = (P+1, position)      Tables[P+1]    receive buffer
//
// Rows are of one kind or several. Where they are of several, each kind has a table of the cache, and
// each part one of the buffer.
//
// With Options.Stored every rank has the tables of all parts, nothing is remote, and the cache is
// asked for every vertex before the table of its part is.
//
//	remote ids, by owning part, then in frontier order:        rank r asks            rank s is asked
//	    counts   how many rows of each owner                   asked   [K]  ───────>  wanted   [K]
//	    ids      rows relative to the owner's first vertex     askIDs  [R]  ───────>  wantIDs  [S]
//	    slice    the owner copies them together                                       wantRows [S, rowBytes]
//	    rows     in the order of the ids, so they land in place received [R] <───────  wantRows
//
// With Options.Sums the neighbours that a destination has in one part may come as their sum
// (groups.go): three counts are sent, of rows, sums and members of sums; ids of members follow those
// of rows, and sums follow rows. Edges are rewritten to read a sum like a row.
//
// With Options.Node the ranks of a node ask each owner for a row once: nodes.go.
//
// No row is copied twice or permuted, but for that: readers follow Plan.Rows
// (docs/design/05-rows-stay-where-they-lie.md). Because requests are grouped by part, the owner
// copies each run of rows of one table with one call.
//
// With a dynamic cache, whose content depends on the minibatches before, Plan is split: Locate
// finds the remote vertices; Request is told which of them are in Buffer and which rows to fetch
// besides; Keep copies rows into the cache after all rows of the minibatch have been read.
//
// The stages of one minibatch are, in pipeline terms, Plan (local), StartAsk, SliceRows (local),
// StartRows. Many plans may be in flight. One communicator serves both collectives, and that of a
// node those of nodes.go: all ranks must start its operations in the same order, and the pipeline's
// issuer does so by a schedule on which all ranks agree. Nothing else may use it, because gradients
// and layer shuffles follow other schedules.
//
// All arrays lie outside the Go heap, grow with slack and are kept; in steady state a plan
// allocates nothing. The package knows nothing of sampling, of cache policies, or of where tables
// come from.
package exchange

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/graph"
)

// Slicer is the part of compute.Host that serving rows and their sums needs.
type Slicer interface {
	// SliceRows copies rows ids[i] of table, rowBytes bytes each, to dst, in order.
	SliceRows(dst, table []byte, rowBytes int, ids []int32)
	// SegmentRows adds rows as compute.Host does; for Options.Sums and Late alone.
	SegmentRows(dst compute.Matrix, how compute.Reduction, s compute.Segments, weights []float32,
		rows compute.Rows)
}

// Cache holds copies of rows of other ranks. It must be safe for concurrent use, and a row that it
// has returned must stay until the plan that asked for it has been used.
type Cache interface {
	// Row returns the row of Table that holds vertex v, of sparse rows its first entry, or -1. Only
	// remote vertices are looked up.
	Row(v graph.VertexID) int
	// Table returns the rows, of the exchange's columns and type.
	Table() []byte
}

// SharedCache is a Cache whose table also holds the cached rows of other ranks of this node, which
// are counted as peer rows.
type SharedCache interface {
	Cache
	// Own returns the rows [first, end) of Table that this rank keeps.
	Own() (first, end int)
}

// Options describes where rows lie. All ranks must give the same Offsets and Kinds.
type Options struct {
	// Offsets [P+1]: part k is vertices [Offsets[k], Offsets[k+1]). P is a multiple of the number
	// of ranks K; rank r owns parts [r*P/K, (r+1)*P/K). Parts may be empty.
	Offsets []int64

	// Tables [P] are the rows of the parts that this rank can read: its own, and those of peers
	// that share its memory. nil for the others, whose rows are fetched. They must stay valid until
	// the last plan has been used.
	Tables [][]byte

	// Stored: Tables are of all parts, and slower to read than the cache: rows that the cache lacks
	// are read from them, and counted as stored.
	Stored bool

	// Kinds are what rows are: part k has rows of kind k % len(Kinds), and every rank has parts of
	// all kinds. Several are not for SharedCache.
	Kinds []Kind
	Scale []float32 // [Cols] of rows of compute.Int8: compute.Rows.Scale
	Ends  []int64   // [N+1] of sparse rows: compute.Rows.Ends. Without SharedCache, Buffer and Sums
	// Kept [len(Kinds)] says how many rows of each kind there are in the table of Cache, or in
	// Buffer: CutTable. Only read where there are several.
	Kept []int

	Host  Slicer
	Cache Cache // a fixed set of rows, for Plan; nil for none

	// Sums lets owners add rows that are read for their sum alone; nil for none. All ranks must
	// give the same.
	Sums *Sums

	// Node is this rank's, whose ranks fetch as one; nil: each fetches for itself.
	Node *Node

	// Window bounds the bytes under way from this rank at a time: comm.Pacer. All ranks must give
	// the same; 0 is no limit.
	Window int

	// Buffer holds copies of rows that change from step to step, for Locate and Request; nil for
	// none. Keep writes it.
	Buffer []byte
}

// Kind is what the rows of a part are.
type Kind struct {
	Cols int // 0: there are none, and none are asked for
	Type compute.DType
}

// RowBytes returns the bytes of a row; of sparse rows those of an entry.
func (k Kind) RowBytes() int {
	if k.Type.IsSparse() {
		return k.Type.Size()
	}
	return k.Cols * k.Type.Size()
}

// tableAlign is where the rows of a kind may begin in a table of several.
const tableAlign = 64

// TableBytes returns the length of a table with the given number of rows of each kind.
func TableBytes(kinds []Kind, rows []int) (bytes int) {
	if len(kinds) == 1 { // nothing follows
		return rows[0] * kinds[0].RowBytes()
	}
	for k, n := range rows {
		bytes += aligned(n * kinds[k].RowBytes())
	}
	return bytes
}

// CutTable returns of a table of TableBytes the rows of each kind. One kind has the whole table.
func CutTable(table []byte, kinds []Kind, rows []int) [][]byte {
	if len(kinds) == 1 {
		return [][]byte{table}
	}
	of := make([][]byte, len(kinds))
	for k, kind := range kinds {
		size := rows[k] * kind.RowBytes()
		of[k], table = table[:size], table[aligned(size):]
	}
	return of
}

func aligned(bytes int) int { return (bytes + tableAlign - 1) / tableAlign * tableAlign }

// Exchange plans and fetches rows for one rank. Its methods may be called concurrently for
// different plans, as far as the order of collectives on the communicator allows.
type Exchange struct {
	comm     comm.Comm
	rank     int
	ranks    int
	perRank  int // parts of each rank
	parts    graph.PartIndex
	first    graph.VertexID // of this rank's vertices
	rows     int            // of this rank
	scale    []float32
	ends     []int64 // of sparse rows; nil else
	offsets  []int64 // [P+1]
	kinds    []Kind
	partKind []uint16         // [P]
	unit     int              // divides the bytes of every row
	tables   [][]byte         // [P+kinds] parts, then the cache
	base     []compute.RowRef // [P] reference of vertex 0 as if in the part: add the vertex (wraps)
	remote   []uint8          // [P] 1 for parts whose rows are looked up in the cache and, unless
	stored   bool             // Tables are of all parts, fetched
	host     Slicer
	cache    Cache
	changes  bool   // there is an Options.Buffer
	kept     [2]int // rows of the cache's table that are this rank's own: from, to
	sums     *Sums
	perKind  int            // counts of each kind
	choices  chan *choosing // idle ones
	firsts   []int32        // [P] first row of the part among its owner's rows
	ones     []int          // [K] one count for every rank
	byRank   []int          // [K] every rank, ascending
	node     *buying        // nil: each rank fetches for itself
	planning bool           // NewPlanning: tables have no rows

	received, summed, numTables int // tables of a plan: see layTables
}

// Parts returns the number of parts.
func (x *Exchange) Parts() int { return len(x.base) }

// Ranks returns the number of ranks, and OwnerOf which of them has a part.
func (x *Exchange) Ranks() int           { return x.ranks }
func (x *Exchange) OwnerOf(part int) int { return part / x.perRank }

// Rank returns this rank, and First the first of its vertices.
func (x *Exchange) Rank() int             { return x.rank }
func (x *Exchange) First() graph.VertexID { return x.first }

// New returns the exchange of this rank. Nothing else may use c while plans are in flight (see the
// package comment); the caller makes it with Dup and frees it. All errors are reported at once.
func New(c comm.Comm, o Options) (*Exchange, error) {
	if err := check(c, o); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	return open(c, o), nil
}

// open makes the exchange of options that fit each other.
func open(c comm.Comm, o Options) *Exchange {
	parts, k, r := len(o.Offsets)-1, c.Size(), c.Rank()
	x := &Exchange{
		comm: c, rank: r, ranks: k, perRank: parts / k, parts: graph.NewPartIndex(o.Offsets),
		offsets: o.Offsets, ends: o.Ends, scale: o.Scale,
		kinds: o.Kinds, sums: o.Sums, choices: make(chan *choosing, 64),
		tables: make([][]byte, parts+len(o.Kinds)), base: make([]compute.RowRef, parts),
		remote: make([]uint8, parts), partKind: make([]uint16, parts),
		stored: o.Stored,
		host:   o.Host, cache: o.Cache, firsts: make([]int32, parts), ones: make([]int, k),
	}
	for _, k := range x.kinds {
		x.unit = gcd(x.unit, k.RowBytes())
	}
	x.unit, x.perKind = max(1, x.unit), 1
	if x.sums != nil {
		x.perKind = 3 // rows, sums, members of sums
	}
	x.first = graph.VertexID(o.Offsets[r*x.perRank])
	x.rows = int(o.Offsets[(r+1)*x.perRank]) - int(x.first)
	copy(x.tables, o.Tables)
	for p := range parts {
		x.partKind[p] = uint16(p % len(x.kinds))
		x.firsts[p] = int32(o.Offsets[p] - o.Offsets[p/x.perRank*x.perRank])
		x.base[p] = compute.MakeRowRef(p, 0) - compute.RowRef(o.Offsets[p])
		if (o.Stored || o.Tables[p] == nil) && x.rowBytesOf(p) > 0 {
			x.remote[p] = 1
		}
	}
	held := o.Buffer
	x.changes = o.Buffer != nil
	if o.Cache != nil {
		held = o.Cache.Table()
		x.kept = [2]int{0, math.MaxInt}
		if c, ok := o.Cache.(SharedCache); ok {
			x.kept[0], x.kept[1] = c.Own()
		}
	}
	if held != nil {
		copy(x.tables[parts:], CutTable(held, o.Kinds, o.Kept))
	}
	x.layTables()
	for i := range x.ones {
		x.ones[i] = 1
		x.byRank = append(x.byRank, i)
	}
	if o.Node != nil {
		x.node = newBuying(o.Node, r, o.Sums != nil)
	}
	comm.Pace(c, o.Window)
	return x
}

// RowsOf returns the rows of a plan as those of one kind: with its columns, its type and that of
// its sums. References to rows of other kinds must not be followed.
func (x *Exchange) RowsOf(p *Plan, kind int) compute.Rows {
	rows, of := p.Rows, x.kinds[kind]
	rows.Cols, rows.Type, rows.Mixed = of.Cols, of.Type, x.mixed()
	if x.sums == nil {
		return rows
	}
	if rows.WideType, _ = x.sums.typeOf(of.Type); rows.WideType == of.Type {
		rows.Wide = 0
	}
	return rows
}

// Kinds returns what the rows of part k % len(Kinds) are.
func (x *Exchange) Kinds() []Kind { return x.kinds }

// MakesSums reports whether owners may send sums of rows.
func (x *Exchange) MakesSums() bool { return x.sums != nil }

func (x *Exchange) rowBytesOf(part int) int { return x.kinds[x.partKind[part]].RowBytes() }

// layTables numbers the tables of a plan:
//
//	parts [P] | cached rows [kinds] | received | passed on | collected | sums
//
// Where rows are of several kinds none are passed on, those received have a table for each part, and
// sums one for each owner and kind.
func (x *Exchange) layTables() {
	x.received = len(x.base) + len(x.kinds)
	x.summed = x.received + 3
	x.numTables = x.summed + 1
	if !x.mixed() {
		return
	}
	x.summed = x.received + len(x.base)
	if x.numTables = x.summed; x.sums != nil {
		x.numTables += x.ranks * len(x.kinds)
	}
}

// mixed reports whether rows are of several kinds.
func (x *Exchange) mixed() bool { return len(x.kinds) > 1 }

// tableOf returns the table of cached rows for a part, and landedIn that of received rows.
func (x *Exchange) tableOf(part int) int { return len(x.base) + int(x.partKind[part]) }
func (x *Exchange) landedIn(part int) int {
	if !x.mixed() {
		return x.received
	}
	return x.received + part
}

// sumsIn returns the table of the sums of a rank and a kind.
func (x *Exchange) sumsIn(rank, kind int) int {
	if x.mixed() {
		return x.summed + rank*len(x.kinds) + kind
	}
	if of, _ := x.sums.typeOf(x.kinds[kind].Type); of == x.kinds[kind].Type {
		return x.received
	}
	return x.summed
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// maxParts leaves table numbers for the cache, the receive buffer, the rows that are passed on or
// the sums in that buffer, and what Collect takes out of the cache.
const maxParts = 1<<16 - 5

// check reports every error of the arguments of New.
func check(c comm.Comm, o Options) error {
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Kinds) == 0 {
		return errors.New("rows are of no kind; they need at least 1")
	}
	errs = append(errs, checkKept(&o)...)
	if o.Stored && o.Buffer != nil {
		reject("rows are read from files and kept in a Buffer, into which rows are fetched; give a " +
			"Cache")
	}
	if o.Cache != nil && o.Buffer != nil {
		reject("there is a Cache and a Buffer; rows are kept in one of them")
	}
	if o.Host == nil {
		reject("there is no Host to copy rows with")
	}
	if err := checkParts(c, o); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if o.Node != nil {
		errs = append(errs, o.Node.check(c.Rank(), c.Size()))
	}
	if o.Kinds[0].Type.IsSparse() {
		if err := checkSparse(&o); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(append(errs, checkTables(c.Rank(), (len(o.Offsets)-1)/c.Size(), o)...)...)
}

// checkParts rejects parts that ranks cannot share.
func checkParts(c comm.Comm, o Options) error {
	parts, k, most := len(o.Offsets)-1, c.Size(), maxParts
	if len(o.Kinds) > 1 {
		most = (maxParts - len(o.Kinds)) / 2
		if o.Sums != nil {
			most = (maxParts - len(o.Kinds)) / 3
		}
	}
	switch {
	case parts < 1 || parts > most:
		return fmt.Errorf("%d parts; there must be 1 to %d", parts, most)
	case parts%k != 0 || parts/k%len(o.Kinds) != 0:
		return fmt.Errorf("%d parts cannot be shared evenly by %d ranks; use a number of ranks that divides it",
			parts, k)
	case o.Offsets[0] != 0:
		return fmt.Errorf("offsets start at %d, not 0", o.Offsets[0])
	case o.Offsets[parts] > graph.MaxVertices:
		return fmt.Errorf("%d vertices; at most %d are supported", o.Offsets[parts], graph.MaxVertices)
	case len(o.Tables) != parts:
		return fmt.Errorf("%d tables for %d parts", len(o.Tables), parts)
	}
	return nil
}

// checkKept reports a cache or a buffer that does not have the rows of kinds that Kept says.
func checkKept(o *Options) []error {
	if o.Cache == nil && o.Buffer == nil {
		return nil
	}
	if len(o.Kinds) == 1 && (o.Kept == nil || o.Kinds[0].Type.IsSparse()) { // sparse rows differ in length
		return nil
	}
	table := o.Buffer
	if o.Cache != nil {
		table = o.Cache.Table()
	}
	_, shared := o.Cache.(SharedCache)
	switch {
	case shared && len(o.Kinds) == 1:
		return nil
	case shared:
		return []error{errors.New("rows of several kinds are cached by each rank alone")}
	case len(o.Kept) != len(o.Kinds) || len(table) != TableBytes(o.Kinds, o.Kept):
		return []error{fmt.Errorf("a table of %d bytes does not have %v rows of %d kinds", len(table),
			o.Kept, len(o.Kinds))}
	}
	return nil
}

// checkTables reports offsets that fall, and tables that are missing or do not fit their part.
func checkTables(rank, perRank int, o Options) (errs []error) {
	for p, table := range o.Tables {
		rows := o.Offsets[p+1] - o.Offsets[p]
		kind := o.Kinds[p%len(o.Kinds)]
		want := rows * int64(kind.RowBytes())
		if kind.Type.IsSparse() && rows >= 0 {
			want = (o.Ends[o.Offsets[p+1]] - o.Ends[o.Offsets[p]]) * int64(kind.RowBytes())
		}
		switch own := p/perRank == rank; {
		case rows < 0:
			errs = append(errs, fmt.Errorf("offsets fall from %d to %d at part %d", o.Offsets[p],
				o.Offsets[p+1], p))
		case table == nil && o.Stored && rows > 0:
			errs = append(errs, fmt.Errorf("rows are read from files, but part %d has no table of "+
				"its %d rows", p, rows))
		case table == nil && own && want > 0:
			errs = append(errs, fmt.Errorf("rank %d owns part %d but has no table of its %d rows",
				rank, p, rows))
		case table != nil && int64(len(table)) != want:
			errs = append(errs, fmt.Errorf("the table of part %d has %d bytes; %d rows of %d %s "+
				"columns are %d",
				p, len(table), rows, kind.Cols, kind.Type, want))
		}
	}
	return errs
}
