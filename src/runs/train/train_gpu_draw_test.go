//go:build cgo

package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cuda"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/config"
	"halognn/src/runs/session"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Minibatches that a device draws train in every bit as those of the host: the losses, the weights,
// the sampled edges and the rows counted. So wherever the rows lie, and with caches that stay or
// change.
func TestDrawnOnDevicesTrainAlike(t *testing.T) {
	library := cudaLibrary(t)
	gpu, shards := gpus(t, library, 8<<20), generated(t)
	all, some, none := residence.GPURows{Set: true, Fraction: 1},
		residence.GPURows{Set: true, Fraction: 0.4}, residence.GPURows{Set: true}
	kind := func(kind string) func(*Options) {
		return func(o *Options) { o.Model.Kind = kind }
	}
	heads := func(kind string) func(*Options) {
		return func(o *Options) {
			o.Model.Kind, o.Model.Hidden, o.Model.Heads, o.Model.Slope = kind, 6, 2, 0.2
			o.Model.Activation = nn.ELU
		}
	}
	cached := func(p string) func(*Options) {
		return func(o *Options) {
			o.Cache = policy.Settings{Policy: p, Alpha: 0.3, Window: 3}
		}
	}
	const numbers = "rows of int8, some on devices"
	for i, c := range []struct {
		name  string
		ranks int
		rows  residence.GPURows
		set   func(*Options)
	}{
		{"sage, one rank, all rows", 1, all, func(o *Options) { o.Model.Dropout = 0.3 }},
		{"sage, two ranks, some rows", 2, some, func(o *Options) { o.Model.Dropout = 0.3 }},
		{"gcn, one rank, some rows", 1, some, kind("gcn")},
		{"gcn by both ends, two ranks, all rows", 2, all, func(o *Options) {
			o.Model.Kind, o.Model.GCNNorm = "gcn", nn.GCNBoth
		}},
		{"gin, two ranks, no rows", 2, none, kind("gin")},
		{"gat, one rank, no rows", 1, none, heads("gat")},
		{"gatv2, two ranks, some rows", 2, some, heads("gatv2")},
		{"maxima, one rank, some rows", 1, some,
			func(o *Options) { o.Model.Aggregation = nn.AggregateMax }},
		{"several minibatches a step", 2, some, func(o *Options) { o.StreamPerPart = true }},
		{"labor, one rank, all rows", 1, all, func(o *Options) { o.Sample.Kind = sample.Labor }},
		{"labor with numbers that last, look-ahead", 2, some, func(o *Options) {
			cached(policy.Lookahead)(o)
			o.Sample.Kind = sample.Labor
			o.Sample.Numbers = sample.Numbers{Share: sample.Together, Dependency: 4, Layers: true}
		}},
		{"a static cache", 2, some, cached(policy.VIP)},
		{"look-ahead", 2, some, cached(policy.Lookahead)},
		{"sieve", 2, some, cached(policy.Sieve)},
		{"prefetch", 2, some, func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.Prefetch, Alpha: 0.3, Gamma: 0.9, Delta: 4,
				Evict: true, Initial: policy.Degree}
		}},
		{numbers, 2, some, func(*Options) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			shards := shards
			if c.name == numbers {
				shards = shardtest.Open(t,
					dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6, Classes: 4,
						Seed: 1, FeatureType: dataset.Int8}, shardtest.Options{Parts: 6})
			}
			if i > 2 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			o.Epochs = 2
			c.set(&o)
			o.DrawOn = parallel.DrawHost
			want := trainedOn(t, shards, c.ranks, o, c.rows, residence.ReadsCopy, gpu)
			o.DrawOn = parallel.DrawDevice
			got := trainedOn(t, shards, c.ranks, o, c.rows, residence.ReadsCopy, gpu)
			if got.SampledOn != parallel.DrawDevice || want.SampledOn != parallel.DrawHost {
				t.Errorf("drawn on %q (%s), and on %q", got.SampledOn, got.SampledWhy,
					want.SampledOn)
			}
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest ||
				got.EdgesDigest != want.EdgesDigest || got.EdgesDigest == "" {
				t.Errorf("digests of losses, weights, edges are %s, %s, %s; of the host %s, %s, %s",
					got.LossDigest, got.WeightsDigest, got.EdgesDigest, want.LossDigest,
					want.WeightsDigest, want.EdgesDigest)
			}
			if got.BlocksDigest != "" || want.BlocksDigest == "" {
				t.Errorf("blocks have the digest %q, and on the host %q", got.BlocksDigest,
					want.BlocksDigest)
			}
			if got.Counters != want.Counters {
				t.Errorf("it counts %+v, the host %+v", got.Counters, want.Counters)
			}
			if got.ValidMetric != want.ValidMetric {
				t.Errorf("validation gives %+v, drawn on the host %+v", got.ValidMetric,
					want.ValidMetric)
			}
		})
	}
}

