package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// stateOf returns a state of that format.
func stateOf(format int) func(FileSums) any {
	return func(sums FileSums) any {
		return struct {
			Format  int      `json:"format"`
			Version string   `json:"version"`
			Files   FileSums `json:"files"`
		}{format, "v99", sums}
	}
}

// A file that cannot be written in full leaves no checkpoint, no half one, and those before it as
// they were.
func TestCheckpointIsWholeOrNotThere(t *testing.T) {
	run := t.TempDir()
	first, second := CheckpointPath(run, 1, false), CheckpointPath(run, 2, false)
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	state := stateOf(CheckpointFormat)
	if err := WriteCheckpoint(first, []File{{"a", text("first")}}, state); err != nil {
		t.Fatal(err)
	}
	full := func(w io.Writer) error { return errors.Join(text("half")(w), syscall.ENOSPC) }
	err := WriteCheckpoint(second, []File{{"a", text("second")}, {"b", full}}, state)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "step-00000002") {
		t.Errorf("a full disk gives %v", err)
	}
	if names := namesOf(t, filepath.Dir(first)); fmt.Sprint(names) != "[step-00000001]" {
		t.Errorf("left are %v", names)
	}
	if c, err := readCheckpoint(first, nil); err != nil || string(c.Files["a"]) != "first" {
		t.Errorf("the one before holds %+v (%v)", c, err)
	}
}

// The oldest go, and what is set aside does not count.
func TestPrune(t *testing.T) {
	run := t.TempDir()
	dir := filepath.Join(run, CheckpointsDir)
	for _, name := range []string{
		"step-00000009", "step-99999999", "step-99999999-end", "step-100000000",
		"damaged-step-00000012",
	} {
		if err := os.MkdirAll(filepath.Join(dir, name, "deep"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := Prune(run, 2); err != nil {
		t.Fatal(err)
	}
	names := namesOf(t, dir)
	if fmt.Sprint(names) != "[damaged-step-00000012 step-100000000 step-99999999-end]" {
		t.Errorf("left are %v", names)
	}
}

// A checkpoint of another format is no damage: whoever has the right version can use it.
func TestCheckpointOfAnotherFormat(t *testing.T) {
	run := t.TempDir()
	path := CheckpointPath(run, 1, false)
	if err := WriteCheckpoint(path, nil, stateOf(CheckpointFormat+1)); err != nil {
		t.Fatal(err)
	}
	_, err := NewestCheckpoint(run, nil)
	if !errors.Is(err, errFormat) || !strings.Contains(err.Error(), "v99") {
		t.Errorf("accepted: %v", err)
	}
}

// state.json survives reading and writing, and tells any altered byte of what it says.
func TestStateIsSealed(t *testing.T) {
	s := map[string]any{
		"format": CheckpointFormat, "loss": math.Pi / 1e20, "digest": []byte{0, 255},
		"config": map[string]string{"a": "<b>\n"},
	}
	text, err := seal(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := unseal(text)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := json.Marshal(s); err != nil || string(back) != string(want) {
		t.Errorf("%s became %s (%v)", want, back, err)
	}
	for i := range text {
		altered := append([]byte(nil), text...)
		altered[i] ^= 1
		if got, err := unseal(altered); err == nil && string(got) != string(back) {
			t.Fatalf("byte %d altered: %s", i, altered)
		}
	}
}

// Names beyond the directory are refused although the seal is whole, and a file that is not as long
// as it was is not read.
func TestFilesOfNoCheckpointAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		file string
		sum  FileSum
		want string
	}{
		{"a file elsewhere", "../../elsewhere", FileSum{},
			`"../../elsewhere" is not a file of a checkpoint`},
		{"a device", "zero", FileSum{}, "zero has 0 bytes"},
		{"a longer file", "a", FileSum{Bytes: 1 << 40}, "a has 5 bytes, but 1099511627776"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := CheckpointPath(t.TempDir(), 1, false)
			first := File{"a", func(w io.Writer) error {
				_,
					err := io.WriteString(w, "first")
				return err
			}}
			if err := WriteCheckpoint(path, []File{first}, stateOf(CheckpointFormat)); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/dev/zero", filepath.Join(path, "zero")); err != nil {
				t.Fatal(err)
			}
			text, err := seal(map[string]any{
				"format": CheckpointFormat, "files": FileSums{c.file: c.sum},
			})
			if err == nil {
				err = os.WriteFile(filepath.Join(path, StateFile), text, 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err = readCheckpoint(path, nil); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A filesystem that syncs no directories is as good as one that does; a disk that fails is not.
func TestDirectoriesThatCannotBeSynced(t *testing.T) {
	for err, want := range map[syscall.Errno]bool{syscall.EINVAL: true, syscall.ENOTSUP: true,
		syscall.EIO: false, syscall.ENOSPC: false} {
		if got := cannotSync(&os.PathError{Op: "sync", Path: "run", Err: err}); got != want {
			t.Errorf("%v is ignored: %t", err, got)
		}
	}
}
