package rundir

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cespare/xxhash/v2"
	"github.com/google/renameio/v2"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/npy"
)

// A checkpoint is a directory:
//
//	RUN/checkpoints/step-00000120/        after 120 updates
//	RUN/checkpoints/step-00000240-end/    at the end of training, evaluated
//	    model.safetensors                 weights
//	    optimizer.safetensors             moments, as m.NAME and v.NAME, or momentum.NAME
//	    best.safetensors                  weights of the best validation so far, if there was one
//	    learned-0003.safetensors          learned rows of a part and their moments, by its owner
//	    state.json                        everything else, and size and XXH64 of the other files
//
// A checkpoint is written under a name that begins with a dot, synced, and renamed. So a directory
// that has its final name is complete. The caller chooses the files, and what state.json says,
// except for three keys that every state.json has: "format" (CheckpointFormat), "version" (the
// program's version) and "files" (FileSums).
const (
	CheckpointFormat = 1 // version of the format of state.json and of the files that it describes

	StateFile     = "state.json"
	OptimizerFile = "optimizer.safetensors"
	BestFile      = "best.safetensors"

	stepPrefix    = "step-"
	endSuffix     = "-end"
	scrapPrefix   = "."        // prefix of checkpoints that are being written or deleted
	damagedPrefix = "damaged-" // prefix of damaged checkpoints, which a restart sets aside
)

// Checkpoint is a checkpoint that was read into memory, and what the search for it found. Its
// fields are exported so that it can be sent to other processes.
type Checkpoint struct {
	Path     string            // path of the checkpoint; empty if the run has none
	State    []byte            // compact JSON
	Files    map[string][]byte // contents of the files by name, without state.json and learned rows
	Damaged  []string          // newer checkpoints that are damaged, each with the reason
	Finished bool              // the run has a summary, so it has finished
}

// File is a file to write into a checkpoint: its name, and the function that writes its content.
type File struct {
	Name  string
	Write func(io.Writer) error
}

// FileSum is what state.json holds about another file of the checkpoint: its size and its hash.
type FileSum struct {
	Bytes int64  `json:"bytes"`
	XXH64 string `json:"xxh64"`
}

// FileSums holds the FileSum of each file of a checkpoint except state.json, by file name.
type FileSums map[string]FileSum

// sealed is the content of state.json: the state, and the XXH64 of its compact JSON.
type sealed struct {
	XXH64 string          `json:"xxh64"`
	State json.RawMessage `json:"state"`
}

// CheckpointPath returns the path of the checkpoint that a run writes after the given number of
// updates. At the end of training, `end` is true.
func CheckpointPath(run string, updates int, end bool) string {
	name := fmt.Sprintf("%s%08d", stepPrefix, updates)
	if end {
		name += endSuffix
	}
	return filepath.Join(run, CheckpointsDir, name)
}

// CompareAge orders paths or names of checkpoints from old to new: by the number of updates, and
// the end of training last. The order of the texts would be wrong from update 100,000,000 on. Names
// of other files come first.
func CompareAge(a, b string) int {
	a, b = filepath.Base(a), filepath.Base(b)
	return cmp.Or(cmp.Compare(updatesOf(a), updatesOf(b)), strings.Compare(a, b))
}

func updatesOf(name string) int {
	digits, _ := strings.CutSuffix(strings.TrimPrefix(name, stepPrefix), endSuffix)
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

func scrapOf(path string) string {
	dir, name := filepath.Split(path)
	return filepath.Join(dir, scrapPrefix+name)
}

// BeginCheckpoint makes the directory for a checkpoint. WriteInto and CompleteCheckpoint then fill
// it.
func BeginCheckpoint(path string) error {
	tmp := scrapOf(path)
	return errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o777))
}

// WriteInto writes files into a checkpoint that has begun, and returns their FileSums. Any process
// that sees the directory may call it.
func WriteInto(path string, files []File) (sums FileSums, err error) {
	sums = FileSums{}
	for _, f := range files {
		if sums[f.Name], err = writeSummed(filepath.Join(scrapOf(path), f.Name),
			f.Write); err != nil {
			return sums, fmt.Errorf("writing checkpoint %s: %w", path, err)
		}
	}
	return sums, nil
}

// WriteCheckpoint makes the directory at path, completely or not at all. It writes the files, then
// state.json. The function state returns the content of state.json, given the FileSums.
func WriteCheckpoint(path string, files []File, state func(FileSums) any) error {
	if err := BeginCheckpoint(path); err != nil {
		return fmt.Errorf("writing checkpoint %s: %w", path, err)
	}
	return CompleteCheckpoint(path, files, nil, state)
}

