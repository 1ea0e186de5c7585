package presample

import (
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// Division is how parts share one minibatch of L layers if each vertex is the affair of the part
// that has it (split parallelism): what each computes, loads, and receives from others. Layer 0 is
// the input layer.
//
//	Edges    [L][P]    of layer l whose destination the part has: what it samples and aggregates
//	Cross    [L][P]    those of them whose source another part has
//	Received [L][P]    their distinct sources: rows that the part receives before layer l, and whose
//	                   gradients it sends back for l >= 1
//	Rows     [L+1][P]  vertices of the frontier that the part has: Rows[0] are the features that it
//	                   loads, Rows[l] the rows that layer l-1 makes, Rows[L] its seeds
type Division struct {
	Edges, Cross, Received, Rows [][]int64
}

// newDivision has zeros.
func newDivision(layers, parts int) Division {
	table := func(rows int) [][]int64 {
		t := make([][]int64, rows)
		for i := range t {
			t[i] = make([]int64, parts)
		}
		return t
	}
	return Division{table(layers), table(layers), table(layers), table(layers + 1)}
}

// Add adds the counts of another division among as many parts.
func (d *Division) Add(o *Division) {
	for _, pair := range [][2][][]int64{{d.Edges, o.Edges}, {d.Cross, o.Cross},
		{d.Received, o.Received}, {d.Rows, o.Rows}} {
		for l, row := range pair[0] {
			for p := range row {
				row[p] += pair[1][l][p]
			}
		}
	}
}

// Total sums a table of counts.
func Total(table [][]int64) (sum int64) {
	for _, row := range table {
		for _, x := range row {
			sum += x
		}
	}
	return sum
}

// Divider divides minibatches. One goroutine uses it. It allocates nothing once its arrays have
// grown to the largest minibatch.
type Divider struct {
	part []int32 // [N] of each vertex
	of   Division

	owner   []int32 // [S] part of each source of the minibatch
	members []int32 // [D] destinations of a block, by part
	ends    []int   // [P+1] of each part's members; while they are filled, where the next goes
	seen    []int32 // [S] the last part, plus one, that receives the source
}

// NewDivider divides minibatches of so many layers among parts, by the part of each vertex [N].
func NewDivider(part []int32, parts, layers int) *Divider {
	return &Divider{part: part, of: newDivision(layers, parts), ends: make([]int, parts+1)}
}

// Free frees the memory outside the Go heap.
func (d *Divider) Free() {
	mem.Free(d.owner)
	mem.Free(d.members)
	mem.Free(d.seen)
}

// Divide counts each part's share of a minibatch. The result is valid until the next call. Two
// random reads an edge.
func (d *Divider) Divide(mb *sample.Minibatch) *Division {
	d.owner = mem.Grow(d.owner, len(mb.Frontier))
	for i, v := range mb.Frontier {
		d.owner[i] = d.part[v]
	}
	layers := len(mb.Blocks)
	for l := range mb.Blocks {
		d.divide(&mb.Blocks[l], l)
		d.count(d.of.Rows[l], mb.Blocks[l].NumSrc)
	}
	d.count(d.of.Rows[layers], len(mb.Seeds))
	return &d.of
}

// count counts the first n sources by their part.
func (d *Divider) count(rows []int64, n int) {
	clear(rows)
	for _, p := range d.owner[:n] {
		rows[p]++
	}
}

// divide counts the edges of a block, part by part, so that one mark for each source tells whether
// the part has received it.
func (d *Divider) divide(b *graph.Block, layer int) {
	edges, cross, received := d.of.Edges[layer], d.of.Cross[layer], d.of.Received[layer]
	clear(edges)
	clear(cross)
	clear(received)
	d.group(b.NumDst)
	d.seen = mem.Grow(d.seen, b.NumSrc)
	clear(d.seen)
	begin := 0
	for p := range edges {
		for _, v := range d.members[begin:d.ends[p]] {
			sources := b.Indices[b.Indptr[v]:b.Indptr[v+1]]
			edges[p] += int64(len(sources))
			for _, s := range sources {
				if int(d.owner[s]) == p {
					continue
				}
				cross[p]++
				if d.seen[s] != int32(p)+1 {
					d.seen[s] = int32(p) + 1
					received[p]++
				}
			}
		}
		begin = d.ends[p]
	}
}

// group sorts the destinations by part: members[ends[p-1]:ends[p]] are those of p.
func (d *Divider) group(destinations int) {
	d.members = mem.Grow(d.members, destinations)
	clear(d.ends)
	for _, p := range d.owner[:destinations] {
		d.ends[p+1]++
	}
	for p := range len(d.ends) - 1 {
		d.ends[p+1] += d.ends[p]
	}
	for i, p := range d.owner[:destinations] {
		d.members[d.ends[p]] = int32(i)
		d.ends[p]++
	}
}
