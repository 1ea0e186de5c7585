package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"halognn/src/dataset"
)

// stopSignals ask a run to save its state and end: Slurm's --signal, the end of a time limit, Ctrl-C.
var stopSignals = []os.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT}

// samePress is how long after a signal another SIGINT is still the same Ctrl-C: the terminal sends one to every process in the foreground, and a
// launcher that is among them forwards its own.
const samePress = 500 * time.Millisecond

// presses tells what signals ask for.
type presses struct{ first time.Time }

// take returns whether a signal that comes at that time is the first, and whether it asks to end at once.
func (p *presses) take(s os.Signal, at time.Time) (first, atOnce bool) {
	if p.first.IsZero() {
		p.first = at
		return true, false
	}
	return false, s == syscall.SIGINT && at.Sub(p.first) > samePress
}

// stopOnSignals returns a channel that the first of them closes. Once one has come, SIGINT ends the process at once, for whoever presses
// Ctrl-C again. It is called once a process: ranks of one process stop together.
var stopOnSignals = sync.OnceValue(func() <-chan struct{} {
	stop, come := make(chan struct{}), make(chan os.Signal, 8)
	signal.Notify(come, stopSignals...)
	go func() {
		var p presses
		for s := range come {
			first, atOnce := p.take(s, time.Now())
			if first {
				close(stop)
			}
			if atOnce {
				os.Exit(exitInterrupted)
			}
		}
	}()
	return stop
})

// tellStopping says on rank 0, once a signal has come, what happens next.
func tellStopping(stop <-chan struct{}, ended <-chan struct{}) {
	select {
	case <-stop:
		fmt.Fprintln(os.Stderr, "note: asked to stop by a signal: finishing the step and saving the state; a second Ctrl-C ends at once, without saving")
	case <-ended:
	}
}

// untilSignal returns a context that the first of stopSignals ends, for commands that have no state to save. Its cause carries the exit code with
// which a process dies of the signal; the next one does kill it. It is called once a process.
var untilSignal = sync.OnceValue(func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	come := make(chan os.Signal, 8)
	signal.Notify(come, stopSignals...)
	go func() {
		s := (<-come).(syscall.Signal)
		cancel(withCode(128+int(s), fmt.Errorf("ended by a signal (%v), with nothing written; start again", s)))
		time.Sleep(samePress)
		signal.Reset(stopSignals...)
	}()
	return ctx
})

// discardOnSignal lets a signal end a command that writes a directory: nothing of it is left behind. It is called once a process.
func discardOnSignal() {
	come := make(chan os.Signal, 1)
	signal.Notify(come, append([]os.Signal{syscall.SIGHUP}, stopSignals...)...)
	go func() {
		s := (<-come).(syscall.Signal)
		dataset.DiscardAll()
		fail(withCode(128+int(s), fmt.Errorf("ended by a signal (%v), with nothing written; start again", s)))
	}()
}

// lagging returns a context that ends somewhat after ctx: launchers send signals to all ranks, and one of them is enough to end the job and to tell why.
func lagging(ctx context.Context, by time.Duration) context.Context {
	late, cancel := context.WithCancelCause(context.Background())
	context.AfterFunc(ctx, func() {
		time.Sleep(by)
		cancel(context.Cause(ctx))
	})
	return late
}
