package parallel

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
)

// Shuffling is how hidden rows travel between ranks whose devices have memory of their own:
//
//	direct  between the devices, through the queue and the transport of the gradients
//	staged  between the hosts, through pinned memory
type Shuffling string

// ShuffleAuto is direct if gradients travel between the devices, and otherwise staged.
const (
	ShuffleAuto   Shuffling = "auto"
	ShuffleDirect Shuffling = "direct"
	ShuffleStaged Shuffling = "staged"
)

// carrier moves rows between the ranks of a group within a step.
type carrier interface {
	// carry sends out[r] rows of send to every rank r, and receives in[r] rows from it into recv.
	// If out is nil, every rank gets all of send. Kernels that are called after carry has returned
	// read the received rows.
	carry(send, recv []float32, out, in []int, cols int) error
	// arrived returns an error if rows carried so far have not arrived. Call it once kernels are
	// done.
	arrived() error
	// bytes returns the size of the pinned memory, and way returns the path of the rows.
	bytes() int64
	way() Shuffling
	close() error
}

// ShuffleHost is the path of rows that lie in host memory.
const ShuffleHost Shuffling = "host"

func (byHosts) way() Shuffling       { return ShuffleHost }
func (*throughHosts) way() Shuffling { return ShuffleStaged }
func (*direct) way() Shuffling       { return ShuffleDirect }

// Direct reports whether rows travel between devices, as far as the settings decide it. With
// ShuffleAuto the settings decide it only if the transport of gradients is set to NCCL or MPI.
func (s Shuffling) Direct(gradients Transport) bool {
	return s == ShuffleDirect ||
		s == ShuffleAuto && (gradients == TransportNCCL || gradients == TransportMPI)
}

// newCarrier makes a device's carrier for the ranks of c. The argument `first` is the number that
// the first rank of c has in the job.
func newCarrier(o *Options, c comm.Comm, first int) (carrier, error) {
	device := compute.CapabilitiesOf(o.Device).Accelerator
	if device == nil {
		return byHosts{c, o.Device}, nil
	}
	var queue *linkQueue
	if o.Gradients != nil {
		queue = o.Gradients.queue
	}
	switch {
	case o.Shuffles == ShuffleDirect && queue == nil && o.Gradients != nil && o.Comm.Size() > 1:
		return nil, fmt.Errorf("%w, but compute.shuffles=direct needs links: it sends rows by "+
			"the transport of gradients, which is %s in this job; set compute.shuffles=auto, "+
			"or set compute.gradients to nccl or mpi and leave out train.gradient_dtype=bf16",
			ErrTransport,
			o.Gradients.Transport())
	case queue == nil || o.Shuffles == ShuffleStaged:
		return &throughHosts{comm: c, device: device}, nil
	}
	return newDirect(queue, c, first)
}

// carried starts the collective that carries rows in host memory.
func carried(c comm.Comm, send, recv []byte, out, in []int, width int) request {
	if out == nil {
		return c.StartAllgatherv(send, recv, in, width)
	}
	return c.StartAlltoallv(send, recv, out, in, width)
}

// byHosts carries rows of a device whose memory is the host's.
type byHosts struct {
	comm   comm.Comm
	device compute.Device
}

func (b byHosts) carry(send, recv []float32, out, in []int, cols int) error {
	if err := b.device.Sync(); err != nil {
		return err
	}
	return carried(b.comm, mem.Bytes(send), mem.Bytes(recv), out, in, 4*cols).Wait()
}

func (byHosts) arrived() error { return nil }
func (byHosts) bytes() int64   { return 0 }
func (byHosts) close() error   { return nil }

// throughHosts carries rows down to pinned memory, between the hosts, and up again.
type throughHosts struct {
	comm   comm.Comm
	device compute.Accelerator
	host   []float32 // pinned memory for what is sent, then for what is received
}

func (t *throughHosts) carry(send, recv []float32, out, in []int, cols int) error {
	n := len(send)
	if err := growOn(t.device, &t.host, n+len(recv), t.device.AllocHost,
		t.device.FreeHost); err != nil {
		return err
	}
	from, to := t.host[:n], t.host[n:n+len(recv)]
	t.device.Download(from, send)
	if err := carried(t.comm, mem.Bytes(from), mem.Bytes(to), out, in, 4*cols).Wait(); err != nil {
		return err
	}
	t.device.Upload(recv, to)
	return nil
}

func (*throughHosts) arrived() error { return nil }
func (t *throughHosts) bytes() int64 { return int64(len(t.host)) * 4 }

func (t *throughHosts) close() error {
	t.device.FreeHost(t.host)
	return nil
}

// direct carries rows from device to device, through the queue of the gradients. The host waits
// until the transfer is queued, the device until it is done:
//
//	kernels  pack ── ready                                          done ── unpack
//	comm                └ (buckets of gradients) ── rows ── done ──┘
type direct struct {
	queue *linkQueue
	// The field `first` is the number in the job of the group's rank 0. The field `rank` is the
	// number of this rank in the group.
	first, rank int
	send, recv  [][]float32 // [job's ranks] rows for each rank; empty for ranks of other groups
	ready, done compute.Event
	errand      errand
	told        chan error // result of the transfer that enqueue has queued
	carried     bool
}

func newDirect(queue *linkQueue, c comm.Comm, first int) (*direct, error) {
	d := &direct{queue: queue, first: first, rank: c.Rank(),
		send: make([][]float32, queue.ranks), recv: make([][]float32, queue.ranks),
		told: make(chan error, 1)}
	d.errand = errand{d.enqueue, d.told}
	for _, e := range []*compute.Event{&d.ready, &d.done} {
		made, err := queue.device.NewEvent()
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		*e = made
	}
	return d, nil
}

func (d *direct) carry(send, recv []float32, out, in []int, cols int) error {
	device := d.queue.device
	for r, n := range in {
		from, to := send, recv[:n*cols]
		recv = recv[len(to):]
		if out != nil {
			from = send[:out[r]*cols]
			send = send[len(from):]
		}
		if r == d.rank {
			if n > 0 {
				device.Copy(to, from)
			}
			continue
		}
		d.send[d.first+r], d.recv[d.first+r] = from, to
	}
	device.Record(d.ready)
	d.queue.errands <- d.errand
	if err := <-d.told; err != nil {
		return fmt.Errorf("rows between layers: %w", err)
	}
	device.Await(d.done)
	d.carried = true
	return nil
}

// enqueue gives the transfer of carry to the device. The goroutine of the link queue calls it.
func (d *direct) enqueue() error {
	d.queue.device.Follow(d.ready)
	if err := d.queue.over.Exchange(d.send, d.recv); err != nil {
		return err
	}
	d.queue.device.RecordComm(d.done)
	return nil
}

func (d *direct) arrived() error {
	if !d.carried { // nothing was carried, so the event done was not recorded
		return nil
	}
	return d.queue.over.Wait(d.done)
}

func (*direct) bytes() int64 { return 0 }

func (d *direct) close() error {
	var errs []error
	for _, e := range []compute.Event{d.ready, d.done} {
		if e != nil {
			errs = append(errs, e.Free())
		}
	}
	return errors.Join(errs...)
}
