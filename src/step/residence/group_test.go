package residence

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
)

// grouped opens a cache of the node on six ranks, nodes of two, and calls f.
func grouped(shards *shard.Shards, peerCost float64, f func(s *Store, c *Cache) error) error {
	spec := sage()
	spec.Cache = policy.Settings{
		Policy: policy.VIP, Alpha: 0.3, Placement: policy.PlacementGroup, PeerCost: peerCost,
	}
	return onRanks(comm.NewWorld(6), 2, shards, spec, func(s *Store) error {
		c, err := s.OpenCache(spec.Cache, Position{Epoch: 1})
		if err == nil {
			err = f(s, c)
		}
		return errors.Join(err, c.Close())
	})
}

// Every rank reads the right rows in its own cache and in its peer's, its own first, and closing
// the caches leaves no shared memory.
func TestSharedCacheHoldsTheRowsItSays(t *testing.T) {
	dir := t.TempDir()
	defer func(old string) { sharedMemory = old }(sharedMemory)
	sharedMemory = dir
	shards := generated(t, 6)
	rows := make([][]byte, shards.Parts)
	for p := range rows {
		part, err := shards.OpenPart(p)
		if err != nil {
			t.Fatal(err)
		}
		defer part.Close()
		rows[p] = part.Features
	}
	before := mem.Allocated()
	for _, peerCost := range []float64{0, 1} {
		peers := make([]int, 6)
		err := grouped(shards, peerCost, func(s *Store, opened *Cache) error {
			c, ok := opened.fixed.(*groupCache)
			if !ok {
				return fmt.Errorf("the cache is a %T", opened.fixed)
			}
			if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
				return fmt.Errorf("names of shared memory are left: %v (%v)", names, err)
			}
			capacity := int(0.3 * float64(shards.Vertices) / 6)
			if own := c.end - c.first; own != capacity ||
				len(c.Table()) != 2*own*shards.RowBytes() {
				return fmt.Errorf("%d own rows in a table of %d bytes, want %d rows a rank",
					own, len(c.Table()), capacity)
			}
			own := 0
			for v := range graph.VertexID(shards.Vertices) {
				row := c.Row(v)
				if row < 0 {
					continue
				}
				part := 0
				for int64(v) >= shards.Offsets[part+1] {
					part++
				}
				if s.Tables[part] != nil {
					return fmt.Errorf("vertex %d is cached, though the node owns it", v)
				}
				n := shards.RowBytes()
				at := int(int64(v)-shards.Offsets[part]) * n
				if !slices.Equal(c.Table()[row*n:(row+1)*n], rows[part][at:at+n]) {
					return fmt.Errorf("row %d is not that of vertex %d", row, v)
				}
				if row >= c.first && row < c.end {
					own++
				} else {
					peers[s.Comm.Rank()]++
				}
			}
			if own != capacity {
				return fmt.Errorf("%d of %d own rows are found", own, capacity)
			}
			return nil
		})
		if err != nil {
			t.Errorf("peer cost %g: %v", peerCost, err)
		}
		for rank, n := range peers {
			if (n > 0) != (peerCost == 0) {
				t.Errorf("peer cost %g: rank %d reads %d vertices from its peer", peerCost, rank, n)
			}
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// If shared memory cannot be allocated, all ranks agree on an error, which says what to do.
func TestNoSharedMemory(t *testing.T) {
	defer func(old string) { sharedMemory = old }(sharedMemory)
	sharedMemory = "/nowhere"
	shards := generated(t, 6)
	err := grouped(shards, 0,
		func(*Store, *Cache) error { return errors.New("a cache was opened") })
	if !comm.IsAgreed(err) || !strings.Contains(err.Error(), "cache.placement=own") {
		t.Errorf("ended with %v", err)
	}
}

// Pretended nodes must lie within real ones: rows of ranks on another machine are not read from
// memory.
func TestPretendedNodesLieWithinRealOnes(t *testing.T) {
	shards := generated(t, 6)
	for _, c := range []struct {
		perNode int
		fits    bool
	}{{0, true}, {1, true}, {2, true}, {3, false}, {4, false}} {
		w := comm.NewWorld(6)
		w.NodeSize = 2
		err := onRanks(w, c.perNode, shards, sage(), func(*Store) error { return nil })
		refused := comm.IsAgreed(err) && strings.Contains(err.Error(), "run.ranks_per_node")
		if c.fits && err != nil || !c.fits && !refused {
			t.Errorf("%d a node: %v", c.perNode, err)
		}
	}
}
