package infer

import (
	"context"
	"fmt"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
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

// fullWith is Full that also returns the rows that the last layer reads, on the heap.
func fullWith(ctx context.Context, s Passes) (hidden, logits []float32, err error) {
	var see putRows
	if l := s.Job.Model.Layers - 2; l >= 0 {
		_, cols := s.Job.Model.Widths(l)
		hidden = make([]float32, s.ownRows()*cols)
		see = func(at int, y compute.Matrix) error {
			var stored []float32
			compute.Load(s.Device, hidden[at*cols:][:y.Rows*cols], y, &stored)
			mem.Free(stored)
			return nil
		}
	}
	classes := s.Job.Model.Out
	logits = make([]float32, s.ownRows()*classes)
	return hidden, logits, s.full(ctx, see,
		func(at int, z []float32) { copy(logits[at*classes:], z) })
}
