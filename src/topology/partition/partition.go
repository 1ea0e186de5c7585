// Package partition assigns every vertex to a part, numbers the parts, orders the vertices inside
// each part, and measures balance, cut and halo.
//
//	graph, weights ──> method ──> part [N]  ──> Measure ──> Report, Check    balanced? what is cut?
//	                    |             └───────> Order   ──> newID, offsets   contiguous, hot first
//	                    ├ Random      balanced, ignores the edges
//	                    ├ Contiguous  equal ranges of vertex ids
//	                    ├ LDG         streams over the graph a few times, memory O(N)
//	                    ├ metis.KWay  multilevel k-way: the best cut, memory up to 50 bytes an edge
//	                    |             (needs cgo)
//	                    ├ kaminpar    multilevel on a compressed graph, 6 to 16 bytes an edge, in a
//	                    |             process of its own
//	                    └ assignment  parts that another program wrote to a file
//
// A part is balanced in several quantities at once, the constraints. With TrainingWeights these are
// vertices (feature memory), training seeds (steps), validation and test vertices (evaluation), and
// in-edges (sampling, full-graph inference). Parts are numbered so that few edges leave a run of
// consecutive parts, because each of K ranks may own P/K consecutive parts of P.
//
// The halo of a part is the set of remote vertices with an edge into it; the cut counts edges whose
// ends lie in different parts. The package does no I/O and knows no ranks.
package partition

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"halognn/src/topology/graph"
)

// Func assigns every vertex of g a part in [0, o.Parts): the result has N entries. It is a pure
// function of its arguments, and leaves no part empty.
type Func func(g *graph.CSC, w Weights, o Options) ([]int32, error)

// Methods returns the methods of this package by name. The caller may add others, such as
// metis.KWay.
func Methods() map[string]Func {
	return map[string]Func{"random": Random, "contiguous": Contiguous, "ldg": LDG}
}

// Run partitions g by the method that the map methods has under the name o.Method.
func Run(methods map[string]Func, g *graph.CSC, w Weights, o Options) ([]int32, error) {
	method, ok := methods[o.Method]
	if !ok {
		known := slices.Sorted(maps.Keys(methods))
		return nil, fmt.Errorf("partitioning method %q is unknown; choose one of %s", o.Method,
			strings.Join(known, ", "))
	}
	return method(g, w, o)
}

// Memory predicts the bytes that a method takes on a graph, not counting the mapped file of the
// graph. It uses measured bytes for each edge and vertex (docs/results/partitioning.md), rounded
// up. The argument `edges` counts stored edges. METIS and KaMinPar keep both directions of each
// edge, so they take twice the memory if the graph has no reverse edges.
func Memory(method string, vertices, edges int64) int64 {
	switch method {
	case "metis":
		return 50*edges + 40*vertices
	case "kaminpar":
		return 16*edges + 24*vertices
	default: // ldg; the constraints and the part of each vertex
		return 24 * vertices
	}
}

// Weights are the vertex weights that a method balances and the edge weights that it avoids
// cutting. The zero value balances the number of vertices and counts every edge once.
type Weights struct {
	// one array [N] of weights >= 0 for each constraint; every part gets about 1/P of each array's
	// sum
	Vertex [][]int32
	Edge   []int32 // [M] cost of cutting each in-edge, >= 1; nil means 1
}

// The constraints of TrainingWeights, as indices of Weights.Vertex.
const (
	Vertices = iota
	TrainSeeds
	EvalVertices
	InEdges
	numConstraints
)

