package residence

import (
	"errors"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/topology/sample"
)

// Sums are made if the network takes longer for what they spare than they cost.
func TestSumsPay(t *testing.T) {
	for _, c := range []struct {
		rows, sums, perByte, cost float64
		want                      string
	}{
		{1e6, 6e5, 1e-8, 1e-3, "on"}, {1e6, 6e5, 1e-8, 5e-3, "off"}, {1e6, 6e5, 1e-10, 1e-3, "off"},
		{1e6, 1.1e6, 1, 0, "off"}, {0, 0, 1, 0, "off"},
	} {
		choice := SumsChoice{RowBytes: c.rows, SumBytes: c.sums, Cost: c.cost}
		if choice.compare(c.perByte); choice.Sums != c.want {
			t.Errorf("%+v: %+v", c, choice)
		}
	}
}

// All ranks choose alike, by means over all of them, wherever training begins; after the last
// minibatch there is nothing to choose by.
func TestRanksChooseSumsAlike(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 400, Degree: 12, Features: 64,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 3})
	spec := sage()
	spec.Sums, spec.TrySums = true, true
	for _, at := range []Position{{Epoch: 1}, {Epoch: 2, Item: 1}, {Epoch: 3}} {
		chosen := make([]*SumsChoice, 3)
		err := onRanks(comm.NewWorld(3), 1, shards, spec, func(s *Store) (err error) {
			c, err := s.ChooseSums(at, "")
			chosen[s.Comm.Rank()] = c
			if err == nil && s.Job.Sums != (c.Sums == "on") {
				err = errors.New("the job does not follow the choice")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		c := chosen[0]
		if *c != *chosen[1] || *c != *chosen[2] {
			t.Errorf("%+v: %+v, %+v and %+v", at, c, chosen[1], chosen[2])
		}
		if at.Epoch < 3 && (c.SumBytes <= 0 || c.SumBytes >= c.RowBytes ||
			c.Cost <= 0 || c.Saved <= 0) ||
			at.Epoch == 3 && *c != *sumsOff("no minibatch is left") {
			t.Errorf("%+v: %+v", at, c)
		}
	}
}

// Learned rows are among the bytes by which ranks choose, of ranks of one node too, whose features
// lie in memory.
func TestLearnedRowsChooseSums(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Kind: "mag", Vertices: 3000, Features: 4,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 2})
	spec := sage()
	spec.Model.Kind, spec.Model.Layers, spec.Sample = "rgcn", 1, sample.Neighbours(10)
	spec.Sums, spec.TrySums = true, true
	for _, perNode := range []int{1, 2} {
		for _, learned := range []int{4, 32} {
			spec.Model.Learned = learned
			chosen := make([]*SumsChoice, 2)
			err := onRanks(comm.NewWorld(2), perNode, shards, spec, func(s *Store) (err error) {
				s.Learned = new(nn.Learned)
				chosen[s.Comm.Rank()], err = s.ChooseSums(Position{Epoch: 1}, "")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			c := chosen[0]
			if t.Logf("%d a node, %d columns: %+v", perNode, learned, c); *c != *chosen[1] ||
				c.SumBytes <= 0 || c.SumBytes >= c.RowBytes || c.Saved <= 0 || c.Cost <= 0 {
				t.Errorf("%d a node, %d columns: %+v", perNode, learned, c)
			}
		}
	}
}
