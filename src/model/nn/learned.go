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
// rows of its own vertices and their moments, and no others.
//
//	Tables  [n_0, Cols]  [n_1, Cols]  ...   one table for each part and type of own vertices
//
// In each step it gets the gradients of the rows that minibatches have read, stream by stream, and
// updates only these rows, as torch.optim.SparseAdam does. The zero Learned has no rows.
type Learned struct {
	Cols   int
	Ranges []LearnedRange

	options          LearnedOptions
	rows, m, v, best []float32 // [all rows, Cols]; m, v and best only in training
	base             []int     // [Ranges] index of the first row of each range in these arrays
	original         []int32   // [own vertices] the ids that key the first rows
	key              uint64    // random key of the first rows

	came []cameOf // [K] gradients that each rank has sent in this step
	// [all rows] position of the row in the field of, from 1; 0: it has no gradient yet
	place []int32
	of    []int32 // indices of the rows with gradients
	head  []int32 // [of] first gradient of each row, counted over the gradients of all ranks
	last  []int32 // [of] last gradient of each row
	next  []int32 // [gradients] the next gradient of the same row; 0: there is none
}

// LearnedOptions say how rows begin and how they are trained.
type LearnedOptions struct {
	LR     float64 // learning rate where the schedule's is Base; both are scaled alike
	Scale  float64 // rows begin uniform in [-Scale, Scale)
	Decay  float64 // weight decay of rows with a gradient; decoupled, as in AdamW
	Unread Unread
}

// Unread is what evaluation reads of the row of a vertex that no minibatch of training has read.
type Unread string

// The words of Unread.
const (
	UnreadZero Unread = "zero" // zeros: nothing is known of the vertex
	UnreadKeep Unread = "keep" // the row as it began
)

// LearnedRange is a table of consecutive own vertices, counted from the first of the rank.
type LearnedRange struct {
	Type       string // type of the vertices; "" in a graph without types
	Part, Kind int    // Kind is the number of the type
	First, End int
}

// cameOf holds gradients of one rank's minibatches.
type cameOf struct {
	own   []int32 // vertices
	grads []float32
}

// NewLearned makes rows of cols columns for ranges of own vertices, whose ids in the dataset are
// original. Every number is drawn by seed, id and column, so it depends on no other row. trained
// makes room for an optimiser and the best rows.
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

// draw sets the row of a vertex to the numbers with which it begins.
func (l *Learned) draw(row []float32, original int32) {
	first, scale := uint64(original)*uint64(l.Cols), float32(l.options.Scale)
	for c := range row {
		unit := float32(random.Mix(l.key+(first+uint64(c))*random.Golden)>>40)*0x1p-23 - 1
		row[c] = unit * scale
	}
}

// each calls f for every row, with its index i and its vertex's id in the dataset.
func (l *Learned) each(f func(row []float32, i int, original int32)) {
	for k, r := range l.Ranges {
		for n := range r.End - r.First {
			i := l.base[k] + n
			f(l.rows[i*l.Cols:(i+1)*l.Cols], i, l.original[r.First+n])
		}
	}
}

// eachUnread calls f, with UnreadZero, for every row that no step has changed: its moments are 0. A
// row that had a gradient has a moment that is not 0, unless the gradient was too small to move the
// row.
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

// moves reports whether a number is not 0.
func moves(of []float32) bool {
	return slices.ContainsFunc(of, func(x float32) bool { return x != 0 })
}

// Hide sets, with UnreadZero, the rows that no step has changed to 0 for evaluation, and Show brings
// back the numbers with which they began. Otherwise both do nothing. Between the two no minibatch of
// training may be under way. O(all rows).
func (l *Learned) Hide() { l.eachUnread(func(row []float32, _ int32) { clear(row) }) }

// Show undoes Hide.
func (l *Learned) Show() { l.eachUnread(l.draw) }

func (l *Learned) table(k int) []float32 {
	n := l.Ranges[k].End - l.Ranges[k].First
	return l.rows[l.base[k]*l.Cols : (l.base[k]+n)*l.Cols]
}

// Table returns the bytes of the rows of a range, which change with every Update.
func (l *Learned) Table(k int) []byte { return mem.Bytes(l.table(k)) }

// Add makes room for gradients, [len(own), Cols], of the rows of own vertices that a minibatch of a
// rank has read, each vertex once. They are to be set before Update. Minibatches of a rank come in
// their order.
func (l *Learned) Add(rank int, own []int32) compute.Matrix {
	for len(l.came) <= rank {
		l.came = append(l.came, cameOf{})
	}
	c := &l.came[rank]
	n, g := len(c.own), len(c.grads)
	c.own, c.grads = mem.Grow(c.own, n+len(own)), mem.Grow(c.grads, g+len(own)*l.Cols)
	copy(c.own[n:], own)
	return matrix(c.grads[g:], len(own), l.Cols)
}

// Update makes step number step of SparseAdam with the gradients that Add has got since the last
// one, in tiles on the threads of a device: the gradients of a row are added in the order of
// streams, so the sum depends neither on the number of ranks nor on that of threads. O(gradients).
// Only rows with a gradient decay, before the step, as with AdamW. If others did, a row would
// shrink by how often other rows are read, and a row without any gradient would not stay as it
// began.
// Source: torch.optim.SparseAdam, with its order of operations: moments of rows without a gradient
// stay, all rows count the same steps, and eps is added before the bias of v is corrected.
func (l *Learned) Update(device compute.Device, o OptimizerOptions, lr float64, step int) {
	l.list()
	t := float64(step)
	u := sparseAdam{rate: -float32(lr * math.Sqrt(1-math.Pow(o.Beta2, t)) /
		(1 - math.Pow(o.Beta1, t))), first: float32(1 - o.Beta1), second: float32(1 - o.Beta2),
		eps:     float32(o.Eps),
		decayed: float32(1 - lr*l.options.Decay)}
	compute.InTiles(device, (len(l.of)+updateRows-1)/updateRows, func(i int) {
		for k := i * updateRows; k < min((i+1)*updateRows, len(l.of)); k++ {
			l.update(&u, k)
		}
	})
	for r := range l.came {
		l.came[r].own, l.came[r].grads = l.came[r].own[:0], l.came[r].grads[:0]
	}
}

