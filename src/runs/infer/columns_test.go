package infer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/topology/sample"
)

// inferRows infers on so many ranks with hidden rows in files of dir or, if it is "", in memory. It
// returns what the last layer reads and the logits, rank after rank, and in how many blocks the
// former lay.
func inferRows(t *testing.T, shards *shard.Shards, ranks int, o job.Spec, dir string,
	device func() (compute.Device, error)) (hidden, logits []float32, blocks int) {
	t.Helper()
	each := make([][2][]float32, ranks)
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		d, err := device()
		if err != nil {
			return err
		}
		host, err := cpu.NewHost("")
		if err != nil {
			return err
		}
		s, err := open(session.Env{Comm: c, RanksPerNode: 1, Shards: shards,
			Device: d, Host: host,
			Workers: 2, ScratchDir: dir}, o, "")
		if err != nil {
			return err
		}
		own := &each[c.Rank()]
		if own[0], own[1], err = fullWith(context.Background(), s); err != nil {
			return err
		}
		alone, err := s.Full(context.Background()) // with nobody to see the hidden rows
		if err != nil {
			return err
		}
		defer mem.Free(alone)
		if !slices.Equal(alone, own[1]) {
			return errors.New("logits differ if hidden rows are seen")
		}
		block, err := s.columnsAtOnce()
		if err != nil {
			return err
		}
		rows, err := s.makeLayer(0, block)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			blocks = (rows.cols + rows.block - 1) / rows.block
		}
		rows.free()
		return errors.Join(s.Close(), d.Close())
	})
	if err != nil {
		t.Fatalf("%d ranks, files in %q: %v", ranks, dir, err)
	}
	for _, own := range each {
		hidden, logits = append(hidden, own[0]...), append(logits, own[1]...)
	}
	return hidden, logits, blocks
}

func onCPU() (compute.Device, error) { return cpu.New(cpu.Options{Threads: 1}) }

