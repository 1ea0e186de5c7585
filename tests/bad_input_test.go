//go:build e2e

package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/npy"
)

// The exit codes of docs/exit-codes.md.
const (
	failed   = 1
	usage    = 2
	badData  = 3
	diverged = 4
)

// badInput is a command that must fail in order: with an exit code and one message, and without
// writing anything.
type badInput struct {
	name string
	// makes the bad input below dir, and returns a command that would write to dir/out
	args func(t *testing.T, dir string) []string
	code int
	want []string // what the message must contain: the file, key or rank, and the cure
}

func (b badInput) run(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := halognn(t).run(t, b.args(t, dir)...)
	b.check(t, dir, r)
}

func (b badInput) check(t *testing.T, dir string, r result) {
	t.Helper()
	if r.code != b.code {
		t.Errorf("exit code %d, want %d: %v", r.code, b.code, r)
	}
	message := r.message(t)
	for _, want := range b.want {
		if !strings.Contains(message, want) {
			t.Errorf("the message does not say %q: %s", want, message)
		}
	}
	if strings.Contains(message, "goroutine ") {
		t.Errorf("the message shows a stack: %s", message)
	}
	written, err := filepath.Glob(filepath.Join(dir, "out*"))
	if err != nil || len(written) > 0 {
		t.Errorf("the command left %v (%v)", written, err)
	}
}

// copyOf copies a directory of files, and of directories of files, to dir/name.
func copyOf(t *testing.T, from, dir, name string) string {
	t.Helper()
	to := filepath.Join(dir, name)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// remove deletes a file; truncate keeps only its first bytes.
func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, bytes int64) {
	t.Helper()
	if err := os.Truncate(path, bytes); err != nil {
		t.Fatal(err)
	}
}

// patch changes the last bytes of a file.
func patch(t *testing.T, path string, tail ...byte) {
	t.Helper()
	data := read(t, path)
	copy(data[len(data)-len(tail):], tail)
	write(t, path, data)
}

// replace replaces text that a file must contain.
func replace(t *testing.T, path, old, by string) {
	t.Helper()
	text := string(read(t, path))
	if !strings.Contains(text, old) {
		t.Fatalf("%s does not hold %q", path, old)
	}
	write(t, path, []byte(strings.Replace(text, old, by, 1)))
}

// save writes a NumPy array.
func save[T npy.Element](t *testing.T, path string, data []T, shape ...int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := npy.WriteFile(path, data, shape...); err != nil {
		t.Fatal(err)
	}
}
