package sample

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// wholeRows is the Spec of a hop that draws all neighbours.
var wholeRows = Neighbours(All)

// columnRange lists the columns of one relation in a hop. The hop draws some in-edges of each
// column. The drawn edges of a column become one row of the block.
type columnRange struct {
	relation int
	vertices []graph.VertexID // the destinations or, in a graph with relations, their columns
	original []int32          // original ids of the destinations
}

// columnList lists the columns of a frontier, relation by relation. It leaves out a column if the
// vertex has no edge of that relation, or if the minibatch leaves out all of these edges. The zero
// value is ready for use.
type columnList struct {
	ranges   []columnRange
	block    graph.Block // for columns that another rank asks for; only Targets and Ends are used
	order    []int32     // destinations, type by type
	ends     []int       // [T] where the destinations of each type end in `order`
	first    []graph.VertexID
	columns  []graph.VertexID
	original []int32
}

// listColumns lists the columns, sets the block's Targets and Ends, and finds which of the edges in
// skips.list each column skips. If skips is nil, it also lists columns without edges, because a
// rank that asks others does not know which columns have edges. In a graph without relations the
// columns are the vertices of the frontier.
func (l *columnList) listColumns(t *Topology, frontier []graph.VertexID, original []int32,
	block *graph.Block, skips *skips) []columnRange {
	c := &t.Columns
	l.ranges = l.ranges[:0]
	if c.Plain() {
		l.ranges = append(l.ranges, columnRange{0, frontier, original})
		return l.ranges
	}
	l.byType(c, frontier)
	most := 0
	for kind, end := range l.ends {
		begin := 0
		if kind > 0 {
			begin = l.ends[kind-1]
		}
		most += (end - begin) * len(c.Into(kind))
	}
	l.columns, l.original = mem.Grow(l.columns[:0], most), mem.Grow(l.original[:0], most)
	block.Targets, block.Ends = mem.Grow(block.Targets[:0], most),
		mem.Grow(block.Ends[:0], c.NumRelations())
	n := 0
	if skips != nil {
		skips.clear()
	}
	for r := range c.NumRelations() {
		begin, kind := n, c.Target(r)
		from := 0
		if kind > 0 {
			from = l.ends[kind-1]
		}
		place := graph.VertexID(c.Place(r))
		for _, d := range l.order[from:l.ends[kind]] {
			column := l.first[d] + place
			if skips != nil && !skips.column(t, column, r, int(d)) {
				continue
			}
			l.columns[n], l.original[n], block.Targets[n] = column, original[d], d
			n++
		}
		block.Ends[r] = int32(n)
		l.ranges = append(l.ranges, columnRange{r, l.columns[begin:n], l.original[begin:n]})
	}
	block.Targets = block.Targets[:n]
	return l.ranges
}

// byType sorts the destinations by type, and finds the first column of each.
func (l *columnList) byType(c *graph.Columns, frontier []graph.VertexID) {
	n, types := len(frontier), c.NumTypes()
	l.order, l.first = mem.Grow(l.order[:0], n), mem.Grow(l.first[:0], n)
	if len(l.ends) != types {
		l.ends = make([]int, types)
	}
	clear(l.ends)
	for d, v := range frontier {
		kind, first, _ := c.Of(v)
		l.first[d] = first
		l.ends[kind]++
	}
	at := 0
	for kind, count := range l.ends {
		l.ends[kind], at = at, at+count
	}
	for d, v := range frontier {
		kind, _, _ := c.Of(v)
		l.order[l.ends[kind]] = int32(d)
		l.ends[kind]++
	}
}

func (l *columnList) bytes() int64 {
	return int64(cap(l.order)+cap(l.first)+cap(l.columns)+cap(l.original)+cap(l.block.Targets)) * 4
}

func (l *columnList) free() {
	mem.Free(l.order)
	mem.Free(l.first)
	mem.Free(l.columns)
	mem.Free(l.original)
	mem.Free(l.block.Targets)
	mem.Free(l.block.Ends)
}

// checkRelations returns an error for options that a graph with relations does not support.
func (o *Options) checkRelations(t *Topology) error {
	if r := len(o.Relations); r > 0 && r != t.Columns.NumRelations() {
		return fmt.Errorf("there are fanouts for %d relations, but the graph has %d relations", r,
			t.Columns.NumRelations())
	}
	switch {
	case t.Columns.Plain():
	case !o.HasFanouts():
		return fmt.Errorf("sample.kind %s does not draw by relations yet; choose %s", o.kind(),
			Neighbour)
	case !o.Near.None():
		return errors.New("sample.locality does not work on a graph with relations yet; set " +
			"sample.locality=1")
	}
	return nil
}
