//go:build cgo

package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"halognn/src/devices/compute"
)

// peers opens a device for each of n ranks. An emulated library also serves as NCCL.
func peers(t *testing.T, n int) []*Device {
	t.Helper()
	path := library(t)
	first, err := Open(Options{Memory: 1 << 20, Library: path})
	if err != nil {
		t.Fatal(err)
	}
	if leaks() >= 0 {
		t.Setenv("HALOGNN_NCCL_LIB", path)
	}
	devices := []*Device{first}
	t.Cleanup(func() {
		for _, d := range devices {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		if leaks() >= 0 {
			leaksNothing(t)
		}
	})
	if _, err := first.FindLinks(); err != nil {
		t.Skip(err)
	}
	for r := 1; r < n; r++ {
		d, err := Open(Options{Device: r, Memory: 1 << 20, Library: path})
		if err != nil {
			t.Skipf("%d GPUs are needed, a device for each rank: %v", n, err)
		}
		devices = append(devices, d)
	}
	return devices
}

// onAll links the devices, runs f for all ranks concurrently, and returns the errors of opening
// links or of f.
func onAll(devices []*Device, o compute.LinkOptions,
	f func(rank int, d *Device, l compute.Links) error) []error {
	var err error
	if o.ID, err = devices[0].NewLinkID(); err != nil {
		return []error{err}
	}
	o.Ranks = len(devices)
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	errs := make([]error, len(devices))
	var ranks sync.WaitGroup
	for r, d := range devices {
		ranks.Go(func() {
			o := o
			o.Rank = r
			l, err := d.Link(o)
			if err == nil {
				err = errors.Join(f(r, d, l), l.Close())
			}
			errs[r] = err
		})
	}
	ranks.Wait()
	return errs
}

// filled returns device memory with n elements x, and an event.
func filled(d *Device, n int, x float32) ([]float32, compute.Event, error) {
	on, err := d.Alloc(n)
	if err != nil {
		return nil, nil, err
	}
	host := make([]float32, n)
	for i := range host {
		host[i] = x
	}
	d.Upload(on, host)
	a, err := d.NewEvent()
	return on, a, err
}

// Slices of every length reach their ranks, after the kernels before them, under any schedule of
// queued work, and Sum adds over all ranks: also of one, for which one GPU is enough.
func TestLinks(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("ranks=%d/seed=%d", ranks, seed), func(t *testing.T) {
				devices := peers(t, ranks)
				defer schedule(0)
				schedule(seed)
				rng := rand.New(rand.NewPCG(seed, uint64(ranks)))
				lengths := make([][]int, ranks) // from, to
				for from := range lengths {
					for range ranks {
						lengths[from] = append(lengths[from], rng.IntN(3)*rng.IntN(40))
					}
				}
				for r, err := range onAll(devices, compute.LinkOptions{},
					func(rank int, d *Device, l compute.Links) error {
						return exchangeAndSum(rank, ranks, lengths, d, l)
					}) {
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			})
		}
	}
}

// exchangeAndSum sends 100*from+to, written by a kernel, from each rank to each, and sums the
// numbers of the ranks.
func exchangeAndSum(rank, ranks int, lengths [][]int, d *Device, l compute.Links) error {
	var send, recv [][]float32
	for r := range ranks {
		out, a, err := filled(d, lengths[rank][r], float32(100*rank))
		if err != nil {
			return err
		}
		more, b, err := filled(d, lengths[rank][r], float32(r))
		if err != nil {
			return err
		}
		in, c, err := filled(d, lengths[r][rank], -1)
		if err != nil {
			return err
		}
		if d.Add(out, more); r != rank {
			send, recv = append(send, out), append(recv, in)
		} else {
			send, recv = append(send, nil), append(recv, nil)
		}
		defer errors.Join(a.Free(), b.Free(), c.Free())
	}
	sum, done, err := filled(d, 50, float32(rank+1))
	if err != nil {
		return err
	}
	ready, err := d.NewEvent()
	if err != nil {
		return err
	}
	d.Record(ready)
	d.Follow(ready)
	if err := errors.Join(l.Exchange(send, recv), l.Sum(sum)); err != nil {
		return err
	}
	d.RecordComm(done)
	if err := l.Wait(done); err != nil {
		return err
	}
	for r, in := range recv {
		host := make([]float32, len(in))
		d.Download(host, in)
		for _, x := range host {
			if x != float32(100*r+rank) {
				return fmt.Errorf("%v came from rank %d", x, r)
			}
		}
	}
	host := make([]float32, 50)
	d.Download(host, sum)
	if want := float32(ranks * (ranks + 1) / 2); host[49] != want {
		return fmt.Errorf("the sum is %v, want %v", host[49], want)
	}
	return errors.Join(ready.Free(), done.Free())
}

