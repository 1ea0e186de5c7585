//go:build cgo && mpi

package mpi

// These tests launch this program under mpirun: its suite on several ranks, and jobs that end
// badly.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
	"halognn/tests/race"
)

const (
	endingVariable = "HALOGNN_TEST_ENDING" // which of endings a rank is to meet
	abortCode      = 7
)

// endings are functions of a rank, for jobs that must end at once and whole.
var endings = map[string]func(comm.Comm) error{
	"error": func(c comm.Comm) error {
		return failAlone(c,
			func() error { return errors.New("disk full") })
	},
	"panic": func(c comm.Comm) error {
		return failAlone(c,
			func() error { panic("index out of range") })
	},
	"panic elsewhere": func(c comm.Comm) error {
		return failAlone(c, func() error {
			go panic("index out of range")
			select {}
		})
	},
	"abort elsewhere": func(c comm.Comm) error {
		return failAlone(c, func() error {
			go Abort(abortCode)
			select {}
		})
	},
	// Both ranks wait for what the other has not started: so does f, which does not return.
	"failure while f waits": func(c comm.Comm) error {
		left, err := c.Dup()
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			time.AfterFunc(50*time.Millisecond, func() { left.Abort(errors.New("disk full")) })
			return c.StartBarrier().Wait()
		}
		return left.StartBarrier().Wait()
	},
	"failures while all wait": func(c comm.Comm) error {
		time.AfterFunc(50*time.Millisecond, func() { c.Abort(errors.New("disk full")) })
		return c.StartRecv(make([]byte, 1), (c.Rank()+1)%c.Size()).Wait()
	},
	// What only this rank waits for still ends in order after its failure: the message of the defer
	// comes out.
	"failure, then order": func(c comm.Comm) error {
		own, err := c.Split(c.Rank(), 0)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			defer fmt.Println("in order")
			c.Abort(errors.New("disk full"))
			return own.StartBarrier().Wait()
		}
		return c.StartBarrier().Wait()
	},
	// The engine finds no memory, or a bug; the others wait for this rank.
	"no room for what follows": func(c comm.Comm) error {
		ones := slices.Repeat([]int{1}, c.Size())
		none := make([]int, c.Size())
		err := c.StartAlltoallThen(make([]byte, c.Size()), make([]byte, c.Size()), ones, ones, 1,
			comm.Then{SendRows: none, RowBytes: 1, Expect: crowded{c, none}}).Wait()
		return errors.Join(err, failAlone(c, func() error { return nil }))
	},
	"panic of the engine": func(c comm.Comm) error {
		return failAlone(c, func() error {
			world := c.(*communicator)
			return world.engine.hand(world.operation(alltoallThen)).Wait() // without its more
		})
	},
	"abort while others set up": func(c comm.Comm) error {
		if c.Rank() == 1 {
			time.Sleep(50 * time.Millisecond)
			return errors.New("disk full")
		}
		_, err := c.Dup()
		return err
	},
	"request left": func(c comm.Comm) error {
		c.StartBarrier()
		return nil
	},
	"communicator left": func(c comm.Comm) error {
		freeTimeout = 100 * time.Millisecond
		made, err := c.Dup()
		if err == nil && c.Rank() != 1 {
			err = made.Free()
		}
		return err
	},
	"communicators used up": func(c comm.Comm) error { // more than an MPI has at a time
		for range 5000 {
			made, err := c.Dup()
			if err != nil {
				return err
			}
			if err := made.Free(); err != nil {
				return err
			}
		}
		return nil
	},
	"run twice": func(comm.Comm) error { return Run(nil) },
}

// crowded has no room for what follows on rank 1.
type crowded struct {
	c    comm.Comm
	none []int
}

func (e crowded) Expect() ([]byte, []int, error) {
	if e.c.Rank() == 1 {
		panic(fmt.Errorf("%w", mem.ErrMemory))
	}
	return nil, e.none, nil
}

// failAlone makes rank 1 fail while the others wait for it.
func failAlone(c comm.Comm, fail func() error) error {
	if c.Rank() == 1 {
		return fail()
	}
	return c.StartBarrier().Wait()
}

