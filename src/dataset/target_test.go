package dataset

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// A temporary directory of a process that has ended is removed by the next that writes there; one in
// use, and what is none, stay.
func TestDeadPiecesAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	used, finished, err := MakeBeside(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer finished()
	dead := []string{dir + ".tmp-0123abcd", dir + ".new-77.tmp-0123abce", dir + ".tmp-0123abcf-discarded"}
	kept := []string{used, dir + ".tmp-more", dir + "2.tmp-0123abcd"}
	for _, path := range append(slices.Clone(dead), kept[1:]...) {
		if err := errors.Join(os.MkdirAll(filepath.Join(path, "part-0000"), 0o777),
			os.WriteFile(filepath.Join(path, aliveFile), nil, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	tmp, err := Begin(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range dead {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	for _, path := range append(kept, tmp) {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := Finish(tmp, dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the finished directory holds %v (%v)", left, err)
	}
}
