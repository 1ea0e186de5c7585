package shard

import (
	"errors"
	"os"
	"path/filepath"

	"halognn/src/dataset"
)

// begin makes the temporary directory for dir.
func begin(dir string) (string, error) {
	if err := dataset.Vacant(dir); err != nil {
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
	if err := dataset.Vacant(dir); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty directory
		return err
	}
	return os.Rename(tmp, dir)
}
