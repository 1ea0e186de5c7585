//go:build faults

package fault

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Enabled reports whether the program can inject faults.
const Enabled = true

// injection is one fault in HALOGNN_FAULTS, written POINT=ACTION[:MILLISECONDS]@RANK:EPOCH:STEP. A
// number -1 stands for any rank, epoch or step.
type injection struct {
	point, action     string
	millis            int
	rank, epoch, step int
	done              atomic.Bool // each fault happens once, except slow and burn
}

var armed = sync.OnceValue(func() []*injection {
	var all []*injection
	for _, text := range strings.Split(os.Getenv("HALOGNN_FAULTS"), ",") {
		if text == "" {
			continue
		}
		p := new(injection)
		if err := p.parse(text); err != nil {
			fmt.Fprintf(os.Stderr, "HALOGNN_FAULTS: %q: %v; write POINT=ACTION@RANK:EPOCH:STEP\n",
				text, err)
			os.Exit(2)
		}
		all = append(all, p)
	}
	return all
})

func (p *injection) parse(text string) error {
	what, where, ok := strings.Cut(text, "@")
	if p.point, p.action, _ = strings.Cut(what, "="); !ok || p.action == "" {
		return fmt.Errorf("the action or the place is missing")
	}
	if action, millis, has := strings.Cut(p.action, ":"); has {
		n, err := strconv.Atoi(millis)
		if err != nil {
			return err
		}
		p.action, p.millis = action, n
	}
	if !slices.Contains(Points(), p.point) {
		return fmt.Errorf("no point %q; the points are %s", p.point, strings.Join(Points(), ", "))
	}
	if !slices.Contains(actions, p.action) {
		return fmt.Errorf("no action %q; the actions are %s", p.action, strings.Join(actions, ", "))
	}
	place := strings.Split(where, ":")
	if len(place) != 3 {
		return fmt.Errorf("the place is %q, without its three numbers", where)
	}
	for i, to := range []*int{&p.rank, &p.epoch, &p.step} {
		n, err := strconv.Atoi(place[i])
		if err != nil {
			return err
		}
		*to = n
	}
	return nil
}

var actions = []string{"kill", "stop", "fail", "full", "memory", "slow", "burn", "nan"}

func (p *injection) fits(point string, rank, epoch, step int) bool {
	same := func(want, got int) bool { return want < 0 || got < 0 || want == got }
	return p.point == point && same(p.rank, rank) && same(p.epoch, epoch) && same(p.step, step)
}

// The function At is called where a rank reaches a named point in a step of an epoch. The arguments
// epoch and step are -1 if the point belongs to none. It returns the injected error, if there is
// one.
func At(point string, rank, epoch, step int) error {
	for _, p := range armed() {
		if p.action == "nan" || !p.fits(point, rank, epoch, step) {
			continue
		}
		switch p.action {
		case "slow":
			time.Sleep(time.Duration(p.millis) * time.Millisecond)
			continue
		case "burn":
			burn(time.Duration(p.millis) * time.Millisecond)
			continue
		}
		if p.done.Swap(true) {
			continue
		}
		mark()
		switch p.action {
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case "stop":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case "full":
			return fmt.Errorf("injected at %s: %w", point, syscall.ENOSPC)
		case "memory":
			starved.Store(true)
		default:
			return fmt.Errorf("injected at %s: %w", point, syscall.EIO)
		}
	}
	return nil
}

// burn computes until the thread has used the given processor time, however long that takes.
func burn(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var t unix.Timespec
		if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
			return d
		}
		return time.Duration(t.Nano())
	}
	for begin := used(); used()-begin < d; {
	}
}

// mark creates the file that HALOGNN_FAULT_MARK names. Its modification time is the time of the
// fault.
func mark() {
	if path := os.Getenv("HALOGNN_FAULT_MARK"); path != "" {
		// An error needs no handling: a test that waits for the file notices that it is missing.
		_ = os.WriteFile(path, nil, 0o666)
	}
}

// The action memory sets starved to true, so that the next allocation fails.
var starved atomic.Bool

// Starved reports whether the next allocation should fail.
func Starved() bool { return starved.Swap(false) }

// NaN reports whether a NaN should be injected in this step.
func NaN(point string, rank, epoch, step int) bool {
	for _, p := range armed() {
		if p.action == "nan" && p.fits(point, rank, epoch, step) && !p.done.Swap(true) {
			mark()
			return true
		}
	}
	return false
}
