package ref

import (
	"encoding/binary"
	"math"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// Host implements compute.Host.
type Host struct{}

// GatherRows implements compute.Host.
func (Host) GatherRows(dst compute.Matrix, rows compute.Rows) {
	compute.CheckGatherRows(dst, rows)
	out := make([]float32, dst.Cols)
	for i := range dst.Rows {
		stored := storedRow(rows, i)
		for j := range out {
			out[j] = element(rows.TypeOf(i), stored, j)
		}
		scale(out, rows.Scale)
		dst.RowsAt(i, i+1).Narrow(out)
	}
}

// SegmentRows implements compute.Host.
func (Host) SegmentRows(dst compute.Matrix, how compute.Reduction, s compute.Segments,
	weights []float32, rows compute.Rows) {
	compute.CheckSegmentRows(dst, how, s, weights, rows)
	out, group := make([]float32, dst.Cols), make([]float32, dst.Cols)
	for t := range dst.Rows {
		lo, hi := s.Indptr[t], s.Indptr[t+1]
		clear(out)
		for begin := lo; begin < hi; {
			end := begin + 1
			for end < hi && s.Indices[end] >= 0 {
				end++
			}
			for e := begin; e < end; e++ {
				weight := float32(1)
				if weights != nil {
					weight = weights[e]
				}
				i := int(compute.SourceOf(s.Indices[e]))
				dtype, stored := rows.TypeOf(i), storedRow(rows, i)
				for j := range group {
					x := element(dtype, stored, j) * weight
					group[j] = combine(how, e == begin, group[j], float32(x))
				}
			}
			for j, x := range group {
				out[j] = combine(how, begin == lo, out[j], x)
			}
			begin = end
		}
		switch {
		case how != compute.ReduceMean || lo == hi:
		case s.Counts != nil:
			divide(out, int(s.Counts[t]))
		default:
			divide(out, int(hi-lo))
		}
		scale(out, rows.Scale)
		dst.RowsAt(t, t+1).Narrow(out)
	}
}

func scale(row, by []float32) {
	for c, f := range by {
		row[c] *= f
	}
}

// combine returns the reduction of the numbers y and x: their sum, or the larger one.
func combine(how compute.Reduction, first bool, y, x float32) float32 {
	switch {
	case first, how == compute.ReduceMax && larger(x, y):
		return x
	case how == compute.ReduceMax:
		return y
	}
	return y + x
}

func storedRow(rows compute.Rows, i int) []byte {
	size := rows.RowBytes()
	ref, end := rows.Row(i), rows.Cols*rows.TypeOf(i).Size()
	return rows.Tables[ref.Table()][ref.Row()*size : ref.Row()*size+end]
}

func element(t compute.DType, stored []byte, j int) float32 {
	switch t {
	case compute.Float16:
		return npy.Float16(binary.LittleEndian.Uint16(stored[2*j:])).Float32()
	case compute.Int8:
		return float32(int8(stored[j]))
	case compute.BFloat16:
		return compute.FromBF16(binary.LittleEndian.Uint16(stored[2*j:]))
	case compute.Int16:
		return float32(int16(binary.LittleEndian.Uint16(stored[2*j:])))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(stored[4*j:]))
}

// SliceRows implements compute.Host.
func (Host) SliceRows(dst, table []byte, rowBytes int, ids []int32) {
	compute.CheckSliceRows(dst, rowBytes, ids)
	for i, id := range ids {
		copy(dst[i*rowBytes:(i+1)*rowBytes], table[int(id)*rowBytes:(int(id)+1)*rowBytes])
	}
}

// AddInto implements compute.Host.
func (Host) AddInto(sum, x []float32) {
	compute.CheckLengths("AddInto", len(sum), len(x))
	addInto(sum, x)
}

// ToBF16 implements compute.Host.
func (Host) ToBF16(dst []uint16, x []float32) {
	compute.CheckLengths("ToBF16", len(dst), len(x))
	for i, x := range x {
		dst[i] = uint16(math.Float32bits(compute.PrecisionBF16.Round(x)) >> 16)
	}
}

// FromBF16 implements compute.Host.
func (Host) FromBF16(dst []float32, x []uint16) {
	compute.CheckLengths("FromBF16", len(dst), len(x))
	for i, half := range x {
		dst[i] = math.Float32frombits(uint32(half) << 16)
	}
}
