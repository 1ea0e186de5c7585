//go:build cgo

package cuda

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// onNewThread runs f on a new OS thread, on which no device has been set.
func onNewThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for the life of the goroutine; the thread ends with it
		f()
	}()
	<-done
}

// A device other than the first is used from threads that have not set a device. No call may touch
// the first device, on which the runtime would make a context that takes memory.
func TestAnyThread(t *testing.T) {
	path := library(t)
	var d *Device
	onNewThread(func() {
		var err error
		if d, err = Open(Options{Device: 1, Memory: 4 << 20, Library: path}); err != nil &&
			!strings.Contains(err.Error(), "no device 1") {
			t.Error(err)
		}
	})
	if d == nil {
		t.Skip("there is one device alone")
	}
	in, tables := randomInputs(rand.New(rand.NewPCG(7, 7)), 8, compute.Float32)
	in.Sources, in.Rows.Tables = true, tables
	box := d.NewStagingBuffer(ref.Host{}, false)
	var host, x []float32
	var a compute.Event
	watch := d.NewStopwatch()
	var errs [8]error
	for i, f := range []func() error{
		func() error { return box.Send(in) },
		func() error { _, _, _, err := box.Open(); return err },
		func() error { return errors.Join(box.Close(), watch.Mark(0), watch.Mark(1)) },
		func() error { return box.Send(in) }, // waits for the previous copy
		func() (err error) { host, err = d.AllocHost(10); return err },
		func() (err error) { x, err = d.Alloc(10); return err },
		func() (err error) { a, err = d.NewEvent(); return err },
		func() error { d.StartDownload(host, x, a); return nil },
	} {
		onNewThread(func() { errs[i] = f() })
	}
	for i, f := range []func() error{
		func() error { return a.Wait() },
		func() error { return a.Free() },
		func() error { _, err := watch.Between(0, 1); return err },
		func() error { return watch.Free() },
		func() error { d.FreeHost(host); return nil },
		func() error { return box.Free() },
		func() error { d.Free(x); return d.Sync() },
		func() error { return d.Close() },
	} {
		onNewThread(func() { errs[i] = errors.Join(errs[i], f()) })
	}
	if err := errors.Join(errs[:]...); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// A failed call returns its error once; the next kernel of the thread does not return it again.
func TestFailuresAreToldOnce(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := open(t)
	_, err := d.AllocHost(1 << 48)
	if err == nil || errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "host memory") {
		t.Errorf("2^50 bytes of pinned memory: %v; want an error about the host's memory, not "+
			"the device's", err)
	}
	x, err := d.Alloc(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil { // memory that the other thread frees might be in use
		t.Fatal(err)
	}
	if d, err := Open(Options{Memory: 1 << 50, Library: library(t)}); err == nil {
		t.Errorf("a device of 2^50 bytes opens: %v", d.Close())
	}
	d.Add(x, x)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// Without a GPU, every library present loads, has all functions, and gives an error that says what
// to do.
func TestNoDevice(t *testing.T) {
	// a process loads one library, once
	if path := os.Getenv("HALOGNN_CUDA_WITHOUT_DEVICE"); path != "" {
		_, err := Open(Options{Library: path})
		if err == nil || !strings.Contains(err.Error(), "this process sees no GPU") {
			t.Errorf("%s: error %v", path, err)
		}
		return
	}
	dir, err := filepath.Abs("../../../../build")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "libhalognn_cuda*.so"))
	if err != nil {
		t.Fatal(err)
	}
	if path := os.Getenv("HALOGNN_CUDA_LIB"); path != "" {
		paths = []string{path}
	}
	if len(paths) == 0 {
		t.Skip("no library is built: `make -C kernels emulated` builds the emulated one")
	}
	for _, path := range paths {
		c := exec.Command(os.Args[0], "-test.run=^TestNoDevice$", "-test.v")
		c.Env = append(os.Environ(), "HALOGNN_CUDA_WITHOUT_DEVICE="+path,
			"HALOGNN_EMULATED_DEVICES=0", "CUDA_VISIBLE_DEVICES=")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// A device takes the first cuBLAS that works. Where none does, it does not open, and the error says
// why of each that was tried, and which variable names another. The emulated device has its own,
// whatever that variable says.
func TestNoCuBLAS(t *testing.T) {
	if list := os.Getenv("HALOGNN_EMULATED_CUBLAS"); list != "" {
		last := list[strings.LastIndexByte(list, ':')+1:]
		for range 2 { // the second device tries again
			d, err := Open(Options{Memory: 1 << 20, Library: library(t)})
			if last == library(t) {
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), "cuBLAS cannot be loaded: /nowhere") ||
				strings.Count(err.Error(), last+": not made") != 1 ||
				!strings.Contains(err.Error(), "HALOGNN_CUBLAS_LIB") {
				t.Errorf("error %v", err)
			}
		}
		leaksNothing(t)
		return
	}
	if !strings.Contains(library(t), "emulated") {
		t.Skip("the library is not emulated")
	}
	again := func(test string, environment ...string) {
		t.Helper()
		c := exec.Command(os.Args[0], "-test.run=^"+test+"$")
		c.Env = append(os.Environ(), environment...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", environment, err, out)
		}
	}
	fails := filepath.Join(t.TempDir(), "fails.so")
	text := "const char *cublasGetStatusString(int s) { return \"not made\"; }\n"
	for _, name := range []string{"Create_v2", "Destroy_v2", "SetStream_v2", "SetWorkspace_v2",
		"SetMathMode", "GetProperty", "Sgemm_v2", "SgemmBatched", "GemmEx", "GemmBatchedEx"} {
		text += "int cublas" + name + "(void *h) { return 1; }\n"
	}
	compiler := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-o", fails, "-")
	compiler.Stdin = strings.NewReader(text)
	if out, err := compiler.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	list := "HALOGNN_EMULATED_CUBLAS=/nowhere/libcublas.so:" + fails
	again("TestNoCuBLAS", list)
	again("TestNoCuBLAS", list+":"+library(t))
	again("TestArithmeticIsRestored", "HALOGNN_CUBLAS_LIB=/nowhere/libcublas.so")
}