// CompleteCheckpoint does what WriteCheckpoint does, for a checkpoint that BeginCheckpoint began.
// The map existing lists the files that the checkpoint has already.
func CompleteCheckpoint(path string, files []File, existing FileSums,
	state func(FileSums) any) (err error) {
	dir, tmp := filepath.Dir(path), scrapOf(path)
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing checkpoint %s: %w", path, errors.Join(err, os.RemoveAll(tmp)))
		}
	}()
	sums := FileSums{}
	maps.Copy(sums, existing)
	for _, f := range files {
		if sums[f.Name], err = writeSummed(filepath.Join(tmp, f.Name), f.Write); err != nil {
			return err
		}
	}
	text, err := seal(state(sums))
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { _, err := w.Write(text); return err }
	if _, err := writeSummed(filepath.Join(tmp, StateFile), write); err != nil {
		return err
	}
	if err := syncDir(tmp); err != nil {
		return err
	}
	if err := fault.At(fault.CheckpointRename, 0, -1, -1); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

// writeSummed writes and syncs a file, and returns its FileSum.
func writeSummed(path string, write func(io.Writer) error) (FileSum, error) {
	if err := fault.At(fault.CheckpointWrite, 0, -1, -1); err != nil {
		return FileSum{}, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return FileSum{}, err
	}
	w := &summing{file: f, hash: xxhash.New()}
	if err = write(w); err == nil {
		err = f.Sync()
	}
	return w.sum(), errors.Join(err, f.Close())
}

// WriteSummed replaces a file, completely or not at all, and returns the FileSum of the new file.
func WriteSummed(path string, write func(io.Writer) error) (FileSum, error) {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithPermissions(0o666))
	if err != nil {
		return FileSum{}, err
	}
	defer f.Cleanup() // does nothing after the rename
	w := &summing{file: f.File, hash: xxhash.New()}
	if err := write(w); err != nil {
		return FileSum{}, fmt.Errorf("%s: %w", path, err)
	}
	return w.sum(), f.CloseAtomicallyReplace()
}

// summing computes the hash of a file while it is written. The function that writes may call Sync.
type summing struct {
	file  *os.File
	hash  *xxhash.Digest
	bytes int64
}

func (s *summing) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	_, _ = s.hash.Write(p[:n])
	s.bytes += int64(n)
	return n, err
}

func (s *summing) Sync() error { return s.file.Sync() }

func (s *summing) sum() FileSum { return FileSum{s.bytes, sumText(s.hash.Sum64())} }

// CheckFile compares the size and the hash of a file with its FileSum. It reads the file piece by
// piece.
func CheckFile(path string, want FileSum) error {
	if err := checkSize(path, want); err != nil {
		return err
	}
	return checkSum(path, want.XXH64)
}

func checkSize(path string, want FileSum) error {
	info, err := os.Stat(path)
	// a path that is no regular file is altered too
	if err == nil && (info.Size() != want.Bytes || !info.Mode().IsRegular()) {
		err = fmt.Errorf("%s has %d bytes, but %d bytes were written", path, info.Size(),
			want.Bytes)
	}
	return err
}

func sumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// syncDir syncs the names in a directory. It ignores the error of a filesystem that cannot do so,
// such as CIFS, shared folders of virtual machines and some FUSE filesystems.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cannotSync(err) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// cannotSync reports whether syncing a directory failed because the filesystem does not support it.
func cannotSync(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) ||
		errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EBADF)
}

// seal returns the text of state.json for a state.
func seal(state any) ([]byte, error) {
	body, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(sealed{sumText(xxhash.Sum64(body)), body}, "", "  ")
	return append(text, '\n'), err
}

// unseal returns the state that the text of a state.json holds, as compact JSON.
func unseal(text []byte) ([]byte, error) {
	var s sealed
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if err := json.Compact(&body, s.State); err != nil {
		return nil, err
	}
	if sum := sumText(xxhash.Sum64(body.Bytes())); sum != s.XXH64 {
		return nil, altered(sum, s.XXH64)
	}
	return body.Bytes(), nil
}

func altered(is, was string) error {
	return fmt.Errorf("the file was altered: its XXH64 is %s, but when it was written it was %s",
		is, was)
}

// errFormat is the error about a checkpoint that is undamaged, but has another format.
var errFormat = errors.New("unknown format")

// readCheckpoint reads a checkpoint and compares all its files with their FileSums. It calls
// checkState as NewestCheckpoint does.
func readCheckpoint(path string, checkState func(state []byte) error) (*Checkpoint, error) {
	text, err := mem.ReadFile(filepath.Join(path, StateFile))
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Path: path, Files: map[string][]byte{}}
	var about struct {
		Format  int
		Version string
		Files   FileSums
	}
	if c.State, err = unseal(text); err == nil {
		err = json.Unmarshal(c.State, &about)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(path, StateFile), err)
	}
	if about.Format != CheckpointFormat {
		return nil, fmt.Errorf("%s: %w: written in format %d by halognn %s; this version reads "+
			"format %d; go on with a halognn that reads it",
			path, errFormat, about.Format, about.Version,
			CheckpointFormat)
	}
	if checkState != nil {
		if err := checkState(c.State); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(path, StateFile), err)
		}
	}
	for name, want := range about.Files {
		file := filepath.Join(path, name)
		if filepath.Dir(file) != filepath.Clean(path) {
			return nil, fmt.Errorf("%s: %q is not a file of a checkpoint, so this state.json was "+
				"altered",
				filepath.Join(path, StateFile), name)
		}
		if err := checkSize(file, want); err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, learnedFiles) { // no rank holds all learned rows
			if err := checkSum(file, want.XXH64); err != nil {
				return nil, err
			}
			continue
		}
		data, err := mem.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if sum := sumText(xxhash.Sum64(data)); sum != want.XXH64 {
			return nil, fmt.Errorf("%s: %w", file, altered(sum, want.XXH64))
		}
		c.Files[name] = data
	}
	return c, nil
}

