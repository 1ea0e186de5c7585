package exchange

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// lateWorld is a layout whose rows of one kind change, those of vertices that isLate names.
type lateWorld struct {
	*layout
	kinds int // the last has rows
}

func (lateWorld) isLate(v graph.VertexID) bool { return v%3 == 0 }

func (w lateWorld) kindOf(v graph.VertexID) int {
	for p := range w.tables {
		if int64(v) < w.offsets[p+1] {
			return p % w.kinds
		}
	}
	panic(v)
}

func (w lateWorld) partOf(v graph.VertexID) uint16 {
	index := graph.NewPartIndex(w.offsets)
	return uint16(index.Find(uint32(v)))
}

// rowAt returns a row, before the late ones change or after.
func (w lateWorld) rowAt(v graph.VertexID, after bool) []float32 {
	row := make([]float32, w.cols)
	for c := range row {
		row[c] = float32(math.Sin(float64(int(v)*w.cols + c)))
		if after && w.isLate(v) {
			row[c]++
		}
	}
	return row
}

// write sets the rows of a rank's tables.
func (w lateWorld) write(tables [][]byte, after bool) {
	for p, table := range tables {
		if len(table) == 0 {
			continue
		}
		for v := w.offsets[p]; v < w.offsets[p+1]; v++ {
			copy(table[int(v-w.offsets[p])*4*w.cols:], mem.Bytes(w.rowAt(graph.VertexID(v), after)))
		}
	}
}

// gradient names what a rank gives back for a row, and adds up to what it does for a sum.
func gradient(rank int, v graph.VertexID) float32 { return float32(rank*100000 + int(v)) }

