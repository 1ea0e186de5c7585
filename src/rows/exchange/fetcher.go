package exchange

import (
	"errors"

	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// Fetcher is an exchange that owns its communicators.
type Fetcher struct {
	*Exchange
	Comm comm.Comm
	node comm.Comm // duplicate of Options.Node.Comm; nil without Node
}

// Open makes an exchange on duplicates of c and of the node's communicator. Open and Close are
// collective.
func Open(c comm.Comm, o Options) (f *Fetcher, err error) {
	f = new(Fetcher)
	if f.Comm, err = c.Dup(); err != nil {
		return nil, err
	}
	if o.Node != nil {
		if f.node, err = o.Node.Comm.Dup(); err != nil {
			return nil, err
		}
		o.Node = &Node{Comm: f.node, Of: o.Node.Of, Keeps: o.Node.Keeps}
	}
	f.Exchange, err = New(f.Comm, o)
	return f, err
}

// Fetch fetches the rows of the vertices ids outside any pipeline. Afterwards p.Rows says where
// each row lies. It is collective.
func (f *Fetcher) Fetch(p *Plan, ids []graph.VertexID) error {
	if err := f.Plan(p, ids); err != nil {
		return err
	}
	return f.finish(p)
}

// finish runs the stages that come after Plan or Request.
func (f *Fetcher) finish(p *Plan) error {
	if err := f.Ask(p); err != nil {
		return err
	}
	return f.Complete(p)
}

// Ask runs the stages from Plan or Request to the requests, outside any pipeline. Collective.
func (x *Exchange) Ask(p *Plan) error {
	if x.Buys() {
		if err := x.StartWants(p).Wait(); err != nil {
			return err
		}
		if err := x.Unite(p); err != nil {
			return err
		}
	}
	return x.StartAsk(p).Wait()
}

// Complete runs the stages after Ask, or those after the request of StartAsk. Collective.
func (x *Exchange) Complete(p *Plan) error {
	if err := x.SliceRows(p); err != nil {
		return err
	}
	if err := x.StartRows(p).Wait(); err != nil || !x.Buys() {
		return err
	}
	x.PassOn(p)
	if err := x.StartPass(p).Wait(); err != nil {
		return err
	}
	x.Passed(p)
	return nil
}

// Close frees the communicators. No plan may be in flight.
func (f *Fetcher) Close() error {
	f.Free()
	err := f.Comm.Free()
	if f.node != nil {
		err = errors.Join(err, f.node.Free())
	}
	return err
}
