package nn

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/devices/compute"
)

// Learned holds rows that are trained with the model, for vertices without features. A rank has the
// rows and optimiser moments of its own vertices only.
//
//	Tables  [n_0, Cols]  [n_1, Cols]  ...   one table for each part and type of own vertices
//
// In each step it gets the gradients of the rows that minibatches have read, one stream of
// minibatches after the other. It updates only these rows, as torch.optim.SparseAdam does. The zero
// Learned has no rows.
type Learned struct {
	Cols   int
	Ranges []LearnedRange

	options          LearnedOptions
	rows, m, v, best []float32 // [all rows, Cols]; m, v and best only in training
	base             []int     // [Ranges] index of the first row of each range in these arrays
	// [own vertices] ids in the dataset, which are keys for drawing the initial rows.
	original []int32
	key      uint64 // random key of the initial rows

	// The gradients of this step, in the order of Add.
	own   []int32   // own vertices to whose rows the gradients belong
	grads []float32 // [gradients, Cols]
	came  [][]given // [ranks] gradients from each rank's minibatches, as ranges of grads
	// [all rows] for a row with gradients, 1 + its index in `of`; 0 for all other rows
	place []int32
	of    []int32 // indices of the rows that have gradients in this step
	// [gradients] value of place for the row of each gradient, in the order of streams.
	to []int32
	// the gradients of row of[i] are numbers indices[indptr[i]:indptr[i+1]], in the order of
	// streams
	indptr  []int32
	indices []int32
}

// LearnedOptions say how the rows are initialised and trained.
type LearnedOptions struct {
	// Learning rate, > 0, for steps in which the schedule's rate is Schedule.Base. In other steps
	// it is scaled like the schedule's rate.
	LR     float64
	Scale  float64 // initial rows are uniform in [-Scale, Scale); with 0 they are zeros
	Decay  float64 // weight decay of rows that have a gradient, decoupled as in AdamW; 0 for none
	Unread Unread
}

// Unread says which row evaluation reads for a vertex whose learned row no training minibatch has
// read.
type Unread string

// The values of Unread.
const (
	UnreadZero Unread = "zero" // zeros, because nothing is known of the vertex
	UnreadKeep Unread = "keep" // the initial row
)

// LearnedRange is a table of consecutive own vertices. First and End are counted from the first
// vertex of the rank.
type LearnedRange struct {
	Type       string // type of the vertices; "" in a graph without types
	Part, Kind int    // Kind is the number of the type
	First, End int
}

// given is the range of gradients from number first to number end-1 in Learned.grads.
type given struct{ first, end int }

// NewLearned makes rows of cols columns for ranges of own vertices. The argument `original` has the
// vertices' ids in the dataset. Every number is drawn from seed, id and column, so it does not
// depend on other rows. If trained is true, it also makes room for optimiser moments and for the
// best rows.
func NewLearned(cols int, ranges []LearnedRange, original []int32, seed uint64, o LearnedOptions,
	trained bool) *Learned {
	l := &Learned{Cols: cols, Ranges: ranges, original: original, options: o,
		key: random.Mix(seed + random.Mix(xxhash.Sum64String("learned rows")))}
	n := 0
	for _, r := range ranges {
		l.base = append(l.base, n)
		n += r.End - r.First
	}
	l.rows = mem.Make[float32](n * cols)
	if trained {
		l.m, l.v, l.best = mem.Make[float32](n*cols), mem.Make[float32](n*cols),
			mem.Make[float32](n*cols)
		l.place = mem.Make[int32](n)
	}
	l.each(func(row []float32, _ int, original int32) { l.draw(row, original) })
	return l
}

// draw sets the row of a vertex to its initial numbers.
func (l *Learned) draw(row []float32, original int32) {
	first, scale := uint64(original)*uint64(l.Cols), float32(l.options.Scale)
	for c := range row {
		unit := float32(random.Mix(l.key+(first+uint64(c))*random.Golden)>>40)*0x1p-23 - 1
		row[c] = unit * scale
	}
}

