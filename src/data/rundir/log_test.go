package rundir

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

func TestLogWritesOneObjectPerLine(t *testing.T) {
	dir := t.TempDir()
	l, err := Begin(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		l.Write(map[string]int{"step": i})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(filepath.Join(dir, MetricsFile))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %q", len(lines), text)
	}
	for i, line := range lines {
		var record struct{ Step int }
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Step != i {
			t.Errorf("line %d is %q (%v)", i, line, err)
		}
	}
}

func TestLogKeepsItsFirstError(t *testing.T) {
	l, err := Begin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l.Write(func() {}) // not JSON
	l.Write(1)
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), MetricsFile) {
		t.Errorf("Close gave %v", err)
	}
}

// A run that goes on finds the records before its checkpoint; what came later is its history, once.
func TestContinue(t *testing.T) {
	records := []string{
		`{"kind":"step","epoch":1,"step":0}`, `{"kind":"step","epoch":1,"step":1}`,
		`{"kind":"epoch","epoch":1}`, `{"kind":"eval","epoch":1}`,
		`{"kind":"step","epoch":2,"step":0}`, `{"kind":"step","epoch":2,"step":1}`,
		`{"kind":"epoch","epoch":2}`,
	}
	for _, c := range []struct {
		at   Position
		want int // records that stay
	}{
		{Position{1, 0}, 0}, {Position{1, 1}, 1}, {Position{1, 2}, 2}, {Position{2, 0}, 4},
		{Position{2, 1}, 5}, {Position{2, 2}, 6}, {Position{3, 0}, 7},
	} {
		dir := t.TempDir()
		checkpoints := filepath.Join(dir, CheckpointsDir)
		for _, name := range []string{
			"step-00000001", "step-00000002", "step-00000003", ".step-00000004",
		} {
			if err := os.MkdirAll(filepath.Join(checkpoints, name), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		text := strings.Join(records, "\n") + "\n" + `{"kind":"step","epoch":1,"st`
		for name, text := range map[string]string{MetricsFile: text, SummaryFile: "{}"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		l, err := Continue(dir, CheckpointPath(dir, 2, false), c.at)
		if err != nil {
			t.Fatal(err)
		}
		l.Write("next")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, MetricsFile))
		want := append(slices.Clone(records[:c.want]), `"next"`, "")
		if err != nil || string(got) != strings.Join(want, "\n") {
			t.Errorf("%+v: the log holds\n%s(%v)", c.at, got, err)
		}
		for range 2 { // a start that is killed at once repeats nothing
			if l, err = Continue(dir, CheckpointPath(dir, 2, false), c.at); err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		history, err := os.ReadFile(filepath.Join(dir, HistoryFile))
		want = append(slices.Clone(records[c.want:]), `"next"`, "")
		if err != nil || string(history) != strings.Join(want, "\n") {
			t.Errorf("%+v: the history holds\n%s(%v)", c.at, history, err)
		}
		left := namesOf(t, dir)
		if fmt.Sprint(left) != "[checkpoints metrics.history.jsonl metrics.jsonl]" {
			t.Errorf("in the run directory are %v", left)
		}
		left = namesOf(t, checkpoints)
		if fmt.Sprint(left) != "[damaged-step-00000003 step-00000001 step-00000002]" {
			t.Errorf("checkpoints are %v", left)
		}
	}
}

// A run that begins again, as it had saved nothing, keeps what was measured before; a first start
// has no history.
func TestBeginKeepsHistory(t *testing.T) {
	dir := t.TempDir()
	for n, want := range []string{"[metrics.jsonl]", "[metrics.history.jsonl metrics.jsonl]"} {
		l, err := Begin(dir)
		if err != nil {
			t.Fatal(err)
		}
		l.Write(n)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if left := namesOf(t, dir); fmt.Sprint(left) != want {
			t.Errorf("after start %d: %v, want %s", n+1, left, want)
		}
	}
	for name, want := range map[string]string{HistoryFile: "0\n", MetricsFile: "1\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, want %q (%v)", name, got, want, err)
		}
	}
}

func namesOf(t *testing.T, dir string) []string {
	t.Helper()
	names, err := namesIn(dir, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A reader sees a record once the next one follows after a while, and not before.
func TestLogIsReadWhileItIsWritten(t *testing.T) {
	dir := t.TempDir()
	l, err := Begin(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	now := l.flushed
	l.now = func() time.Time { return now }
	visible := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, MetricsFile))
		return strings.Count(string(text), "\n")
	}
	for _, c := range []struct {
		later time.Duration
		want  int
	}{{0, 0}, {flushEvery - 1, 0}, {1, 3}, {1, 3}, {flushEvery, 5}} {
		now = now.Add(c.later)
		l.Write(map[string]int{"step": 1})
		if got := visible(); got != c.want {
			t.Errorf("%v later: %d records are visible, want %d", c.later, got, c.want)
		}
	}
}

// What a killed writer left goes when the run begins again, and nothing else.
func TestScrapsAreRemoved(t *testing.T) {
	run := t.TempDir()
	for _, name := range []string{
		".model.safetensors123", ".learned-0003.safetensors4567", ".metrics.jsonl89", // of us
		".notes.json1", ".model.safetensors", "model.safetensors", "learned-0003.safetensors",
	} {
		if err := os.WriteFile(filepath.Join(run, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Begin(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	want := "[.model.safetensors .notes.json1 learned-0003.safetensors metrics.jsonl " +
		"model.safetensors]"
	if names := namesOf(t, run); fmt.Sprint(names) != want {
		t.Errorf("left are %v, want %v", names, want)
	}
}
