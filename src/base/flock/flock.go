// Package flock lets processes of a node, and goroutines, take turns at a file or directory: one
// holds its lock, and the others wait or do not use it. A lock ends with the process that holds it.
// On many shared filesystems only processes of the same node see a lock (BeeGFS, Lustre -o
// localflock, NFS local_lock). So a process of another node may use the directory although the lock
// seems free. Process describes a process such that other nodes can identify it. Package rundir has
// another lock, for a run directory, which other nodes do see and for which nobody waits.
package flock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// errHeld is wrapped by the error that Try returns if another process has the lock.
var errHeld = errors.New("another process is at work there")

// Lock waits for the lock on the file at path and returns the function that releases it. If there
// is no file, Lock makes it. While it waits, the process that holds the lock may remove the file,
// and another process may make a new one. So a lock counts only if the locked file is still the one
// at path.
func Lock(path string, mode os.FileMode) (unlock func(), err error) {
	return take(path, os.O_CREATE|os.O_RDWR, mode, unix.LOCK_EX)
}

// Try locks the file as Lock does, but does not wait. If another process has the lock, Try returns
// an error. If create is not set, the file must exist.
func Try(path string, create bool) (unlock func(), err error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	return take(path, flags, 0o666, unix.LOCK_EX|unix.LOCK_NB)
}

func take(path string, flags int, mode os.FileMode, how int) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, flags, mode)
		if err != nil {
			return nil, err
		}
		for {
			err = unix.Flock(int(f.Fd()), how)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, explained(err))
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

// explained adds advice to the error of a filesystem without locks.
func explained(err error) error {
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%w: %w", errHeld, err)
	case Unsupported(err):
		return fmt.Errorf("%w: this filesystem has no locks; choose a directory on another one, "+
			"or mount it with locks (Lustre: -o flock; NFS 3: with rpc.statd)", err)
	}
	return err
}

// Unsupported reports whether err means that the filesystem has no locks.
func Unsupported(err error) bool {
	return errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP)
}