// each calls f for every row. It passes the row, its index (`i`), and the id of its vertex in the
// dataset (`original`).
func (l *Learned) each(f func(row []float32, i int, original int32)) {
	for k, r := range l.Ranges {
		for n := range r.End - r.First {
			i := l.base[k] + n
			f(l.rows[i*l.Cols:(i+1)*l.Cols], i, l.original[r.First+n])
		}
	}
}

// If Unread is UnreadZero, eachUnread calls f for every row that no step has changed; otherwise it
// does nothing. It recognises these rows by moments that are all 0. A row that had a gradient has a
// moment that is not 0, unless the gradient was too small to change the row.
func (l *Learned) eachUnread(f func(row []float32, original int32)) {
	if l.options.Unread != UnreadZero || l.v == nil {
		return
	}
	l.each(func(row []float32, i int, original int32) {
		if at, end := i*l.Cols, (i+1)*l.Cols; !moves(l.m[at:end]) && !moves(l.v[at:end]) {
			f(row, original)
		}
	})
}

// moves reports whether any of the numbers is not 0.
func moves(of []float32) bool {
	return slices.ContainsFunc(of, func(x float32) bool { return x != 0 })
}

// Hide prepares for evaluation. If Unread is UnreadZero, it sets the rows that no step has changed
// to 0; otherwise it does nothing. Between Hide and Show no minibatch of training may be under way.
// O(all rows).
func (l *Learned) Hide() { l.eachUnread(func(row []float32, _ int32) { clear(row) }) }

// Show restores the rows that Hide has set to 0.
func (l *Learned) Show() { l.eachUnread(l.draw) }

func (l *Learned) table(k int) []float32 {
	n := l.Ranges[k].End - l.Ranges[k].First
	return l.rows[l.base[k]*l.Cols : (l.base[k]+n)*l.Cols]
}

// Table returns the bytes of the rows of a range, which change with every Update.
func (l *Learned) Table(k int) []byte { return mem.Bytes(l.table(k)) }

// Add makes room for the gradients that a minibatch of a rank has for rows of this rank. The list
// `own` has the own vertices to which these rows belong, each once. The result is the matrix of the
// gradients, [len(own), Cols], which the caller must set before the next Add or Update. The
// minibatches of a rank must be added in order.
func (l *Learned) Add(rank int, own []int32) compute.Matrix {
	for len(l.came) <= rank {
		l.came = append(l.came, nil)
	}
	n := len(l.own)
	end := n + len(own)
	l.came[rank] = append(l.came[rank], given{n, end})
	l.own, l.grads = mem.Grow(l.own, end), mem.Grow(l.grads, end*l.Cols)
	copy(l.own[n:], own)
	return matrix(l.grads[n*l.Cols:], len(own), l.Cols)
}

// Update makes one step of SparseAdam with the gradients added since the last Update. The argument
// `step` is the number of the step. The threads of the device each update some rows at a time. The
// gradients of a row are added in the order of streams, so their sum depends neither on the number
// of ranks nor on the number of threads. O(gradients). Weight decay is applied before the step, as
// in AdamW, but only to rows with a gradient. If it were applied to all rows, a row would shrink
// each time other rows are read, and a row that never gets a gradient would not keep its initial
// numbers. Source: torch.optim.SparseAdam, with its order of operations: the moments of rows
// without a gradient do not change, the step number is the same for all rows, and eps is added
// before the bias of v is corrected.
func (l *Learned) Update(device compute.Device, host compute.Host, o OptimizerOptions, lr float64,
	step int) {
	if l.Cols == 0 {
		return
	}
	l.list()
	t := float64(step)
	by := compute.SparseAdamOptions{
		First: float32(1 - o.Beta1), Second: float32(1 - o.Beta2),
		Decay: float32(1 - lr*l.options.Decay),
		Step: -float32(lr * math.Sqrt(1-math.Pow(o.Beta2, t)) /
			(1 - math.Pow(o.Beta1, t))),
		Eps: float32(o.Eps)}
	of := compute.RowGradients{Rows: l.of, Indptr: l.indptr, Indices: l.indices,
		Gradients: matrix(l.grads, len(l.own), l.Cols)}
	n := len(l.rows) / l.Cols
	p, m, v := matrix(l.rows, n, l.Cols), matrix(l.m, n, l.Cols), matrix(l.v, n, l.Cols)
	compute.InTiles(device, (len(l.of)+updateRows-1)/updateRows, func(i int) {
		host.SparseAdam(p, m, v, of.Part(i*updateRows, min((i+1)*updateRows, len(l.of))), by)
	})
	l.own, l.grads = l.own[:0], l.grads[:0]
	for r := range l.came {
		l.came[r] = l.came[r][:0]
	}
}

