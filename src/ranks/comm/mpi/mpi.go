//go:build cgo && mpi

// Package mpi implements comm.Comm with MPI, by a thin binding to the standard C calls. It builds
// against Open MPI, MPICH and their relatives, with the flags that env.sh sets (CGO_CFLAGS,
// CGO_LDFLAGS).
//
//	main goroutine, main OS thread        any goroutine
//	Run ─ MPI_Init_thread(FUNNELED)
//	   ├─ go f(world) ──────────────────> c.StartAlltoallv(...) ──┐ queue, bell
//	   ├─ engine: start ── MPI_Testsome ── rest ── ... <──────────┘
//	   │             └─ completed ──────> request.Wait() returns
//	   └─ MPI_Finalize, if f returned nil
//
// Only the engine makes MPI calls, because MPI_THREAD_FUNNELED is the thread level that every MPI
// supports. Its thread tests pending operations, and yields or sleeps between tests. The longer
// nothing completes, the longer it sleeps, so that ranks that share cores do not starve each other.
// The polling is done in C, because the shortest sleep of a Go timer is a millisecond, and Gosched
// on a locked thread costs two thread switches.
//
// Counts are numbers of rows, with an MPI datatype of one row. Operations with counts above MPI's
// 32 bits are cut into several (see cut). MPI's handles stay in C.
//
// Buffers on the Go heap are pinned while in use. But large buffers should be outside this heap
// (package mem). Some MPI libraries cache memory registrations, and learn only from libc that
// memory was freed; Go's collector does not free memory through libc. Device memory may be used
// only in messages (StartSend, StartRecv), with a CUDA-aware MPI.
package mpi

/*
#include "engine.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
)

// Available reports whether the program was built with MPI.
const Available = true

// The main goroutine stays on the main OS thread, the only one that may call MPI.
func init() { runtime.LockOSThread() }

// The only engine of the process, and its state.
var (
	theEngine = newEngine()
	phase     atomic.Int32
)

const (
	unused   = iota
	serving  // the engine runs; MPI belongs to it
	stopped  // Run has returned an error; MPI belongs to the main goroutine again
	finished // MPI is finalised, or was never used
)

// Run initialises MPI, calls f with the communicator of all ranks in a goroutine of its own, and
// finalises MPI. It must be called from the main goroutine, once. It raises GOMAXPROCS by one,
// because the engine needs a Go processor whenever it returns from C. If goroutines computed on all
// processors, the engine would get one only at the end of a time slice of 10 ms.
//
// If f returns an error, panics or leaves requests unfinished, or if this rank calls Abort of a
// communicator, Run returns that error, with the rank named, without finalising MPI. As other ranks
// may be waiting, the caller then prints the error and calls Abort. It does not wait for f or for
// pending requests: they may wait for a rank that waits for this one.
func Run(f func(world comm.Comm) error) error {
	if !phase.CompareAndSwap(unused, serving) {
		return errors.New("mpi.Run: called twice in one process")
	}
	if rc := C.hgnn_init(); rc != 0 {
		phase.Store(finished)
		return fault("MPI_Init_thread", rc)
	}
	Library()
	deviceMemory = askDeviceMemory()
	// Contain turns a panic of the engine into an error, and Run returns this error too. The engine
	// has ended by then, so the main goroutine may use MPI again.
	if err := mem.Contain(func() error { return theEngine.run(f) }); err != nil {
		phase.Store(stopped)
		return err
	}
	phase.Store(finished)
	began := time.Now()
	if rc := C.hgnn_finalize(); rc != 0 {
		return fault("MPI_Finalize", rc)
	}
	linger(time.Since(began))
	return nil
}

func (e *engine) run(f func(comm.Comm) error) error {
	if C.hgnn_funneled() == 0 {
		return fmt.Errorf("%s was built without thread support (MPI_THREAD_FUNNELED); use "+
			"another build of it", Library())
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	world, err := e.communicator(0)
	if err != nil {
		return err
	}
	e.rank = world.rank
	if err := checkLauncher(world.size); err != nil {
		return err
	}
	go comm.RunRank(func() error { return f(world) }, func(err error) {
		if err != nil {
			world.Abort(err)
			return
		}
		e.stop()
	})
	if err := e.serve(); err != nil {
		return err
	}
	return e.drain(world)
}

// checkLauncher returns an error if the launcher of another MPI has started the ranks. In this case
// each rank sees a world of one rank.
func checkLauncher(size int) error {
	for _, name := range sizeVariables {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			continue
		}
		if n > 1 && size == 1 {
			return fmt.Errorf("the launcher started %d ranks (%s), but %s sees only itself: "+
				"launch with the mpirun that belongs to it (with srun, try another --mpi=)", n,
				name, Library())
		}
		return nil
	}
	return nil
}

// Library returns the name and version of the MPI library, on one line.
func Library() string { return library() }

var library = sync.OnceValue(func() string { // Run is the first to call it, from MPI's thread
	text := make([]C.char, 1<<10)
	C.hgnn_library(&text[0], C.int(len(text)))
	name, _, _ := strings.Cut(C.GoString(&text[0]), "\n")
	return strings.Join(strings.Fields(name), " ")
})

// deviceMemory says whether the MPI library supports messages whose buffers are in device memory.
var deviceMemory comm.Support

// askDeviceMemory asks the MPI library whether it supports messages whose buffers are in device
// memory. The variable HALOGNN_MPI_CUDA (1 or 0) overrides the answer, because some libraries say
// no although their transport supports it.
func askDeviceMemory() comm.Support {
	said := int(C.hgnn_device_memory())
	if n, err := strconv.Atoi(os.Getenv("HALOGNN_MPI_CUDA")); err == nil {
		said = n
	}
	switch {
	case said < 0:
		return comm.Unknown
	case said == 0:
		return comm.Unsupported
	}
	return comm.Supported
}

// Standard returns the version of the MPI standard that the library implements, such as "3.1".
func Standard() string {
	var version, subversion C.int
	C.hgnn_standard(&version, &subversion)
	return fmt.Sprintf("%d.%d", version, subversion)
}

// ThreadLevel returns the level of thread support that the library granted when MPI_THREAD_FUNNELED
// was requested. It may be called only while Run runs.
func ThreadLevel() string { return C.GoString(C.hgnn_thread_level()) }

// Abort ends the whole job with an exit code, by MPI_Abort. It never returns, whatever the state of
// MPI. Any goroutine may call it. Print the error before the call.
func Abort(code int) {
	// MPI_Abort waits for the launcher. If the launcher does not answer, or the engine is stuck in
	// a blocking call, this process exits without MPI_Finalize, which the launcher notices.
	time.AfterFunc(forwarding+5*time.Second, func() { os.Exit(code) })
	switch p := phase.Load(); {
	case p == stopped && C.hgnn_on_main_thread() != 0:
		theEngine.linger(forwarding)
		C.hgnn_abort(C.int(code))
	case p == stopped || p == serving:
		time.Sleep(forwarding)
		// the main goroutine aborts when it next calls turn, in serve or in linger
		theEngine.abort(code)
		select {}
	}
	time.Sleep(forwarding)
	os.Exit(code)
}

// forwarding is the time that a launcher gets to forward a rank's output before the job is aborted,
// because MPICH's launcher then drops output that it has not forwarded.
const forwarding = 200 * time.Millisecond

func fault(call string, rc C.int) error {
	var text [512]C.char
	C.hgnn_describe(rc, &text[0], C.int(len(text)))
	return fmt.Errorf("%s: %s", call, C.GoString(&text[0]))
}
