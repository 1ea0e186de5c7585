package train

import (
	"context"
	"fmt"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session"
)

// Without vertices for validation and test a run trains to its end, and infers nothing.
func TestNothingToJudge(t *testing.T) {
	for _, c := range []struct {
		split  string
		infers bool
	}{{"60/0/0", false}, {"60/40/0", true}, {"60/0/40", true}} {
		shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6,
			Classes: 4, Seed: 1, Split: c.split}, shardtest.Options{Parts: 2})
		err := onOneRank(shards, sageOptions(), func(r *run) error {
			kernels := 0
			r.s.Device.Watch(&compute.Probe{OnStart: func(compute.Call) { kernels++ },
				OnDone: func() {}, OnSync: func() {}})
			if _, err := r.evaluateFull(context.Background()); err != nil {
				return err
			}
			if (kernels > 0) != c.infers {
				return fmt.Errorf("the evaluation called %d kernels", kernels)
			}
			return nil
		})
		if dir := t.TempDir(); err == nil {
			err = comm.RunWorld(2, func(cm comm.Comm) error {
				s, err := Run(context.Background(), Env{Env: session.Env{Comm: cm, RanksPerNode: 1,
					Shards: shards,
					Device: ref.New(), Host: ref.Host{}, Workers: 1},
					Dir: dir}, sageOptions())
				if err == nil && s.Epochs != 2 {
					return fmt.Errorf("%d epochs", s.Epochs)
				}
				return err
			})
		}
		if err != nil {
			t.Errorf("split %s: %v", c.split, err)
		}
	}
}
