package graph

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Schema names the types of a graph's vertices and the relations of its edges. The zero Schema
// belongs to a graph of one type and one relation, which have no names.
type Schema struct {
	Types     []string   `json:"types,omitempty"`
	Relations []Relation `json:"relations,omitempty"`
	// for the task of links: the index of the relation whose edges are the links, then those of the
	// relations that hold the same pairs, the other way round or the same way
	Links []int `json:"links,omitempty"`
}

// Relation is a kind of edges, from vertices of one type to vertices of one type.
type Relation struct {
	Source string `json:"source"`
	Name   string `json:"name"`
	Target string `json:"target"`
}

// String returns the name of a relation as it appears in texts, options and parameters.
func (r Relation) String() string { return r.Source + "," + r.Name + "," + r.Target }

// Reverse returns the relation of the reversed edges.
func (r Relation) Reverse() Relation { return Relation{r.Target, "rev_" + r.Name, r.Source} }

// Typed reports whether types and relations have names.
func (s *Schema) Typed() bool { return len(s.Types) > 0 }

// NumTypes returns the number of types of vertices.
func (s *Schema) NumTypes() int { return max(1, len(s.Types)) }

// NumRelations returns the number of relations.
func (s *Schema) NumRelations() int {
	if s.Typed() {
		return len(s.Relations)
	}
	return 1
}

// TypeName returns the name of a type, or "" if types have no names.
func (s *Schema) TypeName(t int) string {
	if s.Typed() {
		return s.Types[t]
	}
	return ""
}

// Type returns the index of the type with the given name, or an error that lists all types.
func (s *Schema) Type(name string) (int, error) {
	if i := slices.Index(s.Types, name); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("there is no vertex type %q; choose one of %q", name, s.Types)
}

