package residence

import (
	"errors"
	"math"
	"slices"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
)

// PeerCost is what reading rows costs where the ranks of a node read each other's caches: means
// over all ranks, which measure at the same time. "peer_cost" of the cache in summary.json.
type PeerCost struct {
	// the value used for `cache.peer_cost`: (peer - own) / (far - own), from 0 to 1, rounded to two
	// digits
	Ratio float64 `json:"ratio"`
	// seconds to read a row from the rank's own part of a table in shared memory; with a GPU 0,
	// because kernels read the row in place
	Own float64 `json:"own_seconds"`
	// seconds to read a row from another rank's part of the table; with a GPU, seconds to copy the
	// row from that rank's GPU or, if that GPU cannot be reached, from the host
	Peer float64 `json:"peer_seconds"`
	// seconds to fetch a row from a rank of another node or, with `cache.source: files`, to read
	// the row from a file; with a GPU, this includes the copy to the GPU
	Far float64 `json:"far_seconds"`
}

// How much is measured: few rows, so that start-up takes hardly longer.
const (
	measuredRows  = 4096    // most rows read at a time
	measuredBytes = 1 << 20 // most bytes read at a time
	measuredTimes = 3       // times that each kind of read is measured; the shortest counts
)

// measurePeers measures the cost of a peer's row, if the settings ask for it, and sets it in the
// settings of the cache. The cost decides which rank keeps a row, and so affects traffic and time,
// but no number of the training. Nothing is measured if the result would not matter, because no
// node has two ranks or the caches hold no rows. The argument `capacity` is the number of rows of a
// rank's cache, the same on the whole node. Collective.
func (s *Store) measurePeers(c *Cache, node comm.Comm, capacity int) error {
	if c.Settings.PeerCost >= 0 || c.Settings.Placement != policy.PlacementGroup {
		return nil
	}
	ranks, err := comm.AgreeMax(s.Comm, node.Size())
	if err != nil {
		return err
	}
	rowBytes := s.shards().RowBytes()
	rows, err := comm.AgreeMax(s.Comm, min(capacity, measuredRows, max(1, measuredBytes/rowBytes)))
	if err != nil {
		return err
	}
	if c.Settings.PeerCost = 0; ranks == 1 || rows == 0 {
		return nil
	}
	own, peer, bus, err := s.timeTable(node, rows)
	if err != nil {
		return err
	}
	far, err := s.timeFar(rows)
	if err != nil {
		return err
	}
	far += bus
	for _, t := range []*float64{&own, &peer, &far} {
		if *t, err = comm.AgreeSum(s.Comm, *t/float64(s.Comm.Size())); err != nil {
			return err
		}
	}
	c.Peers = &PeerCost{Ratio: peerRatio(own, peer, far), Own: own, Peer: peer, Far: far}
	c.Settings.PeerCost = c.Peers.Ratio
	return nil
}

// peerRatio is the cost of a peer's row in proportion to the cost of a far row, after the cost of
// an own row is subtracted from both. It is rounded to two digits, so that noise moves hardly any
// rows from rank to rank.
func peerRatio(own, peer, far float64) float64 {
	if far <= own {
		return 1 // a far row costs no more than an own one, so all ranks keep the same rows
	}
	return math.Round(100*min(1, max(0, (peer-own)/(far-own)))) / 100
}

// timeTable returns three times, in seconds. The result own is the time to gather a row of a table
// in shared memory from this rank's share, and peer the time to gather it from the share of the
// node's next rank. The result bus is the time to copy a row from the host to a device with its own
// memory, or 0 for other devices. Collective.
func (s *Store) timeTable(node comm.Comm, rows int) (own, peer, bus float64, err error) {
	table, err := s.shareTable(node, rows)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() {
		if e := table.Close(); err == nil {
			err = e
		}
	}()
	rowBytes, self := s.shards().RowBytes(), node.Rank()
	mine := table.Bytes()[self*rows*rowBytes : (self+1)*rows*rowBytes]
	// write all pages, because pages that were never written are the same zero page
	for i := range mine {
		mine[i] = 1
	}
	refs := mem.Make[compute.RowRef](rows)
	defer mem.Free(refs)
	refer := func(rank int) {
		for i := range refs {
			refs[i] = compute.MakeRowRef(0, rank*rows+s.scattered(i, rows))
		}
	}
	next := (self + 1) % node.Size()
	if device := s.Device.Capabilities().Accelerator; device != nil {
		refer(next)
		peer, bus, err = s.timeCards(node, device, table.Bytes(), self*rows, mine, refs)
		return 0, peer, bus, err
	}
	from := func(rank int) (seconds float64, err error) {
		refer(rank)
		seconds = math.Inf(1)
		for range measuredTimes {
			if err := node.StartBarrier().Wait(); err != nil {
				return 0, err
			}
			seconds = min(seconds, s.timeGather([][]byte{table.Bytes()}, refs))
		}
		return seconds / float64(rows), nil
	}
	if own, err = from(self); err != nil {
		return 0, 0, 0, err
	}
	if peer, err = from(next); err != nil {
		return 0, 0, 0, err
	}
	return own, peer, 0, node.StartBarrier().Wait() // the table stays until all ranks have read it
}

