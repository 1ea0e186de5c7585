//go:build cgo

package parallel

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/cuda"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/tests/race"
)

// fourGPUs returns the CUDA library of tests with a GPU for each of up to four ranks. Those of the
// emulation are always there, unless it was asked for fewer; leaveOut skips a test where real ones
// are not.
func fourGPUs(t *testing.T) (path string, leaveOut func(...any)) {
	t.Helper()
	path, leaveOut = computetest.CUDALibrary(t, "../../.."), t.Skip
	if strings.Contains(path, "emulated") && os.Getenv("HALOGNN_EMULATED_DEVICES") == "" {
		leaveOut = t.Fatal
	}
	if n, err := cuda.Devices(); err != nil {
		t.Fatal(err)
	} else if n < 4 {
		leaveOut(fmt.Sprintf("4 GPUs are needed, this machine has %d", n))
	}
	return path, leaveOut
}

// withNCCL makes the emulated library serve as NCCL, so that no test is skipped; on GPUs, tests
// need an installed NCCL, and a GPU for each rank.
func withNCCL(t *testing.T) string {
	t.Helper()
	path, leaveOut := fourGPUs(t)
	if strings.Contains(path, "emulated") {
		t.Setenv("HALOGNN_NCCL_LIB", path)
	}
	d, err := cuda.Open(cuda.Options{Memory: 1 << 20, Library: path})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.FindLinks()
	if err := errors.Join(err, d.Close()); err != nil {
		leaveOut(err)
	}
	return path
}

// errClosing is wrapped by the errors of closing devices.
var errClosing = errors.New("closing a device")

// onGPUs runs f on ranks that are goroutines, each with its own device where there are enough, in a
// world whose messages may lie in device memory. It returns the errors of the job and of closing
// the devices.
func onGPUs(path string, ranks int, f func(c comm.Comm, d compute.PeerDevice) error) error {
	return onGPUsIn(compute.PrecisionFloat32, path, ranks, f)
}

func onGPUsIn(p compute.Precision, path string, ranks int,
	f func(c comm.Comm, d compute.PeerDevice) error) error {
	w := comm.NewWorld(ranks)
	w.Copy = cuda.CopyNow
	closed := make([]error, ranks)
	there, err := cuda.Devices()
	if err != nil {
		return err
	}
	err = w.Run(func(c comm.Comm) error {
		d, err := cuda.Open(cuda.Options{Device: c.Rank() % there, Memory: 1 << 20, Library: path,
			Precision: p})
		if err != nil {
			return err
		}
		defer func() {
			if err := d.Close(); err != nil {
				closed[c.Rank()] = fmt.Errorf("%w, of rank %d: %w", errClosing, c.Rank(), err)
			}
		}()
		return f(c, d)
	})
	return errors.Join(err, errors.Join(closed...))
}

// Gradients in device memory give the same bits as on the host, with every transport.
func TestGradientsOnGPUs(t *testing.T) {
	path := withNCCL(t)
	for _, transport := range []Transport{TransportNCCL, TransportMPI, TransportStaged} {
		for _, ranks := range []int{1, 2, 3, 4} {
			for _, minibatches := range []int{1, 3} {
				e := newExam(t, ranks, minibatches)
				err := onGPUs(path, ranks, func(c comm.Comm, d compute.PeerDevice) error {
					return e.take(c,
						GradientOptions{SumOptions: comm.SumOptions{Mode: comm.SumReproducible},
							Device: d, Transport: transport})
				})
				if err != nil {
					t.Errorf("%s, %d ranks, %d minibatches a step: %v", transport, ranks,
						minibatches, err)
				}
			}
		}
	}
}

// Gradients that travel as bfloat16 are added on the hosts, to the same bits; transports that add
// on devices are refused.
func TestGradientsInBF16OnGPUs(t *testing.T) {
	path := withNCCL(t)
	const ranks = 3
	e := newExam(t, ranks, 2)
	e.halves = true
	for _, transport := range []Transport{TransportAuto, TransportNCCL, TransportMPI} {
		err := onGPUs(path, ranks, func(c comm.Comm, d compute.PeerDevice) error {
			return e.take(c, GradientOptions{SumOptions: comm.SumOptions{Halves: ref.Host{}},
				Device: d, Transport: transport})
		})
		if transport == TransportAuto && err != nil {
			t.Errorf("auto: %v", err)
		}
		if want := "travel as bf16 are added on hosts"; transport != TransportAuto &&
			(!errors.Is(err, ErrTransport) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: the error is %v, want %q", transport, err, want)
		}
	}
}

