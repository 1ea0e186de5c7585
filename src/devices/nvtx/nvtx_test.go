//go:build cgo

package nvtx

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// profiler compiles one.
func profiler(t *testing.T, log string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "libprofiler.so")
	args := append([]string{"-shared", "-fPIC", "-o", out, fmt.Sprintf("-DLOG=%q", log)}, flags...)
	if text, err := exec.Command("cc",
		append(args, "testdata/profiler.c")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// A profiler is told of the ranges that begin and end, in any order and from any goroutine; what
// cannot be loaded has a reason, and no range.
func TestRanges(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for _, c := range []struct{ path, why string }{
		{filepath.Join(t.TempDir(), "none.so"), "none.so"},
		{profiler(t, log, "-DNAMED=0", "-DSTARTS=1", "-DRANGES=1"),
			"has no InitializeInjectionNvtx2"},
		{profiler(t, log, "-DNAMED=1", "-DSTARTS=0", "-DRANGES=1"), "does not start"},
		{profiler(t, log, "-DNAMED=1", "-DSTARTS=1", "-DRANGES=0"), "takes no ranges"},
	} {
		if err := load(c.path); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v; want %q", err, c.why)
		}
		if r := Start("sample"); r != 0 {
			t.Errorf("range %d without a profiler", r)
		}
	}
	if err := load(profiler(t, log, "-DNAMED=1", "-DSTARTS=1", "-DRANGES=1")); err != nil {
		t.Fatal(err)
	}
	first := Start("sample")
	second := Start("forward")
	first.End()
	third := Start("sample")
	done := make(chan bool)
	go func() { third.End(); close(done) }()
	<-done
	second.End()
	Range(0).End()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if want := "start 1 sample\nstart 2 forward\nend 1\nstart 3 sample\nend " +
		"3\nend 2\n"; string(text) != want {
		t.Errorf("the profiler was told\n%swant\n%s", text, want)
	}
}

func TestNoProfiler(t *testing.T) {
	t.Setenv(Variable, "")
	if err := Attach(); err != nil {
		t.Error(err)
	}
}
