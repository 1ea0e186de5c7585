package parallel

import (
	"errors"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/npy"
)

// linked adds gradients in device memory, slice by slice: rank r owns slice r of every bucket.
//
//	training  backward 2 ─┬─ backward 1 ─┬─ backward 0 ─┬─ wait ─ update
//	lane                  └ bucket 2: slices to their owners | added in rank order | sums to all
//	                                     └ bucket 1: ...        └ bucket 0: ...
//
// So the sums have the bits of comm.Summer's. The lane is a goroutine, because queueing may block
// and training must not.
type linked struct {
	kept
	device compute.PeerDevice
	slicer sliceTransport
	// adds a bucket in an order of the library's choice; nil: in rank order
	sum     func(buf []float32) error
	rank    int
	slices  []float32 // of all buckets
	buckets []bucket  // by layer

	layer  chan int   // the layers whose buckets the lane adds
	queued chan error // the result for each layer
	flight []int      // layers, in the order they were started
}

// sliceTransport moves slices between the devices of all ranks: compute.Links, or messages.
type sliceTransport interface {
	Exchange(send, recv [][]float32) error
	Wait(a compute.Event) error
	Close() error // called by every rank
	Cut()         // called by one rank alone
}

// bucket is a layer's gradients, cut into slices. Element r of an array is the slice sent to rank
// r, or received from it.
type bucket struct {
	all, own          []float32   // the gradients; this rank's slice of them
	slices            []float32   // this rank's slice, of every rank
	toOwners, fromAll [][]float32 // slices before they are added
	toAll, fromOwners [][]float32 // slices after they are added
	ready, done       compute.Event
}

// newLinked makes a reducer over a sliceTransport. The reducer's close closes the transport;
// newLinked does not if it fails.
func newLinked(p *nn.Params, layers, rank, ranks int, device compute.PeerDevice,
	c sliceTransport) (*linked, error) {
	s := &linked{kept: kept{device: device, params: p}, device: device, slicer: c, rank: rank,
		buckets: make([]bucket, layers),
		layer:   make(chan int, layers), queued: make(chan error, layers),
		flight: make([]int, 0, layers)}
	total := 0
	for l := range s.buckets {
		total += s.buckets[l].cut(p, l, rank, ranks)
	}
	go s.lane()
	var err error
	if s.slices, err = device.Alloc(total); err != nil {
		return nil, errors.Join(err, s.free())
	}
	rest := s.slices
	for l := range s.buckets {
		b := &s.buckets[l]
		rest = b.place(rest, ranks)
		for _, a := range []*compute.Event{&b.ready, &b.done} {
			made, err := device.NewEvent()
			if err != nil {
				return nil, errors.Join(err, s.free())
			}
			*a = made
		}
	}
	return s, nil
}

// cut sets the slices of layer l's gradients and returns the number of elements that the slices of
// the other ranks need.
func (b *bucket) cut(p *nn.Params, l, rank, ranks int) int {
	lo, hi := p.Bucket(l)
	b.all = p.Grads[lo:hi]
	b.toOwners, b.fromAll = make([][]float32, ranks), make([][]float32, ranks)
	b.toAll, b.fromOwners = make([][]float32, ranks), make([][]float32, ranks)
	n := len(b.all)
	b.own = b.all[rank*n/ranks : (rank+1)*n/ranks]
	for r := range ranks {
		if r != rank {
			b.toOwners[r] = b.all[r*n/ranks : (r+1)*n/ranks]
			b.fromOwners[r], b.toAll[r] = b.toOwners[r], b.own
		}
	}
	return len(b.own) * ranks
}

// place takes memory for the slices of the other ranks from the front of memory, and returns the
// rest.
func (b *bucket) place(memory []float32, ranks int) []float32 {
	n := len(b.own)
	b.slices = memory[:n*ranks]
	for r := range ranks {
		if b.toAll[r] != nil {
			b.fromAll[r] = b.slices[r*n : (r+1)*n]
		}
	}
	return memory[n*ranks:]
}