// TrainingWeights returns the four constraints of distributed training: vertices, training seeds,
// validation + test vertices, in-edges. Memory 16 bytes a vertex.
func TrainingWeights(g *graph.CSC, s graph.Split) (Weights, error) {
	n := g.NumVertices()
	w := Weights{Vertex: make([][]int32, numConstraints)}
	for c := range w.Vertex {
		w.Vertex[c] = make([]int32, n)
	}
	for v := range n {
		degree := g.InDegree(graph.VertexID(v))
		if degree > math.MaxInt32 {
			return Weights{}, fmt.Errorf("vertex %d has %d in-edges; partitioning supports fewer "+
				"than 2^31 a vertex", v, degree)
		}
		w.Vertex[Vertices][v], w.Vertex[InEdges][v] = 1, int32(degree)
	}
	for _, part := range []struct {
		constraint int
		name       string
		ids        []graph.VertexID
	}{{TrainSeeds, "train", s.Train}, {EvalVertices, "valid", s.Valid},
		{EvalVertices, "test", s.Test}} {
		for _, v := range part.ids {
			if v < 0 || int(v) >= n {
				return Weights{}, fmt.Errorf("%s split: vertex %d: %w (the graph has %d vertices)",
					part.name, v, graph.ErrVertexRange, n)
			}
			w.Vertex[part.constraint][v] = 1
		}
	}
	return w, nil
}

// Options sets how to partition. The zero value of a field means its default, except Parts, which
// has none.
type Options struct {
	Method string // name of the method, for Run
	Parts  int    // number of parts, 1 to N, at most MaxParts
	Seed   uint64 // random stream; 0 is a stream like any other
	// limit of each constraint, as a multiple of the mean of the parts; nil means 1.05 for each
	Imbalance []float32
	// called with each line that a user may want to know about the parts; may be nil
	Note func(line string)
}

// Tell passes a line on to Note.
func (o *Options) Tell(format string, args ...any) {
	if o.Note != nil {
		o.Note(fmt.Sprintf(format, args...))
	}
}

// MaxParts is the largest number of parts: numbering them takes P*P memory, 2 GiB for MaxParts.
const MaxParts = 1 << 14

// defaultImbalance is stricter than DefaultLimits, because the smaller cut of a looser balance does
// not make up for ranks that wait for the fullest part.
const defaultImbalance = 1.05

// Check returns all errors, joined, in the arguments of a method that is to partition g. Methods
// call it first.
func Check(g *graph.CSC, w Weights, o Options) error {
	var errs []error
	n := g.NumVertices()
	switch {
	case o.Parts < 1:
		errs = append(errs, fmt.Errorf("cannot make %d parts; ask for at least 1", o.Parts))
	case o.Parts > MaxParts:
		errs = append(errs,
			fmt.Errorf("cannot make %d parts; ask for at most %d", o.Parts, MaxParts))
	case o.Parts > n:
		errs = append(errs,
			fmt.Errorf("cannot make %d parts of %d vertices; ask for at most %d", o.Parts, n, n))
	}
	for c, weights := range w.Vertex {
		if len(weights) != n {
			errs = append(errs,
				fmt.Errorf("constraint %d has %d weights, but %d vertices need one weight each",
					c, len(weights), n))
		} else if v := slices.IndexFunc(weights, negative); v >= 0 {
			errs = append(errs,
				fmt.Errorf("constraint %d: vertex %d has weight %d; weights are 0 or more", c, v,
					weights[v]))
		}
	}
	if w.Edge != nil && int64(len(w.Edge)) != g.NumEdges() {
		errs = append(errs,
			fmt.Errorf("%d edge weights for %d edges", len(w.Edge), g.NumEdges()))
	} else if e := slices.IndexFunc(w.Edge, func(x int32) bool { return x < 1 }); e >= 0 {
		errs = append(errs,
			fmt.Errorf("edge %d has weight %d; weights are 1 or more", e, w.Edge[e]))
	}
	if o.Imbalance != nil && len(o.Imbalance) != len(w.Vertex) {
		errs = append(errs,
			fmt.Errorf("Options.Imbalance has %d numbers, but there are %d constraints; give one "+
				"number for each constraint, or no list", len(o.Imbalance), len(w.Vertex)))
	}
	for c, x := range o.Imbalance {
		if !(x >= 1) {
			errs = append(errs,
				fmt.Errorf("imbalance %g of constraint %d is below 1, which is perfect balance", x,
					c))
		}
	}
	return errors.Join(errs...)
}

func negative(x int32) bool { return x < 0 }

// Constraint is one quantity to balance.
type Constraint struct {
	Weights []int32 // [N] weight of each vertex, not all zero
	Total   int64   // sum of the weights
	Mean    float64 // Total / Parts
	Limit   int64   // largest weight that one part may have
}