// updateRows are the rows of a tile of Update.
const updateRows = 32

// list lists the rows with gradients, and the gradients of each row in the order of streams.
func (l *Learned) list() {
	n := 0
	for r := range l.came {
		n += len(l.came[r].own)
	}
	l.of, l.next = mem.Grow(l.of[:0], n)[:0], mem.Grow(l.next[:0], n)
	l.head, l.last = mem.Grow(l.head[:0], n), mem.Grow(l.last[:0], n)
	clear(l.next)
	n = 0
	for r := range l.came {
		k := 0
		for _, own := range l.came[r].own {
			k = l.find(k, own)
			row := l.base[k] + int(own) - l.Ranges[k].First
			if at := l.place[row]; at == 0 {
				l.head[len(l.of)], l.last[len(l.of)] = int32(n), int32(n)
				l.of = append(l.of, int32(row))
				l.place[row] = int32(len(l.of))
			} else {
				l.next[l.last[at-1]], l.last[at-1] = int32(n), int32(n)
			}
			n++
		}
	}
	for _, row := range l.of {
		l.place[row] = 0
	}
}

// sparseAdam are the numbers of an update that all rows share.
type sparseAdam struct{ rate, first, second, eps, decayed float32 }

// update adds the gradients of the k-th row with gradients, into the first of them, and updates the
// row.
func (l *Learned) update(u *sparseAdam, k int) {
	d := l.Cols
	r, before := 0, 0 // the rank of a gradient, and the number of gradients of the ranks before it
	gradient := func(n int32) []float32 {
		for int(n)-before >= len(l.came[r].own) {
			before += len(l.came[r].own)
			r++
		}
		at := (int(n) - before) * d
		return l.came[r].grads[at : at+d]
	}
	sum := gradient(l.head[k])
	for n := l.next[l.head[k]]; n > 0; n = l.next[n] {
		for j, x := range gradient(n) {
			sum[j] += x
		}
	}
	at := int(l.of[k]) * d
	p, m, v := l.rows[at:at+d], l.m[at:at+d], l.v[at:at+d]
	stays := float32(1)
	if l.options.Decay > 0 && moves(sum) {
		stays = u.decayed
	}
	for j, g := range sum {
		m[j] += float32((g - m[j]) * u.first)
		v[j] += float32((float32(g*g) - v[j]) * u.second)
		p[j] = float32(p[j]*stays) +
			float32(u.rate*(m[j]/(float32(math.Sqrt(float64(v[j])))+u.eps)))
	}
}

// find returns the range of an own vertex, looking from range k on.
func (l *Learned) find(k int, own int32) int {
	for n := len(l.Ranges); n > 0; n-- {
		if r := &l.Ranges[k]; int(own) >= r.First && int(own) < r.End {
			return k
		}
		k = (k + 1) % len(l.Ranges)
	}
	panic(fmt.Sprintf("nn: own vertex %d has no learned row", own))
}

// KeepBest copies the rows as the best ones, and UseBest restores the copy.
func (l *Learned) KeepBest() { copy(l.best, l.rows) }
func (l *Learned) UseBest()  { copy(l.rows, l.best) }

// Finite reports whether rows and moments are numbers.
func (l *Learned) Finite() bool { return Finite(l.rows) && Finite(l.m) && Finite(l.v) }

// Digest returns the sum of the hashes of all own rows: the sum over ranks depends neither on their
// number nor on who owns a row.
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
	n := cap(l.rows) + cap(l.m) + cap(l.v) + cap(l.best) + cap(l.place) + cap(l.of) + cap(l.head) +
		cap(l.last) + cap(l.next)
	for _, c := range l.came {
		n += cap(c.own) + cap(c.grads)
	}
	return 4 * int64(n)
}

// The names of the tensors of a part's learned rows; the type of the vertices follows the name.
const (
	LearnedRows = "rows"
	learnedM    = "m"
	learnedV    = "v"
	LearnedBest = "best"
)

// arrays returns the arrays of a checkpoint and the names of their tensors; the best rows too if
// best.
func (l *Learned) arrays(best bool) (names []string, of [][]float32) {
	names, of = []string{LearnedRows, learnedM, learnedV}, [][]float32{l.rows, l.m, l.v}
	if best {
		names, of = append(names, LearnedBest), append(of, l.best)
	}
	return names, of
}

// tensors returns views of an array: one for each range of a part.
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

// HideOf is Hide for the rows of a part of a checkpoint. It reads their moments with the function
// read, one after the other, and holds as much memory as the rows.
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

// StateOf returns rows and moments of a part, without copying, and the best rows if best.
func (l *Learned) StateOf(part int, best bool) (all []Tensor) {
	names, arrays := l.arrays(best)
	for i, name := range names {
		all = append(all, l.tensors(part, name, arrays[i])...)
	}
	return all
}

// Free frees everything.
func (l *Learned) Free() {
	for _, array := range [][]float32{l.rows, l.m, l.v, l.best} {
		mem.Free(array)
	}
	mem.Free(l.place)
	for _, list := range [][]int32{l.of, l.head, l.last, l.next} {
		mem.Free(list)
	}
	for _, c := range l.came {
		mem.Free(c.own)
		mem.Free(c.grads)
	}
	*l = Learned{}
}
