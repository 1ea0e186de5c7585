package simulate

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
)

// If the ranks of a node fetch as one (job.FetchesAsNodes), a turn takes one minibatch of each rank
// of the node. A row that several minibatches of the turn lack is fetched once, for the first of
// these ranks. If the ranks only divide caches, and owners send sums, each rank fetches what it
// lacks. Every minibatch is sampled twice, because an oracle chooses rows by the counts of all
// minibatches.

// node counts what the ranks of one node fetch.
type node struct {
	*Simulation
	asOne bool // the ranks fetch as one
	ranks []*counter
	sells []*seller // [ranks] the dynamic caches that the ranks divide, one seller for each rank
	// [all ranks] for each rank as an owner: index of the rank of this node that fetches (buys) the
	// owner's rows for the node; -1 for an owner on this node
	buyer  []int
	parts  graph.PartIndex
	byPart []byPart   // [ranks] remote vertices of each rank in this turn, by part
	tally  [][]*tally // [policies][sizes]

	turn  uint32   // number of the latest pass over lists of vertices: each turn makes several
	last  []uint32 // [N] the latest pass that met the vertex
	place []int32  // [N] the vertex's place in the list of that pass
	union []uint32 // [N] number of turns in which some rank reads each remote vertex

	scores [][]float32 // scores of the policies whose caches the ranks divide

	turns int // number of turns so far
	// [ranks] rows that each rank fetched for its node in this turn, which its divided cache may
	// keep; only if owners send sums
	bought     [][]graph.VertexID
	edges      []graph.VertexID // edges on other nodes that the ranks read in this turn
	edgeRows   int64            // number of rows of edges that were fetched
	edgeShared int64            // number of rows of edges that another rank has fetched
	d          cache.Decision   // decision of a static cache that the ranks divide
}

// tally counts one policy with one size of cache.
type tally struct {
	places  [][]int16 // [ranks] for sums: who holds each vertex of a divided static cache
	total   trace.Counters
	trace   Trace    // counts of each step; nil for a static policy
	filled  int64    // number of rows put into the caches before the first step
	first   int      // number of the first minibatch in waiting
	waiting []*lacks // minibatches about which not all ranks have decided
	spare   []*lacks // lists of earlier minibatches, to be used again
	perStep int      // number of minibatches of a step
	ranks   int      // number of ranks of the node
}

// lacks lists the rows that the ranks of a node fetch for the minibatches of one turn, in rank
// order. An entry of rows is twice the vertex, plus 1 if the row is fetched early.
type lacks struct {
	rows  []int64
	ranks int // number of ranks that have decided
	d     trace.Counters
}

// byPart holds vertices sorted by part. The vertices of part p are ids[ends[p-1]:ends[p]].
type byPart struct {
	ids  []graph.VertexID
	ends []int
}

// seller plays the caches that one rank keeps for its whole node. They decide about the vertices
// that the ranks of the node want from this rank.
type seller struct {
	counter
	wanted []graph.VertexID // vertices wanted in this turn
	// ring of the latest turns: for each wanted row, the number of ranks that want it
	by [][]int32
	// ring of the latest turns: for each wanted row, 1 if the seller's own rank wants it
	self [][]uint8
	n    int // number of turns so far
	// If owners send sums: in the first turns, all vertices that the node wants from this rank,
	// even those that sums replace. The policies read them when they open.
	opening *policy.History
}

// byNode reports whether the ranks of a node are counted together.
func (s *Simulation) byNode() bool {
	return s.job.FetchesAsNodes() || s.job.Sums && s.job.Cache.Shared()
}

// countedNodes counts all policies and sizes. Several nodes are counted at the same time. They have
// at most `together` ranks in total.
func (s *Simulation) countedNodes(m *access.Graph, together, _ int) (*Result, error) {
	var nodes [][]int
	for rank := range s.job.Ranks {
		if ranks := s.job.Neighbours(rank); ranks[0] == rank {
			nodes = append(nodes, ranks)
		}
	}
	var sum sum
	together = s.nodesTogether(together)
	err := mem.Together(together, func(w int) error {
		for k := w; k < len(nodes); k += together {
			r, err := s.node(m, nodes[k], max(1, s.o.Workers/together))
			if err != nil {
				return err
			}
			sum.add(k, r)
		}
		return nil
	})
	return sum.Result, err
}

