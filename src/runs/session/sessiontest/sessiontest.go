// Package sessiontest has what tests of sessions start from: a small graph, a small model, and the
// environment of a rank.
package sessiontest

import (
	"math"
	"path/filepath"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
)

// Graph returns a small graph in the given number of parts.
func Graph(t testing.TB, parts, vertices int) *shard.Shards {
	t.Helper()
	graph := dataset.GenerateOptions{Vertices: vertices, Degree: 8, Features: 6, Classes: 4,
		Seed: 1}
	return shardtest.Open(t, graph, shardtest.Options{Parts: parts})
}

// Handmade returns a graph of 90 vertices with 6 features each, and labels.
func Handmade(t testing.TB, parts int, m dataset.Meta, labels []byte, split graph.Split,
) *shard.Shards {
	t.Helper()
	const n = 90
	dir := t.TempDir()
	w, err := dataset.Create(filepath.Join(dir, "data"), m)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	var source, target []graph.VertexID
	for v := range n {
		for d := 1; d < 4; d++ {
			source, target = append(source, graph.VertexID((v*7+d)%n)),
				append(target, graph.VertexID(v))
		}
	}
	g, err := graph.FromEdges(n, source, target)
	must(err)
	must(w.Topology(g))
	rows, err := w.Features(n, 6, dataset.Float32)
	must(err)
	for v := range n {
		row := make([]float32, 6)
		for j := range row {
			row[j] = float32(math.Sin(float64(v*6 + j)))
		}
		must(rows.Write(row))
	}
	must(rows.Close())
	must(w.Labels(labels))
	must(w.Splits(split))
	must(w.Close())
	d, err := dataset.Open(filepath.Join(dir, "data"))
	must(err)
	defer d.Close()
	part := make([]int32, n)
	for v := range part {
		part[v] = int32(v % parts)
	}
	newID, offsets := partition.Order(part, parts, partition.InDegrees(d.Graph, &d.Columns))
	must(shard.Write(filepath.Join(dir, "parts"), d, shard.Layout{NewID: newID, Offsets: offsets,
		Report: partition.Measure(d.Graph, part, parts, d.Split)}, shard.Alone{}))
	s, err := shard.Open(filepath.Join(dir, "parts"), shard.Options{})
	must(err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Spec returns a job that trains a small model.
func Spec() job.Spec {
	return job.Spec{
		Model:  nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "none", Dropout: 0.5},
		Sample: sample.Neighbours(4, 3, 2), Batch: 20, Epochs: 2,
		Optimizer: nn.DefaultOptimizer("adam"),
		Schedule:  nn.Schedule{Kind: nn.ScheduleConstant, Base: 0.01}, StepEpochs: 1, Seed: 1,
		Depth: 2, Cache: policy.Settings{Policy: policy.None},
	}
}

// Env returns the environment of a rank that is its own node and computes with the reference
// device.
func Env(c comm.Comm, shards *shard.Shards) session.Env {
	return session.Env{Comm: c, RanksPerNode: 1, Shards: shards, Device: ref.New(),
		Host: ref.Host{}, Workers: 2}
}
