//go:build e2e

package tests

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"halognn/tests/race"
)

// limit is how long a command, or a change that a test waits for, may take before it counts as
// hanging. Most commands of these tests take well under a second; but machines may be slow and
// busy.
const limit = 5 * time.Minute

// scratch holds what all tests share: the program and the datasets.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "halognn-tests-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		scratch = dir
		// Open MPI's mpirun waits twice this long before it ends after a failure. A test that needs
		// more sets more.
		if err := os.Setenv("OMPI_MCA_odls_base_sigkill_timeout", "1"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// program is the halognn binary under test: the file that HALOGNN_BIN names, or one built from the
// sources with the settings of the environment, and with the race detector if the tests have it.
type program struct {
	path string
	cgo  bool   // has kernels in C
	tags string // build tags, in the form of -tags
}

// linked reports whether the program has the library of a build tag.
func (p *program) linked(tag string) bool {
	return p.cgo && slices.Contains(strings.Split(p.tags, ","), tag)
}

var built = sync.OnceValues(func() (*program, error) {
	p := &program{path: os.Getenv("HALOGNN_BIN")}
	if p.path == "" {
		if err := noteSources(); err != nil {
			return nil, err
		}
		p.path = filepath.Join(scratch, "halognn")
		args := []string{"build", "-o", p.path}
		if race.Detector {
			args = append(args, "-race")
		}
		if text, err := exec.Command("go",
			append(args, "halognn/src/cmd/halognn")...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the program: %w\n%s", err, text)
		}
	}
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		return nil, fmt.Errorf("reading how the program was built: %w", err)
	}
	for _, s := range info.Settings {
		p.cgo = p.cgo || s.Key == "CGO_ENABLED" && s.Value == "1"
		if s.Key == "-tags" {
			p.tags = s.Value
		}
	}
	return p, nil
})

// noteSources looks at the sources and flags from which the program is built. go test caches the
// results of a test by the files and variables that the test has looked at; it does not know what a
// started command reads.
func noteSources() error {
	for _, name := range []string{"CGO_ENABLED", "CGO_CFLAGS", "CGO_LDFLAGS", "GOFLAGS"} {
		_ = os.Getenv(name)
	}
	for _, dir := range []string{"../src", "../kernels", "../python", "../inputs", "../profiling"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unlessShort skips a test with -short, except where the test is a smoke test. `make test-fast` and
// the build without cgo run only smoke tests, which a change is most likely to break.
func unlessShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short")
	}
}

func halognn(t *testing.T) *program {
	t.Helper()
	p, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// result is how a command ended.
type result struct {
	command string
	code    int
	out     string // standard output
	err     string // standard error
}

func (r result) String() string {
	return fmt.Sprintf("%s\nexit code %d\n%s%s", r.command, r.code, r.out, r.err)
}

// run runs the program to its end.
func (p *program) run(t *testing.T, args ...string) result {
	t.Helper()
	return start(t, nil, p.path, args...).wait(t)
}

// job is a command that runs.
type job struct {
	*exec.Cmd
	out, err bytes.Buffer
	cancel   context.CancelFunc
	ctx      context.Context
}

// start starts a command in a process group of its own, with settings added to the environment.
func start(t *testing.T, env []string, name string, args ...string) *job {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	j := &job{Cmd: exec.CommandContext(ctx, name, args...), cancel: cancel, ctx: ctx}
	j.Env = append(os.Environ(), env...)
	j.Stdout, j.Stderr = &j.out, &j.err
	j.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// the signal at which a launcher ends its ranks
	j.Cancel = func() error { return syscall.Kill(-j.Process.Pid, syscall.SIGTERM) }
	j.WaitDelay = 5 * time.Second
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return j
}

// wait returns how the job ended. A job beyond the limit is killed and fails the test.
func (j *job) wait(t *testing.T) result {
	t.Helper()
	err := j.Wait()
	r := result{strings.Join(j.Args, " "), j.ProcessState.ExitCode(), j.out.String(),
		j.err.String()}
	if j.ctx.Err() != nil {
		t.Fatalf("still running after %v: %v", limit, r)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", err, r)
	}
	return r
}

// must runs the program and fails the test unless it succeeds.
func (p *program) must(t *testing.T, args ...string) result {
	t.Helper()
	r := p.run(t, args...)
	if r.code != 0 {
		t.Fatal(r)
	}
	return r
}

// message returns the one error message of a command that failed. If there are several or none, it
// fails the test.
func (r result) message(t *testing.T) string {
	t.Helper()
	const begin = "halognn: "
	lines := strings.Split(r.err, "\n")
	first := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, begin) })
	n := strings.Count("\n"+r.err, "\n"+begin)
	if n != 1 || strings.Contains(r.out, begin) {
		t.Errorf("%d error messages on standard error, want 1 (and none on standard output): %v", n,
			r)
	}
	if first < 0 {
		return ""
	}
	return strings.Join(lines[first:], "\n")
}

// left lists the live processes whose command line has the word, except this one. It needs Linux.
func left(t *testing.T, word string) []int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, f := range files {
		// fails for a process that has ended meanwhile; empty for a zombie
		text, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(text, []byte(word)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually waits until ok, and fails the test if that never comes.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > limit {
			t.Fatalf("%s: not after %v", what, limit)
		}
	}
}
