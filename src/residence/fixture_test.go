package residence

import (
	"errors"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute/ref"
	"halognn/src/dataset"
	"halognn/src/job"
	"halognn/src/nn"
	"halognn/src/policy"
	"halognn/src/sample"
	"halognn/src/shard"
	"halognn/src/shard/shardtest"
)

// generated is a small graph in n parts.
func generated(t testing.TB, n int) *shard.Shards {
	t.Helper()
	graph := dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6, Classes: 4, Seed: 1}
	return shardtest.Open(t, graph, shardtest.Options{Parts: n})
}

// sage describes the training of a small model.
func sage() job.Spec {
	return job.Spec{
		Model:  nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "none"},
		Sample: sample.Neighbours(4, 3, 2), Batch: 20, Epochs: 2, Seed: 1, StepEpochs: 1, Depth: 2,
		Cache: policy.Settings{Policy: policy.None},
	}
}

// onRanks opens a store on every rank of w, with perNode ranks a node, and calls f.
func onRanks(w *comm.World, perNode int, shards *shard.Shards, spec job.Spec, f func(s *Store) error) error {
	return w.Run(func(c comm.Comm) error {
		spec := spec
		spec.Ranks = c.Size()
		j, err := job.New(shards, spec)
		if err != nil {
			return err
		}
		defer j.Close()
		s, err := Open(Options{
			Comm: c, RanksPerNode: perNode, Job: j, Host: ref.Host{}, Workers: 1, Device: ref.New(),
		})
		if err == nil {
			err = f(s)
		}
		return errors.Join(err, s.Close())
	})
}
