package access

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Expected returns the expected number of rows that a step reads and that are neither local nor
// cached. The argument p is the result of Inclusion; Expected adds it up over the vertices of these
// rows. The cached vertices must be remote and distinct. O(N).
func Expected(p []float32, local []Range, cached []graph.VertexID) (float64, error) {
	if err := checkLocal(len(p), local); err != nil {
		return 0, fmt.Errorf("access: computing the expected rows: %w", err)
	}
	sum := 0.0
	remoteRanges(len(p), local, func(lo, hi int) { sum += total(p[lo:hi]) })
	for _, v := range cached {
		if uint(v) >= uint(len(p)) {
			return 0, fmt.Errorf("access: computing the expected rows: cached vertex %d: %w "+
				"(there are %d)", v, graph.ErrVertexRange, len(p))
		}
		sum -= float64(p[v])
	}
	return max(sum, 0), nil
}

// Top returns the remote vertices with the highest scores, at most capacity of them, in ascending
// order. A static cache of this size that holds their rows is the best one by this score. Ties go
// to the higher out-degree, then to the lower id. Vertices with score 0 are left out, because they
// are never read, so the result may have fewer than capacity vertices.
//
//	score [N]  >= 0
//
// It finds the lowest score to be kept digit by digit (radix selection), without sorting: time
// O(N), memory 512 KiB and the result, which lies outside the Go heap.
func (m *Graph) Top(score []float32, local []Range, capacity int) ([]graph.VertexID, error) {
	return m.top(score, local, nil, capacity)
}

// Best is Top for a reader. If rows are of several kinds, capacity is in bytes, and Best returns
// the vertices with the highest scores whose rows fit. A score is then what a row saves for each
// byte of the cache, so that rows of different lengths can be compared.
func (m *Graph) Best(score []float32, r *Workload, capacity int) ([]graph.VertexID, error) {
	return m.top(score, r.Local, r.Kinds, capacity)
}

func (m *Graph) top(score []float32, local []Range, kinds *Kinds, capacity int) ([]graph.VertexID,
	error) {
	n := m.in.NumVertices()
	if len(score) != n {
		return nil, fmt.Errorf("access: there are %d scores, but %d vertices need one score each",
			len(score), n)
	}
	if err := checkLocal(n, local); err != nil {
		return nil, fmt.Errorf("access: top: %w", err)
	}
	if capacity < 0 {
		return nil, fmt.Errorf("access: top: capacity is %d; it must be at least 0", capacity)
	}
	var top []graph.VertexID
	err := mem.Guard(func() error {
		candidates := func(yield func(v graph.VertexID, key uint64, size int)) {
			remoteRanges(n, local, func(lo, hi int) {
				for v := lo; v < hi; v++ {
					if v := graph.VertexID(v); score[v] > 0 {
						yield(v, m.key(score[v], v), kinds.Takes(v))
					}
				}
			})
		}
		least, rest := selectKey(candidates, capacity)
		take := func(yield func(v graph.VertexID)) {
			ties := rest
			candidates(func(v graph.VertexID, key uint64, size int) {
				if key > least {
					yield(v)
				} else if key == least && size <= ties {
					yield(v)
					ties -= size
				}
			})
		}
		count := 0
		take(func(graph.VertexID) { count++ })
		top = mem.Make[graph.VertexID](count)[:0]
		take(func(v graph.VertexID) { top = append(top, v) })
		return nil
	})
	if err != nil {
		mem.Free(top)
		return nil, fmt.Errorf("access: top: %w", err)
	}
	return top, nil
}

// BestFirst sorts vertices by score, the highest first, and breaks ties as Top does. So the first
// vertices are those that Top returns for a smaller capacity.
func (m *Graph) BestFirst(vertices []graph.VertexID, score []float32) {
	slices.SortFunc(vertices, func(a, b graph.VertexID) int {
		return cmp.Or(cmp.Compare(m.key(score[b], b), m.key(score[a], a)), cmp.Compare(a, b))
	})
}

// key orders vertices by score, then by out-degree. The bits of floats that are not negative have
// the order of the floats.
func (m *Graph) key(score float32, v graph.VertexID) uint64 {
	return uint64(math.Float32bits(score))<<32 | uint64(min(m.degree(v), math.MaxUint32))
}

const (
	keyBits   = 64
	digitBits = 16
)

// selectKey selects candidates by descending key while their sizes fit into capacity. It returns
// the least selected key. It also returns the capacity that is left after all candidates with
// larger keys, which is for candidates with this key. It finds the key digit by digit, from the
// highest digit on. For each digit it makes one pass over the candidates whose keys begin with the
// digits found so far.
func selectKey(candidates func(yield func(v graph.VertexID, key uint64, size int)), capacity int) (
	least uint64, rest int) {
	if capacity == 0 {
		return math.MaxUint64, 0
	}
	sizes := make([]int, 1<<digitBits)
	// The variable prefix holds the digits found so far. The variable larger holds the total size
	// of all candidates with larger keys.
	prefix, larger := uint64(0), 0
	for shift := keyBits - digitBits; shift >= 0; shift -= digitBits {
		clear(sizes)
		candidates(func(_ graph.VertexID, key uint64, size int) {
			if rest := key>>shift ^ prefix<<digitBits; rest < 1<<digitBits {
				sizes[rest] += size
			}
		})
		digit := len(sizes) - 1
		for digit > 0 && larger+sizes[digit] < capacity {
			larger += sizes[digit]
			digit--
		}
		prefix = prefix<<digitBits | uint64(digit)
	}
	return prefix, capacity - larger
}