// nodesTogether returns how many nodes are counted at the same time, if they may have at most the
// given number of ranks in total.
func (s *Simulation) nodesTogether(ranks int) int {
	return max(1, min(s.job.Nodes(), ranks/s.mostRanks()))
}

// mostRanks returns the number of ranks of the largest node.
func (s *Simulation) mostRanks() (most int) {
	for rank := range s.job.Ranks {
		most = max(most, len(s.job.Neighbours(rank)))
	}
	return most
}

// node simulates the ranks of a node.
func (s *Simulation) node(m *access.Graph, ranks []int, workers int) (*Result, error) {
	vertices := int(s.shards.Vertices)
	n := &node{Simulation: s, asOne: s.job.FetchesAsNodes(), buyer: make([]int, s.job.Ranks),
		bought: make([][]graph.VertexID, len(ranks)),
		parts:  graph.NewPartIndex(s.shards.Offsets), byPart: make([]byPart, len(ranks)),
		last: mem.Make[uint32](vertices), place: mem.Make[int32](vertices),
		union: mem.Make[uint32](vertices)}
	defer n.free()
	for owner := range n.buyer {
		n.buyer[owner] = -1 // an owner on this node, unless set below
	}
	var all *Result
	for k, rank := range ranks {
		for _, owner := range exchange.Bought(s.job.NodeOf(), rank) {
			n.buyer[owner] = k
		}
		capacity, err := s.capacities(m, rank)
		if err != nil {
			return nil, err
		}
		c, err := s.newCounter(rank)
		n.ranks = append(n.ranks, c)
		if err == nil {
			err = c.eachMinibatch(workers, s.plain(), c.count)
		}
		if err != nil {
			return nil, err
		}
		if r := s.result(c, capacity); all == nil {
			all = r
		} else {
			all.add(r)
		}
	}
	if err := n.open(m, ranks, workers); err != nil {
		return nil, err
	}
	if err := n.play(workers); err != nil {
		return nil, err
	}
	n.settle(all)
	return all, nil
}

func (n *node) free() {
	for _, c := range n.ranks {
		c.free()
	}
	for _, s := range n.sells {
		s.counter.free()
		if s.opening != nil {
			s.opening.Free()
		}
		mem.Free(s.wanted)
		for i := range s.by {
			mem.Free(s.by[i])
			mem.Free(s.self[i])
		}
	}
	for _, score := range n.scores {
		mem.Free(score)
	}
	for _, b := range n.byPart {
		mem.Free(b.ids)
	}
	for _, t := range slices.Concat(n.tally...) {
		for _, device := range t.places {
			mem.Free(device)
		}
	}
	for _, ids := range n.bought {
		mem.Free(ids)
	}
	n.d.Free()
	mem.Free(n.edges)
	mem.Free(n.last)
	mem.Free(n.place)
	mem.Free(n.union)
}

// placed reports whether the ranks of the node divide the rows of a static cache of the i-th
// policy. Such a cache needs no player: a rank fetches the rows that no rank of the node caches.
// But if owners send sums, every minibatch is counted separately, because which sums are sent
// depends on the minibatch.
func (n *node) placed(i int) bool {
	return n.shared != nil && n.policies[i].Static() && !n.policies[i].None()
}

// divided reports whether the ranks of a node divide a dynamic cache of the i-th policy, as
// job.Divides does for the policy of a run.
func (s *Simulation) divided(i int) bool {
	return s.job.FetchesAsNodes() && !s.policies[i].Static() &&
		s.own[i].Placement == policy.PlacementGroup
}