// If one rank fails in any way, all ranks return, and one of them reports the cause.
func TestLinksThatFail(t *testing.T) {
	sum := func(n int, d *Device, l compute.Links) error {
		x, done, err := filled(d, n, 1)
		if err != nil {
			return err
		}
		err = l.Sum(x)
		if err == nil {
			d.RecordComm(done)
			err = l.Wait(done)
		}
		return errors.Join(err, d.Sync(), done.Free())
	}
	ended := make(chan struct{})
	for _, c := range []struct {
		name string
		o    compute.LinkOptions
		f    func(rank int, d *Device, l compute.Links) error
		want string
	}{
		{"one rank does not come about", compute.LinkOptions{Timeout: 100 * time.Millisecond}, nil,
			"no network"},
		{"the others give up", compute.LinkOptions{Timeout: 100 * time.Millisecond}, nil,
			compute.ErrAlone.Error() + " within 100ms"},
		{"other lengths", compute.LinkOptions{},
			func(rank int, d *Device, l compute.Links) error { return sum(10+rank, d, l) },
			"ranks add 1"},
		{"a link breaks", compute.LinkOptions{}, func(rank int, d *Device, l compute.Links) error {
			if rank == 0 { // late, so that the others wait
				breaking(1)
				breaking(0)
			}
			return sum(10, d, l)
		}, "a link went down"},
		{"the job ends", compute.LinkOptions{Ended: ended},
			func(rank int, d *Device, l compute.Links) error {
				if rank == 0 {
					close(ended)
					return nil
				}
				return sum(10, d, l)
			}, "the job has ended"},
		{"after a failure", compute.LinkOptions{},
			func(rank int, d *Device, l compute.Links) error {
				breaking(rank)
				_ = sum(10, d, l)
				return l.Exchange(make([][]float32, 2), make([][]float32, 2))
			}, "a link went down"},
	} {
		t.Run(c.name, func(t *testing.T) {
			devices := peers(t, 2)
			if leaks() < 0 {
				t.Skip("faults come from the emulated NCCL")
			}
			if c.f == nil {
				t.Setenv("HALOGNN_EMULATED_NCCL_FAILS", "1")
			}
			if err := errors.Join(onAll(devices, c.o, c.f)...); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("the ranks return %v, want %q", err, c.want)
			}
		})
	}
}

func TestLinksThatAreNotThere(t *testing.T) {
	d := peers(t, 1)[0]
	for _, c := range []struct{ path, want string }{
		{"/nowhere/libnccl.so.2", "/nowhere/libnccl.so.2: cannot open shared object file"},
		{"libm.so.6", "libm.so.6 has no ncclGetVersion: NCCL 2.14 or later is needed"},
	} {
		t.Setenv("HALOGNN_NCCL_LIB", c.path)
		if _, err := d.FindLinks(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := d.Link(compute.LinkOptions{ID: []byte{1}}); err == nil {
		t.Error("links with an id of one byte")
	}
}

// A device that is closed early cuts its links first, so that work waiting for other ranks ends.
func TestClosingCutsLinks(t *testing.T) {
	for r, err := range onAll(peers(t, 2), compute.LinkOptions{},
		func(rank int, d *Device, l compute.Links) error {
			if rank == 1 {
				d.abortLinks()
				return nil
			}
			x, done, err := filled(d, 10, 1)
			if err != nil {
				return err
			}
			if err := l.Sum(x); err != nil {
				return err
			}
			d.RecordComm(done)
			d.abortLinks()
			if err := l.Wait(done); err == nil {
				return errors.New("a sum with a rank that has left came to an end")
			}
			return done.Free()
		}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
