package train

import (
	"context"
	"errors"
	"testing"

	"halognn/src/data/shard"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/runs/config"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/runs/session/sessiontest"
)

// generated is a small graph in six parts.
func generated(t testing.TB) *shard.Shards { return generatedIn(t, 6) }

// generatedIn is the same graph in n parts.
func generatedIn(t testing.TB, n int) *shard.Shards { return sessiontest.Graph(t, n, 300) }

// sageOptions trains a small model.
func sageOptions() Options {
	return Options{Spec: sessiontest.Spec(), Training: config.Training{EvalEvery: 1}}
}

// Run opens a training and runs it, without a lock.
func Run(ctx context.Context, env Env, o Options) (*record.Summary, error) {
	t, err := Open(env, o)
	if err != nil {
		return nil, err
	}
	return t.Run(ctx, nil)
}

// onOneRank opens a training on a single rank and calls f.
func onOneRank(shards *shard.Shards, o Options, f func(r *run) error) error {
	return comm.RunWorld(1, func(c comm.Comm) error {
		t, err := Open(Env{Env: session.Env{Comm: c, Shards: shards,
			Device: ref.New(), Host: ref.Host{}, Workers: 2}}, o)
		if err != nil {
			return err
		}
		return errors.Join(f(t.run), t.run.s.Close())
	})
}
