// Package flock lets those who need a place take turns: one has its lock, and the others of the node,
// goroutines too, wait. The lock of a run directory is package rundir's: it reaches other nodes, and
// nobody waits for it.
package flock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Lock waits for the lock on the file at path, which it makes if there is none, and returns the
// function that releases it. The holder may remove the file. While this one waited, that may have
// happened and another process may have made a new file: only a lock on the file that now has the
// name counts.
func Lock(path string, mode os.FileMode) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, mode)
		if err != nil {
			return nil, err
		}
		for {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		locked, err1 := f.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(locked, named) {
			return func() { _ = f.Close() }, nil // closing releases the lock
		}
		_ = f.Close()
		if err := errors.Join(err1, err2); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}
