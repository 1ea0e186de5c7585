package infer

import (
	"context"

	"halognn/src/devices/compute"
	"halognn/src/model/nn"
)

// mappedRows are what the last layer reads if it first maps rows to its width and then adds them
// (nn.Config.MapsFirst). They are made from the rows of the previous layer, chunk by chunk:
//
//	rows of layer L-2 ─ map ─> neighbours [own vertices, out] ─ a pass over the edges ─> sums ─┐
//	                     └───> own        [own vertices, out] ─────────── in order ────────────┴─>
type mappedRows struct {
	Passes
	layer           int
	rowBytes        int       // bytes of a row of the previous layer
	neighbours, own layerRows // own has no columns if the layer reads no own rows
}

// mappedFor makes room for the mapped rows that layer l reads. It returns nil if the layer adds
// rows before it maps them. If memory is short, the rows of neighbours are stored in blocks of
// columns. A block of mapped rows takes at most the memory of `block` columns of the previous
// layer, rounded to whole cache lines. Collective.
func (s Passes) mappedFor(l, block int) (m *mappedRows, err error) {
	of := &s.Job.Model
	if !of.MapsFirst(l) {
		return nil, nil
	}
	in, out := of.Widths(l)
	stored := of.Stored(l-1, compute.CapabilitiesOf(s.Device).Stores)
	m = &mappedRows{Passes: s, layer: l, rowBytes: in * stored.Size()}
	fit := out
	if block < in {
		fit = block * stored.Size() / 4
	}
	m.neighbours, err = s.makeRows(out, blockColumns(out, fit), compute.Float32s)
	if err != nil {
		return nil, err
	}
	if of.MappedColumns(l) == out {
		return m, nil
	}
	if m.own, err = s.makeRows(out, out, compute.Float32s); err != nil {
		m.free()
		return nil, err
	}
	return m, nil
}

// free frees the rows. It may be called on nil.
func (m *mappedRows) free() {
	if m != nil {
		m.neighbours.free()
		m.own.free()
	}
}

// put maps rows of the previous layer and stores the result. It is the putRows that inference calls
// with the rows of that layer.
func (m *mappedRows) put(at int, y compute.Matrix) error {
	neighbours, own, err := m.Model.MapFirst(m.layer, y)
	if err == nil {
		err = m.neighbours.put(m.Device, at, 0, neighbours)
	}
	if err == nil && m.own.cols > 0 {
		err = m.own.put(m.Device, at, 0, own)
	}
	return err
}

// infer makes the rows of the layer and passes them to the function `store`. Collective.
func (m *mappedRows) infer(ctx context.Context, store putRows) error {
	_, cols := m.Job.Model.Widths(m.layer)
	rows, of := &m.neighbours, pass{layer: m.layer, sums: true, exact: true}
	chunks := m.chunks(m.rowBytes) // the bounds of chunks are those for rows that are not mapped
	var own, neighbours deviceRows
	defer own.free()
	most := chunks.most
	switch {
	case m.own.onDevice(m.Device):
		most = 0
	case m.readsInPlace(m.inputOf(rows, 0)): // here a pass makes the rows of a span
		most = max(most, min(m.ownRows(), compute.SameTiles))
	}
	if err := own.reserve(m.Device, most*m.own.cols, compute.Float32s); err != nil {
		return err
	}
	finish := func(at int, sums compute.Matrix) error {
		end := at + sums.Rows
		in := nn.Input{Hop: nn.Hop{Sources: sums.Rows, Destinations: sums.Rows},
			Shares: []compute.Matrix{sums}}
		if m.own.cols > 0 {
			in.Shares = append(in.Shares, own.exact(&m.own, at, end, end))
		}
		y, err := m.Model.ForwardLayer(m.layer, &in)
		if err == nil {
			err = store(at, y)
		}
		return err
	}
	if rows.block == cols {
		return m.inferChunks(ctx, m.inputOf(rows, 0), chunks, of, finish)
	}
	sums, err := m.makeRows(cols, rows.block, compute.Float32s)
	if err != nil {
		return err
	}
	defer sums.free()
	for first := 0; first < cols; first += rows.block {
		if err := m.inferBlock(ctx, rows, &sums, first, chunks, of); err != nil {
			return err
		}
	}
	defer neighbours.free()
	if err := neighbours.reserve(m.Device, chunks.most*cols, compute.Float32s); err != nil {
		return err
	}
	for i := range chunks.len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.Watch.Alive()
		lo, hi := chunks.chunkRange(i)
		_, end := chunks.chunkRange(i + 1)
		if err := finish(lo, neighbours.exact(&sums, lo, hi, end)); err != nil {
			return err
		}
	}
	return nil
}
