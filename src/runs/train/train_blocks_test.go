package train

// These tests compare the minibatches that package blocks writes with those that a run trains.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/shard"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/blocks"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

func writtenBlocks(t *testing.T, shards *shard.Shards, o Options, ranks, steps int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "blocks")
	if _, err := blocks.Write(blocks.Export{
		Shards: shards, Device: ref.New(), Workers: 2, Ranks: ranks, Steps: steps, Dir: dir,
	}, o.Spec); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readBlocks reads the written directory as another program would.
func readBlocks(t *testing.T, dir string) (b blocks.Index) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, blocks.IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func array[T npy.Element](t *testing.T, shape []int, path ...string) []T {
	t.Helper()
	name := filepath.Join(path...) + ".npy"
	f, err := npy.Map[T](name, shape...)
	if err != nil {
		t.Fatal(err)
	}
	data := slices.Clone(f.Data)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

// The written minibatches are those that a run trains: each array equals the sampler's, the digest
// equals the run's, and the weights are the run's initial ones.
func TestBlocksAreWhatIsTrained(t *testing.T) {
	race.Alone(t)
	shards := generated(t)
	for _, c := range []struct {
		name  string
		ranks int
		set   func(*Options)
	}{
		{"one rank", 1, func(*Options) {}},
		{"three ranks", 3, func(o *Options) { o.GlobalBatch, o.GlobalSeeds = true, true }},
		{"several minibatches a step", 2, func(o *Options) { o.StreamPerPart = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sageOptions()
			c.set(&o)
			dir := writtenBlocks(t, shards, o, c.ranks, 0)
			b := readBlocks(t, dir)
			sum, edges := uint64(0), uint64(0)
			for _, item := range b.Minibatches {
				m := readMinibatch(t, dir, item, shards)
				digest := m.Digest()
				sum += digest
				edges += m.EdgesDigest(sample.Key{Seed: o.Seed, Epoch: item.Epoch, Step: item.Step,
					Stream: item.Stream})
				if got := fmt.Sprintf("%016x", digest); got != item.Digest {
					t.Errorf("minibatch %s reads as %s, and was written as %s", item.Dir, got,
						item.Digest)
				}
			}
			s := summaryOf(t, shards, o, c.ranks)
			if got := fmt.Sprintf("%016x", sum); got != s.BlocksDigest ||
				b.BlocksDigest != s.BlocksDigest {
				t.Errorf("the arrays sum to %s, blocks.json says %s, training says %s", got,
					b.BlocksDigest, s.BlocksDigest)
			}
			if got := fmt.Sprintf("%016x", edges); got != s.EdgesDigest {
				t.Errorf("the edges sum to %s, training says %s", got, s.EdgesDigest)
			}
			if b.StepsPerEpoch != s.StepsPerEpoch || b.Ranks != c.ranks || b.Epochs != o.Epochs {
				t.Errorf("%d steps, %d ranks, %d epochs; the run has %d, %d, %d", b.StepsPerEpoch,
					b.Ranks, b.Epochs, s.StepsPerEpoch, c.ranks, o.Epochs)
			}
			checkInitial(t, dir, o, shards)
		})
	}
}

// readMinibatch reads the arrays of a minibatch and checks their sizes and the labels of the seeds.
func readMinibatch(t *testing.T, dir string, item blocks.Item,
	shards *shard.Shards) *sample.Minibatch {
	t.Helper()
	m := new(sample.Minibatch)
	for l, size := range item.Layers {
		m.Blocks = append(m.Blocks, graph.Block{
			NumSrc: size.Sources, NumDst: size.Destinations,
			Indptr: array[int64](t, []int{size.Destinations + 1}, dir, item.Dir,
				fmt.Sprintf("indptr-%d", l)),
			Indices: array[int32](t, []int{size.Edges}, dir, item.Dir,
				fmt.Sprintf("indices-%d", l)),
		})
		if err := m.Blocks[l].Validate(); err != nil {
			t.Errorf("%s, layer %d: %v", item.Dir, l, err)
		}
	}
	m.Original = array[int32](t, []int{item.Layers[0].Sources}, dir, item.Dir, "frontier")
	labels := array[int32](t, []int{item.Seeds}, dir, item.Dir, "labels")
	for i, v := range m.Original[:item.Seeds] {
		at := slices.Index(shards.Topology().Original, v)
		if want := npy.View[int32](shards.Labels().Data)[at]; labels[i] != want {
			t.Errorf("%s: vertex %d has label %d, want %d", item.Dir, v, labels[i], want)
		}
	}
	return m
}

func summaryOf(t *testing.T, shards *shard.Shards, o Options, ranks int) (sum *record.Summary) {
	t.Helper()
	dir := t.TempDir()
	if err := comm.RunWorld(ranks, func(c comm.Comm) error {
		s, err := Run(context.Background(),
			Env{Env: session.Env{Comm: c, Shards: shards,
				Device: ref.New(), Host: ref.Host{}, Workers: 1},
				Dir: dir},
			o)
		if c.Rank() == 0 {
			sum = s
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return sum
}

func checkInitial(t *testing.T, dir string, o Options, shards *shard.Shards) {
	t.Helper()
	got, _, err := nn.ReadSafetensors(filepath.Join(dir, blocks.InitialFile))
	if err != nil {
		t.Fatal(err)
	}
	o.Model.In, o.Model.Out, o.Model.Task = shards.Features, shards.Classes, shards.Task
	m, err := nn.NewModel(ref.New(), o.Model, o.Seed)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := m.Params.Tensors(m.Params.Values)
	if len(got) != len(want) {
		t.Fatalf("%d tensors, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Name != want[i].Name || !slices.Equal(got[i].Data, want[i].Data) {
			t.Errorf("tensor %d is %s, or differs from %s", i, got[i].Name, want[i].Name)
		}
	}
}

// An export of the first steps holds the first steps of the whole run.
func TestFirstBlocks(t *testing.T) {
	shards, o := generated(t), sageOptions()
	all, few := readBlocks(t, writtenBlocks(t, shards, o, 2, 0)),
		readBlocks(t, writtenBlocks(t, shards, o, 2, 3))
	if len(few.Minibatches) != 3*2 || len(all.Minibatches) != 2*o.Epochs*all.StepsPerEpoch {
		t.Fatalf("%d and %d minibatches", len(few.Minibatches), len(all.Minibatches))
	}
	for i, item := range few.Minibatches {
		if item.Digest != all.Minibatches[i].Digest {
			t.Errorf("minibatch %d differs", i)
		}
	}
}

func TestBlocksThatCannotBe(t *testing.T) {
	shards := generated(t)
	for _, c := range []struct {
		name, message string
		ranks         int
		set           func(*Options)
	}{
		{"no neighbours", "reads no neighbours", 1, func(o *Options) { o.Model.Kind = "mlp" }},
		{"ranks that do not divide the parts", "4", 4, func(*Options) {}},
	} {
		o := sageOptions()
		c.set(&o)
		_, err := blocks.Write(blocks.Export{Shards: shards, Device: ref.New(), Ranks: c.ranks,
			Dir: t.TempDir()}, o.Spec)
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
