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

	"halognn/src/comm"
	"halognn/src/compute/ref"
	"halognn/src/rundir"
	"halognn/src/watch"
)

// hangs is a Progress that holds rank 0 up in its second step until somebody is told.
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

// A run in which rank 0 hangs is told of once, by whichever rank sees it first; one that gets over
// it ends as if nothing had happened.
func TestWatchdogTellsOfARankThatHangs(t *testing.T) {
	shards, dir := generated(t), t.TempDir()
	h := &hangs{until: make(chan struct{})}
	var mu sync.Mutex
	var told []error
	err := comm.RunWorld(3, func(c comm.Comm) error {
		env := Env{
			Comm: c, Shards: shards, Device: ref.New(), Host: ref.Host{}, Workers: 1, Dir: dir,
			Stall: 200 * time.Millisecond,
		}
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
	if _, err := os.Stat(filepath.Join(dir, rundir.HeartbeatFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the heartbeat was left: %v", err)
	}
}
