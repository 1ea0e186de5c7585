// Package access estimates how often the minibatches of one reader (a part, or a rank with several
// parts) read each vertex. It does so by analysis, by heuristics, and by counting.
//
//	              in-neighbours of v: what v samples            T  training vertices of the part
//	Graph  ──┬──  out-neighbours of u: what samples u           f  fanouts, seed hop first
//	         │
//	         └─ VIP, Degree, Halo, PageRank, Paths ──┐
//	Sampler ── Count: sim, oracle ───────────────────┴─> score [N] ──Top──> the rows to keep
//	                                                         └─────Expected──> remote rows a step
//
// Every analysis asks, hop by hop, which vertices may sample each vertex u. These are the
// out-neighbours of u, so it walks the edges to them:
//
//	hop h      w  [N]   what each vertex passes on           random reads, 4 bytes an edge
//	           │
//	           └─ sum over the out-neighbours v of u of w[v] ──> next w[u]
//
// The walk is cut into chunks of about equal numbers of edges that goroutines share. The result
// depends on the graph alone, not on goroutines or timing.
//
// Scores lie outside the Go heap; the caller frees them with mem.Free. The package does no I/O and
// knows no ranks: local vertices are a list of ranges.
package access

import (
	"errors"
	"fmt"
	"runtime"
	"sort"
	"sync/atomic"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/topology/graph"
)

// Options sets how a Graph is walked.
type Options struct {
	Workers int // goroutines; 0 means one per CPU

	// Out is the graph of out-neighbours, if the caller has it. This is the transpose of the graph
	// or, if the graph is symmetric, the graph itself. If Out is nil, New tests the graph for
	// symmetry, and transposes it if it is not symmetric.
	Out *graph.CSC

	// Columns are the columns of a graph with relations, one for each vertex and each relation that
	// leads to it. They are nil for a graph without relations.
	Columns *graph.Columns
}

// Graph is a graph with in-neighbours and out-neighbours. It is read-only, so several analyses may
// run at a time.
//
// For N vertices and M edges, the memory beyond the graph is 8 bytes for every 2^18 edges. If the
// graph is not symmetric and Out is not given, the transpose takes 4 M + 8 N bytes more. In a graph
// with relations, the list `out` has the columns that draw from each vertex. This list takes 4 M +
// 8 N bytes, and 4 bytes for each column.
type Graph struct {
	in, out    *graph.CSC
	columns    columns
	transposed bool // New made `out`, so Free frees it
	workers    int
	cuts       []int // chunk i is the vertices cuts[i] to cuts[i+1]-1
}

