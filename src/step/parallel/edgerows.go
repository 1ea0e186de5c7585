package parallel

import (
	"errors"
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// withEdgeRows is Rows for models that also read edge features. Before the rows of vertices, it
// fetches the rows of the sampled edges of all hops, from the owners of the edges' targets. In the
// exchange for them, the id of an edge is its position in the whole topology.
//
//	blocks ──> positions ──> route ──> EdgeRows of each hop
//
// An edge that several hops have drawn is fetched once.
type withEdgeRows struct {
	Rows
	x        *exchange.Exchange
	needs    nn.Needs
	host     compute.Host
	cols     int
	topology *sample.Topology
}

// edgesOf holds the edge features of a minibatch.
type edgesOf struct {
	ids   []graph.VertexID // positions of the sampled edges in the topology, hop by hop
	once  []graph.VertexID // the distinct values of ids, ascending, whose rows are fetched
	fetch exchange.Plan
	of    []compute.RowRef // [ids] where the row of each sampled edge lies
	got   []float32        // [sampled edges, cols] rows without self-edges, if layers have these
	rows  []float32        // [edges, cols] rows in the order of the layers' edges
	cols  int              // 0 if the model reads no edge features
}

func (e *edgesOf) bytes() int64 {
	return int64(cap(e.ids)+cap(e.once)+cap(e.got)+cap(e.rows))*4 + int64(cap(e.of))*8 +
		e.fetch.Bytes()
}

func (e *edgesOf) free() {
	mem.Free(e.ids)
	mem.Free(e.once)
	e.fetch.Free()
	mem.Free(e.of)
	mem.Free(e.got)
	mem.Free(e.rows)
}

// addEdgeRows adds the fetching of edges' feature rows to a strategy, if its model reads them.
func addEdgeRows(s *Strategy) error {
	if !s.needs.EdgeRows {
		return nil
	}
	if compute.CapabilitiesOf(s.o.Device).Accelerator != nil {
		return errors.New("features of edges are read only on CPUs: set compute.device=cpu, or " +
			"model.edge_features=false to leave them out")
	}
	s.rows = &withEdgeRows{s.rows, s.o.EdgeExchange, s.needs, s.o.Host, s.o.EdgeCols, s.o.Topology}
	return nil
}

func (w *withEdgeRows) stages() []Stage {
	r := route{x: w.x, what: "edge ", rank: w.x.Rank(),
		fetch: func(m *Minibatch) *exchange.Plan { return &m.edgesOf.fetch }}
	stages := append([]Stage{local(trace.Plan, "edges", w.plan)}, r.stages()...)
	stages = append(stages, local(trace.Gather, "edge gather", w.gather))
	return append(stages, w.Rows.stages()...)
}

// plan finds the positions of the sampled edges, and who has their rows.
func (w *withEdgeRows) plan(m *Minibatch) (err error) {
	e := &m.edgesOf
	e.cols = w.cols
	if e.ids, err = EdgePositions(e.ids, &m.Sampled, w.topology); err != nil {
		return err
	}
	e.once = mem.Grow(e.once[:0], len(e.ids))
	copy(e.once, e.ids)
	slices.Sort(e.once)
	return w.x.Plan(&e.fetch, slices.Compact(e.once))
}

// EdgePositions returns the positions in the whole topology of the sampled edges of all hops. It
// reuses the array ids, and grows it.
func EdgePositions(ids []graph.VertexID, s *sample.Minibatch, t *sample.Topology) ([]graph.VertexID,
	error) {
	ids = mem.Grow(ids[:0], s.NumEdges())
	n := 0
	for l := range s.Blocks {
		b := &s.Blocks[l]
		if len(b.Places) > 0 { // the sampler has recorded them
			for _, at := range b.Places {
				ids[n] = graph.VertexID(at)
				n++
			}
			continue
		}
		for d := range b.NumDst {
			for _, i := range b.Indices[b.Indptr[d]:b.Indptr[d+1]] {
				at, err := position(t, s.Frontier[i], s.Frontier[d])
				if err != nil {
					return ids, err
				}
				ids[n] = graph.VertexID(at)
				n++
			}
		}
	}
	return ids, nil
}

// position returns where the edge u -> v lies in the topology, whose in-neighbours ascend by their
// original ids.
func position(t *sample.Topology, u, v graph.VertexID) (int64, error) {
	at := t.Graph.FindBy(graph.Link{Source: u, Target: v}, t.Original)
	if at < 0 {
		return 0, fmt.Errorf("the sampled edge from vertex %d to %d is not among the "+
			"in-edges of its target, which must be sorted by the ids of the dataset; run "+
			"`halognn check` on the parts",
			t.Original[u], t.Original[v])
	}
	return at, nil
}

// gather makes the rows of the edges of all hops. The edge of a vertex to itself has the mean of
// the rows of its sampled in-edges, and zeros if there are none.
func (w *withEdgeRows) gather(m *Minibatch) error {
	s, e := &m.Sampled, &m.edgesOf
	n := len(e.ids)
	into := &e.rows
	if w.needs.SelfEdges {
		into = &e.got
	}
	*into, e.of = mem.Grow((*into)[:0], n*w.cols), mem.Grow(e.of[:0], n)
	once := e.once[:len(e.fetch.Rows.Of)]
	for i, id := range e.ids {
		k, _ := slices.BinarySearch(once, id)
		e.of[i] = e.fetch.Rows.Of[k]
	}
	rows := e.fetch.Rows
	rows.Of = e.of
	w.host.GatherRows(compute.Matrix{Rows: n, Cols: w.cols, Data: *into}, rows)
	if !w.needs.SelfEdges {
		return nil
	}
	for l := range s.Blocks {
		n += s.Blocks[l].NumDst
	}
	e.rows = mem.Grow(e.rows[:0], n*w.cols)
	from, to := e.got, e.rows
	for l := range s.Blocks {
		b := &s.Blocks[l]
		for d := range b.NumDst {
			edges := int(b.Indptr[d+1] - b.Indptr[d])
			mean, rest := to[:w.cols], to[w.cols:(1+edges)*w.cols]
			clear(mean)
			copy(rest, from)
			for k, x := range rest {
				mean[k%w.cols] += x
			}
			for c := range mean {
				mean[c] /= float32(max(1, edges))
			}
			from, to = from[edges*w.cols:], to[(1+edges)*w.cols:]
		}
	}
	return nil
}

// hop returns the feature rows of the given number of edges, which begin at edge first.
func (e *edgesOf) hop(first, edges int) compute.Matrix {
	return compute.Matrix{Rows: edges, Cols: e.cols,
		Data: e.rows[first*e.cols : (first+edges)*e.cols]}
}

func (w *withEdgeRows) counters(m *Minibatch) (trace.Counters, error) {
	c, err := w.Rows.counters(m)
	e := &m.edgesOf.fetch.Counters
	c.EdgeRows, c.EdgeShared, c.EdgeBytes = e.Remote, e.Shared, e.RowBytes+e.IDBytes
	c.Collectives, c.NodeBytes = c.Collectives+e.Collectives, c.NodeBytes+e.NodeBytes
	return c, err
}

func (w *withEdgeRows) bytes() (int64, int64) {
	exchange, idle := w.Rows.bytes()
	return exchange + w.x.Bytes(), idle
}
