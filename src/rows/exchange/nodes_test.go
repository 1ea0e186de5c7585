package exchange

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/topology/graph"
)

// nodesWorld is a matrix of rows of several kinds over ranks of nodes.
type nodesWorld struct {
	of      []int // node of each rank
	kinds   []Kind
	layouts []*layout // one for each kind, with the parts of all
	ends    []int64   // of sparse rows; nil else
}

func newNodesWorld(of []int, perRank, vertices int, kinds []Kind) *nodesWorld {
	w := &nodesWorld{of: of, kinds: kinds}
	for _, k := range kinds {
		w.layouts = append(w.layouts, newLayout(rand.New(rand.NewPCG(8, 0)), len(of),
			perRank*len(kinds), 1, vertices, k.Cols, k.Type))
	}
	if kinds[0].Type.IsSparse() {
		rng := rand.New(rand.NewPCG(8, 1))
		w.ends = []int64{0}
		for v := range vertices {
			w.ends = append(w.ends, w.ends[v]+rng.Int64N(int64(kinds[0].Cols)+1))
		}
	}
	return w
}

func (w *nodesWorld) offsets() []int64 { return w.layouts[0].offsets }

// row returns the bytes of a vertex's row.
func (w *nodesWorld) row(v graph.VertexID) []byte {
	part := w.part(v)
	row := w.layouts[part%len(w.kinds)].row(int64(v))
	if w.ends == nil {
		return row
	}
	return slices.Repeat([]byte{byte(v), byte(v >> 8), 1, 2},
		int(w.ends[v+1]-w.ends[v])*w.kinds[0].Type.Size()/4)
}

func (w *nodesWorld) part(v graph.VertexID) int {
	return slices.IndexFunc(w.offsets(), func(end int64) bool { return end > int64(v) }) - 1
}

func (w *nodesWorld) owner(v graph.VertexID) int {
	return w.part(v) / ((len(w.offsets()) - 1) / len(w.of))
}

// options are those of a rank, which reads the parts of its node or, alone, its own.
func (w *nodesWorld) options(rank int, alone bool) Options {
	o := Options{Offsets: w.offsets(), Kinds: w.kinds, Ends: w.ends, Host: slicer{},
		Tables: make([][]byte, len(w.offsets())-1)}
	for p := range o.Tables {
		owner := p / (len(o.Tables) / len(w.of))
		if owner != rank && (alone || w.of[owner] != w.of[rank]) {
			continue
		}
		o.Tables[p] = []byte{}
		for v := w.offsets()[p]; v < w.offsets()[p+1]; v++ {
			o.Tables[p] = append(o.Tables[p], w.row(graph.VertexID(v))...)
		}
	}
	return o
}

// check compares all rows of a plan.
func (w *nodesWorld) check(x *Exchange, p *Plan, ids []graph.VertexID) error {
	for i, v := range ids {
		ref, row, size := p.Rows.Of[i], w.row(v), x.rowBytesOf(w.part(v))
		if len(row) == 0 {
			continue
		}
		if got := p.Rows.Tables[ref.Table()][ref.Row()*size:][:len(row)]; string(got) !=
			string(row) {
			return fmt.Errorf("vertex %d of rank %d, in table %d: %x, want %x", v, w.owner(v),
				ref.Table(), got, row)
		}
	}
	return p.Check(len(ids))
}

// peers is a communicator that counts the messages of each operation.
type peers struct {
	comm.Comm
	most int
}

func (c *peers) count(rows []int) {
	n := 0
	for r, k := range rows {
		if r != c.Rank() && k > 0 {
			n++
		}
	}
	c.most = max(c.most, n)
}

func (c *peers) StartAlltoallv(send, recv []byte, sendRows, recvRows []int,
	rowBytes int) comm.Request {
	c.count(sendRows)
	return c.Comm.StartAlltoallv(send, recv, sendRows, recvRows, rowBytes)
}

func (c *peers) StartAlltoallThen(send, recv []byte, sendRows, recvRows []int, rowBytes int,
	then comm.Then) comm.Request {
	c.count(sendRows)
	return c.Comm.StartAlltoallThen(send, recv, sendRows, recvRows, rowBytes, then)
}