// checkSum computes the hash of a file piece by piece, and compares it with the hash want.
func checkSum(file, want string) error {
	sum, err := npy.Hash(file)
	if err == nil && sum != want {
		err = fmt.Errorf("%s: %w", file, altered(sum, want))
	}
	return err
}

// NewestCheckpoint reads the checkpoints of a run from the newest on, and returns the first one
// that is undamaged. The Path of the result is empty if the run has not finished and has no
// checkpoint. For each state.json whose hash is right, it calls the function `checkState` with the
// state, to find out whether the content is right too. If checkState is nil, the content is not
// checked.
func NewestCheckpoint(run string, checkState func(state []byte) error) (*Checkpoint, error) {
	finished := true
	if _, err := os.Stat(filepath.Join(run, SummaryFile)); errors.Is(err, fs.ErrNotExist) {
		finished = false
	} else if err != nil {
		return nil, err
	}
	dir := filepath.Join(run, CheckpointsDir)
	names, err := checkpointNames(dir)
	if err != nil {
		return nil, err
	}
	var damaged []string
	for _, name := range slices.Backward(names) {
		c, err := readCheckpoint(filepath.Join(dir, name), checkState)
		// the format is unknown, but the checkpoint is whole; the version that wrote it can use it
		if errors.Is(err, errFormat) {
			return nil, err
		}
		if err == nil {
			c.Damaged, c.Finished = damaged, finished
			return c, nil
		}
		damaged = append(damaged, err.Error())
	}
	switch {
	case len(damaged) > 0:
		return nil, fmt.Errorf("no checkpoint in %s can be used; "+
			"train again into another run.dir:\n  %s", dir, strings.Join(damaged, "\n  "))
	case finished:
		return nil, fmt.Errorf("%s holds a finished run, but no checkpoint to go on from; train "+
			"into another run.dir", run)
	}
	return new(Checkpoint), nil
}

// VerifyCheckpoints reads all checkpoints of a run and returns the errors of the damaged ones,
// joined. It calls checkState as NewestCheckpoint does.
func VerifyCheckpoints(run string, checkState func(state []byte) error) error {
	dir := filepath.Join(run, CheckpointsDir)
	names, err := checkpointNames(dir)
	for _, name := range names {
		_, damage := readCheckpoint(filepath.Join(dir, name), checkState)
		err = errors.Join(err, damage)
	}
	return err
}

// Prune deletes all checkpoints of a run except the newest ones, of which `keep` stay.
func Prune(run string, keep int) error {
	dir := filepath.Join(run, CheckpointsDir)
	names, err := checkpointNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names[:max(0, len(names)-keep)] {
		// A directory that is only half deleted must not look like a checkpoint, so it is renamed
		// first.
		scrap := filepath.Join(dir, scrapPrefix+name)
		if err := os.Rename(filepath.Join(dir, name), scrap); err != nil {
			return err
		}
		if err := os.RemoveAll(scrap); err != nil {
			return err
		}
	}
	return nil
}

// checkpointNames lists the checkpoints in a directory, oldest first. It lists none if the
// directory does not exist.
func checkpointNames(dir string) ([]string, error) {
	names, err := namesIn(dir,
		func(name string) bool { return strings.HasPrefix(name, stepPrefix) })
	slices.SortFunc(names, CompareAge)
	return names, err
}

func namesIn(dir string, wanted func(name string) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if wanted(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// unnamed matches the temporary names of files that a run has not completed.
var unnamed = regexp.MustCompile(`^\.(` + strings.Join([]string{ConfigFile, MetricsFile,
	SummaryFile,
	ModelFile, KernelsFile, learnedFiles + `\d+.safetensors`}, "|") + `)\d+$`)

// removeScraps deletes what a run was writing or deleting when its process died. The caller must
// hold the lock of the run.
func removeScraps(run string) error {
	dir := filepath.Join(run, CheckpointsDir)
	names, err := namesIn(dir,
		func(name string) bool { return strings.HasPrefix(name, scrapPrefix) })
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
	}
	files, failed := namesIn(run, unnamed.MatchString)
	err = errors.Join(err, failed)
	for _, name := range files {
		err = errors.Join(err, os.Remove(filepath.Join(run, name)))
	}
	return err
}

// setAside renames the checkpoints that are newer than the one that the run resumes from, so that
// no search finds the newer ones any more.
func setAside(run, used string) error {
	dir := filepath.Join(run, CheckpointsDir)
	names, err := checkpointNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if CompareAge(name, used) > 0 {
			aside := filepath.Join(dir, damagedPrefix+name)
			err = errors.Join(err, os.RemoveAll(aside), os.Rename(filepath.Join(dir, name), aside))
		}
	}
	return err
}
