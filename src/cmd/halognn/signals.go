package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// stopSignals ask a run to save its state and end: Slurm's --signal, the end of a time limit, Ctrl-C.
var stopSignals = []os.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT}

// stopOnSignals returns a channel that the first of them closes. Once one has come, SIGINT ends the process at once, for whoever presses
// Ctrl-C again. It is called once a process: ranks of one process stop together.
var stopOnSignals = sync.OnceValue(func() <-chan struct{} {
	stop, come := make(chan struct{}), make(chan os.Signal, 8)
	signal.Notify(come, stopSignals...)
	go func() {
		first := true
		for s := range come {
			switch {
			case first:
				first = false
				close(stop)
			case s == syscall.SIGINT:
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
		fmt.Fprintln(os.Stderr, "note: asked to stop by a signal: finishing the step and saving the state; Ctrl-C ends at once, without")
	case <-ended:
	}
}
