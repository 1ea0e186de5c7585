package train

import (
	"encoding/json"
	"io"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"halognn/src/comm"
	"halognn/src/policy"
	"halognn/src/record"
	"halognn/src/rundir"
	"halognn/src/trace"
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
		ck, err := OpenCheckpoint(c, oldRun)
		if err != nil {
			return err
		}
		s := ck.state
		sum := s.Sums.sums()
		if s.Epoch != 2 || s.Step != 5 {
			t.Errorf("it stands at epoch %d, step %d", s.Epoch, s.Step)
		}
		if sum.Epochs != 1 || sum.Rows.Local != 2174 ||
			sum.PhaseSeconds["sync"] != 0.0017084740000000002 {
			t.Errorf("sums of the first epoch: %+v", s.Sums)
		}
		if rows := s.Counters; rows.Frontier != 1395 || rows.IDBytes != 960 || rows.Evictions != 0 {
			t.Errorf("rows of the epoch under way: %+v", rows)
		}
		if p := s.phases(); len(p) != 10 || p["sample"] != 0.00008463 || p["wait"] != 0.000282073 {
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

// filled sets every number of a struct to a different value.
func filled(v reflect.Value, next *int) {
	switch *next++; v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i), next)
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Uint64:
		v.SetUint(uint64(*next))
	case reflect.Float64:
		v.SetFloat(float64(*next) / 8)
	}
}

// A checkpoint keeps all sums that an epoch adds to, and all counters of rows that a step adds to.
func TestCheckpointKeepsAllSums(t *testing.T) {
	reread := func(from, to any) {
		t.Helper()
		text, err := json.Marshal(from)
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var want sums
	var e record.Epoch
	filled(reflect.ValueOf(&e).Elem(), new(int))
	e.PhaseSeconds = map[string]float64{"sample": 1.5, "wait": 2.5}
	var rows trace.Counters
	filled(reflect.ValueOf(&rows).Elem(), new(int))
	want.add(&e, rows)
	want.add(&e, rows)
	want.Rounds = 3
	var kept checkpointSums
	reread(sumsOf(&want), &kept)
	if got := kept.sums(); !reflect.DeepEqual(got, want) {
		t.Errorf("of the sums\n%+v\na checkpoint keeps\n%+v", want, got)
	}
	for i, name := range oldPhases {
		known := false
		for p := range trace.NumPhases {
			known = known || p.String() == name
		}
		if !known {
			t.Errorf("phase %d of old checkpoints, %s, is none", i, name)
		}
	}
}

// Counts that no run can have are rejected although the seal is valid.
func TestStateOfNoRunIsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(s *checkpointState)
		want  string
	}{
		{"sound", func(*checkpointState) {}, ""},
		{"before the first epoch", func(s *checkpointState) { s.Epoch = 0 }, "epoch is 0"},
		{"beyond the steps of an epoch", func(s *checkpointState) { s.Step = 10 },
			"step is 10, and must be 0 to 9"},
		{"a negative step", func(s *checkpointState) { s.Step = -1 }, "step is -1"},
		{"no steps", func(s *checkpointState) { s.StepsPerEpoch = 0 }, "steps_per_epoch is 0"},
		{"updates undone", func(s *checkpointState) { s.OptimizerSteps = -4 }, "optimizer_steps is -4"},
		{"a best epoch to come", func(s *checkpointState) { s.BestEpoch = 2 }, "best_epoch is 2"},
		{"epochs without seconds", func(s *checkpointState) { s.Epoch = 3 },
			"number of epoch_seconds is 0"},
		{"less than as likely", func(s *checkpointState) { s.Near = &checkpointNearness{Before: 1} },
			"a factor of locality is 0"},
		{"factors of epochs to come", func(s *checkpointState) {
			s.Near = &checkpointNearness{Factor: 2, Before: 1,
				Adapted: record.Adapted{Factors: []float64{1}, Shares: []float64{0.3}}}
		}, "factors of locality do not fit the epochs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &checkpointState{
				Format:          rundir.CheckpointFormat,
				checkpointPlace: checkpointPlace{Epoch: 1, Step: 1, StepsPerEpoch: 9, OptimizerSteps: 1},
			}
			c.spoil(s)
			run := t.TempDir()
			state := func(rundir.FileSums) any { return s }
			if err := rundir.WriteCheckpoint(rundir.CheckpointPath(run, 1, false), nil, state); err != nil {
				t.Fatal(err)
			}
			_, err := rundir.NewestCheckpoint(run, SoundState)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
