package infer

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// forward is the reference for inference: all layers over the whole graph, as the papers define
// them, in float64. hidden is what the last layer reads.
func forward(
	t *testing.T, s *shard.Shards, c nn.Config, tensors []nn.Tensor,
) (h, hidden [][]float64) {
	t.Helper()
	weights := map[string]nn.Tensor{}
	for _, x := range tensors {
		weights[x.Name] = x
	}
	linear := func(name string, x []float64) []float64 {
		w := weights[name]
		if len(w.Shape) != 2 || w.Shape[1] != len(x) {
			t.Fatalf("the model has no %s for %d columns: %v", name, len(x), w.Shape)
		}
		y := make([]float64, w.Shape[0])
		for i := range y {
			for j := range x {
				y[i] += float64(w.Data[i*len(x)+j]) * x[j]
			}
		}
		return y
	}
	add := func(y, x []float64) []float64 {
		for i := range y {
			y[i] += x[i]
		}
		return y
	}
	vector := func(name string) []float64 {
		v := make([]float64, len(weights[name].Data))
		for i, x := range weights[name].Data {
			v[i] = float64(x)
		}
		return v
	}
	h = features(t, s)
	layers := make([][][]float64, len(h)) // of every vertex, its rows of all layers
	for l := range c.Layers {
		hidden = h
		next := make([][]float64, len(h))
		for v := range h {
			name := fmt.Sprintf("convs.%d.", l)
			switch c.Kind {
			case "mlp":
				next[v] = add(linear(fmt.Sprintf("lins.%d.weight", l), h[v]),
					vector(fmt.Sprintf("lins.%d.bias", l)))
			case "gcn":
				next[v] = add(linear(name+"lin.weight", gcnSum(s, c, h, v)), vector(name+"bias"))
			case "gin":
				sum := weighted(s, c, h, v, func(u int) float64 {
					if u == v {
						return 1 + vector(name + "eps")[0]
					}
					return 1
				})
				hidden := add(linear(name+"nn.0.weight", sum), vector(name+"nn.0.bias"))
				for i, x := range hidden {
					hidden[i] = max(0, x)
				}
				next[v] = add(linear(name+"nn.2.weight", hidden), vector(name+"nn.2.bias"))
			case "gat":
				z := map[int][]float64{v: linear(name+"lin.weight", h[v])}
				for _, u := range s.Topology().Graph.InNeighbours(graph.VertexID(v)) {
					z[int(u)] = linear(name+"lin.weight", h[u])
				}
				src, dst := vector(name+"att_src"), vector(name+"att_dst")
				y := attend(s, z, v, c, l == c.Layers-1 && !c.Jumps(),
					func(u, lo, hi int) (score float64) {
						for j := lo; j < hi; j++ {
							score += src[j]*z[u][j] + dst[j]*z[v][j]
						}
						return leaky(c, score)
					})
				next[v] = add(y, vector(name+"bias"))
			case "gatv2":
				rows := func(side string, u int) []float64 {
					return add(linear(name+side+".weight", h[u]), vector(name+side+".bias"))
				}
				z, r, a := map[int][]float64{v: rows("lin_l", v)}, rows("lin_r", v),
					vector(name+"att")
				for _, u := range s.Topology().Graph.InNeighbours(graph.VertexID(v)) {
					z[int(u)] = rows("lin_l", int(u))
				}
				y := attend(s, z, v, c, l == c.Layers-1 && !c.Jumps(),
					func(u, lo, hi int) (score float64) {
						for j := lo; j < hi; j++ {
							score += a[j] * leaky(c, z[u][j]+r[j])
						}
						return score
					})
				next[v] = add(y, vector(name+"bias"))
			default:
				rows := mean(s, c, h, v)
				if c.Aggregation == nn.AggregateMax {
					rows = most(s, h, v)
				}
				y := add(linear(name+"lin_l.weight", rows), vector(name+"lin_l.bias"))
				next[v] = add(y, linear(name+"lin_r.weight", h[v]))
			}
			if l < c.Layers-1 || c.Jumps() {
				if c.Norm == "layer" {
					normalise(next[v], vector(fmt.Sprintf("norms.%d.weight", l)),
						vector(fmt.Sprintf("norms.%d.bias", l)))
				}
				if c.Norm == "batch" {
					name := fmt.Sprintf("norms.%d.module.", l)
					gain, shift := vector(name+"weight"), vector(name+"bias")
					running, variance := vector(name+"running_mean"), vector(name+"running_var")
					for j, x := range next[v] {
						next[v][j] = (x-running[j])/math.Sqrt(variance[j]+1e-5)*gain[j] + shift[j]
					}
				}
				if c.Residual && l > 0 {
					add(next[v], h[v])
				}
				for i, x := range next[v] {
					if next[v][i] = max(0, x); x < 0 && c.Activation == nn.ELU {
						next[v][i] = math.Exp(x) - 1
					}
				}
			}
		}
		h = next
		for v := range h {
			layers[v] = append(layers[v], h[v])
		}
	}
	for v := range h {
		switch c.Jumping {
		case nn.JumpCat:
			h[v] = add(linear("lin.weight", slices.Concat(layers[v]...)), vector("lin.bias"))
		case nn.JumpMax:
			most := slices.Clone(layers[v][0])
			for _, row := range layers[v] {
				for j := range row {
					most[j] = max(most[j], row[j])
				}
			}
			h[v] = add(linear("lin.weight", most), vector("lin.bias"))
		}
	}
	return h, hidden
}

