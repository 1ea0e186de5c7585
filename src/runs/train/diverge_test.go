package train

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/config"
	"halognn/src/runs/session"
)

// poisoned is a device that, at some call, makes one element of the output of a layer NaN.
type poisoned struct {
	compute.Device
	calls int
}

func (p *poisoned) Dense(y compute.Matrix, d compute.Dense) {
	p.Device.Dense(y, d)
	if p.calls--; p.calls == 0 && y.Rows > 0 {
		y.Data[0] = float32(math.NaN())
	}
}

// The error of a loss that is not finite names the first layer whose output was not finite, on
// whichever rank, and the last good checkpoint.
func TestDivergenceNamesLayerAndCheckpoint(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Checkpoint = config.Saves{EverySteps: 4, Keep: 9}
	dir := t.TempDir()
	err := comm.RunWorld(2, func(c comm.Comm) error {
		env := Env{Env: session.Env{Comm: c, Shards: shards,
			Device: ref.New(), Host: ref.Host{}, Workers: 1},
			Dir: dir}
		if c.Rank() == 1 {
			// Step 9, the second of three layers.
			env.Device = &poisoned{Device: env.Device, calls: 3*9 + 2}
		}
		_, err := Run(t.Context(), env, o)
		if !errors.Is(err, nn.ErrDiverged) || c.Rank() > 0 {
			return err
		}
		for _, want := range []string{"epoch 1: step 9", "output of layer 1, at vertex", "(rank 1)",
			"the last good checkpoint is " +
				filepath.Join(dir, rundir.CheckpointsDir, "step-0000000")} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		return err
	})
	if !errors.Is(err, nn.ErrDiverged) {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.SummaryFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run that diverged has a summary (%v)", err)
	}
}

// A loss is compared with the first one, or with 1, and the first one survives a restart.
func TestLossBound(t *testing.T) {
	var b lossBound
	if err := b.check("it", 1e30); err != nil {
		t.Errorf("without a first loss: %v", err)
	}
	b.begin(0.25)
	b.begin(1e9) // a later loss: the first one stays
	if err := b.check("it", 0.99e6); err != nil {
		t.Error(err)
	}
	if err := b.check("it", 1.01e6); !errors.Is(err, nn.ErrDiverged) ||
		!strings.Contains(err.Error(), "it is 1.01e+06, more than 1e+06 times the 0.25") {
		t.Errorf("beyond: %v", err)
	}
	large := 1e7 // unscaled features
	if err := (&lossBound{&large}).check("it", 0.99e13); err != nil {
		t.Error(err)
	}
	text, err := json.Marshal(&checkpoint.State{FirstLoss: &large})
	if err != nil {
		t.Fatal(err)
	}
	var back checkpoint.State
	if err := json.Unmarshal(text, &back); err != nil || back.FirstLoss == nil ||
		*back.FirstLoss != large {
		t.Errorf("a checkpoint keeps %v (%v)", back.FirstLoss, err)
	}
}

// Weights that are not finite are not saved; the error names the last layer whose gradient was not
// finite.
func TestRuinedWeightsAreNotSaved(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Optimizer.Kind, o.Schedule.Base, o.Schedule.Warmup, o.Schedule.Kind = "sgd", 1e38, 0,
		"constant"
	o.Checkpoint = config.Saves{EverySteps: 1, Keep: 9}
	dir := t.TempDir()
	err := comm.RunWorld(2, func(c comm.Comm) error {
		_, err := Run(t.Context(),
			Env{Env: session.Env{Comm: c, Shards: shards,
				Device: ref.New(), Host: ref.Host{}, Workers: 1},
				Dir: dir},
			o)
		return err
	})
	if !errors.Is(err, nn.ErrDiverged) ||
		!strings.Contains(err.Error(), "the first number that was not finite: ") {
		t.Errorf("ended with %v", err)
	}
	if err := rundir.VerifyCheckpoints(dir, checkpoint.Sound); err != nil {
		t.Error(err)
	}
}
