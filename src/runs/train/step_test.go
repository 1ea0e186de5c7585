package train

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// bareLoss is the mean loss of the training vertices of a graph without features, by all
// neighbours: GraphSAGE on the given rows, in float64.
func bareLoss(s *shard.Shards, layers int, weights map[string]nn.Tensor,
	rows [][]float64) (loss float64) {
	g, h := s.Topology().Graph, rows
	for l := range layers {
		next := make([][]float64, len(h))
		for v := range h {
			name := fmt.Sprintf("convs.%d.", l)
			left, right := weights[name+"lin_l.weight"], weights[name+"lin_r.weight"].Data
			mean, of := make([]float64, len(h[v])), g.InNeighbours(graph.VertexID(v))
			for _, u := range of {
				for j, x := range h[u] {
					mean[j] += x / float64(len(of))
				}
			}
			for o := range left.Shape[0] {
				y := float64(weights[name+"lin_l.bias"].Data[o])
				for j := range mean {
					y += float64(left.Data[o*len(mean)+j])*mean[j] +
						float64(right[o*len(mean)+j])*h[v][j]
				}
				if l < layers-1 {
					y = max(0, y)
				}
				next[v] = append(next[v], y)
			}
		}
		h = next
	}
	seeds := 0
	for p := range s.Parts {
		for _, v := range s.Train(p) {
			sum := 0.0
			for _, z := range h[v] {
				sum += math.Exp(z)
			}
			loss += math.Log(sum) - h[v][s.Labels().Row(int(v))[0]] // of few classes
			seeds++
		}
	}
	return loss / float64(seeds)
}

// relationalLoss is the mean loss of the training papers by all neighbours in one layer: R-GCN on
// the given rows, which a map for each type brings to one width first, in float64.
func relationalLoss(s *shard.Shards, weights map[string]nn.Tensor,
	rows [][]float64) (loss float64) {
	topology, relations := s.Topology(), s.Schema.NumRelations()
	times := func(y, x, w []float64, transposed bool) { // adds x times w [in,out], or [out,in]
		for i, a := range x {
			for o := range y {
				if transposed {
					y[o] += a * w[o*len(x)+i]
				} else {
					y[o] += a * w[i*len(y)+o]
				}
			}
		}
	}
	wide := func(name string) (all []float64) {
		for _, x := range weights[name].Data {
			all = append(all, float64(x))
		}
		return all
	}
	project := make([][2][]float64, s.Schema.NumTypes())
	for t, name := range s.Schema.Types {
		name = "project." + name
		project[t] = [2][]float64{wide(name + ".weight"), wide(name + ".bias")}
	}
	mapped := func(v graph.VertexID) []float64 {
		kind, _, _ := topology.Columns.Of(v)
		y := slices.Clone(project[kind][1])
		times(y, rows[v], project[kind][0], true)
		return y
	}
	bias, root, weight := wide("convs.0.bias"), wide("convs.0.root"), wide("convs.0.weight")
	seeds := 0
	for p := range s.Parts {
		for _, v := range s.Train(p) {
			y := slices.Clone(bias)
			times(y, mapped(v), root, false)
			kind, column, _ := topology.Columns.Of(v)
			for k, r := range topology.Columns.Into(kind) {
				at := topology.Columns.Indptr[int(column)+k : int(column)+k+2]
				mean := make([]float64, len(project[kind][1]))
				for _, u := range topology.Graph.Indices[at[0]:at[1]] {
					for j, x := range mapped(u) {
						mean[j] += x / float64(at[1]-at[0])
					}
				}
				times(y, mean, weight[r*len(weight)/relations:(r+1)*len(weight)/relations], false)
			}
			sum := 0.0
			for _, z := range y {
				sum += math.Exp(z)
			}
			loss += math.Log(sum) - y[s.Labels().Row(int(v))[0]]
			seeds++
		}
	}
	return loss / float64(seeds)
}

// A step moves every row, whoever reads it, as SparseAdam does by the gradient of the loss: the
// difference quotient of the loss that a reference in float64 computes.
func TestStepOfLearnedRows(t *testing.T) {
	race.Alone(t)
	o := learnedOptions("sage")
	o.Sample = sample.Neighbours(sample.All, sample.All)
	testStep(t, shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{}),
		shardtest.Options{Parts: 2}), o,
		func(s *shard.Shards, weights map[string]nn.Tensor, rows [][]float64) float64 {
			return bareLoss(s, o.Model.Layers, weights, rows)
		})
}

// Learned rows that are averaged before the map of their type have the gradients of rows, by two
// relations from one type and as destinations' own.
func TestStepOfAveragedRows(t *testing.T) {
	o := learnedOptions("rgcn")
	o.Sample, o.Model.Layers, o.Model.Bases = sample.Neighbours(sample.All), 1, 0
	testStep(t, shardtest.Cut(t, manyAuthors(t), shardtest.Options{Parts: 2}), o, relationalLoss)
}

