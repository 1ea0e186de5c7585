package parallel

import (
	"errors"
	"fmt"

	"halognn/src/base/fault"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
)

// mover sends rows between ranks within a step. The training goroutine calls it while sums of
// gradients and stages of later minibatches are under way. So it has a communicator of its own, or
// shares the device's queue with the gradients (carrier).
type mover struct {
	comm    comm.Comm
	rank    int // rank in the job, for faults that tests inject
	device  compute.Device
	carrier carrier
}

// newMover makes a communicator of the ranks of c. The argument `first` is the rank in the job of
// rank 0 of c. Collective of all ranks of the job: if one group fails, all ranks return its error.
func newMover(o *Options, c comm.Comm, first int) (mover, error) {
	made := mover{rank: first + c.Rank(), device: o.Device}
	own, err := c.Dup()
	if err != nil {
		return made, err
	}
	made.comm = own
	made.carrier, err = newCarrier(o, own, first)
	if err = comm.Agree(o.Comm, err); err != nil {
		return mover{}, errors.Join(err, made.close())
	}
	return made, nil
}

// close frees carrier and communicator.
func (s *mover) close() error {
	if s.comm == nil {
		return nil
	}
	var err error
	if s.carrier != nil {
		err = s.carrier.close()
	}
	return errors.Join(err, s.comm.Free())
}

func (s *mover) way() Shuffling { return s.carrier.way() }

func (s *mover) arrived() error { return s.carrier.arrived() }

// enter ends the phase pass, which is Forward or Backward, and begins the phase Shuffle. The method
// leave does the reverse.
func (s *mover) enter(m *Minibatch, pass trace.Phase, phases Phases) error {
	if err := m.point(fault.Shuffle, s.rank); err != nil {
		return fmt.Errorf("step %d: %w", m.Key.Step, err)
	}
	phases.End(pass)
	phases.Begin(trace.Shuffle)
	return nil
}

func (s *mover) leave(pass trace.Phase, phases Phases) {
	phases.End(trace.Shuffle)
	phases.Begin(pass)
}

// rows returns a matrix for rows in transit between ranks, in memory that grows as needed.
func (s *mover) rows(memory *[]float32, of compute.Elements, rows, cols int) (compute.Matrix,
	error) {
	err := growOn(s.device, memory, of.Floats(rows*cols), s.device.Alloc, s.device.Free)
	if err != nil {
		return compute.Matrix{}, fmt.Errorf("%d rows for other ranks: %w", rows, err)
	}
	return of.MatrixIn(*memory, rows, cols), nil
}

// growOn grows an array to n elements, at the rate at which the buffers of the model grow.
func growOn(device compute.Device, of *[]float32, n int, alloc func(int) ([]float32, error),
	free func([]float32)) error {
	if n <= len(*of) {
		return nil
	}
	if *of != nil {
		if err := device.Sync(); err != nil { // kernels may still be reading what is freed here
			return err
		}
		free(*of)
		*of, n = nil, n+n/4
	}
	made, err := alloc(n)
	*of = made
	return err
}

// exchange carries rows as carrier.carry does. A row takes the memory of cols float32 numbers. It
// adds to count what this rank sends to other ranks and gets from them.
func (s *mover) exchange(count *trace.Shuffles, send, recv []float32, out, in []int,
	cols int) error {
	width, rank := 4*cols, s.comm.Rank()
	count.Collectives++
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
	return s.carrier.carry(send, recv, out, in, cols)
}