// The device that draws for training draws for evaluation too, unless the two draw differently, or
// minibatches of a window of training have all its memory.
func TestEvaluationIsDrawnOnDevices(t *testing.T) {
	library := cudaLibrary(t)
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 1200, Degree: 6, Features: 4,
		Classes: 3, Seed: 1, Split: "60/20/20"}, shardtest.Options{Parts: 2})
	for _, c := range []struct {
		name  string
		drawn bool
		set   func(*Options)
	}{
		{"like training", true, func(*Options) {}},
		{"fanouts of its own", false, func(o *Options) { o.Eval = sample.Neighbours(3, 3, 3) }},
		{"look-ahead", false, func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.3, Window: 2}
		}},
	} {
		o := sageOptions()
		o.Batch, o.Sample, o.DrawOn = 720, sample.Neighbours(2, 2, 2), parallel.DrawDevice
		o.Epochs = 3
		c.set(&o)
		draws := func(every int) int {
			o.EvalEvery = every
			cuda.Launches()
			trainedOn(t, shards, 2, o, residence.GPURows{}, residence.ReadsCopy,
				gpus(t, library, 8<<20))
			counts := cuda.Launches()
			if counts == nil {
				t.Skip("the library counts no launches: it is not emulated")
			}
			return counts["draw/begin"]
		}
		// A minibatch is drawn hop by hop, for each of the steps and evaluations.
		once, always := draws(0), draws(1)
		want := once
		if c.drawn {
			want = once / (o.Epochs + 1) * 2 * o.Epochs
		}
		if once == 0 || always != want {
			t.Errorf("%s: with evaluations after all epochs %d launches, after the last %d",
				c.name, always, once)
		}
	}
}

// Whatever the kind of the model, auto trains it as the host does: on a graph without types too.
func TestKindsDrawnOnDevices(t *testing.T) {
	library := cudaLibrary(t)
	gpu, shards := gpus(t, library, 8<<20), generated(t)
	all := residence.GPURows{Set: true, Fraction: 1}
	onHost := []string{"rgcn", "mlp"}
	for _, k := range nn.Kinds() {
		if k.NeedsEdges { // of which this graph has no features
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			o := sageOptions()
			o.Epochs, o.Model.Kind = 1, k.Name
			if k.HasHeads {
				o.Model.Hidden, o.Model.Heads, o.Model.Slope = 6, 2, 0.2
			}
			if !k.ReadsNeighbours {
				o.Sample.Fanouts = nil
			}
			o.DrawOn = parallel.DrawHost
			want := trainedOn(t, shards, 1, o, all, residence.ReadsCopy, gpu)
			o.DrawOn = parallel.DrawAuto
			got := trainedOn(t, shards, 1, o, all, residence.ReadsCopy, gpu)
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest {
				t.Errorf("digests of losses and weights are %s, %s; of the host %s, %s",
					got.LossDigest, got.WeightsDigest, want.LossDigest, want.WeightsDigest)
			}
			on := parallel.DrawDevice
			if slices.Contains(onHost, k.Name) {
				on = parallel.DrawHost
			}
			if got.SampledOn != on {
				t.Errorf("auto draws on %q (%s), want %q", got.SampledOn, got.SampledWhy, on)
			}
		})
	}
}

