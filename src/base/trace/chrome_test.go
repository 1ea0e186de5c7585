package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// event is what readers of the format see.
type event struct {
	Name, Cat, Ph string
	Ts, Dur       float64
	Pid, Tid      int
	Args          struct {
		Name              string
		Item, Epoch, Step int
	}
}

func record(t *testing.T, base time.Time, spans func(*Recorder)) []event {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "trace")
	r, err := CreateRecorder(dir, 3, base.UnixNano())
	if err != nil {
		t.Fatal(err)
	}
	spans(r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "rank-0003.json"))
	if err != nil {
		t.Fatal(err)
	}
	var events []event
	if err := json.Unmarshal(text, &events); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, text)
	}
	return events
}

// Spans of one stage that overlap get tracks of their own, those that do not share one; every track
// is named once.
func TestSpansThatOverlapGetTracksOfTheirOwn(t *testing.T) {
	base := time.Unix(1000, 0)
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	events := record(t, base, func(r *Recorder) {
		r.Pass("train", 2, 2, 0)
		r.Span("sample", 0, at(0), 10*time.Millisecond)
		r.Span("sample", 1, at(5), 10*time.Millisecond)
		r.Span("sample", 2, at(10), 10*time.Millisecond)
		r.Span("forward", 0, at(12), 1500*time.Microsecond)
	})
	tracks, named := map[int]int{}, map[int]string{}
	for _, e := range events {
		if e.Pid != 3 {
			t.Errorf("%s: process %d, want the rank", e.Name, e.Pid)
		}
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			if named[e.Tid] != "" {
				t.Errorf("track %d is named twice", e.Tid)
			}
			named[e.Tid] = e.Args.Name
		case e.Ph == "X" && e.Name == "sample":
			if named[e.Tid] == "" {
				t.Errorf("item %d is on track %d before that has a name", e.Args.Item, e.Tid)
			}
			tracks[e.Args.Item] = e.Tid
		case e.Ph == "X":
			if e.Ts != 12000 || e.Dur != 1500 || e.Cat != "train" || e.Args.Epoch != 2 {
				t.Errorf("forward: %+v", e)
			}
		}
	}
	if tracks[0] != tracks[2] || tracks[0] == tracks[1] || named[tracks[0]] != "sample" ||
		named[tracks[1]] != "sample 2" {
		t.Errorf("items are on tracks %v, named %v", tracks, named)
	}
}

func TestStepsOfSeveralMinibatches(t *testing.T) {
	base := time.Now()
	events := record(t, base, func(r *Recorder) {
		r.Pass("train", 1, 4, 0)
		r.Span("sample", 7, base, time.Millisecond)
	})
	if last := events[len(events)-1]; last.Args.Item != 7 || last.Args.Step != 1 {
		t.Errorf("item 7 of 4 a step: %+v", last)
	}
}

// What a killed run leaves is a list without an end; closing the bracket must be all that is
// missing.
func TestATraceWithoutEndIsReadable(t *testing.T) {
	dir := t.TempDir()
	r, err := CreateRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Span("sample", 0, time.Now(), time.Millisecond)
	r.Flush()
	text, err := os.ReadFile(filepath.Join(dir, "rank-0000.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid([]byte(string(text)+"]")) || !strings.Contains(string(text), `"sample"`) {
		t.Errorf("cut off:\n%s", text)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNoRecorderRecordsNothing(t *testing.T) {
	var r *Recorder
	r.Pass("train", 1, 1, 0)
	r.Span("sample", 0, time.Now(), time.Second)
	r.Flush()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestSpansAllocateNothing(t *testing.T) {
	r, err := CreateRecorder(t.TempDir(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r.Span("sample", 0, begin, time.Millisecond)
	if n := testing.AllocsPerRun(100,
		func() {
			r.Span("sample", 1, begin.Add(time.Second),
				time.Millisecond)
			begin = begin.Add(time.Second)
		}); n != 0 {
		t.Errorf("%g allocations a span", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func BenchmarkSpan(b *testing.B) {
	r, err := CreateRecorder(b.TempDir(), 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	for i := 0; b.Loop(); i++ {
		r.Span("sample", i, begin, time.Millisecond)
		begin = begin.Add(time.Millisecond)
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}

// What is foreseen of the next epoch belongs to that, and so on.
func TestSpansOfTheNextEpoch(t *testing.T) {
	base := time.Unix(1000, 0)
	events := record(t, base, func(r *Recorder) {
		r.Pass("train", 2, 2, 6)
		r.Span("sample", 5, base, time.Millisecond)
		r.Span("sample", 9, base, time.Millisecond)
		r.Span("sample", 12, base, time.Millisecond)
	})
	var got []string
	for _, e := range events {
		if e.Ph == "X" {
			got = append(got, fmt.Sprintf("epoch %d, step %d, item %d", e.Args.Epoch, e.Args.Step,
				e.Args.Item))
		}
	}
	if want := []string{"epoch 2, step 2, item 5", "epoch 3, step 1, item 3",
		"epoch 4, step 0, item 0"}; !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
}