// features reads the rows of all parts.
func features(t *testing.T, s *shard.Shards) [][]float64 {
	t.Helper()
	var rows [][]float64
	for k := range s.Parts {
		part, err := s.OpenPart(k)
		if err != nil {
			t.Fatal(err)
		}
		values := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(part.Features))),
			len(part.Features)/4)
		for i := range part.Rows {
			row := make([]float64, s.Features)
			for j := range row {
				row[j] = float64(values[i*s.Features+j])
			}
			rows = append(rows, row)
		}
		if err := part.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// weightOf returns the weight of the i-th in-edge of v, 1 where edges have none, and the sum of
// all.
func weightOf(s *shard.Shards, c nn.Config, v, i int) (weight, sum float64) {
	t := s.Topology()
	lo, hi := t.Graph.Indptr[v], t.Graph.Indptr[v+1]
	if !c.EdgeWeights {
		return 1, float64(hi - lo)
	}
	for _, w := range t.Weights[lo:hi] {
		sum += float64(w)
	}
	if i >= 0 {
		weight = float64(t.Weights[lo+int64(i)])
	}
	return weight, sum
}

func mean(s *shard.Shards, c nn.Config, h [][]float64, v int) []float64 {
	total := make([]float64, len(h[v]))
	for i, u := range s.Topology().Graph.InNeighbours(graph.VertexID(v)) {
		w, sum := weightOf(s, c, v, i)
		for j, x := range h[u] {
			total[j] += x * w / sum
		}
	}
	return total
}

func most(s *shard.Shards, h [][]float64, v int) []float64 {
	most := make([]float64, len(h[v]))
	for n, u := range s.Topology().Graph.InNeighbours(graph.VertexID(v)) {
		for j, x := range h[u] {
			if n == 0 || x > most[j] {
				most[j] = x
			}
		}
	}
	return most
}

// weighted sums the rows of a vertex and its neighbours, the latter by the weights of their edges
// too.
func weighted(s *shard.Shards, c nn.Config, h [][]float64, v int,
	weight func(u int) float64) []float64 {
	sum := make([]float64, len(h[v]))
	for j, x := range h[v] {
		sum[j] = weight(v) * x
	}
	for i, u := range s.Topology().Graph.InNeighbours(graph.VertexID(v)) {
		w, _ := weightOf(s, c, v, i)
		for j, x := range h[u] {
			sum[j] += weight(int(u)) * w * x
		}
	}
	return sum
}

