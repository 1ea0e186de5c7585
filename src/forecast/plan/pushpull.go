package plan

import (
	"slices"

	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/step/parallel"
)

// pushBytes returns the length in bytes of a message that carries an input hop.
func (p *planner) pushBytes(h hopShape) float64 {
	return 4 * float64(parallel.HopWords(p.job.Model.Needs(), int64(h.sources),
		int64(h.destinations),
		int64(p.layerEdges(h))))
}

// pushed estimates what the ranks send each other in a step if each rank holds only some columns of
// the rows. It extrapolates from the probes of the analysed ranks.
func (p *planner) pushed() *Shuffles {
	_, width := p.job.Model.Widths(0)
	others, minibatches := float64(p.job.Ranks-1), float64(p.job.Minibatches())
	scale := minibatches * float64(p.job.Ranks) / float64(len(p.ranks))
	s := new(Shuffles)
	for _, r := range p.ranks {
		of := func(what func(s *shape) float64) float64 { return r.mean(what) }
		push := others * (parallel.HopSizeBytes +
			of(func(s *shape) float64 { return p.pushBytes(s.hops[0]) }))
		sums := others * of(func(s *shape) float64 { return float64(s.hops[0].destinations) })
		s.add(&Shuffles{
			Edges:  of(func(s *shape) float64 { return float64(s.numEdges()) }),
			Loaded: of(func(s *shape) float64 { return float64(s.frontier()) }),
			Hidden: sums, Bytes: sums * parallel.BetweenBytes(width), Sampling: push,
		}, 1/scale)
		s.found = max(s.found, minibatches*push)
		s.between = max(s.between, minibatches*sums*parallel.BetweenBytes(width))
	}
	return s
}

// join sets the joined input hop (`joined`) in the shapes of the analysed ranks, for training and
// for evaluation.
func (p *planner) join() {
	if !p.job.Mode.Columns {
		return
	}
	trained := p.joined(func(r *rankPlan, of func(s *shape) float64) float64 { return r.mean(of) })
	judged := p.joined(func(r *rankPlan,
		of func(s *shape) float64) float64 {
		return of(r.judged())
	})
	for _, r := range p.ranks {
		for i := range r.probes {
			r.probes[i].joined = trained
		}
		if r.most.joined = trained; r.evaluated.hops != nil {
			r.evaluated.joined = judged
		}
	}
}

// joined returns the input hops of all ranks' minibatches as one hop. For each rank and each number
// of a hop it calls rankSize with a function that returns this number from a shape. rankSize
// applies this function to the shape of the rank's minibatch, or returns the mean over the rank's
// minibatches.
func (p *planner) joined(
	rankSize func(r *rankPlan, size func(s *shape) float64) float64,
) hopShape {
	sum := func(number func(h hopShape) int) int {
		all := 0.0
		for _, r := range p.ranks {
			all += rankSize(r, func(s *shape) float64 { return float64(number(s.hops[0])) })
		}
		return int(all * float64(p.job.Ranks) / float64(len(p.ranks)))
	}
	return hopShape{sources: sum(func(h hopShape) int { return h.sources }),
		destinations: sum(func(h hopShape) int { return h.destinations }),
		edges:        sum(func(h hopShape) int { return h.edges })}
}

// joinedBytes returns the bytes for the joined hop of a minibatch: the messages, the hop, and the
// locations of its rows. These locations replace the locations of the rows of the rank's own
// frontier.
func (p *planner) joinedBytes(s *shape) int64 {
	own, all := s.hops[0], s.joined
	bytes := int64(p.pushBytes(own)+p.pushBytes(all)) + int64(all.sources)*(4+8+2+4) +
		8*int64(all.destinations+1) + 4*int64(p.layerEdges(all))
	if p.job.Model.Needs().Weights != nn.NoWeights {
		bytes += 4 * int64(p.layerEdges(all))
	}
	bytes -= int64(own.sources) * (8 + 2 + 4)
	return bytes + bytes/8 // mem.Grow reserves an eighth more
}

// columnBytes returns the bytes of a rank's columns of all feature rows.
func (p *planner) columnBytes(rank int) int64 {
	if !p.job.Mode.Columns {
		return 0
	}
	first, end := p.job.Columns(rank)
	return p.shards.Vertices * int64(end-first) * int64(p.shards.Type().Size())
}

// sums returns the shapes of the sums that the input layer receives from all ranks, for the given
// number of destinations.
func (p *planner) sums(destinations int) []compute.Matrix {
	_, width := p.job.Model.Widths(0)
	return slices.Repeat([]compute.Matrix{{Rows: destinations, Cols: width}}, p.job.Ranks)
}

// reserveColumns reserves the arrays for what a rank computes on its columns. It also sets the
// layer's input (the argument in) so that the layer reads sums instead of rows. It returns the
// bytes of these arrays, and of the sums and gradients that ranks send each other.
func (p *planner) reserveColumns(m *nn.Model, r *rankPlan, in *nn.Input) (moving int64, err error) {
	columns, err := m.Columns(p.job.Columns(r.rank))
	if err != nil {
		return 0, err
	}
	defer columns.Close()
	all := r.slot().joined
	err = columns.Reserve(&nn.Input{Hop: nn.Hop{Destinations: all.destinations}})
	_, width := p.job.Model.Widths(0)
	in.Shares = p.sums(in.Destinations)
	in.Aggregate, in.Gradient = compute.Matrix{}, in.Train
	sums := int64(p.job.Ranks*in.Destinations+all.destinations) * 4 * int64(width)
	return (columns.Bytes() + sums) * 5 / 4, err // arrays grow to a quarter more than they need
}
