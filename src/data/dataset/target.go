package dataset

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"halognn/src/base/flock"
	"halognn/src/base/mem"
	"halognn/src/base/npy"
)

// RankingsDir is the directory of PARTS that `halognn analyze` writes.
const RankingsDir = "analysis"

// begun lists the temporary directories of this process that have not been renamed yet.
var begun struct {
	sync.Mutex
	dirs  []string
	locks map[string]func() // functions that release the locks of MakeBeside
}

// Begin makes a temporary directory beside dir, which must be a Target. Finish or Discard ends it.
func Begin(dir string) (tmp string, err error) {
	if err := Target(dir); err != nil {
		return "", err
	}
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", err
	}
	begun.Lock()
	defer begun.Unlock()
	tmp, unlock, err := MakeBeside(dir)
	if err != nil {
		return "", err
	}
	begun.dirs = append(begun.dirs, tmp)
	if begun.locks == nil {
		begun.locks = make(map[string]func())
	}
	begun.locks[tmp] = unlock
	return tmp, nil
}

// aliveFile, in a temporary directory, names the process that writes there. That process holds its
// lock. The file gets this name only when it is written and locked.
const aliveFile = ".alive"

// MakeBeside makes a temporary directory beside path, with the mode that the umask says, and
// removes those that dead processes of this node left there. Call finished before it is renamed: it
// releases the lock.
func MakeBeside(path string) (tmp string, finished func(), err error) {
	removeDead(path)
	for {
		tmp = fmt.Sprintf("%s.tmp-%08x", path, rand.Uint32())
		if err = os.Mkdir(tmp, 0o777); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", nil, err
	}
	return tmp, markAlive(tmp), nil
}

// markAlive makes the aliveFile of dir. On a filesystem without locks it makes none, and only this
// process ever removes dir.
func markAlive(dir string) (finished func()) {
	alive := filepath.Join(dir, aliveFile)
	begins := alive + "-begins" // nobody else looks at this name
	unlock, err := flock.Try(begins, true)
	if err != nil {
		_ = os.Remove(begins)
		return func() {}
	}
	who, err := json.Marshal(flock.ThisProcess())
	if err == nil {
		err = os.WriteFile(begins, who, 0o666)
	}
	if err == nil {
		err = os.Rename(begins, alive)
	}
	if err != nil {
		_ = os.Remove(begins)
	}
	return func() { _ = os.Remove(alive); unlock() }
}

// temporary matches what MakeBeside and DiscardAll add to the name of a target.
var temporary = regexp.MustCompile(`^(\.new-[0-9]+|\.kaminpar)?\.tmp-[0-9a-f]{8}(-discarded)?$`)

// replacing matches the end of names that Beside returns.
var replacing = regexp.MustCompile(`\.new-[0-9]+$`)

// removeDead removes temporary directories beside path if their processes were of this node and are
// dead: their lock is free, which alone may say nothing about another node, and no process here has
// their number. It notes directories about which this node cannot tell.
func removeDead(path string) {
	name := replacing.ReplaceAllString(filepath.Base(path), "")
	entries, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), name)
		if !ours || !e.IsDir() || !temporary.MatchString(rest) {
			continue
		}
		piece := filepath.Join(filepath.Dir(path), e.Name())
		text, err := mem.ReadFile(filepath.Join(piece, aliveFile))
		var who flock.Process
		if err == nil {
			err = json.Unmarshal(text, &who)
		}
		alive, known := who.Lives()
		known = known && err == nil && who.Host == flock.ThisProcess().Host
		if known && !alive {
			if unlock, err := flock.Try(filepath.Join(piece, aliveFile), false); err == nil {
				unlock() // at once: NFS keeps an open file under another name
				_ = os.RemoveAll(piece)
			}
		} else if !known {
			by := "an unknown process"
			if who.Host != "" {
				by = fmt.Sprintf("process %d of %s", who.PID, who.Host)
			}
			slog.Info(fmt.Sprintf("%s is an unfinished directory of %s, which may be at work: "+
				"remove it if no job writes there", piece, by), "rank", 0)
		}
	}
}

