package infer

import (
	"fmt"
	"slices"
	"sort"

	"halognn/src/data/shard"
	"halognn/src/topology/graph"
)

// chosen are the vertices to predict: all of them, those of the type that has labels, or those on a
// list.
type chosen struct {
	// id in the dataset of the first vertex that can be predicted
	first int
	n     int              // number of chosen vertices, over all ranks
	ids   []graph.VertexID // the chosen vertices, ascending; nil if all are chosen
	// [ids] output row of each chosen vertex; nil if the output row is the vertex's id in the
	// dataset
	rows []int32
	// [parts+1] first vertex of each part of the graph, and then the number of vertices
	offsets []int64
	// positions [lo,hi) of this rank's own vertices among all chosen vertices
	lo, hi int
}

// predicted returns the id in the dataset of the first vertex that can be predicted, and the number
// of such vertices. On a graph with vertex types only the vertices of the type with labels can be
// predicted, because the model's classes belong to that type. A model of embeddings predicts all
// vertices.
func predicted(of *shard.Meta, embeds bool) (first, n int, err error) {
	if !of.Schema.Typed() || embeds {
		return 0, int(of.Vertices), nil
	}
	kind, err := of.Schema.Type(of.LabelType)
	if err != nil {
		return 0, 0, err
	}
	for t := range kind {
		first += int(of.Tables[t].Vertices)
	}
	return first, int(of.Tables[kind].Vertices), nil
}

// choose finds the vertices with the given source ids in all parts. If ids is nil, it chooses all
// vertices that can be predicted. It does not communicate, because each rank can read the ids of
// all parts.
func (s Passes) choose(ids []string, predict bool) (*chosen, error) {
	of := &s.Shards.Meta
	first, n, err := predicted(of, s.Task.Embeds)
	if err != nil {
		return nil, err
	}
	c := &chosen{first: first, n: n, offsets: of.Offsets}
	if ids != nil {
		source, err := s.Shards.OpenSourceIDs()
		if err != nil {
			return nil, err
		}
		defer source.Close()
		found, err := source.Find(ids)
		if err != nil {
			return nil, fmt.Errorf("--vertices: %w", err)
		}
		row := make(map[int32]int32, len(found)) // output row of a vertex, by its id in the dataset
		for k, v := range found {
			if at := int(v) - c.first; predict && (at < 0 || at >= c.n) {
				return nil, fmt.Errorf("--vertices: %q is no vertex of type %s, whose labels "+
					"the model "+
					"predicts; leave it out", ids[k], of.LabelType)
			}
			row[v] = int32(k)
		}
		c.n, c.ids = len(found), make([]graph.VertexID, 0, len(found))
		for v, original := range s.Topology.Original {
			if k, ok := row[original]; ok {
				c.ids, c.rows = append(c.ids, graph.VertexID(v)), append(c.rows, k)
			}
		}
	} else if int64(n) < of.Vertices {
		c.ids = make([]graph.VertexID, 0, c.n)
		for v, original := range s.Topology.Original {
			if k := int(original) - c.first; k >= 0 && k < c.n {
				c.ids, c.rows = append(c.ids, graph.VertexID(v)), append(c.rows, int32(k))
			}
		}
	}
	c.lo, c.hi = c.below(c.offsets[s.First]), c.below(c.offsets[s.Last])
	return c, nil
}

// below returns the number of chosen vertices whose vertex number is less than v.
func (c *chosen) below(v int64) int {
	if c.ids == nil {
		return int(v)
	}
	return sort.Search(len(c.ids), func(i int) bool { return int64(c.ids[i]) >= v })
}

// ownCount returns the number of chosen vertices that this rank owns.
func (c *chosen) ownCount() int { return c.hi - c.lo }

// vertex returns the i-th chosen vertex of this rank.
func (c *chosen) vertex(i int) graph.VertexID {
	if c.ids == nil {
		return graph.VertexID(c.lo + i)
	}
	return c.ids[c.lo+i]
}

func (c *chosen) place(v graph.VertexID) int { return c.below(int64(v)) - c.lo }

// row returns the output row of the i-th chosen vertex, counted over all ranks.
func (c *chosen) row(i int, original []int32) int {
	if c.ids == nil {
		return int(original[i])
	}
	return int(c.rows[i])
}

// partVertices returns the chosen vertices of a part.
func (c *chosen) partVertices(part int) []graph.VertexID {
	lo, hi := c.offsets[part], c.offsets[part+1]
	if c.ids != nil {
		return slices.Clip(c.ids[c.below(lo):c.below(hi)])
	}
	ids := make([]graph.VertexID, hi-lo)
	for i := range ids {
		ids[i] = graph.VertexID(lo) + graph.VertexID(i)
	}
	return ids
}
