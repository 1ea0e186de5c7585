//go:build cgo

package train

// These tests train with every transport of gradients between GPUs, and let it fail.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cuda"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
)

// noted is a Progress that records complete notes.
type noted struct {
	heard
	notes []string
}

func (n *noted) Note(_ context.Context, line string) { n.notes = append(n.notes, line) }

// trainedOver trains with a GPU for each rank and a given transport of gradients, and returns rank
// 0's notes too.
func trainedOver(t *testing.T, shards *shard.Shards, library string, ranks int, o Options,
	over parallel.Transport) (sum *record.Summary, notes []string) {
	t.Helper()
	dir, told := t.TempDir(), &noted{}
	w := comm.NewWorld(ranks)
	w.Copy = cuda.CopyNow
	err := w.Run(func(c comm.Comm) error {
		d, err := cuda.Open(cuda.Options{Device: c.Rank(), Memory: 2 << 20, Library: library})
		if err != nil {
			return err
		}
		env := Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: shards,
			Device: d, Host: ref.Host{}, Workers: 2, Gradients: over,
			GPU: residence.GPU{Reads: residence.ReadsCopy}},
			Dir: dir}
		if c.Rank() == 0 {
			env.Progress = told
		}
		s, err := Run(context.Background(), env, o)
		if err != nil {
			return errors.Join(err, d.Close())
		}
		if c.Rank() == 0 {
			sum = s
		}
		return d.Close()
	})
	if err != nil {
		t.Fatalf("%s: %v", over, err)
	}
	return sum, told.notes
}

// Every transport of gradients trains to the same bits, and the summary names the transport.
func TestTransportsOfGradientsTrainAlike(t *testing.T) {
	library := cudaLibrary(t)
	if strings.Contains(library, "emulated") {
		t.Setenv("HALOGNN_NCCL_LIB", library) // the emulation has NCCL too
	}
	if n, err := cuda.Devices(); err != nil || n < 3 {
		t.Skipf("3 GPUs are needed, this machine has %d, %v", n, err)
	}
	shards := generated(t)
	for _, c := range []struct {
		name  string
		ranks int
		set   func(*Options)
	}{
		{"two ranks, full evaluation", 2, func(o *Options) { o.EvalFull = true }},
		{"several minibatches a step", 2, func(o *Options) { o.StreamPerPart = true }},
		{"three ranks", 3, func(*Options) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sageOptions()
			c.set(&o)
			staged, _ := trainedOver(t, shards, library, c.ranks, o, parallel.TransportStaged)
			for _, over := range []parallel.Transport{parallel.TransportNCCL,
				parallel.TransportMPI} {
				got, notes := trainedOver(t, shards, library, c.ranks, o, over)
				if got.LossDigest != staged.LossDigest ||
					got.WeightsDigest != staged.WeightsDigest {
					t.Errorf("over %s the bits differ from those of gradients through host memory",
						over)
				}
				if got.Gradients != string(over) || got.Allreduce != "reproducible" {
					t.Errorf("the summary says %s, %s; want %s, reproducible", got.Gradients,
						got.Allreduce, over)
				}
				if text := strings.Join(notes, "\n"); !strings.Contains(text,
					"gradients are added on the GPUs") {
					t.Errorf("nobody says how gradients travel: %q", text)
				}
			}
			fast := o
			fast.Sum = comm.SumFast
			if got, _ := trainedOver(t, shards, library, c.ranks, fast,
				parallel.TransportNCCL); got.Allreduce != "nccl" {
				t.Errorf("sums in NCCL's order are called %s", got.Allreduce)
			}
		})
	}
}

// breakingGPU is breaking for a device with its own memory.
type breakingGPU struct {
	compute.PeerDevice
	breaking
}

func (d *breakingGPU) SoftmaxCrossEntropy(
	dlogits, logits compute.Matrix, labels []int32, scale float32,
) (loss float64, correct int) {
	return d.breaking.SoftmaxCrossEntropy(dlogits, logits, labels, scale)
}

