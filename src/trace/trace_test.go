package trace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestClockAddsFromManyGoroutinesAndTakeStartsAgain(t *testing.T) {
	var c Clock
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				c.Add(Gather, time.Microsecond)
			}
		})
	}
	wg.Wait()
	if got := c.Take(); got[Gather] != 0.008 || got[Sample] != 0 {
		t.Errorf("took %v, want 8 ms of gather only", got)
	}
	if got := c.Take(); got[Gather] != 0 {
		t.Errorf("%v s are left after Take", got[Gather])
	}
}

func TestLogWritesOneObjectPerLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	l, err := CreateLog(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		l.Write(map[string]int{"step": i})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
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
	l, err := CreateLog(filepath.Join(t.TempDir(), "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	l.Write(func() {}) // not JSON
	l.Write(1)
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), "metrics.jsonl") {
		t.Errorf("Close gave %v", err)
	}
}

func TestTableAlignsColumns(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, [][]string{{"phase", "s"}, {"gather", "12.5"}}); err != nil {
		t.Fatal(err)
	}
	if want := "  phase      s\n  gather  12.5\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
