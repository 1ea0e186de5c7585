package nn

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// store owns all device memory of a model, so that one call can free it.
type store struct {
	dev      compute.Device
	buffers  []*buffer
	numbered *numbered // nil if no layer reads features of edges
	perEdges []*perEdge
	joined   *joinedBack // nil if no layer has pairs
}

// buffer is device memory for an array whose size differs between minibatches. A call of reserve
// may lose the content of the array.
type buffer struct {
	dev    compute.Device
	data   []float32
	stores compute.Elements // element type of its matrices
}

func (s *store) buffer() *buffer {
	b := &buffer{dev: s.dev}
	s.buffers = append(s.buffers, b)
	return b
}

// rows returns a buffer of rows that a layer reads, in the type in which the device stores them.
func (s *store) rows() *buffer {
	b := s.buffer()
	b.stores = compute.CapabilitiesOf(s.dev).Stores
	return b
}

// hidden returns a buffer of hidden rows that one kernel makes from other rows. If their width is
// even, they have the type in which the device stores rows, otherwise float32.
func (s *store) hidden(width int) *buffer {
	b := s.rows()
	b.stores = evenly(width, b.stores)
	return b
}

// reserve makes room for n elements. The first time it allocates exactly n elements, because the
// caller may know the maximum. Later it allocates a quarter more, so that sampled minibatches,
// whose sizes vary by a few per cent, soon fit without further growth.
func (b *buffer) reserve(n int) error {
	n = b.stores.Floats(n)
	if n <= len(b.data) {
		return nil
	}
	if b.data != nil {
		// kernels may still be reading the memory that is freed here
		if err := b.dev.Sync(); err != nil {
			return err
		}
		b.dev.Free(b.data)
		b.data = nil
		n += n / 4
	}
	data, err := b.dev.Alloc(n)
	if err != nil {
		return err
	}
	b.data = data
	return nil
}

// sized is a buffer and the number of elements for which it needs room.
type sized struct {
	*buffer
	n int
}

// reserveAll makes room in several buffers. It stops at the first buffer that cannot get its
// memory.
func reserveAll(buffers ...sized) error {
	for _, b := range buffers {
		if err := b.reserve(b.n); err != nil {
			return err
		}
	}
	return nil
}

func (b *buffer) matrix(rows, cols int) compute.Matrix {
	return b.stores.MatrixIn(b.data, rows, cols)
}

// bytes returns the memory of all buffers.
func (s *store) bytes() (bytes int64) {
	bytes = s.numbered.bytes()
	for _, p := range s.perEdges {
		bytes += p.bytes()
	}
	for _, b := range s.buffers {
		bytes += int64(len(b.data)) * 4
	}
	return bytes
}

// free frees all buffers.
func (s *store) free() {
	s.numbered.free()
	for _, p := range s.perEdges {
		mem.Free(p.to)
		p.to = nil
	}
	for _, b := range s.buffers {
		if b.data != nil {
			s.dev.Free(b.data)
			b.data = nil
		}
	}
}
