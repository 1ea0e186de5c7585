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
	if f.Buys() {
		if err := f.StartWants(p).Wait(); err != nil {
			return err
		}
		if err := f.Unite(p); err != nil {
			return err
		}
	}
	if err := f.StartAsk(p).Wait(); err != nil {
		return err
	}
	if err := f.SliceRows(p); err != nil {
		return err
	}
	if err := f.StartRows(p).Wait(); err != nil || !f.Buys() {
		return err
	}
	f.PassOn(p)
	if err := f.StartPass(p).Wait(); err != nil {
		return err
	}
	f.Passed(p)
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
