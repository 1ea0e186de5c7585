package nn

import (
	"fmt"

	"halognn/src/devices/compute"
)

// MapsFirst reports whether inference should compute layer l by mapping rows first and adding them
// afterwards. The layer must be a sum or mean of rows followed by linear maps, and the results of
// all maps together must have fewer columns than a row. In layer-wise inference all vertices are
// both sources and destinations. So each row is mapped once in either order. If rows are mapped
// first, the rows that are added along the edges are narrower. This gives the same numbers up to
// rounding, and moves fewer bytes along every edge. In training a minibatch has more sources than
// destinations, so rows are added first and fewer rows are mapped.
func (c Config) MapsFirst(l int) bool {
	if l == 0 || l != c.Layers-1 || c.hidden(l) || c.Schema.Typed() {
		return false
	}
	layer, is := c.layer(l).(columnwise)
	in, _ := c.Widths(l)
	return is && layer.firstMap().whole && layer.Needs().OnlySums() && layer.Needs().Sums() &&
		c.MappedColumns(l) < in
}

// MappedColumns returns the number of columns of all rows that MapFirst makes from one input row of
// layer l.
func (c Config) MappedColumns(l int) int {
	_, out := c.Widths(l)
	if c.layer(l).Needs().Own {
		return 2 * out
	}
	return out
}

// MapFirst multiplies the rows x [N,in] of vertices by the matrices of layer l. MapsFirst must be
// true for this layer. If Input.Shares has sums or means of the resulting rows, the layer computes
//
//	sum or mean of the neighbours' rows + own row + bias
//
// Both results are [N,out] and valid until the next call. If the layer reads no own rows, the
// result own is the zero Matrix. It fails only if device memory runs out.
func (m *Model) MapFirst(l int, x compute.Matrix) (neighbours, own compute.Matrix, err error) {
	if err := m.ReserveMapped(l, x.Rows); err != nil {
		return neighbours, own, err
	}
	var mapped [2]compute.Matrix
	for k, t := range m.mapsOf(l) {
		if t.w.Rows > 0 {
			mapped[k] = m.mapped[k].matrix(x.Rows, t.w.Rows)
			m.dev.MatMul(mapped[k], x, t.w, false)
		}
	}
	return mapped[0], mapped[1], nil
}

// ReserveMapped makes room for MapFirst on the given number of rows. MapFirst calls it. It fails
// only if device memory runs out.
func (m *Model) ReserveMapped(l, rows int) error {
	for k, t := range m.mapsOf(l) {
		if err := m.mapped[k].reserve(rows * t.w.Rows); err != nil {
			return fmt.Errorf("memory for rows of %d vertices that layer %d maps: %w", rows, l, err)
		}
	}
	return nil
}

// mapsOf returns the two matrices of layer l: the one for sums of neighbours' rows, and the one for
// own rows.
func (m *Model) mapsOf(l int) [2]trained {
	return m.stages[l].Layer.(columnwise).firstMap().weights
}
