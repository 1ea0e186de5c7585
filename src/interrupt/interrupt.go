// Package interrupt handles the signals by which a user, a launcher or a batch system stops the
// process: the first signal asks, the second one ends the process at once, whatever its goroutines
// do.
//
//	signal ──> handler ── second ──> exit with 128 + n
//	              └────── first ───> Go's handler ──> channel ──> whoever ends the work in order
//
// The orderly end may never come: a rank may wait for one that has stopped, a goroutine for a disk
// that does not answer. Go itself may be stuck: a page fault that does not end cannot be preempted,
// and the next garbage collection waits for it. So builds with cgo count signals in the handler,
// which needs no goroutine; others count them in a goroutine.
package interrupt

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// SamePress is how long after the first signal another one counts as the same request: a terminal
// signals every process in the foreground, and a launcher among them, or a batch system, forwards
// its own signal.
const SamePress = 500 * time.Millisecond

// First returns a channel that carries the first of the signals. From SamePress after it on, any of
// them ends the process with the exit code 128 + n, which is what shells make of death by signal n.
// It is called once a process.
func First(signals ...os.Signal) <-chan os.Signal {
	first, come := make(chan os.Signal, 1), make(chan os.Signal, 8)
	signal.Notify(come, signals...)
	for _, s := range signals {
		guard(s.(syscall.Signal))
	}
	go func() {
		s := <-come
		began := time.Now()
		first <- s
		for s := range come {
			if time.Since(began) > SamePress {
				os.Exit(128 + int(s.(syscall.Signal)))
			}
		}
	}()
	return first
}
