package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"halognn/src/fault"
)

// A checkpoint is a directory:
//
//	RUN/checkpoints/step-00000120/        after 120 updates; step-00000240-end: at the end of training, evaluated
//	    model.safetensors                 weights
//	    optimizer.safetensors             moments, as m.NAME and v.NAME, or momentum.NAME
//	    best.safetensors                  weights of the best validation so far, if there was one
//	    state.json                        everything else, and size and XXH64 of the other files: checkpointState
//
// It is written under a name that begins with a dot, synced, and renamed: what has its name is complete.
const (
	CheckpointsDir = "checkpoints"

	checkpointFormat = 1 // of state.json and what it describes
	stateFile        = "state.json"
	optimizerFile    = "optimizer.safetensors"
	bestFile         = "best.safetensors"
	stepPrefix       = "step-"
	endSuffix        = "-end"
	scrapPrefix      = "."        // being written or deleted
	damagedPrefix    = "damaged-" // set aside on restart
)

// checkpointName is the name of the checkpoint after so many updates. Names sort by age.
func checkpointName(updates int, end bool) string {
	name := fmt.Sprintf("%s%08d", stepPrefix, updates)
	if end {
		name += endSuffix
	}
	return name
}

// fileSum is what state.json knows of another file of the checkpoint.
type fileSum struct {
	Bytes int64  `json:"bytes"`
	XXH64 string `json:"xxh64"`
}

// sealed is state.json: the state, and the XXH64 of its compact JSON.
type sealed struct {
	XXH64 string          `json:"xxh64"`
	State json.RawMessage `json:"state"`
}

// content is one file of a checkpoint to be.
type content struct {
	name  string
	write func(io.Writer) error
}

// writeCheckpoint makes the directory dir/name, whole or not at all. It sets the sums of state.
func writeCheckpoint(dir, name string, files []content, state *checkpointState) (err error) {
	tmp := filepath.Join(dir, scrapPrefix+name)
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing checkpoint %s: %w", filepath.Join(dir, name), errors.Join(err, os.RemoveAll(tmp)))
		}
	}()
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o777)); err != nil {
		return err
	}
	state.Files = map[string]fileSum{}
	for _, f := range files {
		if state.Files[f.name], err = writeSummed(filepath.Join(tmp, f.name), f.write); err != nil {
			return err
		}
	}
	text, err := state.seal()
	if err != nil {
		return err
	}
	if _, err := writeSummed(filepath.Join(tmp, stateFile), func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
		return err
	}
	if err := syncDir(tmp); err != nil {
		return err
	}
	if err := fault.At(fault.CheckpointRename, 0, state.Epoch, state.Step); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

// writeSummed writes a file, syncs it, and returns its sum as it was written.
func writeSummed(path string, write func(io.Writer) error) (fileSum, error) {
	if err := fault.At(fault.CheckpointWrite, 0, -1, -1); err != nil {
		return fileSum{}, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fileSum{}, err
	}
	hash := xxhash.New()
	size := counter(0)
	err = write(io.MultiWriter(f, hash, &size))
	if err == nil {
		err = f.Sync()
	}
	return fileSum{int64(size), sumText(hash.Sum64())}, errors.Join(err, f.Close())
}

// counter counts bytes.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func sumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// syncDir makes the names in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *checkpointState) seal() ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(sealed{sumText(xxhash.Sum64(body)), body}, "", "  ")
	return append(text, '\n'), err
}

// unseal is the inverse of seal.
func unseal(text []byte) (*checkpointState, error) {
	var s sealed
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if err := json.Compact(&body, s.State); err != nil {
		return nil, err
	}
	if sum := sumText(xxhash.Sum64(body.Bytes())); sum != s.XXH64 {
		return nil, fmt.Errorf("its XXH64 is %s, not the %s that was written: it was altered", sum, s.XXH64)
	}
	state := new(checkpointState)
	return state, json.Unmarshal(body.Bytes(), state)
}

// readCheckpoint reads a checkpoint and compares every sum.
func readCheckpoint(path string) (*checkpointState, map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(path, stateFile))
	if err != nil {
		return nil, nil, err
	}
	state, err := unseal(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(path, stateFile), err)
	}
	if state.Format != checkpointFormat {
		return nil, nil, fmt.Errorf("%s: %w: written in format %d by halognn %s; this version reads format %d", path, errFormat,
			state.Format, state.Version, checkpointFormat)
	}
	files := map[string][]byte{}
	for name, want := range state.Files {
		file := filepath.Join(path, name)
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		if int64(len(data)) != want.Bytes {
			return nil, nil, fmt.Errorf("%s has %d bytes, not the %d that were written", file, len(data), want.Bytes)
		}
		if sum := sumText(xxhash.Sum64(data)); sum != want.XXH64 {
			return nil, nil, fmt.Errorf("%s: its XXH64 is %s, not the %s that was written: it was altered", file, sum, want.XXH64)
		}
		files[name] = data
	}
	return state, files, nil
}

// errFormat says that a checkpoint is sound but of another format.
var errFormat = errors.New("unknown format")

// checkpointNames lists the checkpoints in a directory, oldest first. A directory that is not there holds none.
func checkpointNames(dir string) ([]string, error) {
	return namesIn(dir, func(name string) bool { return strings.HasPrefix(name, stepPrefix) })
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
	slices.Sort(names)
	return names, err
}

// prune deletes all but the newest checkpoints.
func prune(dir string, keep int) error {
	names, err := checkpointNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names[:max(0, len(names)-keep)] {
		scrap := filepath.Join(dir, scrapPrefix+name) // what is half deleted must not look like a checkpoint
		if err := os.Rename(filepath.Join(dir, name), scrap); err != nil {
			return err
		}
		if err := os.RemoveAll(scrap); err != nil {
			return err
		}
	}
	return nil
}

// VerifyCheckpoints reads all checkpoints of a run and returns what is damaged, joined.
func VerifyCheckpoints(run string) error {
	dir := filepath.Join(run, CheckpointsDir)
	names, err := checkpointNames(dir)
	for _, name := range names {
		_, _, fault := readCheckpoint(filepath.Join(dir, name))
		err = errors.Join(err, fault)
	}
	return err
}
