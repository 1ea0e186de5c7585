package exchange

import "fmt"

// Counters say what one plan, or many, cost. Rows are vertices of the frontier unless said
// otherwise:
//
//	Frontier = Local + Cached + Peer + Remote - Early
//	sum over ranks of Remote = sum over ranks of Served
//	sum over ranks of RowBytes = sum over ranks of Remote x bytes of a row
//
// Bytes are what this rank handed to the transport to send, counted from the sizes given to it.
type Counters struct {
	Frontier int64 // vertices whose rows are needed
	Local    int64 // in this rank's own parts
	Cached   int64 // in the cache, among this rank's own rows
	Peer     int64 // in parts or caches of peers, read from shared memory
	Remote   int64 // requested from their owners, Early ones included
	Early    int64 // of them, those that the frontier does not read: replacements, rows fetched ahead of their use
	Served   int64 // rows that this rank sent to others

	PeerCached int64 // of Peer: in caches

	Rounds     int64 // collectives started: counts, ids and rows are one each, and those of Sampling
	CountBytes int64 // counts sent, one for each rank
	IDBytes    int64 // ids sent
	RowBytes   int64 // rows sent

	Sampling Sampling // of drawing the minibatch; of the others Rounds alone has it
}

// Sampling says what drawing one minibatch, or many, from a partitioned topology has cost.
//
//	sum over ranks of Asked = sum over ranks of Answered
type Sampling struct {
	Asked    int64 // vertices, over all hops, that other ranks were asked to draw for
	Answered int64 // vertices that this rank drew for others
	Drawn    int64 // neighbours that came back
	Rounds   int64 // collectives started: counts, ids, sizes and neighbours are one each
	Bytes    int64 // sent in them
}

// Add adds o to s.
func (s *Sampling) Add(o Sampling) {
	s.Asked += o.Asked
	s.Answered += o.Answered
	s.Drawn += o.Drawn
	s.Rounds += o.Rounds
	s.Bytes += o.Bytes
}

// Check returns an error, which is about a bug, unless the rows of one plan for so many vertices
// add up.
func (c *Counters) Check(frontier int) error {
	if c.Frontier == c.Local+c.Cached+c.Peer+c.Remote-c.Early && c.Frontier == int64(frontier) {
		return nil
	}
	return fmt.Errorf("rows do not add up: frontier %d, local %d, cached %d, peer %d, remote %d; this is a bug in halognn",
		frontier, c.Local, c.Cached, c.Peer, c.Remote)
}

// Add adds o to c.
func (c *Counters) Add(o Counters) {
	c.Frontier += o.Frontier
	c.Local += o.Local
	c.Cached += o.Cached
	c.Peer += o.Peer
	c.Remote += o.Remote
	c.Early += o.Early
	c.Served += o.Served
	c.PeerCached += o.PeerCached
	c.Rounds += o.Rounds
	c.CountBytes += o.CountBytes
	c.IDBytes += o.IDBytes
	c.RowBytes += o.RowBytes
	c.Sampling.Add(o.Sampling)
}
