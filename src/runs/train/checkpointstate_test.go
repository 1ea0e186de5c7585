package train

import (
	"encoding/json"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/checkpoint"
)

// oldRun was stopped in its second epoch, by a version whose checkpoints held a whole summary, and
// phases as a list. It has the options of TestOldCheckpointGoesOn.
const oldRun = "testdata/checkpoint-1"

// copyOldRun makes run a copy of oldRun on these parts, with their identity in place of the old
// one, which depends on the format of parts.
func copyOldRun(t *testing.T, run, parts string) {
	t.Helper()
	if err := os.CopyFS(run, os.DirFS(oldRun)); err != nil {
		t.Fatal(err)
	}
	c, err := rundir.NewestCheckpoint(run, nil)
	if err != nil {
		t.Fatal(err)
	}
	var state map[string]json.RawMessage
	if err := json.Unmarshal(c.State, &state); err != nil {
		t.Fatal(err)
	}
	state["parts"] = json.RawMessage(strconv.Quote(parts))
	var files []rundir.File
	for name, data := range c.Files {
		write := func(w io.Writer) error { _, err := w.Write(data); return err }
		files = append(files, rundir.File{Name: name, Write: write})
	}
	if err := os.RemoveAll(c.Path); err != nil {
		t.Fatal(err)
	}
	err = rundir.WriteCheckpoint(c.Path, files, func(rundir.FileSums) any { return state })
	if err != nil {
		t.Fatal(err)
	}
}

// A run resumed from an old checkpoint ends with the numbers and sums of an uninterrupted run.
func TestOldCheckpointGoesOn(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Cache = policy.Settings{Policy: policy.VIP, Alpha: 0.3}
	whole := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := whole.finished(t, o)
	j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	copyOldRun(t, j.dir, shards.Identity())
	err := comm.RunWorld(1, func(c comm.Comm) error {
		ck, err := checkpoint.Open(c, oldRun)
		if err != nil {
			return err
		}
		s := ck.State
		sum := s.Sums
		if s.Epoch != 2 || s.Step != 5 {
			t.Errorf("it stands at epoch %d, step %d", s.Epoch, s.Step)
		}
		if sum.Epochs != 1 || sum.Local != 2174 ||
			sum.PhaseSeconds["sync"] != 0.0017084740000000002 {
			t.Errorf("sums of the first epoch: %+v", s.Sums)
		}
		if rows := s.Counters; rows.Frontier != 1395 || rows.IDBytes != 960 || rows.Evictions != 0 {
			t.Errorf("rows of the epoch under way: %+v", rows)
		}
		if p := s.Phases; len(p) != 10 || p["sample"] != 0.00008463 || p["wait"] != 0.000282073 {
			t.Errorf("phases of the epoch under way: %v", p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := j.finished(t, o)
	if got.EdgesDigest != "" {
		t.Errorf("edges_digest is %s, but the checkpoint has none of its steps", got.EdgesDigest)
	}
	got.EdgesDigest = want.EdgesDigest // the old version had none
	// The checkpoint was made on amd64; other processors may round differently.
	if runtime.GOARCH == "amd64" {
		sameRun(t, got, want)
	}
	got.Edges, got.Loaded = want.Edges, want.Loaded // nor these
	if got.Rows != want.Rows {
		t.Errorf("rows %+v, without interruption %+v", got.Rows, want.Rows)
	}
	if got, want := len(j.records(t)), len(whole.records(t)); got != want {
		t.Errorf("metrics.jsonl holds %d records, without interruption %d", got, want)
	}
}
