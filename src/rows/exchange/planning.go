package exchange

import (
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
)

// NewPlanning makes an exchange that predicts the messages of one rank, in a run with the given
// number of ranks. It plans and makes room for messages, but reads and sends nothing. It assumes
// that other ranks ask this rank for as many rows as it asks them for. The arguments offsets, kinds
// and s are as in Options. The function local reports whether the rank can read the rows of a part
// in memory.
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

// PlanNodes makes a planning exchange predict the messages of a rank whose node fetches each row
// once (see Node). The arguments are Node.Of and Node.Keeps. It assumes the most expensive case: no
// two ranks of the node want the same row. It also assumes that each other rank of the node wants
// the same number of rows from this buyer as the buyer's own rank.
func (x *Exchange) PlanNodes(of []int, keeps bool) {
	n := &Node{Of: of, Keeps: keeps}
	place, ranks := n.places(x.rank)
	n.Comm = NewEcho(place[x.rank], ranks)
	x.node = newBuying(n, x.rank, x.sums != nil)
}

// echo is the communicator of an exchange that predicts, without other ranks. It assumes that this
// rank receives as many bytes as it sends.
type echo struct {
	comm.Comm   // nil, because predictions call only the methods below
	rank, ranks int
}

// NewEcho makes the communicator of a rank in a prediction.
func NewEcho(rank, ranks int) comm.Comm { return echo{rank: rank, ranks: ranks} }

func (e echo) Rank() int { return e.rank }
func (e echo) Size() int { return e.ranks }

// StartAlltoallv implements comm.Comm. It moves nothing: predictions do not read what they receive.
func (e echo) StartAlltoallv(_, _ []byte, _, _ []int, _ int) comm.Request { return answered{} }

// StartAlltoallThen implements comm.Comm.
func (e echo) StartAlltoallThen(send, recv []byte, _, _ []int, _ int, then comm.Then) comm.Request {
	copy(recv, send)
	switch p := then.Expect.(type) {
	case *expected:
		return answered{p.on.echoed((*Plan)(p))}
	case *wanting:
		return answered{p.on.echoedWants((*Plan)(p))}
	}
	_, _, err := then.Expect.Expect()
	return answered{err}
}

// echoedWants makes up what each other rank of the node wants from this buyer: as many rows of each
// owner as p buys for its own rank. The rows differ from rank to rank as long as the owner has
// enough rows.
func (x *Exchange) echoedWants(p *Plan) error {
	b, w := x.node, &p.bought
	mine := w.counts[b.first[b.self]:b.first[b.self+1]]
	told := w.told
	for _, n := range w.toldBy {
		told = told[copy(told, mine[:n]):]
	}
	if _, _, err := (*wanting)(p).Expect(); err != nil {
		return err
	}
	first := 0 // index in askIDs of the rows that this rank buys for itself
	for m := range b.self {
		first += w.wants[m]
	}
	ids := w.ids
	for m, n := range w.toldBy {
		from := p.askIDs[first:]
		for k := range n {
			owner := b.order[b.first[b.self]+k]
			rows := x.offsets[(owner+1)*x.perRank] - x.offsets[owner*x.perRank]
			count := int(mine[k])
			for i, id := range from[:count] {
				ids[i] = int32((int64(id) + int64(m*count)) % max(1, rows))
			}
			from, ids = from[count:], ids[count:]
		}
	}
	return nil
}

// answered is a request that is complete.
type answered struct{ err error }

func (a answered) Wait() error { return a.err }

// echoed makes up what other ranks ask this rank for. Each is assumed to ask for the same number of
// rows as p asks of it, but at most for the rows that this rank has. The ids in p are rows of other
// ranks, so echoed replaces them by rows of this rank.
func (x *Exchange) echoed(p *Plan) error {
	if x.node != nil { // the messages of a node's rank go to some of the ranks only
		copy(p.wanted, p.asked)
	}
	for r := range x.ranks {
		left := int64(x.rows)
		for kind := range x.kinds {
			wanted := x.countsOf(p.wanted, r, kind)
			wanted[0] = min(wanted[0], left)
			left -= wanted[0]
			if x.rows == 0 && len(wanted) > 1 { // without rows there are no sums
				wanted[1], wanted[2] = 0, 0
			}
		}
	}
	if x.node != nil {
		p.bought.in = x.compact(p.bought.in, p.wanted, x.node.hears)
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
