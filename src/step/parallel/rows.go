package parallel

import (
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
)

// ofRows is the state that Rows keep in a minibatch.
type ofRows struct {
	pushed   pushed          // hops pushed to other ranks, and hops that they push
	grouped  *exchange.Edges // edges of the input layer; nil if it adds nothing
	summable *exchange.Edges // edges whose rows may come as sums, until they are requested
	kept     []int32         // misses whose rows the cache has decided to keep
	lent     bool            // whether the minibatch holds one of the strategy's buffer sets
	edgesOf  edgesOf         // for a model that reads features of edges
	learned  learnedOf       // for a model that learns rows
}

func (r *ofRows) bytes() int64 {
	return r.pushed.bytes() + int64(cap(r.kept))*4 + r.edgesOf.bytes() + r.learned.bytes()
}

func (r *ofRows) free() {
	r.pushed.free()
	mem.Free(r.kept)
	r.edgesOf.free()
	r.learned.free()
}

// assembly makes the model's batch from a minibatch whose blocks are drawn and whose rows have
// arrived.
type assembly struct {
	needs   nn.Needs
	layers  int
	landing landing
}

// batch describes the topology to the model. Without neighbours every layer works on the seeds.
func (a *assembly) batch(m *Minibatch) {
	b := &m.Batch
	b.Train, b.GlobalSeeds = m.Train, m.GlobalSeeds
	b.X, b.Own, b.Aggregate, b.Types = compute.Matrix{}, compute.Matrix{}, compute.Matrix{},
		b.Types[:0]
	b.Sparse = nn.Sparse{}
	if len(b.Hops) != a.layers {
		b.Hops = make([]nn.Hop, a.layers)
	}
	k, edges := m.Key, 0
	for l := range b.Hops {
		var hop nn.Hop
		others := m.shared.others(l+1, a.layers)
		if x := m.card.drawn; x != nil {
			hop = m.card.hop(l)
			hop.Vertices = x.Original[:hop.Destinations]
		} else if len(m.Sampled.Blocks) == 0 {
			n := len(m.Scored)
			hop = nn.Hop{Sources: n, Destinations: n, Vertices: m.Sampled.Original[:n]}
		} else {
			hop = m.edges.Hop(&m.Sampled, l, a.needs, m.Train)
			hop.Vertices = m.Sampled.Original[:hop.Destinations]
			if m.edgesOf.cols > 0 {
				hop.EdgeRows = m.edgesOf.hop(edges, hop.Edges)
				edges += hop.Edges
			}
		}
		hop.Others = others
		hop.Dropout = compute.NewDropoutKey(k.Seed, k.Epoch, k.Step, k.Stream, l)
		b.Hops[l] = hop
	}
}

// fetched is the Rows of ranks that have the rows of their own vertices and fetch others. A fetch
// takes two collectives: ids out and rows back. If the ranks of a node fetch as one, it takes two
// more among these ranks: wants before, and rows after. The field `readers` says for which vertices
// and ranks this rank finds rows, and keeper which rows it caches.
type fetched struct {
	assembly
	x       *exchange.Exchange
	rank    int
	readers readers
	keeper  keeper
}

// readers says which rows a rank finds, for itself and for the ranks that share its minibatches.
type readers interface {
	// vertices returns the vertices whose rows this rank finds.
	vertices(*Minibatch) []graph.VertexID
	// edges returns the edges whose rows may come as sums, once the vertices are located; nil for
	// none.
	edges(f *fetched, m *Minibatch) *exchange.Edges
	// request lists which rows are fetched from which rank.
	request(f *fetched, m *Minibatch, w exchange.Wants) error
	// serve is called once the requests of other ranks have arrived, before their rows are copied.
	serve(*Minibatch) error
	// stages returns the stages from the arrival of all fetched rows to the batch. The first stage
	// comes from keeper.last.
	stages(*fetched) []Stage
	// counters corrects how rows are counted, if some do not count as fetched.
	counters(*Minibatch, *trace.Counters)
}

