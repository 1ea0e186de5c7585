// Package interrupt handles the signals by which a user, a launcher or a batch system stops the
// process: the first signal asks it to end in order, the second one ends it at once, whatever its
// goroutines do.
//
//	signal ──> handler ── second ──> exit with 128 + n
//	              └────── first ───> Go's handler ──> channel ──> an orderly end of the work
//
// The orderly end may never come: a rank may wait for another rank that has stopped, or a goroutine
// for a disk that does not answer. The Go runtime itself may be stuck: it cannot preempt a page
// fault that does not end, and the next garbage collection waits for it. So builds with cgo count
// signals in a C handler, which needs no goroutine. Other builds count them in a goroutine.
package interrupt

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// A signal that comes within SamePress after the first one counts as the same request. The reason
// is that a terminal or a batch system signals all processes, also the launcher, and that the
// launcher then forwards its own signal to the others.
const SamePress = 500 * time.Millisecond

// First returns a channel that carries the first of the signals. Once SamePress has passed, any
// further signal ends the process with the exit code 128 + n, which shells use for death by signal
// n. If SIGHUP is ignored, as under nohup, it stays ignored. Call First only once in a process.
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

// Woken returns a channel that is closed when the launcher sends SIGCONT while the process runs:
// Open MPI's mpirun sends it to its ranks as soon as it starts to end the job, long before SIGTERM.
// A SIGCONT after a stop (SIGSTOP, Ctrl-Z) only ends the stop. So does one from another sender,
// such as a shell, or a program that limits CPU use by stopping and waking processes. The function
// byLauncher reports whether the process with the given number is the launcher. It is called with 0
// if the sender is unknown.
func Woken(byLauncher func(pid int) bool) <-chan struct{} {
	woken, come := make(chan struct{}), make(chan os.Signal, 1)
	signal.Notify(come, syscall.SIGCONT)
	note(syscall.SIGCONT)
	go func() {
		tick := time.NewTicker(standstill / 5)
		defer tick.Stop()
		var stopped time.Time // when the process was last found to have stood still
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

// A process that goes without a tick of its timer for longer than standstill counts as having been
// stopped. On a machine so busy that ticks take longer, a SIGCONT may be missed. The process then
// learns only from SIGTERM that it should end.
const standstill = 500 * time.Millisecond
