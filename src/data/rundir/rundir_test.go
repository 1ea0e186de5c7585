package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunDirHoldsOneRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run")
	if err := Create(dir, []byte("first")); err != nil {
		t.Fatal(err)
	}
	err := Create(dir, []byte("second"))
	if !errors.Is(err, ErrRunExists) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second run gets %v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if err != nil || string(text) != "first" {
		t.Errorf("the config is %q (%v)", text, err)
	}
}

// No part of a run writes over traces or profiles of an earlier one.
func TestPartSuffix(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ made, want string }{
		{"", ""}, {TraceDir, "-2"}, {ProfileDir + "-2", "-3"}, {ProfileDir, "-3"},
	} {
		if c.made != "" {
			if err := os.Mkdir(filepath.Join(dir, c.made), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if got := PartSuffix(dir); got != c.want {
			t.Errorf("after %q: %q, want %q", c.made, got, c.want)
		}
	}
}
