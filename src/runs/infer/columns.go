package infer

import (
	"context"
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// Inference by columns is for hidden rows in files that are larger than memory. The neighbours of a
// chunk may be anywhere, so the rows that are read for them have to be in memory. But a layer that
// reads sums, means or maxima of neighbours can compute them one column at a time. So a layer's
// file is stored by blocks of columns. Only one block has to be in memory at a time. Everything
// else is read and written in order:
//
//	for each block  its rows, anywhere ── a pass over the edges ──> its columns of the aggregates
//	then            own rows, aggregates, in order ─ the layer's products ─> the next layer's rows
//
// Each column has the same sums, and each row the same products, as inference in memory, so the
// bits are the same. The rows of a hidden layer overwrite the aggregates, so the disk holds two
// layers.

// fileHeadroom is mem.FileHeadroom, the memory kept free of files. It is a variable so that tests
// can make it small.
var fileHeadroom = mem.FileHeadroom

// lineColumns is the number of float32 columns in a cache line. The width of a block is a multiple
// of it.
const lineColumns = 16

// columnsAtOnce returns how many columns of hidden rows are read at a time. It is the same on all
// ranks. It returns all columns, unless the rows are in files and would take more than half of the
// memory available to files. The other half is for the edges, and for what is read and written in
// order. A model with attention always reads whole rows. Collective.
func (s Passes) columnsAtOnce() (int, error) {
	hidden := s.Job.Model.Hidden
	if s.ScratchDir == "" || !s.Job.Model.ReadsNeighbours() {
		return hidden, nil
	}
	free, err := fileHeadroom()
	if err := comm.Agree(s.Comm, err); err != nil {
		return 0, err
	}
	// NodeOf(c, 0) finds the nodes of the launcher; pretended nodes share the memory of one machine
	node, err := comm.NodeOf(s.Comm, 0)
	if err != nil {
		return 0, err
	}
	rows, err := comm.AgreeSum(node, int64(s.ownRows()))
	if err := errors.Join(err, node.Free()); err != nil {
		return 0, err
	}
	size := s.Job.Model.Stored(0, compute.CapabilitiesOf(s.Device).Stores).Size()
	lacking, err := comm.AgreeMax(s.Comm, -free/2/max(1, int64(size)*rows))
	if err != nil {
		return 0, err
	}
	block := blockColumns(hidden, int(-lacking))
	switch {
	case block == hidden:
	case s.Model.Config.Fixed().Needs().Sources:
		s.Tell(fmt.Sprintf("a model of kind %s reads whole hidden rows, but half of the memory "+
			"that is free for files cannot hold a layer of them. If inference is slow, use more "+
			"memory or more nodes", s.Job.Model.Kind))
		return hidden, nil
	default:
		s.Tell(fmt.Sprintf("hidden rows are read by %d of their %d columns at a time, because "+
			"half of the memory that is free for files cannot hold more", block, hidden))
	}
	return block, nil
}

// blockColumns returns the width of the blocks into which cols columns are cut. At most `fit`
// columns fit into memory. There are as few blocks as possible. All blocks except the last have the
// same width, a multiple of a cache line.
func blockColumns(cols, fit int) int {
	if fit >= cols {
		return cols
	}
	fit = max(lineColumns, fit/lineColumns*lineColumns)
	blocks := (cols + fit - 1) / fit
	each := (cols + blocks - 1) / blocks
	return min(cols, (each+lineColumns-1)/lineColumns*lineColumns)
}

// inferColumns runs layer l over all own vertices, reading one block of columns of the previous
// layer's rows at a time. It passes the layer's rows to the function `inspect`, unless that is nil,
// and then to the function `store`. If store is nil, it returns the rows instead. Collective.
func (s Passes) inferColumns(ctx context.Context, l int, rows *layerRows, inspect, store putRows,
) (out layerRows, err error) {
	// the chunks of inference in memory, so that the bits are the same
	chunks := s.chunks(rows.rowBytes())
	sums, err := s.makeRows(rows.cols, rows.block, rows.of)
	if err != nil {
		return out, err
	}
	for first := 0; first < rows.cols && err == nil; first += rows.block {
		err = s.inferBlock(ctx, rows, &sums, first, chunks,
			pass{layer: l, sums: true})
	}
	// if store is nil, the layer's rows overwrite the aggregates, each chunk after it was read
	inPlace := store == nil
	if inPlace {
		store = func(at int, y compute.Matrix) error { return sums.put(s.Device, at, 0, y) }
	}
	if err == nil {
		err = s.transform(ctx, l, rows, &sums, inspect.followedBy(store), chunks)
	}
	if err != nil || !inPlace {
		sums.free()
	}
	return sums, err
}

// inferBlock aggregates one block of the layer's input into the same columns of sums. The block has
// the columns of rows that begin at column first.
func (s Passes) inferBlock(ctx context.Context, rows, sums *layerRows, first int, chunks chunks,
	of pass) error {
	rows.readAhead(first, 0, rows.rows)
	err := s.inferChunks(ctx, s.inputOf(rows, first), chunks, of,
		func(at int, y compute.Matrix) error { return sums.put(s.Device, at, first, y) })
	rows.drop(first, 0, rows.rows)
	sums.drop(first, 0, rows.rows)
	return err
}

// deviceRows is device memory for the rows of one chunk at a time.
type deviceRows struct {
	dev                  compute.Device
	memory, rows, narrow []float32
}

// reserve makes room for n elements of the given type.
func (d *deviceRows) reserve(dev compute.Device, n int, of compute.Elements) (err error) {
	d.dev = dev
	d.memory, err = dev.Alloc(of.Floats(n))
	return err
}

func (d *deviceRows) free() {
	d.dev.Free(d.memory)
	mem.Free(d.rows)
	mem.Free(d.narrow)
}

// rounded returns rows [lo,hi) in the type in which the device stores rows that layers read. It
// also starts to read the rows up to end from the file.
func (d *deviceRows) rounded(from *layerRows, lo, hi, end int) compute.Matrix {
	x := compute.CapabilitiesOf(d.dev).Stores.MatrixIn(d.memory, hi-lo, from.cols)
	compute.Store(d.dev, x, d.read(from, lo, hi, end), &d.narrow)
	from.dropAll(lo, hi)
	return x
}

// exact returns rows [lo,hi) as float32. If the device reads host memory, the result is the rows
// themselves and not a copy. It also starts to read the rows up to end from the file.
func (d *deviceRows) exact(from *layerRows, lo, hi, end int) compute.Matrix {
	if from.onDevice(d.dev) {
		return compute.Float32s.MatrixIn(from.view(nil, lo, hi), hi-lo, from.cols)
	}
	x := compute.Float32s.MatrixIn(d.memory, hi-lo, from.cols)
	d.dev.Upload(x.Data, d.read(from, lo, hi, end))
	from.dropAll(lo, hi)
	return x
}

func (d *deviceRows) read(from *layerRows, lo, hi, end int) []float32 {
	for first := 0; first < from.cols; first += from.block {
		from.readAhead(first, hi, end)
	}
	return from.view(&d.rows, lo, hi)
}

// transform makes the rows of layer l from the own vertices' rows and aggregates, and passes them
// to the function `store`, chunk by chunk.
func (s Passes) transform(ctx context.Context, l int, rows, sums *layerRows, store putRows,
	chunks chunks) error {
	var onDevice [2]deviceRows // [2] memory for own rows, and for aggregates
	for k := range onDevice {
		defer onDevice[k].free()
		stores := compute.CapabilitiesOf(s.Device).Stores
		if err := onDevice[k].reserve(s.Device, chunks.most*rows.cols, stores); err != nil {
			return err
		}
	}
	load := func(k int, from *layerRows, i int) compute.Matrix {
		lo, hi := chunks.chunkRange(i)
		_, end := chunks.chunkRange(i + 1)
		return onDevice[k].rounded(from, lo, hi, end)
	}
	needsOwn := s.Model.Config.Fixed().Needs().Own
	for i := range chunks.len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.Watch.Alive()
		lo, hi := chunks.chunkRange(i)
		in := nn.Input{Hop: nn.Hop{Sources: hi - lo, Destinations: hi - lo}}
		if needsOwn {
			in.Own = load(0, rows, i)
		}
		in.Aggregate = load(1, sums, i)
		y, err := s.Model.ForwardLayer(l, &in)
		if err != nil {
			return err
		}
		if err := store(lo, y); err != nil {
			return err
		}
	}
	return nil
}
