package infer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Rows that are reduced where they lie give the bits of chunks that a pipeline prepares: of each
// reduction, in both precisions, mapped first and by columns.
func TestRowsInPlaceGiveTheSameBits(t *testing.T) {
	defer func(bytes int, headroom func() (int64, error)) {
		chunkBytes, fileHeadroom, alwaysPrepare = bytes, headroom, false
	}(chunkBytes, fileHeadroom)
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
		{model: nn.Config{Kind: "sage", Norm: "none", Hidden: 40, Aggregation: nn.AggregateMax},
			of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "gin", Norm: "none", Hidden: 41}, of: compute.PrecisionBF16},
		{model: nn.Config{Kind: "gin", Norm: "layer", Hidden: 40, Jumping: nn.JumpCat}},
	} {
		// chunks of some 100 vertices, chunks in files, and chunks of 512 or more that are
		// multiplied together
		small := 16000
		for _, at := range []struct {
			dir   string
			chunk int
		}{{"", small}, {t.TempDir(), small}, {"", 1 << 20}} {
			t.Run(c.model.Kind, func(t *testing.T) {
				dir := at.dir
				chunkBytes = at.chunk
				o := sageOptions()
				o.Model = c.model
				o.Model.Layers, o.Sample = 3, sample.Neighbours(4, 3, 2)
				var tile int
				infer := func() (hidden, logits []float32) {
					hidden, logits, _ = inferRows(t, shards, 1, o, dir,
						func() (compute.Device, error) {
							d, err := cpu.New(cpu.Options{Threads: 2, Precision: c.of})
							if err == nil {
								tile = d.Capabilities().ProductTile
							}
							return d, err
						})
					return hidden, logits
				}
				alwaysPrepare = false
				before, multiplied := passesInPlace.Load(), chunksTogether.Load()
				hidden, logits := infer()
				n, whole := chunksTogether.Load()-multiplied, 256%tile == 0
				if (n > 0) != (whole && at.chunk > small) {
					t.Errorf("%d chunks were multiplied with the one before", n)
				}
				// both times over all layers, by three blocks of columns if in files
				if n := passesInPlace.Load() - before; n < 6 || dir != "" && n < 10 {
					t.Errorf("%d passes were in place", n)
				}
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
				if got := s.readsInPlace(in); got != c.want {
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

// A file that shrinks, or edges that are damaged, end inference with an error that says so.
func TestDamageInPlaceIsNamed(t *testing.T) {
	for _, c := range []struct {
		file   string
		damage func(*os.File) error
		want   error
		says   string
	}{
		{"part-0000/features.npy", func(f *os.File) error { return f.Truncate(4096) },
			mem.ErrShrank, "features.npy"},
		{"indices.npy", func(f *os.File) error { return f.Truncate(4096) }, mem.ErrShrank,
			"indices.npy"},
		{"indices.npy", func(f *os.File) error {
			_, err := f.WriteAt([]byte{255, 255, 255, 255}, 8000)
			return err
		}, graph.ErrVertexRange, "in-neighbours of vertex"},
		{"indptr.npy", func(f *os.File) error {
			_, err := f.WriteAt([]byte{255, 255, 255, 255, 255, 255, 255, 127}, 8000)
			return err
		}, nil, "in-neighbours of vertex"},
		{"indptr.npy", func(f *os.File) error { // the first, behind the header
			_, err := f.WriteAt([]byte{255, 255, 255, 255, 255, 255, 255, 255}, 128)
			return err
		}, nil, "in-neighbours of vertex"},
	} {
		shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 3000, Degree: 8, Features: 6,
			Classes: 5, Seed: 1}, shardtest.Options{Parts: 1})
		err := comm.RunWorld(1, func(w comm.Comm) error {
			env := sessiontest.Env(w, shards)
			d, err := cpu.New(cpu.Options{Threads: 2})
			if err != nil {
				return err
			}
			defer d.Close()
			if env.Host, err = cpu.NewHost(""); err != nil {
				return err
			}
			env.Device = d
			s, err := open(env, sageOptions(), "")
			if err != nil {
				return err
			}
			f, err := os.OpenFile(filepath.Join(shards.Dir, c.file), os.O_RDWR, 0)
			if err == nil {
				err = errors.Join(c.damage(f), f.Close())
			}
			if err != nil {
				return err
			}
			return errors.Join(mem.Guard(func() error {
				rows, err := s.Full(context.Background())
				mem.Free(rows)
				return err
			}), s.Close())
		})
		var layout *graph.LayoutError
		if c.want == nil && !errors.As(err, &layout) || c.want != nil && !errors.Is(err, c.want) ||
			!strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v", c.file, err)
		}
	}
}