// Constraints returns the constraints of w and o on n vertices. A constraint whose weights are all
// zero is left out. If none remains, the only constraint is the number of vertices. A limit is the
// allowed multiple of the mean, but at least the mean rounded up, because counts are whole numbers.
func Constraints(n int, w Weights, o Options) []Constraint {
	var list []Constraint
	add := func(weights []int32, imbalance float64) {
		var total int64
		for _, x := range weights {
			total += int64(x)
		}
		if total > 0 {
			mean := float64(total) / float64(o.Parts)
			list = append(list, Constraint{weights, total, mean,
				int64(max(imbalance*mean, math.Ceil(mean)))})
		}
	}
	for c, weights := range w.Vertex {
		imbalance := defaultImbalance
		if o.Imbalance != nil {
			imbalance = float64(o.Imbalance[c])
		}
		add(weights, imbalance)
	}
	if len(list) == 0 {
		add(slices.Repeat([]int32{1}, n), defaultImbalance)
	}
	return list
}

// Combined returns one weight for each vertex, for libraries that balance only one: the sum of the
// vertex's weights in all constraints. Before they are added, the weights of each constraint are
// scaled so that their total is in proportion to the constraint's entry of emphasis. If emphasis is
// nil, all totals are equal. The sum over all vertices is below 2^31 for up to 2^28 vertices.
// Memory 4 bytes a vertex.
func Combined(n int, w Weights, o Options, emphasis []float64) []int32 {
	list := Constraints(n, w, o)
	all, factors := 0.0, make([]float64, len(list))
	for i := range list {
		factors[i] = 1
		if emphasis != nil {
			factors[i] = emphasis[i]
		}
		all += factors[i]
	}
	// rounding adds at most 1 to the weight of a vertex
	total := max(min(math.MaxInt32-2*float64(n), 4000*float64(n)), float64(n))
	for i := range list {
		factors[i] *= total / all / float64(list[i].Total)
	}
	sum := make([]int32, n)
	for v := range sum {
		x := 0.5
		for i := range list {
			x += factors[i] * float64(list[i].Weights[v])
		}
		sum[v] = max(1, int32(x))
	}
	return sum
}

// Imbalances returns, for each of the Constraints, the largest sum of weights in a part divided by
// the mean of all parts.
func Imbalances(n int, w Weights, o Options, part []int32) []float64 {
	l := newLoad(n, w, o)
	for v, k := range part {
		l.add(v, int(k), 1)
	}
	most := make([]float64, len(l.constraints))
	for i, sum := range l.sum {
		c := i % len(most)
		most[c] = max(most[c], float64(sum)/l.constraints[c].Mean)
	}
	return most
}

// CutWeight returns the total weight of the edges between parts. Time O(M).
func CutWeight(g *graph.CSC, edge []int32, part []int32) (cost int64) {
	all := Edges{Indptr: g.Indptr, Indices: g.Indices, Weights: edge}
	for v, k := range part {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			if part[g.Indices[e]] != k {
				cost += all.Weight(e)
			}
		}
	}
	return cost
}

// load is the state of a balanced assignment: the weight of every constraint in every part.
type load struct {
	constraints []Constraint
	sum         []int64 // part k holds sum[k*C+c] of constraint c of C
}

func newLoad(n int, w Weights, o Options) *load {
	list := Constraints(n, w, o)
	return &load{list, make([]int64, o.Parts*len(list))}
}

func (l *load) of(part int) []int64 {
	n := len(l.constraints)
	return l.sum[part*n : (part+1)*n]
}

// add puts v into part (times = 1) or takes it out (times = -1).
func (l *load) add(v, part int, times int64) {
	sum := l.of(part)
	for c := range l.constraints {
		sum[c] += times * int64(l.constraints[c].Weights[v])
	}
}

// fullness returns the largest share of a limit that a part would reach with vertex v in it, over
// the constraints in which v has a weight. Above 1, the part would exceed a limit.
func (l *load) fullness(v, part int) float64 {
	sum, worst := l.of(part), 0.0
	for i := range l.constraints {
		c := &l.constraints[i]
		if x := int64(c.Weights[v]); x > 0 {
			worst = max(worst, float64(sum[i]+x)/float64(c.Limit))
		}
	}
	return worst
}
