package trace

import (
	"testing"
	"time"
)

// What is measured is this process's processor time, less what was spun, over the CPUs' time.
func TestProcessor(t *testing.T) {
	spun := time.Duration(0)
	p := Processor{CPUs: 2, Ranks: 1, Spun: func() time.Duration { return spun }}
	if p.Busy() != 0 {
		t.Error("busy before it began")
	}
	before, begun := ProcessorTime(false), time.Now()
	p.Begin()
	for ProcessorTime(false) < before+20*time.Millisecond {
	}
	atLeast := 0.02 / (2 * (time.Since(begun).Seconds() + 0.001))
	busy := p.Busy()
	if busy <= 0 || busy < atLeast/2 { // Begin came a moment after before was read
		t.Errorf("busy %g, want at least %g", busy, atLeast/2)
	}
	spun = time.Hour
	if p.Busy() >= 0 {
		t.Error("what was spun counts as work")
	}
	spun = 0
	p.Ranks = 2
	p.Begin()
	for begun, used := time.Now(),
		ProcessorTime(false); ProcessorTime(false) < used+20*time.Millisecond; {
		both := p.Busy() * 2 * time.Since(begun).Seconds()
		if both > (ProcessorTime(false) - before).Seconds() {
			t.Fatalf("a rank of two has worked %g s, more than the process", both)
		}
	}
	if (&Processor{}).Busy() != 0 {
		t.Error("busy without CPUs")
	}
}

// The main thread's time is part of the process's.
func TestProcessorTimeOfMain(t *testing.T) {
	main := mainThread() // read first: it only grows
	if all, rest := ProcessorTime(false), ProcessorTime(true); main == 0 ||
		rest > ProcessorTime(false) || all < main {
		t.Errorf("%v in all, %v on the main thread, %v on the others", all, main, rest)
	}
}
