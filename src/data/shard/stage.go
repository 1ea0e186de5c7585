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

// stageRoot returns the directory that a file is copied to before it is mapped, or "".
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

// within returns the directory of copies of these parts below a shared one.
func (s *Shards) within(shared string) string {
	return filepath.Join(shared, ofUser()+s.identity)
}

// ofUser begins the names of this user's directories of copies.
func ofUser() string { return fmt.Sprintf("halognn-%d-", os.Getuid()) }

// path returns the path at which a file is read: its copy in Options.Stage, if there was one when
// it was mapped (somebody may have removed it since), or the file itself. A copy in shared memory
// has already lost its name, and a windowed file is never a copy.
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

// stage maps the copy of a file in root, and makes the copy if it is missing or, by Options.Verify,
// damaged. If several processes of a node do so at once, a lock lets one copy while the others
// wait. It maps under the lock too, so that UnlinkShared cannot remove the copy in between.
func (s *Shards) stage(root, name string) (*npy.File, error) {
	path := filepath.Join(root, name)
	if s.options.Waiting != nil {
		s.options.Waiting(true)
		defer s.options.Waiting(false)
	}
	unlock, err := s.claim(root, path)
	for range claimTries {
		// MkdirAll returns ErrExist if the directory is removed in the meantime
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
				err = fmt.Errorf("%w; it takes %d bytes there: %s", err, want.Bytes,
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

// sound reports whether an existing copy has the right hash, if Options.Verify asks. One process of
// the node reads the copy; the others, which wait for its lock, find the result in the lock file.
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

// begun is when this process began, by a clock that all processes of the node share and nobody
// sets: not the wall clock, nor that of a file server.
var begun = sinceBoot()

func sinceBoot() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every kernel has it
	return t.Nano()
}

// noteSound writes into the lock file of a copy that it has the right hash now. This process holds
// the lock.
func noteSound(path string) {
	note := fmt.Sprintf("%s\n%d", flock.ThisProcess().Space, sinceBoot())
	// without the note the copy is read once more
	_ = os.WriteFile(path+".lock", []byte(note), 0o600)
}

// removePieces removes unfinished copies of path that killed processes of this node left; this
// process holds the lock of path. It keeps those of other nodes: if the directory is not local,
// their locks may not be seen here.
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

// The name of an unfinished copy is that of the copy, pieceMark, a number, @ and pieceHost.
const pieceMark = ".tmp-"

func pieceHost() string { return flock.ThisProcess().Host }

// elsewhere says how to do without root, or which other directory to choose.
func (s *Shards) elsewhere(root, which string) string {
	if root != s.within(s.options.Stage) {
		return "set topology.load to map"
	}
	return "set run.stage_dir to a directory " + which + ", or leave it empty"
}

// claimTries bounds how often the UnlinkShared of other processes may remove the directory during
// claim.
const claimTries = 1000

// claim makes the directories of path and takes its lock.
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

// forAll makes the directory in which users have directories of their own, if it is missing: open
// to all users if its parent is, as /tmp, and otherwise as the umask says. It refuses one in which
// any user may rename another's directory.
func forAll(dir string) error {
	if dir == "" {
		return nil
	}
	if info, err := os.Stat(dir); err == nil {
		if mode := info.Mode(); mode&0o002 != 0 && mode&fs.ModeSticky == 0 {
			return fmt.Errorf("%s: any user may rename what is in it: chmod +t it, or take a "+
				"directory of your own", dir)
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

// makeSticky makes a directory with the mode of /tmp. It sets the mode before the name, so nobody
// sees it with another mode.
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

// ownedByUs rejects a directory of our name that another user put into a shared place.
func ownedByUs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok ||
		int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to another user; remove it", dir)
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
	defer os.Remove(out.Name()) // has no effect after the rename
	sum := xxhash.New()
	_, err = io.CopyBuffer(io.MultiWriter(out, sum), struct{ io.Reader }{in}, make([]byte, 4<<20))
	if err == nil { // a node that crashes leaves no copy with holes under the name
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

// cure returns what to do about the damaged file at path. It removes one that is a copy.
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

// Discard removes the names of the copies that this process made, in Options.Stage too: for a job
// that ends before it could use them. Copies that were there before stay. Any rank that has opened
// may call it; mappings stay valid.
func (s *Shards) Discard() error {
	s.copying.Lock()
	copies := s.copies
	s.copies = nil
	s.copying.Unlock()
	var errs []error
	if !s.unlinked { // only once: later the names may belong to another job
		errs = append(errs, s.UnlinkShared())
	}
	for _, path := range copies {
		errs = append(errs, unlink(path))
		// fails while it holds other copies; so does the next call
		_ = os.Remove(filepath.Dir(path))
	}
	if s.options.Stage != "" {
		_ = os.Remove(s.within(s.options.Stage))
	}
	return errors.Join(errs...)
}

// unlink removes a copy and its lock, once nobody is making it.
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

// removeCopy removes a copy, pieces of it and its lock, which the caller has.
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
