package residence

import (
	"fmt"

	"halognn/src/base/mem"
)

// chunkBytes is the number of bytes of rows that a rank sends at a time while columns are read.
// Tests set it low.
var chunkBytes = 8 << 20

// readColumns reads the rank's columns of all feature rows, if ranks hold columns. The files are
// stored by rows, several to a page. So a rank that read its columns directly would read every page
// of every part. Instead each rank reads the rows of its own parts, once and in order, and sends
// every rank those columns of them that the receiving rank holds:
//
//	rows of own parts    cut by columns        all-to-all         [N, columns]
//	│ row v   │ ──────>  │ to 0 │ to 1 │ ...  ───────────>  from 0 | from 1 | ... in vertex order
//
// Memory: vertices * columns elements, and two chunks while it runs. Collective.
func (s *Store) readColumns() error {
	c, err := s.Comm.Dup()
	if err != nil {
		return err
	}
	me, ranks, size := c.Rank(), c.Size(), s.shards().Type().Size()
	first, end := s.Job.Columns(me)
	cols := end - first
	s.kinds[0].Cols = cols
	table := mem.Make[byte](int(s.shards().Vertices) * s.rowBytes())
	s.closers = append(s.closers, func() error { mem.Free(table); return nil })
	s.columns = int64(len(table))

	rows := max(1, chunkBytes/s.shards().RowBytes()) // number of rows of a chunk
	send := mem.Make[byte](rows * s.shards().RowBytes())
	recv := mem.Make[byte](rows * ranks * s.rowBytes())
	defer func() { mem.Free(send); mem.Free(recv) }()
	out, in := make([]int, ranks), make([]int, ranks)
	for lo, left := 0, true; left; lo += rows {
		from := s.vertices(me, lo, rows)
		at := 0
		for r := range ranks {
			a, b := s.Job.Columns(r)
			at += s.cutColumns(send[at:], from, a*size, b*size)
			out[r] = int(from[1]-from[0]) * (b - a)
			of := s.vertices(r, lo, rows)
			in[r] = int(of[1]-of[0]) * cols
		}
		if err := c.StartAlltoallv(send, recv, out, in, size).Wait(); err != nil {
			return fmt.Errorf("reading columns of features: %w", err)
		}
		at, left = 0, false
		for r := range ranks {
			of := s.vertices(r, lo, rows)
			at += copy(table[of[0]*int64(s.rowBytes()):], recv[at:at+in[r]*size])
			_, last := s.Job.Vertices(r)
			left = left || of[1] < last
		}
		if s.Alive != nil {
			s.Alive()
		}
	}
	offsets := s.shards().Offsets
	s.read = make([][]byte, s.shards().Parts)
	for p := range s.read {
		s.read[p] = table[offsets[p]*int64(s.rowBytes()) : offsets[p+1]*int64(s.rowBytes())]
	}
	return c.Free()
}

func (s *Store) vertices(rank, lo, rows int) [2]int64 {
	first, end := s.Job.Vertices(rank)
	return [2]int64{min(end, first+int64(lo)), min(end, first+int64(lo+rows))}
}

// cutColumns copies bytes [a,b) of each row of this rank's vertices, and returns the number of
// bytes copied.
func (s *Store) cutColumns(dst []byte, own [2]int64, a, b int) (n int) {
	offsets, rowBytes := s.shards().Offsets, int64(s.shards().RowBytes())
	for p := s.first; p < s.last; p++ {
		for v := max(own[0], offsets[p]); v < min(own[1], offsets[p+1]); v++ {
			row := s.Tables[p][(v-offsets[p])*rowBytes:][:rowBytes]
			n += copy(dst[n:], row[a:b])
		}
	}
	return n
}

// ColumnBytes returns the memory of the columns; 0 if ranks hold rows.
func (s *Store) ColumnBytes() int64 { return s.columns }

// Columns returns the columns [first, end) of rows that minibatches read: all, unless ranks hold
// columns.
func (s *Store) Columns() (first, end int) { return s.Job.Columns(s.Comm.Rank()) }

func (s *Store) rowBytes() int { return s.kinds[0].RowBytes() }

// readParts returns the parts [first, last) whose rows a device may hold: the rank's own parts, or
// all parts if ranks hold columns.
func (s *Store) readParts() (first, last int) {
	if s.Job.Mode.Columns {
		return 0, s.shards().Parts
	}
	return s.first, s.last
}
