package flock

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A lock is held until it is released, and a filesystem without locks is told with its cure.
func TestTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := Try(path, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	unlock, err := Try(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path, false); !errors.Is(err, errHeld) {
		t.Errorf("a lock that is held: %v", err)
	}
	unlock()
	if unlock, err = Try(path, false); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := explained(unix.ENOLCK); !errors.Is(err, unix.ENOLCK) ||
		!strings.Contains(err.Error(), "-o flock") {
		t.Errorf("no locks: %v", err)
	}
}
