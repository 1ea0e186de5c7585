package trace

import (
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

func TestTableAlignsColumns(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, [][]string{{"phase", "s"}, {"gather", "12.5"}}); err != nil {
		t.Fatal(err)
	}
	if want := "  phase      s\n  gather  12.5\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
