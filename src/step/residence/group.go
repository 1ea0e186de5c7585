package residence

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// groupCache is one table in shared memory. It holds the caches of all ranks of a node, and all
// these ranks read it. It implements exchange.SharedCache.
//
//	table  rank 0 of the node [S rows] | rank 1 [S rows] | ...     written once, each rank its own
//	index  vertex ──> row of the rank's own copy, else of the copy of the first rank that has one
//
// policy.Settings.Place decides which rank holds which row, from the policy's scores summed over
// the ranks of the node. Vertices that a rank of the node owns are not cached, because they are
// read from its part, unless rows come from the files.
type groupCache struct {
	index      *cache.Index
	table      *mem.Shared
	ranks      int // number of ranks of the node
	first, end int // range of the rank's own rows; the last ones may be vacant
}

// vacant is the vertex number stored for a row of the table that holds no vertex's row.
const vacant graph.VertexID = -1

// Row implements exchange.Cache.
func (c *groupCache) Row(v graph.VertexID) int { return int(c.index.Get(v)) }

// Table implements exchange.Cache.
func (c *groupCache) Table() []byte { return c.table.Bytes() }

// Own implements exchange.SharedCache.
func (c *groupCache) Own() (first, end int) { return c.first, c.end }

func (c *groupCache) bytes() (rows, index int64) {
	return int64(len(c.Table()) / c.ranks), c.index.Bytes()
}

func (c *groupCache) memory() (allocated, shared trace.Memory) {
	return trace.Memory{{Name: trace.MemCacheIndex, Bytes: c.index.Bytes()}},
		trace.Memory{{Name: trace.MemCacheRows, Bytes: int64(len(c.Table()))}}
}

func (c *groupCache) free() error {
	c.index.Free()
	return c.table.Close()
}

// openGroup places rows on the ranks of a node, fetches this rank's share, and predicts the rows
// that remain to be fetched. Collective.
func (s *Store) openGroup(c *Cache, m *access.Graph) error {
	node, err := comm.NodeOf(s.Comm, s.RanksPerNode)
	if err != nil {
		return err
	}
	defer node.Free()
	held, slots, err := s.placeGroup(c, m, node)
	if err != nil {
		return fmt.Errorf("placing a cache over the ranks of a node: %w", err)
	}
	defer mem.Free(held)
	g := &groupCache{ranks: node.Size(), first: node.Rank() * slots, end: (node.Rank() + 1) * slots}
	if g.table, err = s.shareTable(node, slots); err != nil {
		return err
	}
	g.index = s.indexGroup(held, slots, node.Rank())
	c.fixed, c.closers = g, append(c.closers, g.free)
	s.SetUp.Done(trace.SetUpRank)

	union := g.union(held)
	defer mem.Free(union)
	if c.Expected, err = s.predict(m, union); err != nil {
		return err
	}
	s.SetUp.Done(trace.SetUpPredict)
	rowBytes := s.shards().RowBytes()
	own := held[g.first:g.end]
	if n := slices.Index(own, vacant); n >= 0 {
		own = own[:n]
	}
	rows := g.Table()[g.first*rowBytes : (g.first+len(own))*rowBytes]
	if err := s.fetchRows(own, table{rows, []int{len(own)}}); err != nil {
		return fmt.Errorf("filling the cache: %w", err)
	}
	if err = node.StartBarrier().Wait(); err != nil { // rows are written before a peer reads them
		return err
	}
	err = s.holdCache(c, node, g.first, rows)
	s.SetUp.Done(trace.SetUpFill)
	return err
}

