package dataset

import (
	"fmt"
	"path/filepath"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// TopologyWriter writes the topology of a graph, one range of rows after the other.
type TopologyWriter struct {
	w       *Writer
	indptr  []int64
	next    int // vertex of the next row
	indices *npy.Writer
	weights *npy.Writer // nil if edges have no weights
	report  graph.CleanReport
}

// BeginTopology begins the topology of a graph with n vertices. Only indptr, 8 bytes for each
// vertex, is in memory. The caller appends the rows in order, and ends by Close or abort.
func (w *Writer) BeginTopology(n int, weighted bool) (t *TopologyWriter, err error) {
	t = &TopologyWriter{w: w, indptr: mem.Make[int64](n + 1)}
	t.indices, err = npy.Create(filepath.Join(w.tmp, "indices.npy"), npy.DType[graph.VertexID](),
		-1)
	if err == nil && weighted {
		t.weights, err = npy.Create(filepath.Join(w.tmp, WeightsFile), npy.DType[float32](), -1)
	}
	if err != nil {
		t.abort()
		return nil, err
	}
	return t, nil
}

// Append appends the rows of the next vertices, and the weights of their edges if edges have
// weights.
func (t *TopologyWriter) Append(rows *graph.CSC, weights []float32) error {
	n := rows.NumVertices()
	if t.next+n >= len(t.indptr) {
		return fmt.Errorf("%w: the topology has %d rows, but the graph has %d vertices",
			ErrMismatch, t.next+n, len(t.indptr)-1)
	}
	begin := t.indptr[t.next]
	for v := range n {
		t.indptr[t.next+v+1] = begin + rows.Indptr[v+1]
	}
	t.next += n
	if err := npy.Write(t.indices, rows.Indices); err != nil || t.weights == nil {
		return err
	}
	if err := CheckWeights(weights); err != nil {
		return err
	}
	return npy.Write(t.weights, weights)
}

// Close completes the files, and sets the numbers of vertices and edges, to which all other arrays
// must correspond.
func (t *TopologyWriter) Close() error {
	defer t.abort()
	m := &t.w.Meta
	if t.next != len(t.indptr)-1 {
		return fmt.Errorf("%w: the topology has %d rows, but the graph has %d vertices",
			ErrMismatch, t.next, len(t.indptr)-1)
	}
	if err := t.indices.Close(); err != nil {
		return err
	}
	m.Files["indices.npy"] = t.indices.Info()
	if t.weights != nil {
		if err := t.weights.Close(); err != nil {
			return err
		}
		m.Weighted, m.Files[WeightsFile] = true, t.weights.Info()
	}
	m.Vertices, m.Edges = int64(t.next), t.indptr[t.next]
	return put(t.w, "indptr.npy", t.indptr, len(t.indptr))
}

// abort frees the memory, and removes files that are not complete.
func (t *TopologyWriter) abort() {
	mem.Free(t.indptr)
	t.indptr = nil
	for _, f := range []*npy.Writer{t.indices, t.weights} {
		if f != nil {
			f.Abort()
		}
	}
}
