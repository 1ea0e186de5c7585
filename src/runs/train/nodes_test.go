package train

import (
	"strings"
	"testing"

	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// spread is a world whose ranks lie on nodes in turn.
type spread struct {
	comm.Comm
	nodes int
}

func (s spread) Node() (comm.Comm, error) { return s.Split(s.Rank()%s.nodes, s.Rank()) }

// Ranks that share the minibatches of a node are as many on every node, and consecutive: otherwise
// all ranks refuse alike, before a step.
func TestNodesThatCannotShare(t *testing.T) {
	shards := generated(t)
	for _, c := range []struct {
		ranks, perNode, nodes int
		want                  string
	}{
		{3, 2, 1, "rank 2 is one of 1 on a node that begins with rank 2"},
		{6, 4, 1, "rank 4 is one of 2 on a node that begins with rank 4"},
		{6, 0, 2, "rank 1 is one of 3 on a node that begins with rank 1"},
		{6, 3, 2, "run.ranks_per_node is 3, but ranks 0 and 2 are on different nodes"},
	} {
		o := sageOptions()
		o.Mode = job.Mode{Name: parallel.ModeHybrid, Sharing: sample.InNodes}
		err := comm.RunWorld(c.ranks, func(world comm.Comm) error {
			env := Env{Env: session.Env{Comm: spread{world, c.nodes}, RanksPerNode: c.perNode,
				Shards: shards,
				Device: ref.New(), Host: ref.Host{}}}
			_, err := Open(env, o)
			if !comm.IsAgreed(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: rank %d: %v, want %q", c, world.Rank(), err, c.want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
