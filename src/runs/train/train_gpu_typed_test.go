//go:build cgo

package train

import (
	"maps"
	"strings"
	"testing"

	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/rows/policy"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
)

// A device with its own memory trains a typed graph to the results of the host, in split mode too,
// and to the same bits whatever a cache holds.
func TestOffboardTrainsTyped(t *testing.T) {
	library := cudaLibrary(t)
	s := shardtest.Cut(t, typedData(t), shardtest.Options{Parts: 4})
	gpu := gpus(t, library, 2<<20)
	host := func(int) (compute.Device, error) { return ref.New(), nil }
	split, err := parallel.ModeOf(parallel.ModeSplit)
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []string{"sage", "rgcn", "gat", "gatv2"} {
		t.Run(kind, func(t *testing.T) {
			o := typedOptions(kind)
			o.Epochs, o.EvalEvery, o.EvalFull = 2, 2, i%2 == 0
			want := trainedOn(t, s, 2, o, residence.GPURows{}, "", host)
			got := trainedOn(t, s, 2, o, residence.GPURows{}, "", gpu)
			if d := got.TrainLoss - want.TrainLoss; !(d < 1e-5 && d > -1e-5) ||
				got.TestAccuracy.Value != want.TestAccuracy.Value || got.Remote != want.Remote {
				t.Errorf("loss %v, accuracy %v, %d rows; want %v, %v, %d", got.TrainLoss,
					got.TestAccuracy.Value, got.Remote, want.TrainLoss, want.TestAccuracy.Value,
					want.Remote)
			}
			shared := o
			shared.Mode, shared.StreamPerPart = split.Mode, false
			want = trainedOn(t, s, 2, shared, residence.GPURows{}, "", host)
			same := trainedOn(t, s, 2, shared, residence.GPURows{}, "", gpu)
			if d := same.TrainLoss - want.TrainLoss; !(d < 1e-5 && d > -1e-5) ||
				want.Shuffles.Rows == 0 || same.Shuffles.Rows != want.Shuffles.Rows {
				t.Errorf("split: loss %v, %d rows; want %v, %d", same.TrainLoss, same.Shuffles.Rows,
					want.TrainLoss, want.Shuffles.Rows)
			}
			if i > 0 {
				return
			}
			o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.3}
			if cached := trainedOn(t, s, 2, o, residence.GPURows{}, "", gpu); cached.LossDigest !=
				got.LossDigest || cached.Remote >= got.Remote {
				t.Errorf("with a cache digest %s and %d rows; want %s and fewer than %d",
					cached.LossDigest, cached.Remote, got.LossDigest, got.Remote)
			}
		})
	}
}

// Sparse rows train on a device as on the host, in layers that multiply them and in others, to the
// same bits whatever a cache holds; they lie in no device memory.
func TestOffboardTrainsSparse(t *testing.T) {
	library := cudaLibrary(t)
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{Sparse: true}),
		shardtest.Options{Parts: 4})
	gpu := gpus(t, library, 2<<20)
	host := func(int) (compute.Device, error) { return ref.New(), nil }
	for i, kind := range []string{"sage", "gcn", "gin", "gat", "mlp"} {
		t.Run(kind, func(t *testing.T) {
			if i > 2 && testing.Short() {
				t.Skip("-short")
			}
			o := typedOptions(kind)
			o.Epochs, o.EvalEvery, o.EvalFull = 2, 2, i%2 == 0
			want := trainedOn(t, s, 2, o, residence.GPURows{}, "", host)
			got := trainedOn(t, s, 2, o, residence.GPURows{}, "", gpu)
			if d := got.TrainLoss - want.TrainLoss; !(d < 1e-5 && d > -1e-5) ||
				want.TrainLoss == 0 || got.TestAccuracy.Value != want.TestAccuracy.Value ||
				got.RemoteBytes != want.RemoteBytes {
				t.Errorf("loss %v, accuracy %v, %d bytes of rows; want %v, %v, %d", got.TrainLoss,
					got.TestAccuracy.Value, got.RemoteBytes, want.TrainLoss,
					want.TestAccuracy.Value, want.RemoteBytes)
			}
			for _, d := range got.DeviceRows {
				if d.Resident != 0 || d.Reads != residence.ReadsCopy || d.Why == "" {
					t.Errorf("rows on a device: %+v", d)
				}
			}
			if i > 0 {
				return
			}
			o.Cache = policy.Settings{Policy: policy.VIP, Alpha: 0.3}
			if cached := trainedOn(t, s, 2, o, residence.GPURows{}, "", gpu); cached.LossDigest !=
				got.LossDigest || cached.Remote >= got.Remote || cached.Cache.DeviceRows != 0 ||
				cached.Cache.HostReason == "" {
				t.Errorf("with a cache digest %s and %d rows, %+v; want %s and fewer than %d",
					cached.LossDigest, cached.Remote, cached.Cache, got.LossDigest, got.Remote)
			}
		})
	}
}

// A step launches as many kernels and products, and copies as many arrays, for 45 relations as for
// three. The exception is gatv2, whose scores take a kernel and arrays for each relation.
func TestTypedLaunches(t *testing.T) {
	library := cudaLibrary(t)
	few := shardtest.Cut(t, oneType(t, 3), shardtest.Options{Parts: 1})
	many := shardtest.Cut(t, oneType(t, 45), shardtest.Options{Parts: 1})
	for i, kind := range []string{"rgcn", "sage", "gat"} {
		if i > 0 && testing.Short() {
			t.Skip("-short")
		}
		o := typedOptions(kind)
		o.EvalEvery, o.Model.Hidden = 0, 2
		step := func(s *shard.Shards) map[string]int {
			before, _ := launchesOf(t, library, "", s, o, 1)
			after, steps := launchesOf(t, library, "", s, o, 2)
			for name, n := range before {
				after[name] = (after[name] - n) / steps
			}
			// nor zeros, of rows that a minibatch happens to lack, nor waits, where memory grows
			maps.DeleteFunc(after, func(name string, _ int) bool {
				return !strings.Contains(name, "/") && !strings.HasPrefix(name, "copy")
			})
			return after
		}
		want, got := step(few), step(many)
		if len(want) == 0 {
			t.Skip("the library counts no launches: it is not emulated")
		}
		total := 0
		for name, n := range want {
			if !strings.HasPrefix(name, "copy") {
				total += n
			}
		}
		t.Logf("%s: %d launches a step", kind, total)
		if !maps.Equal(got, want) {
			t.Errorf("%s: a step with 45 relations launches %v, with three %v", kind, got, want)
		}
	}
}
