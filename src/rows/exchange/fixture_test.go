package exchange

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// layout is a random matrix distributed over ranks.
type layout struct {
	ranks, perRank, perNode int // perNode: consecutive ranks that read each other's tables
	offsets                 []int64
	cols                    int
	dtype                   compute.DType
	tables                  [][]byte // of all parts
}

// newLayout cuts up to vertices vertices into parts at random places; many parts are empty when
// there are few.
func newLayout(rng *rand.Rand, ranks, perRank, perNode, vertices, cols int,
	dtype compute.DType) *layout {
	l := &layout{ranks: ranks, perRank: perRank, perNode: perNode, cols: cols, dtype: dtype}
	parts := ranks * perRank
	l.offsets = make([]int64, parts+1)
	for p := 1; p < parts; p++ {
		l.offsets[p] = rng.Int64N(int64(vertices + 1))
	}
	l.offsets[parts] = int64(vertices)
	slices.Sort(l.offsets)
	for p := range parts {
		table := []byte{}
		for v := l.offsets[p]; v < l.offsets[p+1]; v++ {
			table = append(table, l.row(v)...)
		}
		l.tables = append(l.tables, table)
	}
	return l
}

// row returns the bytes of v's row: no two vertices have equal ones, and no two columns of one.
func (l *layout) row(v int64) []byte {
	row := make([]byte, l.cols*l.dtype.Size())
	var word [8]byte
	for b := range row {
		if b%8 == 0 {
			binary.LittleEndian.PutUint64(word[:],
				(uint64(v)*0x9e3779b97f4a7c15+uint64(b))*0xbf58476d1ce4e5b9)
		}
		row[b] = word[b%8]
	}
	return row
}

func (l *layout) vertices() int { return int(l.offsets[len(l.offsets)-1]) }

// owner returns the rank of v by looking at every part.
func (l *layout) owner(v graph.VertexID) int {
	for p := range l.tables {
		if int64(v) >= l.offsets[p] && int64(v) < l.offsets[p+1] {
			return p / l.perRank
		}
	}
	panic(fmt.Sprintf("nobody owns %d", v))
}

// options returns a rank's arguments of New, with the tables of its node.
func (l *layout) options(rank int) Options {
	tables := make([][]byte, len(l.tables))
	for p := range tables {
		if p/l.perRank/l.perNode == rank/l.perNode {
			tables[p] = l.tables[p]
		}
	}
	return Options{Offsets: l.offsets, Tables: tables, Kinds: []Kind{{l.cols, l.dtype}},
		Scale: l.scale(), Host: slicer{}}
}

// frontier draws distinct vertices that keep accepts, in random order.
func (l *layout) frontier(rng *rand.Rand, share float64,
	keep func(graph.VertexID) bool) []graph.VertexID {
	var ids []graph.VertexID
	for _, v := range rng.Perm(l.vertices()) {
		if keep(graph.VertexID(v)) && rng.Float64() < share {
			ids = append(ids, graph.VertexID(v))
		}
	}
	return ids
}

// check compares every row of p with the row of its vertex, and the counters with a count by hand.
func (l *layout) check(p *Plan, rank int, ids []graph.VertexID,
	cached func(graph.VertexID) bool) error {
	rowBytes := l.cols * l.dtype.Size()
	want := trace.Counters{Frontier: int64(len(ids))}
	if len(p.Rows.Of) != len(ids) || p.Rows.Cols != l.cols || p.Rows.Type != l.dtype {
		return fmt.Errorf("%d rows of %d %s for %d vertices", len(p.Rows.Of), p.Rows.Cols,
			p.Rows.Type, len(ids))
	}
	for i, v := range ids {
		ref := p.Rows.Of[i]
		got := p.Rows.Tables[ref.Table()][ref.Row()*rowBytes:][:rowBytes]
		if string(got) != string(l.row(int64(v))) {
			return fmt.Errorf("row %d, vertex %d of rank %d, in table %d: %x, want %x", i, v,
				l.owner(v), ref.Table(), got, l.row(int64(v)))
		}
		switch owner := l.owner(v); {
		case owner == rank:
			want.Local++
		case owner/l.perNode == rank/l.perNode:
			want.Peer++
		case cached(v):
			want.Cached++
		default:
			want.Remote++
		}
	}
	got := p.Counters
	if got.Frontier != got.Local+got.Cached+got.Peer+got.Remote {
		return fmt.Errorf("%+v: the parts do not add up to the frontier", got)
	}
	want.Collectives = 2
	want.ServedReads = got.Served // without sums
	want.Served, want.CountBytes, want.IDBytes, want.RowBytes = got.Served, 8*int64(l.ranks),
		4*want.Remote, got.Served*int64(rowBytes)
	if got != want {
		return fmt.Errorf("counters %+v, want %+v", got, want)
	}
	return nil
}

func uncached(graph.VertexID) bool { return false }

// fetch runs all stages of one plan, one after the other.
func fetch(x *Exchange, p *Plan, ids []graph.VertexID) error {
	if err := x.Plan(p, ids); err != nil {
		return err
	}
	return finish(x, p)
}

// finish runs the stages after the requests.
func finish(x *Exchange, p *Plan) error { return (&Fetcher{Exchange: x}).finish(p) }

// node makes the node of a rank where of is a number of each rank's. Collective.
func node(world comm.Comm, of []int) (*Node, error) {
	c, err := world.Split(of[world.Rank()], world.Rank())
	return &Node{Comm: c, Of: of}, err
}

// slicer is the reference implementation of SliceRows, beside that of SegmentRows.
type slicer struct{ ref.Host }

func (slicer) SliceRows(dst, table []byte, rowBytes int, ids []int32) {
	for i, id := range ids {
		copy(dst[i*rowBytes:(i+1)*rowBytes], table[int(id)*rowBytes:])
	}
}

// tally is a communicator that counts the bytes to send, and may damage ids and counts before it
// sends them.
type tally struct {
	comm.Comm
	sent   [3]int64 // counts, ids, rows
	calls  int
	damage func(rowBytes int, send []byte)
}

func (c *tally) StartAlltoallv(send, recv []byte, sendRows, recvRows []int,
	rowBytes int) comm.Request {
	c.count(2, send, sendRows, rowBytes)
	c.calls++
	return c.Comm.StartAlltoallv(send, recv, sendRows, recvRows, rowBytes)
}

func (c *tally) StartAlltoallThen(send, recv []byte, sendRows, recvRows []int, rowBytes int,
	then comm.Then) comm.Request {
	c.count(0, send, sendRows, rowBytes)
	c.count(1, then.Send, then.SendRows, then.RowBytes)
	c.calls++
	return c.Comm.StartAlltoallThen(send, recv, sendRows, recvRows, rowBytes, then)
}

func (c *tally) count(what int, send []byte, rows []int, rowBytes int) {
	for _, n := range rows {
		c.sent[what] += int64(n * rowBytes)
	}
	if c.damage != nil {
		c.damage(rowBytes, send)
	}
}