// open adds the players of all ranks.
func (n *node) open(m *access.Graph, ranks []int, workers int) error {
	var readers []*access.Workload
	most, sold := 0, 0
	for _, c := range n.ranks {
		r := n.reader(c.rank, workers)
		r.Known = c.accesses
		readers = append(readers, r)
		n.sells = append(n.sells, &seller{counter: counter{Simulation: n.Simulation, rank: c.rank}})
	}
	for i, p := range n.policies {
		n.tally = append(n.tally, nil)
		var scores []float32
		if n.divided(i) && p.Scores {
			var err error
			scores, err = policy.Find(n.own[i].Initial).RankTogether(m, readers)
			n.scores = append(n.scores, scores)
			if err != nil {
				return err
			}
		}
		for size := range n.settings() {
			t := &tally{perStep: n.job.Minibatches(), ranks: len(ranks)}
			if n.tally[i] = append(n.tally[i], t); !p.Static() {
				t.trace = make(Trace, n.job.Epochs*n.job.Steps())
			}
			for k, c := range n.ranks {
				capacity, err := n.capacities(m, c.rank)
				switch {
				case err != nil:
					return err
				case n.placed(i):
					if n.job.Sums {
						device, slot := n.shared[ranks[0]][i][size].Lookup(k)
						mem.Free(slot)
						t.places = append(t.places, device)
					}
				case n.divided(i):
					bought := n.job.Bought(c.rank, readers[k])
					p := n.sells[k].addPlayer(m, bought, i, size, capacity[size], scores)
					sold = max(sold, p.Window())
				default:
					p := c.addPlayer(m, readers[k], i, size, capacity[size], nil)
					most = max(most, p.Window())
				}
			}
		}
	}
	for k, c := range n.ranks {
		s := n.sells[k]
		c.recent, s.recent = policy.NewHistory(most), policy.NewHistory(sold)
		if n.job.Sums {
			c.sums = parallel.NewSumCounter(n.job.Model.Needs(), n.shards.Topology(),
				job.NewChooser(n.job), most)
		}
		s.by, s.self = make([][]int32, sold+1), make([][]uint8, sold+1)
		if n.job.Sums {
			s.opening = policy.NewHistory(sold)
			for _, p := range s.playing {
				p.OpenBy(s.opening)
			}
		}
	}
	return nil
}

var errEnded = errors.New("no more minibatches are wanted")

// minibatches yields the rank's minibatches. Each is valid until the next. An error ends them and
// is stored in fault.
func (c *counter) minibatches(workers int, fault *error) iter.Seq[*minibatch] {
	return func(yield func(*minibatch) bool) {
		err := c.eachMinibatch(workers, c.plain(), func(m *minibatch) error {
			if !yield(m) {
				return errEnded
			}
			return nil
		})
		if err != nil && *fault == nil {
			*fault = err
		}
	}
}

// play lets all caches decide about the minibatches of all ranks, turn by turn.
func (n *node) play(workers int) error {
	next := make([]func() (*minibatch, bool), len(n.ranks))
	var fault error
	for k, c := range n.ranks {
		var stop func()
		next[k], stop = iter.Pull(c.minibatches(workers, &fault))
		defer stop()
	}
	turn := make([]*minibatch, len(next))
	for {
		for k := range next {
			m, more := next[k]()
			if !more { // all ranks have the same number of minibatches
				return fault
			}
			turn[k] = m
		}
		if err := n.take(turn); err != nil {
			return err
		}
	}
}

// take lets all caches decide about a turn: one more minibatch of each rank.
func (n *node) take(turn []*minibatch) error {
	n.turn++
	for _, m := range turn {
		for _, v := range m.remote {
			if n.last[v] != n.turn {
				n.last[v] = n.turn
				n.union[v]++
			}
		}
	}
	if err := n.countShared(turn); err != nil {
		return err
	}
	for k, c := range n.ranks {
		var worth []uint8
		if c.sums != nil {
			worth = c.sums.Add(turn[k].sampled, turn[k].x, &turn[k].plan)
		}
		c.recent.Add(turn[k].remote, worth)
		for _, p := range c.playing {
			t := n.tally[p.policy][p.size]
			err := p.Advance(c.recent, turn[k].ends, func(i int, d *cache.Decision) {
				t.lack(c, i, d)
			})
			if err != nil {
				return fmt.Errorf("rank %d, policy %s: %w", c.rank, p.Name(), err)
			}
		}
		if c.sums != nil {
			n.placedSums(k)
			if len(n.sells) > 0 {
				n.boughtSums(k)
			}
		}
	}
	n.turns++
	for k := range n.sells {
		if err := n.sell(k, turn); err != nil {
			return err
		}
	}
	for _, sizes := range n.tally {
		for _, t := range sizes {
			n.merge(t)
		}
	}
	return nil
}