// Join takes part in writing to a temporary directory that another process begins and ends. In the
// meantime DiscardAll removes it too, because the other process may have been killed.
func Join(tmp string) (leave func(), err error) {
	if _, err := os.Stat(tmp); err != nil {
		return func() {}, fmt.Errorf("%w, though rank 0 has made it; write to a place where all "+
			"ranks see the same files", err)
	}
	begun.Lock()
	defer begun.Unlock()
	begun.dirs = append(begun.dirs, tmp)
	return func() {
		begun.Lock()
		defer begun.Unlock()
		forget(tmp)
	}, nil
}

// Finish renames the temporary directory into place.
func Finish(tmp, dir string) error {
	if err := Target(dir); err != nil {
		return err
	}
	begun.Lock()
	defer begun.Unlock()
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty directory
		return err
	}
	release(tmp)
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	forget(tmp)
	return nil
}

// release releases the lock of a temporary directory.
func release(tmp string) {
	if finished := begun.locks[tmp]; finished != nil {
		finished()
		delete(begun.locks, tmp)
	}
}

// Discard removes the temporary directory; after Finish it does nothing.
func Discard(tmp string) {
	begun.Lock()
	defer begun.Unlock()
	_ = os.RemoveAll(tmp)
	release(tmp)
	_ = os.RemoveAll(tmp) // removes what NFS kept of the open aliveFile
	forget(tmp)
}

// Replace replaces dir by the directory made, whose path Beside returned, and then removes the old
// dir, which must still be one that Beside accepts.
func Replace(made, dir string) error {
	if err := replaceable(dir); err != nil {
		return fmt.Errorf("%w; the new one is at %s", err, made)
	}
	// One step, so that a process that is killed leaves the old directory or the new one at dir.
	err := unix.Renameat2(unix.AT_FDCWD, made, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if err == nil {
		if err = os.RemoveAll(made); err != nil {
			err = fmt.Errorf("%s is replaced, but the old one is left at %s: %w; remove it", dir,
				made, err)
		}
		return err
	}
	// Some filesystems cannot exchange names. Then dir is absent for a moment, with the old one
	// beside it.
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

// Beside returns an unused path for a directory that will replace the dataset at dir or, if parts
// is set, the parts. It is an error if dir is anything else, or if it holds files that the user has
// put there.
func Beside(dir string, parts bool) (string, error) {
	if err := replaceable(dir); err != nil {
		return "", err
	}
	if _, has := filesOf(dir); has != parts {
		what := map[bool]string{false: "a dataset", true: "parts"}
		return "", fmt.Errorf("%s: %w and holds %s, not %s; remove it or choose another one", dir,
			ErrExists, what[has], what[parts])
	}
	return fmt.Sprintf("%s.new-%d", filepath.Clean(dir), os.Getpid()), nil
}

// replaceable returns an error that wraps ErrExists unless dir is a dataset or parts, is not a
// symbolic link, and holds nothing else.
func replaceable(dir string) error {
	if err := noLink(dir); err != nil {
		return err
	}
	files, _ := filesOf(dir)
	if files == nil {
		return fmt.Errorf("%s: %w and is no dataset and no parts, so it is not replaced; "+
			"remove it or choose another one", dir, ErrExists)
	}
	if err := mayRename(dir); err != nil {
		return err
	}
	var foreign []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = unix.Access(filepath.Join(dir, name), unix.W_OK|unix.X_OK)
		}
		switch {
		case err != nil:
			return fmt.Errorf("%s cannot be replaced: %s: %w; let its owner make it writable for "+
				"the group (chmod -R g+w), or choose another directory", dir,
				filepath.Join(dir, name), err)
		case name == RankingsDir && e.IsDir(): // made from these parts
			return fs.SkipDir
		case !e.IsDir() && name != metaFile && files[name] == nil:
			foreign = append(foreign, name)
		}
		return nil
	})
	if err == nil && len(foreign) > 0 {
		list := strings.Join(foreign[:min(len(foreign), 5)], ", ")
		if more := len(foreign) - 5; more > 0 {
			list += fmt.Sprintf(" and %d more", more)
		}
		err = fmt.Errorf("%s: %w and holds files that are not of the dataset or parts (%s); move "+
			"them elsewhere or choose another directory", dir, ErrExists, list)
	}
	return err
}

