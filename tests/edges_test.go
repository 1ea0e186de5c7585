//go:build e2e

package tests

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// edgeParts is a graph whose labels depend on some neighbours only, which features of edges mark:
// the label says whether the rows of these neighbours add up to more than 0. The source lists its
// edges in random order.
var edgeParts = &fixture{name: "edges-4", make: func(t *testing.T,
	dir string) {
	withEdgeRows(t, dir, 2000, 6, 3)
}}

// withEdgeRows makes such a graph in 4 parts.
func withEdgeRows(t *testing.T, dir string, vertices, degree, columns int) {
	t.Helper()
	in, random := t.TempDir(), rand.New(rand.NewPCG(5, 6))
	var src, dst, labels []int64
	var rows []float32
	x, sum := make([]float32, vertices), make([]float32, vertices)
	for v := range x {
		x[v] = float32(random.NormFloat64())
	}
	seen := map[[2]int]bool{}
	for range degree * vertices {
		u, v := random.IntN(vertices), random.IntN(vertices)
		if u == v || seen[[2]int{u, v}] {
			continue
		}
		seen[[2]int{u, v}] = true
		src, dst = append(src, int64(u)), append(dst, int64(v))
		for c := range columns {
			f := float32(random.NormFloat64())
			rows = append(rows, f)
			if c == 1 && f > 0.3 {
				sum[v] += x[u]
			}
		}
	}
	for v := range vertices {
		labels = append(labels, 0)
		if sum[v] > 0 {
			labels[v] = 1
		}
	}
	save(t, filepath.Join(in, "edge_index.npy"), append(src, dst...), 2, len(dst))
	save(t, filepath.Join(in, "edge_attr.npy"), rows, len(dst), columns)
	save(t, filepath.Join(in, "x.npy"), x, vertices, 1)
	save(t, filepath.Join(in, "y.npy"), labels, vertices)
	data := filepath.Join(t.TempDir(), "data")
	halognn(t).must(t, "import", "--format", "npz", "--in", in, "--directed", "--out", data)
	halognn(t).must(t, "check", data)
	halognn(t).must(t, "partition", "--data", data, "--parts", "4", "--method", "ldg",
		"--allow-imbalance", "--out", dir)
	halognn(t).must(t, "check", dir)
}

// Models that read features of edges learn labels that depend on them. They get the same numbers on
// one rank and on four (two ranks add the gradients of four streams in another order), with any
// cache and depth, and wherever the rows and the topology are. plan counts their collectives.
// Inference with all neighbours gives the same as minibatches with all neighbours.
func TestEdgeFeatures(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := edgeParts.dir(t)
	for _, kind := range []string{"gatv2", "gine"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			sets := []string{"model.kind=" + kind, "model.hidden=16", "sample.fanouts=8,4",
				"sample.batch=64",
				"sample.streams=part", "train.epochs=15", "train.lr=0.02", "model.dropout=0",
				"run.ranks_per_node=1"}
			one := trained(t, parts, 1, sets...)
			if one.EdgeRows != 0 || one.EdgeBytes != 0 {
				t.Errorf("%d rows of edges came to one rank from others", one.EdgeRows)
			}
			var rounds float64
			for _, c := range []struct {
				ranks int
				sets  []string
			}{{4, []string{"run.ranks_per_node=2", "topology.kind=partitioned"}},
				{4, []string{"cache.policy=lookahead"}}, {4, []string{"pipeline.depth=0"}},
				{4, []string{"run.ranks_per_node=2", "pipeline.depth=4", "cache.policy=vip"}}} {
				several := trained(t, parts, c.ranks, append(sets, c.sets...)...)
				sameNumbers(t, several, one)
				rounds = several.CollectivesPerStep
				const row = 3*4 + 4
				// both are means over epochs, rounded down
				off := several.EdgeBytes - several.EdgeRows*row
				if several.EdgeRows == 0 || off < 0 || off >= row {
					t.Errorf("%d ranks: %d rows of edges came in %d bytes", c.ranks,
						several.EdgeRows, several.EdgeBytes)
				}
			}
			args := []string{"--ranks", "4"}
			for _, s := range sets {
				args = append(args, "--set", s)
			}
			if got := planned(t, parts, args...).Collectives; float64(got) != rounds {
				t.Errorf("%d collectives a step are planned, a run starts %g", got, rounds)
			}
			counted := halognn(t).must(t, append([]string{"simulate", "--parts", parts, "--config",
				baseFile.dir(t), "--policies", "none", "--alphas", "0.1", "--epochs", "15", "--out",
				filepath.Join(t.TempDir(), "simulated")}, args...)...).out
			var rows, bytes float64
			_, tail, _ := strings.Cut(counted, "edge_rows")
			if _, err := fmt.Sscanf(tail, "%g\n  edge_bytes %g", &rows, &bytes); err != nil {
				t.Fatalf("%v: %s", err, counted)
			}
			apart := trained(t, parts, 4, sets...) // its means over epochs are rounded down
			if math.Floor(rows) != float64(apart.EdgeRows) ||
				math.Abs(bytes-float64(apart.EdgeBytes)) > 1 {
				t.Errorf("%g rows of edges in %g bytes are simulated, a run fetches %d in %d", rows,
					bytes, apart.EdgeRows, apart.EdgeBytes)
			}
			halognn(t).must(t, append([]string{"plan", "--parts", parts, // plan measures steps
				"--config", baseFile.dir(t)}, args...)...)
			plain := map[string]string{"gatv2": "gatv2", "gine": "gin"}[kind]
			without := trained(t, parts, 1, append(sets, "model.kind="+plain,
				"model.edge_features=false")...)
			if one.TestMetric.Value < without.TestMetric.Value+0.05 {
				t.Errorf("accuracy %g with features of edges, %g without", one.TestMetric.Value,
					without.TestMetric.Value)
			}
			sameLogits(t, one)
		})
	}
}

// Settings that models with features of edges cannot have are refused with a message that names
// them.
func TestEdgeFeaturesRefused(t *testing.T) {
	unlessShort(t)
	parts, plain := edgeParts.dir(t), smallParts.dir(t)
	for _, c := range []struct {
		parts string
		sets  []string
		want  string
	}{
		{parts, []string{"model.kind=gatv2", "parallel.mode=split"}, "parallel.mode split"},
		{parts, []string{"model.kind=gine", "model.edge_features=false"}, "model.edge_features " +
			"is false"},
		{plain, []string{"model.kind=gine"}, "features of edges, but the graph has none"},
	} {
		r := halognn(t).run(t, append(trainArgs(t, c.parts, newRunDir(t), c.sets...),
			"--ranks-in-process", "2")...)
		if r.code == 0 || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: %s", c.sets, fmt.Sprint(r))
		}
	}
}
