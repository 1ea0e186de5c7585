package train

import (
	"fmt"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/policy"
	"halognn/src/trace"
)

// staticCache holds copies of a fixed set of remote rows: exchange.Cache.
type staticCache struct {
	index *cache.Index
	rows  []byte
}

// Row implements exchange.Cache.
func (c *staticCache) Row(v graph.VertexID) int { return int(c.index.Get(v)) }

// Table implements exchange.Cache.
func (c *staticCache) Table() []byte { return c.rows }

func (c *staticCache) free() {
	c.index.Free()
	mem.Free(c.rows)
}

// openCache ranks the remote vertices, fetches the rows of the best, and predicts what is left to fetch. It returns nil for policy
// none, for a model without neighbours, and on a single node, where nothing is remote. Collective.
func (s *session) openCache() (exchange.Cache, error) {
	if s.policy().None() || !s.job.Reads() || s.nodes == 1 {
		return nil, nil
	}
	if s.o.Partitioned {
		return s.openApart()
	}
	m, err := access.New(&s.topology.Graph, access.Options{Workers: s.Workers})
	if err = Agree(s.Comm, err); err != nil {
		return nil, err
	}
	defer m.Free()
	if !s.policy().Static() {
		s.dynamic, err = s.openDynamic(m)
		return nil, err
	}
	if s.o.Cache.Placement == policy.PlacementGroup {
		return s.openGroup(m)
	}
	held, err := s.rankVertices(m)
	if err = Agree(s.Comm, err); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	defer mem.Free(held)
	s.SetUp.Done(trace.SetUpRank)
	if s.expected, err = s.predict(m, held); err != nil {
		return nil, err
	}
	s.SetUp.Done(trace.SetUpPredict)
	c, err := s.fillCache(held)
	if err != nil {
		return nil, fmt.Errorf("filling the cache: %w", err)
	}
	s.SetUp.Done(trace.SetUpFill)
	s.closers = append(s.closers, func() error { c.free(); return nil })
	return c, nil
}

// policy is that of the cache.
func (s *session) policy() *policy.Policy { return policy.Find(s.o.Cache.Policy) }

// local returns the vertices whose rows are read here: ranges of own and peer parts.
func (s *session) local() []access.Range { return s.job.Local(s.Comm.Rank()) }

// rankVertices returns the remote vertices to keep, in ascending order.
func (s *session) rankVertices(m *access.Graph) ([]graph.VertexID, error) {
	capacity, err := s.cacheCapacity(m)
	if err != nil {
		return nil, err
	}
	return s.policy().Hold(m, s.reader(), capacity)
}

// cacheCapacity returns the rows that a rank's cache holds.
func (s *session) cacheCapacity(m *access.Graph) (int, error) {
	return s.job.Capacity(m, s.Comm.Rank(), &s.o.Cache)
}

// reader describes the minibatches of this rank.
func (s *session) reader() *access.Reader { return s.job.Workload(s.Comm.Rank(), s.Workers) }

// predict returns the rows that a step of all ranks is expected to fetch: SALIENT++'s model, which a run is held against.
// Collective.
func (s *session) predict(m *access.Graph, held []graph.VertexID) (float64, error) {
	rows, err := s.expectedRemote(m, held)
	if err := Agree(s.Comm, err); err != nil {
		return 0, fmt.Errorf("predicting traffic: %w", err)
	}
	return comm.AgreeSum(s.Comm, rows)
}

// expectedRemote returns the remote rows beside the held ones that a step of this rank is expected to read.
func (s *session) expectedRemote(m *access.Graph, held []graph.VertexID) (float64, error) {
	r := s.reader()
	p, err := m.Reads(r)
	if err != nil {
		return 0, err
	}
	defer mem.Free(p)
	rows, err := access.Expected(p, r.Local, held)
	return rows * float64(r.Count), err
}

// fillRows is how many rows of a cache are fetched at a time.
const fillRows = 1 << 16

// fillCache fetches the rows of the held vertices. Collective.
func (s *session) fillCache(held []graph.VertexID) (*staticCache, error) {
	c := &staticCache{
		index: cache.NewIndex(int(s.Shards.Vertices), len(held), cache.IndexAuto), rows: mem.Make[byte](len(held) * s.Shards.RowBytes()),
	}
	for i, v := range held {
		c.index.Set(v, int32(i))
	}
	return c, s.fetchRows(held, c.rows)
}

// fetchRows fetches the rows of the given vertices, in bulk, into dst. Collective.
func (s *session) fetchRows(ids []graph.VertexID, dst []byte) error {
	fetch, err := s.newFetcher(s.tables, s.Shards.Features, s.Shards.Type(), nil, nil)
	if err != nil {
		return err
	}
	rounds, err := comm.AgreeMax(s.Comm, (len(ids)+fillRows-1)/fillRows)
	if err != nil {
		return err
	}
	rowBytes := s.Shards.RowBytes()
	var plan exchange.Plan
	defer plan.Free()
	for round := range rounds {
		lo, hi := min(len(ids), round*fillRows), min(len(ids), (round+1)*fillRows)
		if err := fetch.fetch(&plan, ids[lo:hi]); err != nil {
			return err
		}
		s.watch.Alive() // a slow network leaves so little to compute that nothing else would show it
		for i, ref := range plan.Rows.Of {
			copy(dst[(lo+i)*rowBytes:(lo+i+1)*rowBytes], plan.Rows.Tables[ref.Table()][ref.Row()*rowBytes:])
		}
	}
	return fetch.close()
}

// fetch brings the rows of ids here, outside any pipeline. Collective.
func (f *fetcher) fetch(p *exchange.Plan, ids []graph.VertexID) error {
	if err := f.Plan(p, ids); err != nil {
		return err
	}
	if err := f.StartCounts(p).Wait(); err != nil {
		return err
	}
	if err := f.FinishCounts(p); err != nil {
		return err
	}
	if err := f.StartIDs(p).Wait(); err != nil {
		return err
	}
	if err := f.SliceRows(p); err != nil {
		return err
	}
	return f.StartRows(p).Wait()
}
