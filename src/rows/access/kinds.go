package access

import "halognn/src/topology/graph"

// Kinds says how long rows are, if the length depends on the vertex or on its kind. The vertices
// are divided into ranges, and range i has kind i modulo the number of kinds. A nil Kinds means
// that all rows have one kind and size.
type Kinds struct {
	Bytes []int // [kinds] bytes of a row; 0 if the kind has no rows
	// Ends [N+1] is set only for sparse rows, which all have one kind. The row of vertex v has the
	// entries Ends[v] to Ends[v+1]-1, and each entry has Bytes[0] bytes.
	Ends []int64

	starts []int64 // [ranges+1] first vertex of each range
	index  graph.PartIndex
}

// NewKinds returns kinds in which range i is the vertices starts[i] to starts[i+1]-1.
func NewKinds(starts []int64, bytes []int) *Kinds {
	return &Kinds{Bytes: bytes, starts: starts, index: graph.NewPartIndex(starts)}
}

// NewSparseKinds returns Kinds for sparse rows, which have one kind. The given ends become
// Kinds.Ends, and an entry has `entry` bytes.
func NewSparseKinds(ends []int64, entry int) *Kinds {
	k := NewKinds([]int64{0, int64(len(ends) - 1)}, []int{entry})
	k.Ends = ends
	return k
}

// Of returns the kind of a vertex.
func (k *Kinds) Of(v graph.VertexID) int {
	if k == nil || len(k.Bytes) == 1 {
		return 0
	}
	return k.index.Find(uint32(v)) % len(k.Bytes)
}

// Size returns the bytes of a vertex's row.
func (k *Kinds) Size(v graph.VertexID) int {
	if k.Ends != nil {
		return int(k.Ends[v+1]-k.Ends[v]) * k.Bytes[0]
	}
	return k.Bytes[k.Of(v)]
}

// Sizes returns the bytes of the rows of vertices.
func (k *Kinds) Sizes(vertices []graph.VertexID) (bytes int64) {
	if len(k.Bytes) == 1 && k.Ends == nil {
		return int64(len(vertices)) * int64(k.Bytes[0])
	}
	for _, v := range vertices {
		bytes += int64(k.Size(v))
	}
	return bytes
}

// Takes returns how much of a cache's capacity the row of a vertex uses up. This is the row's bytes
// or, if all rows have one size, 1.
func (k *Kinds) Takes(v graph.VertexID) int {
	if k == nil {
		return 1
	}
	return k.Size(v)
}

// Total returns the bytes of all rows.
func (k *Kinds) Total() int64 { return k.Within(0, k.starts[len(k.starts)-1]) }

// Within returns the bytes of the rows of the vertices first to end-1.
func (k *Kinds) Within(first, end int64) (bytes int64) {
	if k.Ends != nil {
		return (k.Ends[end] - k.Ends[first]) * int64(k.Bytes[0])
	}
	for i := range len(k.starts) - 1 {
		n := min(end, k.starts[i+1]) - max(first, k.starts[i])
		bytes += max(0, n) * int64(k.Bytes[i%len(k.Bytes)])
	}
	return bytes
}

// Outside returns the ranges local together with all vertices of the kinds for which the function
// `keep` returns false. The result's ranges ascend and do not overlap.
func (k *Kinds) Outside(local []Range, keep func(kind int) bool) (all []Range) {
	add := func(first, end int64) {
		n := len(all)
		switch {
		case first >= end:
		case n > 0 && int64(all[n-1].End) == first:
			all[n-1].End = graph.VertexID(end)
		default:
			all = append(all, Range{graph.VertexID(first), graph.VertexID(end)})
		}
	}
	for i := range len(k.starts) - 1 {
		first, end := k.starts[i], k.starts[i+1]
		if !keep(i % len(k.Bytes)) {
			add(first, end)
			continue
		}
		for _, r := range local {
			add(max(first, int64(r.First)), min(end, int64(r.End)))
		}
	}
	return all
}

// Of returns the workload of the same reader restricted to the rows of one kind, which all have one
// size.
func (r *Workload) Of(kind int) *Workload {
	one := *r
	one.Home, one.Kinds, one.reuse = r.home(), nil, nil
	one.Local = r.Kinds.Outside(r.Local, func(k int) bool { return k == kind })
	return &one
}

// PerKind returns how many of the vertices are of each kind.
func (k *Kinds) PerKind(vertices []graph.VertexID) []int {
	if k == nil {
		return []int{len(vertices)}
	}
	counts := make([]int, len(k.Bytes))
	for _, v := range vertices {
		counts[k.Of(v)]++
	}
	return counts
}
