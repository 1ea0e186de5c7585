package parallel

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/topology/sample"
)

// shuffler sends hidden rows and their gradients between two layers of a minibatch that ranks
// share, along the shuffle index of its hops:
//
//	rows of the layer below      [own frontier | ........ ]  pack what others want ──> all-to-all
//	rows that the layer reads    [own frontier | received ]  <── in place, behind the own ones
//
//	gradient of these            [own frontier | received ]  the last rows ──> all-to-all
//	gradient of the layer below  [own frontier]              <── added, rank by rank
//
// The gradient of a vertex that several ranks read is (own edges) + ((rank 0) + (rank 1) + ...), in
// any order of arrival. For norms over all rows of the minibatch, the shuffler gathers the sums of
// each rank.
type shuffler struct {
	mover
	drawer    *splitDrawer
	layers    int       // number of layers of the model; the loss counts as the layer after them
	send, got []float32 // [W, width] in device memory: rows or gradients on their way

	minibatch *Minibatch // minibatch whose layers run; gather reads it
	phases    Phases
	// Sums of this rank, [n], and gathered sums of all ranks of the group, [S,n]; in host memory.
	sums, gathered []float32
	counts         []int // [S] n for every rank of the group
}

// newShuffler makes the communicator of the drawer's group. Collective.
func newShuffler(o *Options, drawer *splitDrawer, layers int) (*shuffler, error) {
	if err := storesAlike(o); err != nil {
		return nil, err
	}
	made, err := newMover(o, drawer.group, drawer.rank-drawer.group.Rank())
	return &shuffler{mover: made, drawer: drawer, layers: layers,
		counts: make([]int, drawer.ranks())}, err
}

// storesAlike returns an error unless all ranks store hidden rows in the same type, because rows
// travel as they are stored. The error is the same on every rank. Collective.
func storesAlike(o *Options) error {
	all, err := comm.Allgather(o.Comm, int32(compute.CapabilitiesOf(o.Device).Stores))
	if err != nil {
		return err
	}
	for r, of := range all {
		if of != all[0] {
			return comm.AgreedOn(o.Comm, fmt.Errorf("rank %d stores hidden rows in %v, rank 0 "+
				"in %v, but ranks that share minibatches send each other these rows; choose one "+
				"compute.device for all ranks, or parallel.mode=data", r, compute.Elements(of),
				compute.Elements(all[0])))
		}
	}
	return nil
}

// close frees memory and communicator.
func (s *shuffler) close() error {
	s.device.Free(s.send)
	s.device.Free(s.got)
	mem.Free(s.sums)
	mem.Free(s.gathered)
	return s.mover.close()
}

// bytes returns the host memory of the rows on their way: allocated by package mem, or pinned.
func (s *shuffler) bytes() (allocated, pinned int64) {
	sums := int64(cap(s.sums)+cap(s.gathered)) * 4
	if compute.CapabilitiesOf(s.device).Accelerator != nil {
		return sums, s.carrier.bytes()
	}
	return sums + int64(len(s.send)+len(s.got))*4, 0
}

// forward completes the rows that a layer l > 0, or the loss of links, reads. The layer below has
// computed the rows of this rank's own frontier. Behind these, forward puts the rows that come from
// other ranks.
func (s *shuffler) forward(m *Minibatch, l int, in *nn.Input, phases Phases) error {
	if s.comm.Size() == 1 {
		return nil
	}
	s.minibatch, s.phases, in.Gather, in.Partial = m, phases, s.gather, true
	c, index := s.between(m, l)
	if c == nil {
		return nil
	}
	if err := s.enter(m, trace.Forward, phases); err != nil {
		return err
	}
	y, of := in.X, in.X.Elements() // rows travel as they are stored
	pack := &index.pack
	in.X = y.RowsAt(0, y.Rows+len(c.IDs))
	wanted, err := s.rows(&s.send, of, len(c.At), y.Cols)
	if err != nil {
		return err
	}
	s.device.SegmentSum(wanted, compute.Segments{Indptr: pack.Indptr, Indices: pack.Indices}, nil,
		y, false)
	others := in.X.RowsAt(y.Rows, in.X.Rows)
	if err := s.exchange(&m.moved, wanted.Memory(), others.Memory(), c.Wanted, c.Count,
		of.Floats(y.Cols)); err != nil {
		return err
	}
	s.leave(trace.Forward, phases)
	return nil
}

// between returns what crosses ranks before layer l, or before the loss if l is the number of
// layers. It returns nil if nothing crosses.
func (s *shuffler) between(m *Minibatch, l int) (*sample.Crossing, *move) {
	switch x := &m.shared; {
	case l == s.layers && x.rated.known:
		return &x.rated.crossing, &x.rated.move
	case l == s.layers || l == 0 || s.drawer.hops() == 0:
		return nil, nil
	default:
		return x.crossing(l), &x.moves[l]
	}
}

// gather is the nn.Gather of the minibatch that is being trained.
func (s *shuffler) gather(own []float32, backward bool) ([]float32, error) {
	of, count, n := trace.Forward, &s.minibatch.moved, len(own)
	if backward {
		of = trace.Backward
	}
	if err := s.enter(s.minibatch, of, s.phases); err != nil {
		return nil, err
	}
	s.sums, s.gathered = mem.Grow(s.sums, n), mem.Grow(s.gathered, n*len(s.counts))
	copy(s.sums, own)
	for r := range s.counts {
		s.counts[r] = n
	}
	others := int64(n*(len(s.counts)-1)) * 4
	count.Collectives++
	count.Bytes += others
	count.Got += others
	if err := carried(s.comm, mem.Bytes(s.sums), mem.Bytes(s.gathered), nil, s.counts,
		4).Wait(); err != nil {
		return nil, err
	}
	s.leave(of, s.phases)
	return s.gathered, nil
}

// backward sends gradients back to the ranks that the rows came from.
func (s *shuffler) backward(
	m *Minibatch, l int, dx compute.Matrix, phases Phases,
) (compute.Matrix, error) {
	c, index := s.between(m, l)
	if s.comm.Size() == 1 || c == nil {
		return dx, nil
	}
	if err := s.enter(m, trace.Backward, phases); err != nil {
		return dx, err
	}
	add := &index.add
	dy := dx.RowsAt(0, c.Own())
	got, err := s.rows(&s.got, compute.Float32s, len(c.At), dx.Cols)
	if err != nil {
		return dy, err
	}
	if err := s.exchange(&m.moved, dx.Data[len(dy.Data):], got.Data, c.Count, c.Wanted,
		dx.Cols); err != nil {
		return dy, err
	}
	s.device.SegmentSum(dy, compute.Segments{Indptr: add.Indptr, Indices: add.Indices}, nil, got,
		true)
	s.leave(trace.Backward, phases)
	return dy, nil
}
