package kaminpar

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"io"
	"math"
	"os"
	"runtime"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// The bits of the first word of a ParHIP file. If noEdgeWeights or noVertexWeights is set, the
// graph has no such weights. Each of the other bits says that the numbers after which it is named
// have 32 bits instead of 64.
const (
	noEdgeWeights = 1 << iota
	noVertexWeights
	edges32
	vertices32
	vertexWeights32
	edgeWeights32
)

// writeParHIP writes g as an undirected graph in ParHIP's binary form:
//
//	flags, N, A         three words
//	offsets [N+1]       words: where the neighbours of a vertex begin, in bytes of the file
//	neighbours [A]      int32, both directions of every edge, no loops, no duplicates
//	vertex weights [N]  int32
//	edge weights [A]    int32, only if they differ: the sum over both directions and duplicates
//
// If g has both directions of each edge once, in order, and no weights, its arrays are written as
// they are. Any other graph is transposed first, which takes 8 bytes a vertex and 4 an edge (8 with
// weights), and each row is sorted. Without the sorting, time is O(N + A).
func writeParHIP(path string, g *graph.CSC, edge, vertex []int32) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := newParHIP(f)
	if edge == nil && symmetric(g) {
		w.asItLies(g, vertex)
	} else {
		w.merged(partition.Edges{Indptr: g.Indptr, Indices: g.Indices, Weights: edge}, vertex)
	}
	return cmp.Or(w.err, w.out.Flush(), f.Close())
}

// reweigh replaces the vertex weights in a file that writeParHIP wrote.
func reweigh(path string, vertex []int32) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	var head [24]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return err
	}
	entries := int64(binary.LittleEndian.Uint64(head[16:]))
	_, err = f.WriteAt(mem.Bytes(vertex), 8*int64(3+len(vertex)+1)+4*entries)
	return err
}

type parhip struct {
	out *bufio.Writer
	err error // the first error
}

func newParHIP(to io.Writer) *parhip { return &parhip{out: bufio.NewWriterSize(to, 1<<20)} }

func (w *parhip) put(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

// head writes the three words and the offsets. The neighbours of vertex v are the entries ends[v]
// to ends[v+1]-1.
func (w *parhip) head(flags, n int, ends []int64) {
	base := uint64(8 * (3 + n + 1))
	word := func(x uint64) { w.put(binary.LittleEndian.AppendUint64(nil, x)) }
	word(uint64(flags | vertices32 | vertexWeights32 | edgeWeights32))
	word(uint64(n))
	word(uint64(ends[n]))
	for _, end := range ends {
		word(base + 4*uint64(end))
	}
}

func (w *parhip) asItLies(g *graph.CSC, vertex []int32) {
	w.head(noEdgeWeights, g.NumVertices(), g.Indptr)
	w.put(mem.Bytes(g.Indices))
	w.put(mem.Bytes(vertex))
}

func (w *parhip) merged(in partition.Edges, vertex []int32) {
	out := in.Transpose()
	defer out.Free()
	n := len(vertex)
	ends := mem.Make[int64](n + 1)
	defer mem.Free(ends)
	var row neighbours
	plain := true // whether all weights are equal
	first := int64(0)
	for v := range n {
		row.read(in, out, v)
		ends[v+1] = ends[v] + int64(len(row))
		for _, x := range row {
			first = cmp.Or(first, x.weight)
			plain = plain && x.weight == first
		}
	}
	flags := 0
	if plain {
		flags = noEdgeWeights
	}
	w.head(flags, n, ends)
	var line []int32
	pass := func(of func(neighbour) int32) {
		for v := range n {
			row.read(in, out, v)
			line = line[:0]
			for _, x := range row {
				line = append(line, of(x))
			}
			w.put(mem.Bytes(line))
		}
	}
	pass(func(x neighbour) int32 { return x.id })
	w.put(mem.Bytes(vertex))
	if !plain {
		pass(func(x neighbour) int32 { return int32(min(x.weight, math.MaxInt32)) })
	}
}

type neighbour struct {
	id     int32
	weight int64
}

// neighbours are the neighbours of one vertex in increasing order, each once.
type neighbours []neighbour

func (r *neighbours) read(in, out partition.Edges, v int) {
	all := (*r)[:0]
	for _, d := range []partition.Edges{in, out} {
		for e := d.Indptr[v]; e < d.Indptr[v+1]; e++ {
			if u := d.Indices[e]; int(u) != v {
				all = append(all, neighbour{int32(u), d.Weight(e)})
			}
		}
	}
	slices.SortFunc(all, func(a, b neighbour) int { return cmp.Compare(a.id, b.id) })
	*r = all[:0]
	for _, x := range all {
		if last := len(*r) - 1; last >= 0 && (*r)[last].id == x.id {
			(*r)[last].weight += x.weight
		} else {
			*r = append(*r, x)
		}
	}
}

// symmetric reports whether g has both directions of every edge, and each row in increasing order
// without loops or duplicates. It adds up 64-bit hashes of all edges, and hashes of their reverses,
// and compares the two sums, which needs no memory. It is wrong with a chance of 2^-64.
func symmetric(g *graph.CSC) bool {
	n, workers := g.NumVertices(), runtime.GOMAXPROCS(0)
	sums, ordered := make([]uint64, workers), make([]bool, workers)
	mem.Parallel(workers, func(k int) {
		sum := uint64(0)
		for v := n * k / workers; v < n*(k+1)/workers; v++ {
			last := graph.VertexID(-1)
			for _, u := range g.InNeighbours(graph.VertexID(v)) {
				if u <= last || int(u) == v {
					return
				}
				last = u
				sum += random.Mix(uint64(u)<<32|uint64(v)) - random.Mix(uint64(v)<<32|uint64(u))
			}
		}
		sums[k], ordered[k] = sum, true
	})
	total := uint64(0)
	for _, sum := range sums {
		total += sum
	}
	return total == 0 && !slices.Contains(ordered, false)
}
