package exchange

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/topology/graph"
)

// whim is a cache that decides at random: rows that it reports as held are held, but it may fetch
// them all the same, fetch rows that were not requested, and keep any fetched row.
type whim struct {
	rng    *rand.Rand
	l      *layout
	rank   int
	held   []graph.VertexID // by slot of the buffer; -1 for none
	remote []graph.VertexID // all vertices that could be fetched
}

// choice is one decision of a whim.
type choice struct {
	slot  []int32
	early []graph.VertexID
	keep  [][2]int // row fetched, slot
	hits  map[graph.VertexID]bool
}

func newWhim(rng *rand.Rand, l *layout, rank, slots int) *whim {
	w := &whim{rng: rng, l: l, rank: rank, held: slices.Repeat([]graph.VertexID{-1}, slots)}
	for v := range graph.VertexID(l.vertices()) {
		if l.owner(v)/l.perNode != rank/l.perNode {
			w.remote = append(w.remote, v)
		}
	}
	return w
}

func (w *whim) decide(distant []graph.VertexID) *choice {
	c := &choice{hits: map[graph.VertexID]bool{}}
	var fetched []graph.VertexID
	for _, v := range distant {
		slot := slices.Index(w.held, v)
		if w.rng.IntN(5) == 0 {
			slot = -1
		}
		c.slot = append(c.slot, int32(slot))
		if slot < 0 {
			fetched = append(fetched, v)
		} else {
			c.hits[v] = true
		}
	}
	for _, i := range w.rng.Perm(len(w.remote))[:w.rng.IntN(min(10, len(w.remote)+1))] {
		if v := w.remote[i]; !slices.Contains(fetched, v) {
			c.early = append(c.early, v)
			fetched = append(fetched, v)
		}
	}
	for _, slot := range w.rng.Perm(len(w.held))[:min(len(w.held), len(fetched))] {
		n := w.rng.IntN(len(fetched))
		c.keep = append(c.keep, [2]int{n, slot})
		for s, v := range w.held {
			if v == fetched[n] {
				w.held[s] = -1
			}
		}
		w.held[slot] = fetched[n]
	}
	return c
}

// TestBufferFollowsItsDecisions runs the two halves of plans as training does: located at any time,
// decided in order, read and kept in order, with several in flight. Every row read is right, and so
// is every row kept.
func TestBufferFollowsItsDecisions(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, c := range []struct {
		name                    string
		ranks, perRank, perNode int
		vertices, slots, depth  int
		dtype                   compute.DType
	}{
		{"two ranks", 2, 1, 1, 120, 20, 0, compute.Float32},
		{"many parts, several in flight", 3, 4, 1, 300, 60, 3, compute.Float16},
		{"nodes of two", 4, 2, 2, 300, 40, 2, compute.Float32},
		{"no buffer", 3, 1, 1, 100, 0, 2, compute.Float32},
		{"one rank", 1, 3, 1, 100, 10, 1, compute.Float32},
		{"few vertices", 4, 2, 1, 6, 3, 4, compute.Float16},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLayout(rand.New(rand.NewPCG(seed, 0)), c.ranks, c.perRank, c.perNode,
				c.vertices, 5, c.dtype)
			before := mem.Allocated()
			totals := make([]trace.Counters, c.ranks)
			err := comm.RunWorld(c.ranks, func(world comm.Comm) error {
				return follow(world, l, newWhim(rand.New(rand.NewPCG(seed, uint64(world.Rank()+1))),
					l, world.Rank(), c.slots), c.depth, &totals[world.Rank()])
			})
			if err != nil {
				t.Fatal(err)
			}
			var sum trace.Counters
			for _, x := range totals {
				sum.Add(x)
			}
			if sum.Remote != sum.Served ||
				sum.Frontier != sum.Local+sum.Cached+sum.Peer+sum.Remote-sum.Early {
				t.Errorf("over all ranks %+v", sum)
			}
			if tested := c.ranks > 1 && c.slots > 3; tested && (sum.Cached == 0 || sum.Early == 0) {
				t.Errorf("%+v tests nothing", sum)
			}
			if after := mem.Allocated(); after != before {
				t.Errorf("%d bytes were not given back", after-before)
			}
		})
	}
}

