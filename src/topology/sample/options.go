package sample

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// MapKind says how a Sampler finds the local number of a vertex. It does not change the
// minibatches.
type MapKind int

// The vertex maps.
const (
	MapAuto  MapKind = iota // dense up to 2^26 vertices, hash beyond
	MapDense                // 4 bytes for every vertex of the graph; fastest
	// At least 16 bytes for every vertex of the largest input frontier so far; grows with it.
	MapHash
)

// denseVertices is the largest graph for which MapAuto chooses the dense map: 256 MiB a Sampler.
const denseVertices = 1 << 26

// Options says what a Sampler draws, and how it works. Only Spec and Eval change the minibatches.
type Options struct {
	Spec
	// Spec of SampleEval, with the same number of hops; if it is the zero Spec, SampleEval uses the
	// field Spec, but leaves no edges out
	Eval    Spec
	Workers int // goroutines that share one minibatch; 0 means 1
	// Largest number of seeds of a minibatch; 0 means any number, but then the vertex map is
	// cleared more often.
	MaxSeeds    int
	Map         MapKind // how vertices are renumbered
	Weights     bool    // weigh edges by Topology.Weights, which must be present
	Places      bool    // for a Remote: set Block.Places, the positions of edges in the topology
	Near        Near    // vertices that Key.Favour makes likelier to be drawn, for each hop
	ForwardOnly bool    // leave Minibatch.Transposes empty, because only backward reads them

	// Number of bits of the values in a vertex map; 0 means the smallest number that suffices.
	// Tests set it so that versions wrap.
	valueBits int
	// largest number of edges of a hop; 0 means the largest number that a transpose can index
	maxEdges    int
	minParallel int // smallest number of edges of a hop that workers share; 0 means parallelEdges
}

// parallelEdges is the size of a hop below which starting goroutines costs more than they save.
const parallelEdges = 1 << 14

// evaluated returns the Spec of SampleEval.
func (o *Options) evaluated() Spec {
	if o.Eval.Hops() > 0 {
		return o.Eval
	}
	s := o.Spec
	s.Links = nil
	return s
}

// spec returns the Spec of minibatches that are trained or, if train is false, only evaluated.
func (o *Options) spec(train bool) Spec {
	if train {
		return o.Spec
	}
	return o.evaluated()
}

// check fills in defaults and returns all errors, joined, except those of Spec.
func (o *Options) check() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	if o.Eval.Hops() > 0 {
		if err := o.Eval.Check(); err != nil {
			fault("evaluation: %w", err)
		} else if kind := o.Eval.kind(); kind != Neighbour && kind != o.kind() {
			fault("sample.kind for evaluation is %s; it must be %s, or that of training", kind,
				Neighbour)
		} else if n := o.Eval.Hops(); n != o.Hops() {
			fault("training has %d hops, and evaluation %d; evaluation needs the same number, or 0",
				o.Hops(), n)
		}
	}
	if o.Numbered() && o.Numbers.Steps < 1 {
		fault("numbers of vertices depend on the step, but the Spec has %d steps per epoch; set "+
			"the steps with Spec.InJob", o.Numbers.Steps)
	}
	if o.Links.Excludes() && !o.Near.None() {
		fault("links.exclude cannot be combined with sample.locality, which draws some vertices " +
			"likelier; choose sample.locality=1, or links.exclude=false")
	}
	if !o.Near.None() && !o.Estimates() {
		fault("sample.locality draws some vertices likelier, which kind %s does not; choose %s "+
			"or %s", o.kind(), Poisson, LADIES)
	}
	if o.Workers < 0 {
		fault("workers is %d; it must not be negative (0 means 1)", o.Workers)
	}
	if o.MaxSeeds < 0 {
		fault("max seeds is %d; it must be at least 1, or 0 for no limit", o.MaxSeeds)
	}
	if o.Map < MapAuto || o.Map > MapHash {
		fault("vertex map %d is unknown", o.Map)
	}
	o.Workers = max(o.Workers, 1)
	if o.maxEdges == 0 {
		o.maxEdges = math.MaxInt32
	}
	if o.minParallel == 0 {
		o.minParallel = parallelEdges
	}
	return errors.Join(faults...)
}

// check reports a topology whose arrays do not fit each other. It reads only their lengths and
// ends.
func (t *Topology) check() error {
	if len(t.Graph.Indptr) == 0 {
		return errors.New("topology: indptr is empty; it needs one entry more than there are rows")
	}
	rows, vertices := t.Graph.NumVertices(), len(t.Original)
	begin, end := t.Graph.Indptr[0], t.Graph.Indptr[rows]
	switch {
	case t.First < 0 || int(t.First)+rows > vertices:
		return fmt.Errorf("topology: it has rows %d to %d, but there are original ids for only "+
			"%d vertices", t.First, int(t.First)+rows, vertices)
	case begin < 0 || end < begin || end > int64(len(t.Graph.Indices)):
		return fmt.Errorf("topology: indptr runs from %d to %d, but there are %d indices", begin,
			end, len(t.Graph.Indices))
	case t.Weights != nil && (len(t.Weights) != len(t.Graph.Indices) ||
		len(t.WeightSums) != vertices):
		return fmt.Errorf("topology: there are %d weights for %d indices and %d sums of weights "+
			"for %d vertices; each index needs one weight, and each vertex one sum",
			len(t.Weights), len(t.Graph.Indices), len(t.WeightSums), vertices)
	}
	return nil
}

// mapBits returns the number of bits that a value of the vertex map needs, at most 31. A value is
// the local number of a vertex. For parallel renumbering, it may also be the sum of the frontier's
// length and the position of an edge.
func (o *Options) mapBits(t *Topology, edges int64) int {
	vertices := len(t.Original)
	if !t.Columns.Plain() { // fanouts by relation: one worker renumbers each hop
		return min(max(bits.Len(uint(vertices)), 1), 31)
	}
	return max(o.bitsOf(o.Spec, vertices, edges), o.bitsOf(o.Eval, vertices, edges))
}

func (o *Options) bitsOf(s Spec, vertices int, edges int64) int {
	frontier := vertices
	if o.MaxSeeds > 0 {
		frontier = min(frontier, o.MaxSeeds)
	}
	values := frontier
	for _, f := range s.Fanouts {
		drawn := edges
		if f != All {
			drawn = min(edges, int64(frontier)*int64(f))
		}
		reach := int(min(int64(frontier)+drawn, math.MaxInt32))
		frontier = min(vertices, reach)
		values = max(values, frontier)
		if o.Workers > 1 {
			values = max(values, reach)
		}
	}
	// Other kinds may draw more edges than their fanouts say, so the frontier may reach all
	// vertices. If a hop has too many edges for parallel renumbering, one worker renumbers it.
	if k := s.kind(); k != Neighbour && k != Labor {
		values = max(values, vertices)
	}
	return min(max(bits.Len(uint(values)), 1), 31)
}
