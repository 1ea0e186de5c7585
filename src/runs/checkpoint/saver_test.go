package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"halognn/src/data/rundir"
	"halognn/src/runs/config"
)

// Saves fall due at multiples of the step, at the first step after a write that took longer, and by
// the clock.
func TestDue(t *testing.T) {
	noted := 0
	note := func(string, ...any) { noted++ }
	due := func(s *Saver, updates int) bool {
		d, err := s.Due(updates, note)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	s := &Saver{o: config.Saves{EverySteps: 10}, saved: 7}
	for updates, want := range map[int]bool{8: false, 9: false, 10: true, 11: true, 27: true} {
		if got := due(s, updates); got != want {
			t.Errorf("every 10 steps, saved after 7: due after %d: %t", updates, got)
		}
	}
	s.writing = make(chan error, 1)
	if due(s, 20) || due(s, 21) || noted != 1 {
		t.Errorf("due during a write, or %d notes", noted)
	}
	s.writing <- nil
	s.pending = "x"
	if !due(s, 22) || s.Last != "x" {
		t.Errorf("not due after the write; the last is %q", s.Last)
	}
	c := &Saver{o: config.Saves{EveryMinutes: 0.5}, at: time.Now()}
	if due(c, 1000) {
		t.Error("due before its time")
	}
	if c.at = c.at.Add(-31 * time.Second); !due(c, 1) {
		t.Error("not due after its time")
	}
	if noted, c.took = 0, time.Second; due(c, 1) || due(c, 2) || noted != 1 {
		t.Errorf("due 31 s after a save that took 1 s, or %d notes", noted)
	}
	if c.at = c.at.Add(-170 * time.Second); !due(c, 1) || noted != 1 {
		t.Errorf("not due 201 s after a save that took 1 s, or %d notes", noted)
	}
	if due(&Saver{at: time.Now().Add(-time.Hour)}, 1000) {
		t.Error("due without being asked for")
	}
}

// A checkpoint written after the last update holds diverged weights, so it is not the last good
// one.
func TestLastGoodCheckpoint(t *testing.T) {
	dir := t.TempDir()
	at := func(updates int, end bool) string {
		path := rundir.CheckpointPath(dir, updates, end)
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first, second, end := at(3, false), at(7, false), at(7, true)
	for _, c := range []struct {
		name         string
		last, before string
		updates      int
		want         string
	}{
		{"none", "", "", 7, "; there is no checkpoint"},
		{"before the last update", second, first, 8, "; the last good checkpoint is " + second},
		{"after the last update", second, first, 7, "; " + second +
			" holds the weights that diverged, and the last good checkpoint is " + first},
		{"at the end of training", end, first, 7, "; " + end +
			" holds the weights that diverged, and the last good checkpoint is " + first},
		{"the only one", second, "", 7, "; " + second +
			" holds the weights that diverged, and there is no good checkpoint"},
		{"the only one that is left", second, filepath.Join(dir, "pruned"), 7, "; " + second +
			" holds the weights that diverged, and there is no good checkpoint"},
	} {
		if got := (&Saver{run: dir, Last: c.last, before: c.before}).Good(c.updates); got !=
			c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