func gcnSum(s *shard.Shards, c nn.Config, h [][]float64, v int) []float64 {
	degree := func(u int) float64 {
		_, sum := weightOf(s, c, u, -1)
		return 1 + sum
	}
	return weighted(s, c, h, v, func(u int) float64 {
		if c.GCNNorm == nn.GCNBoth {
			return 1 / math.Sqrt(degree(u)*degree(v))
		}
		return 1 / degree(v)
	})
}

func leaky(c nn.Config, v float64) float64 { return max(v, 0) + float64(c.Slope)*min(v, 0) }

// attend sums the rows z of vertex v and its neighbours by the softmax of scores, head by head.
// score is that of the edge from u in the columns [lo,hi) of a head.
func attend(s *shard.Shards, z map[int][]float64, v int, c nn.Config, last bool,
	score func(u, lo, hi int) float64) []float64 {
	wide := len(z[v])
	width := wide / c.Heads
	y := make([]float64, wide)
	edges := []int{v}
	for _, u := range s.Topology().Graph.InNeighbours(graph.VertexID(v)) {
		edges = append(edges, int(u))
	}
	for head := range c.Heads {
		total := 0.0
		alpha := make([]float64, len(edges))
		for e, u := range edges {
			alpha[e] = math.Exp(score(u, head*width, (head+1)*width))
			total += alpha[e]
		}
		for e, u := range edges {
			for j := head * width; j < (head+1)*width; j++ {
				y[j] += alpha[e] / total * z[u][j]
			}
		}
	}
	if !last && c.HeadMerge != nn.HeadsMean {
		return y
	}
	mean := make([]float64, width)
	for j, x := range y {
		mean[j%width] += x / float64(c.Heads)
	}
	return mean
}

// normalise is LayerNorm as PyTorch has it.
func normalise(x, gamma, beta []float64) {
	var mean, variance float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	for i, v := range x {
		x[i] = (v-mean)/math.Sqrt(variance+1e-5)*gamma[i] + beta[i]
	}
}

