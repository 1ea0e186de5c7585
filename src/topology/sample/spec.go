package sample

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
)

// Sampler draws minibatches by one Spec. One goroutine at a time may use it; any number of samplers
// may share a Topology. Once its arrays, and those of the minibatches that it fills, have grown to
// the largest minibatch, it allocates nothing.
type Sampler interface {
	// Sample fills mb with the minibatch of seeds, which are distinct; no seeds give empty blocks.
	// The minibatch depends only on the graph, the Spec, the seeds in their order and the key. It
	// returns a SeedError for a seed that is given twice or that the graph does not have
	// (graph.ErrVertexRange). It returns other errors for more than MaxSeeds seeds, for 2^31 edges
	// or more in a hop, and for a topology file that shrank while it was mapped. It also returns an
	// error for a topology that does not hold all rows, or whose arrays break the rules of a CSC
	// (graph.LayoutError). After an error mb holds nothing of use, but the sampler and mb may be
	// used again.
	Sample(mb *Minibatch, seeds []graph.VertexID, key Key) error
	// SampleEval does what Sample does with the Spec in Options.Eval, for minibatches that are not
	// trained.
	SampleEval(mb *Minibatch, seeds []graph.VertexID, key Key) error
	// Bytes returns the current memory of the sampler, without the minibatches that it fills.
	Bytes() int64
	// Free frees the memory; the sampler must not be used afterwards.
	Free()
}

// Kind names a way of choosing neighbours.
type Kind string

// Neighbour draws, for every vertex of a frontier, a fixed number of its in-neighbours, all equally
// likely (GraphSAGE). The empty Kind means Neighbour.
const Neighbour Kind = "neighbour"

// Poisson draws each in-neighbour of a vertex independently, with probability q = min(1,
// fanout/degree). In the mean it draws as many as Neighbour. An edge weighs 1/q, so sums over the
// edges drawn are unbiased estimates of sums over all in-neighbours.
const Poisson Kind = "poisson"

// Spec holds the options that determine the minibatch of given seeds. The zero Spec draws nothing;
// use it for a model that reads no neighbours.
type Spec struct {
	Kind Kind
	// For Neighbour, Labor and Poisson: number of neighbours per hop, seed hop first; each >= 1, or
	// All.
	Fanouts []int
	// For kinds with fanouts on a graph with relations: the fanouts of each relation; nil means
	// Fanouts for all relations.
	Relations [][]int
	Vertices  []int   // for LADIES: number of vertices per hop, seed hop first; each >= 1
	Weighted  bool    // for LADIES: draws depend on edge weights, as with Options.Weights
	Numbers   Numbers // random numbers of vertices, for Labor and Poisson
	// training links, whose edges their minibatch leaves out; nil if no edge is left out
	Links *Links
}

// String returns the kind, and its fanouts or its numbers of vertices, as text.
func (s Spec) String() string {
	switch {
	case !s.HasFanouts():
		return fmt.Sprintf("%s %v", s.kind(), s.Vertices)
	case s.kind() != Neighbour:
		return fmt.Sprintf("%s, fanouts %v", s.kind(), s.Fanouts)
	}
	return fmt.Sprintf("fanouts %v", s.Fanouts)
}

// Neighbours returns the Spec of kind Neighbour with these fanouts.
func Neighbours(fanouts ...int) Spec { return Spec{Kind: Neighbour, Fanouts: fanouts} }

// method is one kind of sampling. To add one, write a file with its sampler and a row of methods.
type method struct {
	kind      Kind
	brief     string           // short description, for the page about the configuration
	fanouts   bool             // Spec.Fanouts says how many neighbours a vertex draws in each hop
	estimates bool             // edges weigh 1/q, as in Minibatch.Estimates
	hops      func(Spec) int   // number of blocks of a minibatch
	check     func(Spec) error // all errors in a Spec with at least one hop
	make      func(*Topology, Options) (Sampler, error)
}

var methods = []method{
	{kind: Neighbour, brief: "as many neighbours of each vertex as the fanout, equally likely",
		fanouts: true, hops: countFanouts, check: checkFanouts, make: newFused},
	{kind: Labor, brief: "likewise, those with the smallest random numbers of vertices: " +
		"destinations share neighbours, and a minibatch has fewer vertices",
		fanouts: true, hops: countFanouts, check: checkNumbers, make: newFused},
	{kind: Poisson, brief: "each neighbour with probability fanout/degree, weighed by its " +
		"inverse: aggregates are unbiased",
		fanouts: true, estimates: true, hops: countFanouts, check: checkNumbers,
		make: newFused},
	{kind: LADIES, brief: "layer by layer `sample.layer_vertices` of all neighbours, common ones " +
		"likelier, with all edges to the layer, weighed by the inverse probability",
		estimates: true, hops: func(s Spec) int { return len(s.Vertices) },
		check: checkVertices, make: newLadies},
}

