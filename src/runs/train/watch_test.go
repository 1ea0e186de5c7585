package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"halognn/src/data/rundir"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session"
	"halognn/src/runs/watch"
)

// hangs is a Progress that blocks rank 0 in its second step until OnStall is called.
type hangs struct {
	heard
	steps int
	until chan struct{}
}

func (h *hangs) Step(float64) {
	if h.steps++; h.steps == 2 {
		<-h.until
	}
}

// A hang of rank 0 is reported once, by the rank that sees it first; a run that recovers ends as if
// it had not hung.
func TestWatchdogTellsOfARankThatHangs(t *testing.T) {
	shards, dir := generated(t), t.TempDir()
	h := &hangs{until: make(chan struct{})}
	var mu sync.Mutex
	var told []error
	err := comm.RunWorld(3, func(c comm.Comm) error {
		env := Env{Env: session.Env{Comm: c, Shards: shards,
			Device: ref.New(), Host: ref.Host{}, Workers: 1},
			Dir: dir, Stall: 2 * time.Second} // a busy machine stops none so long
		env.OnStall = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if told = append(told, err); len(told) == 1 {
				close(h.until)
			}
		}
		if c.Rank() == 0 {
			env.Progress = h
		}
		_, err := Run(context.Background(), env, sageOptions())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || !errors.Is(told[0], watch.ErrStalled) ||
		!strings.Contains(told[0].Error(), "at epoch 1, step ") {
		t.Errorf("told of %v", told)
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.HeartbeatFile)); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("the heartbeat was left: %v", err)
	}
}