// Inference by columns gives the bits of inference in memory: with sums, means and maxima, weights,
// rows of other ranks and their sums, and what follows the sums. Attention, which reads whole rows,
// reads them at once.
func TestInferenceByColumnsGivesTheSameBits(t *testing.T) {
	defer func(bytes int, headroom func() (int64, error)) {
		chunkBytes, fileHeadroom = bytes, headroom
	}(chunkBytes, fileHeadroom)
	chunkBytes = 16000
	shards := shardtest.Open(t,
		dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6, Classes: 19, Seed: 1,
			EdgeWeights: true}, shardtest.Options{Parts: 4})
	for i, c := range []struct {
		model  nn.Config
		spec   func(*job.Spec) // further options
		fit    int64           // columns that the memory holds
		blocks int
		of     compute.Precision
		hidden int  // columns of hidden rows; 0: 40
		maps   bool // the last layer maps rows first
	}{
		{model: nn.Config{Kind: "sage", Norm: "layer", Residual: true}, blocks: 3, maps: true},
		{model: nn.Config{Kind: "sage", Norm: "batch"}, fit: 32, blocks: 2, maps: true},
		{model: nn.Config{Kind: "sage", Norm: "none"}, fit: 40, blocks: 1, maps: true},
		{model: nn.Config{Kind: "sage", Norm: "none"}, blocks: 3, maps: true,
			of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "gcn", Norm: "none"}, blocks: 3, maps: true,
			of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "gcn", Norm: "none"}, blocks: 2, hidden: 20, maps: true},
		{model: nn.Config{Kind: "sage", Norm: "none"}, blocks: 2, hidden: 32},
		{model: nn.Config{Kind: "gin", Norm: "layer"}, fit: 16, blocks: 2,
			of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "gin", Norm: "layer"}, blocks: 3, hidden: 41,
			of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "sage", Norm: "none", EdgeWeights: true}, blocks: 3, maps: true,
			spec: func(o *job.Spec) { o.Sums = true }},
		{model: nn.Config{Kind: "sage", Norm: "none", Aggregation: nn.AggregateMax}, blocks: 3},
		{model: nn.Config{Kind: "gcn", Norm: "none", Residual: true}, blocks: 3, maps: true,
			spec: func(o *job.Spec) { o.Partitioned = true }},
		{model: nn.Config{Kind: "gcn", Norm: "layer", EdgeWeights: true, GCNNorm: nn.GCNBoth},
			blocks: 3, maps: true, spec: func(o *job.Spec) { o.Sums = true }},
		{model: nn.Config{Kind: "gin", Norm: "layer"}, blocks: 3},
		{model: nn.Config{Kind: "gin", Norm: "layer", Residual: true}, blocks: 3,
			of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "gin", Norm: "none", Jumping: nn.JumpCat}, blocks: 3},
		{model: nn.Config{Kind: "gcn", Norm: "none", Jumping: nn.JumpMax, Layers: 2}, blocks: 3},
		{model: nn.Config{Kind: "sage", Norm: "none", Layers: 2}, blocks: 3, maps: true},
		{model: nn.Config{Kind: "gat", Norm: "none", Heads: 2}, blocks: 1},
		{model: nn.Config{Kind: "mlp", Norm: "none"}, blocks: 1},
	} {
		o := sageOptions()
		o.Model = c.model
		o.Model.Hidden = cmp.Or(c.hidden, 40)
		o.Model.Layers = cmp.Or(o.Model.Layers, 3)
		of := o.Model
		if of.Out = shards.Classes; of.MapsFirst(of.Layers-1) != c.maps {
			t.Errorf("%+v: the last layer maps rows first: %v", c.model, !c.maps)
		}
		o.Sample = sample.Neighbours(4, 3, 2)
		o.Sample.Fanouts = o.Sample.Fanouts[:o.Model.Layers]
		if c.spec != nil {
			c.spec(&o)
		}
		fileHeadroom = func() (int64, error) { return 2 * 4 * 300 * c.fit, nil }
		t.Run(fmt.Sprintf("%s %d", c.model.Kind, c.blocks), func(t *testing.T) {
			several := []int{2}
			if i == 0 {
				several = []int{1, 2, 4}
			}
			for _, ranks := range several {
				dir := t.TempDir()
				device := func() (compute.Device, error) {
					return cpu.New(cpu.Options{Threads: 1, Precision: c.of})
				}
				wantHidden, want, _ := inferRows(t, shards, ranks, o, "", device)
				hidden, got, blocks := inferRows(t, shards, ranks, o, dir, device)
				if blocks != c.blocks {
					t.Errorf("%d ranks: rows lie in %d blocks, want %d", ranks, blocks, c.blocks)
				}
				if !slices.Equal(hidden, wantHidden) || len(hidden) != 300*o.Model.Hidden {
					t.Errorf("%d ranks: %d hidden values differ from those in memory", ranks,
						len(hidden))
				}
				if !slices.Equal(got, want) || len(got) != 300*shards.Classes {
					t.Errorf("%d ranks: %d logits differ from those in memory", ranks, len(got))
				}
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("%v is left in the directory (%v)", left, err)
				}
			}
		})
	}
}

// Learned rows are read in a step of training; inference aggregates them as any others, so hidden
// rows are read by columns where memory is short.
func TestInferenceByColumnsOfLearnedRows(t *testing.T) {
	defer func(headroom func() (int64, error)) { fileHeadroom = headroom }(fileHeadroom)
	fileHeadroom = func() (int64, error) { return 0, nil }
	shards := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{}),
		shardtest.Options{Parts: 2})
	o := sageOptions()
	o.Model = nn.Config{Kind: "sage", Layers: 2, Hidden: 40, Norm: "none", Learned: 6}
	o.Sample = sample.Neighbours(4, 3)
	_, want, _ := inferRows(t, shards, 2, o, "", onCPU)
	_, got, blocks := inferRows(t, shards, 2, o, t.TempDir(), onCPU)
	if blocks != 3 || !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("%d logits of hidden rows in %d blocks differ from those in memory", len(got),
			blocks)
	}
}

// Blocks are as few as the memory allows, all alike but the last, and of whole cache lines.
func TestBlockColumns(t *testing.T) {
	for _, c := range []struct{ cols, fit, want int }{
		{256, 256, 256}, {256, 1000, 256}, {256, 255, 128}, {256, 100, 96}, {256, 85, 64},
		{256, 16, 16}, {256, 3, 16}, {256, 0, 16}, {256, -5, 16}, {40, 39, 32}, {40, 0, 16},
		{5, 0, 5}, {100, 99, 64},
	} {
		if got := blockColumns(c.cols, c.fit); got != c.want {
			t.Errorf("%d columns of which %d fit are read by %d, want %d", c.cols, c.fit, got,
				c.want)
		}
	}
}
