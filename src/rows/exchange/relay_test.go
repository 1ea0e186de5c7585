package exchange

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// Rows that a rank asks others of its group for arrive as they are with their owners, whether these
// have them, cache them or fetch them themselves; a fetched one comes to the group once.
func TestRelayedRowsAreTheirOwners(t *testing.T) {
	const ranks, size, vertices = 4, 2, 300
	rng := rand.New(rand.NewPCG(16, 2))
	l := newLayout(rng, ranks, 2, 1, vertices, 5, compute.Float16)
	share := func(v graph.VertexID) int { return l.owner(v) % size } // the member that finds v
	reads := make([][]graph.VertexID, ranks)                         // what each rank reads
	for r := range reads {
		reads[r] = l.frontier(rng, 0.4, func(graph.VertexID) bool { return true })
	}
	cached := func(v graph.VertexID) bool { return v%5 == 0 }
	fetched := make([]int64, ranks)
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		member, first := c.Rank()%size, c.Rank()-c.Rank()%size
		group, err := c.Split(first, member)
		if err != nil {
			return err
		}
		defer group.Free()
		o := l.options(c.Rank())
		held := &rows{slot: map[graph.VertexID]int{}}
		for v := graph.VertexID(0); v < vertices; v++ {
			if cached(v) {
				held.slot[v] = len(held.slot)
				held.table = append(held.table, l.row(int64(v))...)
			}
		}
		o.Cache = held
		x, err := Open(c, o)
		if err != nil {
			return err
		}
		defer x.Close()
		// Own rows first, then those that the other member alone reads.
		var own, others []graph.VertexID
		wanted, count := make([]int, size), make([]int, size)
		for _, v := range reads[c.Rank()] {
			if share(v) == member {
				own = append(own, v)
			} else {
				others = append(others, v)
				count[share(v)]++
			}
		}
		planned, at := slices.Clone(own), []int32(nil)
		for m := range size {
			for _, v := range reads[first+m] {
				if m == member || share(v) != member {
					continue
				}
				i := slices.Index(planned, v)
				if i < 0 {
					i, planned = len(planned), append(planned, v)
				}
				at, wanted[m] = append(at, int32(i)), wanted[m]+1
			}
		}
		var p Plan
		defer p.Free()
		for range 2 { // the second time in the memory of the first
			if err := x.Fetch(&p, planned); err != nil {
				return err
			}
			fetched[c.Rank()] = p.Remote
			if err := x.Relay(&p, len(own), others); err != nil {
				return err
			}
			x.Collect(&p, at)
			if err := x.StartRelay(group, &p, wanted, count).Wait(); err != nil {
				return err
			}
			for i, v := range append(slices.Clone(own), others...) {
				ref := p.Rows.Of[i]
				size := x.kinds[0].RowBytes()
				got := p.Rows.Tables[ref.Table()][ref.Row()*size:][:size]
				if string(got) != string(l.row(int64(v))) ||
					x.parts.Find(uint32(v)) != int(p.Parts[i]) {
					return fmt.Errorf("row %d, vertex %d, part %d: %x, want %x", i, v, p.Parts[i],
						got, l.row(int64(v)))
				}
			}
		}
		if err := x.Relay(&p, len(own), []graph.VertexID{vertices}); err == nil {
			return fmt.Errorf("vertex %d is passed on", vertices)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for first := 0; first < ranks; first += size {
		remote := map[graph.VertexID]bool{}
		for _, v := range slices.Concat(reads[first], reads[first+1]) {
			if l.owner(v)/size != first/size && !cached(v) {
				remote[v] = true
			}
		}
		if n := fetched[first] + fetched[first+1]; n != int64(len(remote)) || n == 0 {
			t.Errorf("ranks %d and %d fetch %d rows, want %d", first, first+1, n, len(remote))
		}
	}
}