// countShared counts the rows of edges and the learned rows that the ranks fetch as one.
func (n *node) countShared(turn []*minibatch) error {
	if !n.asOne {
		return nil
	}
	n.turn++
	for k, c := range n.ranks {
		if c.learns != nil {
			of, err := c.learns.Count(turn[k].sampled)
			if err != nil {
				return err
			}
			fetched := int64(0)
			for v := range c.learns.Rows() {
				far := n.buyer[n.parts.Find(uint32(v))*n.job.Ranks/n.shards.Parts] >= 0
				if !far || n.last[v] != n.turn {
					fetched++
				}
				if far {
					n.last[v] = n.turn
				}
			}
			c.learns.Share(&of, fetched)
			c.learned.Add(of)
		}
	}
	if n.job.Model.EdgeIn == 0 {
		return nil
	}
	n.edges = n.edges[:0]
	for k, c := range n.ranks {
		if err := c.listEdges(turn[k].sampled); err != nil {
			return err
		}
		at := len(n.edges)
		n.edges = mem.Grow(n.edges, at+len(c.edges))
		copy(n.edges[at:], c.edges)
	}
	slices.Sort(n.edges)
	fetched := int64(len(slices.Compact(n.edges)))
	n.edgeRows, n.edgeShared = n.edgeRows+fetched, n.edgeShared+int64(len(n.edges))-fetched
	return nil
}

// placedSums is called for static caches that the ranks divide, if owners sum rows. It notes which
// rows of its current minibatch the k-th rank lacks.
func (n *node) placedSums(k int) {
	c := n.ranks[k]
	remote := c.recent.Remote(n.turns)
	for _, t := range slices.Concat(n.tally...) {
		if t.places == nil {
			continue
		}
		d, peers := &n.d, int64(0)
		d.Clear()
		d.Slot = mem.Grow(d.Slot, len(remote))
		for i, v := range remote {
			d.Slot[i] = 0
			switch at := int(t.places[k][v]); {
			case at < 0:
				d.Slot[i] = -1
				d.Misses++
			case at != k:
				peers++
			}
		}
		l := t.lack(c, n.turns, d)
		l.d.Cached -= peers // lack has counted all hits as the rank's own
		l.d.PeerCached, l.d.Peer = l.d.PeerCached+peers, l.d.Peer+peers
	}
}

// boughtSums is called for dynamic caches that the ranks divide, if owners sum rows. It lists the
// rows of the k-th rank's current minibatch that would travel if no buyer held any row. The caches
// decide about these rows. It also counts the sums.
func (n *node) boughtSums(k int) {
	c, none := n.ranks[k], cache.Decision{}
	remote := c.recent.Remote(n.turns)
	sums, rows := c.summed(n.turns, &none)
	n.bought[k] = mem.Grow(n.bought[k][:0], len(rows))
	for i, at := range rows {
		n.bought[k][i] = remote[at]
	}
	for i, sizes := range n.tally {
		for _, t := range sizes {
			if n.divided(i) {
				t.count(n.turns, &sums)
			}
		}
	}
}

// summed returns two results about a minibatch after the decision d. The first counts the sums that
// travel, their bytes, and the bytes of their members' ids. The second lists the remote rows that
// travel, as indices.
func (c *counter) summed(minibatch int, d *cache.Decision) (trace.Counters, []int32) {
	n := c.sums.Count(minibatch, d)
	rows, bytes := c.sums.Travels(minibatch)
	return trace.Counters{Sums: n.Sums, Summed: n.Summed, RowBytes: bytes,
		IDBytes: n.IDBytes - n.Remote*exchange.IDBytes}, rows
}

