package shard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"halognn/src/base/flock"
	"halognn/src/base/mem"
	"halognn/src/base/npy"
)

// stageRoot returns the directory to which a file is copied before it is mapped. It returns "" if
// the file is mapped where it lies.
func (s *Shards) stageRoot(name string) string {
	root := s.options.Stage
	if s.toShared(name) {
		root = s.options.SharedMemory
	}
	if root == "" {
		return ""
	}
	return s.within(root)
}

// toShared reports whether a file is copied to shared memory.
func (s *Shards) toShared(name string) bool {
	return s.options.CopyTopology && slices.Contains(s.topologyFiles(), name)
}

// within returns the directory for copies of these parts. It lies below the directory shared, where
// copies of other parts may lie too.
func (s *Shards) within(shared string) string {
	return filepath.Join(shared, ofUser()+s.identity)
}

// ofUser returns the text with which the names of this user's directories of copies begin.
func ofUser() string { return fmt.Sprintf("halognn-%d-", os.Getuid()) }

// path returns the path from which a file is read. That is its copy in Options.Stage, if the copy
// existed when the file was mapped (somebody may have removed it since), or the file itself. A copy
// in shared memory has already lost its name, and a windowed file is never copied.
func (s *Shards) path(name string) string {
	if root := s.stageRoot(name); root != "" && !s.windowed(name) {
		copied := filepath.Join(root, name)
		s.copying.Lock()
		defer s.copying.Unlock()
		if exists(copied) || root == s.within(s.options.Stage) && slices.Contains(s.staged, name) {
			return copied
		}
	}
	return filepath.Join(s.Dir, name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// stage maps the copy of a file in root. It makes the copy if it is missing or, with
// Options.Verify, damaged. If several processes of a node call it at once, a lock lets one of them
// copy while the others wait. It maps the copy before it releases the lock, so that UnlinkShared
// cannot remove the copy before it is mapped.
func (s *Shards) stage(root, name string) (*npy.File, error) {
	path := filepath.Join(root, name)
	if s.options.Waiting != nil {
		s.options.Waiting(true)
		defer s.options.Waiting(false)
	}
	unlock, err := s.claim(root, path)
	for range claimTries {
		// another process may remove the directory meanwhile; MkdirAll then returns ErrExist
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			break
		}
		unlock, err = s.claim(root, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, s.elsewhere(root, "that this user may write"))
	}
	defer unlock()
	if s.toShared(name) {
		s.use.note(name)
	}
	want := s.Files[name]
	if info, err := os.Stat(path); err != nil || info.Size() != want.Bytes || !s.sound(path, want) {
		removePieces(path)
		s.noteCopy(path)
		if err := copyFile(filepath.Join(s.Dir, name), path, want); err != nil {
			if errors.Is(err, errCopying) {
				err = fmt.Errorf("%w; the copy takes %d bytes there: %s", err, want.Bytes,
					s.elsewhere(root, "with more room"))
			}
			return nil, err
		}
		noteSound(path)
	}
	s.copying.Lock()
	s.staged = append(s.staged, name)
	s.copying.Unlock()
	return npy.Open(path)
}

// sound reports whether an existing copy has the right hash. Without Options.Verify it compares
// nothing and returns true. One process of the node reads the copy. The others wait for the lock,
// and then find the result in the lock file.
func (s *Shards) sound(path string, want npy.Info) bool {
	if !s.options.Verify {
		return true
	}
	if text, err := mem.ReadFile(path + ".lock"); err == nil {
		boot, at, _ := strings.Cut(string(text), "\n")
		when, err := strconv.ParseInt(at, 10, 64)
		if err == nil && when >= begun && boot != "" && boot == flock.ThisProcess().Space {
			return true
		}
	}
	sum, err := npy.Hash(path)
	if err != nil || sum != want.XXH64 {
		return false
	}
	noteSound(path)
	return true
}

// begun is when this process began. It is measured by a clock that all processes of the node share
// and that nobody sets, so it is neither the wall clock nor the clock of a file server.
var begun = sinceBoot()

func sinceBoot() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every kernel has this clock
	return t.Nano()
}

// noteSound writes into the lock file of a copy that the copy has the right hash now. The caller
// must hold the lock.
func noteSound(path string) {
	note := fmt.Sprintf("%s\n%d", flock.ThisProcess().Space, sinceBoot())
	// if the note cannot be written, the copy is read once more
	_ = os.WriteFile(path+".lock", []byte(note), 0o600)
}

// removePieces removes unfinished copies of the file at path that killed processes of this node
// left. The caller must hold the lock of path. It keeps unfinished copies of other nodes: if the
// directory is not local, this node may not see their locks.
func removePieces(path string) {
	host := pieceHost()
	pieces, _ := os.ReadDir(filepath.Dir(path))
	for _, piece := range pieces {
		rest, is := strings.CutPrefix(piece.Name(), filepath.Base(path)+pieceMark)
		if _, of, found := strings.Cut(rest, "@"); is && found && of == host {
			_ = os.Remove(filepath.Join(filepath.Dir(path), piece.Name()))
		}
	}
}

// An unfinished copy has the name of the copy, followed by pieceMark, a number, @ and pieceHost.
const pieceMark = ".tmp-"

func pieceHost() string { return flock.ThisProcess().Host }

