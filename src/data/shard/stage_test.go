package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"halognn/src/base/flock"
	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
)

func TestStagedPartsReadLikeTheSource(t *testing.T) {
	ds := small(t)
	l, part := layout(t, ds, 4)
	dir, stage := write(t, ds, 4), t.TempDir()
	var group sync.WaitGroup
	for range 4 { // as the ranks of a node do
		group.Go(func() {
			s, err := Open(dir, Options{Stage: stage})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			compare(t, s, ds, l, part)
		})
	}
	group.Wait()
	s := open(t, dir, Options{Stage: stage})
	for name := range s.Files { // what is staged is not read from the source again
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, s.Files[name].Bytes),
			0o666); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, open(t, dir, Options{Stage: stage}), ds, l, part)
	if left, _ := filepath.Glob(filepath.Join(stage, "*", "*.tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStagingRefusesAnAlteredSource(t *testing.T) {
	ds := small(t)
	dir, stage := write(t, ds, 4), t.TempDir()
	s := open(t, dir, Options{})
	if err := os.WriteFile(filepath.Join(dir, "labels.npy"),
		make([]byte, s.Files["labels.npy"].Bytes), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{Stage: stage}); !errors.Is(err, ErrAltered) ||
		!strings.Contains(err.Error(), "labels.npy") {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(stage); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Where there is no room, Open says which setting chose the place, and leaves nothing there: not
// what it copied before the room was used up either. Copies of an earlier run stay.
func TestStagingWithoutRoom(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("a small file system to fill cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	dir := write(t, makeDataset(t, rand.New(rand.NewPCG(3, 2)), 400, // row pointers fit
		dataset.Meta{Name: "wide", Task: task.Multiclass, Features: 2, Classes: 3}), 4)
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{CopyTopology: true, SharedMemory: disk}, "topology.load to map"},
		{Options{Stage: disk}, "run.stage_dir to a directory with more room"},
	} {
		if _, err := Open(dir, c.options); !errors.Is(err, unix.ENOSPC) ||
			strings.Count(err.Error(), c.want) != 1 {
			t.Errorf("got %v, expected %q", err, c.want)
		}
		if left, _ := os.ReadDir(disk); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func TestDiscardLeavesEarlierCopies(t *testing.T) {
	dir, stage := write(t, small(t), 4), t.TempDir()
	open(t, dir, Options{Stage: stage})
	s := open(t, dir, Options{Stage: stage})
	if _, err := s.OpenPart(2); err != nil {
		t.Fatal(err)
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
	parts, _ := filepath.Glob(filepath.Join(stage, "*", "part-*"))
	topology, _ := filepath.Glob(filepath.Join(stage, "*", "indptr.npy"))
	if len(parts) > 0 || len(topology) != 1 {
		t.Errorf("parts %v and topology %v are left", parts, topology)
	}
}

func TestCopiedTopologyOutlivesItsName(t *testing.T) {
	ds := makeDataset(t, rand.New(rand.NewPCG(3, 2)), 60,
		dataset.Meta{Name: "weights", Task: task.Multiclass,
			Features: 2, Classes: 3, Weighted: true})
	l, part := layout(t, ds, 4)
	dir, shared := write(t, ds, 4), t.TempDir()
	o := Options{CopyTopology: true, SharedMemory: shared}
	a, b := open(t, dir, o), open(t, dir, o)
	copies, _ := filepath.Glob(filepath.Join(shared, "*", "*.npy"))
	if files := a.topologyFiles(); len(copies) != len(files) || len(files) != 5 {
		t.Errorf("copied %v, want %v", copies, files)
	}
	for _, s := range []*Shards{a, b} {
		if err := s.UnlinkShared(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(shared); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	compare(t, a, ds, l, part)
	if err := mem.CheckSizes(); err != nil {
		t.Errorf("a deleted file that is still mapped is reported: %v", err)
	}
	compare(t, open(t, dir, o), ds, l, part) // one that opens late
}

// Shared memory of a job that was killed before it took the name of its copies away is free when
// another job starts, on whatever parts; that of a job that is opening stays.
func TestCopiesOfKilledJobsAreRemoved(t *testing.T) {
	dir, shared := write(t, small(t), 4), t.TempDir()
	o := Options{CopyTopology: true, SharedMemory: shared}
	opening := open(t, dir, o)
	root := opening.stageRoot("indptr.npy")
	dead := filepath.Join(shared, ofUser()+"of-other-parts")
	others := filepath.Join(shared, "halognn-x-of-another-user")
	for _, d := range []string{dead, others} {
		if err := errors.Join(os.Mkdir(d, 0o700),
			os.WriteFile(filepath.Join(d, "use-1"), []byte("indptr.npy\nindices.npy\n"), 0o600),
			os.WriteFile(filepath.Join(d, "indptr.npy"), nil, 0o600),
			os.WriteFile(filepath.Join(d, "indptr.npy.lock"), nil, 0o600),
			os.WriteFile(filepath.Join(d, "indices.npy.tmp-1@"+pieceHost()), nil, 0o600),
			os.WriteFile(filepath.Join(d, "features-0.npy"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	// of a job on the same parts
	if err := os.WriteFile(filepath.Join(root, "use-0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, write(t, small(t), 2), o).UnlinkShared(); err != nil { // other parts
		t.Fatal(err)
	}
	left := func(dir string) string {
		files, _ := os.ReadDir(dir)
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
		}
		return strings.Join(names, " ")
	}
	// what was not copied there: run.stage_dir may be here
	if got := left(dead); got != "features-0.npy" {
		t.Errorf("left of a killed job: %s", got)
	}
	if got := left(others); len(strings.Fields(got)) != 5 {
		t.Errorf("left of another user: %s", got)
	}
	if got := left(root); !strings.Contains(got, "indices.npy") {
		t.Errorf("left of a job that is opening: %s", got)
	}
	if err := opening.UnlinkShared(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); err == nil {
		t.Errorf("left of a job that has opened: %s", left(root))
	}
}

// Jobs that come and go on one node share the copy and take its name away under each other's hands.
func TestCopiesComeAndGo(t *testing.T) {
	ds := small(t)
	dir, shared := write(t, ds, 4), t.TempDir()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 25 {
				s, err := Open(dir, Options{CopyTopology: true, SharedMemory: shared})
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(s.Topology().Graph.Validate(), s.UnlinkShared(),
					s.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if left, _ := os.ReadDir(shared); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A copy that was damaged is made anew where copies are verified, and pieces of copies that
// this node began are gone.
func TestDamagedCopiesAreMadeAnew(t *testing.T) {
	ds := small(t)
	l, part := layout(t, ds, 2)
	dir, stage := write(t, ds, 2), filepath.Join(t.TempDir(), "new", "stage")
	if s := open(t, dir, Options{Stage: stage, Verify: true}); s.VerifyHashes(0, 2, true) != nil {
		t.Error("the first start fails")
	}
	copies, err := filepath.Glob(filepath.Join(stage, "*", "indices.npy"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies: %v (%v)", copies, err)
	}
	alter(t, filepath.Dir(copies[0]), "indices.npy", func(x []int32) { x[3] = 1 })
	piece, old := copies[0]+".tmp-123@"+pieceHost(), flock.ThisProcess().Space+"\n1"
	another := copies[0] + ".tmp-123@n17"
	if err := errors.Join(os.WriteFile(piece, nil, 0o600), os.WriteFile(another, nil, 0o600),
		os.WriteFile(copies[0]+".lock", []byte(old), 0o600)); err != nil { // of an earlier process
		t.Fatal(err)
	}
	compare(t, open(t, dir, Options{Stage: stage, Verify: true}), ds, l, part)
	if _, err := os.Stat(piece); err == nil {
		t.Error("a piece of a copy is left")
	}
	if _, err := os.Stat(another); err != nil {
		t.Errorf("the piece of another node: %v", err)
	}
}

// What keeps this user from staging is told with the setting.
func TestStagingSaysWhatToSet(t *testing.T) {
	dir := write(t, small(t), 2)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, Options{Stage: filepath.Join(file, "stage")})
	if err == nil ||
		!strings.Contains(err.Error(),
			"set run.stage_dir to a directory that this user may write") {
		t.Errorf("got %v", err)
	}
}

// The directory of copies is made for all users only where its parent is, and one in which they
// could rename each other's is refused.
func TestStageDirectoryIsForThoseOfItsParent(t *testing.T) {
	const all = 0o777 | os.ModeSticky
	for _, c := range []struct{ parent, want os.FileMode }{{all, all}, {0o700, 0}} {
		parent := t.TempDir()
		if err := os.Chmod(parent, c.parent); err != nil {
			t.Fatal(err)
		}
		stage := filepath.Join(parent, "stage")
		for range 2 {
			if err := forAll(stage); err != nil {
				t.Fatal(err)
			}
		}
		old := unix.Umask(0)
		unix.Umask(old)
		if c.want != all {
			c.want = os.FileMode(0o777 &^ old)
		}
		info, err := os.Stat(stage)
		if err != nil || info.Mode()&^os.ModeDir != c.want {
			t.Errorf("in %v: %v (%v)", c.parent, info.Mode(), err)
		}
		if left, _ := os.ReadDir(parent); len(left) != 1 {
			t.Errorf("it holds %v", left)
		}
		if err := os.Chmod(stage, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := forAll(stage); err == nil || !strings.Contains(err.Error(), "chmod +t") {
			t.Errorf("writable for all: %v", err)
		}
	}
}

// That a copy is sound is learnt from a process of this boot which saw it since this one began.
func TestSoundCopiesAreReadOnce(t *testing.T) {
	path, s := filepath.Join(t.TempDir(), "x.npy"), &Shards{options: Options{Verify: true}}
	want := s.Files["x.npy"]
	space := flock.ThisProcess().Space
	for _, note := range []string{
		"", "sound\n", space + "\n1", fmt.Sprintf("another boot\n%d", sinceBoot()),
	} {
		if err := os.WriteFile(path+".lock", []byte(note), 0o600); err != nil {
			t.Fatal(err)
		}
		if s.sound(path, want) {
			t.Errorf("%q is taken for a note", note)
		}
	}
	noteSound(path)
	if !s.sound(path, want) {
		t.Error("the note is not read")
	}
}