// An allreduce that will never complete, between GPUs or through the hosts, delays no rank's exit,
// and none of its memory stays on the GPUs.
func TestTwoRanksWithGPUsFailAtOnce(t *testing.T) {
	library := cudaLibrary(t)
	if strings.Contains(library, "emulated") {
		t.Setenv("HALOGNN_NCCL_LIB", library) // the emulation has NCCL too
	}
	if n, err := cuda.Devices(); err != nil || n < 2 {
		t.Skipf("2 GPUs are needed, this machine has %d, %v", n, err)
	}
	original := sessiontest.Graph(t, 6, 3000).Dir
	for _, over := range []parallel.Transport{parallel.TransportNCCL, parallel.TransportMPI,
		parallel.TransportStaged} {
		for _, depth := range []int{0, 1, 3} {
			t.Run(fmt.Sprint(over, " depth=", depth), func(t *testing.T) {
				w := comm.NewWorld(2)
				w.Copy = cuda.CopyNow
				failTwice(t, w, original, depth, func(rank, steps int, env *Env) error {
					options := cuda.Options{Device: rank, Memory: 2 << 20, Library: library}
					d, err := cuda.Open(options)
					if err != nil {
						return err
					}
					t.Cleanup(func() { // after all ranks have returned
						if err := d.Close(); err != nil {
							t.Errorf("closing the GPU of rank %d: %v", rank, err)
						}
					})
					env.Device, env.GPU.Reads = d, residence.ReadsCopy
					env.Gradients = over
					if rank == 1 {
						env.Device = &breakingGPU{PeerDevice: d,
							breaking: breaking{Device: d, left: steps}}
					}
					return nil
				})
			})
		}
	}
}

// An unsupported transport is one error, on which all ranks agree before anything is written.
func TestATransportThatIsNotPossible(t *testing.T) {
	library := cudaLibrary(t)
	t.Setenv("HALOGNN_NCCL_LIB", "/nowhere/libnccl.so.2")
	shards := generated(t)
	var mu sync.Mutex
	agreed := 0
	err := comm.RunWorld(2, func(c comm.Comm) error {
		d, err := cuda.Open(cuda.Options{Memory: 2 << 20, Library: library})
		if err != nil {
			return err
		}
		env := Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: shards,
			Device: d, Host: ref.Host{}, Workers: 2, Gradients: parallel.TransportNCCL,
			GPU: residence.GPU{Reads: residence.ReadsCopy}},
			Dir: t.TempDir()}
		_, err = Run(context.Background(), env, sageOptions())
		if comm.IsAgreed(err) && errors.Is(err, parallel.ErrTransport) {
			mu.Lock()
			agreed++
			mu.Unlock()
			err = nil
		}
		err = errors.Join(err, d.Sync(), c.StartBarrier().Wait())
		if c.Rank() == 1 { // in turn: both have the first device
			return errors.Join(err, c.StartBarrier().Wait(), d.Close())
		}
		return errors.Join(err, d.Close(), c.StartBarrier().Wait())
	})
	if err != nil || agreed != 2 {
		t.Errorf("%d ranks agree, %v", agreed, err)
	}
}

// Learned rows on a GPU are one error, before they are placed.
func TestLearnedRowsAreRefusedOnGPUs(t *testing.T) {
	library := cudaLibrary(t)
	shards := shardtest.Cut(t, typedData(t, 1), shardtest.Options{Parts: 2})
	err := comm.RunWorld(1, func(c comm.Comm) error {
		d, err := cuda.Open(cuda.Options{Memory: 2 << 20, Library: library})
		if err != nil {
			return err
		}
		o := typedOptions("sage")
		o.Model.Learned, o.Learned.LR = 4, 0.05
		_, err = Run(context.Background(), Env{Env: session.Env{Comm: c, RanksPerNode: 1,
			Shards: shards, Device: d, Host: ref.Host{}, Workers: 1}, Dir: t.TempDir()}, o)
		return errors.Join(err, d.Close())
	})
	if err == nil || !strings.Contains(err.Error(), "rows are learned only on CPUs: set "+
		"compute.device=cpu") {
		t.Error(err)
	}
}
