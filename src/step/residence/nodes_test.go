package residence

import (
	"errors"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/ranks/comm"
)

// Ranks of a node fetch as one where that is faster.
func TestTheFasterWayIsChosen(t *testing.T) {
	for _, c := range []struct {
		off, on float64
		want    string
	}{{2, 1, "on"}, {1, 2, "off"}, {1, 1, "off"}} {
		choice := NodesChoice{OffSeconds: c.off, OnSeconds: c.on}
		if choice.compare(); choice.Nodes != c.want {
			t.Errorf("%+v: %+v", c, choice)
		}
	}
}

// All ranks choose alike, wherever training begins, and the job follows; a node buys fewer rows
// than its ranks for themselves. After the last minibatch, and on one node, there is nothing to
// choose.
func TestRanksChooseNodesAlike(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 400, Degree: 12, Features: 64,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 3})
	spec := sage()
	spec.AsNodes, spec.TryNodes = true, true
	for _, c := range []struct {
		at      Position
		perNode int
		without string
		why     string
	}{
		{Position{Epoch: 1}, 2, "", ""}, {Position{Epoch: 2, Item: 1}, 2, "", ""},
		{Position{Epoch: 3}, 2, "", "no minibatch is left"},
		{Position{Epoch: 1}, 3, "", "there is only one node, or one rank on each"},
		{Position{Epoch: 1}, 2, "they have none", "they have none"},
	} {
		chosen := make([]*NodesChoice, 3)
		err := onRanks(comm.NewWorld(3), c.perNode, shards, spec, func(s *Store) (err error) {
			chosen[s.Comm.Rank()], err = s.ChooseNodes(c.at, c.without)
			if err == nil && s.Job.AsNodes != (chosen[s.Comm.Rank()].Nodes == "on") {
				err = errors.New("the job does not follow the choice")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		got := chosen[0]
		if *got != *chosen[1] || *got != *chosen[2] {
			t.Errorf("%+v: %+v, %+v and %+v", c, got, chosen[1], chosen[2])
		}
		if c.why != "" && *got != *nodesOff(c.why) || c.why == "" && !(got.OnRows > 0 &&
			got.OnRows < got.OffRows && got.OnSeconds > 0 && got.OffSeconds > 0) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
