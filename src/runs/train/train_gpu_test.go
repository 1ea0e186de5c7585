//go:build cgo

package train

// These tests train on devices with memory of their own, wherever rows lie.

import (
	"context"
	"math"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/cuda"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/config"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/step/residence"
)

func cudaLibrary(t *testing.T) string { return computetest.CUDALibrary(t, "../../..") }

// gpus opens the device of a rank, of so many bytes: its own where there are enough, for the
// emulation checks everything freed on a device against all its work.
func gpus(t *testing.T, library string, bytes int) func(rank int) (compute.Device, error) {
	t.Helper()
	devices, err := cuda.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return func(rank int) (compute.Device, error) {
		return cuda.Open(cuda.Options{Device: rank % devices, Memory: bytes, Library: library})
	}
}

// trainedOn trains on nodes of o.RanksPerNode ranks, by default one.
func trainedOn(t *testing.T, shards *shard.Shards, ranks int, o Options, rows residence.GPURows,
	reads string, open func(rank int) (compute.Device, error)) *record.Summary {
	t.Helper()
	var sum *record.Summary
	dir := t.TempDir()
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		d, err := open(c.Rank())
		if err != nil {
			return err
		}
		s, err := Run(context.Background(),
			Env{Env: session.Env{Comm: c, RanksPerNode: max(1, o.RanksPerNode), Shards: shards,
				Device: d, Host: ref.Host{}, Workers: 2,
				GPU: residence.GPU{Rows: rows, Reads: reads}},
				Dir: dir}, o)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			sum = s
		}
		return d.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// Training on a device with its own memory gives the results of the host, and the same bits
// wherever feature rows lie.
func TestOffboardTrainsAlike(t *testing.T) {
	library := cudaLibrary(t)
	plain, weighted := generated(t),
		shardtest.Open(t, dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6, Classes: 4,
			Seed: 1, EdgeWeights: true}, shardtest.Options{Parts: 6})
	gpu := gpus(t, library, 2<<20)
	host := func(int) (compute.Device, error) { return ref.New(), nil }
	for i, c := range []struct {
		name  string
		ranks int
		set   func(*Options)
	}{
		{"one rank", 1, func(*Options) {}},
		{"layer norm, full evaluation", 2,
			func(o *Options) { o.Model.Norm, o.EvalFull = "layer", true }},
		{"several minibatches a step", 2, func(o *Options) { o.StreamPerPart = true }},
		{"a cache that changes", 3, func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.Prefetch, HaloFraction: 0.3, Gamma: 0.9,
				Delta: 2, Initial: "degree"}
		}},
		{"mlp", 2, func(o *Options) { o.Model.Kind = "mlp" }},
		{"maxima", 2, func(o *Options) { o.Model.Aggregation = nn.AggregateMax }},
		{"jumping, full evaluation", 2,
			func(o *Options) { o.Model.Jumping, o.EvalFull = nn.JumpMax, true }},
		{"batch norm, full evaluation, several minibatches a step", 2, func(o *Options) {
			o.Model.Norm, o.EvalFull, o.StreamPerPart = nn.NormBatch, true, true
		}},
		{"weights", 2, func(o *Options) { o.Model.EdgeWeights = true }},
		{"gcn with weights", 2,
			func(o *Options) {
				o.Model.Kind, o.Model.GCNNorm, o.Model.EdgeWeights = "gcn",
					nn.GCNBoth, true
			}},
		{"gcn", 2, func(o *Options) { o.Model.Kind = "gcn" }},
		{"gcn by both ends, full evaluation", 2, func(o *Options) {
			o.Model.Kind, o.Model.GCNNorm, o.EvalFull = "gcn", nn.GCNBoth, true
		}},
		{"gin", 2, func(o *Options) { o.Model.Kind = "gin" }},
		{"gat", 2, func(o *Options) {
			o.Model.Kind, o.Model.Hidden, o.Model.Heads, o.Model.Slope = "gat", 6, 2, 0.2
			o.Model.Activation = nn.ELU
		}},
		{"gatv2", 2, func(o *Options) {
			o.Model.Kind, o.Model.Hidden, o.Model.Heads, o.Model.Slope = "gatv2", 6, 2, 0.2
			// Its sums along heads are trees on the device. The last bits of a gradient near 0
			// decide an update by Adam, and at the kink of ReLU what the next layer sees.
			o.Model.Activation = nn.ELU
		}},
		{"class weights, smoothed labels", 2, func(o *Options) {
			o.Loss = config.Loss{Objective: task.Objective{Smoothing: 0.1}, Balanced: true}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 2 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			c.set(&o)
			shards := plain
			if o.Model.EdgeWeights {
				shards = weighted
			}
			want := trainedOn(t, shards, c.ranks, o, residence.GPURows{}, "", host)
			first := trainedOn(t, shards, c.ranks, o, residence.GPURows{Set: true},
				residence.ReadsCopy, gpu)
			if d := math.Abs(first.TrainLoss - want.TrainLoss); !(d <= 1e-5*want.TrainLoss) {
				t.Errorf("the loss is %v, on the host %v", first.TrainLoss, want.TrainLoss)
			}
			for _, v := range []struct {
				rows  residence.GPURows
				reads string
			}{
				{residence.GPURows{}, residence.ReadsAuto},
				{residence.GPURows{Set: true, Fraction: 0.4}, residence.ReadsAuto},
				{residence.GPURows{Set: true, Fraction: 0.4}, residence.ReadsMapped},
			} {
				got := trainedOn(t, shards, c.ranks, o, v.rows, v.reads, gpu)
				if got.LossDigest != first.LossDigest || got.WeightsDigest != first.WeightsDigest {
					t.Errorf("with %+v the bits differ from those without resident rows", v)
				}
				checkDeviceRows(t, got, c.ranks, v.reads)
				if m := got.Memory; m[trace.MemActivations] != 0 || m[trace.MemMinibatches] == 0 ||
					m[trace.MemParameters] >= want.Memory[trace.MemParameters] {
					t.Errorf("the host's memory is said to be %v; without a device %v", m,
						want.Memory)
				}
			}
		})
	}
}