// mayRename returns an error unless this user may give dir another name.
func mayRename(dir string) error {
	var above, it unix.Stat_t
	parent, me := filepath.Dir(filepath.Clean(dir)), os.Geteuid()
	err := cmp.Or(unix.Access(parent, unix.W_OK|unix.X_OK), unix.Stat(parent, &above),
		unix.Stat(dir, &it))
	if err == nil && above.Mode&unix.S_ISVTX != 0 && me != 0 && me != int(it.Uid) &&
		me != int(above.Uid) {
		err = unix.EPERM
	}
	if err != nil {
		return fmt.Errorf("%s cannot be replaced: %w; let its owner do so, or choose another "+
			"directory", dir, err)
	}
	return nil
}

// filesOf returns the files that a DATASET or PARTS directory lists, and whether it is PARTS; nil
// if it is neither.
func filesOf(dir string) (files map[string]*npy.Info, parts bool) {
	text, err := mem.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return nil, false
	}
	var m struct {
		Format, Parts int
		Task          string
		Files         map[string]*npy.Info
	}
	if json.Unmarshal(text, &m) != nil || m.Format == 0 || m.Task == "" {
		return nil, false
	}
	return m.Files, m.Parts > 0
}

// Target returns an error unless a directory can be renamed to dir without replacing anything: dir
// must be Vacant, not a symbolic link, have a name, and not lie inside a dataset or parts.
func Target(dir string) error {
	return cmp.Or(Vacant(dir), noLink(dir), named(dir), Apart(dir))
}

func named(dir string) error {
	if name := filepath.Base(filepath.Clean(dir)); name != "." && name != ".." {
		return nil
	}
	return fmt.Errorf("%q names no new directory; give the name that the finished directory "+
		"is to have", dir)
}

func noLink(dir string) error {
	to, err := os.Readlink(filepath.Clean(dir))
	if err != nil { // dir is not a link
		return nil
	}
	return fmt.Errorf("%s: %w and is a symbolic link, which would be lost; give the directory "+
		"that it points to (%s) or choose another one", dir, ErrExists, to)
}

// Apart returns an error if out, a file or directory to write, is one of the inputs or a directory
// above one, or if it lies inside a dataset or parts; links are followed. Inputs that do not exist
// do not count.
func Apart(out string, inputs ...string) error {
	if made, err := os.Stat(out); err == nil {
		for _, in := range inputs {
			at, err := filepath.EvalSymlinks(in)
			if in == "" || err != nil {
				continue
			}
			for at, err = filepath.Abs(at); err == nil; at = filepath.Dir(at) {
				if info, err := os.Stat(at); err == nil && os.SameFile(info, made) {
					return fmt.Errorf("%s is the input %s or holds it; choose another place to "+
						"write to", out, in)
				}
				if at == filepath.Dir(at) {
					break
				}
			}
		}
	}
	at, err := filepath.Abs(out)
	for err == nil && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		if whole, err := filepath.EvalSymlinks(at); err == nil {
			at = whole
		}
		if files, _ := filesOf(at); files != nil {
			return fmt.Errorf("%s lies inside %s, a dataset or parts, which hold nothing else; "+
				"choose another place to write to", out, at)
		}
	}
	return err
}

func forget(tmp string) {
	begun.dirs = slices.DeleteFunc(begun.dirs, func(d string) bool { return d == tmp })
}

// DiscardAll removes all temporary directories of a process that is about to end. From then on
// Begin, Finish and Discard block, so that goroutines whose files are gone report no further
// errors.
func DiscardAll() { discarding.Do(discardAll) }

var discarding sync.Once

func discardAll() {
	begun.Lock()
	for _, tmp := range begun.dirs {
		// once renamed, other goroutines and ranks create no more files in it
		gone := tmp + "-discarded"
		// if another rank renamed it first, that rank may be killed as soon as this one ends, so
		// both remove
		if err := os.Rename(tmp, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
			gone = tmp
		}
		_ = os.RemoveAll(gone)
		release(tmp)
		_ = os.RemoveAll(gone) // see Discard
	}
}
