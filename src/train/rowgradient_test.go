package train

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute/ref"
	"halognn/src/graph"
	"halognn/src/nn"
	"halognn/src/rundir"
	"halognn/src/sample"
	"halognn/src/session"
	"halognn/src/shard"
	"halognn/src/shard/shardtest"
)

// bareLoss is the mean loss of the training vertices of a graph without features, by all neighbours:
// GraphSAGE on the given rows, in float64.
func bareLoss(s *shard.Shards, layers int, weights map[string]nn.Tensor, rows [][]float64) (loss float64) {
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
					y += float64(left.Data[o*len(mean)+j])*mean[j] + float64(right[o*len(mean)+j])*h[v][j]
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

// A step moves every row, whoever reads it, as SparseAdam does by the gradient of the loss: the
// difference quotient of the loss that a reference in float64 computes.
func TestStepOfLearnedRows(t *testing.T) {
	const cols = 6
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{}), shardtest.Options{Parts: 2})
	o := learnedOptions("sage")
	o.Model.Norm, o.Model.Dropout, o.Sample = nn.NormNone, 0, sample.Neighbours(sample.All, sample.All)
	o.Batch, o.Epochs, o.Checkpoint.Keep = 1000, 1, 1
	o.Optimizer = nn.DefaultOptimizer(nn.Adam)
	for _, ranks := range []int{1, 2} {
		dir, first := t.TempDir(), make([][]float64, s.Vertices)
		weights := map[string]nn.Tensor{}
		var lock sync.Mutex
		err := comm.RunWorld(ranks, func(c comm.Comm) error {
			tr, err := Open(Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: s, Device: ref.New(),
				Host: ref.Host{}, Workers: 1}, Dir: dir}, o)
			if err != nil {
				return err
			}
			lock.Lock()
			for p := tr.run.s.First; p < tr.run.s.Last; p++ {
				for i, x := range tr.run.s.Learned.RowsOf(p, nn.LearnedRows)[0].Data {
					v := s.Offsets[p] + int64(i/cols)
					first[v] = append(first[v], float64(x))
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
		worst, largest, v := 0.0, 0.0, 0
		for p := range s.Parts {
			state, _, err := nn.ReadSafetensors(filepath.Join(rundir.CheckpointPath(dir, 1, true),
				rundir.LearnedFile(p)))
			if err != nil {
				t.Fatal(err)
			}
			rows, m := state[0].Data, state[1].Data
			for i := range m {
				const h = 1e-5
				v = int(s.Offsets[p]) + i/cols
				x := first[v][i%cols]
				first[v][i%cols] = x + h
				up := bareLoss(s, o.Model.Layers, weights, first)
				first[v][i%cols] = x - h
				want := (up - bareLoss(s, o.Model.Layers, weights, first)) / (2 * h)
				first[v][i%cols] = x
				largest = max(largest, math.Abs(want))
				worst = max(worst, math.Abs(float64(m[i])/(1-o.Optimizer.Beta1)-want))
				if math.Abs(want) < 1e-6 { // whose step is that of a difference
					continue
				}
				// the first step: m and v are g and its square, but for the factors that it takes out
				moved := x - o.Learned.LR*want/(math.Abs(want)+o.Optimizer.Eps/math.Sqrt(1-o.Optimizer.Beta2))
				if d := math.Abs(float64(rows[i]) - moved); !(d < 1e-4*o.Learned.LR+1e-7) {
					t.Errorf("%d ranks: vertex %d, column %d is %v, want %v", ranks, v, i%cols, rows[i], moved)
				}
			}
		}
		if !(worst < 1e-5*largest) || !(largest > 1e-3) {
			t.Errorf("%d ranks: a gradient deviates by %.2g of %.2g", ranks, worst, largest)
		}
	}
}
