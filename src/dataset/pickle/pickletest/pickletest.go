// Package pickletest writes the pickles that package pickle reads, byte for byte as Python 2 did
// for the Planetoid data sets, so that tests of both the reader and the importer can make their own
// small files.
package pickletest

import (
	"encoding/binary"
	"fmt"
	"math"
)

const header = "\x80\x02"

// Global returns a pickle that calls module.name with one string, as a hostile file would.
func Global(module, name, arg string) []byte {
	return fmt.Appendf(nil, "%sc%s\n%s\nU%c%s\x85R.", header, module, name, len(arg), arg)
}

// CSR returns a scipy csr_matrix with float32 values: rows[r] maps its columns, in order, to
// values.
func CSR(cols int, rows [][]Entry) []byte {
	indptr, indices, values := []int32{0}, []int32{}, []float32{}
	for _, row := range rows {
		for _, e := range row {
			indices = append(indices, e.Col)
			values = append(values, e.Value)
		}
		indptr = append(indptr, int32(len(indices)))
	}
	b := []byte(header + "cscipy.sparse.csr\ncsr_matrix\n)\x81}(U\x06formatU\x03csr" +
		"U\x06_shape")
	b = append(number(number(b, len(rows)), cols), "\x86U\x06indptr"...)
	b = ints(b, indptr, len(indptr))
	b = ints(append(b, "U\x07indices"...), indices, len(indices))
	b = floats(append(b, "U\x04data"...), values)
	return append(b, "ub."...)
}

// Entry is one stored value of a row.
type Entry struct {
	Col   int32
	Value float32
}

// OneHot returns an int32 matrix with a 1 in column classes[r] of row r; a negative class gives a
// row of zeros.
func OneHot(cols int, classes []int) []byte {
	cells := make([]int32, len(classes)*cols)
	for r, c := range classes {
		if c >= 0 {
			cells[r*cols+c] = 1
		}
	}
	return append(ints([]byte(header), cells, len(classes), cols), '.')
}

// Lists returns a defaultdict(list) from 0, 1, 2, ... to lists.
func Lists(lists [][]int) []byte {
	b := []byte(header + "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(")
	for k, l := range lists {
		b = append(number(b, k), "]("...)
		for _, v := range l {
			b = number(b, v)
		}
		b = append(b, 'e')
	}
	return append(b, "u."...)
}

func number(b []byte, n int) []byte {
	return binary.LittleEndian.AppendUint32(append(b, 'J'), uint32(n))
}

func ints(b []byte, data []int32, shape ...int) []byte {
	raw := make([]byte, 0, 4*len(data))
	for _, x := range data {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(x))
	}
	return array(b, "i4", raw, shape)
}

func floats(b []byte, data []float32) []byte {
	raw := make([]byte, 0, 4*len(data))
	for _, x := range data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return array(b, "f4", raw, []int{len(data)})
}

func array(b []byte, dtype string, raw []byte, shape []int) []byte {
	b = append(b,
		"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"...)
	for _, d := range shape {
		b = number(b, d)
	}
	b = append(b, "\x85\x86"[len(shape)-1])
	b = fmt.Appendf(b, "cnumpy\ndtype\nU\x02%sK\x00K\x01\x87R(K\x03U\x01<NNN"+
		"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T", dtype)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(raw)))
	return append(append(b, raw...), "tb"...)
}
