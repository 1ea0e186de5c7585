package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/topology/graph"
)

// TestEveryRowArrives fetches random frontiers on random layouts and compares every row, every
// counter, and the bytes that the transport saw.
func TestEveryRowArrives(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for _, c := range []struct {
		name                    string
		ranks, perRank, perNode int
		vertices, cols          int
		dtype                   compute.DType
	}{
		{"one rank", 1, 1, 1, 200, 5, compute.Float32},
		{"one rank, many parts", 1, 7, 1, 200, 5, compute.Float32},
		{"two ranks", 2, 1, 1, 200, 16, compute.Float32},
		{"parts on three ranks", 3, 4, 1, 500, 7, compute.Float16},
		{"one column of halves", 4, 2, 1, 300, 1, compute.Float16},
		{"five ranks, few vertices: empty parts and ranks", 5, 2, 1, 6, 3, compute.Float32},
		{"no vertices", 3, 1, 1, 0, 3, compute.Float32},
		{"two nodes of two", 4, 1, 2, 400, 9, compute.Float32},
		{"nodes of two and one", 5, 3, 2, 400, 9, compute.Float16},
		{"all on one node", 3, 2, 3, 300, 4, compute.Float32},
		{"a hundred parts a rank", 2, 100, 1, 5000, 2, compute.Float32},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Logf("seed %d", seed)
			l := newLayout(rand.New(rand.NewPCG(seed, 0)), c.ranks, c.perRank, c.perNode,
				c.vertices, c.cols, c.dtype)
			totals := make([]trace.Counters, c.ranks)
			err := comm.RunWorld(c.ranks, func(world comm.Comm) error {
				rank := world.Rank()
				rng := rand.New(rand.NewPCG(seed, uint64(rank)+1))
				transport := &tally{Comm: world}
				x, err := New(transport, l.options(rank))
				if err != nil {
					return err
				}
				own := func(v graph.VertexID) bool { return l.owner(v) == rank }
				foreign := func(v graph.VertexID) bool { return !own(v) }
				every := func(graph.VertexID) bool { return true }
				var p Plan // reused: frontiers shrink and grow
				defer p.Free()
				for _, f := range []struct {
					keep  func(graph.VertexID) bool
					share float64
				}{{every, 0.5}, {every, 0}, {own, 1}, {foreign, 1}, {foreign, 0.1}, {every, 1},
					{every, rng.Float64()}} {
					ids := l.frontier(rng, f.share, f.keep)
					if err := fetch(x, &p, ids); err != nil {
						return err
					}
					if err := l.check(&p, rank, ids, uncached); err != nil {
						return err
					}
					totals[rank].Add(p.Counters)
				}
				if n := totals[rank].Collectives; n != int64(transport.calls) {
					return fmt.Errorf("counted %d rounds; the transport was asked for %d", n,
						transport.calls)
				}
				if seen := [3]int64{totals[rank].CountBytes, totals[rank].IDBytes,
					totals[rank].RowBytes}; seen != transport.sent {
					return fmt.Errorf("counted %v bytes of counts, ids and rows; the transport "+
						"was given %v", seen, transport.sent)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var sum trace.Counters
			for _, c := range totals {
				sum.Add(c)
			}
			if sum.Remote != sum.Served ||
				sum.RowBytes != sum.Remote*int64(c.cols*c.dtype.Size()) ||
				sum.IDBytes != 4*sum.Remote {
				t.Errorf("over all ranks %+v", sum)
			}
			if (c.perNode >= c.ranks || c.vertices == 0) != (sum.Remote == 0) {
				t.Errorf("%d remote rows", sum.Remote)
			}
		})
	}
}

// minibatch is an item of the pipeline: a frontier and its plan.
type minibatch struct {
	ids  []graph.VertexID
	plan Plan
}

// TestPlansInFlight runs the stages as training does: many plans at once, started in the pipeline's
// order, at random speeds, on one communicator.
func TestPlansInFlight(t *testing.T) {
	const ranks, steps = 3, 20
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l := newLayout(rand.New(rand.NewPCG(seed, 0)), ranks, 2, 1, 300, 6, compute.Float16)
	for _, depth := range []int{0, 1, 2, 3, 10} {
		t.Run(fmt.Sprintf("depth=%d", depth), func(t *testing.T) {
			before := mem.Allocated()
			err := comm.RunWorld(ranks, func(world comm.Comm) error {
				rank := world.Rank()
				x, err := New(world, l.options(rank))
				if err != nil {
					return err
				}
				items := make([]*minibatch, depth+1)
				for k := range items {
					items[k] = &minibatch{}
					defer func() { items[k].plan.Free() }()
				}
				p, err := pipeline.New(items, stages(x), pipeline.Options{Depth: depth, Workers: 2})
				if err != nil {
					return err
				}
				defer p.Close()
				draw := func(step int, m *minibatch) {
					rng := rand.New(rand.NewPCG(seed, uint64(1000*rank+step)))
					m.ids = l.frontier(rng, rng.Float64(),
						func(graph.VertexID) bool { return true })
				}
				return p.Run(context.Background(), steps, draw, func(step int, m *minibatch) error {
					time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
					return l.check(&m.plan, rank, m.ids, uncached)
				})
			})
			if err != nil {
				t.Error(err)
			}
			if after := mem.Allocated(); after != before {
				t.Errorf("%d bytes were not given back", after-before)
			}
		})
	}
}

func stages(x *Exchange) []pipeline.Stage[minibatch] {
	return []pipeline.Stage[minibatch]{
		{Name: "plan", Local: func(m *minibatch) error { return x.Plan(&m.plan, m.ids) }},
		{Name: "ids", Start: func(m *minibatch) (pipeline.Request,
			error) {
			return x.StartAsk(&m.plan), nil
		}},
		{Name: "slice", Local: func(m *minibatch) error { return x.SliceRows(&m.plan) }},
		{Name: "rows", Start: func(m *minibatch) (pipeline.Request,
			error) {
			return x.StartRows(&m.plan), nil
		}},
	}
}

// rows is a cache of the rows of some vertices.
type rows struct {
	slot  map[graph.VertexID]int
	table []byte
}

func (r *rows) Row(v graph.VertexID) int {
	if slot, ok := r.slot[v]; ok {
		return slot
	}
	return -1
}

func (r *rows) Table() []byte { return r.table }

func TestCachedRowsAreNotFetched(t *testing.T) {
	const ranks = 3
	l := newLayout(rand.New(rand.NewPCG(3, 0)), ranks, 2, 1, 300, 4, compute.Float32)
	err := comm.RunWorld(ranks, func(world comm.Comm) error {
		rank := world.Rank()
		rng := rand.New(rand.NewPCG(3, uint64(rank)+1))
		cache := &rows{slot: map[graph.VertexID]int{}}
		for _, v := range l.frontier(rng, 0.3, func(graph.VertexID) bool { return true }) {
			cache.slot[v] = len(cache.slot)
			cache.table = append(cache.table, l.row(int64(v))...)
		}
		o := l.options(rank)
		o.Cache = cache
		x, err := New(world, o)
		if err != nil {
			return err
		}
		var p Plan
		defer p.Free()
		for range 3 {
			ids := l.frontier(rng, 0.7, func(graph.VertexID) bool { return true })
			if err := fetch(x, &p, ids); err != nil {
				return err
			}
			if err := l.check(&p, rank, ids,
				func(v graph.VertexID) bool { return cache.Row(v) >= 0 }); err != nil {
				return err
			}
			if p.Cached == 0 || p.Remote == 0 {
				return fmt.Errorf("%+v tests nothing", p.Counters)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Where the tables are a store of all rows, the cache is asked first whoever owns the row, the
// others are read in the store, and nothing is sent.
func TestStoredRowsAreNotFetched(t *testing.T) {
	const ranks = 3
	l := newLayout(rand.New(rand.NewPCG(4, 0)), ranks, 2, ranks, 300, 4, compute.Float16)
	before := mem.Allocated()
	err := comm.RunWorld(ranks, func(world comm.Comm) error {
		rng := rand.New(rand.NewPCG(4, uint64(world.Rank())+1))
		held := &rows{slot: map[graph.VertexID]int{}}
		for _, v := range l.frontier(rng, 0.3, func(graph.VertexID) bool { return true }) {
			held.slot[v] = len(held.slot)
			held.table = append(held.table, l.row(int64(v))...)
		}
		for _, cache := range []*rows{held, nil} {
			o := l.options(world.Rank())
			o.Stored = true
			if cache != nil {
				o.Cache = cache
			}
			x, err := New(world, o)
			if err != nil {
				return err
			}
			var p Plan
			defer p.Free()
			for range 3 {
				ids := l.frontier(rng, 0.7, func(graph.VertexID) bool { return true })
				if err := fetch(x, &p, ids); err != nil {
					return err
				}
				want := trace.Counters{Frontier: int64(len(ids)), Collectives: 2,
					CountBytes: 8 * ranks}
				for i, v := range ids {
					ref, row := p.Rows.Of[i], l.row(int64(v))
					if got := p.Rows.Tables[ref.Table()][ref.Row()*len(row):][:len(row)]; string(
						got) != string(row) {
						return fmt.Errorf("vertex %d: %x, want %x", v, got, row)
					}
					if cache != nil && cache.Row(v) >= 0 {
						want.Cached++
					} else {
						want.Stored++
					}
				}
				if p.Counters != want {
					return fmt.Errorf("counters %+v, want %+v", p.Counters, want)
				}
				if err := p.Check(len(ids)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// TestOnePlanServesExchangesOfOtherShapes: layer-wise inference uses one plan for matrices of
// different widths.
func TestOnePlanServesExchangesOfOtherShapes(t *testing.T) {
	const ranks = 2
	rng := rand.New(rand.NewPCG(4, 0))
	layouts := []*layout{
		newLayout(rng, ranks, 3, 1, 100, 8, compute.Float32),
		newLayout(rng, ranks, 1, 1, 60, 2, compute.Float16),
		newLayout(rng, ranks, 5, 1, 200, 11, compute.Float32),
	}
	err := comm.RunWorld(ranks, func(world comm.Comm) error {
		var p Plan
		defer p.Free()
		for k, l := range layouts {
			x, err := New(world, l.options(world.Rank()))
			if err != nil {
				return err
			}
			ids := l.frontier(rand.New(rand.NewPCG(uint64(k), uint64(world.Rank()))), 0.8,
				func(graph.VertexID) bool { return true })
			if err := errors.Join(fetch(x, &p, ids),
				l.check(&p, world.Rank(), ids, uncached)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDamagedRequestNamesBothRanks: a request that only a peer with other parts, or damaged memory,
// would make is an error, not a crash.
func TestDamagedRequestNamesBothRanks(t *testing.T) {
	l := newLayout(rand.New(rand.NewPCG(5, 0)), 2, 3, 1, 50, 4, compute.Float32)
	rows := l.offsets[3]
	for _, c := range []struct {
		name     string
		rowBytes int // of the collective that is damaged
		value    int64
		want     string
	}{
		{"id one too large", IDBytes, rows,
			fmt.Sprintf("rank 1 wants row %d of rank 0, which has %d", rows, rows)},
		{"id negative", IDBytes, -1, "rank 1 wants row -1 of rank 0"},
		{"id smallest", IDBytes, -1 << 31, "rank 1 wants row -2147483648 of rank 0"},
		{"count negative", countBytes, -1, "rank 1 wants -1 rows of rank 0"},
		{"count too large", countBytes, rows + 1,
			fmt.Sprintf("rank 1 wants %d rows of rank 0, which has only %d", rows+1, rows)},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := comm.RunWorld(2, func(world comm.Comm) error {
				transport := &tally{Comm: world}
				if world.Rank() == 1 {
					transport.damage = func(rowBytes int, send []byte) {
						switch {
						case rowBytes != c.rowBytes:
						case rowBytes == IDBytes:
							// The second id.
							binary.LittleEndian.PutUint32(send[4:], uint32(c.value))
						default:
							// The count for rank 0.
							binary.LittleEndian.PutUint64(send, uint64(c.value))
						}
					}
				}
				o := l.options(world.Rank())
				o.Kinds = []Kind{{4, compute.Float32}}
				x, err := New(transport, o)
				if err != nil {
					return err
				}
				var p Plan
				defer p.Free()
				ids := l.frontier(rand.New(rand.NewPCG(6, 0)), 1,
					func(v graph.VertexID) bool { return l.owner(v) != world.Rank() })
				return fetch(x, &p, ids)
			})
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "same directory of parts") {
				t.Errorf("got %v\nwant %q", err, c.want)
			}
		})
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, of := range [][]int{nil, {0, 0, 1}} {
		steadyState(t, of)
	}
}

// steadyState fetches on three ranks, which fetch as one on nodes unless these are nil.
func steadyState(t *testing.T, nodes []int) {
	const ranks, rounds = 3, 20
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	l := newLayout(rand.New(rand.NewPCG(8, 0)), ranks, 2, 1, 500, 8, compute.Float32)
	var measured float64
	err := comm.RunWorld(ranks, func(world comm.Comm) error {
		o := l.options(world.Rank())
		var err error
		if nodes != nil {
			o.Node, err = node(world, nodes)
		}
		if err != nil {
			return err
		}
		x, err := New(world, o)
		if err != nil {
			return err
		}
		defer x.Free()
		ids := l.frontier(rand.New(rand.NewPCG(9, uint64(world.Rank()))), 0.6,
			func(graph.VertexID) bool { return true })
		var p Plan
		defer p.Free()
		var failure error
		round := func() {
			if err := fetch(x, &p, ids); err != nil {
				failure = err
			}
		}
		for range 5 {
			round()
		}
		if world.Rank() == 0 {
			measured = testing.AllocsPerRun(rounds, round) // of the whole process, so of all ranks
		} else {
			for range rounds + 1 {
				round()
			}
		}
		return failure
	})
	if err != nil {
		t.Fatal(err)
	}
	if measured > 0 {
		t.Errorf("%g allocations a fetch, nodes %v", measured, nodes)
	}
}

// BenchmarkPlan plans a frontier of 400k vertices of a 2.4M-vertex graph on one of 4 ranks with 2
// parts each; a quarter of it is local. For comparison it also measures writing as many references
// without a lookup.
func BenchmarkPlan(b *testing.B) {
	const vertices, frontier, parts = 2_400_000, 400_000, 8
	o := Options{Offsets: make([]int64, parts+1), Tables: make([][]byte, parts),
		Kinds: []Kind{{Cols: 1}}, Host: slicer{}}
	for p := range parts {
		o.Offsets[p+1] = int64(p+1) * vertices / parts
	}
	o.Tables[0], o.Tables[1] = make([]byte, vertices/parts*4), make([]byte, vertices/parts*4)
	x, err := New(comm.NewWorld(4).Rank(0), o)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	ids := make([]graph.VertexID, frontier)
	for i := range ids {
		ids[i] = graph.VertexID(rng.IntN(vertices))
	}
	var p Plan
	defer p.Free()
	b.Run("plan", func(b *testing.B) {
		for range b.N {
			if err := x.Plan(&p, ids); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/frontier, "ns/vertex")
		if p.Local+p.Remote != frontier || p.Remote < frontier*7/10 {
			b.Errorf("%+v", p.Counters)
		}
	})
	b.Run("write references", func(b *testing.B) {
		for range b.N {
			for i, v := range ids {
				p.Rows.Of[i] = compute.RowRef(v)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/frontier, "ns/vertex")
	})
}

// The rows of several kinds begin at aligned places of a table, one after the other; those of one
// kind are the whole table.
func TestTablesOfKinds(t *testing.T) {
	kinds, rows := []Kind{{5, compute.Float32}, {0, compute.Float32}, {3, compute.Int8}},
		[]int{4, 9, 30}
	table := make([]byte, TableBytes(kinds, rows))
	for i := range table {
		table[i] = byte(i)
	}
	of := CutTable(table, kinds, rows)
	if len(table) != 128+128 || len(of[0]) != 80 || len(of[1]) != 0 || len(of[2]) != 90 ||
		of[2][0] != 128 {
		t.Errorf("of %d bytes %d, %d and %d", len(table), len(of[0]), len(of[1]), len(of[2]))
	}
	one := kinds[:1]
	if n := TableBytes(one, []int{4}); n != 80 {
		t.Errorf("4 rows of one kind take %d bytes", n)
	}
	if of := CutTable(table, one, []int{4}); len(of) != 1 || len(of[0]) != len(table) {
		t.Errorf("one kind has %d of %d bytes", len(of[0]), len(table))
	}
}
