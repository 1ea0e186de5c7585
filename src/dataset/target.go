package dataset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// begun lists the temporary directories of this process that have not been renamed yet.
var begun struct {
	sync.Mutex
	dirs []string
}

// Begin makes a temporary directory beside dir, which must not exist or be empty. Finish or Discard
// ends it.
func Begin(dir string) (tmp string, err error) {
	if err := Vacant(dir); err != nil {
		return "", err
	}
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", err
	}
	begun.Lock()
	defer begun.Unlock()
	if tmp, err = os.MkdirTemp(parent, filepath.Base(dir)+".tmp-"); err != nil {
		return "", err
	}
	begun.dirs = append(begun.dirs, tmp)
	return tmp, os.Chmod(tmp, 0o755)
}

// Finish renames the temporary directory into place.
func Finish(tmp, dir string) error {
	if err := Vacant(dir); err != nil {
		return err
	}
	begun.Lock()
	defer begun.Unlock()
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty directory
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	forget(tmp)
	return nil
}

// Discard removes the temporary directory; after Finish it does nothing.
func Discard(tmp string) {
	begun.Lock()
	defer begun.Unlock()
	_ = os.RemoveAll(tmp)
	forget(tmp)
}

// Replace replaces dir by the directory made, whose path Beside returned, and then removes the old
// dir.
func Replace(made, dir string) error {
	old, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), filepath.Base(dir)+".old-")
	if err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(old, "it")); err != nil {
		return errors.Join(err, os.Remove(old))
	}
	if err := os.Rename(made, dir); err != nil {
		return errors.Join(err, os.Rename(filepath.Join(old, "it"), dir), os.Remove(old))
	}
	return os.RemoveAll(old)
}

// Beside returns an unused path for a directory that will replace the dataset or parts at dir. It
// is an error if dir is anything else, which the user may have made by hand.
func Beside(dir string) (string, error) {
	if !exists(filepath.Join(dir, metaFile)) {
		return "", fmt.Errorf("%s: %w and is no dataset and no parts, which alone are replaced; "+
			"remove it or choose another one", dir, ErrExists)
	}
	return fmt.Sprintf("%s.new-%d", filepath.Clean(dir), os.Getpid()), nil
}

func forget(tmp string) {
	begun.dirs = slices.DeleteFunc(begun.dirs, func(d string) bool { return d == tmp })
}

// DiscardAll removes all temporary directories of a process that is about to end. From then on
// Begin, Finish and Discard block, so that goroutines whose files are gone report no further
// errors.
func DiscardAll() {
	begun.Lock()
	for _, tmp := range begun.dirs {
		for range 10 { // other goroutines may still create files in it
			if os.RemoveAll(tmp) == nil {
				break
			}
		}
	}
}