// timeCards returns the seconds to copy a row of refs to this device from a peer's device (0
// without peers), and from the host. The argument `own` has this rank's rows of the table, which
// begin at row first. Collective.
func (s *Store) timeCards(node comm.Comm, device compute.Accelerator, table []byte, first int,
	own []byte, refs []compute.RowRef) (peer, bus float64, err error) {
	// Tables 0 to Parts-1 are those of the parts, and the next one is the cache.
	cached := s.shards().Parts
	for i, ref := range refs {
		refs[i] = compute.MakeRowRef(cached, ref.Row())
	}
	if node.Size() == 1 { // its own rows are on the device, so nothing would be copied
		own = nil
	}
	if _, err = s.holdRows(node, device, cached, first, own); err != nil {
		return 0, 0, err
	}
	tables := make([][]byte, cached+1)
	tables[cached] = table
	rows := s.shards().Rows()
	rows.Tables, rows.Of = tables, refs
	var batches []compute.Rows
	for range 1 + measuredTimes { // the first round is not counted
		batches = append(batches, rows)
	}
	copied, fetched, err := device.RowRates(batches)
	if err = errors.Join(comm.Agree(s.Comm, err), device.DropRows()); err != nil {
		return 0, 0, err
	}
	each := float64(s.shards().RowBytes())
	if peer = each / fetched; node.Size() == 1 {
		peer = 0
	}
	return peer, each / copied, node.StartBarrier().Wait()
}

// scattered returns row i of n in an order that a processor cannot foresee; a row may occur twice.
func (s *Store) scattered(i, n int) int {
	return int(random.Mix(uint64(s.Comm.Rank())<<32|uint64(i)) % uint64(n))
}

// timeGather returns the seconds to gather rows.
func (s *Store) timeGather(tables [][]byte, refs []compute.RowRef) float64 {
	rows := s.shards().Rows()
	rows.Tables, rows.Of = tables, refs
	dst := compute.Matrix{Rows: len(refs), Cols: rows.Cols,
		Data: mem.Make[float32](len(refs) * rows.Cols)}
	defer mem.Free(dst.Data)
	clear(dst.Data) // so that its pages exist before the clock starts
	begin := time.Now()
	s.Host.GatherRows(dst, rows)
	return time.Since(begin).Seconds()
}

// timeFar returns the seconds to get a row that no cache of the node holds. Rows from the files are
// read only once, because the second time they would come from memory. Collective.
func (s *Store) timeFar(rows int) (float64, error) {
	ids := s.farVertices(rows)
	rows = max(1, len(ids)) // at least 1, as the parts of other nodes may be empty
	if s.Job.Cache.FromFiles() {
		refs := s.inMemory(ids)
		defer mem.Free(refs)
		return s.timeGather(s.Tables, refs) / float64(rows), nil
	}
	dst := mem.Make[byte](len(ids) * s.shards().RowBytes())
	defer mem.Free(dst)
	seconds := math.Inf(1)
	for range measuredTimes {
		if err := s.Comm.StartBarrier().Wait(); err != nil {
			return 0, err
		}
		begin := time.Now()
		if err := s.fetchRows(ids, table{dst, []int{len(ids)}}); err != nil {
			return 0, err
		}
		seconds = min(seconds, time.Since(begin).Seconds())
	}
	return seconds / float64(rows), nil
}

// farVertices draws up to n different vertices that are not local.
func (s *Store) farVertices(n int) (ids []graph.VertexID) {
	local := s.Job.Local(s.Comm.Rank())
	for i := range n {
		v := graph.VertexID(s.scattered(i, int(s.shards().Vertices)))
		if !access.Among(local, v) {
			ids = append(ids, v)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
