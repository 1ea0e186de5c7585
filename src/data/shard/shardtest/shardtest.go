// Package shardtest makes parts for tests. It generates a graph and cuts it by LDG. The parts lie
// below the test's directory and are open until the test ends.
package shardtest

import (
	"path/filepath"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/topology/partition"
)

// Options choose how the graph is partitioned.
type Options struct {
	Parts    int    // number of parts
	Features string // which features to make from the graph; empty for none

	// Order returns a score for each vertex; the vertices with the highest scores come first in
	// their part. part [N] is the part of every vertex. If Order is nil, the score is the
	// in-degree, as in `halognn partition`.
	Order func(t testing.TB, d *dataset.Dataset, part []int32) []float32
}

// Open generates the graph, writes its parts and opens them. Equal arguments give equal parts.
func Open(t testing.TB, graph dataset.GenerateOptions, o Options) *shard.Shards {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	must(t, dataset.Generate(data, graph))
	return Cut(t, data, o)
}

// Cut writes the parts of a dataset and opens them.
func Cut(t testing.TB, data string, o Options) *shard.Shards {
	t.Helper()
	parts := filepath.Join(t.TempDir(), "parts")
	d, err := dataset.Open(data)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	weights, err := partition.TrainingWeights(d.Graph, d.Split)
	must(t, err)
	part, err := partition.LDG(d.Graph, weights, partition.Options{Parts: o.Parts, Seed: 1})
	must(t, err)
	newID, offsets := partition.Order(part, o.Parts, partition.InDegrees(d.Graph, &d.Columns))
	if o.Order != nil {
		newID, offsets = partition.Order(part, o.Parts, o.Order(t, d, part))
	}
	must(t, shard.Write(parts, d, shard.Layout{
		NewID: newID, Offsets: offsets, Report: partition.Measure(d.Graph, part, o.Parts, d.Split),
		Origin: shard.Origin{Features: o.Features},
	}, shard.Alone{}))
	s, err := shard.Open(parts, shard.Options{})
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