// Kinds yields every kind of sampling with a short description.
func Kinds() iter.Seq2[Kind, string] {
	return func(yield func(Kind, string) bool) {
		for _, m := range methods {
			if !yield(m.kind, m.brief) {
				return
			}
		}
	}
}

// method returns the method of the kind, or the zero method if the kind is unknown.
func (s Spec) method() method {
	for _, m := range methods {
		if m.kind == s.kind() {
			return m
		}
	}
	return method{}
}

func countFanouts(s Spec) int { return len(s.Fanouts) }

// kind returns the kind; the default is Neighbour.
func (s Spec) kind() Kind {
	if s.Kind == "" {
		return Neighbour
	}
	return s.Kind
}

// Hops returns the number of blocks of a minibatch, one for each layer of the model, or 0 if
// nothing is drawn.
func (s Spec) Hops() int {
	if m := s.method(); m.hops != nil {
		return m.hops(s)
	}
	return 0
}

// DrawKeys returns what a device needs to draw the minibatch of a key on a graph without relations.
func (s Spec) DrawKeys(k Key) (keys compute.DrawKeys) {
	when := s.moment(k)
	for h := 1; h <= s.Hops(); h++ {
		keys.Words = append(keys.Words, k.hop(h))
		if s.Numbered() {
			n := when.keyedNumbers(s.word(k, h))
			keys.Numbers = append(keys.Numbers, n.forDevice())
		}
	}
	return keys
}

// IDs returns the memory of vertices as int32 numbers. VerticesOf does the inverse.
func IDs(vertices []graph.VertexID) []int32       { return asRows(vertices) }
func VerticesOf(numbers []int32) []graph.VertexID { return asVertices(numbers) }

// Layers returns the number of hops that are drawn as a whole, from all in-neighbours of their
// destinations.
func (s Spec) Layers() int {
	if s.kind() == LADIES {
		return len(s.Vertices)
	}
	return 0
}

// Estimates reports whether edges weigh 1/q, where q is the probability that the edge was drawn. It
// is the value of Minibatch.Estimates.
func (s Spec) Estimates() bool { return s.method().estimates }

// HasFanouts reports whether fanouts limit the neighbours that a vertex draws. FanoutsFor returns
// them.
func (s Spec) HasFanouts() bool { return s.method().fanouts }

// Check returns all errors, joined. A Spec without hops is an error.
func (s Spec) Check() error {
	m := s.method()
	if m.check == nil {
		var names []Kind
		for _, m := range methods {
			names = append(names, m.kind)
		}
		return fmt.Errorf("sample.kind %q is unknown; choose one of %v", s.Kind, names)
	}
	return m.check(s)
}

// ErrFanouts is wrapped by errors about a kind without fanouts where fanouts are needed.
var ErrFanouts = errors.New("this sampler has no fanouts")

// FanoutsFor returns the fanouts, seed hop first, for a computation that needs them. If the kind
// has no fanouts, the error calls the computation by the given name.
func (s Spec) FanoutsFor(name string) ([]int, error) {
	if !s.HasFanouts() {
		return nil, fmt.Errorf("%s cannot be combined with sample.kind %s: %w; leave that out, "+
			"or choose sample.kind %s", name, s.kind(), ErrFanouts, Neighbour)
	}
	return s.Fanouts, nil
}

func checkFanouts(s Spec) error {
	if len(s.Fanouts) == 0 {
		return errors.New("no fanouts; give one for every layer, seed hop first")
	}
	var faults []error
	for _, fanouts := range append([][]int{s.Fanouts}, s.Relations...) {
		for i, f := range fanouts {
			if f < 1 && f != All || f > graph.MaxVertices {
				faults = append(faults,
					fmt.Errorf("fanouts[%d] is %d; it must be at least 1, or %d for all neighbours",
						i, f, All))
			}
		}
		if len(fanouts) != len(s.Fanouts) {
			faults = append(faults, fmt.Errorf("a relation has the fanouts %v, but there are %d "+
				"hops", fanouts,
				len(s.Fanouts)))
		}
	}
	return errors.Join(faults...)
}

// fanoutBy returns the fanout of a relation in hop h, counted from 0.
func (s *Spec) fanoutBy(h, relation int) int {
	if len(s.Relations) > 0 {
		return s.Relations[relation][h]
	}
	return s.Fanouts[h]
}

var errNoWeights = errors.New("the edges of the graph have no weights")

// New makes the sampler of o.Spec over t, whose arrays must outlive it. It returns all errors in
// both, joined.
func New(t *Topology, o Options) (Sampler, error) {
	var weights error
	o.Weights = o.Weights || o.Spec.Weighted
	if o.Weights && t.Weights == nil {
		weights = errNoWeights
	}
	if err := errors.Join(t.check(), o.Spec.Check(), o.check(), weights,
		o.Near.check(o.Spec, t), o.checkRelations(t)); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	for _, s := range []*Spec{&o.Spec, &o.Eval} {
		s.Fanouts, s.Vertices = slices.Clone(s.Fanouts), slices.Clone(s.Vertices)
	}
	return o.method().make(t, o)
}