// Relation returns the index of the relation with the given name. The argument is the whole name,
// such as "author,writes,paper", or the middle word alone if only one relation has that word.
func (s *Schema) Relation(name string) (int, error) {
	var found []int
	names := make([]string, len(s.Relations))
	for r, relation := range s.Relations {
		names[r] = relation.String()
		if relation.Name == name || names[r] == name {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("%q names no relation; the graph has %s", name,
			strings.Join(names, " and "))
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("%q names several relations; give one of %s", name,
		strings.Join(names, " and "))
}

// LinkEnds returns the types of the sources and targets of links.
func (s *Schema) LinkEnds() (source, target int) {
	if len(s.Links) == 0 {
		return 0, 0
	}
	return s.Ends(s.Links[0])
}

// Ends returns the types of a relation's sources and targets.
func (s *Schema) Ends(r int) (source, target int) {
	if !s.Typed() {
		return 0, 0
	}
	return slices.Index(s.Types, s.Relations[r].Source),
		slices.Index(s.Types, s.Relations[r].Target)
}

// typeName matches the names that types may have: they become parts of file names.
var typeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// MaxRelations is the largest number of relations, and of types, that a graph may have.
const MaxRelations = 1 << 12

// Check returns all errors of the schema, joined.
func (s *Schema) Check() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(!s.Typed() && len(s.Relations) > 0, "the graph has %d relations, but no vertex types",
		len(s.Relations))
	fault(s.Typed() && len(s.Relations) == 0, "the graph has the vertex types %q, but no "+
		"relation", s.Types)
	fault(max(len(s.Types), len(s.Relations)) > MaxRelations,
		"the graph has %d vertex types and %d relations; at most %d of each are supported",
		len(s.Types),
		len(s.Relations), MaxRelations)
	for i, t := range s.Types {
		fault(!typeName.MatchString(t), "vertex type %q: a name has letters, digits, _, . and -, "+
			"at most 64", t)
		fault(slices.Contains(s.Types[:i], t), "vertex type %q is listed twice", t)
	}
	for i, r := range s.Relations {
		fault(!slices.Contains(s.Types, r.Source) || !slices.Contains(s.Types, r.Target),
			"relation %s names a vertex type that is not among %q", r, s.Types)
		fault(r.Name == "", "relation %s has no name", r)
		fault(slices.Contains(s.Relations[:i], r), "relation %s is listed twice", r)
	}
	for i, r := range s.Links {
		if r < 0 || r >= len(s.Relations) {
			faults = append(faults, fmt.Errorf("the links name relation %d, but there are "+
				"only %d relations", r, len(s.Relations)))
			break
		}
		first, of := s.Relations[s.Links[0]], s.Relations[r]
		fault(i > 0 && (of.Source != first.Target || of.Target != first.Source) &&
			(of.Source != first.Source || of.Target != first.Target),
			"relation %s cannot hold the links of %s: it joins other types", of, first)
	}
	return errors.Join(faults...)
}

// Columns divide the in-edges of each vertex by relation. A vertex has one column for each relation
// that ends in its type. Its columns lie side by side, in the order of the relations. In each part
// of the graph, the vertices of one type lie together.
//
//	relations  0: b,x,a  1: a,y,a  2: a,z,b
//	vertices   0  1  2  | 3 4       types   a a a | b b
//	columns    01 01 01 | 2 2       relation of each column of each vertex
//	Indptr     [C+1]        in-edges of column c are Indices[Indptr[c]:Indptr[c+1]] of the graph
//
// The zero Columns belong to a graph of one relation, in which each vertex is a column.
type Columns struct {
	Indptr []int64

	index  PartIndex
	count  int // number of columns
	ranges []columnRange
	into   [][]int // [T] relations that end in each type, ascending
	target []int   // [R] type in which each relation ends
	place  []int   // [R] place of each relation's column among the columns of a vertex
	links  []bool  // [R] whether the relation is in Schema.Links
}

// columnRange is a range of vertices of one type.
type columnRange struct {
	kind int   // type of the vertices
	each int   // number of columns of each vertex
	base int64 // number that the first column of vertex 0 would have if the range held vertex 0
}

// NewColumns returns the columns of a graph. Vertices starts[i] to starts[i+1]-1 have type i % T,
// where T is the number of types. The argument `indptr` has the row pointers of all columns, one
// more than there are columns. If it has another length and is not nil, NewColumns returns an
// error.
func NewColumns(s *Schema, starts []int64, indptr []int64) (Columns, error) {
	t := s.NumTypes()
	c := Columns{Indptr: indptr, into: make([][]int, t), links: make([]bool, s.NumRelations())}
	for _, r := range s.Links {
		c.links[r] = true
	}
	for r := range s.NumRelations() {
		_, target := s.Ends(r)
		c.target, c.place = append(c.target, target), append(c.place, len(c.into[target]))
		c.into[target] = append(c.into[target], r)
	}
	if n := len(starts) - 1; n < 1 || n%t != 0 || n > 1<<16 {
		return c, fmt.Errorf("there are %d ranges of vertices, but a part needs one range for "+
			"each of %d types", n, t)
	}
	at := int64(0)
	for i := range len(starts) - 1 {
		each := len(c.into[i%t])
		c.ranges = append(c.ranges, columnRange{i % t, each, at - starts[i]*int64(each)})
		at += (starts[i+1] - starts[i]) * int64(each)
	}
	if at > MaxVertices {
		return c, fmt.Errorf("the graph has %d pairs of a vertex and a relation that ends in "+
			"its type; at most %d are supported", at, MaxVertices)
	}
	c.count = int(at)
	if indptr != nil && int64(len(indptr)) != at+1 {
		return c, fmt.Errorf("there are %d row pointers, but there must be one more than the %d "+
			"columns", len(indptr), at)
	}
	c.index = NewPartIndex(starts)
	return c, nil
}

// Plain reports whether each vertex has one column, because the graph has no types.
func (c *Columns) Plain() bool { return len(c.target) == 0 }

// NumRelations returns the number of relations.
func (c *Columns) NumRelations() int { return max(1, len(c.target)) }

// Target returns the type in which a relation ends. The graph must have types.
func (c *Columns) Target(relation int) int { return c.target[relation] }

// Place returns the place of a relation's column among the columns of a vertex, counted from 0. The
// vertex must be of the relation's target type.
func (c *Columns) Place(relation int) int { return c.place[relation] }

// NumTypes returns the number of types of vertices.
func (c *Columns) NumTypes() int { return max(1, len(c.into)) }

// Len returns the number of columns.
func (c *Columns) Len() int {
	return c.count
}

// Of returns the type of a vertex, its first column and its number of columns.
func (c *Columns) Of(v VertexID) (kind int, first VertexID, count int) {
	if c.Plain() {
		return 0, v, 1
	}
	r := &c.ranges[c.index.Find(uint32(v))]
	return r.kind, VertexID(r.base + int64(v)*int64(r.each)), r.each
}

// First returns the number of the first column of vertex v. If v is one past the last vertex, it
// returns the number of all columns.
func (c *Columns) First(v int64) int64 {
	if v == int64(c.index.Vertices()) {
		return int64(c.count)
	}
	_, first, _ := c.Of(VertexID(v))
	return int64(first)
}

// Into returns the relations that end in a type, in the order of the columns of its vertices.
func (c *Columns) Into(kind int) []int {
	if c.Plain() {
		return oneRelation[:]
	}
	return c.into[kind]
}

var oneRelation [1]int

// Links reports whether the edges of a relation are links to be predicted, or reverses of such
// links. Without types all edges are links.
func (c *Columns) Links(relation int) bool { return c.Plain() || c.links[relation] }

// HasLink reports whether a link is an edge of g in a relation for which Links is true. Rows may be
// in any order. O(degree).
func (c *Columns) HasLink(g *CSC, l Link) bool {
	if c.Plain() {
		return slices.Contains(g.InNeighbours(l.Target), l.Source)
	}
	kind, first, _ := c.Of(l.Target)
	for k, r := range c.Into(kind) {
		at := int(first) + k
		if c.links[r] && slices.Contains(g.Indices[c.Indptr[at]:c.Indptr[at+1]], l.Source) {
			return true
		}
	}
	return false
}

// OfType calls the function f with each range of vertices of the given type among vertices lo to
// hi-1. In a graph without types it calls f once, with lo and hi.
func (c *Columns) OfType(kind int, lo, hi VertexID, f func(first, end VertexID)) {
	if lo >= hi {
		return
	}
	if c.Plain() {
		f(lo, hi)
		return
	}
	for at := c.index.Find(uint32(lo)); lo < hi; at++ {
		end := min(hi, VertexID(c.index.End(at)))
		if c.ranges[at].kind == kind && lo < end {
			f(lo, end)
		}
		lo = end
	}
}

// Check compares the row pointers of the columns with those of the vertices, in a graph with types.
// The first column of a vertex must begin where the in-edges of the vertex begin, and no column may
// begin before the previous one.
func (c *Columns) Check(indptr []int64) error {
	if c.Plain() {
		return nil
	}
	for v := range len(indptr) - 1 {
		_, first, n := c.Of(VertexID(v))
		at := indptr[v]
		for k := range n {
			if c.Indptr[int(first)+k] < at {
				return fmt.Errorf("column %d of vertex %d begins at edge %d, before edge %d", k, v,
					c.Indptr[int(first)+k], at)
			}
			at = c.Indptr[int(first)+k]
		}
		if n > 0 && c.Indptr[first] != indptr[v] || c.Indptr[int(first)+n] != indptr[v+1] {
			return fmt.Errorf("the columns of vertex %d have edges %d to %d, but the vertex has "+
				"edges %d to %d",
				v, c.Indptr[first], c.Indptr[int(first)+n], indptr[v], indptr[v+1])
		}
	}
	return nil
}
