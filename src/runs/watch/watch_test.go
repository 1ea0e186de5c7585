package watch

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
)

func TestDiagnose(t *testing.T) {
	const limit = time.Minute
	at := func(count uint64, age time.Duration, epoch, step int64) beat {
		return beat{Count: count, Age: age, Epoch: epoch, Step: step}
	}
	long, short := 2*limit, limit/2
	for _, c := range []struct {
		name           string
		before, now    []beat // of the other ranks; this one is rank 0, at epoch 2, step 5
		silent, behind []int
		stalled        bool
	}{
		{"alone", nil, nil, nil, nil, true},
		{
			"one is at work",
			[]beat{at(7, long, 2, 5), at(7, short, 2, 5)},
			[]beat{at(8, long, 2, 5), at(8, short, 2, 5)},
			nil, nil, false,
		},
		{
			"one is silent",
			[]beat{at(7, short, 2, 5), at(7, long, 2, 5)},
			[]beat{at(7, short, 2, 5), at(8, long, 2, 5)},
			[]int{1}, []int{2}, true,
		},
		{
			"one is silent, one at work",
			[]beat{at(7, short, 2, 5), at(7, short, 2, 5)},
			[]beat{at(7, short, 2, 5), at(8, short, 2, 5)},
			nil, nil, false,
		},
		{
			"one has never beaten",
			[]beat{{}, at(7, long, 2, 5)},
			[]beat{{}, at(8, long, 2, 5)},
			[]int{1}, []int{2}, true,
		},
		{
			"one is a step behind",
			[]beat{at(7, long, 2, 5), at(7, long, 2, 4)},
			[]beat{at(8, long, 2, 5), at(8, long, 2, 4)},
			nil, []int{2}, true,
		},
		{
			"one is an epoch behind",
			[]beat{at(7, long, 1, 9), at(7, long, 2, 4)},
			[]beat{at(8, long, 1, 9), at(8, long, 2, 4)},
			nil, []int{1}, true,
		},
		{
			"all the others are ahead",
			[]beat{at(7, long, 2, 6), at(7, long, 3, 0)},
			[]beat{at(8, long, 2, 6), at(8, long, 3, 0)},
			nil, nil, true,
		},
	} {
		own := at(9, long, 2, 5)
		before, now := append([]beat{own}, c.before...), append([]beat{own}, c.now...)
		silent, behind, stalled := diagnose(0, limit, own, before, now)
		got, want := []any{silent, behind, stalled}, []any{c.silent, c.behind, c.stalled}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: silent, behind, stalled are %v, want %v", c.name, got, want)
		}
	}
}

// Between two scans lie so many beats that a rank on a busy node, which is late with its own, is
// not taken for one that has stopped.
func TestALateBeatIsNoSilence(t *testing.T) {
	const limit, every = 16 * time.Second, time.Second
	for _, c := range []struct {
		name   string
		beats  func(tick int) beat // of rank 1
		silent []int
		at     int // tick at which this rank, not at work since tick 0, ends the job; 0: never
	}{
		{"at work, late by two beats", func(tick int) beat {
			return beat{Count: uint64(tick / 3), Age: time.Second}
		}, nil, 0},
		{"not at work, late by two beats", func(tick int) beat {
			return beat{Count: uint64(tick / 3), Age: time.Duration(tick) * every}
		}, nil, 16},
		{"stopped at tick 5", func(tick int) beat {
			return beat{Count: uint64(min(tick, 5))}
		}, []int{1}, 16},
		{"stopped at tick 14", func(tick int) beat {
			return beat{Count: uint64(min(tick, 14))}
		}, []int{1}, 20},
		{"at work until tick 20, then waiting", func(tick int) beat {
			return beat{Count: uint64(tick), Age: max(0, time.Duration(tick-20)*every)}
		}, nil, 36},
	} {
		s := scans{rank: 0, limit: limit, every: every}
		var begin time.Time
		ended := 0
		var silent []int
		for tick := 1; tick <= 100 && ended == 0; tick++ {
			own := beat{Count: uint64(tick), Age: time.Duration(tick) * every}
			var stalled bool
			all := func() []beat { return []beat{own, c.beats(tick)} }
			if silent, _, stalled = s.scan(own, begin.Add(own.Age), all); stalled {
				ended = tick
			}
		}
		if ended != c.at || !reflect.DeepEqual(silent, c.silent) {
			t.Errorf("%s: ended at tick %d with %v silent, want tick %d and %v",
				c.name, ended, silent, c.at, c.silent)
		}
	}
}

