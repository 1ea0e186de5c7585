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
// So the sums have the bits of comm.Summer's. The lane is a goroutine: queueing may have to wait,
// and training does not.
type linked struct {
	kept
	device  compute.PeerDevice
	slicer  sliceTransport
	sum     func(buf []float32) error // adds a bucket in an order of the library's choice; nil: in rank order
	rank    int
	slices  []float32 // of all buckets
	buckets []bucket  // by layer

	layer  chan int   // what the lane is to add
	queued chan error // and what became of it
	flight []int      // layers, in the order they were started
}

// sliceTransport moves slices between the devices of all ranks: compute.Links, or messages.
type sliceTransport interface {
	Exchange(send, recv [][]float32) error
	Wait(a compute.Event) error
	Close() error // every rank does
	Cut()         // one alone
}

// bucket is a layer's gradients, cut into slices. [r] in the arrays is what goes to rank r, or
// comes from it.
type bucket struct {
	all, own          []float32   // the gradients; this rank's slice of them
	slices            []float32   // this rank's slice, of every rank
	toOwners, fromAll [][]float32 // slices before they are added
	toAll, fromOwners [][]float32 // and after
	ready, done       compute.Event
}

// newLinked makes the sum over a sliceTransport, which it closes in the end unless this fails.
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

// cut finds the slices of layer l's gradients and returns how much room those of the other ranks
// need.
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

// place takes the room for the slices of the other ranks from the front of memory, and returns the
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

// lane adds buckets in the order in which they were started, which is that of all ranks. After a
// fault it adds no more.
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

// free gives back all but the sliceTransport.
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

// messages carry slices by an MPI that knows device memory. It does not know what is queued on a
// device, so an exchange begins when all before it is done, and has ended when it returns.
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

// Exchange implements sliceTransport. Ranks begin with different ones, so that not all send to the
// same.
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
	for _, r := range m.requests { // all: their buffers belong to them
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
func (m *messages) Cut() { _ = m.Close() } // nothing is under way, and there is a fault to tell already