// If sums need not be in rank order, NCCL adds, and Reproducible is false; messages and pinned
// memory keep rank order or leave the order to MPI.
func TestFastGradientsOnGPUs(t *testing.T) {
	path := withNCCL(t)
	const ranks = 3
	e := newExam(t, ranks, 1)
	err := onGPUs(path, ranks, func(c comm.Comm, d compute.PeerDevice) error {
		m, err := examModel(d)
		if err != nil {
			return err
		}
		defer m.Close()
		g, err := NewGradients(c, m.Params, examLayers,
			GradientOptions{SumOptions: comm.SumOptions{Mode: comm.SumFast}, Device: d,
				Transport: TransportNCCL})
		if err != nil {
			return err
		}
		if g.Reproducible() || g.Transport() != TransportNCCL ||
			!strings.Contains(g.Note(), "by NCCL ") {
			return fmt.Errorf("reproducible %t, %s, %q", g.Reproducible(), g.Transport(), g.Note())
		}
		d.Upload(m.Params.Grads, e.grads[[3]int{0, c.Rank(), 0}])
		for l := examLayers - 1; l >= 0; l-- {
			g.Start(l)
		}
		if err := g.Wait(); err != nil {
			return err
		}
		got := make([]float32, m.Params.Len())
		d.Download(got, m.Params.Grads)
		for i, x := range got {
			if want := e.sum(0, i); math.Abs(float64(x-want)) > 1e-5 {
				return fmt.Errorf("element %d is %v, want %v", i, x, want)
			}
		}
		return g.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// A step allocates nothing, with every transport.
func TestGradientsOnGPUsAllocateNothing(t *testing.T) {
	if race.Detector {
		t.Skip("the race detector allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	path := withNCCL(t)
	for _, transport := range []Transport{TransportNCCL, TransportMPI, TransportStaged} {
		err := onGPUs(path, 2, func(c comm.Comm, d compute.PeerDevice) error {
			m, err := examModel(d)
			if err != nil {
				return err
			}
			defer m.Close()
			g, err := NewGradients(c, m.Params, examLayers,
				GradientOptions{Device: d, Transport: transport})
			if err != nil {
				return err
			}
			var failed error
			step := func() {
				for l := examLayers - 1; l >= 0; l-- {
					g.Start(l)
				}
				failed = errors.Join(failed, g.Wait(), d.Sync())
			}
			const warm, runs = 20, 50
			for range warm {
				step()
			}
			if c.Rank() == 0 {
				if n := testing.AllocsPerRun(runs, step); n > 0 && failed == nil {
					failed = fmt.Errorf("a step allocates %g times", n)
				}
			} else {
				for range runs + 1 { // AllocsPerRun warms up once
					step()
				}
			}
			return errors.Join(failed, g.Close())
		})
		if err != nil {
			t.Errorf("%s: %v", transport, err)
		}
	}
}

// If one rank does not support a transport no rank uses it: all return the same error, or choose
// the next transport.
func TestTransportsThatAreNotPossible(t *testing.T) {
	path := withNCCL(t)
	defer func(d time.Duration) { linkTimeout = d }(linkTimeout)
	linkTimeout = 200 * time.Millisecond
	for _, c := range []struct {
		name       string
		transport  Transport
		devices    [2]int
		nccl       string
		copy       bool
		want, note string // an error; or the chosen transport and a note
	}{
		{"nccl is missing", TransportNCCL, [2]int{0, 1}, "/nowhere/libnccl.so.2", true,
			"compute.gradients=nccl requires: compute/cuda: NCCL cannot be loaded: " +
				"/nowhere/libnccl.so.2", ""},
		{"nccl on one device", TransportNCCL, [2]int{1, 1}, path, true, "ranks 0 and 1 share a GPU",
			""},
		{"mpi that knows no device memory", TransportMPI, [2]int{0, 1}, path, false,
			"one process that cannot copy device memory", ""},
		{"auto takes messages in one process", TransportAuto, [2]int{0, 1}, path, true, "mpi",
			"not by nccl: ranks are goroutines of one process"},
		{"auto without anything", TransportAuto, [2]int{0, 1}, "/nowhere/libnccl.so.2", false,
			"staged", "not by mpi: ranks are goroutines"},
		{"auto on one device", "", [2]int{0, 0}, path, true, "mpi",
			"not by nccl: ranks are goroutines"},
		{"nccl fails on one rank", TransportNCCL, [2]int{0, 1}, path, true, "nccl requires: rank " +
			"1: compute/cuda: opening NCCL: NCCL: unhandled system error: emulated: no network",
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("HALOGNN_NCCL_LIB", c.nccl)
			if c.name == "nccl fails on one rank" {
				if !strings.Contains(path, "emulated") {
					t.Skip("it is the emulated NCCL that fails")
				}
				t.Setenv("HALOGNN_EMULATED_NCCL_FAILS", "1")
			}
			w := comm.NewWorld(2)
			if c.copy {
				w.Copy = cuda.CopyNow
			}
			said := [2]string{}
			err := w.Run(func(cm comm.Comm) error {
				d, err := cuda.Open(cuda.Options{Device: c.devices[cm.Rank()], Memory: 1 << 20,
					Library: path})
				if err != nil {
					return err
				}
				m, err := examModel(d)
				if err != nil {
					return err
				}
				g, err := NewGradients(cm, m.Params, examLayers,
					GradientOptions{Device: d, Transport: c.transport})
				if err == nil {
					said[cm.Rank()] = string(g.Transport())
					if !strings.Contains(g.Note(), c.note) {
						t.Errorf("the note is %q, want %q", g.Note(), c.note)
					}
					err = g.Close()
				} else if errors.Is(err, ErrTransport) {
					said[cm.Rank()], err = err.Error(), nil
				}
				m.Close()
				// The ranks close a device that both share in turn: the emulated one lets nobody
				// free memory while the other waits for it.
				err = errors.Join(err, d.Sync(), cm.StartBarrier().Wait())
				if cm.Rank() == 1 {
					return errors.Join(err, cm.StartBarrier().Wait(), d.Close())
				}
				return errors.Join(err, d.Close(), cm.StartBarrier().Wait())
			})
			if err != nil {
				t.Fatal(err)
			}
			if said[0] != said[1] || !strings.Contains(said[0], c.want) {
				t.Errorf("the ranks come to %q, want %q", said, c.want)
			}
		})
	}
}

// The reason against a transport is found whichever rank has it.
func TestAgainst(t *testing.T) {
	rank := func(set func(*capabilities)) capabilities {
		c := capabilities{Device: "b", NCCL: "2.18.5", MPI: comm.Supported}
		set(&c)
		return c
	}
	for _, c := range []struct {
		name      string
		transport Transport
		forced    bool
		set       func(*capabilities) // of rank 1
		want      string
	}{
		{"all is well", TransportNCCL, false, func(*capabilities) {}, ""},
		{"all is well", TransportMPI, false, func(*capabilities) {}, ""},
		{"no nccl on one rank", TransportNCCL, true,
			func(c *capabilities) { c.NCCL, c.Fault = "", "it is gone" }, "rank 1: it is gone"},
		{"two versions", TransportNCCL, true, func(c *capabilities) { c.NCCL = "2.20.3" },
			"rank 1 has NCCL 2.20.3, rank 0 NCCL 2.18.5"},
		{"one device", TransportNCCL, true, func(c *capabilities) { c.Device = "a" },
			"ranks 0 and 1 share a GPU"},
		{"another kind of device", TransportMPI, true, func(c *capabilities) { c.Device = "" },
			"rank 1 cannot be linked"},
		{"one process", TransportNCCL, false, func(c *capabilities) { c.Shared = true },
			"one process"},
		{"one process, forced", TransportNCCL, true, func(c *capabilities) { c.Shared = true }, ""},
		{"an mpi that says no", TransportMPI, true,
			func(c *capabilities) { c.MPI = comm.Unsupported },
			"the MPI of rank 1 says that it does not take device memory"},
		{"an mpi that says nothing", TransportMPI, false,
			func(c *capabilities) { c.MPI = comm.Unknown }, "does not say whether"},
		{"an mpi that says nothing, forced", TransportMPI, true,
			func(c *capabilities) { c.MPI = comm.Unknown }, ""},
		{"staged always works", TransportStaged, false,
			func(c *capabilities) { *c = capabilities{} }, ""},
	} {
		first := rank(func(c *capabilities) { c.Device = "a" })
		got := unsupportedReason(c.transport, []capabilities{first, rank(c.set)}, c.forced)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %s, forced %t: %q, want %q", c.name, c.transport, c.forced, got, c.want)
		}
	}
}

// If a rank fails while others wait for its slices, they return, and their devices can be closed.
func TestARankFailsWhileGradientsTravel(t *testing.T) {
	path := withNCCL(t)
	for _, transport := range []Transport{TransportNCCL, TransportMPI} {
		full := errors.New("disk full")
		ended := make(chan error, 1)
		go func() {
			ended <- onGPUs(path, 3, func(c comm.Comm, d compute.PeerDevice) error {
				m, err := examModel(d)
				if err != nil {
					return err
				}
				g, err := NewGradients(c, m.Params, examLayers,
					GradientOptions{Device: d, Transport: transport})
				if err != nil {
					return err
				}
				if c.Rank() == 1 {
					return full
				}
				for l := examLayers - 1; l >= 0; l-- {
					g.Start(l)
				}
				if err := g.Wait(); err == nil {
					return errors.New("a sum without one of the ranks came to an end")
				}
				return nil
			})
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, full) || !strings.Contains(err.Error(), "rank 1") ||
				errors.Is(err, errClosing) {
				t.Errorf("%s: the job ended with %v", transport, err)
			}
		case <-time.After(5 * time.Minute):
			t.Fatalf("%s: a rank hangs", transport)
		}
	}
}

// Gradients of a device that is not linked to others are added on the host.
func TestGradientsInHostMemory(t *testing.T) {
	err := comm.RunWorld(2, func(c comm.Comm) error {
		m, err := examModel(ref.New())
		if err != nil {
			return err
		}
		defer m.Close()
		g, err := NewGradients(c, m.Params, examLayers,
			GradientOptions{Device: ref.New(), Transport: TransportNCCL})
		if err != nil {
			return err
		}
		if g.Transport() != "host" || g.Note() != "" {
			return fmt.Errorf("%s, %q", g.Transport(), g.Note())
		}
		return g.Close()
	})
	if err != nil {
		t.Error(err)
	}
}
