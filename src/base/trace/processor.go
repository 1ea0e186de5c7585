package trace

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Processor measures how busy a rank keeps its CPUs.
type Processor struct {
	CPUs float64 // number of CPUs of this rank
	// Number of ranks in this process. Each rank counts an equal share of the process's time as its
	// own.
	Ranks int
	// Whether the main thread polls for messages. If so, its time does not count as work.
	Polls bool
	// Returns the time for which this rank's threads have so far spun while they looked for work.
	// It may be nil.
	Spun func() time.Duration

	began time.Time
	used  time.Duration
}

// Begin starts measuring.
func (p *Processor) Begin() {
	if p.Ranks > 0 {
		p.began, p.used = time.Now(), p.worked()
	}
}

// Busy returns in which share of the time since Begin the CPUs have worked for this rank. Idle and
// spinning time do not count. If the main thread polls, its time does not count either. Busy
// returns 0 if nothing was measured.
func (p *Processor) Busy() float64 {
	if p.CPUs == 0 || p.Ranks == 0 || p.began.IsZero() {
		return 0
	}
	return (p.worked() - p.used).Seconds() / (time.Since(p.began).Seconds() * p.CPUs)
}

func (p *Processor) worked() time.Duration {
	t := ProcessorTime(p.Polls) / time.Duration(p.Ranks)
	if p.Spun != nil {
		t -= p.Spun()
	}
	return t
}

// ProcessorTime returns the processor time of this process. If leaveOutMain is set, the time of the
// main thread does not count. It returns 0 if the system does not tell the time.
func ProcessorTime(leaveOutMain bool) time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	t := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if leaveOutMain {
		t -= mainThread()
	}
	return t
}

// mainThread returns the processor time of the main thread. It reads the clock that Linux has for
// each thread.
func mainThread() time.Duration {
	const perThread, scheduler = 4, 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^os.Getpid()<<3|perThread|scheduler), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