// testStep makes the first step of o on all training vertices, and checks the moments and rows of
// learned rows by difference quotients of loss.
func testStep(t *testing.T, s *shard.Shards, o Options,
	loss func(*shard.Shards, map[string]nn.Tensor, [][]float64) float64) {
	t.Helper()
	cols := o.Model.Learned
	o.Model.Norm, o.Model.Dropout = nn.NormNone, 0
	o.Batch, o.Epochs, o.Checkpoint.Keep = 1000, 1, 1
	o.Optimizer = nn.DefaultOptimizer(nn.Adam)
	for _, ranks := range []int{1, 2} {
		dir, first := t.TempDir(), make([][]float64, s.Vertices)
		for v := range first { // of features
			first[v] = featureRow(s, v)
		}
		weights := map[string]nn.Tensor{}
		var lock sync.Mutex
		err := comm.RunWorld(ranks, func(c comm.Comm) error {
			tr, err := Open(Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: s,
				Device: ref.New(), Host: ref.Host{}, Workers: 1}, Dir: dir}, o)
			if err != nil {
				return err
			}
			lock.Lock()
			for p := tr.run.s.First; p < tr.run.s.Last; p++ {
				ids := learnedIDs(s, tr.run.s.Job.Model.Learns, p)
				for _, rows := range tr.run.s.Learned.RowsOf(p, nn.LearnedRows) {
					for i, x := range rows.Data {
						first[ids[i/cols]] = append(first[ids[i/cols]], float64(x))
					}
					ids = ids[rows.Shape[0]:]
				}
			}
			for _, w := range tr.run.s.Model.Params.Tensors(tr.run.s.Model.Params.Values) {
				w.Data = append([]float32(nil), w.Data...)
				weights[w.Name] = w
			}
			lock.Unlock()
			_, err = tr.Run(context.Background(), nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		worst, largest := 0.0, 0.0
		learns := make([]bool, s.Schema.NumTypes())
		for kind := range learns {
			learns[kind] = s.Table(kind).Features == 0
		}
		for p := range s.Parts {
			state, _, err := nn.ReadSafetensors(filepath.Join(rundir.CheckpointPath(dir, 1, true),
				rundir.LearnedFile(p)))
			if err != nil {
				t.Fatal(err)
			}
			var rows, m []float32
			for _, tensor := range state {
				switch name, _, _ := strings.Cut(tensor.Name, "."); name {
				case "rows":
					rows = append(rows, tensor.Data...)
				case "m":
					m = append(m, tensor.Data...)
				}
			}
			ids := learnedIDs(s, learns, p)
			for i := range m {
				const h = 1e-5
				v := ids[i/cols]
				x := first[v][i%cols]
				first[v][i%cols] = x + h
				up := loss(s, weights, first)
				first[v][i%cols] = x - h
				want := (up - loss(s, weights, first)) / (2 * h)
				first[v][i%cols] = x
				largest = max(largest, math.Abs(want))
				worst = max(worst, math.Abs(float64(m[i])/(1-o.Optimizer.Beta1)-want))
				if math.Abs(want) < 1e-6 { // whose step is that of a difference
					continue
				}
				// the first step: m and v are g and its square, but for the factors that it takes
				// out
				moved := x - o.Learned.LR*want/
					(math.Abs(want)+o.Optimizer.Eps/math.Sqrt(1-o.Optimizer.Beta2))
				if d := math.Abs(float64(rows[i]) - moved); !(d < 1e-4*o.Learned.LR+1e-7) {
					t.Errorf("%d ranks: vertex %d, column %d is %v, want %v", ranks, v, i%cols,
						rows[i], moved)
				}
			}
		}
		if !(worst < 1e-5*largest) || !(largest > 1e-3) {
			t.Errorf("%d ranks: a gradient deviates by %.2g of %.2g", ranks, worst, largest)
		}
	}
}

// featureRow returns the features of a vertex, all float32; none where it has none.
func featureRow(s *shard.Shards, v int) (row []float64) {
	index := graph.NewPartIndex(s.Ranges())
	k := index.Find(uint32(v))
	kind := k % s.Schema.NumTypes()
	if s.Table(kind).Features == 0 {
		return nil
	}
	part, err := s.OpenPart(k)
	if err != nil {
		panic(err)
	}
	defer part.Close()
	cols := s.Table(kind).Features
	for _, x := range npy.View[float32](part.Features)[(v-int(s.Ranges()[k]))*cols:][:cols] {
		row = append(row, float64(x))
	}
	return row
}

// learnedIDs returns the vertices of a part whose rows are learned, type by type.
func learnedIDs(s *shard.Shards, learns []bool, part int) (ids []int) {
	starts := s.Ranges()
	for t, is := range learns {
		for v := starts[part*len(learns)+t]; is && v < starts[part*len(learns)+t+1]; v++ {
			ids = append(ids, int(v))
		}
	}
	return ids
}

// A drawn minibatch whose rows are folded gives the logits and the gradients of one whose rows are
// mapped, but for rounding.
func TestFoldedMinibatch(t *testing.T) {
	s := shardtest.Cut(t, typedData(t), shardtest.Options{Parts: 1})
	for _, kind := range []string{"rgcn", "sage"} {
		o := typedOptions(kind)
		err := comm.RunWorld(1, func(c comm.Comm) error {
			tr, err := Open(Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: s,
				Device: ref.New(), Host: ref.Host{}, Workers: 1}, Dir: t.TempDir()}, o)
			if err != nil {
				return err
			}
			model := tr.run.s.Model
			sources := model.Needs().Folding.Sources
			var numbers [2][]float32
			for i, f := range []*nn.Folding{nil, // and one to which maps are dear
				{Features: model.Config.TypeFeatures, Sources: sources, In: 1 << 20, Out: 1}} {
				if numbers[i], err = foldedStep(t, s, tr.run, f); err != nil {
					return err
				}
			}
			most := 0.0
			for i, want := range numbers[0] {
				if d := math.Abs(float64(numbers[1][i] - want)); !(d <= most) {
					most = d
				}
			}
			if most > 1e-5 || most == 0 {
				t.Errorf("%s: %d numbers of folded rows deviate by %.2g", kind, len(numbers[0]),
					most)
			}
			_, err = tr.Run(t.Context(), nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// foldedStep returns the logits and gradients of the first minibatch.
func foldedStep(t *testing.T, s *shard.Shards, r *run, f *nn.Folding) ([]float32, error) {
	model, topology := r.s.Model, r.s.Topology
	sampler, err := sample.New(topology, sample.Options{Spec: r.s.Job.Sample, Workers: 1,
		MaxSeeds: r.s.Job.MaxSeeds()})
	if err != nil {
		return nil, err
	}
	var m parallel.Minibatch
	defer m.Free()
	r.epoch = 1
	r.admit(0, &m)
	r.epoch = 0
	if err := sampler.Sample(&m.Sampled, m.Seeds, m.Key); err != nil {
		return nil, err
	}
	needs := model.Needs()
	needs.Folding = f
	var e parallel.LayerEdges
	defer e.Free()
	e.Build(&m.Sampled, needs, true, topology)
	e.Group(&m.Sampled, needs, make([]uint16, len(m.Sampled.Frontier)), 1)
	b := nn.Batch{Train: true, GlobalSeeds: len(m.Seeds), Labels: make([]byte, 4*len(m.Seeds))}
	begin := 0
	for kind, end := range e.Types() {
		cols := model.Config.TypeFeatures[kind]
		x := compute.Matrix{Rows: e.Rows(kind), Cols: cols,
			Data: make([]float32, e.Rows(kind)*cols)}
		feature := func(v graph.VertexID, col int) float32 {
			return float32(math.Sin(float64(int(v)*cols + col)))
		}
		means, averaged := e.Means(kind)
		for row := range x.Rows {
			of := []int32{int32(begin + row)}
			if averaged {
				of = means.Indices[means.Indptr[row]:means.Indptr[row+1]]
			}
			for col := range cols {
				sum := float32(0)
				for _, place := range of {
					sum += feature(e.Sources(&m.Sampled)[compute.SourceOf(place)], col)
				}
				x.Row(row)[col] = sum / float32(len(of))
			}
		}
		begin = end
		b.Types = append(b.Types, x)
	}
	for l := range model.Config.Layers {
		h := e.Hop(&m.Sampled, l, needs, true)
		h.Vertices = m.Sampled.Original[:h.Destinations]
		if h.Folded != (l == 0 && f != nil) {
			t.Errorf("layer %d is folded: %v", l, h.Folded)
		}
		b.Hops = append(b.Hops, h)
	}
	logits, err := model.Forward(&b)
	if err != nil {
		return nil, err
	}
	numbers := append([]float32(nil), logits.Data[:logits.Rows*logits.Cols]...)
	_, gradient := model.Loss(&b, logits)
	model.Backward(gradient, nil)
	for kind, x := range b.Types {
		if f == nil || x.Rows == 0 {
			continue
		}
		row, was := x.Row(x.Rows-1), x.Row(x.Rows - 1)[0]
		row[0] = float32(math.NaN())
		if _, err := model.Forward(&b); err != nil {
			return nil, err
		}
		want := fmt.Sprintf("the features of vertex type %s, at row %d",
			s.Schema.Types[kind], x.Rows-1)
		if fault := model.FirstFault(); !strings.HasPrefix(fault.What, want) {
			t.Errorf("a NaN in %s is found in %s", want, fault.What)
		}
		row[0] = was
	}
	return append(numbers, model.Params.Grads[nn.HeaderLen:]...), nil
}
