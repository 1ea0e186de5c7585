package train

import (
	"fmt"
	"math"
	"strings"
	"testing"

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
)

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
		want := fmt.Sprintf("the features of type %s, at row %d", s.Schema.Types[kind], x.Rows-1)
		if fault := model.FirstFault(); !strings.HasPrefix(fault.What, want) {
			t.Errorf("a NaN in %s is found in %s", want, fault.What)
		}
		row[0] = was
	}
	return append(numbers, model.Params.Grads[nn.HeaderLen:]...), nil
}
