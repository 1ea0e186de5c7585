package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"halognn/src/base/interrupt"
	"halognn/src/data/dataset"
)

// stopSignals are the signals that ask a run to save its state and end. They come from Slurm's
// --signal, at the end of a time limit, by Ctrl-C, or when the terminal is closed.
var stopSignals = []os.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT, syscall.SIGHUP}

// asked returns a channel that receives the first request to end: one of stopSignals, or SIGPIPE
// when the reader of standard error is gone. Open MPI's mpirun sends a SIGCONT before its SIGTERM,
// and this SIGCONT counts as the request. A second signal ends the process. asked must be called
// only once in a process.
func asked() <-chan os.Signal {
	signal.Ignore(syscall.SIGPIPE) // writes fail instead
	signals, first := interrupt.First(stopSignals...), make(chan os.Signal, 1)
	var woken <-chan struct{}
	if os.Getenv("OMPI_COMM_WORLD_SIZE") != "" {
		woken = interrupt.Woken(byLauncher)
	}
	go func() {
		var s os.Signal
		select {
		case s = <-signals:
		case <-woken:
			s = syscall.SIGTERM // mpirun sends this signal next
		case <-stderr.closed:
			s = syscall.SIGPIPE
		}
		now := time.Now()
		askedAt.Store(&now)
		first <- s
	}()
	return first
}

// byLauncher reports whether the process pid is Open MPI's mpirun or one of its daemons. It assumes
// so for pid 0, which stands for a sender that cannot be seen from here.
func byLauncher(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	name, _, _ := strings.Cut(strings.TrimSpace(string(text)), ".") // mpirun.openmpi
	return pid == 0 || slices.Contains([]string{"mpirun", "mpiexec", "orterun", "orted", "prterun",
		"prte", "prted"}, name)
}

// askedAt is when the process was first asked to end; nil if it was not asked yet.
var askedAt atomic.Pointer[time.Time]

// stopOnSignals returns a channel that is closed by the first request to end: all ranks of a
// process stop together.
var stopOnSignals = sync.OnceValue(func() <-chan struct{} {
	stop, first := make(chan struct{}), asked()
	go func() {
		<-first
		close(stop)
	}()
	return stop
})

// startGrace is how long a start may continue after a request to stop.
const startGrace = 5 * time.Second

// errNotStarted returns the error of a run that a signal stopped during its start, if the start
// could not be ended cleanly.
func errNotStarted() error {
	return withCode(exitRequeue, errors.New("stopped by a signal before the start was "+
		"complete, with nothing trained; start again"))
}

// watchStart watches the start of a run. If a stop is asked for, and the start does not end within
// startGrace, for instance because a file system does not answer, it ends the process with the
// error that the function `reason` returns. The caller calls the function `started` once it can
// stop in order.
func (p *process) watchStart(stop <-chan struct{}, reason func() error) (started func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-stop:
		case <-done:
			return
		}
		select {
		case <-time.After(startGrace):
			p.fail(reason())
		case <-done:
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// tellStopping waits for a signal and then says, on rank 0, what happens next.
func tellStopping(stop <-chan struct{}, ended <-chan struct{}) {
	select {
	case <-stop:
		slog.Info("asked to stop by a signal: finishing the step and saving the state; a second "+
			"signal ends the run at once, without saving", "rank", 0)
	case <-ended:
	}
}

// untilSignal returns a context that ends at the first request to end. Commands that have no state
// to save use it. The cause of the context has the exit code of a process that died of the signal.
var untilSignal = sync.OnceValue(func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	first := asked()
	go func() { cancel(endedBy(<-first)) }()
	return ctx
})

// discardOnSignal lets a signal end a command that writes a directory, after what was written has
// been removed. A second signal does not wait for the removal. It must be called only once in a
// process.
func (p *process) discardOnSignal() {
	first := asked()
	go func() {
		s := <-first
		dataset.DiscardAll() // before the message: the launcher may kill this process after it
		// if agreed, another rank has failed, and the launcher sent the signal for that
		if !p.agreed.Load() {
			p.fail(endedBy(s))
		}
	}()
}

func endedBy(s os.Signal) error {
	err := fmt.Errorf("ended by a signal (%v), with nothing written; start again", s)
	return withCode(128+int(s.(syscall.Signal)), err)
}

// lagging returns a context that ends a little after ctx. Launchers send a signal to all ranks, but
// one rank is enough to end the job and say why.
func lagging(ctx context.Context, by time.Duration) context.Context {
	late, cancel := context.WithCancelCause(context.Background())
	context.AfterFunc(ctx, func() {
		time.Sleep(by)
		cancel(context.Cause(ctx))
	})
	return late
}