// lack notes the rows that one more rank, whose counter is c, fetches for its i-th minibatch. They
// follow from the decision d of its cache.
func (t *tally) lack(c *counter, i int, d *cache.Decision) *lacks {
	remote := c.recent.Remote(i)
	for i-t.first >= len(t.waiting) {
		l := new(lacks)
		if n := len(t.spare); n > 0 {
			l, t.spare = t.spare[n-1], t.spare[:n-1]
			l.rows, l.ranks, l.d = l.rows[:0], 0, trace.Counters{}
		}
		t.waiting = append(t.waiting, l)
	}
	l := t.waiting[i-t.first]
	l.ranks++
	of := d.Counters()
	l.d.Add(trace.Counters{Cached: of.Cached, Evictions: of.Evictions,
		Replacements: of.Replacements})
	if c.sums != nil {
		sums, rows := c.summed(i, d)
		l.d.Add(sums)
		for _, k := range rows {
			l.rows = append(l.rows, int64(remote[k])<<1)
		}
	} else {
		for k, slot := range d.Slot {
			if slot < 0 {
				l.rows = append(l.rows, int64(remote[k])<<1)
			}
		}
	}
	for _, v := range d.Early {
		l.rows = append(l.rows, int64(v)<<1|1)
	}
	return l
}

// merge counts the minibatches about which all ranks have decided. A row that several ranks lack is
// fetched once, and counts as shared for the others.
func (n *node) merge(t *tally) {
	kinds := n.job.Kinds()
	for len(t.waiting) > 0 && t.waiting[0].ranks == t.ranks {
		l := t.waiting[0]
		n.turn++
		for _, row := range l.rows {
			v, early := graph.VertexID(row>>1), row&1
			if n.asOne && n.last[v] == n.turn {
				l.d.Shared += 1 - early
				continue
			}
			n.last[v] = n.turn
			l.d.Remote++
			l.d.Early += early
			if kinds != nil {
				l.d.RowBytes += int64(kinds.Size(v))
			}
		}
		n.addBytes(&l.d)
		t.count(t.first, &l.d)
		t.first, t.waiting, t.spare = t.first+1, t.waiting[1:], append(t.spare, l)
	}
}

// addBytes adds the bytes of the rows and their ids, if owners sum rows.
func (n *node) addBytes(d *trace.Counters) {
	if !n.job.Sums {
		return
	}
	d.IDBytes += d.Remote * exchange.IDBytes
	if n.job.Kinds() == nil {
		d.RowBytes += d.Remote * int64(n.shards.RowBytes())
	}
}

// count adds the decisions about the i-th minibatches of the ranks.
func (t *tally) count(i int, d *trace.Counters) {
	t.total.Add(*d)
	if t.trace != nil {
		t.trace[i/t.perStep].Add(*d)
	}
}

// sell lets the caches of the k-th rank decide about the vertices that the ranks of the node want
// from it in one more turn.
func (n *node) sell(k int, turn []*minibatch) error {
	s := n.sells[k]
	if len(s.playing) == 0 {
		return nil
	}
	if n.job.Sums && s.n <= s.opening.Window() { // runs open the cache before ranks choose sums
		for rank, m := range turn {
			n.byPart[rank].sort(m.remote, n)
		}
		n.want(k)
		s.opening.Add(s.wanted, nil)
	}
	for rank, m := range turn {
		wants := m.remote
		if n.job.Sums {
			wants = n.bought[rank]
		}
		n.byPart[rank].sort(wants, n)
	}
	n.want(k)
	s.n++
	s.recent.Add(s.wanted, nil)
	for _, p := range s.playing {
		t := n.tally[p.policy][p.size]
		err := p.Advance(s.recent, turn[k].ends, func(i int, d *cache.Decision) {
			c := d.Counters()
			by, self := s.by[i%len(s.by)], s.self[i%len(s.self)]
			c.Cached = 0
			for u, slot := range d.Slot {
				if slot < 0 {
					c.Shared += int64(by[u] - 1)
					continue
				}
				c.Cached += int64(self[u])
				c.PeerCached += int64(by[u] - int32(self[u]))
			}
			c.Peer = c.PeerCached
			n.addBytes(&c)
			t.count(i, &c)
		})
		if err != nil {
			return fmt.Errorf("rank %d, policy %s: %w", s.rank, p.Name(), err)
		}
	}
	return nil
}

