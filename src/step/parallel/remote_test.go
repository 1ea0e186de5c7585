package parallel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// partitioned is the part of the topology that rank c holds, and the first vertices of all ranks.
// The edges of others are not in it.
func (w *world) partitioned(c comm.Comm) (*sample.Topology, []int64) {
	each := (len(w.offsets) - 1) / c.Size()
	var rows []int64
	for r := range c.Size() + 1 {
		rows = append(rows, w.offsets[r*each])
	}
	first, last := rows[c.Rank()], rows[c.Rank()+1]
	g := &w.topology.Graph
	t := &sample.Topology{First: graph.VertexID(first), Original: w.topology.Original}
	t.Graph.Indptr = g.Indptr[first : last+1]
	t.Graph.Indices = make([]graph.VertexID, len(g.Indices))
	for e := range t.Graph.Indices {
		t.Graph.Indices[e] = -7
	}
	lo, hi := g.Indptr[first], g.Indptr[last]
	copy(t.Graph.Indices[lo:hi], g.Indices[lo:hi])
	if w.topology.Weights != nil {
		t.Weights, t.WeightSums = make([]float32, len(g.Indices)), w.topology.WeightSums
		copy(t.Weights[lo:hi], w.topology.Weights[lo:hi])
	}
	return t, rows
}

// remotely makes data parallelism on the part of the topology that the rank holds. Collective.
func (w *world) remotely(elsewhere bool) func(*Strategy, comm.Comm) (*Strategy, error) {
	return func(d *Strategy, c comm.Comm) (*Strategy, error) {
		o := d.o
		o.Topology, o.Rows = w.partitioned(c)
		o.Partitioned = true
		o.SeedsElsewhere = elsewhere
		d.draw.close()
		made, err := reading(o, d.needs, d.first, d.layers)
		if err != nil {
			return nil, err
		}
		*d = *made
		return d, nil
	}
}

// ownSeeds gives every rank seeds of its own; some minibatches have none.
func (w *world) ownSeeds(c comm.Comm, each int) func(int, *Minibatch) {
	per := (len(w.offsets) - 1) / c.Size()
	first, last := int(w.offsets[c.Rank()*per]), int(w.offsets[(c.Rank()+1)*per])
	return func(i int, m *Minibatch) {
		admitted(c, each)(i, m)
		n := min(len(m.Seeds), last-first)
		for k := range n {
			m.Seeds[k] = graph.VertexID(first + (3*k+i)%(last-first))
		}
		slices.Sort(m.Seeds[:n])
		m.SetSeeds(slices.Compact(m.Seeds[:n]))
	}
}

