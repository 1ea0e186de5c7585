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
	"slices"
	"syscall"
	"time"
)

// SamePress is how long after the first signal another one counts as the same request: a terminal
// signals every process in the foreground, and a launcher among them, or a batch system, forwards
// its own signal.
const SamePress = 500 * time.Millisecond

// First returns a channel that carries the first of the signals. From SamePress after it on, any of
// them ends the process with the exit code 128 + n, which is what shells make of death by signal n.
// A SIGHUP that is ignored, as under nohup, stays so. It is called once a process.
func First(signals ...os.Signal) <-chan os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		signals = slices.DeleteFunc(slices.Clone(signals),
			func(s os.Signal) bool { return s == syscall.SIGHUP })
	}
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

// Woken returns a channel that is closed by a SIGCONT of the launcher that comes while the process
// runs: Open MPI's mpirun sends its ranks one as soon as it is to end the job, long before SIGTERM. One
// that follows a stop (SIGSTOP, Ctrl-Z) only ends that, as those of others do: a shell's, or of a
// program that limits the use of CPUs by stopping and waking. byLauncher tells by the number of the
// sender, 0 if it is unknown.
func Woken(byLauncher func(pid int) bool) <-chan struct{} {
	woken, come := make(chan struct{}), make(chan os.Signal, 1)
	signal.Notify(come, syscall.SIGCONT)
	note(syscall.SIGCONT)
	go func() {
		tick := time.NewTicker(standstill / 5)
		defer tick.Stop()
		var stopped time.Time // when a standstill was last seen
		for last := time.Now(); ; {
			asked := false
			select {
			case <-come:
				asked = byLauncher(sender())
			case <-tick.C:
			}
			now := time.Now()
			if now.Sub(last) > standstill {
				stopped = now
			}
			if last = now; asked && now.Sub(stopped) > standstill {
				close(woken)
				return
			}
		}
	}()
	return woken
}

// standstill is how long a running process goes without a tick at most. A busier machine only
// delays the news until SIGTERM.
const standstill = 500 * time.Millisecond
