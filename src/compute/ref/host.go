package ref

import (
	"encoding/binary"
	"math"

	"halognn/src/compute"
	"halognn/src/npy"
)

// Host implements compute.Host.
type Host struct{}

// GatherRows implements compute.Host.
func (Host) GatherRows(dst compute.Matrix, rows compute.Rows) {
	compute.CheckGatherRows(dst, rows)
	for i := range dst.Rows {
		stored := storedRow(rows, i)
		for j, out := 0, dst.Row(i); j < len(out); j++ {
			out[j] = element(rows.Type, stored, j)
		}
	}
}

// SegmentMeanRows implements compute.Host.
func (Host) SegmentMeanRows(dst compute.Matrix, s compute.Segments, rows compute.Rows) {
	compute.CheckSegmentMeanRows(dst, s, rows)
	for t := range dst.Rows {
		out, segment := dst.Row(t), s.Indices[s.Indptr[t]:s.Indptr[t+1]]
		clear(out)
		for _, i := range segment {
			stored := storedRow(rows, int(i))
			for j := range out {
				out[j] += element(rows.Type, stored, j)
			}
		}
		divide(out, len(segment))
	}
}

// storedRow returns row i as it is stored.
func storedRow(rows compute.Rows, i int) []byte {
	size := rows.Cols * rows.Type.Size()
	ref := rows.Of[i]
	return rows.Tables[ref.Table()][ref.Row()*size : (ref.Row()+1)*size]
}

func element(t compute.DType, stored []byte, j int) float32 {
	if t == compute.Float16 {
		return npy.Float16(binary.LittleEndian.Uint16(stored[2*j:])).Float32()
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
