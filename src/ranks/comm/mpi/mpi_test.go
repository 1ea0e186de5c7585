//go:build cgo && mpi

package mpi

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"halognn/src/ranks/comm"
	"halognn/src/ranks/comm/commtest"
)

// Launched by mpirun, the test program is a rank and runs the suite (`mpirun -np 4 mpi.test
// -test.v`). Launched by `go test`, it does what needs no MPI and launches itself: see
// launch_test.go.
var world comm.Comm

func launched() bool {
	return os.Getenv("OMPI_COMM_WORLD_SIZE") != "" ||
		os.Getenv("PMI_SIZE") != ""
}

func TestMain(m *testing.M) {
	if !launched() {
		os.Exit(m.Run())
	}
	err := Run(func(c comm.Comm) error {
		world = c
		if ending := os.Getenv(endingVariable); ending != "" {
			return endings[ending](c)
		}
		if m.Run() != 0 {
			return errors.New("tests failed")
		}
		return nil
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		Abort(abortCode)
	}
}

func needRank(t *testing.T) {
	if !launched() {
		t.Skip("needs mpirun: TestUnderMPI launches it")
	}
}

// onRank runs a case on this rank. A failure ends the job at once: the other ranks cannot go on
// without this one.
func onRank(f func(comm.Comm) error) error {
	if err := f(world); err != nil {
		fmt.Fprintf(os.Stderr, "rank %d of %d: %v\n", world.Rank(), world.Size(), err)
		Abort(1)
	}
	return nil
}

func TestSuite(t *testing.T) {
	needRank(t)
	defer func(first int) { maxCount, firstBytes = math.MaxInt32, first }(firstBytes)
	for _, limit := range []int{math.MaxInt32, 40, 3} {
		maxCount, firstBytes = limit, min(firstBytes, limit)
		t.Run(fmt.Sprintf("limit=%d", limit), func(t *testing.T) { commtest.Run(t, onRank) })
	}
	maxCount = 40 // enough messages for windows: thousands wait long to be matched
	paced := world.(*communicator)
	defer paced.Pace(0)
	for _, window := range []int{1, 100} {
		paced.Pace(window)
		t.Run(fmt.Sprintf("window=%d", window), func(t *testing.T) { commtest.Run(t, onRank) })
	}
}

func TestGoKeepsItsSignals(t *testing.T) {
	needRank(t)
	defer func() {
		if err, ok := recover().(runtime.Error); !ok ||
			!strings.Contains(err.Error(), "nil pointer") {
			t.Errorf("a nil pointer gave %v", err)
		}
	}()
	var c *communicator
	c.freed = true
}