// mpirun runs this test program on n ranks and returns its output and exit code.
func mpirun(t *testing.T, n int, env []string, args ...string) (string, int) {
	t.Helper()
	launcher := os.Getenv("HALOGNN_MPIRUN")
	if launcher == "" {
		launcher = "mpirun"
	}
	path, err := exec.LookPath(launcher)
	if err != nil {
		t.Skipf("no %s: MPI is not tested (source env.sh)", launcher)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path,
		append([]string{"-np", strconv.Itoa(n), os.Args[0]}, args...)...)
	// Settings of Open MPI, which others ignore: more ranks than cores, containers whose user is
	// root, and no time for saving, for which it would wait after every failure.
	cmd.Env = append(os.Environ(), "OMPI_MCA_rmaps_base_oversubscribe=1",
		"OMPI_MCA_mpi_yield_when_idle=1",
		"OMPI_MCA_odls_base_sigkill_timeout=1", "PRTE_MCA_odls_base_sigkill_timeout=1",
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	cmd.Env = append(cmd.Env, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s -np %d hangs:\n%s", path, n, &out)
	}
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func TestUnderMPI(t *testing.T) {
	if launched() {
		t.Skip("is a rank already")
	}
	t.Log(Library())
	for _, n := range []int{1, 2, 4} {
		if testing.Short() && n != 2 {
			continue // under the race detector: what the goroutines of a rank share
		}
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			if out, code := mpirun(t, n, nil, "-test.v"); code != 0 ||
				strings.Count(out, "PASS: TestSuite ") != n {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

func TestEndings(t *testing.T) {
	race.Alone(t)
	if launched() {
		t.Skip("is a rank already")
	}
	for _, test := range []struct {
		ending string
		codes  []int // one of which mpirun exits with
		want   string
	}{
		{"error", []int{abortCode}, "rank 1: disk full"},
		{"panic", []int{abortCode}, "rank 1: panic: index out of range"},
		// Go's code; the signal that the others were killed with
		{"panic elsewhere", []int{2, 9}, "panic: index out of range"},
		{"abort elsewhere", []int{abortCode}, ""},
		{"failure while f waits", []int{abortCode}, "rank 1: disk full"},
		{"failures while all wait", []int{abortCode}, ": disk full"},
		{"failure, then order", []int{abortCode}, "in order"},
		{"no room for what follows", []int{abortCode}, "rank 1: " + mem.ErrMemory.Error()},
		{"panic of the engine", []int{abortCode}, "rank 1: panic: "},
		{"abort while others set up", []int{abortCode}, "disk full"},
		{"request left", []int{abortCode}, "have not been waited for"},
		{"communicator left", []int{abortCode}, "freed here, but not on every rank"},
		{"communicators used up", []int{0}, ""},
		{"run twice", []int{abortCode}, "called twice"},
	} {
		t.Run(test.ending, func(t *testing.T) {
			begin := time.Now()
			ranks := 3
			// alone, as thousands of collectives on shared cores take long
			if test.ending == "communicators used up" {
				ranks = 1
			}
			out, code := mpirun(t, ranks, []string{endingVariable + "=" + test.ending})
			if !slices.Contains(test.codes, code) {
				t.Errorf("exit code %d after %v, want one of %v:\n%s", code, time.Since(begin),
					test.codes, out)
			}
			if !strings.Contains(out, test.want) {
				t.Errorf("%q is not in the output:\n%s", test.want, out)
			}
			t.Logf("exit code %d after %v", code, time.Since(begin))
		})
	}
}

func TestWrongLauncherIsNamed(t *testing.T) {
	if launched() {
		t.Skip("is a rank already")
	}
	t.Setenv("PMI_SIZE", "4")
	t.Setenv("SLURM_STEP_NUM_TASKS", "2") // of the launcher's own daemons
	err := checkLauncher(1)
	if err == nil || !strings.Contains(err.Error(), "4 ranks (PMI_SIZE)") {
		t.Errorf("a world of one, launched as four, gave %v", err)
	}
	for _, size := range []string{"1", "4"} {
		t.Setenv("PMI_SIZE", size)
		if n, _ := strconv.Atoi(size); checkLauncher(n) != nil {
			t.Errorf("a world of %d, launched as such, gave %v", n, checkLauncher(n))
		}
	}
}