// want lists the rows that the ranks of the node want from the k-th rank, each row once. It reads
// the lists by part.
func (n *node) want(k int) {
	n.turn++
	s := n.sells[k]
	at := s.n % len(s.by)
	by, self := s.by[at][:0], s.self[at][:0]
	s.wanted = s.wanted[:0]
	// The loop is owner by owner, so that vertices have the order in which exchange.Merge lists
	// them.
	for owner, buyer := range n.buyer {
		if buyer != k {
			continue
		}
		for rank := range n.ranks {
			for _, v := range n.byPart[rank].ownedBy(owner, n) {
				if n.last[v] != n.turn {
					u := len(by)
					n.last[v], n.place[v] = n.turn, int32(u)
					s.wanted = mem.Grow(s.wanted, u+1)
					by, self = mem.Grow(by, u+1), mem.Grow(self, u+1)
					s.wanted[u], by[u], self[u] = v, 0, 0
				}
				by[n.place[v]]++
				if rank == k {
					self[n.place[v]] = 1
				}
			}
		}
	}
	s.by[at], s.self[at] = by, self
}

// sort sorts vertices by part. The vertices of one part keep their order.
func (b *byPart) sort(ids []graph.VertexID, n *node) {
	if b.ends == nil {
		b.ends = make([]int, n.shards.Parts)
	}
	clear(b.ends)
	for _, v := range ids {
		b.ends[n.parts.Find(uint32(v))]++
	}
	at := 0
	for p, count := range b.ends {
		b.ends[p], at = at, at+count
	}
	b.ids = mem.Grow(b.ids[:0], len(ids))
	for _, v := range ids {
		end := &b.ends[n.parts.Find(uint32(v))]
		b.ids[*end] = v
		*end++
	}
}

// ownedBy returns those of the sorted vertices that the rank with number owner owns.
func (b *byPart) ownedBy(owner int, n *node) []graph.VertexID {
	each, first := n.shards.Parts/n.job.Ranks, 0
	if owner > 0 {
		first = b.ends[owner*each-1]
	}
	return b.ids[first:b.ends[(owner+1)*each-1]]
}

// settle writes the counts of the node into the result.
func (n *node) settle(r *Result) {
	if n.asOne { // otherwise each rank has counted its edges
		r.EdgeRows, r.EdgeShared = n.edgeRows, n.edgeShared
	}
	r.Learned = parallel.LearnedCounts{}
	for k, c := range n.ranks {
		r.Learned.Add(c.learned)
		if c.sums != nil {
			c.used.sums, _ = c.sums.Bytes()
		}
		r.used.atLeast(c.used)
		bytes := int64(0)
		for _, of := range [][]*player{c.playing, n.sells[k].playing} {
			for _, p := range of {
				bytes += p.Bytes()
				n.tally[p.policy][p.size].filled += int64(p.Filled())
			}
		}
		r.used.policies = max(r.used.policies, bytes)
	}
	for i := range n.policies {
		for size, t := range n.tally[i] {
			// the formulas are for ranks that fetch alone
			r.Read[i][size], r.Predicted[i][size] = r.Remote, math.NaN()
			if n.placed(i) {
				n.settlePlaced(i, size, t)
			}
			r.Rows[i][size] = t.total.Remote + t.total.Sums
			r.Totals[i][size], r.Traces[i][size] = t.total, t.trace
			r.Peer[i][size], r.Shared[i][size] = t.total.PeerCached, t.total.Shared
			r.Filled[i][size] = t.filled
		}
	}
}

// settlePlaced adds to the tally t what a static cache does that the ranks of the node divide: how
// many rows it holds, and where the node's reads find their rows.
func (n *node) settlePlaced(which, size int, t *tally) {
	place := n.shared[n.ranks[0].rank][which][size]
	for self, c := range n.ranks {
		t.filled += int64(len(place.Held(self)))
		if n.job.Sums { // reads were counted minibatch by minibatch
			continue
		}
		device, slot := place.Lookup(self)
		mem.Free(slot)
		for v, reads := range c.accesses {
			switch d := int(device[v]); {
			case d < 0:
				t.total.Shared += int64(reads)
			case d == self:
				t.total.Cached += int64(reads)
			default:
				t.total.PeerCached += int64(reads)
			}
		}
		if self == 0 {
			for v, turns := range n.union {
				if device[v] < 0 {
					t.total.Remote += int64(turns)
				}
			}
		}
		mem.Free(device)
	}
	if !n.job.Sums {
		t.total.Shared -= t.total.Remote
	}
}