// New prepares g, whose arrays must outlive the Graph; they may be mapped. The test for symmetry is
// one sequential pass over the edges.
func New(g *graph.CSC, o Options) (*Graph, error) {
	if len(g.Indptr) == 0 {
		return nil, errors.New("access: indptr is empty; it needs one entry more than there are " +
			"vertices")
	}
	if o.Workers < 0 {
		return nil, fmt.Errorf("access: workers is %d; it must be at least 1, or 0 for one per CPU",
			o.Workers)
	}
	if o.Out != nil && (len(o.Out.Indptr) != len(g.Indptr) ||
		len(o.Out.Indices) != len(g.Indices)) {
		return nil, fmt.Errorf("access: the graph has %d vertices and %d edges, but its "+
			"transpose has %d and %d",
			len(g.Indptr)-1, len(g.Indices), len(o.Out.Indptr)-1, len(o.Out.Indices))
	}
	m := &Graph{in: g, out: o.Out, workers: o.Workers,
		columns: columnsOf(g, o.Columns)}
	if m.workers == 0 {
		m.workers = runtime.GOMAXPROCS(0)
	}
	err := mem.Guard(func() error {
		switch {
		case !m.columns.Plain():
			m.columns.owners = ownersOf(&m.columns.Columns, g.NumVertices())
			m.out, m.transposed = m.columns.Transpose(g.NumVertices(), g.Indices), true
		case m.out == nil:
			m.out, m.cuts = g, cut(g)
			symmetric, err := m.symmetric()
			if err != nil {
				return err
			}
			if !symmetric {
				m.out, m.transposed = g.Transpose(), true
			}
		}
		m.cuts = cut(m.out)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	return m, nil
}

// Free frees the transpose, if New made one.
func (m *Graph) Free() {
	if m.transposed {
		m.out.Free()
	}
	mem.Free(m.columns.owners)
	*m = Graph{}
}

// Transposed reports whether New had to transpose the graph, because it is not symmetric or has
// relations.
func (m *Graph) Transposed() bool { return m.transposed }

// degree returns the out-degree of v: the number of vertices that may sample it, counting parallel
// edges. Caches break ties between scores by higher degree, then lower id. The in-degree, the
// number of vertices that v may sample, says nothing about how often v is read. On the symmetric
// graphs of the papers the two are equal. PaGraph (Lin et al., SoCC 2020), the source of policy
// degree, ranks by out-degree.
func (m *Graph) degree(v graph.VertexID) int { return m.out.InDegree(v) }

// OutDegrees returns a function from a vertex to its out-degree: the number of vertices that may
// sample it. The function reads the graph, or the transpose that New made, and is valid until Free.
func (m *Graph) OutDegrees() func(v graph.VertexID) int {
	out := m.out
	return func(v graph.VertexID) int { return out.InDegree(v) }
}

// NumVertices returns N.
func (m *Graph) NumVertices() int { return m.in.NumVertices() }

// Chunks are long enough that distributing them is cheap, and short enough to balance the
// goroutines. Their ends are multiples of 64, so that goroutines that set bits of vertices never
// share a word.
const (
	chunkEdges   = 1 << 18
	vertexWeight = 4 // the work for a vertex is about that for this many edges
	wordBits     = 64
)

// cut returns the ends of the chunks.
func cut(g *graph.CSC) []int {
	n := g.NumVertices()
	weight := func(v int) int64 { return g.Indptr[v] + int64(v)*vertexWeight }
	cuts := []int{0}
	for last := 0; last < n; {
		goal := weight(last) + chunkEdges
		words := sort.Search((n-last)/wordBits,
			func(i int) bool { return weight(last+(i+1)*wordBits) >= goal }) + 1
		last = min(last+words*wordBits, n)
		cuts = append(cuts, last)
	}
	return cuts
}

// chunks calls the function `work` for all chunks. The goroutines share the chunks. Each passes its
// number (`worker`) to the function. If a mapped file cannot be read, chunks returns an error.
func (m *Graph) chunks(work func(worker, lo, hi int)) error {
	var next atomic.Int64
	return mem.Together(m.workers, func(w int) error {
		for i := next.Add(1); int(i) < len(m.cuts); i = next.Add(1) {
			work(w, m.cuts[i-1], m.cuts[i])
		}
		return nil
	})
}

// symmetric reports whether the edges and the reversed edges are the same multiset. It compares the
// sum of the edges' hashes with the sum of the reversed edges' hashes. If the two multisets differ,
// the sums are equal only with probability 2^-64.
func (m *Graph) symmetric() (bool, error) {
	var difference atomic.Uint64
	err := m.chunks(func(_, lo, hi int) {
		sum := uint64(0)
		for v := lo; v < hi; v++ {
			for _, u := range m.in.InNeighbours(graph.VertexID(v)) {
				sum += hash(graph.MakeEdge(u,
					graph.VertexID(v))) - hash(graph.MakeEdge(graph.VertexID(v), u))
			}
		}
		difference.Add(sum)
	})
	return difference.Load() == 0, err
}

// hash mixes the bits of an edge.
func hash(e graph.Edge) uint64 { return random.Mix(uint64(e) + random.Golden) }
