package infer

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/model/nn"
	"halognn/src/topology/sample"
)

// Rows that are reduced where they lie give the bits of chunks that a pipeline prepares: of each
// reduction, in both precisions, mapped first and by columns.
func TestRowsInPlaceGiveTheSameBits(t *testing.T) {
	defer func(bytes int, headroom func() (int64, error)) {
		chunkBytes, fileHeadroom, alwaysPrepare = bytes, headroom, false
	}(chunkBytes, fileHeadroom)
	chunkBytes = 16000
	fileHeadroom = func() (int64, error) { return 0, nil }
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 3000, Degree: 8, Features: 6,
		Classes: 5, Seed: 1}, shardtest.Options{Parts: 1})
	for _, c := range []struct {
		model nn.Config
		of    compute.Precision
	}{
		{model: nn.Config{Kind: "sage", Norm: "layer", Hidden: 40}},
		{model: nn.Config{Kind: "sage", Norm: "none", Hidden: 40}, of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "sage", Norm: "none", Hidden: 40, Aggregation: nn.AggregateMax}},
		{model: nn.Config{Kind: "gin", Norm: "none", Hidden: 41}, of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "gin", Norm: "layer", Hidden: 40, Jumping: nn.JumpCat}},
	} {
		for _, dir := range []string{"", t.TempDir()} {
			t.Run(c.model.Kind, func(t *testing.T) {
				o := sageOptions()
				o.Model = c.model
				o.Model.Layers, o.Sample = 3, sample.Neighbours(4, 3, 2)
				infer := func() (hidden, logits []float32) {
					hidden, logits, _ = inferRows(t, shards, 1, o, dir,
						func() (compute.Device, error) {
							return cpu.New(cpu.Options{Threads: 2, Precision: c.of})
						})
					return hidden, logits
				}
				alwaysPrepare = false
				hidden, logits := infer()
				alwaysPrepare = true
				wantHidden, want := infer()
				if !slices.Equal(hidden, wantHidden) || !slices.Equal(logits, want) {
					t.Errorf("hidden values or logits differ from those of prepared chunks")
				}
			})
		}
	}
}

// Rows are read in place where there is one part, and layers add neighbours' rows as they are.
func TestWhichRowsAreReadInPlace(t *testing.T) {
	bare := dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6, Classes: 4, Seed: 1}
	weighted := bare
	weighted.EdgeWeights = true
	sage := nn.Config{Kind: "sage", Layers: 2, Hidden: 16, Norm: "none"}
	weighs, gat := sage, nn.Config{Kind: "gat", Layers: 2, Hidden: 16, Norm: "none", Heads: 2}
	weighs.EdgeWeights = true
	for _, c := range []struct {
		name         string
		of           dataset.GenerateOptions
		parts, ranks int
		model        nn.Config
		want         bool
	}{
		{"one part", bare, 1, 1, sage, true},
		{"several parts", bare, 3, 1, sage, false},
		{"several ranks", bare, 3, 3, sage, false},
		{"weights of edges", weighted, 1, 1, weighs, false},
		{"edges to themselves", bare, 1, 1,
			nn.Config{Kind: "gcn", Layers: 2, Hidden: 16, Norm: "none"}, false},
		{"attention", bare, 1, 1, gat, false},
	} {
		shards := shardtest.Open(t, c.of, shardtest.Options{Parts: c.parts})
		o := sageOptions()
		o.Model, o.Sample = c.model, sample.Neighbours(4, 3)
		err := onRanks(shards, c.ranks, o, func(_ context.Context, s Passes) error {
			in := layerInput{Rows: s.Shards.Rows()}
			in.Tables = s.Store.Tables
			rows, err := s.makeLayer(0, c.model.Hidden)
			if err != nil {
				return err
			}
			defer rows.free()
			for l, in := range []layerInput{in, s.inputOf(&rows, 0)} {
				if _, got := s.inPlace(in); got != c.want {
					return fmt.Errorf("layer %d: %v", l, got)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
