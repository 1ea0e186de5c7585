package parallel

import (
	"fmt"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/fault"
	"halognn/src/mem"
	"halognn/src/trace"
)

// shuffler sends hidden rows and their gradients between two layers of a minibatch that ranks share,
// along the shuffle index of its hops:
//
//	rows of the layer below      [own frontier | ........ ]  pack what others want ──> all-to-all
//	rows that the layer reads    [own frontier | received ]  <── in place, behind the own ones
//
//	gradient of these            [own frontier | received ]  the last rows ──> all-to-all
//	gradient of the layer below  [own frontier]              <── added, rank by rank
//
// A vertex that several ranks read gets its gradient as (of the own edges) + ((of rank 0) + (of rank
// 1) + ...), whatever comes first. The training goroutine calls it, on a communicator of its own,
// beside the sums of gradients and the stages of later minibatches.
type shuffler struct {
	comm      comm.Comm
	device    compute.Device
	drawer    *splitDrawer
	send, got []float32 // [W, width] in device memory: rows or gradients on their way
}

// newShuffler makes the communicator. Collective.
func newShuffler(c comm.Comm, device compute.Device, drawer *splitDrawer) (*shuffler, error) {
	made, err := c.Dup()
	return &shuffler{comm: made, device: device, drawer: drawer}, err
}

// close frees memory and communicator. A nil shuffler has none.
func (s *shuffler) close() error {
	if s == nil {
		return nil
	}
	s.device.Free(s.send)
	s.device.Free(s.got)
	return s.comm.Free()
}

// bytes returns the memory of the rows on their way.
func (s *shuffler) bytes() int64 {
	if s == nil {
		return 0
	}
	return int64(len(s.send)+len(s.got)) * 4
}

// forward turns the rows of the own frontier, which layer l-1 has computed, into those that layer l
// reads. phases may be nil.
func (s *shuffler) forward(
	m *Minibatch, l int, y compute.Matrix, phases Phases,
) (compute.Matrix, error) {
	if s.comm.Size() == 1 {
		return y, nil
	}
	if err := s.enter(m, trace.Forward, phases); err != nil {
		return y, err
	}
	c, pack, own := m.shared.crossing(l), &m.shared.moves[l].pack, y.Rows*y.Cols
	x := compute.Matrix{Rows: y.Rows + len(c.IDs), Cols: y.Cols,
		Data: y.Data[:own+len(c.IDs)*y.Cols]}
	wanted, err := s.rows(&s.send, len(c.At), y.Cols)
	if err != nil {
		return x, err
	}
	s.device.SegmentSum(wanted, compute.Segments{Indptr: pack.Indptr, Indices: pack.Indices}, nil, y,
		false)
	if err := s.exchange(m, wanted.Data, x.Data[own:], c.Wanted, c.Count, y.Cols); err != nil {
		return x, err
	}
	s.leave(trace.Forward, phases)
	return x, nil
}

// backward turns the gradient with respect to the rows that layer l has read into that with respect
// to the own rows of layer l-1, in the same memory.
func (s *shuffler) backward(
	m *Minibatch, l int, dx compute.Matrix, phases Phases,
) (compute.Matrix, error) {
	if s.comm.Size() == 1 {
		return dx, nil
	}
	if err := s.enter(m, trace.Backward, phases); err != nil {
		return dx, err
	}
	c, add := m.shared.crossing(l), &m.shared.moves[l].add
	dy := dx.RowsAt(0, c.Own())
	got, err := s.rows(&s.got, len(c.At), dx.Cols)
	if err != nil {
		return dy, err
	}
	if err := s.exchange(m, dx.Data[len(dy.Data):], got.Data, c.Count, c.Wanted,
		dx.Cols); err != nil {
		return dy, err
	}
	s.device.SegmentSum(dy, compute.Segments{Indptr: add.Indptr, Indices: add.Indices}, nil, got, true)
	s.leave(trace.Backward, phases)
	return dy, nil
}

// enter leaves the phase for that of shuffles, and leave goes back to it.
func (s *shuffler) enter(m *Minibatch, of trace.Phase, phases Phases) error {
	if m.Train {
		if err := fault.At(fault.Shuffle, s.comm.Rank(), m.Key.Epoch, m.Key.Step); err != nil {
			return fmt.Errorf("step %d: %w", m.Key.Step, err)
		}
	}
	if phases != nil {
		phases.End(of)
		phases.Begin(trace.Shuffle)
	}
	return nil
}

func (s *shuffler) leave(of trace.Phase, phases Phases) {
	if phases != nil {
		phases.End(trace.Shuffle)
		phases.Begin(of)
	}
}

// rows makes room for rows on their way.
func (s *shuffler) rows(of *[]float32, rows, cols int) (compute.Matrix, error) {
	n := rows * cols
	if n > len(*of) {
		if err := s.device.Sync(); err != nil { // kernels may still be reading what is freed here
			return compute.Matrix{}, err
		}
		if *of != nil { // as the buffers of the model
			s.device.Free(*of)
			*of, n = nil, n+n/4
		}
		made, err := s.device.Alloc(n)
		if err != nil {
			return compute.Matrix{}, fmt.Errorf("%d rows for other ranks: %w", rows, err)
		}
		*of = made
	}
	return compute.Matrix{Rows: rows, Cols: cols, Data: (*of)[:rows*cols]}, nil
}

// exchange sends rows to every rank and receives others.
func (s *shuffler) exchange(m *Minibatch, send, recv []float32, out, in []int, cols int) error {
	if err := s.device.Sync(); err != nil {
		return err
	}
	width := 4 * cols
	count := &m.shared.shuffle
	count.Rounds++
	for r, n := range out {
		count.Bytes += int64(n * width)
		count.Rows += int64(in[r])
	}
	count.Got += int64(len(recv)) * 4
	return s.comm.StartAlltoallv(mem.Bytes(send), mem.Bytes(recv), out, in, width).Wait()
}
