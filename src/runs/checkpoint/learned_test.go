package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// Ranks with files of several lengths write them in pieces, show as many signs of life as the
// longest has pieces, and come to the sums of all; a file that was altered or cut does not have its
// sum.
func TestLearnedFilesAreWrittenTogether(t *testing.T) {
	defer func(was int) { pieceBytes = was }(pieceBytes)
	pieceBytes = 256
	const ranks, cols = 3, 8
	dir := t.TempDir()
	var lives [ranks]atomic.Int64
	var sums [ranks]rundir.FileSums
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		me := c.Rank()
		n := 40 * me // rank 0 has no rows
		l := nn.NewLearned(cols, []nn.LearnedRange{{Part: me, End: n}}, make([]int32, n), 1,
			nn.LearnedOptions{Scale: 1}, true)
		defer l.Free()
		var err error
		sums[me], err = WriteLearned(c, dir, l, me, me+1, func() { lives[me].Add(1) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		path := filepath.Join(dir, rundir.LearnedFile(rank))
		if err := rundir.CheckFile(path, sums[rank][rundir.LearnedFile(rank)]); err != nil {
			t.Error(err)
		}
		if lives[rank].Load() < 80*cols*4/256 || lives[rank].Load() != lives[0].Load() ||
			len(sums[rank]) != ranks || fmt.Sprint(sums[rank]) != fmt.Sprint(sums[0]) {
			t.Errorf("rank %d shows life %d times and has the sums %v", rank, lives[rank].Load(),
				sums[rank])
		}
	}
	path, want := filepath.Join(dir, rundir.LearnedFile(2)), sums[0][rundir.LearnedFile(2)]
	if tensors, _, err := nn.ReadSafetensors(path); err != nil || len(tensors[0].Data) != 80*cols {
		t.Fatalf("%v, %v", tensors, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	for _, damaged := range [][]byte{text, text[:len(text)-4]} {
		if err := os.WriteFile(path, damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		if rundir.CheckFile(path, want) == nil {
			t.Error("a damaged file has its sum")
		}
	}
}

// A rank that cannot write its file does not leave the others waiting, and all know of it.
func TestLearnedFilesThatCannotBeWritten(t *testing.T) {
	defer func(was int) { pieceBytes = was }(pieceBytes)
	pieceBytes = 64
	dir := t.TempDir()
	err := comm.RunWorld(2, func(c comm.Comm) error {
		to, n := dir, 40
		if c.Rank() == 1 {
			to = filepath.Join(dir, "missing")
		}
		l := nn.NewLearned(4, []nn.LearnedRange{{Part: c.Rank(), End: n}}, make([]int32, n), 1,
			nn.LearnedOptions{Scale: 1}, true)
		defer l.Free()
		if _, err := WriteLearned(c, to, l, c.Rank(), c.Rank()+1, func() {}); !comm.IsAgreed(err) {
			return fmt.Errorf("rank %d: %v", c.Rank(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