// Layer-wise inference, in chunks and on any number of ranks, is the forward pass over the whole
// graph. Three layers of sums of some ten terms each leave float32 within a few hundred roundings
// of 6e-8.
func TestInferenceIsTheWholeGraphsForwardPass(t *testing.T) {
	defer func(bytes int) { chunkBytes = bytes }(chunkBytes)
	plain, weighted := generated(t),
		shardtest.Open(t, dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6, Classes: 4,
			Seed: 1, EdgeWeights: true}, shardtest.Options{Parts: 6})
	for _, c := range []struct {
		name  string
		model nn.Config
		bytes int // of a chunk's rows
	}{
		{"batch norm", nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "batch", Residual: true},
			2000},
		{"weighted means", nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "layer",
			EdgeWeights: true}, 2000},
		{"weighted gcn", nn.Config{Kind: "gcn", Layers: 3, Hidden: 5, Norm: "none",
			EdgeWeights: true}, 2000},
		{"weighted gcn by both ends",
			nn.Config{Kind: "gcn", Layers: 2, Hidden: 5, Norm: "none", EdgeWeights: true,
				GCNNorm: nn.GCNBoth}, 1},
		{"weighted gin", nn.Config{Kind: "gin", Layers: 2, Hidden: 5, Norm: "layer",
			EdgeWeights: true}, 2000},
		{"mapped first", nn.Config{Kind: "sage", Layers: 2, Hidden: 16, Norm: "layer"}, 2000},
		{"weighted, mapped first", nn.Config{Kind: "sage", Layers: 3, Hidden: 16, Norm: "none",
			EdgeWeights: true}, 2000},
		{"in one chunk", nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "none"}, 32 << 20},
		{"in many chunks", nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "none"}, 2000},
		{"vertex by vertex", nn.Config{Kind: "sage", Layers: 2, Hidden: 5, Norm: "none"}, 1},
		{"normalised", nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "layer"}, 2000},
		{"maxima", nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "layer",
			Aggregation: nn.AggregateMax}, 2000},
		{"gcn", nn.Config{Kind: "gcn", Layers: 3, Hidden: 5, Norm: "none"}, 2000},
		{"gcn by both ends", nn.Config{Kind: "gcn", Layers: 2, Hidden: 5, Norm: "layer",
			GCNNorm: nn.GCNBoth}, 2000},
		{"gin", nn.Config{Kind: "gin", Layers: 2, Hidden: 5, Norm: "layer"}, 2000},
		{"gat", nn.Config{Kind: "gat", Layers: 3, Hidden: 6, Norm: "none", Heads: 2, Slope: 0.2,
			Activation: nn.ELU}, 2000},
		{"gat, residual", nn.Config{Kind: "gat", Layers: 3, Hidden: 6, Norm: "layer", Heads: 3,
			Slope: 0.2, Residual: true}, 2000},
		{"gcn, residual", nn.Config{Kind: "gcn", Layers: 3, Hidden: 5, Norm: "layer",
			Residual: true}, 2000},
		{"gat, means", nn.Config{Kind: "gat", Layers: 2, Hidden: 5, Norm: "none", Heads: 3,
			HeadMerge: nn.HeadsMean, Slope: 0.2}, 1},
		{"gatv2", nn.Config{Kind: "gatv2", Layers: 2, Hidden: 6, Norm: "layer", Heads: 2,
			Slope: 0.2, Activation: nn.ELU}, 2000},
		{"mlp", nn.Config{Kind: "mlp", Layers: 3, Hidden: 5, Norm: "layer"}, 2000},
		{"jumping", nn.Config{Kind: "sage", Layers: 3, Hidden: 5, Norm: "layer",
			Jumping: nn.JumpCat}, 2000},
		{"jumping by maxima, vertex by vertex",
			nn.Config{Kind: "gat", Layers: 2, Hidden: 6, Norm: "none", Heads: 2, Slope: 0.2,
				Jumping: nn.JumpMax}, 1},
		{"jumping, one layer",
			nn.Config{Kind: "gcn", Layers: 1, Hidden: 5, Norm: "none", Jumping: nn.JumpCat}, 2000},
	} {
		chunkBytes = c.bytes
		shards := plain
		if c.model.EdgeWeights {
			shards = weighted
		}
		var want, wantHidden [][]float64
		for _, ranks := range []int{1, 2, 6} {
			o := sageOptions()
			o.Model = c.model
			o.Sample.Fanouts = o.Sample.Fanouts[:c.model.Layers]
			if ranks == 1 {
				err := onRanks(shards, 1, o, func(_ context.Context, s Passes) error {
					params := s.Model.Params
					want, wantHidden = forward(t, shards, s.Job.Model,
						params.Tensors(params.Values))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			scratch := t.TempDir()
			err := onRanks(shards, ranks, o, func(ctx context.Context, s Passes) error {
				first, classes := int(shards.Offsets[s.First]), shards.Classes
				if ranks == 2 { // hidden rows in files make no difference
					s.ScratchDir = scratch
				}
				hidden, got, err := fullWith(ctx, s)
				if err != nil {
					return err
				}
				for i, x := range hidden {
					cols := len(hidden) / s.ownRows()
					w := wantHidden[first+i/cols][i%cols]
					if math.Abs(float64(x)-w) > 1e-5*max(1, math.Abs(w)) {
						return fmt.Errorf("hidden value %d of vertex %d is %g, want %g", i%cols,
							first+i/cols, x, w)
					}
				}
				if n := int(shards.Offsets[s.Last]) - first; len(got) != n*classes {
					return fmt.Errorf("%d logits for %d vertices", len(got), n)
				}
				for i, x := range got {
					if w := want[first+i/classes][i%classes]; math.Abs(float64(x)-w) > 1e-5*max(1,
						math.Abs(w)) {
						return fmt.Errorf("logit %d of vertex %d is %g, want %g", i%classes,
							first+i/classes, x, w)
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// With fanouts that take all neighbours, minibatches come to the logits of layer-wise inference:
// with weights of edges too.
func TestSampledAndFullInferenceAgree(t *testing.T) {
	shards := shardtest.Open(t,
		dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6, Classes: 4, Seed: 1,
			EdgeWeights: true},
		shardtest.Options{Parts: 2})
	for _, model := range []nn.Config{
		{Kind: "sage", EdgeWeights: true}, {Kind: "sage", Aggregation: nn.AggregateMax},
		{Kind: "gin", EdgeWeights: true},
		{Kind: "gcn", EdgeWeights: true}, {Kind: "gcn", EdgeWeights: true, GCNNorm: nn.GCNBoth},
		{Kind: "sage", EdgeWeights: true, Jumping: nn.JumpCat}, {Kind: "gcn", Jumping: nn.JumpMax},
	} {
		o := sageOptions()
		o.Model = model
		o.Model.Layers, o.Model.Hidden, o.Model.Norm = 2, 5, "layer"
		o.Sample = sample.Neighbours(3, 2)
		o.Eval = sample.Neighbours(sample.All, sample.All)
		err := onRanks(shards, 2, o, func(ctx context.Context, s Passes) error {
			full, err := s.Full(ctx)
			if err != nil {
				return err
			}
			defer mem.Free(full)
			first, classes := shards.Offsets[s.First], shards.Classes
			return s.Sampled(ctx, 1, shards.Valid, func(m *parallel.Minibatch,
				logits compute.Matrix) error {
				for i, v := range m.Seeds {
					for c, got := range logits.Row(i) {
						want := full[(int64(v)-first)*int64(classes)+int64(c)]
						if math.Abs(float64(got-want)) > 1e-5*max(1, math.Abs(float64(want))) {
							return fmt.Errorf("logit %d of vertex %d is %v, want %v", c, v, got,
								want)
						}
					}
				}
				return nil
			})
		})
		if err != nil {
			t.Errorf("%+v: %v", model, err)
		}
	}
}

// Chunks cover the own vertices in order, and none but a single vertex exceeds the budget.
func TestChunksKeepTheirBudget(t *testing.T) {
	defer func(bytes int) { chunkBytes = bytes }(chunkBytes)
	shards := generated(t)
	for _, chunkBytes = range []int{1, 500, 4000, 1 << 20} {
		err := onRanks(shards, 3, sageOptions(), func(_ context.Context, s Passes) error {
			const rowBytes = 24
			cut := s.chunks(rowBytes)
			bounds, most := cut.bounds, cut.most
			indptr := shards.Topology().Graph.Indptr
			if int64(bounds[0]) != shards.Offsets[s.First] ||
				int64(bounds[len(bounds)-1]) != shards.Offsets[s.Last] {
				return fmt.Errorf("chunks run from %d to %d, the own vertices from %d to %d",
					bounds[0], bounds[len(bounds)-1], shards.Offsets[s.First],
					shards.Offsets[s.Last])
			}
			for i := range len(bounds) - 1 {
				lo, hi := bounds[i], bounds[i+1]
				if n := int(hi - lo); n < 1 || n > most {
					return fmt.Errorf("chunk %d has %d vertices, the largest %d", i, n, most)
				}
				if rows := int64(hi-lo) +
					indptr[hi] - indptr[lo]; rows*rowBytes > int64(chunkBytes) && hi-lo > 1 {
					return fmt.Errorf("chunk %d names %d rows, more than %d bytes hold", i, rows,
						chunkBytes)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Logits that are not finite give no class and are counted; written as logits they stay as they
// are.
func TestUndefinedPredictionsAreCounted(t *testing.T) {
	for _, c := range []struct {
		task string
		p    predictions
		want int
	}{
		{task.Multiclass, predictions{classes: 2, rowBytes: 4, form: FormClasses}, 2},
		{task.Multilabel, predictions{classes: 2, rowBytes: 2, form: FormClasses}, 2},
		{task.Multiclass, predictions{classes: 2, rowBytes: 8, form: FormProbabilities}, 2},
		{task.Multiclass, predictions{classes: 2, rowBytes: 8, form: FormLogits}, 2},
	} {
		c.p.task = task.Find(c.task)
		c.p.own, c.p.truth = make([]byte, 3*c.p.rowBytes), &truth{}
		c.p.chosen = &chosen{n: 3, hi: 3}
		for i, z := range [][]float32{{0, 1}, {float32(math.NaN()), 1}, {0, float32(math.Inf(1))}} {
			c.p.set(i, z)
		}
		if c.p.undefined != c.want {
			t.Errorf("%s of %s: %d are counted, want %d", c.p.form, c.task, c.p.undefined, c.want)
		}
	}
}

func TestScratchDirThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		dir, message string
		bytes        int64
	}{
		{filepath.Join(dir, "missing"), "run.scratch_dir: .*no such file", 1},
		{dir, "bytes left, but inference keeps up to 4611686018427387904", 1 << 62},
		{dir, "^$", 1}, {"", "^$", 1 << 62},
	} {
		message := ""
		if err := checkScratchDir(c.dir, c.bytes); err != nil {
			message = err.Error()
		}
		if !regexp.MustCompile(c.message).MatchString(message) {
			t.Errorf("%q, %d bytes: the error is %q", c.dir, c.bytes, message)
		}
	}
}

// A file has no name left while its rows are in use, and its memory is not that of the process.
func TestLayerRowsInFiles(t *testing.T) {
	dir, before := t.TempDir(), mem.Allocated()
	rows, err := makeLayerRows(dir, 100, 10, 10, compute.Float32s)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.free()
	for i, x := 0, floats(rows.bytes); i < len(x); i++ {
		x[i] = float32(i)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left in the directory (%v)", left, err)
	}
	if len(rows.bytes) != 4000 || mem.Allocated() != before {
		t.Errorf("%d rows take %d bytes of memory", len(rows.bytes), mem.Allocated()-before)
	}
}

// The disk must hold the rows of two layers, aggregates among them, or what a layer has mapped.
func TestHiddenBytes(t *testing.T) {
	for _, c := range []struct {
		model  nn.Config
		stores compute.Elements
		want   int64
	}{
		{nn.Config{Kind: "sage", Layers: 1, Out: 4}, compute.Float32s, 0},
		{nn.Config{Kind: "sage", Layers: 2, Hidden: 40, Out: 4}, compute.Float32s, 4 * (8 + 4)},
		{nn.Config{Kind: "sage", Layers: 3, Hidden: 40, Out: 4}, compute.Float32s,
			4 * (40 + 40 + 8 + 4)},
		{nn.Config{Kind: "sage", Layers: 3, Hidden: 40, Out: 4}, compute.BF16s,
			2*(40+40) + 4*(8+4)},
		{nn.Config{Kind: "sage", Layers: 3, Hidden: 41, Out: 30}, compute.BF16s, 4 * (41 + 41)},
		{nn.Config{Kind: "gin", Layers: 2, Hidden: 40, Out: 4}, compute.Float32s, 4 * 2 * 40},
		{nn.Config{Kind: "gat", Layers: 2, Hidden: 40, Out: 4, Heads: 1}, compute.BF16s, 4 * 40},
		{nn.Config{Kind: "gcn", Layers: 3, Hidden: 40, Out: 4, Jumping: nn.JumpCat},
			compute.BF16s, 2 * 3 * 40},
	} {
		c.model.In, c.model.Norm = 7, nn.NormNone
		if got := hiddenBytes(&c.model, 10, c.stores); got != 10*c.want {
			t.Errorf("%+v in %v: %d bytes for 10 vertices, want %d", c.model, c.stores, got,
				10*c.want)
		}
	}
}