// crowded is a device whose memory has no room for as many drawings as a pipe has minibatches.
type crowded struct{ *cuda.Device }

func (l crowded) Capabilities() compute.Capabilities {
	c := l.Device.Capabilities()
	c.Accelerator = l
	return c
}

func (l crowded) NewDrawer(o compute.DrawOptions) (compute.Drawer, error) {
	d, err := l.Device.NewDrawer(o)
	return &crowdedDrawer{d, 1}, err
}

type crowdedDrawer struct {
	compute.Drawer
	left int
}

func (l *crowdedDrawer) NewDrawing() (compute.Drawing, error) {
	if l.left == 0 {
		return nil, fmt.Errorf("a drawing: %w", compute.ErrMemory)
	}
	l.left--
	return l.Drawer.NewDrawing()
}

// What a device cannot draw the host does, and a job that insists on the device is refused by name.
func TestWhoDraws(t *testing.T) {
	library := cudaLibrary(t)
	shards := generated(t)
	run := func(o Options, ranks int, open func(int) (compute.Device, error)) (on, why string,
		err error) {
		dir := t.TempDir()
		err = comm.RunWorld(ranks, func(c comm.Comm) error {
			d, err := open(c.Rank())
			if err != nil {
				return err
			}
			s, err := Run(context.Background(),
				Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: shards, Device: d,
					Host: ref.Host{}, Workers: 2}, Dir: dir}, o)
			if err == nil && c.Rank() == 0 {
				on, why = s.SampledOn, s.SampledWhy
			}
			if failed := d.Close(); failed != nil {
				t.Error(failed)
			}
			return err
		})
		return on, why, err
	}
	large := func(int) (compute.Device, error) {
		return cuda.Open(cuda.Options{Memory: 8 << 20, Library: library})
	}
	small := func(int) (compute.Device, error) {
		return cuda.Open(cuda.Options{Memory: 320 << 10, Library: library})
	}
	full := func(int) (compute.Device, error) {
		d, err := cuda.Open(cuda.Options{Memory: 8 << 20, Library: library})
		return crowded{d}, err
	}
	host := func(int) (compute.Device, error) { return ref.New(), nil }
	for _, c := range []struct {
		name, why string
		open      func(int) (compute.Device, error)
		set       func(*Options)
	}{
		{"poisson", "sample.kind poisson", large,
			func(o *Options) { o.Sample.Kind = sample.Poisson }},
		{"many", "sample.fanouts", large, func(o *Options) { o.Sample.Fanouts = []int{4, 65, 2} }},
		{"all", "sample.fanouts", large,
			func(o *Options) { o.Sample.Fanouts = []int{sample.All, 4, 2} }},
		{"partitioned", "topology.kind partitioned", large,
			func(o *Options) { o.Partitioned = true }},
		{"memory", "device memory", small, func(*Options) {}},
		{"no memory for a drawing", compute.ErrMemory.Error(), full, func(*Options) {}},
		{"host", "no memory of its own", host, func(*Options) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sageOptions()
			o.Epochs = 1
			c.set(&o)
			o.DrawOn = parallel.DrawAuto
			on, why, err := run(o, 1, c.open)
			if err != nil || c.name != "host" &&
				(on != parallel.DrawHost || !strings.Contains(why, c.why)) {
				t.Errorf("auto draws on %q: %q, %v", on, why, err)
			}
			o.DrawOn = parallel.DrawDevice
			if _, _, err = run(o, 1, c.open); err == nil || !strings.Contains(err.Error(), c.why) ||
				!strings.Contains(err.Error(), "sample.on") {
				t.Errorf("device is not refused by name: %v", err)
			}
		})
	}
	o := sageOptions()
	o.Epochs, o.DrawOn = 1, parallel.DrawAuto
	if on, why, err := run(o, 1, large); err != nil || on != parallel.DrawDevice {
		t.Errorf("auto draws on %q: %q, %v", on, why, err)
	}
}

