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
//
// From a device with its own memory rows travel through the host's pinned memory. So whatever carries
// gradients between devices (Transport), no queue of a device has both, which ranks could fill in
// different orders.
type shuffler struct {
	comm        comm.Comm
	device      compute.Device
	accelerator compute.Accelerator // the device; nil if its memory is the host's
	drawer      *splitDrawer
	send, got   []float32 // [W, width] in device memory: rows or gradients on their way
	host        []float32 // pinned: what is sent, then what is received
}

// newShuffler makes the communicator of the drawer's group. Collective.
func newShuffler(device compute.Device, drawer *splitDrawer) (*shuffler, error) {
	made, err := drawer.group.Dup()
	return &shuffler{comm: made, device: device, drawer: drawer,
		accelerator: compute.CapabilitiesOf(device).Accelerator}, err
}

// close frees memory and communicator. A nil shuffler has none.
func (s *shuffler) close() error {
	if s == nil {
		return nil
	}
	s.device.Free(s.send)
	s.device.Free(s.got)
	if s.accelerator != nil {
		s.accelerator.FreeHost(s.host)
	}
	return s.comm.Free()
}

// bytes returns the host memory of the rows on their way: allocated by package mem, or pinned.
func (s *shuffler) bytes() (allocated, pinned int64) {
	if s == nil {
		return 0, 0
	}
	if s.accelerator != nil {
		return 0, int64(len(s.host)) * 4
	}
	return int64(len(s.send)+len(s.got)) * 4, 0
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
		if err := fault.At(fault.Shuffle, s.drawer.rank, m.Key.Epoch, m.Key.Step); err != nil {
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
	err := s.room(of, rows*cols, s.device.Alloc, s.device.Free)
	if err != nil {
		return compute.Matrix{}, fmt.Errorf("%d rows for other ranks: %w", rows, err)
	}
	return compute.Matrix{Rows: rows, Cols: cols, Data: (*of)[:rows*cols]}, nil
}

// room makes room for n elements, as the buffers of the model do.
func (s *shuffler) room(of *[]float32, n int, alloc func(int) ([]float32, error),
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
	if s.accelerator == nil {
		return s.comm.StartAlltoallv(mem.Bytes(send), mem.Bytes(recv), out, in, width).Wait()
	}
	n := len(send)
	if err := s.room(&s.host, n+len(recv), s.accelerator.AllocHost,
		s.accelerator.FreeHost); err != nil {
		return err
	}
	from, to := s.host[:n], s.host[n:n+len(recv)]
	s.device.Download(from, send)
	if err := s.comm.StartAlltoallv(mem.Bytes(from), mem.Bytes(to), out, in,
		width).Wait(); err != nil {
		return err
	}
	s.device.Upload(recv, to)
	return nil
}
