package shard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// begin makes the temporary directory for dir.
func begin(dir string) (string, error) {
	if err := vacant(dir); err != nil {
		return "", err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, filepath.Base(dir)+".tmp-")
	if err != nil {
		return "", err
	}
	return tmp, os.Chmod(tmp, 0o755)
}

// finish renames the temporary directory into place.
func finish(tmp, dir string) error {
	if err := vacant(dir); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty directory
		return err
	}
	return os.Rename(tmp, dir)
}

// vacant reports why nothing may be written at dir.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w and is not a directory; choose another one", dir, ErrExists)
	case len(entries) > 0:
		return fmt.Errorf("%s: %w and is not empty; remove it or choose another one", dir, ErrExists)
	}
	return nil
}