func TestWhereARankIs(t *testing.T) {
	for want, b := range map[string]beat{
		"before its first step":             {},
		"at epoch 2, step 5, in stage sync": {Epoch: 2, Step: 5, Place: int64(trace.Sync)},
		"in the evaluation after epoch 2":   {Epoch: 2, Step: 9, Place: int64(Evaluation)},
		"in the final test":                 {Epoch: 2, Step: 10, Place: int64(FinalTest)},
		"changing the cache before epoch 3": {Epoch: 3, Place: int64(CacheSwitch)},
	} {
		if got := where(b); got != want {
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
	w := Watchdog{}
	before := w.work()
	// ends if computing is seen
	for sum := 0; w.work().cpu < before.cpu+20*time.Millisecond; sum++ {
	}
}

// When no rank is at work, one of them tells, and says what it has seen of itself and of the other.
func TestOneRankTells(t *testing.T) {
	dir := t.TempDir()
	beats := rundir.HeartbeatOf(dir, 2)
	told := make(chan error, 2)
	options := func(rank int) Options {
		tell := func(err error) { told <- err }
		return Options{Beats: beats, Rank: rank, Limit: 2 * time.Second, Stalled: tell}
	}
	if w, err := Start(options(1)); err == nil || w.Close() != nil {
		t.Errorf("a watch began without a heartbeat, in a directory that is not shared: %v", err)
	}
	if err := beats.Create(); err != nil {
		t.Fatal(err)
	}
	var ranks []*Watchdog
	for r := range 2 {
		w, err := Start(options(r))
		if err != nil {
			t.Fatal(err)
		}
		w.Prepared("sample", 7)
		w.At(2, 5, Place(trace.Wait))
		w.Alive()
		ranks = append(ranks, w)
	}
	err := <-told
	for _, want := range []string{
		"no progress", "at epoch 2, step 5, in stage wait, waiting for the next minibatch",
		"the last stage to end was sample of minibatch 7",
	} {
		if !errors.Is(err, ErrStalled) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	for _, w := range ranks {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(told) > 0 {
		t.Errorf("a second rank tells: %v", <-told)
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.HeartbeatFile)); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("the heartbeat is left: %v", err)
	}
}

func TestNilWatchesNothing(t *testing.T) {
	var w *Watchdog
	w.Alive()
	w.Prepared("sample", 1)
	w.At(1, 0, Evaluation)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// What a rank reads by itself ends the job if nothing comes for the limit, unless the rank waits
// for another one on purpose; bytes that come, however few, are progress.
func TestReadingThatDoesNotEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 2*fewChars), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		ends bool
		read func(r *Reading)
	}{
		{"nothing comes", true, func(*Reading) { time.Sleep(50 * time.Millisecond) }},
		{"bytes come", false, func(*Reading) {
			_, _ = os.ReadFile(file)
			time.Sleep(10 * time.Millisecond)
		}},
		{"it waits for another rank", false, func(r *Reading) {
			r.Waiting(true)
			time.Sleep(50 * time.Millisecond)
			r.Waiting(false)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they sleep
			told := make(chan error, 1)
			r := Reading{Limit: 2 * time.Second, Stalled: func(err error) { told <- err }}
			var err error
			_ = r.During("parts/x", func() error {
				lasts := 2 * r.Limit
				if c.ends {
					lasts = 5 * time.Minute // a guard
				}
				for end := time.Now().Add(lasts); err == nil && time.Now().Before(end); {
					c.read(&r)
					select {
					case err = <-told:
					default:
					}
				}
				return nil
			})
			if c.ends != errors.Is(err, ErrStalled) ||
				c.ends && !strings.Contains(err.Error(), "reading parts/x") {
				t.Errorf("the reading ended by %v", err)
			}
		})
	}
}
