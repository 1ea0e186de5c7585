package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"halognn/src/base/npy"
)

// graphOf is a small graph of one kind. Its parts lie under its name.
type graphOf struct {
	name      string
	generate  []string               // flags of generate; nil: the graph is imported
	write     func(dir string) error // the arrays that are imported
	imported  []string               // more flags of import
	partition []string               // more flags of partition
	choices   map[string][]string    // what random settings are drawn from, in place of choices
	policies  string                 // that are simulated; "": those of most kinds
	cases     [][]string             // settings of the grid, on 4 ranks of two nodes
	trained   [][]string             // likewise, which plan refuses
}

var typedKinds = []string{"rgcn", "sage", "gat", "gatv2", "gcn"}

// graphs are of every kind. The first one is the plainest, and most of the grid runs on it.
var graphs = []graphOf{
	{name: "plain", generate: []string{"--kind", "sbm", "--vertices", "2400", "--degree", "12",
		"--features", "12", "--classes", "5", "--seed", "1"}},
	{name: "two", generate: []string{"--kind", "sbm", "--vertices", "900", "--degree", "9",
		"--features", "8", "--classes", "2", "--seed", "2"},
		partition: []string{"--method", "random"},
		cases:     [][]string{{}}},
	{name: "int8", generate: []string{"--kind", "sbm", "--vertices", "1200", "--degree", "9",
		"--features", "64", "--classes", "4", "--seed", "3", "--feature-type", "int8"},
		cases: [][]string{{"cache.policy=vip"}, {"exchange.sums=on"}, {"model.kind=gat"},
			{"cache.policy=prefetch", "topology.kind=partitioned"}}},
	{name: "weighted", generate: []string{"--kind", "sbm", "--vertices", "1200", "--degree", "9",
		"--features", "16", "--classes", "4", "--seed", "4", "--feature-type", "float16",
		"--edge-weights"},
		cases: [][]string{{"topology.kind=partitioned"}, {"exchange.sums=on", "model.kind=gcn"},
			{"sample.kind=poisson"}, {"parallel.mode=split"}}},
	{
		name: "typed",
		generate: []string{
			"--kind", "mag", "--vertices", "700", "--classes", "4", "--features", "8", "--seed",
			"5",
		},
		partition: []string{"--method", "ldg", "--allow-imbalance", "--features", "degree"},
		choices: map[string][]string{
			"model.kind":    typedKinds,
			"model.project": {"0", "6"},
			"exchange.sums": {"off"},
		},
		cases: [][]string{
			{"model.kind=rgcn"},
			{"model.kind=rgcn", "topology.kind=partitioned"},
			{"model.kind=gatv2", "cache.policy=prefetch"},
			{"model.kind=rgcn", "cache.policy=degree"},
			{"model.kind=rgcn", "sample.relation_fanouts=writes=4,2", "train.eval_mode=full"},
		},
		trained: [][]string{{"model.kind=sage", "parallel.mode=split"}},
	},
	{name: "learned", generate: []string{"--kind", "mag", "--vertices", "500", "--classes", "4",
		"--features", "8", "--seed", "6"},
		partition: []string{"--method", "ldg", "--allow-imbalance"},
		choices: map[string][]string{"model.kind": typedKinds, "model.learned": {"6"},
			"exchange.sums": {"off"}},
		cases: [][]string{{"model.kind=rgcn", "model.learned=8"},
			{"model.kind=rgcn", "model.learned=8", "topology.kind=partitioned"},
			{"model.kind=gat", "model.learned=8", "pipeline.depth=4"}}},
	{
		name: "links",
		generate: []string{
			"--kind", "sbm", "--vertices", "600", "--degree", "5", "--features", "8", "--classes",
			"4", "--seed", "7", "--split-links", "60/20/20",
		},
		choices: map[string][]string{
			"links.negatives": {"uniform:4", "joint:8", "local:2", "batch"},
			"links.loss":      {"contrastive", "cross-entropy"},
			"links.score":     {"dot", "mlp", "distmult"},
		},
		cases: [][]string{
			{},
			{"topology.kind=partitioned"},
			{"parallel.mode=split"},
			{"parallel.mode=hybrid", "cache.policy=degree"},
			{"parallel.mode=push-pull"},
			{"model.kind=mlp"},
			{"links.filter=true", "links.score=mlp", "cache.policy=lookahead"},
			{"links.graph=train+valid", "train.eval_mode=full"},
		},
	},
	{name: "rated", generate: []string{"--kind", "sbm", "--vertices", "600", "--degree", "5",
		"--features", "8", "--classes", "3", "--seed", "8", "--split-links", "60/20/20",
		"--link-labels", "classes"},
		cases: [][]string{{}, {"parallel.mode=split"}, {"topology.kind=partitioned"}}},
	{
		name: "edges", write: edgeRows, imported: []string{"--directed"},
		partition: []string{"--method", "ldg", "--allow-imbalance"},
		choices: map[string][]string{
			"model.kind":        {"gine", "gatv2"},
			"exchange.sums":     {"off"},
			"parallel.mode":     {"data"},
			"model.aggregation": {"mean"},
		},
		cases: [][]string{
			{"model.kind=gine"},
			{"model.kind=gatv2", "topology.kind=partitioned"},
			{"model.kind=gine", "cache.policy=lookahead"},
			{"model.kind=gatv2", "train.eval_mode=full"},
		},
	},
	{
		name: "sparse", write: sparseRows,
		imported: []string{"--undirected", "--feature-type", "sparse"},
		choices:  map[string][]string{"exchange.sums": {"off"}}, policies: "none,degree,vip,oracle",
		cases: [][]string{
			{},
			{"topology.kind=partitioned"},
			{"model.kind=gat"},
			{"cache.policy=degree"},
			{"model.kind=mlp"},
		},
	},
}