// A neighbour that is no vertex is the error that it is on the host, and no kernel follows it.
func TestNeighboursBeyondTheGraph(t *testing.T) {
	library := cudaLibrary(t)
	fail := func(on string, kind sample.Kind) error {
		shards := generated(t)
		spoilIndices(t, shards)
		o := sageOptions()
		o.Sample.Kind = kind
		o.Epochs, o.DrawOn, o.Cache.Policy = 1, on, policy.None
		dir := t.TempDir()
		return comm.RunWorld(1, func(c comm.Comm) error {
			d, err := cuda.Open(cuda.Options{Memory: 8 << 20, Library: library})
			if err != nil {
				return err
			}
			_, err = Run(context.Background(),
				Env{Env: session.Env{Comm: c, Shards: shards, Device: d, Host: ref.Host{},
					Workers: 1, GPU: residence.GPU{Rows: residence.GPURows{Set: true},
						Reads: residence.ReadsCopy}}, Dir: dir}, o)
			if failed := d.Close(); failed != nil {
				t.Error(failed)
			}
			return err
		})
	}
	for _, kind := range []sample.Kind{sample.Neighbour, sample.Labor} {
		want, got := fail(parallel.DrawHost, kind), fail(parallel.DrawDevice, kind)
		var bad *graph.LayoutError
		if !errors.As(got, &bad) || want == nil || got.Error() != want.Error() {
			t.Errorf("%s, drawn on the device: %v; on the host: %v", kind, got, want)
		}
		if !strings.Contains(got.Error(), "epoch 1: item 0: stage sample: ") {
			t.Errorf("%s failed before it was drawn: %v", kind, got)
		}
	}
}

// spoilIndices makes all neighbours vertices that the graph does not have, in the file that is
// mapped.
func spoilIndices(t *testing.T, shards *shard.Shards) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(shards.Dir, "*indices.npy"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	beyond := make([]byte, 4*len(shards.Topology().Graph.Indices))
	for i := range beyond {
		beyond[i] = 0x11
	}
	if _, err := f.WriteAt(beyond, info.Size()-int64(len(beyond))); err != nil {
		t.Fatal(err)
	}
}

// A run goes on with the minibatches of the host from a checkpoint of one of the device's, and the
// other way round, with the digests of one on the host alone, but for that of blocks.
func TestDrawnOnDevicesAfterHosts(t *testing.T) {
	shards := generated(t)
	o := sageOptions()
	o.Checkpoint = config.Saves{EveryMinutes: 1e6, Keep: 2}
	whole := queueing(t, shards, 1, o)
	want, err := whole.start(t)
	if err != nil {
		t.Fatal(err)
	}
	on := [2]string{parallel.DrawHost, parallel.DrawDevice}
	for first := range on {
		t.Run(on[first]+" first", func(t *testing.T) {
			g := queueing(t, shards, 1, o)
			for i := range 2 {
				g.o.DrawOn, g.stop = on[(first+i)%2], make(chan struct{})
				g.wrap = func(_ int, d *cuda.Device) compute.Device {
					return &calling{d, 3*2 + 1, func() { close(g.stop) }}
				}
				if _, err := g.start(t); !errors.Is(err, ErrStopped) {
					t.Fatalf("the run ended with %v", err)
				}
			}
			g.o.DrawOn, g.wrap, g.stop = on[first], nil, nil
			got, err := g.start(t)
			if err != nil {
				t.Fatal(err)
			}
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest ||
				got.EdgesDigest != want.EdgesDigest || got.EdgesDigest == "" {
				t.Errorf("digests of losses, weights, edges are %s, %s, %s; of the host %s, %s, %s",
					got.LossDigest, got.WeightsDigest, got.EdgesDigest, want.LossDigest,
					want.WeightsDigest, want.EdgesDigest)
			}
			if got.BlocksDigest != "" || want.BlocksDigest == "" || got.SampledOn != on[first] {
				t.Errorf("blocks have the digest %q, and on the host %q; drawn on %q at last",
					got.BlocksDigest, want.BlocksDigest, got.SampledOn)
			}
			if all, some := whole.steps(t), g.steps(t); !slices.Equal(all, some) {
				t.Errorf("the metrics are %v, want %v", some, all)
			}
		})
	}
}
