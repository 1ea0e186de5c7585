package shard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"halognn/src/base/flock"
	"halognn/src/base/mem"
)

// inUse is a mark: a file beside copies in shared memory that lists their names. A process locks
// its mark from before it makes or maps copies until UnlinkShared. Shared memory that nobody frees
// is lost to all jobs of the node: nobody locks the mark of a killed job, so the next job that
// copies to shared memory removes the copies listed there.
type inUse struct {
	writing sync.Mutex
	path    string
	unlock  func()
}

const useMark = "use-"

// useShared marks root, a directory of copies of some parts, as in use, and removes the copies
// beside it that killed jobs of this user left. It returns nil if root cannot be marked: making
// copies there then fails with the reason. It may remove a copy's name from a job that has not
// marked its own directory yet: then the ranks of that job's node have a copy each.
func useShared(root string) *inUse {
	for range claimTries { // another process may remove the directory, empty as it is
		_ = os.MkdirAll(root, 0o700)
		if ownedByUs(root) != nil {
			return nil
		}
		f, err := os.CreateTemp(root, useMark+"*")
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil
		}
		_ = f.Close()
		unlock, err := flock.Lock(f.Name(), 0o600)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			_ = os.Remove(f.Name())
			return nil
		}
		beside, _ := filepath.Glob(filepath.Join(filepath.Dir(root), ofUser()+"*"))
		for _, dir := range beside {
			removeUnused(dir)
		}
		return &inUse{path: f.Name(), unlock: unlock}
	}
	return nil
}

// note adds the name of a copy. If it cannot be written, neither can the copy.
func (u *inUse) note(name string) {
	if u == nil {
		return
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	if f, err := os.OpenFile(u.path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		_, _ = f.WriteString(name + "\n")
		_ = f.Close()
	}
}

// end says that the process no longer uses the directory.
func (u *inUse) end() {
	if u == nil {
		return
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	if u.unlock != nil {
		_ = os.Remove(u.path)
		u.unlock()
		u.unlock = nil
	}
}

// removeUnused removes the marks in dir that nobody locks and the copies that they list, but keeps
// copies while another mark there is locked. It never waits.
func removeUnused(dir string) {
	marks, _ := filepath.Glob(filepath.Join(dir, useMark+"*"))
	if len(marks) == 0 || ownedByUs(dir) != nil {
		return
	}
	used := false
	var names []string
	for _, mark := range marks {
		unlock, err := flock.Try(mark, false)
		if err != nil {
			used = true // used by a job of the same parts, which now owns the copies
			continue
		}
		if text, err := mem.ReadFile(mark); err == nil {
			names = append(names, strings.Fields(string(text))...)
		}
		_ = os.Remove(mark)
		unlock()
	}
	if used {
		return
	}
	for _, name := range names {
		path := filepath.Join(dir, filepath.Base(name))
		unlock, err := flock.Try(path+".lock", true)
		if err != nil {
			continue // another process copies
		}
		_ = removeCopy(path)
		unlock()
	}
	_ = os.Remove(dir) // fails where another process copies, or keeps copies
}

// UnlinkShared removes the names of the topology copied into shared memory (CopyTopology). Mappings
// stay valid, and the memory is freed when the last process ends, however it ends. Call it when all
// ranks of the node have opened: a rank that opens later makes its own copy. Any number of
// processes may call it.
func (s *Shards) UnlinkShared() error {
	if !s.options.CopyTopology {
		return nil
	}
	var errs []error
	files := s.topologyFiles()
	root := s.stageRoot(files[0])
	for _, name := range files {
		errs = append(errs, unlink(filepath.Join(root, name)))
	}
	s.use.end()
	s.unlinked = true
	_ = os.Remove(root) // fails while another process stages in it
	return errors.Join(errs...)
}