// prepareGraphs makes the graphs and their parts.
func (b *build) prepareGraphs() error {
	for _, g := range graphs {
		data := b.path("data-" + g.name)
		making := append([]string{"generate", "--out", data}, g.generate...)
		if g.write != nil {
			in := b.path("in-" + g.name)
			if err := g.write(in); err != nil {
				return err
			}
			making = append([]string{"import", "--format", "npz", "--in", in, "--out", data},
				g.imported...)
		}
		cut := []string{"partition", "--data", data, "--parts", "4", "--out", b.path(g.name)}
		if g.partition == nil {
			cut = append(cut, "--method", "ldg")
		}
		for _, args := range [][]string{making, append(cut, g.partition...)} {
			if out, err := b.run(args...); err != nil {
				return fmt.Errorf("%s %v: %w\n%s", b.program, args, err, out)
			}
		}
	}
	return nil
}

// array is a .npy file to be.
type array struct {
	name  string
	write func(path string) (npy.Info, error)
}

func arrayOf[T npy.Element](name string, data []T, shape ...int) array {
	return array{name, func(path string) (npy.Info, error) {
		return npy.WriteFile(path, data, shape...)
	}}
}

func save(dir string, arrays ...array) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, a := range arrays {
		if _, err := a.write(filepath.Join(dir, a.name+".npy")); err != nil {
			return err
		}
	}
	return nil
}

// edges draws that many edges a vertex, without loops or repetitions.
func edges(random *rand.Rand, vertices, degree int) (src, dst []int64) {
	seen := map[[2]int64]bool{}
	for range degree * vertices {
		e := [2]int64{random.Int64N(int64(vertices)), random.Int64N(int64(vertices))}
		if e[0] != e[1] && !seen[e] {
			seen[e] = true
			src, dst = append(src, e[0]), append(dst, e[1])
		}
	}
	return src, dst
}

// edgeRows writes a graph whose edges have features.
func edgeRows(dir string) error {
	const vertices, columns = 800, 3
	random := rand.New(rand.NewPCG(9, 1))
	src, dst := edges(random, vertices, 6)
	x, labels := make([]float32, 4*vertices), make([]int64, vertices)
	for i := range x {
		x[i] = float32(random.NormFloat64())
	}
	for v := range labels {
		labels[v] = random.Int64N(3)
	}
	rows := make([]float32, columns*len(src))
	for i := range rows {
		rows[i] = float32(random.NormFloat64())
	}
	return save(dir, arrayOf("edge_index", append(src, dst...), 2, len(dst)),
		arrayOf("edge_attr", rows, len(dst), columns), arrayOf("x", x, vertices, 4),
		arrayOf("y", labels, vertices))
}

// sparseRows writes a graph with few entries in many columns; some rows have none.
func sparseRows(dir string) error {
	const vertices, columns = 900, 200
	random := rand.New(rand.NewPCG(10, 1))
	src, dst := edges(random, vertices, 4)
	labels, indptr := make([]int64, vertices), []int64{0}
	var indices []int32
	var values []float32
	for v := range labels {
		labels[v] = random.Int64N(4)
		for c := random.IntN(40); c < columns; c += 1 + random.IntN(60) {
			indices = append(indices, int32(c))
			values = append(values, float32(random.NormFloat64()))
		}
		if v%50 == 0 {
			indices, values = indices[:indptr[v]], values[:indptr[v]]
		}
		indptr = append(indptr, int64(len(indices)))
	}
	return save(dir, arrayOf("edge_index", append(src, dst...), 2, len(dst)),
		arrayOf("attr_indptr", indptr, len(indptr)), arrayOf("attr_indices", indices, len(indices)),
		arrayOf("attr_data", values, len(values)),
		arrayOf("attr_shape", []int64{vertices, columns}, 2),
		arrayOf("num_nodes", []int64{vertices}, 1), arrayOf("y", labels, vertices))
}
