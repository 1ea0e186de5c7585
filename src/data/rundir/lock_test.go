package rundir

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// quick makes locks beat fast for a test.
func quick(t *testing.T) {
	beat, wait := lockBeat, lockWait
	lockBeat, lockWait = 10*time.Millisecond, 2*time.Second
	t.Cleanup(func() { lockBeat, lockWait = beat, wait })
}

// lockedBy leaves a lock of another process.
func lockedBy(t *testing.T, dir string, change func(*holder)) (path string, text []byte) {
	t.Helper()
	h := thisProcess()
	change(&h)
	who, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	l := Lock{who: who}
	path, text = filepath.Join(dir, LockFile), l.text(7)
	if err := os.WriteFile(path, text, 0o666); err != nil {
		t.Fatal(err)
	}
	return path, text
}

func TestLock(t *testing.T) {
	quick(t)
	elsewhere := func(h *holder) { h.Host, h.Space, h.Job = "n17", "another boot", "4711" }
	for _, c := range []struct {
		name   string
		holder func(*holder) // of the lock that is there; nil: none
		beats  bool
		refuse string // what the error says
		waits  bool
	}{
		{name: "free"},
		{name: "held by a process that lives", holder: func(*holder) {}, refuse: "process"},
		{name: "held by a process that is dead", holder: func(h *holder) { h.PID = 1 << 30 }},
		{name: "held by one whose number is another's now",
			holder: func(h *holder) { h.Start = "1" }},
		{
			name: "held elsewhere, alive", holder: elsewhere, beats: true,
			refuse: "job 4711, process", waits: true,
		},
		{name: "held elsewhere, dead", holder: elsewhere, waits: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.holder != nil {
				path, text := lockedBy(t, dir, c.holder)
				if c.beats {
					text[countBytes-2]++
					time.AfterFunc(lockWait/3, func() { _ = os.WriteFile(path, text, 0o666) })
				}
			}
			waited := false
			l, err := LockRun(dir, func(string) { waited = true })
			if waited != c.waits {
				t.Errorf("it waited: %t", waited)
			}
			if c.refuse != "" {
				for _, want := range []string{c.refuse, "remove " + dir} {
					if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), want) {
						t.Errorf("the error does not say %q: %v", want, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := LockRun(dir, func(string) {}); !errors.Is(err, ErrInUse) {
				t.Errorf("two have it: %v", err)
			}
			if err := errors.Join(l.Held(), l.Release()); err != nil {
				t.Error(err)
			}
			if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
				t.Errorf("left are %v (%v)", names, err)
			}
		})
	}
}

// Beats change no more than the count, and a holder whose lock was taken away knows it, beats no
// more and leaves it.
func TestLockThatIsTakenAway(t *testing.T) {
	quick(t)
	dir := t.TempDir()
	l, err := LockRun(dir, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	// until it beats
	for now := first; string(now) == string(first); now, err = os.ReadFile(l.path) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Held(); err != nil {
		t.Error(err)
	}
	path, others := lockedBy(t, dir, func(h *holder) { h.PID++ })
	if err := l.Held(); !errors.Is(err, ErrInUse) {
		t.Errorf("held by another, and %v", err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != string(others) {
		t.Errorf("the other's lock is now %q (%v)", text, err)
	}
}

// A lock that cannot be read at one moment is not lost: its holder beats on.
func TestLockThatCannotBeRead(t *testing.T) {
	quick(t)
	l, err := LockRun(t.TempDir(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	other := l.path + ".other" // what cannot be read: a directory
	exchange := func() error { // at once, so that no beat finds nothing
		return unix.Renameat2(unix.AT_FDCWD, l.path, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
	}
	if err := errors.Join(os.Mkdir(other, 0o777), exchange()); err != nil {
		t.Skipf("the file system does not exchange names: %v", errors.Join(err, l.Release()))
	}
	if err := l.Held(); err == nil || errors.Is(err, ErrInUse) {
		t.Errorf("the lock is a directory, and %v", err)
	}
	time.Sleep(3 * lockBeat)
	if err := exchange(); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	for end, now := time.Now().Add(time.Minute), first; string(now) == string(first); {
		if now, err = os.ReadFile(l.path); err != nil || time.Now().After(end) {
			t.Fatalf("it beats no more (%v)", err)
		}
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}