// Sums of rows, early or late, are those of the rows that the owners have then, all groups of a
// kind travel as sums or none, and what is given back for a row or a sum comes to its owner as
// such.
func TestLateSums(t *testing.T) {
	for _, is := range []struct {
		ranks, perRank, kinds, vertices, cols int
		fewer                                 bool // sums are fewer than rows
	}{
		{3, 2, 1, 300, 8, true}, {4, 1, 1, 300, 5, true}, {2, 4, 2, 400, 6, true},
		{3, 2, 2, 300, 8, true}, {3, 2, 2, 300, 8, false}, {1, 2, 1, 50, 4, true},
		{4, 1, 1, 6, 3, true},
	} {
		t.Run(fmt.Sprintf("%+v", is), func(t *testing.T) {
			w := lateWorld{newLayout(rand.New(rand.NewPCG(1, 2)), is.ranks, is.perRank, 1,
				is.vertices, is.cols, compute.Float32), is.kinds}
			sums := make([]int64, is.ranks)
			err := comm.RunWorld(is.ranks, func(c comm.Comm) error {
				o := w.options(c.Rank())
				o.Kinds = make([]Kind, is.kinds)
				o.Kinds[is.kinds-1] = Kind{is.cols, compute.Float32}
				for p, table := range o.Tables {
					if p%is.kinds < is.kinds-1 {
						table = nil
					}
					o.Tables[p] = append([]byte(nil), table...)
					if table == nil {
						o.Tables[p] = nil
					}
				}
				o.Sums = &Sums{How: compute.ReduceMean, Back: true}
				x, err := New(c, o)
				if err != nil {
					return err
				}
				var p Plan
				var l Late
				defer p.Free()
				defer l.Free()
				rng := rand.New(rand.NewPCG(3, uint64(c.Rank())))
				for range 5 {
					w.write(o.Tables, false)
					if err := w.pass(x, &p, &l, rng, o.Tables, is.fewer); err != nil {
						return err
					}
					sums[c.Rank()] += p.Sums
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			all := int64(0)
			for _, n := range sums {
				all += n
			}
			if want := is.fewer && is.ranks > 1 && is.vertices > 10; want != (all > 0) {
				t.Errorf("%d sums travelled", all)
			}
		})
	}
}

// edges draws the vertices of a minibatch, segments of them, and some that are read themselves.
func (w lateWorld) edges(rng *rand.Rand, fewer bool) (ids []graph.VertexID, e *Edges) {
	ids = w.frontier(rng, 0.7, func(v graph.VertexID) bool { return w.kindOf(v) == w.kinds-1 })
	e = &Edges{Indptr: []int64{0}}
	if len(ids) == 0 {
		return ids, e
	}
	parts := make([]uint16, len(ids))
	for i, v := range ids {
		parts[i] = w.partOf(v)
	}
	segments, size := len(ids)/8+1, 20
	if !fewer {
		segments, size = 2*len(ids), 6
	}
	for range segments {
		for range size {
			e.Indices = append(e.Indices, int32(rng.IntN(len(ids))))
		}
		e.Indptr = append(e.Indptr, int64(len(e.Indices)))
	}
	read := make([]bool, len(ids))
	for _, i := range e.Indices {
		read[i] = true
	}
	for i := range ids {
		if !read[i] || rng.IntN(5) == 0 {
			e.Indices = append(e.Indices, int32(i))
			e.Indptr = append(e.Indptr, int64(len(e.Indices)))
			e.Whole = append(e.Whole, int32(i))
			e.Alone++
		}
	}
	var g graph.Grouper
	g.ByPart(e.Indptr, e.Indices, nil, parts, len(w.tables))
	return ids, e
}

// pass fetches rows and sums, early and late, and gives gradients back.
func (w lateWorld) pass(x *Exchange, p *Plan, l *Late, rng *rand.Rand, tables [][]byte,
	fewer bool) error {
	ids, e := w.edges(rng, fewer)
	segments := compute.Segments{Indptr: append([]int64(nil), e.Indptr...),
		Indices: append([]int32(nil), e.Indices...)}
	if err := w.cross(x, p, l, ids, e, tables); err != nil {
		return err
	}
	if err := w.compare(x, p, ids, e, segments); err != nil {
		return err
	}
	return w.giveBack(x, p, l, ids, e, segments)
}

// cross fetches the rows and sums of a minibatch, early and late.
func (w lateWorld) cross(x *Exchange, p *Plan, l *Late, ids []graph.VertexID, e *Edges,
	tables [][]byte) error {
	if err := x.Find(p, ids); err != nil {
		return err
	}
	x.Request(p, ids, Wants{Edges: e})
	if err := x.StartAsk(p).Wait(); err != nil {
		return err
	}
	if err := l.Begin(p, false); err != nil {
		return err
	}
	late := 0
	for rank := range x.ranks {
		before := 0
		for place, own := range l.Asked(rank) {
			if w.isLate(x.first + graph.VertexID(own)) {
				l.Put(rank, place)
			}
		}
		for place, own := range l.Members(rank) {
			if place < before || place < len(l.Asked(rank)) {
				return fmt.Errorf("place %d of a sum comes after %d, behind %d rows", place, before,
					len(l.Asked(rank)))
			}
			if before = place; w.isLate(x.first + graph.VertexID(own)) {
				l.Put(rank, place)
			}
		}
	}
	l.Cut()
	if late, _ = l.Rows(); late == 0 && w.vertices() > 10 && x.ranks > 1 {
		return fmt.Errorf("nothing is late")
	}
	l.Make(x, false, 0, l.Vectors(false))
	if err := l.StartEarly(x).Wait(); err != nil {
		return err
	}
	l.Spread(x)
	w.write(tables, true)
	for _, part := range halved(l.Vectors(true)) {
		l.Make(x, true, part[0], part[1])
	}
	if err := l.StartLate(x).Wait(); err != nil {
		return err
	}
	for _, part := range halved(l.Landed()) {
		l.Land(x, part[0], part[1])
	}
	return nil
}

// halved cuts n into two tiles, the second one first.
func halved(n int) [][2]int { return [][2]int{{n / 2, n}, {0, n / 2}} }

// compare holds the means of what has come to those of rows as they are after the change.
func (w lateWorld) compare(x *Exchange, p *Plan, ids []graph.VertexID, e *Edges,
	s compute.Segments) error {
	n := s.Len()
	got, want := make([]float32, n*w.cols), make([]float32, n*w.cols)
	means := func(to []float32, s compute.Segments, rows compute.Rows) {
		ref.Host{}.SegmentRows(compute.Matrix{Rows: n, Cols: w.cols, Data: to}, compute.ReduceMean,
			s, nil, rows)
	}
	means(got, compute.Segments{Indptr: e.Indptr, Indices: e.Indices, Counts: e.Counts},
		x.RowsOf(p, w.kinds-1))
	rows := compute.Rows{Cols: w.cols, Type: compute.Float32, Tables: [][]byte{nil}}
	for i, v := range ids {
		rows.Tables[0] = append(rows.Tables[0], mem.Bytes(w.rowAt(v, true))...)
		rows.Of = append(rows.Of, compute.MakeRowRef(0, i))
	}
	means(want, s, rows)
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("segment %d, column %d: %v, want %v", i/w.cols, i%w.cols, got[i],
				want[i])
		}
	}
	return nil
}

// giveBack returns the gradients of rows and sums. Of a sum it is that of its members added up.
func (w lateWorld) giveBack(x *Exchange, p *Plan, l *Late, ids []graph.VertexID, e *Edges,
	s compute.Segments) error {
	put := func(place int, g float32) {
		if slot := x.Slot(p, place); slot >= 0 {
			for c := range p.Received().Row(slot) {
				p.Received().Row(slot)[c] = g
			}
		}
	}
	for d := range s.Len() {
		at := s.Indptr[d]
		for k := e.Indptr[d]; k < e.Indptr[d+1]; k++ {
			first := ids[compute.SourceOf(s.Indices[at])]
			g := gradient(x.rank, first)
			at++
			// if a group is a sum, all those of others are
			if p.Sums > 0 && d < s.Len()-e.Alone && w.owner(first) != x.rank {
				for ; at < s.Indptr[d+1] && s.Indices[at] >= 0; at++ {
					g += gradient(x.rank, ids[s.Indices[at]])
				}
			}
			put(int(compute.SourceOf(e.Indices[k])), g)
		}
		if at != s.Indptr[d+1] {
			return fmt.Errorf("segment %d reads %d edges too few", d, s.Indptr[d+1]-at)
		}
	}
	if err := x.StartBack(p).Wait(); err != nil {
		return err
	}
	for rank := range x.ranks {
		want := make([]float32, len(l.Asked(rank))+l.Sums(rank))
		for place, own := range l.Asked(rank) {
			want[place] = gradient(rank, x.first+graph.VertexID(own))
		}
		for place, own := range l.Members(rank) {
			want[place] += gradient(rank, x.first+graph.VertexID(own))
		}
		all := p.Returned()
		if l.Reads(rank) < len(want) || rank == x.ranks-1 && all.Rows != l.First(rank)+len(want) {
			return fmt.Errorf("rank %d reads %d rows for %d places; %d are given back, from %d on",
				rank, l.Reads(rank), len(want), all.Rows, l.First(rank))
		}
		for i, g := range all.RowsAt(l.First(rank), l.First(rank)+len(want)).Data {
			if g != want[i/w.cols] {
				return fmt.Errorf("rank %d gives %v back at place %d, want %v", rank, g, i/w.cols,
					want[i/w.cols])
			}
		}
	}
	return nil
}

// A plan takes the memory of a run whose sums of rows are early and late: others ask of a rank
// about as much as it asks of them.
func TestPlannedMemoryOfLateSums(t *testing.T) {
	for _, kinds := range []int{1, 2} {
		rng := rand.New(rand.NewPCG(1, 2))
		w := lateWorld{newLayout(rng, 4, kinds, 1, 3000, 16, compute.Float32), kinds}
		for p := range w.offsets { // ranks that have as many rows
			w.offsets[p] = int64(p) * int64(w.vertices()) / int64(len(w.tables))
		}
		err := comm.RunWorld(4, func(c comm.Comm) error {
			o := w.options(c.Rank())
			o.Kinds = make([]Kind, kinds)
			o.Kinds[kinds-1] = Kind{w.cols, compute.Float32}
			o.Sums = &Sums{How: compute.ReduceMean, Back: true}
			own := func(part int) bool { return part/w.perRank == c.Rank() }
			for p := range o.Tables {
				o.Tables[p] = nil
				if own(p) && p%kinds == kinds-1 {
					o.Tables[p] = make([]byte, int(w.offsets[p+1]-w.offsets[p])*4*w.cols)
				}
			}
			x, err := New(c, o)
			if err != nil {
				return err
			}
			planning, err := NewPlanning(c.Rank(), 4, w.offsets, o.Kinds, own, o.Sums)
			if err != nil {
				return err
			}
			var bytes [2]int64
			for i, x := range []*Exchange{x, planning} {
				var p Plan
				var l Late
				ids, e := w.edges(rand.New(rand.NewPCG(3, uint64(c.Rank()))), true)
				if err := w.cross(x, &p, &l, ids, e, nil); err != nil {
					return err
				}
				if p.Sums == 0 {
					return fmt.Errorf("no sums travel")
				}
				bytes[i] = l.Bytes()
				l.Free()
				p.Free()
				x.Free()
			}
			if run, plan := float64(bytes[0]), float64(bytes[1]); math.Abs(plan-run) > 0.1*run {
				t.Errorf("%d kinds, rank %d: %v bytes are planned, %v taken", kinds, c.Rank(), plan,
					run)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Of the rows of a kind all groups travel as sums if that takes fewer bytes than the rows that are
// not read themselves, there and back.
func TestChoiceOfLateSums(t *testing.T) {
	// a row takes 16 bytes there, 16 back and 4 of its id; a sum 32, and 4 for each member
	kinds := []Kind{{4, compute.Float32}, {4, compute.Float32}}
	type group struct {
		kind    uint16
		members []int32
	}
	for _, c := range []struct {
		name                 string
		kind                 []uint16 // of each row
		alone                []uint8
		groups               []group
		chosen, rows, vacant []int32
	}{
		{"sums of kind 0, of 44 bytes against 108; rows of kind 1, of 72 bytes against 120",
			[]uint16{0, 0, 0, 1, 1}, []uint8{0, 0, 0, 0, 0},
			[]group{{0, []int32{0, 1, 2}}, {1, []int32{3, 4}}, {1, []int32{4, 3}},
				{1, []int32{3, 4}}},
			[]int32{0}, []int32{3, 4}, []int32{0, 1, 2}},
		{"sums of kind 1 alone", []uint16{0, 1, 1}, []uint8{0, 0, 0},
			[]group{{0, []int32{0}}, {1, []int32{1, 2}}}, // 36 against 36, 40 against 72
			[]int32{1}, []int32{0}, []int32{1, 2}},
		{"a row that is read itself comes anyway: 40 against 36, and 44 against 72",
			[]uint16{0, 0, 1, 1, 1}, []uint8{1, 0, 1, 0, 0},
			[]group{{0, []int32{0, 1}}, {1, []int32{2, 3, 4}}},
			[]int32{1}, []int32{0, 1, 2}, []int32{3, 4}},
		{"a row of no group comes itself", []uint16{0, 0, 0, 1}, []uint8{0, 0, 0, 0},
			[]group{{0, []int32{0, 2}}}, []int32{0}, []int32{1, 3}, []int32{0, 2}},
	} {
		g := Groups{begin: []int32{0}, alone: c.alone, kind: c.kind}
		for i, of := range c.groups { // parts of two ranks, by kind
			g.member = append(g.member, of.members...)
			g.begin = append(g.begin, int32(len(g.member)))
			g.part = append(g.part, uint16(2*(i%2))+of.kind)
		}
		chooser := NewChooser(&Sums{How: compute.ReduceMean, Back: true}, kinds, nil)
		for range 2 { // its memory is used again
			chooser.chooseKinds(&g)
			for i, of := range [][2][]int32{{chooser.chosen, c.chosen}, {chooser.rows, c.rows},
				{chooser.vacant, c.vacant}} {
				if !slices.Equal(of[0], of[1]) {
					t.Errorf("%s: list %d is %v, want %v", c.name, i, of[0], of[1])
				}
			}
		}
		chooser.Free()
	}
}
