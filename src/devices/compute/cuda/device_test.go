//go:build cgo

package cuda

import (
	"errors"
	"math/rand/v2"
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