// placeGroup returns the vertices whose rows the ranks of the node hold, rank after rank, and how
// many slots for rows each rank has. The list is the same on all ranks of the node. A rank that
// fills fewer slots has vacant ones at the end. Collective.
func (s *Store) placeGroup(
	c *Cache, m *access.Graph, node comm.Comm,
) (held []graph.VertexID, slots int, err error) {
	capacity, err := s.capacity(c, m)
	var score []float32
	if err == nil {
		score, err = c.Policy().Rank(m, s.workload())
	}
	defer func() { mem.Free(score) }()
	if err = comm.Agree(s.Comm, err); err != nil {
		return nil, 0, err
	}
	for _, r := range s.Job.Local(s.Comm.Rank()) {
		clear(score[r.First:r.End])
	}
	if capacity, err = comm.AgreeSum(node, capacity); err != nil {
		return nil, 0, err
	}
	capacity /= node.Size()
	if err := addUp(node, score, s.Host.AddInto); err != nil {
		return nil, 0, err
	}
	if err := s.measurePeers(c, node, capacity); err != nil {
		return nil, 0, fmt.Errorf("measuring the cost of a peer's row: %w", err)
	}
	var place *cache.Placement
	if node.Rank() == 0 { // on one rank only, because it takes up to 8 bytes a vertex
		own := s.Job.Owned(s.Job.Neighbours(s.Comm.Rank()))
		place, err = c.Settings.Place(score, own, capacity)
		if err == nil {
			defer place.Free()
			for d := range node.Size() {
				slots = max(slots, len(place.Held(d)))
			}
		}
	}
	if err = comm.Agree(s.Comm, err); err != nil {
		return nil, 0, err
	}
	if slots, err = comm.AgreeMax(node, slots); err != nil {
		return nil, 0, err
	}
	var mine []graph.VertexID
	if place != nil {
		mine = mem.Make[graph.VertexID](slots * node.Size())
		defer mem.Free(mine)
		for d := range node.Size() {
			own := mine[d*slots : (d+1)*slots]
			for i := copy(own, place.Held(d)); i < slots; i++ {
				own[i] = vacant
			}
		}
	}
	held = mem.Make[graph.VertexID](slots * node.Size())
	counts := make([]int, node.Size())
	counts[0] = len(held)
	return held, slots, node.StartAllgatherv(mem.Bytes(mine), mem.Bytes(held), counts, 4).Wait()
}

// addUpElements is how many elements are summed at a time, so that little memory is under way.
const addUpElements = 1 << 20

// addUp sums x over the ranks of c, with the same bits on all of them. Collective.
func addUp(c comm.Comm, x []float32, add func(sum, x []float32)) error {
	sums, err := comm.NewSummer(c, comm.SumOptions{Mode: comm.SumReproducible, Add: add})
	if err != nil {
		return err
	}
	for len(x) > 0 {
		n := min(len(x), addUpElements)
		if err := sums.Start(x[:n]).Wait(); err != nil {
			return err
		}
		x = x[n:]
	}
	return sums.Close()
}

// sharedMemory is the directory of shared memory. Tests choose another.
var sharedMemory = "/dev/shm"

// shareTable makes the table of a node's caches, and reserves memory for this rank's share. The
// argument `slots` is the number of rows of each rank. Collective.
func (s *Store) shareTable(node comm.Comm, slots int) (*mem.Shared, error) {
	share := slots * s.shards().RowBytes()
	var table *mem.Shared
	var path string
	var err error
	if node.Rank() == 0 {
		if table, err = mem.CreateShared(sharedMemory, node.Size()*share); err == nil {
			path = table.Path()
		}
	}
	path, failed := comm.Bcast(node, path)
	if failed != nil {
		if table != nil {
			failed = errors.Join(failed, table.Unlink(), table.Close())
		}
		return nil, failed
	}
	if node.Rank() > 0 && path != "" {
		table, err = mem.OpenShared(path)
	}
	if err == nil && table != nil {
		err = table.Reserve(node.Rank()*share, (node.Rank()+1)*share)
	}
	switch {
	case errors.Is(err, unix.ENOSPC):
		err = fmt.Errorf(
			"%w; the caches of a node take %d bytes there; enlarge it (docker: --shm-size), or "+
				"set cache.placement=own", err, node.Size()*share)
	case err != nil:
		err = fmt.Errorf("%w; the caches of a node need %d bytes there: make the directory "+
			"writable, or set cache.placement=own", err, node.Size()*share)
	}
	err = comm.Agree(s.Comm, err)
	if node.Rank() == 0 && table != nil { // all ranks have mapped it, or never will
		err = errors.Join(err, table.Unlink())
	}
	if err != nil && table != nil {
		return nil, errors.Join(err, table.Close())
	}
	return table, err
}

// indexGroup returns an index that maps each vertex whose row the node holds to the row of the
// table from which this rank reads it.
func (s *Store) indexGroup(held []graph.VertexID, slots, self int) *cache.Index {
	index := cache.NewIndex(int(s.shards().Vertices), len(held), cache.IndexAuto)
	enter := func(rank int) {
		for row := rank * slots; row < (rank+1)*slots && held[row] != vacant; row++ {
			index.Set(held[row], int32(row))
		}
	}
	if slots == 0 {
		return index
	}
	for rank := len(held)/slots - 1; rank >= 0; rank-- {
		enter(rank)
	}
	enter(self)
	return index
}

// union lists the vertices that the node holds. A vertex that several ranks hold is listed once.
func (c *groupCache) union(held []graph.VertexID) []graph.VertexID {
	all := mem.Make[graph.VertexID](len(held))[:0]
	for row, v := range held {
		if v != vacant && int(c.index.Get(v)) == row {
			all = append(all, v)
		}
	}
	return all
}
