package parallel

import (
	"errors"

	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// kept holds gradients in device memory. With a single rank they stay there.
type kept struct {
	device compute.Accelerator
	params *nn.Params
	// Sum of the gradients of this rank's earlier minibatches of the step; nil if none was ever
	// held.
	held []float32
}

func (k *kept) hold(first bool) error {
	if k.held == nil {
		var err error
		if k.held, err = k.device.Alloc(k.params.Len()); err != nil {
			return err
		}
	}
	if first {
		k.device.Copy(k.held, k.params.Grads)
	} else {
		k.device.Add(k.held, k.params.Grads)
	}
	return nil
}

func (k *kept) start(l int, holding bool) {
	if lo, hi := k.params.Bucket(l); holding && k.held != nil {
		k.device.Add(k.params.Grads[lo:hi], k.held[lo:hi])
	}
}

func (k *kept) wait() error                   { return nil }
func (k *kept) queueWait() error              { return nil }
func (k *kept) waitFor(e compute.Event) error { return e.Wait() }
func (k *kept) passed(e compute.Event) bool   { return e.Passed() }
func (k *kept) reproducible() bool            { return true }
func (k *kept) sent() int64                   { return 0 }

func (k *kept) close() error {
	k.device.Free(k.held)
	return nil
}

// staged adds gradients on the host, in pinned memory: a bucket is downloaded after backward of its
// layer, while the layers below run, and its sum is uploaded before the optimiser reads it.
//
//	device   backward 2 ─ backward 1 ─ backward 0 ─                          ─ update
//	copies              └ down 2     └ down 1     └ down 0    up 2, up 1, up 0 ┘
//	ranks                      └ sum 2 ──   └ sum 1 ──  └ sum 0 ──┘
type staged struct {
	kept
	summer *comm.Summer
	host   []float32 // gradients on the host, in the layout of Params.Grads
	events []compute.Event
	coming []int       // layers whose bucket is being downloaded, oldest first
	flight []*comm.Sum // sums in the order they were started
	err    error       // error of start, which wait returns
}

// newStaged allocates everything that needs no other rank.
func newStaged(p *nn.Params, layers int, device compute.Accelerator) (*staged, error) {
	s := &staged{kept: kept{device: device, params: p}, flight: make([]*comm.Sum, 0, layers)}
	var err error
	if s.host, err = device.AllocHost(p.Len()); err != nil {
		return nil, err
	}
	for range layers {
		a, err := device.NewEvent()
		if err != nil {
			return nil, errors.Join(err, s.free())
		}
		s.events = append(s.events, a)
	}
	return s, nil
}

func (s *staged) start(l int, holding bool) {
	s.kept.start(l, holding)
	lo, hi := s.params.Bucket(l)
	s.device.StartDownload(s.host[lo:hi], s.params.Grads[lo:hi], s.events[l])
	s.coming = append(s.coming, l)
	// Start the sum of the oldest bucket, so that the device computes while this rank waits for the
	// download.
	if len(s.coming) > 1 {
		s.startDownloaded()
	}
}

// startDownloaded waits until the oldest bucket is downloaded and begins its sum. After an error it
// begins no more sums.
func (s *staged) startDownloaded() {
	l := s.coming[0]
	s.coming = s.coming[:copy(s.coming, s.coming[1:])]
	if s.err == nil {
		s.err = s.events[l].Wait()
	}
	if s.err != nil {
		return
	}
	lo, hi := s.params.Bucket(l)
	s.flight = append(s.flight, s.summer.StartExact(s.host[lo:hi], s.params.Exact(l)))
}

func (s *staged) wait() error {
	for len(s.coming) > 0 {
		s.startDownloaded()
	}
	err := s.err
	if s.err = nil; err == nil {
		err = waitFor(&s.flight)
	}
	if err == nil {
		s.device.StartUpload(s.params.Grads, s.host)
	}
	return err
}

func (s *staged) reproducible() bool { return s.summer.Reproducible() }
func (s *staged) sent() int64        { return s.summer.Sent() }

func (s *staged) free() error {
	var errs []error
	for _, a := range s.events {
		errs = append(errs, a.Free())
	}
	s.device.FreeHost(s.host)
	return errors.Join(errs...)
}

func (s *staged) close() error { return errors.Join(s.kept.close(), s.free(), s.summer.Close()) }
