package simulate

import (
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/topology/sample"
)

// If training favours vertices at hand (job.Locality), minibatches depend on the cache. So they are
// sampled for each policy and size. All ranks finish an epoch before the next one begins, because
// the rows that they have fetched may change the factor by which the next epoch favours vertices.

// countedNear counts each policy and size over minibatches of its own. The counts Remote and Each
// of the result are of minibatches drawn without locality.
func (s *Simulation) countedNear(m *access.Graph, together, each int) (*Result, error) {
	var sum sum
	err := s.onRanks(together, func(rank int) error {
		capacity, err := s.capacities(m, rank)
		if err != nil {
			return err
		}
		c := &counter{Simulation: s, rank: rank, each: make([]int64, s.job.Epochs*s.job.Steps())}
		defer c.free()
		err = c.eachMinibatch(each, s.plain(), c.add)
		if err == nil {
			sum.add(rank, s.result(c, capacity))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r := sum.Result
	for i, p := range s.policies {
		r.Factors = append(r.Factors, make([][]float64, len(r.Capacity)))
		for size := range r.Capacity {
			r.Predicted[i][size] = math.NaN() // the formulas hold for draws without locality
			if err := s.countNear(m, r, i, size, together, each); err != nil {
				return nil, fmt.Errorf("policy %s: %w", p.Name, err)
			}
		}
	}
	return r, nil
}

// countNear counts one policy and size over the minibatches that all ranks draw with that cache.
func (s *Simulation) countNear(m *access.Graph, r *Result, policy, size, together, each int) error {
	ranks := make([]nearRank, s.job.Ranks)
	defer func() {
		for i := range ranks {
			ranks[i].free()
		}
	}()
	err := s.onRanks(together, func(rank int) error {
		n := &ranks[rank]
		n.counter = counter{Simulation: s, rank: rank, kinds: s.job.Kinds()}
		return n.open(m, policy, size, each)
	})
	factor := s.job.Locality.Start()
	for epoch := 1; epoch <= s.job.Epochs && err == nil; epoch++ {
		r.Factors[policy][size] = append(r.Factors[policy][size], factor.Value)
		err = s.onRanks(together, func(rank int) error {
			return ranks[rank].count(epoch, factor.Value, each)
		})
		var all nearReads
		for i := range ranks {
			all.add(ranks[i].reads)
		}
		r.Read[policy][size] += all.read
		r.Peer[policy][size] += all.peer
		r.Rows[policy][size] += all.far
		r.Totals[policy][size].RowBytes += all.bytes
		if a := &s.job.Locality; a.Adapts {
			loading := a.Share(all.far*int64(s.shards.RowBytes()), all.edges)
			factor = s.job.Locality.Next(factor, loading)
		}
	}
	for i := range ranks {
		ranks[i].finish(r, policy, size)
	}
	return err
}

// nearRank is one rank with one cache.
type nearRank struct {
	counter
	near sample.Near // the vertices that the rank favours
	// vertices in the static cache of this rank (own), and in the static caches of the other ranks
	// of its node (peers)
	own, peers access.Set
	filled     int64     // rows put into the rank's own cache before the first step
	reads      nearReads // reads of the epoch counted last
}

// nearReads counts reads over an epoch. It has the number of reads of vertices that are not local
// (`read`), the number of these reads that find the row in the cache of a peer (`peer`), and the
// number of fetched rows (`far`). It also has the bytes of the fetched rows, if rows differ in size
// (`bytes`), and the number of sampled edges (`edges`).
type nearReads struct{ read, peer, far, bytes, edges int64 }

func (n *nearReads) add(o nearReads) {
	n.read, n.peer = n.read+o.read, n.peer+o.peer
	n.far, n.bytes, n.edges = n.far+o.far, n.bytes+o.bytes, n.edges+o.edges
}

func (n *nearRank) free() {
	n.near.Free()
	n.own.Free()
	n.peers.Free()
	n.counter.free()
}

// open finds the rows that training puts into the cache, and the vertices to favour: those near the
// local vertices and, if the cache is static, near the cached vertices.
func (n *nearRank) open(m *access.Graph, which, size, workers int) error {
	reader, p := n.reader(n.rank, workers), n.policies[which]
	capacity, err := n.capacities(m, n.rank)
	if err != nil {
		return err
	}
	n.own, n.peers = access.NewSet(m.NumVertices()), access.NewSet(m.NumVertices())
	switch {
	case !p.Static():
		n.recent = policy.NewHistory(n.addPlayer(m, reader, which, size, capacity[size],
			nil).Window())
	case n.shared != nil && !p.None():
		ranks := n.job.Neighbours(n.rank)
		place := n.shared[ranks[0]][which][size]
		for d, rank := range ranks {
			if rank == n.rank {
				n.filled = int64(len(place.Held(d)))
				n.own.AddAll(place.Held(d))
			} else {
				n.peers.AddAll(place.Held(d))
			}
		}
	default:
		held, err := p.Hold(m, reader, capacity[size])
		if err != nil {
			return err
		}
		n.filled = int64(len(held))
		n.own.AddAll(held)
		mem.Free(held)
	}
	held := access.NewSet(m.NumVertices())
	defer held.Free()
	held.AddRanges(reader.Local)
	for i := range held {
		held[i] |= n.own[i] | n.peers[i]
	}
	n.near, err = m.Near(held, n.job.Sample, n.job.Locality.Vertices)
	n.used.near = n.near.Bytes()
	return err
}

// count counts the reads of an epoch. The argument `factor` is the probability of drawing a near
// vertex, divided by the probability of drawing another vertex.
func (n *nearRank) count(epoch int, factor float64, workers int) error {
	n.reads = nearReads{}
	d := draws{first: epoch, last: epoch, near: n.near, favour: factor}
	return n.eachMinibatch(workers, d, func(m *minibatch) error {
		r := &n.reads
		r.read += int64(len(m.remote))
		r.edges += int64(m.sampled.NumEdges())
		n.used.minibatch = max(n.used.minibatch, int64(len(m.remote)))
		if len(n.playing) > 0 {
			total := &n.playing[0].total
			before := *total
			err := n.play(m)
			r.far, r.bytes = r.far+total.Remote-before.Remote,
				r.bytes+total.RowBytes-before.RowBytes
			return err
		}
		for _, v := range m.remote {
			switch {
			case n.own.Has(v):
			case n.peers.Has(v):
				r.peer++
			default:
				r.far++
				if n.kinds != nil {
					r.bytes += int64(n.kinds.Size(v))
				}
			}
		}
		return nil
	})
}

// finish adds the rank's counts of all epochs to the result.
func (n *nearRank) finish(r *Result, policy, size int) {
	for _, p := range n.playing {
		n.filled = p.filled
		if r.Traces[policy][size] == nil {
			r.Traces[policy][size] = make(Trace, len(p.trace))
		}
		for i, d := range p.trace {
			r.Traces[policy][size][i].Add(d)
		}
	}
	r.Filled[policy][size] += n.filled
	r.used.atLeast(n.used)
}
