package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"halognn/src/dataset"
	"halognn/src/interrupt"
)

// stopSignals ask a run to save its state and end: Slurm's --signal, the end of a time limit,
// Ctrl-C.
var stopSignals = []os.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT}

// stopOnSignals returns a channel that the first of them closes. The second one ends the process.
// It is called once a process: ranks of one process stop together.
var stopOnSignals = sync.OnceValue(func() <-chan struct{} {
	stop, first := make(chan struct{}), interrupt.First(stopSignals...)
	go func() {
		<-first
		close(stop)
	}()
	return stop
})

// tellStopping says on rank 0, once a signal has come, what happens next.
func tellStopping(stop <-chan struct{}, ended <-chan struct{}) {
	select {
	case <-stop:
		slog.Info("asked to stop by a signal: finishing the step and saving the state; "+
			"a second one ends at once, without saving", "rank", 0)
	case <-ended:
	}
}

// untilSignal returns a context that the first of stopSignals ends, for commands that have no state
// to save. Its cause carries the exit code with which a process dies of the signal; the second one
// ends the process. It is called once a process.
var untilSignal = sync.OnceValue(func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	first := interrupt.First(stopSignals...)
	go func() { cancel(endedBy(<-first)) }()
	return ctx
})

// discardOnSignal lets a signal end a command that writes a directory: nothing of it is left
// behind, unless a second one does not wait for that. It is called once a process.
func (p *process) discardOnSignal() {
	first := interrupt.First(append([]os.Signal{syscall.SIGHUP}, stopSignals...)...)
	go func() {
		s := <-first
		dataset.DiscardAll()
		p.fail(endedBy(s))
	}()
}

// endedBy is the error of a command that a signal has ended.
func endedBy(s os.Signal) error {
	err := fmt.Errorf("ended by a signal (%v), with nothing written; start again", s)
	return withCode(128+int(s.(syscall.Signal)), err)
}

// lagging returns a context that ends somewhat after ctx: launchers send signals to all ranks, and
// one of them is enough to end the job and to tell why.
func lagging(ctx context.Context, by time.Duration) context.Context {
	late, cancel := context.WithCancelCause(context.Background())
	context.AfterFunc(ctx, func() {
		time.Sleep(by)
		cancel(context.Cause(ctx))
	})
	return late
}
