package parallel

import (
	"fmt"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/fault"
	"halognn/src/mem"
	"halognn/src/trace"
)

// mover sends rows between ranks within a step. The training goroutine calls it, on a communicator
// of its own, beside the sums of gradients and the stages of later minibatches.
//
// From a device with its own memory rows travel through the host's pinned memory. So whatever
// carries gradients between devices (Transport), no queue of a device has both, which ranks could
// fill in different orders.
type mover struct {
	comm        comm.Comm
	rank        int // of the job, for faults that tests inject
	device      compute.Device
	accelerator compute.Accelerator // the device; nil if its memory is the host's
	host        []float32           // pinned: what is sent, then what is received
}

// newMover makes the communicator. Collective.
func newMover(c comm.Comm, rank int, device compute.Device) (mover, error) {
	made, err := c.Dup()
	return mover{comm: made, rank: rank, device: device,
		accelerator: compute.CapabilitiesOf(device).Accelerator}, err
}

// close frees pinned memory and communicator.
func (s *mover) close() error {
	if s.comm == nil {
		return nil
	}
	if s.accelerator != nil {
		s.accelerator.FreeHost(s.host)
	}
	return s.comm.Free()
}

// enter leaves the phase for that of rows on their way, and leave goes back to it.
func (s *mover) enter(m *Minibatch, of trace.Phase, phases Phases) error {
	if err := m.point(fault.Shuffle, s.rank); err != nil {
		return fmt.Errorf("step %d: %w", m.Key.Step, err)
	}
	phases.End(of)
	phases.Begin(trace.Shuffle)
	return nil
}

func (s *mover) leave(of trace.Phase, phases Phases) {
	phases.End(trace.Shuffle)
	phases.Begin(of)
}

// rows makes room for rows on their way.
func (s *mover) rows(of *[]float32, rows, cols int) (compute.Matrix, error) {
	err := s.room(of, rows*cols, s.device.Alloc, s.device.Free)
	if err != nil {
		return compute.Matrix{}, fmt.Errorf("%d rows for other ranks: %w", rows, err)
	}
	return compute.Matrix{Rows: rows, Cols: cols, Data: (*of)[:rows*cols]}, nil
}

// room makes room for n elements, as the buffers of the model do.
func (s *mover) room(of *[]float32, n int, alloc func(int) ([]float32, error),
	free func([]float32)) error {
	if n <= len(*of) {
		return nil
	}
	if *of != nil {
		if err := s.device.Sync(); err != nil { // kernels may still be reading what is freed here
			return err
		}
		free(*of)
		*of, n = nil, n+n/4
	}
	made, err := alloc(n)
	*of = made
	return err
}

// exchange sends out[r] rows of send to every rank r, or without out all of it to all, and receives
// in[r] rows of it. count counts what other ranks get and send.
func (s *mover) exchange(count *trace.Shuffles, send, recv []float32, out, in []int,
	cols int) error {
	if err := s.device.Sync(); err != nil {
		return err
	}
	width, rank := 4*cols, s.comm.Rank()
	count.Rounds++
	for r, n := range in {
		if r == rank {
			continue
		}
		sent := in[rank]
		if out != nil {
			sent = out[r]
		}
		count.Bytes += int64(sent * width)
		count.Rows += int64(n)
		count.Got += int64(n * width)
	}
	if s.accelerator == nil {
		return s.start(mem.Bytes(send), mem.Bytes(recv), out, in, width).Wait()
	}
	n := len(send)
	if err := s.room(&s.host, n+len(recv), s.accelerator.AllocHost,
		s.accelerator.FreeHost); err != nil {
		return err
	}
	from, to := s.host[:n], s.host[n:n+len(recv)]
	s.device.Download(from, send)
	if err := s.start(mem.Bytes(from), mem.Bytes(to), out, in, width).Wait(); err != nil {
		return err
	}
	s.device.Upload(recv, to)
	return nil
}

func (s *mover) start(send, recv []byte, out, in []int, width int) request {
	if out == nil {
		return s.comm.StartAllgatherv(send, recv, in, width)
	}
	return s.comm.StartAlltoallv(send, recv, out, in, width)
}
