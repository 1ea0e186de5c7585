//go:build cgo

package train

// This test compares the first steps on a GPU with those on the CPU.

import (
	"context"
	"errors"
	"math"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/cuda"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session"
	"halognn/src/step/residence"
)

// lossesHeard is a Progress that keeps the loss of every step.
type lossesHeard struct {
	heard
	losses []float64
}

func (l *lossesHeard) Step(loss float64) { l.losses = append(l.losses, loss) }

// The losses of the first ten steps on a GPU agree within 1e-5 with those of the optimised CPU
// kernels and their BLAS, which add in other orders. Dropout, LayerNorm and Adam are on.
func TestTenStepsBesideTheCPU(t *testing.T) {
	library := cudaLibrary(t)
	const ranks, steps, tolerance = 2, 10, 1e-5
	devices, err := cuda.Devices()
	if err != nil {
		t.Fatal(err)
	}
	host, err := cpu.NewHost("")
	if err != nil {
		t.Fatal(err)
	}
	shards := generatedIn(t, ranks)
	o := sageOptions()
	o.Model.Norm, o.Model.Dropout, o.Epochs, o.Patience, o.EvalEvery = "layer", 0.3, 3, 0, 0
	losses := func(open func(rank int) (compute.Device, error)) []float64 {
		dir, told := t.TempDir(), new(lossesHeard)
		err := comm.RunWorld(ranks, func(c comm.Comm) error {
			d, err := open(c.Rank())
			if err != nil {
				return err
			}
			env := Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: shards,
				Device: d, Host: host, Workers: 1, GPU: residence.GPU{Reads: residence.ReadsAuto}},
				Dir: dir}
			if c.Rank() == 0 {
				env.Progress = told
			}
			_, err = Run(context.Background(), env, o)
			return errors.Join(err, d.Close())
		})
		if err != nil {
			t.Fatal(err)
		}
		return told.losses
	}
	want := losses(func(int) (compute.Device, error) { return cpu.New(cpu.Options{Threads: 1}) })
	got := losses(func(rank int) (compute.Device, error) {
		return cuda.Open(cuda.Options{Device: rank % devices, Memory: 4 << 20, Library: library})
	})
	if len(got) != len(want) || len(got) < steps {
		t.Fatalf("%d steps, on the CPU %d", len(got), len(want))
	}
	for i := range steps {
		if d := math.Abs(got[i]-want[i]) / want[i]; !(d <= tolerance) {
			t.Errorf("step %d: the loss is %v, on the CPU %v: %.1e apart", i, got[i], want[i], d)
		}
	}
	if want[0] == want[1] || got[steps-1] >= got[0] {
		t.Errorf("nothing was learned: %v", got[:steps])
	}
}
