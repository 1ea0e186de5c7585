package parallel

import (
	"errors"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// linked adds gradients in device memory, slice by slice: rank r owns slice r of every bucket.
//
//	training  backward 2 ─┬─ backward 1 ─┬─ backward 0 ─┬─ wait ─ update
//	queue                 └ bucket 2: slices to their owners | added in rank order | sums to all
//	                                     └ bucket 1: ...        └ bucket 0: ...
//
// So the sums have the same bits as those of comm.Summer.
type linked struct {
	kept
	queue *linkQueue
	// sum adds a bucket in an order of the library's choice. It is nil if sums are in rank order.
	sum     func(buf []float32) error
	slices  []float32 // memory for the slices of all buckets
	buckets []bucket  // [layers] bucket of each layer
	flight  []int     // layers, in the order they were started
	bytes   int64     // result of the method sent
}

// bucket is a layer's gradients, cut into slices. Element r of an array is the slice sent to rank
// r, or received from it.
type bucket struct {
	all, own          []float32   // all: the gradients; own: this rank's slice of the gradients
	slices            []float32   // this rank's slice of the gradients of every rank
	toOwners, fromAll [][]float32 // slices before they are added: sent to owners, received from all
	toAll, fromOwners [][]float32 // slices after they are added: sent to all, received from owners
	ready, done       compute.Event
	errand            errand
	told              chan error // result of the errand that adds the bucket
}

// newLinked makes a reducer over a linkQueue. The reducer's close ends the queue and closes its
// transport. If newLinked fails, the caller must end the queue and close the transport.
func newLinked(p *nn.Params, layers int, queue *linkQueue) (*linked, error) {
	device := queue.device
	s := &linked{kept: kept{device: device, params: p}, queue: queue,
		buckets: make([]bucket, layers), flight: make([]int, 0, layers)}
	total := 0
	for l := range s.buckets {
		total += s.buckets[l].cut(p, l, queue.rank, queue.ranks)
	}
	var err error
	if s.slices, err = device.Alloc(total); err != nil {
		return nil, errors.Join(err, s.free())
	}
	rest := s.slices
	for l := range s.buckets {
		b := &s.buckets[l]
		rest = b.place(rest, queue.ranks)
		b.told = make(chan error, 1)
		b.errand = errand{func() error { return s.add(b) }, b.told}
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

// place takes memory for the slices of the other ranks from the front of the given memory, and
// returns the rest.
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
	b := &s.buckets[l]
	s.bytes += comm.SumBytes(len(b.all), 0, s.queue.ranks, false)
	s.queue.device.Record(b.ready)
	s.flight = append(s.flight, l)
	s.queue.errands <- b.errand
}

// add sums a bucket on the device. The goroutine of the link queue calls it.
func (s *linked) add(b *bucket) error {
	device, over := s.queue.device, s.queue.over
	device.Follow(b.ready)
	if s.sum != nil {
		if err := s.sum(b.all); err != nil {
			return err
		}
		device.RecordComm(b.done)
		return nil
	}
	if err := over.Exchange(b.toOwners, b.fromAll); err != nil {
		return err
	}
	device.AddSlices(b.own, b.slices, s.queue.rank)
	if err := over.Exchange(b.toAll, b.fromOwners); err != nil {
		return err
	}
	device.RecordComm(b.done)
	return nil
}

func (s *linked) wait() error {
	var err error
	for _, l := range s.flight {
		fault := <-s.buckets[l].told
		if fault == nil && err == nil {
			fault = s.queue.over.Wait(s.buckets[l].done)
		}
		if err == nil {
			err = fault
		}
	}
	s.flight = s.flight[:0]
	return err
}

// queueWait makes kernels wait for the sums. It returns when all of them are queued.
func (s *linked) queueWait() error {
	var err error
	for _, l := range s.flight {
		if fault := <-s.buckets[l].told; err == nil {
			err = fault
		}
		if err == nil {
			s.queue.device.Await(s.buckets[l].done)
		}
	}
	s.flight = s.flight[:0]
	return err
}

func (s *linked) waitFor(e compute.Event) error { return s.queue.over.Wait(e) }
func (s *linked) passed(e compute.Event) bool   { return s.queue.over.Passed(e) }

func (s *linked) reproducible() bool { return s.sum == nil }
func (s *linked) sent() int64        { return s.bytes }

func (s *linked) close() error {
	err := s.queue.over.Close()
	s.queue.end()
	return errors.Join(err, s.free())
}

// free frees everything but the queue.
func (s *linked) free() error {
	var errs []error
	for l := range s.buckets {
		for _, a := range []compute.Event{s.buckets[l].ready, s.buckets[l].done} {
			if a != nil {
				errs = append(errs, a.Free())
			}
		}
	}
	s.queue.device.Free(s.slices)
	return errors.Join(append(errs, s.kept.close())...)
}

// messages sends slices by a CUDA-aware MPI. MPI does not know the queue of a device, so an
// exchange waits for all earlier work of the device, and is complete when Exchange returns.
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
			m.requests = append(m.requests, m.comm.StartRecv(mem.Bytes(recv[from]), from))
		}
	}
	for hop := 1; hop < ranks; hop++ {
		if to := (rank + hop) % ranks; len(send[to]) > 0 {
			m.requests = append(m.requests, m.comm.StartSend(mem.Bytes(send[to]), to))
		}
	}
	var err error
	for _, r := range m.requests { // wait for all requests, because they use the buffers
		err = errors.Join(err, r.Wait())
	}
	m.requests = m.requests[:0]
	return err
}

// Wait implements sliceTransport.
func (m *messages) Wait(a compute.Event) error { return a.Wait() }

// Passed implements sliceTransport.
func (m *messages) Passed(e compute.Event) bool { return e.Passed() }

// Close implements sliceTransport.
func (m *messages) Close() error { return errors.Join(m.before.Free(), m.comm.Free()) }

// Cut implements sliceTransport.
func (m *messages) Cut() { _ = m.Close() } // nothing is under way, and an error is known