// updateRows is the number of rows in a tile of Update.
const updateRows = 128

// list fills `of` with the rows that have gradients. For each row it lists the gradients in
// indices, in the order of streams.
func (l *Learned) list() {
	n := len(l.own)
	l.of, l.to = mem.Grow(l.of[:0], n)[:0], mem.Grow(l.to[:0], n)[:0]
	l.indices = mem.Grow(l.indices[:0], n)
	l.indptr = append(mem.Grow(l.indptr[:0], n+1)[:0], 0)
	for _, of := range l.came {
		for _, is := range of {
			k := 0
			for _, own := range l.own[is.first:is.end] {
				k = l.find(k, own)
				at := &l.place[l.base[k]+int(own)-l.Ranges[k].First]
				if *at == 0 {
					l.of = append(l.of, int32(l.base[k]+int(own)-l.Ranges[k].First))
					l.indptr = append(l.indptr, 0)
					*at = int32(len(l.of))
				}
				l.indptr[*at]++
				l.to = append(l.to, *at)
			}
		}
	}
	for i, row := range l.of {
		l.place[row] = 0
		l.indptr[i+1] += l.indptr[i]
	}
	// in the next loop, indptr[i-1] is the place in indices for the next gradient of the i-th row
	k := 0
	for _, of := range l.came {
		for _, is := range of {
			for g := is.first; g < is.end; g++ {
				to := &l.indptr[l.to[k]-1]
				l.indices[*to] = int32(g)
				*to++
				k++
			}
		}
	}
	copy(l.indptr[1:], l.indptr)
	l.indptr[0] = 0
}

// find returns the number of the range that contains an own vertex. It looks in range k first,
// because the caller found the previous vertex there.
func (l *Learned) find(k int, own int32) int {
	for n := len(l.Ranges); n > 0; n-- {
		if r := &l.Ranges[k]; int(own) >= r.First && int(own) < r.End {
			return k
		}
		k = (k + 1) % len(l.Ranges)
	}
	panic(fmt.Sprintf("nn: own vertex %d has no learned row", own))
}

// KeepBest copies the current rows as the best ones. UseBest restores that copy.
func (l *Learned) KeepBest() { copy(l.best, l.rows) }
func (l *Learned) UseBest()  { copy(l.rows, l.best) }

// Finite reports whether all rows and moments are finite.
func (l *Learned) Finite() bool { return Finite(l.rows) && Finite(l.m) && Finite(l.v) }

// Digest returns the sum of the hashes of all own rows. The sum of the digests of all ranks does
// not depend on the number of ranks, nor on which rank owns a row.
func (l *Learned) Digest() (sum uint64) {
	row := binary.LittleEndian.AppendUint32(nil, 0)
	for k, r := range l.Ranges {
		table := mem.Bytes(l.table(k))
		for i := range r.End - r.First {
			row = binary.LittleEndian.AppendUint32(row[:0], uint32(l.original[r.First+i]))
			row = append(row, table[i*4*l.Cols:(i+1)*4*l.Cols]...)
			sum += xxhash.Sum64(row)
		}
	}
	return sum
}

