package residence

import (
	"errors"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/sample"
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

// onRanks opens a store on every rank of w, nodes of so many, and calls f.
func onRanks(w *comm.World, perNode int, shards *shard.Shards, spec job.Spec,
	f func(s *Store) error) error {
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