// keeper says which fetched rows stay in this rank's cache.
type keeper interface {
	// plan returns the stages from the blocks to the list of rows to fetch.
	plan(*fetched) []Stage
	// passOn is the stage in which a rank that fetches for its node (buys) copies rows for the
	// other ranks of the node.
	passOn(*fetched) Stage
	// last is the last stage in which the minibatch reads this rank's cache. It calls do.
	last(f *fetched, p trace.Phase, name string, do func(*Minibatch) error) Stage
	release(*Minibatch)
	bytes() int64 // memory of idle buffers
	free()
}

func newFetched(s *Strategy, r readers) *fetched {
	return &fetched{assembly{s.needs, max(1, s.layers), s.landing}, s.o.Exchange, s.o.Comm.Rank(),
		r, newKeeper(&s.o)}
}

// stages implements Rows.
func (f *fetched) stages() []Stage {
	r := f.route()
	stages := f.keeper.plan(f)
	if !f.x.KeepsBought() {
		stages = append(stages, r.unite()...)
	}
	stages = append(append(stages, r.ask()), r.rows()...)
	if f.x.Buys() {
		stages = append(stages, f.keeper.passOn(f), r.share())
	}
	return append(stages, f.readers.stages(f)...)
}

// route returns the route by which the feature rows of vertices are fetched.
func (f *fetched) route() route {
	return route{x: f.x, rank: f.rank, serve: f.readers.serve,
		fetch: func(m *Minibatch) *exchange.Plan { return &m.Fetch }}
}

// group sorts the edges of the input layer into the order in which their rows are added. The
// argument `parts` has the part of each frontier vertex.
func (f *fetched) group(m *Minibatch, parts []uint16) {
	m.grouped = m.edges.Group(&m.Sampled, f.needs, parts, f.x.Parts())
}

// assembleRows makes the batch when all rows have arrived.
func (f *fetched) assembleRows(m *Minibatch) error {
	f.batch(m)
	return f.landing.land(m, &m.Batch.Hops[0], f.needs)
}

func (f *fetched) counters(m *Minibatch) (trace.Counters, error) {
	c := m.Fetch.Counters
	c.Evictions, c.Replacements = int64(m.Decision.Evictions), int64(m.Decision.Replacements)
	c.Loaded = c.Frontier
	err := c.Check(len(f.readers.vertices(m)))
	if x := m.card.drawn; x != nil { // the device has this rank's other rows
		own := int64(x.Frontier() - len(x.Missing))
		c.Frontier, c.Local, c.Loaded = c.Frontier+own, c.Local+own, c.Loaded+own
	}
	f.readers.counters(m, &c)
	return c, err
}

func (f *fetched) release(m *Minibatch)  { f.keeper.release(m) }
func (f *fetched) bytes() (int64, int64) { return f.x.Bytes(), f.keeper.bytes() }

func (f *fetched) close() error {
	f.keeper.free()
	return nil
}

// frontier says which rows a rank finds if it has minibatches of its own: the rows of its frontier.
type frontier struct{ x *exchange.Exchange }

func (frontier) vertices(m *Minibatch) []graph.VertexID {
	if m.card.drawn != nil {
		return m.card.missing()
	}
	return m.edges.Sources(&m.Sampled)
}
func (frontier) serve(*Minibatch) error               { return nil }
func (frontier) counters(*Minibatch, *trace.Counters) {}
func (frontier) edges(f *fetched, m *Minibatch) *exchange.Edges {
	if m.card.drawn != nil { // the device has put its edges in order
		return nil
	}
	f.group(m, m.Fetch.Parts)
	return m.grouped
}
func (r frontier) request(_ *fetched, m *Minibatch, w exchange.Wants) error {
	r.x.Request(&m.Fetch, r.vertices(m), w)
	return nil
}
func (frontier) stages(f *fetched) []Stage {
	return []Stage{f.keeper.last(f, trace.Gather, "assemble", f.assembleRows)}
}

