package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute/ref"
)

// heard is a Progress that remembers.
type heard struct{ lines []string }

func (h *heard) Epoch(epoch, steps int) {
	h.lines = append(h.lines, fmt.Sprint("epoch ", epoch, " of ", steps))
}
func (h *heard) Step(float64) { h.lines = append(h.lines, "step") }
func (h *heard) Evaluated(epoch int, line string) {
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
		env := Env{Comm: c, Shards: shards, Device: ref.New(), Host: ref.Host{}, Workers: 1, Dir: t.TempDir()}
		if c.Rank() == 0 {
			env.Progress = &h
		}
		_, err := Run(context.Background(), env, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "epoch 1 of 2, step, step, evaluated 1 accuracy, epoch 2 of 2, step, step, evaluated 2 accuracy"
	if got := strings.Join(h.lines, ", "); got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
}

// A run that Begin refuses writes nothing, and Begin is asked only when nothing else speaks against the run.
func TestBeginComesLast(t *testing.T) {
	shards, refused := generated(t), errors.New("refused")
	for _, c := range []struct {
		name  string
		bad   func(*Options)
		asked bool
	}{
		{"refused", func(*Options) {}, true},
		{"a model that cannot be", func(o *Options) { o.Model.Kind = "tree" }, false},
		{"no batch", func(o *Options) { o.Batch = 0 }, false},
	} {
		dir, asked := t.TempDir(), false
		err := comm.RunWorld(1, func(w comm.Comm) error {
			o := sageOptions()
			c.bad(&o)
			env := Env{Comm: w, Shards: shards, Device: ref.New(), Host: ref.Host{}, Workers: 1, Dir: dir}
			env.Begin = func() error { asked = true; return refused }
			_, err := Run(context.Background(), env, o)
			return err
		})
		if err == nil || asked != c.asked || c.asked && !errors.Is(err, refused) {
			t.Errorf("%s: asked: %t, error %v", c.name, asked, err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("%s: the run left %v (%v)", c.name, files, err)
		}
	}
}

func TestRunDirHoldsOneRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run")
	if err := CreateRunDir(dir, []byte("first")); err != nil {
		t.Fatal(err)
	}
	err := CreateRunDir(dir, []byte("second"))
	if !errors.Is(err, ErrRunExists) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second run gets %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, ConfigFile)); err != nil || string(text) != "first" {
		t.Errorf("the config is %q (%v)", text, err)
	}
}
