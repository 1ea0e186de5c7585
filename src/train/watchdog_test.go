package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"halognn/src/comm"
	"halognn/src/compute/ref"
	"halognn/src/trace"
)

func TestJudge(t *testing.T) {
	const limit = time.Minute
	at := func(count uint64, age time.Duration, epoch, step int64) beat {
		return beat{count: count, age: age, epoch: epoch, step: step}
	}
	long, short := 2*limit, limit/2
	for _, c := range []struct {
		name           string
		before, now    []beat // of the other ranks; this one is rank 0, at epoch 2, step 5
		silent, behind []int
		stalled        bool
	}{
		{"alone", nil, nil, nil, nil, true},
		{"one is at work", []beat{at(7, long, 2, 5), at(7, short, 2, 5)}, []beat{at(8, long, 2, 5), at(8, short, 2, 5)}, nil, nil, false},
		{"one is silent", []beat{at(7, short, 2, 5), at(7, long, 2, 5)}, []beat{at(7, short, 2, 5), at(8, long, 2, 5)}, []int{1}, []int{2}, true},
		{"one is silent, one at work", []beat{at(7, short, 2, 5), at(7, short, 2, 5)}, []beat{at(7, short, 2, 5), at(8, short, 2, 5)}, nil, nil, false},
		{"one has never beaten", []beat{{}, at(7, long, 2, 5)}, []beat{{}, at(8, long, 2, 5)}, []int{1}, []int{2}, true},
		{"one is a step behind", []beat{at(7, long, 2, 5), at(7, long, 2, 4)}, []beat{at(8, long, 2, 5), at(8, long, 2, 4)}, nil, []int{2}, true},
		{"one is an epoch behind", []beat{at(7, long, 1, 9), at(7, long, 2, 4)}, []beat{at(8, long, 1, 9), at(8, long, 2, 4)}, nil, []int{1}, true},
		{"all the others are ahead", []beat{at(7, long, 2, 6), at(7, long, 3, 0)}, []beat{at(8, long, 2, 6), at(8, long, 3, 0)}, nil, nil, true},
	} {
		own := at(9, long, 2, 5)
		silent, behind, stalled := judge(0, limit, own, append([]beat{own}, c.before...), append([]beat{own}, c.now...))
		if !reflect.DeepEqual(silent, c.silent) || !reflect.DeepEqual(behind, c.behind) || stalled != c.stalled {
			t.Errorf("%s: silent %v, behind %v, stalled %t", c.name, silent, behind, stalled)
		}
	}
}

// Between two looks lie so many beats that a rank on a busy node, which is late with its own, is not taken for one that has stopped.
func TestALateBeatIsNoSilence(t *testing.T) {
	const limit, every = 16 * time.Second, time.Second
	for _, c := range []struct {
		name   string
		beats  func(tick int) beat // of rank 1
		silent []int
		at     int // tick at which this rank, not at work since tick 0, ends the job; 0: never
	}{
		{"at work, late by two beats", func(tick int) beat { return beat{count: uint64(tick / 3), age: time.Second} }, nil, 0},
		{"not at work, late by two beats", func(tick int) beat { return beat{count: uint64(tick / 3), age: time.Duration(tick) * every} }, nil, 16},
		{"stopped at tick 5", func(tick int) beat { return beat{count: uint64(min(tick, 5))} }, []int{1}, 16},
		{"stopped at tick 14", func(tick int) beat { return beat{count: uint64(min(tick, 14))} }, []int{1}, 20},
		{"at work until tick 20, then waiting", func(tick int) beat {
			return beat{count: uint64(tick), age: max(0, time.Duration(tick-20)*every)}
		}, nil, 36},
	} {
		l := looks{rank: 0, limit: limit, every: every}
		var begin time.Time
		ended := 0
		var silent []int
		for tick := 1; tick <= 100 && ended == 0; tick++ {
			own := beat{count: uint64(tick), age: time.Duration(tick) * every}
			var stalled bool
			if silent, _, stalled = l.look(own, begin.Add(own.age), func() []beat { return []beat{own, c.beats(tick)} }); stalled {
				ended = tick
			}
		}
		if ended != c.at || !reflect.DeepEqual(silent, c.silent) {
			t.Errorf("%s: ended at tick %d with %v silent, want tick %d and %v", c.name, ended, silent, c.at, c.silent)
		}
	}
}

