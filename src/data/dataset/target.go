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

// begun lists the temporary directories of this process that were not yet renamed or removed.
var begun struct {
	sync.Mutex
	dirs  []string
	locks map[string]func() // functions that release the locks of MakeBeside
}

// Begin makes a temporary directory beside dir, which must satisfy Target. The caller ends it by
// Finish or Discard.
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

// aliveFile is a file in a temporary directory. It names the process that writes there, and that
// process holds a lock on the file. The file gets its name only after it is written and locked.
const aliveFile = ".alive"

// MakeBeside makes a temporary directory in the same directory as path, with the permissions that
// the umask leaves. It removes the temporary directories that dead processes of this node left
// there. Before the caller renames the new directory, it must call the returned function finished,
// which releases the lock on the directory.
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

// markAlive makes the aliveFile in dir. On a filesystem without locks it makes none; then only this
// process ever removes dir.
func markAlive(dir string) (finished func()) {
	alive := filepath.Join(dir, aliveFile)
	begins := alive + "-begins" // no other process looks at this name
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

// temporary matches what MakeBeside and DiscardAll append to the name of a target.
var temporary = regexp.MustCompile(`^(\.new-[0-9]+|\.kaminpar)?\.tmp-[0-9a-f]{8}(-discarded)?$`)

// replacing matches the end of the names that Beside returns.
var replacing = regexp.MustCompile(`\.new-[0-9]+$`)

// removeDead removes temporary directories beside path that dead processes of this node left. A
// process is dead if its number is not in use on this node and the lock on its aliveFile is free. A
// free lock alone does not show it, because this node may not see a lock that another node holds.
// If removeDead cannot find out whether a process lives, because it may run elsewhere, it tells the
// user about the directory.
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
				unlock() // before the removal, because NFS keeps an open file under another name
				_ = os.RemoveAll(piece)
			}
		} else if !known {
			by := "an unknown process"
			if who.Host != "" {
				by = fmt.Sprintf("process %d of %s", who.PID, who.Host)
			}
			slog.Info(fmt.Sprintf("%s was left unfinished by %s, which may still be at work; "+
				"remove the directory if no job writes there", piece, by), "rank", 0)
		}
	}
}

// Join takes part in writing to a temporary directory that another process makes and later renames
// or removes. Until the caller calls the function `leave`, DiscardAll removes the directory in this
// process too, because the other process may have been killed.
func Join(tmp string) (leave func(), err error) {
	if _, err := os.Stat(tmp); err != nil {
		return func() {}, fmt.Errorf("%w, although rank 0 has made it; write to a directory that "+
			"all ranks see", err)
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

// Finish gives a temporary directory its final name.
func Finish(tmp, dir string) error {
	if err := Target(dir); err != nil {
		return err
	}
	begun.Lock()
	defer begun.Unlock()
	// dir may be an empty directory
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
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

// Discard removes a temporary directory. After Finish it does nothing.
func Discard(tmp string) {
	begun.Lock()
	defer begun.Unlock()
	_ = os.RemoveAll(tmp)
	release(tmp)
	_ = os.RemoveAll(tmp) // once more, because NFS kept the open aliveFile under another name
	forget(tmp)
}

// Replace puts the directory newDir, whose path Beside returned, in the place of dir. Then it
// removes the old directory. The argument `dir` must be a directory that Beside would accept now.
func Replace(newDir, dir string) error {
	if err := replaceable(dir); err != nil {
		return fmt.Errorf("%w; the new directory is at %s", err, newDir)
	}
	// The exchange is one step, so a process that is killed leaves either the old or the new
	// directory at dir.
	err := unix.Renameat2(unix.AT_FDCWD, newDir, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if err == nil {
		if err = os.RemoveAll(newDir); err != nil {
			err = fmt.Errorf("%s is replaced, but the old directory is left at %s: %w; remove it",
				dir,
				newDir, err)
		}
		return err
	}
	// Some filesystems cannot exchange two names. Then dir does not exist for a moment, and the old
	// directory lies beside it.
	old, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), filepath.Base(dir)+".old-")
	if err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(old, "it")); err != nil {
		return errors.Join(err, os.Remove(old))
	}
	if err := os.Rename(newDir, dir); err != nil {
		return errors.Join(err, os.Rename(filepath.Join(old, "it"), dir), os.Remove(old))
	}
	return os.RemoveAll(old)
}

// Beside returns an unused path for a directory that will replace the dataset at dir or, if parts
// is set, the parts at dir. It returns an error if dir holds anything else, such as files of the
// user.
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

// replaceable returns an error unless dir is a dataset or parts, holds nothing else, and is not a
// symbolic link. The error wraps ErrExists.
func replaceable(dir string) error {
	if err := noLink(dir); err != nil {
		return err
	}
	files, _ := filesOf(dir)
	if files == nil {
		return fmt.Errorf("%s: %w but is no dataset and no parts, so it is not replaced; remove "+
			"it or choose another directory", dir, ErrExists)
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
		case name == RankingsDir && e.IsDir(): // made from the parts that are replaced
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

// mayRename returns an error if this user may not rename dir.
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

// filesOf returns the files that the meta.json of a DATASET or PARTS directory lists, and whether
// the directory is PARTS. The result files is nil if it is neither.
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

// Target returns an error unless dir can be the final name of a new directory: dir must satisfy
// Vacant, must not be a symbolic link, must have a name, and must not lie inside a dataset or
// parts.
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

// Apart returns an error if out, a file or directory that is to be written, is one of the inputs,
// contains one of the inputs, or lies inside a dataset or parts. It follows links, and ignores
// inputs that do not exist.
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
			return fmt.Errorf("%s lies inside %s, which is a dataset or parts and may hold "+
				"nothing else; choose another place to write to", out, at)
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
		// Other goroutines and ranks cannot create files in a directory that has another name.
		gone := tmp + "-discarded"
		// Another rank may rename the directory first, but be killed as soon as this rank ends. So
		// this rank removes the directory under its new name in that case too.
		if err := os.Rename(tmp, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
			gone = tmp
		}
		_ = os.RemoveAll(gone)
		release(tmp)
		_ = os.RemoveAll(gone) // once more, because NFS kept the open aliveFile under another name
	}
}
