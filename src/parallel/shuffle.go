package parallel

import (
	"halognn/src/compute"
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
// 1) + ...), whatever comes first.
type shuffler struct {
	mover
	drawer    *splitDrawer
	send, got []float32 // [W, width] in device memory: rows or gradients on their way
}

// newShuffler makes the communicator of the drawer's group. Collective.
func newShuffler(device compute.Device, drawer *splitDrawer) (*shuffler, error) {
	made, err := newMover(drawer.group, drawer.rank, device)
	return &shuffler{mover: made, drawer: drawer}, err
}

// close frees memory and communicator. A nil shuffler has none.
func (s *shuffler) close() error {
	if s == nil {
		return nil
	}
	s.device.Free(s.send)
	s.device.Free(s.got)
	return s.mover.close()
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
	if err := s.exchange(&m.shared.shuffle, wanted.Data, x.Data[own:], c.Wanted, c.Count,
		y.Cols); err != nil {
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
	if err := s.exchange(&m.shared.shuffle, dx.Data[len(dy.Data):], got.Data, c.Count, c.Wanted,
		dx.Cols); err != nil {
		return dy, err
	}
	s.device.SegmentSum(dy, compute.Segments{Indptr: add.Indptr, Indices: add.Indices}, nil, got, true)
	s.leave(trace.Backward, phases)
	return dy, nil
}