// Rows of static caches lie in device memory, and those of the ranks of a node are read from each
// other's devices, or come from the host where these cannot be reached or the memory is small: the
// bits and the counts are those of training without devices' caches.
func TestCachesOnDevices(t *testing.T) {
	library := cudaLibrary(t)
	shards := generatedIn(t, 4)
	gpu := gpus(t, library, 2<<20)
	o := sageOptions()
	o.Epochs, o.EvalEvery = 2, 1
	want := trainedOn(t, shards, 4, o, residence.GPURows{}, "", gpu)
	for _, c := range []struct {
		name    string
		node    int
		with    policy.Settings
		holds   bool
		islands bool
	}{
		{"own", 1, policy.Settings{}, true, false},
		{"group", 2, policy.Settings{Placement: policy.PlacementGroup, PeerCost: 0.2}, true, false},
		{"files", 4, policy.Settings{Placement: policy.PlacementGroup, Source: policy.SourceFiles,
			PeerCost: policy.MeasuredPeerCost}, true, false},
		{"out of reach", 4, policy.Settings{Placement: policy.PlacementGroup,
			Source: policy.SourceFiles}, true, true},
		{"parts", 2, policy.Settings{Placement: policy.PlacementParts, Source: policy.SourceFiles},
			true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "files" && testing.Short() {
				t.Skip("-short")
			}
			if c.islands && cuda.Launches() == nil {
				t.Skip("the devices of this machine reach each other: they are not emulated")
			}
			if c.islands {
				t.Setenv("HALOGNN_EMULATED_ISLANDS", "1")
			}
			o := o
			o.Cache, o.RanksPerNode = c.with, c.node
			o.Cache.Policy, o.Cache.Alpha = policy.VIP, 0.4
			got := trainedOn(t, shards, 4, o, residence.GPURows{}, "", gpu)
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest {
				t.Error("the bits differ")
			}
			rows := int(0.4 * float64(shards.Vertices) / 4)
			if got.Cache.DeviceRows != rows {
				t.Errorf("%d rows are on devices, want %d", got.Cache.DeviceRows, rows)
			}
			if why := got.Cache.HostReason; (why != "") != c.islands {
				t.Errorf("rows come from the host: %q", why)
			}
			// where the cost is measured, all may keep the same rows
			shares := c.node > 1 && o.Cache.PeerCost >= 0
			if shares && got.PeerCached == 0 || c.node == 1 && got.PeerCached > 0 ||
				got.Cached == 0 {
				t.Errorf("%+v", got.Rows)
			}
			if cost := got.Cache.PeerCost; (cost != nil) != (o.Cache.PeerCost < 0) ||
				cost != nil && (cost.Own != 0 || cost.Peer <= 0 || cost.Far <= 0) {
				t.Errorf("measured %+v", cost)
			}
		})
	}
}

// checkDeviceRows compares each rank's rows in a summary with the requested placement.
func checkDeviceRows(t *testing.T, s *record.Summary, ranks int, reads string) {
	t.Helper()
	if len(s.DeviceRows) != ranks {
		t.Fatalf("the summary has the rows of %d of %d ranks", len(s.DeviceRows), ranks)
	}
	for r, d := range s.DeviceRows {
		some := d.Resident < d.Own
		if d.Rank != r || d.Own == 0 || d.Order == "" || d.Why == "" ||
			reads == residence.ReadsMapped && some && d.Reads != residence.ReadsMapped {
			t.Errorf("reads %s: %+v", reads, d)
		}
		if measured := d.Copied > 0 &&
			d.Mapped > 0; measured != (reads == residence.ReadsAuto && some) {
			t.Errorf("reads %s: %+v", reads, d)
		}
	}
}
