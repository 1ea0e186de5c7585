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

// inUse is a mark: a file beside copies in shared memory that lists the names of the copies. A
// process locks its mark before it makes or maps copies, and keeps the lock until UnlinkShared. The
// mark is needed because a killed job frees no shared memory, which is then lost to all jobs of the
// node. Nobody locks the mark of a killed job, so the next job that copies to shared memory removes
// the copies that this mark lists.
type inUse struct {
	writing sync.Mutex
	path    string
	unlock  func()
}

const useMark = "use-"

// useShared marks root, the directory for copies of these parts, as in use. It returns nil if root
// cannot be marked; a later attempt to copy a file there fails and gives the reason. In the
// directories beside root, useShared removes the copies that killed jobs of this user left. It may
// also remove the name of a copy of a living job that has not marked its directory yet. Each rank
// of that job then makes a copy of its own.
func useShared(root string) *inUse {
	for range claimTries { // another process may remove the directory while it is empty
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

// note adds the name of a copy to the mark. It ignores errors, because if the mark cannot be
// written, the copy cannot be written either.
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

// end removes the mark, because the process no longer uses the directory.
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

// removeUnused removes the marks in dir that nobody locks, and the copies that these marks list. It
// keeps the copies if another mark in dir is locked. It never waits.
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
			used = true // a living job with the same parts uses the copies, and will remove them
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
			continue // another process makes this copy now
		}
		_ = removeCopy(path)
		unlock()
	}
	_ = os.Remove(dir) // fails if another process makes copies there, or keeps some
}

// UnlinkShared removes the names of the topology's copies in shared memory (CopyTopology). Mappings
// stay valid, and the memory is freed when the last process ends, in whatever way it ends. Call it
// when all ranks of the node have opened the shards: a rank that opens later makes its own copy.
// Any number of processes may call it.
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
	_ = os.Remove(root) // fails while another process makes copies there
	return errors.Join(errs...)
}
