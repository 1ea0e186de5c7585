package train

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute/ref"
	"halognn/src/config"
	"halognn/src/dataset"
	"halognn/src/job"
	"halognn/src/nn"
	"halognn/src/policy"
	"halognn/src/record"
	"halognn/src/sample"
	"halognn/src/shard"
	"halognn/src/shard/shardtest"
)

// generated is a small graph in six parts.
func generated(t testing.TB) *shard.Shards { return generatedIn(t, 6) }

// generatedIn is the same graph in n parts.
func generatedIn(t testing.TB, n int) *shard.Shards { return generatedOf(t, n, 300) }

// generatedOf is a graph of the given number of vertices in n parts.
func generatedOf(t testing.TB, n, vertices int) *shard.Shards {
	t.Helper()
	graph := dataset.GenerateOptions{Vertices: vertices, Degree: 8, Features: 6, Classes: 4, Seed: 1}
	return shardtest.Open(t, graph, shardtest.Options{Parts: n})
}

// sageOptions trains a small model.
func sageOptions() Options {
	return Options{
		Spec: job.Spec{
			Model:  nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "none", Dropout: 0.5},
			Sample: sample.Neighbours(4, 3, 2), Batch: 20, Epochs: 2,
			Optimizer: nn.DefaultOptimizer("adam"),
			Schedule:  nn.Schedule{Kind: nn.ScheduleConstant, Base: 0.01}, StepEpochs: 1, Seed: 1,
			Depth: 2, Cache: policy.Settings{Policy: policy.None},
		},
		Training: config.Training{EvalEvery: 1},
	}
}

// Run opens a training and runs it, without a lock.
func Run(ctx context.Context, env Env, o Options) (*record.Summary, error) {
	t, err := Open(env, o)
	if err != nil {
		return nil, err
	}
	return t.Run(ctx, nil)
}

// onRanks opens a session for passes forward on every rank, each a node of its own, and calls f.
func onRanks(shards *shard.Shards, ranks int, o Options,
	f func(ctx context.Context, s *session) error) error {
	return comm.RunWorld(ranks, func(c comm.Comm) error {
		s, err := openForward(Env{Comm: c, RanksPerNode: 1, Shards: shards, Device: ref.New(),
			Host: ref.Host{}, Workers: 2}, o)
		if err != nil {
			return err
		}
		if err := f(context.Background(), s); err != nil {
			return fmt.Errorf("%d ranks: %w", ranks, err)
		}
		return s.close()
	})
}

// onOneRank opens a training on a single rank and calls f.
func onOneRank(shards *shard.Shards, o Options, f func(r *run) error) error {
	return comm.RunWorld(1, func(c comm.Comm) error {
		t, err := Open(Env{Comm: c, Shards: shards, Device: ref.New(), Host: ref.Host{}, Workers: 2}, o)
		if err != nil {
			return err
		}
		return errors.Join(f(t.run), t.run.s.close())
	})
}
