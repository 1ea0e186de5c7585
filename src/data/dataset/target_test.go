package dataset

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/flock"
)

func TestDiscardAll(t *testing.T) {
	parent := t.TempDir()
	tmp, err := Begin(filepath.Join(parent, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tmp, "indptr.npy"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	DiscardAll()
	forget(tmp)
	begun.Unlock() // in the test the process goes on
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestNoRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	err := Generate(dir, GenerateOptions{Vertices: 1 << 30, Features: 1 << 20})
	if !errors.Is(err, ErrTooLarge) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a graph of 4 PiB: %v", err)
	}
}

func TestEdgeListFaultsNameTheCure(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "no vertices"},
		{"header", "from,to\n1,2\n", "remove the header line"},
		{"weights", "1 2 0.5\n", "cut other columns off"},
		{"large ids", "99999999999999999999 1\n", "renumber"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "edges.txt")
			if err := os.WriteFile(in, []byte(c.text), 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := Import(ImportOptions{Format: "edgelist", In: in,
				Out: filepath.Join(t.TempDir(), "out")})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A temporary directory of a process of this node that has ended is removed by the next that writes
// there. One in use, one of another node or of nobody known, though no lock is held, and what is
// none, stay.
func TestDeadPiecesAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	used, finished, err := MakeBeside(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer finished()
	dead := flock.ThisProcess()
	dead.PID = 1 << 30
	elsewhere, booted := dead, dead
	elsewhere.Host, booted.Space = "n17", "another boot"
	noted := []string{dir + ".tmp-00000001", dir + ".tmp-00000002", dir + ".tmp-00000003"}
	removed := []string{
		dir + ".tmp-0123abcd", dir + ".new-77.tmp-0123abce", dir + ".tmp-0123abcf-discarded",
	}
	alive := dir + ".tmp-0123abd0" // and yet nothing locks it
	none := []string{dir + ".tmp-more", dir + "2.tmp-0123abcd"}
	for path, who := range map[string]any{
		noted[0]:   elsewhere,
		noted[1]:   booted,
		noted[2]:   nil,
		removed[0]: dead,
		removed[1]: dead,
		removed[2]: dead,
		alive:      flock.ThisProcess(),
		none[0]:    dead,
		none[1]:    dead,
	} {
		text, err := json.Marshal(who)
		err = errors.Join(err, os.MkdirAll(filepath.Join(path, "part-0000"), 0o777))
		if err != nil {
			t.Fatal(err)
		}
		if who != nil {
			if err := os.WriteFile(filepath.Join(path, aliveFile), text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	var said strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	tmp, err := Begin(dir)
	slog.SetDefault(before)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range removed {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	kept := append(slices.Concat(none, noted), used, alive, tmp)
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		if is := strings.Contains(said.String(), path+" "); is != slices.Contains(noted, path) {
			t.Errorf("of %s it says: %s", path, said.String())
		}
	}
	if err := Finish(tmp, dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the finished directory holds %v (%v)", left, err)
	}
}

// The file that says who is at work has no name before it is locked and written, and none where
// that fails.
func TestUnmarkedWithoutLocks(t *testing.T) {
	dir := t.TempDir()
	// as if there were no locks
	unlock, err := flock.Try(filepath.Join(dir, aliveFile+"-begins"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	markAlive(dir)()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}
