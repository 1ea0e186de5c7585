package checkpoint

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/runs/record"
)

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
	var want Sums
	var e record.Epoch
	filled(reflect.ValueOf(&e).Elem(), new(int))
	e.PhaseSeconds = map[string]float64{"sample": 1.5, "wait": 2.5}
	var rows trace.Counters
	filled(reflect.ValueOf(&rows).Elem(), new(int))
	want.Add(&e, rows)
	want.Add(&e, rows)
	want.Collectives = 3
	var kept Sums
	reread(want.Copy(), &kept)
	if !reflect.DeepEqual(kept, want) {
		t.Errorf("of the sums\n%+v\na checkpoint keeps\n%+v", want, kept)
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

// Counters of older versions, named as fields were then, are read under the names of today.
func TestOldCountersAreRead(t *testing.T) {
	var old oldCounters
	var got trace.Counters
	if err := json.Unmarshal([]byte(`{"Remote":7,"Rounds":5,"Gone":1,"Sampling":{"Rounds":2},`+
		`"Shuffle":{"Rounds":3,"Got":4}}`), &old); err != nil {
		t.Fatal(err)
	}
	if err := old.read(reflect.ValueOf(&got).Elem()); err != nil {
		t.Fatal(err)
	}
	want := trace.Counters{Remote: 7, Collectives: 5, Sampling: trace.Sampling{Collectives: 2},
		Shuffles: trace.Shuffles{Collectives: 3, Got: 4}}
	if got != want {
		t.Errorf("read %+v, want %+v", got, want)
	}
}

// Counts that no run can have are rejected although the seal is valid.
func TestStateOfNoRunIsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(s *State)
		want  string
	}{
		{"sound", func(*State) {}, ""},
		{"before the first epoch", func(s *State) { s.Epoch = 0 }, "epoch is 0"},
		{"beyond the steps of an epoch", func(s *State) { s.Step = 10 },
			"step is 10, but must be 0 to 9"},
		{"a negative step", func(s *State) { s.Step = -1 }, "step is -1"},
		{"no steps", func(s *State) { s.StepsPerEpoch = 0 }, "steps_per_epoch is 0"},
		{"updates undone", func(s *State) { s.OptimizerSteps = -4 }, "optimizer_steps is -4"},
		{"a best epoch to come", func(s *State) { s.BestEpoch = 2 }, "best_epoch is 2"},
		{"epochs without seconds", func(s *State) { s.Epoch = 3 },
			"number of epoch_seconds is 0"},
		{"less than as likely", func(s *State) { s.Near = &Nearness{Before: 1} },
			"a factor of locality is 0"},
		{"factors of epochs to come", func(s *State) {
			s.Near = &Nearness{Factor: 2, Before: 1,
				Adapted: record.Adapted{Factors: []float64{1}, Shares: []float64{0.3}}}
		}, "the number of factors of locality is above that of epochs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &State{
				Format: rundir.CheckpointFormat,
				Place:  Place{Epoch: 1, Step: 1, StepsPerEpoch: 9, OptimizerSteps: 1},
			}
			c.spoil(s)
			run := t.TempDir()
			state := func(rundir.FileSums) any { return s }
			if err := rundir.WriteCheckpoint(rundir.CheckpointPath(run, 1, false), nil,
				state); err != nil {
				t.Fatal(err)
			}
			_, err := rundir.NewestCheckpoint(run, Sound)
			if (err == nil) != (c.want == "") ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
