package residence

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// The resident rows are the ones that minibatches read most: nearly as many reads as possible find
// their row resident, and more than with the first rows of parts ordered by in-degree.
func TestHotRowsAreThoseThatAreRead(t *testing.T) {
	shards := generated(t, 2)
	o := sage()
	o.Sample.Fanouts, o.Batch, o.Epochs = []int{2, 1, 1}, 2, 30
	err := onRanks(comm.NewWorld(2), 1, shards, o, func(s *Store) error {
		reads, err := access.Count(shards.Topology(),
			&sample.Sweep{Spec: o.Sample, Epoch: 1, Epochs: o.Epochs,
				Reader: *s.Job.Reader(s.Comm.Rank())})
		if err != nil {
			return err
		}
		defer mem.Free(reads)
		first, end := shards.Offsets[s.first], shards.Offsets[s.last]
		own := reads[first:end]
		count := make([]int, shards.Parts)
		count[s.first] = len(own) / 4
		hot, order, err := s.hotRows(count)
		if err != nil {
			return err
		}
		defer mem.Free(hot[s.first])
		sum := func(rows []int32) (n float32) {
			for _, row := range rows {
				n += own[row]
			}
			return n
		}
		prefix := make([]int32, len(own))
		for i := range prefix {
			prefix[i] = int32(i)
		}
		best := slices.SortedFunc(slices.Values(prefix),
			func(a, b int32) int { return cmp.Compare(own[b], own[a]) })
		n := count[s.first]
		found, could, without := sum(hot[s.first]), sum(best[:n]), sum(prefix[:n])
		if len(hot[s.first]) != n || found < 0.9*could || found <= without {
			t.Errorf("rank %d: %d rows, %s, find %v reads; %v could be found, %v by the first rows",
				s.Comm.Rank(), len(hot[s.first]), order, found, could, without)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// In parts that were ordered for the run the first rows are resident. For a model that reads no
// neighbours the rows of training vertices are.
func TestHotRowsNeedNoIndex(t *testing.T) {
	shards := generated(t, 2)
	o := sage()
	origin := shards.Origin
	defer func() { shards.Origin = origin }()
	check := func(name string, o job.Spec, share int, want func(s *Store, rows []int32) error) {
		err := onRanks(comm.NewWorld(1), 1, shards, o, func(s *Store) error {
			count := make([]int, shards.Parts)
			for p := range count {
				count[p] = int(shards.Offsets[p+1]-shards.Offsets[p]) * share / 4
			}
			hot, order, err := s.hotRows(count)
			if err != nil || order == "" {
				return fmt.Errorf("order %q, %w", order, err)
			}
			var rows []int32
			if hot != nil {
				rows = hot[1]
				defer mem.Free(hot[0])
				defer mem.Free(hot[1])
			}
			return want(s, rows)
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	prefix := func(_ *Store, rows []int32) error {
		if rows != nil {
			return fmt.Errorf("rows %v are named", rows)
		}
		return nil
	}
	check("all", o, 4, prefix)
	check("none", o, 0, prefix)
	mlp := o
	mlp.Model.Kind = "mlp"
	check("mlp", mlp, 1, func(s *Store, rows []int32) error {
		for _, row := range rows {
			if v := graph.VertexID(shards.Offsets[1] + int64(row)); !slices.Contains(
				shards.Train(1), v) {
				return fmt.Errorf("row %d is resident, which is no training vertex", row)
			}
		}
		return nil
	})
	shards.Origin = shard.Origin{Order: shard.OrderVIP, Fanouts: o.Sample.Fanouts, Batch: o.Batch}
	check("ordered for it", o, 1, prefix)
}
