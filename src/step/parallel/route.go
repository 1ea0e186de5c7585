package parallel

import (
	"halognn/src/base/fault"
	"halognn/src/base/trace"
	"halognn/src/rows/exchange"
)

// route is the way by which rows of one sort (feature rows, rows of edges or learned rows) come to
// a minibatch that has planned which rows it requests. If the ranks of a node fetch as one, the
// node's stages enclose those of all ranks:
//
//	        node             all ranks                    node
//	plan ─> wants, unite ──> ids, slice, rows ──> pass on, share
type route struct {
	x     *exchange.Exchange
	what  string // before the names of the stages
	rank  int
	fetch func(*Minibatch) *exchange.Plan
	// called before the rows that others ask for are copied; may be nil
	serve func(*Minibatch) error
}

// stages returns all stages.
func (r route) stages() []Stage {
	stages := append(r.unite(), r.ask())
	if stages = append(stages, r.rows()...); r.x.Buys() {
		stages = append(stages, r.passOn(), r.share())
	}
	return stages
}

// wants is the collective in which ranks of a node tell each other which rows they want.
func (r route) wants() Stage {
	return collective(trace.Exchange, r.what+"wants",
		func(m *Minibatch) (request, error) { return r.x.StartWants(r.fetch(m)), nil }, nil)
}

// unite returns the stages that make one request of what the ranks of a node want; none if each
// rank fetches for itself.
func (r route) unite() []Stage {
	if !r.x.Buys() {
		return nil
	}
	return []Stage{r.wants(), local(trace.Slice, r.what+"unite",
		func(m *Minibatch) error { return r.x.Unite(r.fetch(m)) })}
}

// ask is the collective in which ranks tell the owners which rows they request.
func (r route) ask() Stage {
	return collective(trace.Exchange, r.what+"ids",
		func(m *Minibatch) (request, error) { return r.x.StartAsk(r.fetch(m)), nil }, nil)
}

// rows returns the stages that copy the rows that others ask for, and send them.
func (r route) rows() []Stage {
	return []Stage{
		local(trace.Slice, r.what+"slice", func(m *Minibatch) error {
			if r.serve != nil {
				if err := r.serve(m); err != nil {
					return err
				}
			}
			return r.x.SliceRows(r.fetch(m))
		}),
		collective(trace.Exchange, r.what+"rows", func(m *Minibatch) (request, error) {
			if err := m.point(fault.Exchange, r.rank); err != nil {
				return nil, err
			}
			return r.x.StartRows(r.fetch(m)), nil
		}, nil),
	}
}

// passOn copies the rows that a buyer has fetched for the ranks of its node.
func (r route) passOn() Stage {
	return local(trace.Slice, r.what+"pass on",
		func(m *Minibatch) error { r.x.PassOn(r.fetch(m)); return nil })
}

// share is the collective in which ranks of a node pass these rows on.
func (r route) share() Stage {
	return collective(trace.Exchange, r.what+"share", func(m *Minibatch) (request, error) {
		if err := m.point(fault.Share, r.rank); err != nil {
			return nil, err
		}
		return r.x.StartPass(r.fetch(m)), nil
	}, func(m *Minibatch) error { r.x.Passed(r.fetch(m)); return nil })
}
