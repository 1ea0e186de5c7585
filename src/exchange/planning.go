package exchange

import (
	"halognn/src/comm"
	"halognn/src/compute/ref"
)

// NewPlanning makes the exchange of one of the given number of ranks, for a prediction. It plans, and
// makes room for messages, but reads no rows and tells nobody: others ask of this rank as much as it
// asks of them. Offsets, kinds and s are as in Options. local says whose rows the rank reads in memory.
func NewPlanning(rank, ranks int, offsets []int64, kinds []Kind, local func(part int) bool,
	s *Sums) (*Exchange, error) {
	o := Options{Offsets: offsets, Kinds: kinds, Tables: make([][]byte, len(offsets)-1),
		Host: ref.Host{}, Sums: s}
	for p := range o.Tables {
		if local(p) {
			o.Tables[p] = []byte{}
		}
	}
	c := NewEcho(rank, ranks)
	if err := checkParts(c, o); err != nil {
		return nil, err
	}
	x := open(c, o)
	x.planning = true
	return x, nil
}

// echo is the communicator of a rank that is alone and predicts: the other ranks send to it, and ask of
// it, as much as it sends to them and asks of them.
type echo struct {
	comm.Comm   // of what predictions do not call
	rank, ranks int
}

// NewEcho makes the communicator of a rank of a prediction.
func NewEcho(rank, ranks int) comm.Comm { return echo{rank: rank, ranks: ranks} }

func (e echo) Rank() int { return e.rank }
func (e echo) Size() int { return e.ranks }

// StartAlltoallv implements comm.Comm: nobody reads what others send.
func (e echo) StartAlltoallv(_, _ []byte, _, _ []int, _ int) comm.Request { return answered{} }

// StartAlltoallThen implements comm.Comm.
func (e echo) StartAlltoallThen(send, recv []byte, _, _ []int, _ int, then comm.Then) comm.Request {
	copy(recv, send)
	if p, asks := then.Expect.(*expected); asks {
		return answered{p.on.echoed((*Plan)(p))}
	}
	_, _, err := then.Expect.Expect()
	return answered{err}
}

// answered is a request that is complete.
type answered struct{ err error }

func (a answered) Wait() error { return a.err }

// echoed makes others ask of this rank what p asks of them, as far as it has as many rows. What is of
// rows of others becomes some row of this rank.
func (x *Exchange) echoed(p *Plan) error {
	for r := range x.ranks {
		left := int64(x.rows)
		for kind := range x.kinds {
			wanted := x.countsOf(p.wanted, r, kind)
			wanted[0] = min(wanted[0], left)
			left -= wanted[0]
			if x.rows == 0 && len(wanted) > 1 { // nor sums
				wanted[1], wanted[2] = 0, 0
			}
		}
	}
	if _, _, err := (*expected)(p).Expect(); err != nil {
		return err
	}
	from, to := p.askIDs, p.wantIDs
	for r, n := range p.wantNumbers {
		for k, id := range from[:n] {
			to[k] = max(id, ^id) % int32(max(1, x.rows))
		}
		from, to = from[p.askNumbers[r]:], to[n:]
	}
	return nil
}