var nodesOf = map[string][]int{
	"two of two":       {0, 0, 1, 1},
	"three and two":    {0, 0, 0, 1, 1},
	"two and one":      {0, 0, 1},
	"in turn":          {0, 1, 0, 1, 0, 1},
	"one, four, three": {0, 1, 1, 1, 1, 2, 2, 2},
	"of one each":      {0, 1, 2},
}

// Whatever ranks of a node want, each gets the rows of its own vertices; the node asks for each row
// of other nodes once, for the first that wants it, in few messages.
func TestRanksOfANodeFetchAsOne(t *testing.T) {
	for name, of := range nodesOf {
		for what, kinds := range map[string][]Kind{
			"rows":   {{7, compute.Float32}},
			"halves": {{5, compute.Float16}},
			"rows of several kinds": {{5, compute.Float32}, {0, compute.Float32},
				{7, compute.Float16}},
			"sparse rows": {{9, compute.Sparse}},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				before := mem.Allocated()
				w := newNodesWorld(of, 2, 400, kinds)
				var mu sync.Mutex
				wants := make([][5][]graph.VertexID, len(of)) // of each rank and round
				counters := make([][5]trace.Counters, len(of))
				err := comm.RunWorld(len(of), func(world comm.Comm) error {
					rank := world.Rank()
					o := w.options(rank, false)
					n, err := node(world, of)
					if err != nil {
						return err
					}
					near := &peers{Comm: n.Comm}
					far := &peers{Comm: world}
					o.Node = &Node{Comm: near, Of: of}
					x, err := New(far, o)
					if err != nil {
						return err
					}
					defer x.Free()
					var p Plan
					defer p.Free()
					rng := rand.New(rand.NewPCG(5, uint64(rank)))
					for round := range 5 {
						ids := w.layouts[0].frontier(rng, rng.Float64(),
							func(graph.VertexID) bool { return true })
						if err := fetch(x, &p, ids); err != nil {
							return err
						}
						if err := w.check(x, &p, ids); err != nil {
							return fmt.Errorf("round %d: %w", round, err)
						}
						mu.Lock()
						for _, v := range ids {
							if part := w.part(v); of[w.owner(v)] != of[rank] &&
								kinds[part%len(kinds)].Cols > 0 {
								wants[rank][round] = append(wants[rank][round], v)
							}
						}
						counters[rank][round] = p.Counters
						mu.Unlock()
					}
					here, most := n.Comm.Size(), n.Comm.Size()-1
					ranks := map[int]int{}
					for _, node := range of {
						ranks[node]++
					}
					for node, n := range ranks {
						if node != of[rank] { // one, or several to a larger node, or of one
							most += max((n+here-1)/here, 1)
						}
					}
					if far.most > most || near.most > here-1 {
						return fmt.Errorf(
							"%d messages to owners, above %d; %d in the node, of %d ranks",
							far.most, most, near.most, here)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				for round := range 5 {
					served, fetched := int64(0), int64(0)
					seen := map[[2]int]bool{} // node, vertex
					for rank := range of {
						want := trace.Counters{}
						for _, v := range wants[rank][round] {
							if at := [2]int{of[rank], int(v)}; seen[at] {
								want.Shared++
							} else {
								seen[at] = true
								want.Remote++
							}
						}
						c := counters[rank][round]
						sent := w.nodeBytes(rank,
							func(m int) []graph.VertexID { return wants[m][round] })
						if c.NodeBytes != sent {
							t.Errorf("round %d, rank %d: %d bytes in the node, want %d", round,
								rank, c.NodeBytes, sent)
						}
						if got := (trace.Counters{Shared: c.Shared, Remote: c.Remote}); got !=
							want {
							t.Errorf("round %d, rank %d: %+v, want %+v", round, rank, got, want)
						}
						if c.Collectives != 4 {
							t.Errorf("%d collectives", c.Collectives)
						}
						served, fetched = served+c.Served, fetched+c.Remote
					}
					if served != fetched {
						t.Errorf("round %d: %d rows are served, %d fetched", round, served, fetched)
					}
				}
				if after := mem.Allocated(); after != before {
					t.Errorf("%d bytes were not given back", after-before)
				}
			})
		}
	}
}

// buyer returns which rank of the node of a rank asks an owner on another node.
func (w *nodesWorld) buyer(rank, owner int) int {
	place, here := 0, []int(nil)
	for q, node := range w.of {
		if node == w.of[owner] && q < owner {
			place++
		}
		if node == w.of[rank] {
			here = append(here, q)
		}
	}
	return here[place%len(here)]
}

// nodeBytes returns what a rank sends others of its node, of which each wants some vertices.
func (w *nodesWorld) nodeBytes(rank int, wants func(rank int) []graph.VertexID) (bytes int64) {
	for owner, node := range w.of {
		if node != w.of[rank] && w.buyer(rank, owner) != rank {
			bytes += 8
		}
	}
	for m, node := range w.of {
		rows := int64(0)
		for _, v := range wants(m) {
			buyer := w.buyer(m, w.owner(v))
			if m == rank && buyer != rank {
				bytes += 4
			} else if m != rank && node == w.of[rank] && buyer == rank {
				bytes += int64(len(w.row(v)))
				rows++
			}
		}
		bytes += (rows + 7) / 8
	}
	return bytes
}

// Rows of ranks of the own node that cannot be read where they lie, as rows of hidden layers, are
// asked for by each rank.
func TestNodesWithoutTablesOfPeers(t *testing.T) {
	w := newNodesWorld([]int{0, 0, 1, 1, 1}, 1, 300, []Kind{{3, compute.Float32}})
	err := comm.RunWorld(5, func(world comm.Comm) error {
		o := w.options(world.Rank(), true)
		var err error
		if o.Node, err = node(world, w.of); err != nil {
			return err
		}
		f, err := Open(world, o)
		if err != nil {
			return err
		}
		var p Plan
		defer p.Free()
		rng := rand.New(rand.NewPCG(5, uint64(world.Rank())))
		for range 4 {
			ids := w.layouts[0].frontier(rng, rng.Float64(),
				func(graph.VertexID) bool { return true })
			if err := f.Fetch(&p, ids); err != nil {
				return err
			}
			if err := w.check(f.Exchange, &p, ids); err != nil {
				return err
			}
		}
		return errors.Join(f.Close(), o.Node.Comm.Free())
	})
	if err != nil {
		t.Error(err)
	}
}

// Many plans are under way at once, with rows from a buffer, and rows that come early: each counts
// what was fetched for it, and rows that are kept are those of their vertices.
func TestNodesWithBuffers(t *testing.T) {
	const slots, steps = 30, 25
	w := newNodesWorld([]int{0, 0, 0, 1, 1}, 2, 300, []Kind{{3, compute.Float32}})
	size := 3 * 4
	for _, depth := range []int{0, 2} {
		before := mem.Allocated()
		totals := make([]trace.Counters, len(w.of))
		err := comm.RunWorld(len(w.of), func(world comm.Comm) error {
			rank := world.Rank()
			o := w.options(rank, false)
			o.Buffer = make([]byte, slots*size)
			var err error
			if o.Node, err = node(world, w.of); err != nil {
				return err
			}
			x, err := New(world, o)
			if err != nil {
				return err
			}
			defer x.Free()
			var far []graph.VertexID
			for v := range graph.VertexID(300) {
				if w.of[w.owner(v)] != w.of[rank] {
					far = append(far, v)
				}
			}
			type item struct {
				minibatch
				early []graph.VertexID
			}
			items := make([]*item, depth+1)
			for k := range items {
				items[k] = new(item)
				defer func() { items[k].plan.Free() }()
			}
			held := slices.Repeat([]graph.VertexID{-1}, slots)
			rng := rand.New(rand.NewPCG(77, uint64(rank)))
			request := func(m *item) error {
				m.early = m.early[:0]
				slot := make([]int32, len(m.plan.RemoteIDs))
				for k, v := range m.plan.RemoteIDs {
					slot[k] = int32(slices.Index(held, v))
				}
				for _, i := range rng.Perm(len(far))[:rng.IntN(8)] {
					if !slices.Contains(m.plan.RemoteIDs, far[i]) {
						m.early = append(m.early, far[i])
					}
				}
				x.Request(&m.plan, m.ids, Wants{Slot: slot, Early: m.early})
				return nil
			}
			asked := 0
			stages := []pipeline.Stage[item]{
				{Name: "locate", Local: func(m *item) error { return x.Locate(&m.plan, m.ids) }},
				{Name: "request", Ordered: request},
				{Name: "wants", Start: func(m *item) (pipeline.Request, error) {
					return x.StartWants(&m.plan), nil
				}},
				{Name: "unite", Local: func(m *item) error { return x.Unite(&m.plan) }},
				{Name: "ids", Start: func(m *item) (pipeline.Request, error) {
					return x.StartAsk(&m.plan), nil
				}},
				{Name: "slice", Local: func(m *item) error { return x.SliceRows(&m.plan) }},
				{Name: "rows", Start: func(m *item) (pipeline.Request, error) {
					return x.StartRows(&m.plan), nil
				}},
				{Name: "pass on", Local: func(m *item) error { x.PassOn(&m.plan); return nil }},
				{Name: "share", Start: func(m *item) (pipeline.Request, error) {
					return x.StartPass(&m.plan), nil
				},
					Finish: func(m *item) error { x.Passed(&m.plan); return nil }},
			}
			p, err := pipeline.New(items, stages, pipeline.Options{Depth: depth, Workers: 2})
			if err != nil {
				return err
			}
			defer p.Close()
			draw := func(step int, m *item) {
				rng := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
				m.ids = w.layouts[0].frontier(rng, rng.Float64(),
					func(graph.VertexID) bool { return true })
			}
			return p.Run(context.Background(), steps, draw, func(_ int, m *item) error {
				if err := w.check(x, &m.plan, m.ids); err != nil {
					return err
				}
				misses := len(m.plan.missing)
				for n, v := range m.early {
					at := m.plan.Landed(misses + n)
					if got := m.plan.Rows.Tables[at.Table()][at.Row()*size:][:size]; string(got) !=
						string(w.row(v)) {
						return fmt.Errorf("early row of %d is another", v)
					}
					if depth == 0 { // else later ones may be reading
						x.Keep(&m.plan, misses+n, n)
						for s, h := range held {
							if h == v {
								held[s] = -1
							}
						}
						held[n] = v
					}
				}
				asked += misses + len(m.early)
				totals[rank].Add(m.plan.Counters)
				return nil
			})
		})
		if err != nil {
			t.Fatalf("depth %d: %v", depth, err)
		}
		var sum trace.Counters
		for _, c := range totals {
			sum.Add(c)
		}
		if sum.Remote != sum.Served || sum.Shared == 0 || sum.Early == 0 ||
			depth == 0 && sum.Cached == 0 {
			t.Errorf("depth %d: %+v", depth, sum)
		}
		if after := mem.Allocated(); after != before {
			t.Errorf("depth %d: %d bytes were not given back", depth, after-before)
		}
	}
}

// Buyers keep rows of their choice for their nodes, and fetch some early: every rank gets the rows
// of its vertices, also with many plans under way, and each row is counted where it came from.
func TestBuyersKeepRows(t *testing.T) {
	const slots, steps = 40, 25
	size := 3 * 4
	for name, of := range map[string][]int{"three and two": {0, 0, 0, 1, 1},
		"in turn": {0, 1, 0, 1}, "two and one": {0, 0, 1}} {
		w := newNodesWorld(of, 2, 300, []Kind{{3, compute.Float32}})
		for _, depth := range []int{0, 2} {
			before := mem.Allocated()
			totals := make([]trace.Counters, len(of))
			err := comm.RunWorld(len(of), func(world comm.Comm) error {
				rank := world.Rank()
				o := w.options(rank, false)
				o.Buffer = make([]byte, slots*size)
				var err error
				if o.Node, err = node(world, of); err != nil {
					return err
				}
				o.Node.Keeps = true
				f, err := Open(world, o)
				if err != nil {
					return err
				}
				x := f.Exchange
				var buys []graph.VertexID
				for v := range graph.VertexID(300) {
					if slices.Contains(Bought(of, rank), w.owner(v)) {
						buys = append(buys, v)
					}
				}
				type item struct {
					minibatch
					slot     []int32
					early    []graph.VertexID
					from, to []int // fetched rows that stay, and their slots
					extra    int
				}
				items := make([]*item, depth+1)
				for k := range items {
					items[k] = new(item)
					defer func() { items[k].plan.Free() }()
				}
				held := slices.Repeat([]graph.VertexID{-1}, slots)
				rng := rand.New(rand.NewPCG(77, uint64(rank)))
				decide := func(m *item) error {
					wanted := m.plan.Wanted()
					m.slot, m.early, m.from, m.to = m.slot[:0], m.early[:0], m.from[:0], m.to[:0]
					var fetched []graph.VertexID
					for _, v := range wanted {
						if !slices.Contains(buys, v) {
							return fmt.Errorf("%d is wanted of rank %d", v, rank)
						}
						at := slices.Index(held, v)
						if m.slot = append(m.slot, int32(at)); at < 0 {
							fetched = append(fetched, v)
						}
					}
					for _, i := range rng.Perm(len(buys))[:min(len(buys), rng.IntN(8))] {
						if v := buys[i]; !slices.Contains(wanted, v) && !slices.Contains(held, v) {
							m.early = append(m.early, v)
						}
					}
					fetched = append(fetched, m.early...)
					for n, to := range rng.Perm(slots)[:min(len(fetched), rng.IntN(slots))] {
						from := n // few of the misses, and the early rows
						if n%2 == 1 {
							from = len(fetched) - 1 - n/2
						}
						if !slices.Contains(m.from, from) {
							m.from, m.to = append(m.from, from), append(m.to, to)
							held[to] = fetched[from]
						}
					}
					m.extra = len(m.early)
					return nil
				}
				stages := []pipeline.Stage[item]{
					{Name: "plan", Local: func(m *item) error { return x.Plan(&m.plan, m.ids) }},
					{Name: "wants", Start: func(m *item) (pipeline.Request, error) {
						return x.StartWants(&m.plan), nil
					}},
					{Name: "merge", Local: func(m *item) error { return x.Merge(&m.plan) }},
					{Name: "decide", Ordered: decide},
					{Name: "buy", Local: func(m *item) error {
						x.Buy(&m.plan, m.slot, m.early)
						return nil
					}},
					{Name: "ids", Start: func(m *item) (pipeline.Request, error) {
						return x.StartAsk(&m.plan), nil
					}},
					{Name: "slice", Local: func(m *item) error { return x.SliceRows(&m.plan) }},
					{Name: "rows", Start: func(m *item) (pipeline.Request, error) {
						return x.StartRows(&m.plan), nil
					}},
					{Name: "pass on", Ordered: func(m *item) error {
						x.PassOn(&m.plan)
						for k, from := range m.from {
							x.Keep(&m.plan, from, m.to[k])
						}
						return nil
					}},
					{Name: "share", Start: func(m *item) (pipeline.Request, error) {
						return x.StartPass(&m.plan), nil
					},
						Finish: func(m *item) error { x.Passed(&m.plan); return nil }},
				}
				p, err := pipeline.New(items, stages, pipeline.Options{Depth: depth, Workers: 2})
				if err != nil {
					return err
				}
				defer p.Close()
				draw := func(step int, m *item) {
					rng := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
					m.ids = w.layouts[0].frontier(rng, rng.Float64(),
						func(graph.VertexID) bool { return true })
				}
				err = p.Run(context.Background(), steps, draw, func(_ int, m *item) error {
					if err := w.check(x, &m.plan, m.ids); err != nil {
						return err
					}
					if int(m.plan.Early) != m.extra {
						return fmt.Errorf("%d rows are counted as early, %d were", m.plan.Early,
							m.extra)
					}
					totals[rank].Add(m.plan.Counters)
					return nil
				})
				return errors.Join(err, f.Close(), o.Node.Comm.Free())
			})
			if err != nil {
				t.Fatalf("%s, depth %d: %v", name, depth, err)
			}
			var sum trace.Counters
			for _, c := range totals {
				sum.Add(c)
			}
			if sum.Remote != sum.Served || sum.Shared == 0 || sum.Early == 0 || sum.Cached == 0 ||
				sum.PeerCached == 0 {
				t.Errorf("%s, depth %d: %+v", name, depth, sum)
			}
			if after := mem.Allocated(); after != before {
				t.Errorf("%s, depth %d: %d bytes were not given back", name, depth, after-before)
			}
		}
	}
}

// What a buyer keeps has one size, and there is room for it.
func TestBuyersThatCannotKeep(t *testing.T) {
	of := []int{0, 0, 1, 1}
	for want, kinds := range map[string][]Kind{
		"there is no Buffer for the rows that a rank keeps for its node": {{3, compute.Float32}},
		"rows that a rank keeps for its node must have one size": {{3, compute.Float32},
			{4, compute.Float32}},
	} {
		w := newNodesWorld(of, 1, 100, kinds)
		err := comm.RunWorld(len(of), func(world comm.Comm) error {
			o := w.options(world.Rank(), false)
			var err error
			if o.Node, err = node(world, of); err != nil {
				return err
			}
			if o.Node.Keeps = true; len(kinds) > 1 {
				o.Kept = []int{1, 1}
				o.Buffer = make([]byte, TableBytes(kinds, o.Kept))
			}
			_, err = New(world, o)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A rank of a node that fails between two of its collectives frees the others, of its node and of
// others.
func TestNodesEndWithARank(t *testing.T) {
	of := []int{0, 0, 1, 1}
	w := newNodesWorld(of, 1, 200, []Kind{{3, compute.Float32}})
	for stage := range 4 {
		done := make(chan error, 1)
		go func() {
			done <- comm.RunWorld(len(of), func(world comm.Comm) error {
				o := w.options(world.Rank(), false)
				var err error
				if o.Node, err = node(world, of); err != nil {
					return err
				}
				x, err := New(world, o)
				if err != nil {
					return err
				}
				defer x.Free()
				var p Plan
				defer p.Free()
				ids := w.layouts[0].frontier(rand.New(rand.NewPCG(1, 1)), 1,
					func(graph.VertexID) bool { return true })
				if err := x.Plan(&p, ids); err != nil {
					return err
				}
				for n, do := range []func() error{
					func() error { return x.StartWants(&p).Wait() },
					func() error { return errors.Join(x.Unite(&p), x.StartAsk(&p).Wait()) },
					func() error { return errors.Join(x.SliceRows(&p), x.StartRows(&p).Wait()) },
					func() error { x.PassOn(&p); return x.StartPass(&p).Wait() },
				} {
					if n == stage && world.Rank() == 1 {
						return errors.New("disk full")
					}
					if err := do(); err != nil {
						return err
					}
				}
				return nil
			})
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "rank 1: disk full") {
				t.Errorf("stage %d: %v", stage, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("stage %d: ranks wait for ever", stage)
		}
	}
}

// What only a damaged rank of the node would want is an error, and so is a node that is another.
func TestDamagedWants(t *testing.T) {
	of := []int{0, 0, 1, 1}
	w := newNodesWorld(of, 1, 200, []Kind{{3, compute.Float32}})
	for _, c := range []struct {
		rowBytes int
		value    byte
		want     string
	}{
		{countBytes, 0xff, "rank 0 of the node wants "},
		{IDBytes, 0x7f, "rank 0 of the node wants row "},
	} {
		err := comm.RunWorld(len(of), func(world comm.Comm) error {
			o := w.options(world.Rank(), false)
			n, err := node(world, of)
			if err != nil {
				return err
			}
			transport := &tally{Comm: n.Comm}
			if world.Rank() == 0 {
				transport.damage = func(rowBytes int, send []byte) {
					if rowBytes == c.rowBytes && len(send) > 0 {
						send[rowBytes-1] = c.value
					}
				}
			}
			o.Node = &Node{Comm: transport, Of: of}
			x, err := New(world, o)
			if err != nil {
				return err
			}
			defer x.Free()
			var p Plan
			defer p.Free()
			return fetch(x, &p, w.layouts[0].frontier(rand.New(rand.NewPCG(1, 1)), 1,
				func(graph.VertexID) bool { return true }))
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("damaged %d: %v", c.rowBytes, err)
		}
	}
	err := comm.RunWorld(2, func(world comm.Comm) error {
		_, err := New(world, Options{Offsets: []int64{0, 0, 0}, Tables: make([][]byte, 2),
			Kinds: []Kind{{1, compute.Float32}}, Host: slicer{},
			Node: &Node{Comm: world, Of: []int{0, 1}}})
		return err
	})
	either := regexp.MustCompile(
		`rank (0 is number 0|1 is number 1) of 2 ranks on its node, but must be number 0 of 1 ` +
			`ranks`)
	if err == nil || !either.MatchString(err.Error()) {
		t.Errorf("another node: %v", err)
	}
}
