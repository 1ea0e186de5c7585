package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session"
)

// heard is a Progress that records its calls.
type heard struct{ lines []string }

func (h *heard) Epoch(epoch, first, steps int) {
	h.lines = append(h.lines, fmt.Sprint("epoch ", epoch, " of ", steps-first))
}
func (h *heard) Begin(string) {}
func (h *heard) End(string)   {}
func (h *heard) Step(float64) { h.lines = append(h.lines, "step") }
func (h *heard) Evaluated(epoch int, line string, _ ...any) {
	metric, _, _ := strings.Cut(line[strings.Index(line, "valid"):], " %")
	h.lines = append(h.lines, fmt.Sprint("evaluated ", epoch, " ", strings.Fields(metric)[1]))
}
func (h *heard) Note(_ context.Context, line string) {
	h.lines = append(h.lines, "note "+strings.Fields(line)[0])
}

func TestProgressHearsOfEveryStep(t *testing.T) {
	shards := generated(t)
	o := sageOptions()
	o.Batch, o.GlobalBatch = 100, true // 180 training seeds: 2 steps
	var h heard
	err := comm.RunWorld(2, func(c comm.Comm) error {
		env := Env{Env: session.Env{Comm: c, Shards: shards,
			Device: ref.New(), Host: ref.Host{}, Workers: 1},
			Dir: t.TempDir()}
		if c.Rank() == 0 {
			env.Progress = &h
		}
		_, err := Run(context.Background(), env, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "epoch 1 of 2, step, step, evaluated 1 accuracy, epoch 2 of 2, step, step, evaluated " +
		"2 accuracy"
	if got := strings.Join(h.lines, ", "); got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
}

// Open writes nothing, whatever error it finds; nor does a Training that is ended before Run.
func TestOpenWritesNothing(t *testing.T) {
	shards, refused := generated(t), errors.New("refused")
	for _, c := range []struct {
		name   string
		bad    func(*Options)
		opened bool
	}{
		{"nothing wrong", func(*Options) {}, true},
		{"a model that cannot be", func(o *Options) { o.Model.Kind = "tree" }, false},
		{"no batch", func(o *Options) { o.Batch = 0 }, false},
	} {
		dir := t.TempDir()
		err := comm.RunWorld(1, func(w comm.Comm) error {
			o := sageOptions()
			c.bad(&o)
			training, err := Open(Env{Env: session.Env{Comm: w, Shards: shards,
				Device: ref.New(), Host: ref.Host{}, Workers: 1},
				Dir: dir}, o)
			if opened := err == nil; opened != c.opened {
				t.Errorf("%s: %v", c.name, err)
			}
			if err != nil {
				return nil
			}
			if err := training.End(comm.AgreedOn(w, refused)); !errors.Is(err, refused) {
				t.Errorf("%s: it ended with %v", c.name, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("%s: the run left %v (%v)", c.name, files, err)
		}
	}
}

// A run that diverges ends with the same error on all ranks, and its log has the steps before.
func TestDivergenceIsAgreedOnAndLogged(t *testing.T) {
	shards := generated(t)
	for _, c := range []struct {
		name    string
		lr      float64
		batch   int
		message string
		logged  string
	}{
		{"in an epoch", 1e30, 20, "the loss is", `{"kind":"step","epoch":1,"step":0,`},
		{"at the last step of all", 1e38, 1000, "predictions", `{"kind":"epoch","epoch":1,`},
	} {
		dir := t.TempDir()
		err := comm.RunWorld(2, func(w comm.Comm) error {
			o := sageOptions()
			o.Optimizer, o.Schedule.Base, o.Batch, o.Epochs = nn.DefaultOptimizer("sgd"), c.lr,
				c.batch, 1
			_, err := Run(context.Background(),
				Env{Env: session.Env{Comm: w, Shards: shards,
					Device: ref.New(), Host: ref.Host{}, Workers: 1},
					Dir: dir}, o)
			if !comm.IsAgreed(err) || !errors.Is(err, nn.ErrDiverged) ||
				!strings.Contains(err.Error(), c.message) {
				return fmt.Errorf("%s: ended with %v", c.name, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if log, err := os.ReadFile(filepath.Join(dir, rundir.MetricsFile)); err != nil ||
			!strings.Contains(string(log), c.logged) {
			t.Errorf("%s: the log is %q (%v)", c.name, log, err)
		}
	}
}
