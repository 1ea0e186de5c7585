package residence

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Position is where training stands: the epoch, from 1, and this rank's next minibatch in it.
type Position struct{ Epoch, Item int }

// Cache is a rank's cache: the remote rows that the rank keeps copies of.
type Cache struct {
	Settings policy.Settings
	Expected float64   // predicted rows that a step of all ranks transfers; 0 without a cache
	Peers    *PeerCost // cost of a peer's row; nil unless it was measured
	// Near are the vertices that this rank's sampler draws with a higher probability than others.
	// In the last hop these are the vertices whose rows the rank reads in the memory of its node:
	// in parts, or in a cache that does not change. In other hops they are the vertices with the
	// most paths to these. There are none if the job does not ask for them, or if all rows are at
	// hand.
	Near sample.Near

	cards   *cards        // for a device with its own memory; nil for others
	fixed   fixedCache    // a static cache; nil for none
	dynamic *dynamicCache // a dynamic cache; nil for none
	closers mem.Closers
}

// fixedCache is a cache whose rows do not change during training.
type fixedCache interface {
	exchange.Cache
	// bytes returns the memory of the rank's own cached rows, and the memory of its index.
	bytes() (rows, index int64)
	// memory returns the bytes that package mem has allocated, and the bytes that the ranks of the
	// node share.
	memory() (allocated, shared trace.Memory)
}

// OpenCache opens the cache of settings o for the steps from a position on: it ranks the remote
// vertices, fetches the rows of the best ones, and predicts the rows still to be fetched. The cache
// is empty with policy none, for a model without neighbours, and if all rows are read in the memory
// of the node. Then it determines the near vertices, if draws depend on these. Collective. The
// cache must be closed even after an error.
func (s *Store) OpenCache(o policy.Settings, at Position) (*Cache, error) {
	c := &Cache{Settings: o}
	if c.Policy().None() && !s.Job.FavoursNear() || !s.Job.Reads() || s.Job.AllInMemory() {
		return c, nil
	}
	if s.Job.Partitioned && !s.Job.FavoursNear() {
		return c, s.openPartitioned(c, at)
	}
	return c, s.withGraph(o.Policy, func(m *access.Graph) error {
		err := s.openAnalysed(c, m, at)
		if err == nil && s.Job.FavoursNear() {
			err = s.openNear(c, m)
		}
		return err
	})
}

// openAnalysed opens a cache that needs analyses of the whole graph. Collective.
func (s *Store) openAnalysed(c *Cache, m *access.Graph, at Position) error {
	switch {
	case c.Policy().None():
		return nil
	case !c.Policy().Static():
		return s.openDynamic(c, m, at)
	case c.Settings.Shared():
		return s.openGroup(c, m)
	}
	return s.openStatic(c, m)
}

// openNear determines the vertices that are near with this cache. Collective.
func (s *Store) openNear(c *Cache, m *access.Graph) error {
	held := access.NewSet(m.NumVertices())
	defer held.Free()
	held.AddRanges(s.Job.Local(s.Comm.Rank()))
	if c.fixed != nil {
		for v := range graph.VertexID(m.NumVertices()) {
			if c.fixed.Row(v) >= 0 {
				held.Add(v)
			}
		}
	}
	var err error
	c.Near, err = m.Near(held, s.Job.Sample, s.Job.Locality.Vertices)
	c.closers = append(c.closers, func() error { c.Near.Free(); return nil })
	s.SetUp.Done(trace.SetUpRank)
	if err = comm.Agree(s.Comm, err); err != nil {
		return fmt.Errorf("sample.locality: %w", err)
	}
	return nil
}

// Policy returns the policy of the cache.
func (c *Cache) Policy() *policy.Policy { return policy.Find(c.Settings.Policy) }

// Dynamic returns the policy of a dynamic cache and its window in minibatches; nil for a static
// cache.
func (c *Cache) Dynamic() (decides cache.Policy, window int) {
	if c.dynamic == nil {
		return nil, 0
	}
	return c.dynamic.policy, c.dynamic.window
}

// kept returns how many rows of each kind the cache has room for; nil without a cache.
func (c *Cache) kept() []int {
	switch fixed := c.fixed.(type) {
	case *staticCache:
		return fixed.counts
	case *groupCache:
		return []int{fixed.end - fixed.first}
	}
	if c.dynamic != nil {
		return c.dynamic.counts
	}
	return nil
}

// buffer returns the table of a dynamic cache.
func (c *Cache) buffer() []byte {
	if c.dynamic == nil {
		return nil
	}
	return c.dynamic.rows
}

// Memory returns the memory of the cache: bytes that package mem has allocated, and bytes that the
// ranks of the node share.
func (c *Cache) Memory() (allocated, shared trace.Memory) {
	switch {
	case c.fixed != nil:
		return c.fixed.memory()
	case c.dynamic != nil:
		return cacheMemory(int64(len(c.dynamic.rows)), c.dynamic.policy.Bytes()), nil
	}
	return nil, nil
}

func cacheMemory(rows, index int64) trace.Memory {
	return trace.Memory{
		{Name: trace.MemCacheRows, Bytes: rows}, {Name: trace.MemCacheIndex, Bytes: index},
	}
}

// Close frees the cache. No minibatch may be in preparation. Collective if the ranks of a node
// share the cache.
func (c *Cache) Close() error { return c.closers.Close() }

// staticCache holds copies of a fixed set of remote rows. It implements exchange.Cache.
type staticCache struct {
	index *cache.Index
	table
	starts []int64 // for sparse rows: first entry of each row
}

// Row implements exchange.Cache.
func (c *staticCache) Row(v graph.VertexID) int {
	row := int(c.index.Get(v))
	if c.starts != nil && row >= 0 {
		return int(c.starts[row])
	}
	return row
}

