package access

import (
	"fmt"
	"iter"
	"sort"

	"halognn/src/base/mem"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Candidates returns the vertices whose rows may be cached: the remote vertices at most r.Hops hops
// away from the vertices r.Home. It returns nil, which stands for all remote vertices, if
// minibatches sample no farther than r.Hops hops.
func (m *Graph) Candidates(r *Workload) (Set, error) {
	if r.Hops == 0 || r.Hops >= r.Sample.Hops() {
		return nil, nil
	}
	if err := checkLocal(m.in.NumVertices(), r.Local); err != nil {
		return nil, fmt.Errorf("access: candidates: %w", err)
	}
	inside := NewSet(m.in.NumVertices())
	defer inside.Free()
	inside.AddRanges(r.home())
	reached, err := m.Within(inside, r.Hops)
	inside.AddRanges(r.Local)
	for i := range reached {
		reached[i] &^= inside[i]
	}
	return reached, err
}

// HaloSize returns the number of vertices outside the local ranges that may be sampled in one hop
// from home. If rows are of several kinds, it returns the bytes of these vertices' rows instead. It
// takes the time of Within and 3 N/8 bytes of memory.
func (m *Graph) HaloSize(r *Workload) (int, error) {
	halo, err := m.Candidates(&Workload{Local: r.Local, Home: r.Home, Hops: 1,
		Sample: sample.Neighbours(1, 1)})
	defer halo.Free()
	if r.Kinds == nil || err != nil {
		return halo.Len(), err
	}
	bytes := 0
	for v := range graph.VertexID(m.NumVertices()) {
		if halo.Has(v) {
			bytes += r.Kinds.Size(v)
		}
	}
	return bytes, nil
}

// Ahead yields, for up to n minibatches of the reader, the list of remote vertices in frontier
// order. The first minibatch has the number `first` within the epoch. The sequence stops at the end
// of the run. The minibatches are those of training, because they are sampled with the same keys.
// Each is sampled when its list is requested, and its list overwrites the previous one. An error
// ends the sequence and is stored in fault.
func (r *Workload) Ahead(epoch, first, n int, fault *error) iter.Seq[[]graph.VertexID] {
	return func(yield func([]graph.VertexID) bool) {
		var remote []graph.VertexID
		for _, mb := range r.ahead(epoch, first, n, fault) {
			remote = remote[:0]
			for _, v := range mb.Frontier {
				if !within(r.Local, v) {
					remote = append(remote, v)
				}
			}
			if !yield(remote) {
				return
			}
		}
	}
}

// ahead samples the minibatches for Ahead. It yields each minibatch with the key it was sampled
// with.
func (r *Workload) ahead(epoch, from, n int, fault *error,
) iter.Seq2[sample.Key, *sample.Minibatch] {
	o := sample.Options{Spec: r.Sample, Near: r.Near, Workers: max(r.Workers, 1), ForwardOnly: true}
	n = min(n, (r.Epochs-epoch+1)*r.Items()-from)
	return func(yield func(sample.Key, *sample.Minibatch) bool) {
		for key, mb := range r.Minibatches(r.Topology, o, epoch, from, n, fault) {
			if !yield(key, mb) {
				return
			}
		}
		if *fault != nil {
			*fault = fmt.Errorf("access: looking ahead: %w", *fault)
		}
	}
}

// within reports whether v lies in one of the ranges, which ascend and do not overlap.
func within(ranges []Range, v graph.VertexID) bool {
	i := sort.Search(len(ranges), func(i int) bool { return v < ranges[i].End })
	return i < len(ranges) && v >= ranges[i].First
}

// WindowMemory is the most memory that the minibatches waiting in a planned window may take.
const WindowMemory = 1 << 30

// PlanWindow returns how many minibatches a look-ahead cache of capacity rows should know in
// advance; see cache.PlanWindow. p is the result of Reads. The window depends only on the graph and
// the settings.
func (m *Graph) PlanWindow(r *Workload, p []float32, capacity int) (int, error) {
	reuse, err := m.Reuse(r, p)
	if err != nil {
		return 0, err
	}
	waiting, err := m.waitingBytes(r, p)
	if err != nil {
		return 0, err
	}
	return cache.PlanWindow(cache.WindowOptions{
		Capacity: capacity, Steps: r.Items(), Epochs: r.Epochs, Reuse: reuse,
		Memory: WindowMemory, StepBytes: waiting,
	}), nil
}

// WindowBytes estimates the memory of the minibatches that wait in a reader's window.
func (m *Graph) WindowBytes(r *Workload, p []float32, window int) (int64, error) {
	waiting, err := m.waitingBytes(r, p)
	return int64(window) * waiting, err
}

// Reuse counts the remote vertices of the reader by access probability; p is the result of Reads.
// If vertices keep their random numbers (LABOR) for several steps, the first call takes the time
// and memory of Reads.
func (m *Graph) Reuse(r *Workload, p []float32) (*cache.Reuse, error) {
	if err := checkLocal(len(p), r.Local); err != nil {
		return nil, fmt.Errorf("access: reuse: %w", err)
	}
	if !m.byNumbers(r) || r.Sample.Numbers.Dependency <= 1 || !r.Near.None() {
		reuse := cache.NewReuse(1)
		remoteRanges(len(p), r.Local, func(lo, hi int) { reuse.Add(p[lo:hi]) })
		return reuse, nil
	}
	if r.reuse == nil {
		drawn, err := m.reads(r, func(train []graph.VertexID, batch float64, _ []int) ([]float32,
			error) {
			return m.labor(train, batch, r.Sample, true)
		})
		if err != nil {
			return nil, err
		}
		defer mem.Free(drawn)
		r.reuse = cache.NewReuse(r.Sample.Numbers.Dependency * r.Count)
		remoteRanges(len(p), r.Local, func(lo, hi int) { r.reuse.AddDrawn(drawn[lo:hi], p[lo:hi]) })
	}
	return r.reuse, nil
}

// waitingBytes estimates the memory of a minibatch that is sampled and planned, and waits for its
// turn. It counts vertexBytes for each vertex of the input frontier, and 16 bytes for each vertex
// of any other frontier. It counts 4 bytes for each edge of the input layer, whose rows get no
// gradient, and 12 bytes for each edge of any other layer. For a kind of sampling without fanouts,
// it measures a few minibatches and returns their mean.
func (m *Graph) waitingBytes(r *Workload, p []float32) (int64, error) {
	if !r.Sample.HasFanouts() {
		return r.countedBytes(4)
	}
	fanouts, err := r.Sample.FanoutsFor("the memory of a window of minibatches")
	if err != nil {
		return 0, fmt.Errorf("access: %w", err)
	}
	frontier := total(p)
	bytes, reached := float64(r.vertexBytes())*frontier, float64(r.Streams.MaxPiece())
	for h, f := range fanouts {
		draws := float64(f) * float64(m.columns.width()) / float64(max(m.in.NumVertices(), 1))
		if f == sample.All {
			draws = float64(m.in.NumEdges()) / float64(max(m.in.NumVertices(), 1))
		}
		edge := 12.0
		if h == len(fanouts)-1 {
			edge = 4
		}
		bytes += reached * (16 + draws*edge)
		reached = min(reached*(1+draws), frontier)
	}
	return int64(bytes), nil
}

// vertexBytes returns the bytes that a waiting minibatch needs for each vertex of the input
// frontier: 24. If the ranks of a node divide the cache, a vertex needs 4 bytes more for its id in
// the request to another rank. The node's ranks request about as many rows from this rank as it
// requests from them. Each requested row needs 12 bytes more: 4 for its id in the request, 4 for
// its id in the union of all requests, and 4 for its slot.
func (r *Workload) vertexBytes() int {
	if r.Divided {
		return 24 + 4*4
	}
	return 24
}

// countedBytes samples the first n minibatches. It counts the memory of each in the way that
// waitingBytes describes, and returns the mean.
func (r *Workload) countedBytes(n int) (int64, error) {
	var fault error
	bytes, counted := 0, 0
	for _, mb := range r.ahead(1, 0, n, &fault) {
		counted++
		bytes += r.vertexBytes() * len(mb.Frontier)
		for l := range mb.Blocks {
			edge := 12
			if l == 0 {
				edge = 4
			}
			bytes += 16*max(0, len(mb.Blocks[l].Indptr)-1) + edge*len(mb.Blocks[l].Indices)
		}
	}
	return int64(bytes / max(1, counted)), fault
}
