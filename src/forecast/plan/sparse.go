package plan

import (
	"encoding/binary"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
)

// sparseInput is the input of the model for a minibatch of sparse rows, with which rates are
// measured.
type sparseInput struct {
	maker compute.SparseMaker
	rows  compute.Rows
	given nn.Sparse
}

// makeSparse makes the model's input for the calibration's minibatch. The rows are at random places
// of a table. Each has the mean number of entries of the graph's rows.
func (c *calibration) makeSparse(rows compute.Rows, rowBytes int) (err error) {
	s := &c.sparse
	if s.rows.Lengths == nil {
		size := rows.Type.Size()
		k := min(rows.Cols, rowBytes/size)
		table := rows.Tables[0]
		for i := range len(table) / size {
			binary.LittleEndian.PutUint32(table[i*size:], uint32(i*rows.Cols/max(1, k)%rows.Cols))
		}
		rows.Lengths = mem.Make[int32](len(rows.Of))
		for i, of := range rows.Of {
			rows.Lengths[i] = int32(k)
			rows.Of[i] = compute.MakeRowRef(0, of.Row()*(rowBytes/size))
		}
		s.rows = rows
	}
	needs := c.planner.job.Model.Needs()
	if needs.Own {
		if s.given.Own, err = s.maker.Own(&s.rows, c.destinations(), true); err != nil {
			return err
		}
	}
	if needs.Aggregate != compute.NoReduction {
		b := &c.mb.Blocks[0]
		s.given.Aggregate, err = s.maker.Reduce(&s.rows, compute.ReduceMean,
			compute.Segments{Indptr: b.Indptr, Indices: b.Indices}, nil, true)
	}
	return err
}

// multiplies reports whether the input layer multiplies sparse rows by its weights.
func (p *planner) multiplies() bool { return p.job.Sparse && p.job.Model.Needs().Sums() }

// sparseBytes returns the bytes of the entries that the model reads for an input hop. They are
// stored by rows and by columns. Rows are assumed to have the mean length, and no two rows an entry
// in the same column.
func (p *planner) sparseBytes(h hopShape, needs nn.Needs) int64 {
	const entry = 2 * 8
	cols := int64(p.shards.Features)
	each := int64(p.shards.RowBytes() / p.shards.Type().Size())
	bytes := int64(0)
	if needs.Own {
		bytes += int64(h.destinations)*(each*entry+8) + 8*cols
	}
	if needs.Aggregate != compute.NoReduction {
		most := min(int64(h.edges)*each, int64(h.destinations)*cols)
		bytes += most*entry + 8*int64(h.destinations) + 16*cols
	}
	return bytes
}