// Bytes returns the memory of rows, moments and gradients.
func (l *Learned) Bytes() int64 {
	n := cap(l.rows) + cap(l.m) + cap(l.v) + cap(l.best) + cap(l.place) + cap(l.own) +
		cap(l.grads) + cap(l.of) + cap(l.to) + cap(l.indptr) + cap(l.indices)
	return 4 * int64(n)
}

// The beginnings of the names of the tensors that hold a part's learned rows. The vertex type comes
// after them.
const (
	LearnedRows = "rows"
	learnedM    = "m"
	learnedV    = "v"
	LearnedBest = "best"
)

// arrays returns the arrays that a checkpoint stores, and the names of their tensors. If best is
// true, they include the best rows.
func (l *Learned) arrays(best bool) (names []string, of [][]float32) {
	names, of = []string{LearnedRows, learnedM, learnedV}, [][]float32{l.rows, l.m, l.v}
	if best {
		names, of = append(names, LearnedBest), append(of, l.best)
	}
	return names, of
}

// The method tensors returns views of an array, one for each range of rows that belongs to the
// part.
func (l *Learned) tensors(part int, name string, array []float32) (all []Tensor) {
	for k, r := range l.Ranges {
		if r.Part != part {
			continue
		}
		full := name
		if r.Type != "" {
			full += "." + r.Type
		}
		lo, n := l.base[k]*l.Cols, r.End-r.First
		all = append(all, Tensor{Name: full, Shape: []int{n, l.Cols},
			Data: array[lo : lo+n*l.Cols]})
	}
	return all
}

// RowsOf returns the rows of a part under the name LearnedRows or LearnedBest, without copying.
func (l *Learned) RowsOf(part int, name string) []Tensor { return l.tensors(part, name, l.rows) }

// HideOf does what Hide does, for the rows of a part that were read from a checkpoint. It uses the
// function read to read their two moments, one after the other, and needs as much memory for a
// moment as the rows take.
func (l *Learned) HideOf(part int, read func([]Tensor) error) error {
	if l.options.Unread != UnreadZero {
		return nil
	}
	all := l.tensors(part, LearnedRows, l.rows)
	changed, room := make([][]bool, len(all)), make([][]float32, len(all))
	defer func() {
		for _, of := range room {
			mem.Free(of)
		}
	}()
	for _, name := range []string{learnedM, learnedV} {
		moments := l.tensors(part, name, l.rows)
		for i := range moments {
			moments[i].Data = mem.Grow(room[i], len(all[i].Data))
			room[i] = moments[i].Data
		}
		if err := read(moments); err != nil {
			return err
		}
		for i, of := range moments {
			changed[i] = append(changed[i], make([]bool, of.Shape[0]-len(changed[i]))...)
			for row := range changed[i] {
				changed[i][row] = changed[i][row] || moves(of.Data[row*l.Cols:(row+1)*l.Cols])
			}
		}
	}
	for i, of := range all {
		for row, is := range changed[i] {
			if !is {
				clear(of.Data[row*l.Cols : (row+1)*l.Cols])
			}
		}
	}
	return nil
}

// StateOf returns views of the rows and moments of a part. If best is true, it also returns the
// best rows.
func (l *Learned) StateOf(part int, best bool) (all []Tensor) {
	names, arrays := l.arrays(best)
	for i, name := range names {
		all = append(all, l.tensors(part, name, arrays[i])...)
	}
	return all
}

// Free frees all arrays of l.
func (l *Learned) Free() {
	for _, array := range [][]float32{l.rows, l.m, l.v, l.best, l.grads} {
		mem.Free(array)
	}
	for _, list := range [][]int32{l.place, l.own, l.of, l.to, l.indptr, l.indices} {
		mem.Free(list)
	}
	*l = Learned{}
}