// elsewhere returns advice for the case that the directory root cannot be used: how to do without
// it, or what other directory to choose.
func (s *Shards) elsewhere(root, which string) string {
	if root != s.within(s.options.Stage) {
		return "set topology.load to map"
	}
	return "set run.stage_dir to a directory " + which + ", or leave it empty"
}

// claimTries is how many times claim is tried, because UnlinkShared of other processes may remove
// the directory in the meantime.
const claimTries = 1000

// claim makes the directories above path and takes the lock of path.
func (s *Shards) claim(root, path string) (unlock func(), err error) {
	if err := forAll(s.options.Stage); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := ownedByUs(root); err != nil {
		return nil, err
	}
	return lock(path)
}

// forAll makes a directory in which each user has a directory of their own, if it is missing. It is
// open to all users if the directory above it is, like /tmp; otherwise it gets the permissions that
// the umask leaves. forAll returns an error if any user may rename the directory of another user
// there.
func forAll(dir string) error {
	if dir == "" {
		return nil
	}
	if info, err := os.Stat(dir); err == nil {
		if mode := info.Mode(); mode&0o002 != 0 && mode&fs.ModeSticky == 0 {
			return fmt.Errorf("any user may rename what is in %s: give it the sticky bit (chmod "+
				"+t), or choose a directory of your own", dir)
		}
		return nil
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	info, err := os.Stat(parent)
	if err != nil {
		return err
	}
	if mode := info.Mode(); mode&0o002 != 0 && mode&fs.ModeSticky != 0 &&
		makeSticky(parent, dir) == nil {
		return nil
	}
	if err := os.Mkdir(dir, 0o777); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // another process was faster
}

// makeSticky makes a directory with the permissions of /tmp. It sets them before the directory gets
// its name, so nobody sees it with other permissions.
func makeSticky(parent, dir string) error {
	tmp, err := os.MkdirTemp(parent, filepath.Base(dir)+pieceMark)
	if err != nil {
		return err
	}
	if err = os.Chmod(tmp, 0o777|fs.ModeSticky); err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
}

// ownedByUs returns an error if another user has put a directory of this name into a shared place.
func ownedByUs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok ||
		int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to another user; ask that user to remove it", dir)
	}
	return nil
}

// lock waits for the lock beside path and returns the function that releases it.
func lock(path string) (unlock func(), err error) { return flock.Lock(path+".lock", 0o600) }

var errCopying = errors.New("copying")

// copyFile copies src to dst under a temporary name and checks the hash on the way.
func copyFile(src, dst string, want npy.Info) error {
	in, err := mem.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(dst), filepath.Base(dst)+pieceMark+"*@"+pieceHost())
	if err != nil {
		return fmt.Errorf("%w %s to %s: %w", errCopying, src, filepath.Dir(dst), err)
	}
	defer os.Remove(out.Name()) // does nothing after the rename
	sum := xxhash.New()
	_, err = io.CopyBuffer(io.MultiWriter(out, sum), struct{ io.Reader }{in}, make([]byte, 4<<20))
	// synced, so that a crash of the node leaves no incomplete copy with the final name
	if err == nil {
		err = out.Sync()
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("%w %s to %s: %w", errCopying, src, filepath.Dir(dst), err)
	}
	if got := fmt.Sprintf("%016x", sum.Sum64()); got != want.XXH64 {
		return altered(src, got, want.XXH64, ofOriginal)
	}
	return os.Rename(out.Name(), dst)
}

// Advice about a damaged file.
const (
	ofOriginal = "restore the file or partition again"
	ofCopy     = "this copy in run.stage_dir is removed: start again, and it is made anew"
)

// cure says what to do about the damaged file at path. If it is a copy, it removes the copy.
func (s *Shards) cure(path string) string {
	if s.options.Stage == "" || !strings.HasPrefix(path, s.within(s.options.Stage)) {
		return ofOriginal
	}
	if err := unlink(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("remove this copy in run.stage_dir (%v) and start again", err)
	}
	return ofCopy
}

// noteCopy records that this process makes the copy at path.
func (s *Shards) noteCopy(path string) {
	s.copying.Lock()
	defer s.copying.Unlock()
	s.copies = append(s.copies, path)
}

// Discard removes the names of the copies that this process made, also in Options.Stage. A job
// calls Discard if it ends before it could use the copies. Copies that were there before the job
// stay. Any rank that has opened the shards may call it; mappings stay valid.
func (s *Shards) Discard() error {
	s.copying.Lock()
	copies := s.copies
	s.copies = nil
	s.copying.Unlock()
	var errs []error
	if !s.unlinked { // only once, because later the names may belong to another job
		errs = append(errs, s.UnlinkShared())
	}
	for _, path := range copies {
		errs = append(errs, unlink(path))
		// this removal, and the next one, fails while the directory holds other copies
		_ = os.Remove(filepath.Dir(path))
	}
	if s.options.Stage != "" {
		_ = os.Remove(s.within(s.options.Stage))
	}
	return errors.Join(errs...)
}

// unlink removes a copy and its lock, but waits while another process makes the copy.
func unlink(path string) error {
	unlock, err := lock(path)
	if errors.Is(err, fs.ErrNotExist) { // another process was faster
		return nil
	} else if err != nil {
		return err
	}
	defer unlock()
	return removeCopy(path)
}

// removeCopy removes a copy, its unfinished pieces and its lock. The caller must hold the lock.
func removeCopy(path string) error {
	removePieces(path)
	var errs []error
	for _, p := range []string{path, path + ".lock"} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