func (s *linked) start(l int, holding bool) {
	s.kept.start(l, holding)
	s.device.Record(s.buckets[l].ready)
	s.flight = append(s.flight, l)
	s.layer <- l
}

// lane adds buckets in the order in which they were started, which is the same on all ranks. After
// an error it adds no more.
func (s *linked) lane() {
	var b *bucket
	add := func() error { return s.add(b) }
	var fault error
	for l := range s.layer {
		if b = &s.buckets[l]; fault == nil {
			fault = mem.Contain(add)
		}
		s.queued <- fault
	}
	close(s.queued)
}

func (s *linked) add(b *bucket) error {
	s.device.Follow(b.ready)
	if s.sum != nil {
		if err := s.sum(b.all); err != nil {
			return err
		}
		s.device.RecordComm(b.done)
		return nil
	}
	if err := s.slicer.Exchange(b.toOwners, b.fromAll); err != nil {
		return err
	}
	s.device.AddSlices(b.own, b.slices, s.rank)
	if err := s.slicer.Exchange(b.toAll, b.fromOwners); err != nil {
		return err
	}
	s.device.RecordComm(b.done)
	return nil
}

func (s *linked) wait() error {
	var err error
	for _, l := range s.flight {
		fault := <-s.queued
		if fault == nil && err == nil {
			fault = s.slicer.Wait(s.buckets[l].done)
		}
		if err == nil {
			err = fault
		}
	}
	s.flight = s.flight[:0]
	return err
}

func (s *linked) reproducible() bool { return s.sum == nil }

func (s *linked) close() error { return errors.Join(s.slicer.Close(), s.free()) }

// free frees everything except the sliceTransport.
func (s *linked) free() error {
	close(s.layer)
	for range s.queued { // until the lane has ended
	}
	var errs []error
	for l := range s.buckets {
		for _, a := range []compute.Event{s.buckets[l].ready, s.buckets[l].done} {
			if a != nil {
				errs = append(errs, a.Free())
			}
		}
	}
	s.device.Free(s.slices)
	return errors.Join(append(errs, s.kept.close())...)
}

// messages sends slices by a CUDA-aware MPI. MPI does not know the queue of a device, so an
// exchange waits for all earlier work of the device, and is complete when it returns.
type messages struct {
	device   compute.PeerDevice
	comm     comm.Comm
	before   compute.Event
	requests []comm.Request
}

// newMessages makes a sliceTransport on a duplicate of c. Collective.
func newMessages(c comm.Comm, device compute.PeerDevice) (*messages, error) {
	made, err := c.Dup()
	if err != nil {
		return nil, err
	}
	m := &messages{device: device, comm: made}
	if m.before, err = device.NewEvent(); err != nil {
		return nil, errors.Join(err, made.Free())
	}
	return m, nil
}

// Exchange implements sliceTransport. Ranks begin with different peers, so that they do not all
// send to the same one.
func (m *messages) Exchange(send, recv [][]float32) error {
	m.device.RecordComm(m.before)
	if err := m.before.Wait(); err != nil {
		return err
	}
	rank, ranks := m.comm.Rank(), m.comm.Size()
	for hop := 1; hop < ranks; hop++ {
		if from := (rank - hop + ranks) % ranks; len(recv[from]) > 0 {
			m.requests = append(m.requests, m.comm.StartRecv(npy.Bytes(recv[from]), from))
		}
	}
	for hop := 1; hop < ranks; hop++ {
		if to := (rank + hop) % ranks; len(send[to]) > 0 {
			m.requests = append(m.requests, m.comm.StartSend(npy.Bytes(send[to]), to))
		}
	}
	var err error
	for _, r := range m.requests { // wait for all: they use the buffers
		err = errors.Join(err, r.Wait())
	}
	m.requests = m.requests[:0]
	return err
}

// Wait implements sliceTransport.
func (m *messages) Wait(a compute.Event) error { return a.Wait() }

// Close implements sliceTransport.
func (m *messages) Close() error { return errors.Join(m.before.Free(), m.comm.Free()) }

// Cut implements sliceTransport.
func (m *messages) Cut() { _ = m.Close() } // nothing is under way, and an error is known
