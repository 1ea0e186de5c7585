package infer

import (
	"context"
	"fmt"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/step/job"
)

func generated(t testing.TB) *shard.Shards { return sessiontest.Graph(t, 6, 300) }

func sageOptions() job.Spec { return sessiontest.Spec() }

// onRanks opens passes on every rank, each a node of its own, and calls f. With o.Partitioned a
// rank has the rows of its own vertices alone.
func onRanks(shards *shard.Shards, ranks int, o job.Spec,
	f func(ctx context.Context, s Passes) error) error {
	return comm.RunWorld(ranks, func(c comm.Comm) error {
		shards := shards
		if o.Partitioned {
			var err error
			if shards, err = shard.Open(shards.Dir, shard.Options{Rank: c.Rank(),
				Ranks: ranks}); err != nil {
				return err
			}
			defer shards.Close()
		}
		s, err := open(sessiontest.Env(c, shards), o, "")
		if err != nil {
			return err
		}
		if err := f(context.Background(), s); err != nil {
			return fmt.Errorf("%d ranks: %w", ranks, err)
		}
		return s.Close()
	})
}

// fullWith is Full that also shows the rows that the last layer reads.
func fullWith(ctx context.Context, s Passes, hidden func(*layerRows)) ([]float32, error) {
	classes := s.Job.Model.Out
	all := mem.Make[float32](s.ownRows() * classes)
	return all, s.full(ctx, hidden, func(at int, z []float32) { copy(all[at*classes:], z) })
}
