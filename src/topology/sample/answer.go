package sample

import (
	"encoding/binary"
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Answer is what a rank returns in one hop to the ranks that ask it to draw. Its arrays lie outside
// the Go heap and are reused by the next hop.
type Answer struct {
	Count []int  // [K] number of columns that each rank asks for
	Edges []int  // [K] number of neighbours returned to each rank
	Sizes []byte // [columns] Reply.Column() bytes about each column, rank after rank
	// neighbours drawn, in the order of Sizes; what is sent with each of them (Carried) follows it
	Neighbours []graph.VertexID
	Vertices   int // number of vertices that ranks ask for

	ids      []graph.VertexID // the vertices that ranks ask for, by rank
	list     leftOut          // edges that the vertices in ids leave out
	of       []int32          // original ids of the vertices in ids
	columns  []graph.VertexID // columns of the vertices in ids, in the order that Remote describes
	original []int32          // [columns] original id of each column's vertex
	runs     []run            // the columns, cut into runs
	indptr   []int64
	drawn    []graph.VertexID // neighbours drawn, if each carries a weight or a position
	weights  []float32        // weights of the edges drawn
	places   []int32          // positions of the edges drawn
}

// run is a range of columns that are drawn for one rank with the same fanout and the same key word.
// It begins where the run before it ends, and ends before the column with the index end.
type run struct {
	rank, end int
	fanout    int
	word      uint64
}

// Free frees the arrays.
func (a *Answer) Free() {
	mem.Free(a.Sizes)
	mem.Free(a.Neighbours)
	mem.Free(a.ids)
	mem.Free(a.of)
	mem.Free(a.columns)
	mem.Free(a.indptr)
	mem.Free(a.original)
	mem.Free(a.drawn)
	mem.Free(a.weights)
	mem.Free(a.places)
	*a = Answer{}
}

// Bytes returns the memory of the arrays.
func (a *Answer) Bytes() int64 {
	words := cap(a.Neighbours) + cap(a.ids) + cap(a.of) + cap(a.columns) + cap(a.original) +
		cap(a.drawn) + cap(a.weights) + cap(a.places)
	return int64(cap(a.Sizes)) + int64(words)*4 + int64(cap(a.indptr))*8
}

// Answer draws for the vertices ids, whose rows this rank holds. The list ids has the requests,
// rank after rank. The request of rank r has words[r] entries, and word[r] keys the draws for it.
// All ranks ask for the same hop of the same step as this rank's Asking (`own`). A vertex whose row
// is not held here is an error that wraps graph.ErrVertexRange.
func (r *Remote) Answer(
	a *Answer, ids []graph.VertexID, words []int, word []uint64, own *Asking,
) error {
	return r.fused.contain(func() error {
		if err := r.fused.asked(a, ids, words); err != nil {
			return err
		}
		r.fused.listAsked(a, word, own)
		return r.fused.answer(a, own)
	})
}

// asked reads the requests of all ranks: the vertices for which to draw, and the neighbours that
// each of them leaves out.
func (s *Fused) asked(a *Answer, ids []graph.VertexID, words []int) error {
	first, rows := int(s.topology.First), s.topology.Graph.NumVertices()
	if len(a.Count) != len(words) {
		a.Count, a.Edges = make([]int, len(words)), make([]int, len(words))
	}
	a.ids = mem.Grow(a.ids, len(ids))[:0]
	a.list.clear()
	for from, n := range words {
		of := ids[:n]
		ids = ids[n:]
		before := len(a.ids)
		for len(of) > 0 {
			v, without := of[0], 0
			if int(v) < first || int(v) >= first+rows {
				return fmt.Errorf("sample: rank %d asks for neighbours of vertex %d: %w (rows %d "+
					"to %d are held here); %s", from, v, graph.ErrVertexRange, first, first+rows-1,
					sameParts)
			}
			for without+1 < len(of) && of[without+1] < 0 {
				without++
				of[without] = ^of[without]
			}
			if without > 0 {
				a.list.add(len(a.ids), of[1:1+without])
			}
			a.ids, of = append(a.ids, v), of[1+without:]
		}
		a.Count[from] = len(a.ids) - before
	}
	a.Vertices = len(a.ids)
	return nil
}

// listAsked lists the columns that each rank asks for, and cuts them into runs.
func (s *Fused) listAsked(a *Answer, word []uint64, own *Asking) {
	c, columns, skips := &s.topology.Columns, 0, &s.hop.skips
	skips.clear()
	a.of = mem.Grow(a.of, len(a.ids))
	for i, v := range a.ids {
		_, _, n := c.Of(v)
		a.of[i] = s.topology.Original[v]
		columns += n
	}
	a.columns, a.original = mem.Grow(a.columns, columns), mem.Grow(a.original, columns)
	a.runs = a.runs[:0]
	at, vertex := 0, 0
	for from, n := range a.Count {
		begin := at
		row, block := 0, &s.list.block
		for _, r := range s.list.listColumns(&s.topology, a.ids[vertex:vertex+n],
			a.of[vertex:vertex+n], block, nil) {
			copy(a.columns[at:], r.vertices)
			copy(a.original[at:], r.original)
			for _, v := range r.vertices {
				if without := a.list.sourcesOf(vertex + int(block.Target(row))); len(without) > 0 &&
					c.Links(r.relation) {
					skips.put(at, s.topology.row(v), without)
				}
				row, at = row+1, at+1
			}
			a.runs = append(a.runs, run{from, at, own.fanout(r.relation),
				own.when.word(word[from], r.relation)})
		}
		vertex += n
		a.Count[from] = at - begin
	}
}

func (s *Fused) answer(a *Answer, own *Asking) error {
	h, n := &s.hop, len(a.columns)
	a.indptr = mem.Grow(a.indptr, n+1)
	h.start(&s.topology, a.columns, a.original, a.indptr)
	h.poisson = own.kind == Poisson
	clear(a.Edges)
	at, edges := 0, int64(0)
	a.indptr[0] = 0
	// with kind Poisson, the number of draws depends on the word of the asking rank
	for _, r := range a.runs {
		h.setDraws(r.fanout, r.word, own.when)
		drawn := h.locate(at, r.end)
		for i := at + 1; i <= r.end; i++ {
			a.indptr[i] += edges
		}
		a.Edges[r.rank] += int(drawn)
		at, edges = r.end, edges+drawn
	}
	if err := s.checkEdges(int(edges), n); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	reply, words := own.Reply, own.Reply.words()
	a.Neighbours = mem.Grow(a.Neighbours, int(edges)*words)
	h.drawn = a.Neighbours
	if words > 1 {
		a.drawn = mem.Grow(a.drawn, int(edges))
		h.drawn = a.drawn
	}
	if reply.Weights {
		a.weights = mem.Grow(a.weights, int(edges))
		h.weights, h.ofData = a.weights, s.topology.Weights
	}
	if reply.Places {
		a.places = mem.Grow(a.places, int(edges))
		h.places = a.places
	}
	at = 0
	for _, r := range a.runs {
		h.setDraws(r.fanout, r.word, own.when)
		s.workers[0].drawChunks(h, at, r.end)
		at = r.end
	}
	for e := 0; words > 1 && e < int(edges); e++ {
		edge := a.Neighbours[words*e:][:words]
		edge[0] = a.drawn[e]
		if reply.Weights {
			edge[1] = graph.VertexID(math.Float32bits(a.weights[e]))
		}
		if reply.Places {
			edge[words-1] = graph.VertexID(a.places[e])
		}
	}
	s.reply(a, reply)
	return nil
}

// reply fills Sizes once all columns have drawn.
func (s *Fused) reply(a *Answer, r Reply) {
	width := r.Column()
	a.Sizes = mem.Grow(a.Sizes, len(a.columns)*width)
	for i, v := range a.columns {
		row, size := a.Sizes[i*width:][:width], uint32(a.indptr[i+1]-a.indptr[i])
		if r.Size == 1 {
			row[0] = byte(size)
		} else {
			binary.LittleEndian.PutUint32(row, size)
		}
		if r.Total == 0 {
			continue
		}
		total := uint32(s.hop.degree[i])
		if r.Weights {
			total = math.Float32bits(s.topology.WeightSums[v])
		}
		binary.LittleEndian.PutUint32(row[r.Size:], total)
	}
}
