package trace

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Processor measures how busy a rank keeps its CPUs.
type Processor struct {
	CPUs float64 // number of CPUs of this rank
	// number of ranks of this process: each counts an equal share of the process's time as its own
	Ranks int
	// whether the main thread polls for messages: its time does not count as work
	Polls bool
	// time that this rank's threads have spun so far, looking for work; may be nil
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

// Busy returns the share of the CPUs' time since Begin in which they worked for this rank. Idle and
// spinning time do not count nor, if the main thread polls, the time of that thread. It is 0 if
// nothing was measured.
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

// ProcessorTime returns the processor time of this process, without that of its main thread if
// leaveOutMain. It is 0 if the system does not tell it.
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

// mainThread returns the processor time of the main thread, using Linux's clock id of a thread.
func mainThread() time.Duration {
	const perThread, scheduler = 4, 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^os.Getpid()<<3|perThread|scheduler), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