// On a topology of which no rank holds the edges of another, minibatches, gradients and losses have
// the bits of the topology that all hold, at any depth, with several minibatches a step; and
// rounds, vertices and neighbours add up.
func TestPartitionedHasTheBitsOfReplicated(t *testing.T) {
	const n = 5
	w := newWorld(t, 4)
	before := mem.Allocated()
	for _, elsewhere := range []bool{false, true} {
		for _, ranks := range []int{1, 2, 4} {
			for _, depth := range []int{0, 1, 4, 9} {
				err := comm.RunWorld(ranks, func(c comm.Comm) error {
					admit := w.ownSeeds(c, 2)
					if elsewhere {
						admit = admitted(c, 2)
					}
					plain, err := w.traced(c, nil, admit, n, depth)
					if err != nil {
						return err
					}
					got, err := w.traced(c, w.remotely(elsewhere), admit, n, depth)
					if err != nil {
						return err
					}
					if !slices.Equal(got.digests, plain.digests) ||
						!slices.Equal(got.edges, plain.edges) {
						return fmt.Errorf("other blocks than those of the whole topology")
					}
					for k := range plain.bits {
						if !slices.Equal(got.bits[k], plain.bits[k]) {
							return fmt.Errorf("step %d: other gradients", k)
						}
					}
					return got.addUp(c, plain, elsewhere)
				})
				if err != nil {
					t.Errorf("%d ranks, depth %d, seeds elsewhere %t: %v", ranks, depth, elsewhere,
						err)
				}
			}
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// traces are what minibatches came to.
type traces struct {
	digests, edges []uint64
	bits           [][]uint32
	counters       trace.Counters
}

// traced trains n steps of two minibatches.
func (w *world) traced(
	c comm.Comm, make func(*Strategy, comm.Comm) (*Strategy, error), admit func(int, *Minibatch),
	n, depth int,
) (*traces, error) {
	l, err := w.learn(c, make)
	if err != nil {
		return nil, err
	}
	pipe, err := NewPipe(l.strategy, pipeline.Options{Depth: depth, Workers: 2})
	if err != nil {
		return nil, err
	}
	var all traces
	err = pipe.Run(context.Background(), 2*n, admit, func(i int, m *Minibatch) error {
		all.digests, all.edges = append(all.digests, m.Digest), append(all.edges, m.Edges)
		if _, err := l.strategy.Step(m, i%2 == 1, new(heard)); err != nil {
			return err
		}
		counted, err := l.strategy.Counters(m)
		all.counters.Add(counted)
		if i%2 == 1 {
			all.bits = append(all.bits, bitsOf(l.model.Params.Grads))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	pipe.Close()
	return &all, l.close()
}

// addUp holds the counters of a rank against those of the others and of the topology that all hold.
func (t *traces) addUp(c comm.Comm, plain *traces, elsewhere bool) error {
	got, want := t.counters, plain.counters
	s := got.Sampling
	hops := int64(1) // the second
	if elsewhere {
		hops = 2
	}
	if c.Size() == 1 {
		hops = 0
	}
	if minibatches := int64(len(t.digests)); s.Collectives != 2*hops*minibatches ||
		got.Collectives != want.Collectives+s.Collectives {
		return fmt.Errorf("%d collectives to sample %d minibatches of %d hops, %d in all",
			s.Collectives, minibatches, hops, got.Collectives)
	}
	got.Sampling, got.Collectives = trace.Sampling{}, want.Collectives
	if got != want {
		return fmt.Errorf("rows %+v, want %+v", got, want)
	}
	all, err := comm.Allgather(c, s.Asked, s.Answered, s.Drawn)
	if err != nil {
		return err
	}
	asked, answered, drawn := int64(0), int64(0), int64(0)
	for r := range c.Size() {
		asked, answered, drawn = asked+all[3*r], answered+all[3*r+1], drawn+all[3*r+2]
	}
	if asked != answered || drawn > 4*asked || c.Size() > 1 && drawn == 0 {
		return fmt.Errorf("%d vertices asked for, %d answered, with %d neighbours", asked, answered,
			drawn)
	}
	return nil
}

// Whatever draws and whatever weighs edges, minibatches, losses and gradients have the bits of the
// topology that all hold, in every mode whose ranks ask each other or draw together; and these come
// to the edges of a rank for each minibatch, and but for round-off to its numbers.
func TestPartitionedSamplersHaveTheBitsOfReplicated(t *testing.T) {
	const n = 4
	plain := newWorld(t, 8)
	before := mem.Allocated()
	lasting := sample.Numbers{Shared: true, Dependency: 2, Steps: n}
	for name, spec := range map[string]sample.Spec{
		"neighbour":          sample.Neighbours(4, 3),
		"labor":              {Kind: sample.Labor, Fanouts: []int{4, 3}, Numbers: lasting},
		"poisson":            {Kind: sample.Poisson, Fanouts: []int{4, 3}},
		"poisson by numbers": {Kind: sample.Poisson, Fanouts: []int{4, 3}, Numbers: lasting},
		"ladies":             {Kind: sample.LADIES, Vertices: []int{30, 50}},
	} {
		for _, weighted := range []bool{false, true} {
			for _, config := range []nn.Config{{Kind: "sage"}, {Kind: "gin"}, {Kind: "gcn"},
				{Kind: "gcn", GCNNorm: nn.GCNBoth}} {
				if race.Detector && (config.Kind != "sage" || weighted) &&
					(config.GCNNorm == "" || !weighted) {
					continue // ranks share the same of every kind
				}
				config.Layers, config.In, config.Hidden, config.Out = 2, cols, 4, classes
				config.Task, config.Dropout, config.Norm = task.Multiclass, 0.4, nn.NormNone
				config.EdgeWeights, config.Estimates = weighted, spec.Estimates()
				w := *plain
				if weighted {
					w = *plain.weighed()
				}
				w.spec = spec
				for _, g := range []grouping{{ModeData, 1, 1}, {ModeData, 2, 1}, {ModeData, 4, 1},
					{ModeSplit, 1, 2}, {ModeSplit, 1, 4}, {ModeHybrid, 2, 2}, {ModeHybrid, 2, 4},
					{ModePushPull, 2, 1}, {ModePushPull, 4, 1}} {
					want, moved, err := w.steps(g, config, false, n, 2)
					if err == nil && g.mode != ModeData {
						var lone [][]result
						if lone, _, err = w.steps(g.lone(), config, false, n, 2); err == nil {
							err = compareShares(g, want, lone, moved)
						}
					}
					var got [][]result
					if err == nil {
						got, _, err = w.steps(g, config, true, n, 2)
					}
					if err == nil {
						err = sameBits(got, want)
					}
					if err != nil {
						t.Errorf("%s, weights %t, %s %s, %v: %v", name, weighted, config.Kind,
							config.GCNNorm, g, err)
					}
				}
			}
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// Of seeds that belong to others, where they must not, the rank says so.
func TestPartitionedSeedsAreOwn(t *testing.T) {
	w := newWorld(t, 2)
	err := comm.RunWorld(2, func(c comm.Comm) error {
		l, err := w.learn(c, w.remotely(false))
		if err != nil {
			return err
		}
		var m Minibatch
		defer m.Free()
		m.SetSeeds([]graph.VertexID{graph.VertexID(w.offsets[1-c.Rank()])})
		err = l.strategy.Stages()[0].stage.Local(&m)
		if err == nil || !strings.Contains(err.Error(), "belong to other ranks") {
			return fmt.Errorf("a seed of another rank: %v", err)
		}
		return l.close()
	})
	if err != nil {
		t.Error(err)
	}
}

// On the communicator of a round, halves of two minibatches start in the same order on all ranks
// because the schedule starts a collective of the next minibatch after the one that follows it in
// this minibatch, which needs its end.
func TestScheduleSetsRoundsApart(t *testing.T) {
	for _, collectives := range []int{5, 7, 9, 11} {
		for _, depth := range []int{0, 1, 3, 4, 5, 8, 20} {
			type start struct{ item, collective int }
			at := map[start]int{}
			for i, c := range (pipeline.Order{Items: 9, Collectives: collectives,
				Depth: depth}).Schedule() {
				at[start{i, c}] = len(at)
			}
			for i := range 8 {
				for c := range collectives - 1 {
					if at[start{i + 1, c}] < at[start{i, c + 1}] {
						t.Errorf("%d collectives, depth %d: item %d starts collective %d before "+
							"item %d "+
							"starts %d", collectives, depth, i+1, c, i, c+1)
					}
				}
			}
		}
	}
}
