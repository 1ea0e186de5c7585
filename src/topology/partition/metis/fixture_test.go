//go:build cgo && metis

package metis

import (
	"path/filepath"

	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// sharedData is a directory of public graphs that may lie beside the repository.
const sharedData = "../../../../../shared/data"

// load returns a public graph, every edge in both directions, and its split.
func load(name string) (*graph.CSC, graph.Split, error) {
	n, pairs, role, err := loadNeutral(filepath.Join(sharedData, name, "neutral"))
	if err != nil {
		return nil, graph.Split{}, err
	}
	var src, dst []graph.VertexID
	for i := 0; i < len(pairs); i += 2 {
		u, v := graph.VertexID(pairs[i]), graph.VertexID(pairs[i+1])
		src, dst = append(src, u, v), append(dst, v, u)
	}
	g, err := graph.FromEdges(n, src, dst)
	var s graph.Split
	lists := []*[]graph.VertexID{&s.Train, &s.Valid, &s.Test}
	for v, k := range role {
		if k >= 0 {
			*lists[k] = append(*lists[k], graph.VertexID(v))
		}
	}
	return g, s, err
}

func loadNeutral(dir string) (n int, pairs []int32, role []int8, err error) {
	edges, err := npy.Map[int32](filepath.Join(dir, "edges.npy"), -1, 2)
	if err != nil {
		return 0, nil, nil, err
	}
	defer edges.Close()
	split, err := npy.Map[int8](filepath.Join(dir, "split.npy"), -1)
	if err != nil {
		return 0, nil, nil, err
	}
	defer split.Close()
	return len(split.Data), append(pairs, edges.Data...), append(role, split.Data...), nil
}
