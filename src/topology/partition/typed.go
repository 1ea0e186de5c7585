package partition

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"halognn/src/topology/graph"
)

// TypeReport says how the vertices of one type, or the edges of one relation, lie in the parts.
type TypeReport struct {
	Name      string  `json:"name"`
	Count     int64   `json:"count"`
	Imbalance float64 `json:"imbalance"`     // the largest part over the mean
	Cut       int64   `json:"cut,omitempty"` // edges from another part
}

// TypeWeights returns two more constraints, for graphs with vertex types: the number of vertices of
// one type, that with the index trained, and the bytes of feature rows. rowBytes[t] is the size of
// a row of type t. Memory 8 bytes a vertex.
func TypeWeights(c *graph.Columns, vertices, trained int, rowBytes []int64) [][]int32 {
	seeds, rows, sizes := make([]int32, vertices), make([]int32, vertices),
		rowWeights(vertices, rowBytes)
	for v := range graph.VertexID(vertices) {
		kind, _, _ := c.Of(v)
		if kind == trained {
			seeds[v] = 1
		}
		rows[v] = sizes[kind]
	}
	return [][]int32{seeds, rows}
}

// rowWeights returns the size of a row of each vertex type, as a multiple of a unit. The unit is
// the largest that divides all sizes. If the weights of all vertices would then add up to 2^31 or
// more, the unit is larger, because libraries add weights in 32 bits.
func rowWeights(vertices int, rowBytes []int64) []int32 {
	unit, largest := int64(0), int64(1)
	for _, size := range rowBytes {
		largest = max(largest, size)
		for unit, size = size, unit; size > 0; {
			unit, size = size, unit%size
		}
	}
	most := max(1, math.MaxInt32/int64(max(1, vertices)))
	unit = max(1, unit, (largest+most-1)/most)
	sizes := make([]int32, len(rowBytes))
	for t, size := range rowBytes {
		sizes[t] = int32((size + unit - 1) / unit)
	}
	return sizes
}

// MeasureTypes adds the counts of each vertex type and relation to a report. O(M + N).
func (r *Report) MeasureTypes(g *graph.CSC, c *graph.Columns, s *graph.Schema, part []int32) {
	parts := len(r.Parts)
	types, relations := make([][]int64, len(s.Types)), make([][]int64, len(s.Relations))
	cut := make([]int64, len(s.Relations))
	for t := range types {
		types[t] = make([]int64, parts)
	}
	for k := range relations {
		relations[k] = make([]int64, parts)
	}
	for v, of := range part {
		kind, first, _ := c.Of(graph.VertexID(v))
		types[kind][of]++
		for k, relation := range c.Into(kind) {
			column := int(first) + k
			sources := g.Indices[c.Indptr[column]:c.Indptr[column+1]]
			relations[relation][of] += int64(len(sources))
			for _, u := range sources {
				if part[u] != of {
					cut[relation]++
				}
			}
		}
	}
	for t, name := range s.Types {
		r.Types = append(r.Types, typeReport(name, types[t], 0))
	}
	for k, relation := range s.Relations {
		r.Relations = append(r.Relations, typeReport(relation.String(), relations[k], cut[k]))
	}
}

func typeReport(name string, counts []int64, cut int64) TypeReport {
	r := TypeReport{Name: name, Cut: cut, Imbalance: 1}
	most := int64(0)
	for _, n := range counts {
		r.Count, most = r.Count+n, max(most, n)
	}
	if r.Count > 0 {
		r.Imbalance = float64(most) * float64(len(counts)) / float64(r.Count)
	}
	return r
}

// typesTable returns the counts of types and relations as a table, or "" if there are no types.
func (r *Report) typesTable() string {
	if len(r.Types) == 0 {
		return ""
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "of\tcount\tlargest/mean\tcut\t")
	for _, t := range r.Types {
		fmt.Fprintf(w, "%s\t%d\t%.3f\t\t\n", t.Name, t.Count, t.Imbalance)
	}
	for _, t := range r.Relations {
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%.1f%%\t\n", t.Name, t.Count, t.Imbalance,
			100*float64(t.Cut)/float64(max(t.Count, 1)))
	}
	w.Flush()
	return b.String()
}