// newKeeper makes the keeper for the cache of the options.
func newKeeper(o *Options) keeper {
	if o.Policy == nil {
		return settled{}
	}
	d := &deciding{policy: o.Policy, looks: o.Ahead > 0,
		buffers: make(chan bufferSet, o.Depth+1)}
	for range cap(d.buffers) * min(1, o.Ahead) {
		d.buffers <- bufferSet{}
	}
	if o.Exchange.KeepsBought() {
		return divided{d}
	}
	return d
}

// settled is the keeper of a static cache, or of none.
type settled struct{}

func (settled) plan(f *fetched) []Stage {
	return []Stage{local(trace.Plan, "plan", f.requestAll)}
}

// requestAll lists all rows that a minibatch finds neither in memory nor in a cache that stays.
func (f *fetched) requestAll(m *Minibatch) error {
	if err := f.x.Find(&m.Fetch, f.readers.vertices(m)); err != nil {
		return err
	}
	return f.readers.request(f, m, exchange.Wants{Edges: f.readers.edges(f, m)})
}

func (settled) passOn(f *fetched) Stage { return f.route().passOn() }

func (settled) last(_ *fetched, p trace.Phase, name string, do func(*Minibatch) error) Stage {
	return local(p, name, do)
}
func (settled) release(*Minibatch) {}
func (settled) bytes() int64       { return 0 }
func (settled) free()              {}

// deciding is the keeper of a cache with a policy. Decisions are made in the order of minibatches,
// and so are the reads and writes of the cache.
type deciding struct {
	policy cache.Policy
	// Whether the policy looks ahead. If so, the first stage that is not local is the stage
	// "decide" or, if ranks of a node divide caches, the stage "wants".
	looks bool
	// Idle sets of buffers. A minibatch has a set from its decision to the end of its training.
	// There are none unless the policy looks ahead.
	buffers chan bufferSet
}

// bufferSet holds the arrays that a minibatch needs only from its decision to the end of its
// training. They are its largest arrays. With a wide window most minibatches still wait for their
// decision, and need no such arrays.
type bufferSet struct {
	own, aggregate, all []float32
	types               [][]float32
	rows                exchange.Buffers
}

func (d *deciding) plan(f *fetched) []Stage {
	var arrive func(*Minibatch) error
	if d.looks {
		arrive = d.feed
	}
	return []Stage{
		local(trace.Plan, "plan", func(m *Minibatch) error {
			if err := f.x.Locate(&m.Fetch, f.readers.vertices(m)); err != nil {
				return err
			}
			m.summable = f.readers.edges(f, m)
			if d.looks && m.Train {
				f.x.Value(&m.Fetch, m.summable)
			}
			return nil
		}),
		ordered(trace.Score, "decide", arrive, d.decide),
		local(trace.Plan, "request", func(m *Minibatch) error { return d.request(f, m) }),
	}
}

// feed tells a policy that looks ahead what a later minibatch will read.
func (d *deciding) feed(m *Minibatch) error {
	if m.Train {
		d.policy.Feed(m.Fetch.RemoteIDs, m.Fetch.Worth)
	}
	return nil
}

// decide asks the policy which remote rows are in the buffer. The answer depends on the earlier
// minibatches.
func (d *deciding) decide(m *Minibatch) error {
	d.step(m, m.Fetch.RemoteIDs)
	return nil
}

func (d *deciding) step(m *Minibatch, remote []graph.VertexID) {
	if m.Train {
		d.policy.Step(remote, &m.Decision)
	} else {
		m.Decision.Clear()
	}
}

// request lists the rows and sums to fetch and their owners, after the decision.
func (d *deciding) request(f *fetched, m *Minibatch) error {
	d.lend(m)
	decided := &m.Decision
	m.kept = decided.Kept(m.kept)
	return f.readers.request(f, m, exchange.Wants{Slot: decided.Slot, Early: decided.Early,
		Kept: m.kept, Edges: m.summable})
}

