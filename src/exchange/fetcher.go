package exchange

import (
	"halognn/src/comm"
	"halognn/src/graph"
)

// Fetcher is an exchange with the communicator that it owns.
type Fetcher struct {
	*Exchange
	Comm comm.Comm
}

// Open makes an exchange on a copy of c. Collective, as is Close.
func Open(c comm.Comm, o Options) (*Fetcher, error) {
	own, err := c.Dup()
	if err != nil {
		return nil, err
	}
	x, err := New(own, o)
	return &Fetcher{x, own}, err
}

// Fetch fetches the rows of ids outside any pipeline: p.Rows says where each lies. Collective.
func (f *Fetcher) Fetch(p *Plan, ids []graph.VertexID) error {
	if err := f.Plan(p, ids); err != nil {
		return err
	}
	if err := f.StartAsk(p).Wait(); err != nil {
		return err
	}
	if err := f.SliceRows(p); err != nil {
		return err
	}
	return f.StartRows(p).Wait()
}

// Close frees the communicator. No plan may be in flight.
func (f *Fetcher) Close() error {
	f.Free()
	return f.Comm.Free()
}