// Table implements exchange.Cache.
func (c *staticCache) Table() []byte { return c.rows }

func (c *staticCache) bytes() (rows, index int64) {
	return int64(len(c.rows)), c.index.Bytes() + 8*int64(len(c.starts))
}

func (c *staticCache) memory() (allocated, shared trace.Memory) {
	return cacheMemory(c.bytes()), nil
}

func (c *staticCache) free() error {
	c.index.Free()
	mem.Free(c.rows)
	mem.Free(c.starts)
	return nil
}

// table holds the rows of a cache, kind by kind, in the exchange's order of kinds.
type table struct {
	rows   []byte
	counts []int // [kinds] number of rows
}

// newTable makes a table for the given number of rows of each kind.
func newTable(s *Store, counts []int) table {
	return table{mem.Make[byte](exchange.TableBytes(s.kinds, counts)), counts}
}

// openStatic ranks the remote vertices and fetches the rows of the best. Collective.
func (s *Store) openStatic(c *Cache, m *access.Graph) error {
	held, err := s.rankVertices(c, m)
	if err = comm.Agree(s.Comm, err); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	defer mem.Free(held)
	s.SetUp.Done(trace.SetUpRank)
	if c.Expected, err = s.predict(m, held); err != nil {
		return err
	}
	s.SetUp.Done(trace.SetUpPredict)
	return s.fillStatic(c, held)
}

// fillStatic fetches the rows of the vertices in a static cache. Collective.
func (s *Store) fillStatic(c *Cache, held []graph.VertexID) error {
	kinds := s.Job.Kinds()
	counts := kinds.PerKind(held)
	index := cache.NewIndex(int(s.shards().Vertices), len(held), cache.IndexAuto)
	fixed := &staticCache{index: index}
	if s.Job.Sparse {
		fixed.table = table{mem.Make[byte](int(kinds.Sizes(held))), counts}
		fixed.starts = mem.Make[int64](len(held))
		for i, end := 0, int64(0); i < len(held); i++ {
			fixed.starts[i] = end
			end += kinds.Ends[held[i]+1] - kinds.Ends[held[i]]
		}
	} else {
		fixed.table = newTable(s, counts)
	}
	c.fixed, c.closers = fixed, append(c.closers, fixed.free)
	next := make([]int32, len(counts))
	for _, v := range held {
		kind := kinds.Of(v)
		fixed.index.Set(v, next[kind])
		next[kind]++
	}
	err := s.fetchRows(held, fixed.table)
	if err == nil {
		err = s.holdCache(c, nil, 0, fixed.rows)
	}
	if err != nil {
		return fmt.Errorf("filling the cache: %w", err)
	}
	s.SetUp.Done(trace.SetUpFill)
	return nil
}

// rankVertices returns the remote vertices to keep, in ascending order.
func (s *Store) rankVertices(c *Cache, m *access.Graph) ([]graph.VertexID, error) {
	capacity, err := s.capacity(c, m)
	if err != nil {
		return nil, err
	}
	return c.Policy().Hold(m, s.workload(), capacity)
}

func (s *Store) capacity(c *Cache, m *access.Graph) (int, error) {
	return s.Job.Capacity(m, s.Comm.Rank(), &c.Settings)
}

// predict returns the rows that a step of all ranks is expected to fetch, by SALIENT++'s model.
// Runs report it next to the counted rows. If draws depend on the cache, there is no such
// prediction, and the result is 0. Collective.
func (s *Store) predict(m *access.Graph, held []graph.VertexID) (float64, error) {
	if s.Job.FavoursNear() {
		return 0, nil
	}
	rows, err := s.expectedRemote(m, held)
	if err := comm.Agree(s.Comm, err); err != nil {
		return 0, fmt.Errorf("predicting traffic: %w", err)
	}
	return comm.AgreeSum(s.Comm, rows)
}

// expectedRemote returns the remote rows outside the cache that a step of this rank is expected to
// read.
func (s *Store) expectedRemote(m *access.Graph, held []graph.VertexID) (float64, error) {
	r := s.workload()
	p, err := m.Reads(r)
	if err != nil {
		return 0, err
	}
	defer mem.Free(p)
	rows, err := access.Expected(p, r.Local, held)
	return rows * float64(r.Count), err
}

// fillRows is the number of rows that are fetched at a time to fill a cache.
const fillRows = 1 << 16

// fetchRows fetches the rows of the given vertices in bulk, into the first rows of their kinds.
// Collective.
func (s *Store) fetchRows(ids []graph.VertexID, dst table) error {
	fetch, err := s.Fetcher(nil, false)
	if err != nil {
		return err
	}
	rounds, err := comm.AgreeMax(s.Comm, (len(ids)+fillRows-1)/fillRows)
	if err != nil {
		return err
	}
	left := exchange.CutTable(dst.rows, s.kinds, dst.counts)
	var plan exchange.Plan
	defer plan.Free()
	for round := range rounds {
		lo, hi := min(len(ids), round*fillRows), min(len(ids), (round+1)*fillRows)
		if err := fetch.Fetch(&plan, ids[lo:hi]); err != nil {
			return err
		}
		if s.Alive != nil { // on a slow network only this shows progress
			s.Alive()
		}
		for i, ref := range plan.Rows.Of {
			kind := int(plan.Parts[i]) % len(s.kinds)
			unit := s.kinds[kind].RowBytes()
			size := unit
			if s.Job.Sparse { // sparse tables count entries
				size *= int(plan.Rows.Lengths[i])
			}
			copy(left[kind][:size], plan.Rows.Tables[ref.Table()][ref.Row()*unit:])
			left[kind] = left[kind][size:]
		}
	}
	return fetch.Close()
}