// decided is an item of follow's pipeline.
type decided struct {
	minibatch
	*choice
}

func follow(world comm.Comm, l *layout, w *whim, depth int, total *trace.Counters) error {
	o := l.options(w.rank)
	o.Buffer = mem.Make[byte](max(1, len(w.held)) * l.cols * l.dtype.Size())
	defer mem.Free(o.Buffer)
	x, err := New(world, o)
	if err != nil {
		return err
	}
	items := make([]*decided, depth+1)
	for k := range items {
		items[k] = &decided{}
		defer func() { items[k].plan.Free() }()
	}
	stages := []pipeline.Stage[decided]{
		{Name: "locate", Local: func(m *decided) error { return x.Locate(&m.plan, m.ids) }},
		{
			Name: "ids",
			Start: func(m *decided) (pipeline.Request, error) {
				m.choice = nil
				if len(m.ids)%7 == 0 { // as evaluation does: the buffer is neither read nor changed
					x.Request(&m.plan, m.ids, Wants{})
				} else {
					m.choice = w.decide(m.plan.RemoteIDs)
					x.Request(&m.plan, m.ids, Wants{Slot: m.slot, Early: m.early})
				}
				return x.StartAsk(&m.plan), nil
			},
		},
		{Name: "slice", Local: func(m *decided) error { return x.SliceRows(&m.plan) }},
		{
			Name:  "rows",
			Start: func(m *decided) (pipeline.Request, error) { return x.StartRows(&m.plan), nil },
			Finish: func(m *decided) error {
				if err := m.check(l, w.rank); err != nil {
					return err
				}
				if m.choice != nil {
					for _, k := range m.keep {
						x.Keep(&m.plan, k[0], k[1])
					}
				}
				return nil
			},
		},
	}
	p, err := pipeline.New(items, stages, pipeline.Options{Depth: depth, Workers: 2})
	if err != nil {
		return err
	}
	defer p.Close()
	draw := func(step int, m *decided) {
		rng := rand.New(rand.NewPCG(uint64(step), uint64(w.rank)))
		m.ids = l.frontier(rng, rng.Float64(), func(graph.VertexID) bool { return true })
	}
	return p.Run(context.Background(), 40, draw,
		func(_ int, m *decided) error { total.Add(m.plan.Counters); return nil })
}

// check compares the plan with its decision.
func (m *decided) check(l *layout, rank int) error {
	hit := uncached
	var early []graph.VertexID
	if m.choice != nil {
		hit, early = func(v graph.VertexID) bool { return m.hits[v] }, m.early
	}
	if m.plan.Early != int64(len(early)) {
		return fmt.Errorf("%d early rows, want %d", m.plan.Early, len(early))
	}
	for n, v := range early {
		at := m.plan.Landed(int(m.plan.Remote)-len(early)+n).Row() * l.cols * l.dtype.Size()
		got := m.plan.received[at:][:l.cols*l.dtype.Size()]
		if string(got) != string(l.row(int64(v))) {
			return fmt.Errorf("early row %d, vertex %d: %x", n, v, got)
		}
	}
	p := m.plan // without the early rows, a plan like any other
	p.Remote, p.IDBytes, p.Early = p.Remote-p.Early, p.IDBytes-IDBytes*p.Early, 0
	return l.check(&p, rank, m.ids, hit)
}

// What Buy makes is lent with the buffers: a plan that waits for Buy keeps ids alone.
func TestLendOfWhatBuyMakes(t *testing.T) {
	var p Plan
	w := &p.bought
	w.start, w.missAt, w.earlyAt = mem.Make[int64](8), mem.Make[int64](8), mem.Make[int64](8)
	w.size, w.earlyBy = mem.Make[int32](8), mem.Make[int32](8)
	before := p.MessageBytes()
	var b Buffers
	if p.Lend(&b); p.MessageBytes() != 0 || b.Bytes() != before {
		t.Errorf("%d bytes stay and %d are lent, of %d", p.MessageBytes(), b.Bytes(), before)
	}
	if p.Lend(&b); p.MessageBytes() != before || b.Bytes() != 0 {
		t.Errorf("%d bytes come back, of %d", p.MessageBytes(), before)
	}
	p.Free()
}