func TestHeartbeatFile(t *testing.T) {
	h := heartbeat{filepath.Join(t.TempDir(), HeartbeatFile), 3}
	if err := h.write(0, beat{}); err == nil {
		t.Error("a beat made the file, which says that the directory is not shared")
	}
	if err := h.create(); err != nil {
		t.Fatal(err)
	}
	want := []beat{{}, {12, 61500 * time.Millisecond, 3, 14, place(trace.Sync)}, {1<<63 - 1, 10000 * time.Hour, 1 << 40, 1 << 50, inTest}}
	for _, r := range []int{2, 1, 1} {
		if err := h.write(r, want[r]); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.read(); !reflect.DeepEqual(got, want) {
		t.Errorf("wrote %v, read %v", want, got)
	}
	if !h.claim() || h.claim() {
		t.Error("not the first rank alone may tell")
	}
	if err := errors.Join(h.create(), os.Remove(h.path)); err != nil {
		t.Fatal(err)
	}
	if got := h.read(); !h.claim() || !reflect.DeepEqual(got, make([]beat, 3)) {
		t.Errorf("a file that is gone has %v, or a new one keeps the claim of an old", got)
	}
}

func TestWhereARankIs(t *testing.T) {
	for want, b := range map[string]beat{
		"before its first step":             {},
		"at epoch 2, step 5, in stage sync": {epoch: 2, step: 5, place: place(trace.Sync)},
		"in the evaluation after epoch 2":   {epoch: 2, step: 9, place: inEvaluation},
		"in the final test":                 {epoch: 2, step: 10, place: inTest},
		"changing the cache before epoch 3": {epoch: 3, place: inSwitch},
	} {
		if got := b.where(); got != want {
			t.Errorf("%v is %q, want %q", b, got, want)
		}
	}
}

// A rank that computes, or whose pages come from disk, is at work even if nothing ends for long.
func TestWhatCountsAsWork(t *testing.T) {
	const every = time.Second
	last := work{progress: 3, cpu: time.Minute, pages: 40}
	for _, c := range []struct {
		name string
		now  work
		want bool
	}{
		{"nothing", last, false},
		{"a stage has ended", work{4, last.cpu, last.pages}, true},
		{"it computes", work{3, last.cpu + every/2, last.pages}, true},
		{"it beats", work{3, last.cpu + every/100, last.pages}, false},
		{"it reads a mapped file", work{3, last.cpu, last.pages + 100}, true},
	} {
		if got := c.now.since(last, every); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	w := watchdog{}
	before, main := w.work(), mainThread()
	for sum := 0; w.work().cpu < before.cpu+20*time.Millisecond; sum++ { // it ends if computing is seen
	}
	if main == 0 {
		t.Error("the main thread has no clock")
	}
}

// hangs is a Progress that holds rank 0 up in its second step until somebody is told.
type hangs struct {
	heard
	steps int
	until chan struct{}
}

func (h *hangs) Step(float64) {
	if h.steps++; h.steps == 2 {
		<-h.until
	}
}

// A run in which rank 0 hangs is told of once, by whichever rank sees it first; one that gets over it ends as if nothing had happened.
func TestWatchdogTellsOfARankThatHangs(t *testing.T) {
	shards, dir := generated(t), t.TempDir()
	h := &hangs{until: make(chan struct{})}
	var mu sync.Mutex
	var told []error
	err := comm.RunWorld(3, func(c comm.Comm) error {
		env := Env{Comm: c, Shards: shards, Device: ref.New(), Host: ref.Host{}, Workers: 1, Dir: dir, Stall: 200 * time.Millisecond}
		env.OnStall = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if told = append(told, err); len(told) == 1 {
				close(h.until)
			}
		}
		if c.Rank() == 0 {
			env.Progress = h
		}
		_, err := Run(context.Background(), env, sageOptions())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || !errors.Is(told[0], ErrStalled) || !strings.Contains(told[0].Error(), "at epoch 1, step ") {
		t.Errorf("told of %v", told)
	}
	if _, err := os.Stat(filepath.Join(dir, HeartbeatFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the heartbeat was left: %v", err)
	}
}