func (*deciding) passOn(f *fetched) Stage { return settled{}.passOn(f) }

// last reads the rows of a minibatch, then copies the rows to be cached into the buffer. It runs in
// the order of the decisions, so that the next minibatch finds its rows there.
func (d *deciding) last(f *fetched, p trace.Phase, name string, do func(*Minibatch) error) Stage {
	return ordered(p, name, nil, func(m *Minibatch) error {
		if err := do(m); err != nil {
			return err
		}
		f.keep(m)
		return nil
	})
}

// keep copies fetched rows to the slots that the decision gives them.
func (f *fetched) keep(m *Minibatch) {
	for _, i := range m.Decision.Insert {
		f.x.Keep(&m.Fetch, i.From(), i.Slot())
	}
}

// divided is the keeper of a cache that changes and that the ranks of a node divide. Each rank
// keeps rows that it fetches for the whole node (buys). Its cache decides about the rows that the
// node's ranks want from it. These are known only after a collective of the node.
type divided struct{ *deciding }

func (d divided) plan(f *fetched) []Stage {
	var arrive func(*Minibatch) error
	if d.looks {
		arrive = d.feed
	}
	return []Stage{local(trace.Plan, "plan", f.requestAll), f.route().wants(),
		local(trace.Slice, "merge", func(m *Minibatch) error { return f.x.Merge(&m.Fetch) }),
		ordered(trace.Score, "decide", arrive, d.decide),
		local(trace.Slice, "buy", func(m *Minibatch) error {
			d.lend(m)
			f.x.Buy(&m.Fetch, m.Decision.Slot, m.Decision.Early)
			return nil
		})}
}

func (d divided) feed(m *Minibatch) error {
	if m.Train {
		d.policy.Feed(m.Fetch.Wanted(), nil)
	}
	return nil
}

func (d divided) decide(m *Minibatch) error {
	d.deciding.step(m, m.Fetch.Wanted())
	return nil
}

// passOn copies the rows that ranks want, then caches those to keep, in the order of decisions.
func (d divided) passOn(f *fetched) Stage {
	return ordered(trace.Slice, "pass on", nil, func(m *Minibatch) error {
		f.x.PassOn(&m.Fetch)
		f.keep(m)
		return nil
	})
}

func (d divided) last(f *fetched, p trace.Phase, name string, do func(*Minibatch) error) Stage {
	return settled{}.last(f, p, name, do)
}

// lend gives a decided minibatch a set of buffers. At most Depth+1 minibatches of the pipeline have
// a set. If a run stops, an unconsumed minibatch keeps its set.
func (d *deciding) lend(m *Minibatch) {
	if m.lent || !d.looks {
		return
	}
	select {
	case b := <-d.buffers:
		m.swap(&b)
		m.lent = true
	default:
	}
}

func (d *deciding) release(m *Minibatch) {
	if !m.lent {
		return
	}
	var b bufferSet
	m.swap(&b)
	m.lent = false
	d.buffers <- b
}

func (d *deciding) bytes() (idle int64) {
	for range len(d.buffers) {
		b := <-d.buffers
		idle += int64(cap(b.own)+cap(b.aggregate)+cap(b.all))*4 + b.rows.Bytes()
		for _, rows := range b.types {
			idle += int64(cap(rows)) * 4
		}
		d.buffers <- b
	}
	return idle
}

func (d *deciding) free() {
	close(d.buffers)
	for b := range d.buffers {
		mem.Free(b.own)
		mem.Free(b.aggregate)
		mem.Free(b.all)
		for _, rows := range b.types {
			mem.Free(rows)
		}
		b.rows.Free()
	}
}

// swap exchanges the buffers of a minibatch with those of the set b.
func (m *Minibatch) swap(b *bufferSet) {
	m.own, b.own = b.own, m.own
	m.aggregate, b.aggregate = b.aggregate, m.aggregate
	m.all, b.all = b.all, m.all
	m.types, b.types = b.types, m.types
	m.Fetch.Lend(&b.rows)
}
