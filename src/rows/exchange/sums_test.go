package exchange

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// What an input layer makes of its rows is the same, bit for bit, whether rows or sums travel, at
// any number of ranks, parts and nodes, of any rows, whatever is cached, early or kept; and what is
// counted is what was handed to the transport.
func TestSumsAreWhatRowsGive(t *testing.T) {
	for _, is := range []struct {
		ranks, perRank, perNode, vertices, cols int
		dtype                                   compute.DType
		sums                                    Sums
		// That fetch as one; nil: each rank for itself.
		nodes []int
	}{
		{3, 1, 1, 300, 40, compute.Float32, Sums{How: compute.ReduceMean, Own: true}, nil},
		{2, 3, 1, 200, 41, compute.Float16, Sums{How: compute.ReduceMean, Own: true}, nil},
		{4, 2, 2, 300, 40, compute.Float32, Sums{How: compute.ReduceSum, Own: true}, nil},
		{3, 2, 1, 300, 50, compute.Float16, Sums{How: compute.ReduceSum, Weighted: true}, nil},
		{2, 2, 1, 300, 64, compute.Float32, Sums{How: compute.ReduceSum, Weighted: true}, nil},
		{2, 1, 1, 300, 50, compute.Float32, Sums{How: compute.ReduceMax, Own: true}, nil},
		{3, 1, 1, 300, 100, compute.Float16, Sums{How: compute.ReduceMax, Own: true}, nil},
		{3, 2, 1, 300, 120, compute.Int8, Sums{How: compute.ReduceMean, Own: true}, nil},
		{4, 1, 2, 300, 121, compute.Int8, Sums{How: compute.ReduceSum}, nil},
		{2, 2, 1, 300, 150, compute.Int8, Sums{How: compute.ReduceSum, Weighted: true}, nil},
		{3, 1, 1, 300, 100, compute.Int8, Sums{How: compute.ReduceMax, Own: true}, nil},
		{1, 4, 1, 100, 3, compute.Float32, Sums{How: compute.ReduceMean}, nil},
		{4, 1, 1, 5, 3, compute.Float32, Sums{How: compute.ReduceMean, Own: true}, nil},
		{4, 2, 2, 300, 40, compute.Float32, Sums{How: compute.ReduceMean, Own: true},
			[]int{0, 0, 1, 1}},
		{5, 1, 3, 300, 50, compute.Float16, Sums{How: compute.ReduceSum, Weighted: true},
			[]int{0, 0, 0, 1, 1}},
	} {
		t.Run(fmt.Sprintf("%+v", is), func(t *testing.T) {
			l := newLayout(rand.New(rand.NewPCG(1, 2)), is.ranks, is.perRank, is.perNode,
				is.vertices, is.cols, is.dtype)
			l.finite()
			made, wanted, read := make([]int64, is.ranks), make([]int64, is.ranks),
				make([]int64, is.ranks)
			err := comm.RunWorld(is.ranks, func(c comm.Comm) error {
				o := l.options(c.Rank())
				o.Sums = &is.sums
				o.Buffer = make([]byte, 20*is.cols*is.dtype.Size())
				count := &tally{Comm: c}
				if is.nodes != nil {
					n, err := node(c, is.nodes)
					if err != nil {
						return err
					}
					o.Node = n
				}
				x, err := New(count, o)
				if err != nil {
					return err
				}
				defer x.Free()
				var p Plan
				defer p.Free()
				rng := rand.New(rand.NewPCG(3, uint64(c.Rank())))
				for range 6 { // larger and smaller ones, in one plan
					if err := l.sum(x, &p, count, rng, is.sums); err != nil {
						return err
					}
					made[c.Rank()] += p.Sums
					// in bytes, for a rank may buy rows for others
					wanted[c.Rank()] += p.Remote*int64(is.sums.MemberBytes()) +
						p.IDBytes - p.Remote*IDBytes
					read[c.Rank()] += p.ServedReads
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			all, reads := int64(0), int64(0)
			for r, n := range made {
				all += n
				reads += read[r]*int64(is.sums.MemberBytes()) - wanted[r]
			}
			if reads != 0 {
				t.Errorf("owners read %d rows more than were wanted, sent or added",
					reads/int64(is.sums.MemberBytes()))
			}
			if several := is.ranks > is.perNode && is.vertices > 50; several != (all > 0) {
				t.Errorf("%d sums travelled", all)
			}
		})
	}
}

// finite makes all elements finite numbers.
func (l *layout) finite() {
	for _, table := range l.tables {
		for i := range table {
			if size := l.dtype.Size(); l.dtype == compute.Int8 {
				table[i] = byte(max(int8(table[i]), -math.MaxInt8))
			} else if i%size == size-1 {
				table[i] &= 0xbb // no exponent of all ones
			}
		}
	}
}

// scale returns the scales of the columns of int8 rows, nil else.
func (l *layout) scale() (scale []float32) {
	for c := range l.cols {
		if l.dtype == compute.Int8 {
			scale = append(scale, 1/float32(c+3))
		}
	}
	return scale
}

// sum fetches one random frontier with sums and compares.
func (l *layout) sum(x *Exchange, p *Plan, count *tally, rng *rand.Rand, how Sums) error {
	ids := l.frontier(rng, rng.Float64(), func(graph.VertexID) bool { return true })
	destinations := len(ids) / 10
	e := Edges{Indptr: []int64{0}}
	for range destinations {
		for _, s := range rng.Perm(len(ids))[:rng.IntN(min(len(ids), 25))] {
			e.Indices = append(e.Indices, int32(s))
			if how.Weighted {
				e.Weights = append(e.Weights, rng.Float32())
			}
		}
		e.Indptr = append(e.Indptr, int64(len(e.Indices)))
	}
	if err := x.Locate(p, ids); err != nil {
		return err
	}
	var g graph.Grouper
	defer g.Free()
	g.ByPart(e.Indptr, e.Indices, e.Weights, p.Parts, x.Parts())

	// As if all rows were here.
	all := compute.Rows{Cols: l.cols, Type: l.dtype, Scale: l.scale(), Tables: l.tables}
	for i, v := range ids {
		all.Of = append(all.Of, compute.MakeRowRef(int(p.Parts[i]),
			int(int64(v)-l.offsets[p.Parts[i]])))
	}
	reduce := func(rows compute.Rows, counts []int32) []byte {
		m := compute.Matrix{Rows: destinations, Cols: l.cols,
			Data: make([]float32, destinations*l.cols)}
		ref.Host{}.SegmentRows(m, how.How, compute.Segments{Indptr: e.Indptr, Indices: e.Indices,
			Counts: counts}, e.Weights, rows)
		return mem.Bytes(m.Data)
	}
	want := reduce(all, nil)

	// Some rows are in the buffer, some misses are kept, others come early.
	slot, kept, misses := make([]int32, len(p.RemoteIDs)), []int32(nil), int32(0)
	held := int32(0)
	for k, v := range p.RemoteIDs {
		if slot[k] = -1; held < 20 && rng.IntN(4) == 0 {
			slot[k] = held
			size := l.cols * l.dtype.Size()
			part := x.parts.Find(uint32(v))
			at := (int(int64(v) - l.offsets[part])) * size
			copy(x.tables[len(x.base)][int(held)*size:(int(held)+1)*size], l.tables[part][at:])
			held++
			continue
		}
		if rng.IntN(8) == 0 {
			kept = append(kept, misses)
		}
		misses++
	}
	var early []graph.VertexID
	for v := range graph.VertexID(l.vertices()) {
		if part := x.parts.Find(uint32(v)); x.remote[part] != 0 && rng.IntN(30) == 0 &&
			!slices.Contains(p.RemoteIDs, v) {
			early = append(early, v)
		}
	}
	var listed Groups
	defer listed.Free()
	x.List(p, &e, &listed)
	chooser := NewChooser(&how, []Kind{{l.cols, l.dtype}}, nil)
	defer chooser.Free()
	wants := Wants{Slot: slot, Early: early, Kept: kept, Edges: &e}
	foreseen := chooser.Counts(&listed, wants)
	x.Request(p, ids, wants)
	count.sent, count.calls = [3]int64{}, 0
	if err := finish(x, p); err != nil {
		return err
	}
	if got := reduce(p.Rows, e.Counts); !bytes.Equal(got, want) {
		return fmt.Errorf("%d sums of %d rows give other numbers than the rows", p.Sums, p.Summed)
	}
	if how.Own {
		got, want := make([]byte, 0), make([]byte, 0)
		size := l.cols * l.dtype.Size()
		for d := range destinations {
			r, w := p.Rows.Of[d], all.Of[d]
			got = append(got, p.Rows.Tables[r.Table()][r.Row()*size:(r.Row()+1)*size]...)
			want = append(want, all.Tables[w.Table()][w.Row()*size:(w.Row()+1)*size]...)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("destinations have other rows")
		}
	}
	for _, n := range kept {
		size := l.cols * l.dtype.Size()
		w := all.Of[p.missing[n]]
		if got := p.received[p.Landed(int(n)).Row()*size:][:size]; !bytes.Equal(got,
			l.tables[w.Table()][w.Row()*size:(w.Row()+1)*size]) {
			return fmt.Errorf("miss %d, which is kept, has another row", n)
		}
	}
	if err := p.Check(len(ids)); err != nil {
		return err
	}
	foreseen.RowBytes = 0 // those that are sent are others
	if x.Buys() {         // of a node, which are fewer
		foreseen.Remote, foreseen.Early, foreseen.IDBytes = p.Remote, p.Early, p.IDBytes
	}
	if got := (trace.Counters{Remote: p.Remote, Early: p.Early, Sums: p.Sums, Summed: p.Summed,
		IDBytes: p.IDBytes}); got != foreseen {
		return fmt.Errorf("%+v, but foreseen are %+v", got, foreseen)
	}
	if count.sent != [3]int64{p.CountBytes, p.IDBytes, p.RowBytes} {
		return fmt.Errorf("%d bytes were sent, but %d, %d, %d counted", count.sent, p.CountBytes,
			p.IDBytes, p.RowBytes)
	}
	if want := p.Served*int64(l.cols*l.dtype.Size()) +
		p.ServedSums*int64(how.Bytes(l.cols, l.dtype)); want != p.RowBytes {
		return fmt.Errorf("%d bytes of %d rows and %d sums", p.RowBytes, p.Served, p.ServedSums)
	}
	return nil
}

// Rows of several kinds are added kind by kind, each in its own width and type: the sums are those
// of the rows, and what is foreseen is what is sent. A kind may have no rows.
func TestSumsOfSeveralKinds(t *testing.T) {
	const ranks, vertices = 3, 240
	kinds := []Kind{{5, compute.Float32}, {0, compute.Float32}, {7, compute.Float16},
		{3, compute.Int8}}
	layouts := make([]*layout, len(kinds)) // each with the parts of all kinds, of its own width
	for k, kind := range kinds {
		layouts[k] = newLayout(rand.New(rand.NewPCG(8, 0)), ranks, len(kinds), 1, vertices,
			kind.Cols, kind.Type)
		layouts[k].finite()
	}
	tables := make([][]byte, ranks*len(kinds))
	for p := range tables {
		tables[p] = layouts[p%len(kinds)].tables[p]
	}
	offsets := layouts[0].offsets
	kindOf := func(v graph.VertexID) int {
		return (sort.Search(len(offsets), func(i int) bool { return offsets[i] > int64(v) }) -
			1) % len(kinds)
	}
	for _, how := range []Sums{{How: compute.ReduceMean},
		{How: compute.ReduceSum, Weighted: true}} {
		all := [ranks]int64{}
		err := comm.RunWorld(ranks, func(c comm.Comm) error {
			o := Options{Offsets: offsets, Tables: make([][]byte, len(tables)), Kinds: kinds,
				Host: slicer{}, Sums: &how}
			copy(o.Tables[c.Rank()*len(kinds):], tables[c.Rank()*len(kinds):][:len(kinds)])
			x, err := New(c, o)
			if err != nil {
				return err
			}
			defer x.Free()
			var p Plan
			defer p.Free()
			chooser := NewChooser(&how, kinds, kindOf)
			defer chooser.Free()
			rng := rand.New(rand.NewPCG(9, uint64(c.Rank())))
			for range 5 {
				ids := layouts[0].frontier(rng, rng.Float64(),
					func(graph.VertexID) bool { return true })
				var e Edges
				var of []int // the kind of each destination
				e.Indptr = []int64{0}
				for range 12 {
					kind := rng.IntN(len(kinds))
					for i, v := range ids {
						if kindOf(v) == kind && rng.IntN(5) == 0 {
							e.Indices = append(e.Indices, int32(i))
						}
					}
					of, e.Indptr = append(of, kind), append(e.Indptr, int64(len(e.Indices)))
				}
				for range e.Indices {
					if how.Weighted {
						e.Weights = append(e.Weights, rng.Float32())
					}
				}
				for i := range min(3, len(ids)) {
					e.Whole = append(e.Whole, int32(i))
				}
				if err := x.Find(&p, ids); err != nil {
					return err
				}
				var groups graph.Grouper
				groups.ByPart(e.Indptr, e.Indices, e.Weights, p.Parts, x.Parts())
				groups.Free()
				reduce := func(rows func(kind int) compute.Rows) (sums []float32) {
					for d, kind := range of {
						m := compute.Matrix{Rows: 1, Cols: kinds[kind].Cols,
							Data: make([]float32, kinds[kind].Cols)}
						s := compute.Segments{Indptr: []int64{0, e.Indptr[d+1] - e.Indptr[d]},
							Indices: e.Indices[e.Indptr[d]:e.Indptr[d+1]]}
						var weights []float32
						if how.Weighted {
							weights = e.Weights[e.Indptr[d]:e.Indptr[d+1]]
						}
						if e.Counts != nil {
							s.Counts = e.Counts[d : d+1]
						}
						ref.Host{}.SegmentRows(m, how.How, s, weights, rows(kind))
						sums = append(sums, m.Data...)
					}
					return sums
				}
				want := reduce(func(kind int) compute.Rows {
					rows := compute.Rows{Cols: kinds[kind].Cols, Type: kinds[kind].Type,
						Tables: tables}
					for i, v := range ids {
						rows.Of = append(rows.Of, compute.MakeRowRef(int(p.Parts[i]),
							int(int64(v)-offsets[p.Parts[i]])))
					}
					return rows
				})
				var listed Groups
				x.List(&p, &e, &listed)
				foreseen := chooser.Counts(&listed, Wants{})
				listed.Free()
				x.Request(&p, ids, Wants{Edges: &e})
				if err := finish(x, &p); err != nil {
					return err
				}
				got := reduce(func(kind int) compute.Rows { return x.RowsOf(&p, kind) })
				if !bytes.Equal(mem.Bytes(got), mem.Bytes(want)) {
					return fmt.Errorf("%d sums of %d rows give other numbers than the rows", p.Sums,
						p.Summed)
				}
				for _, i := range e.Whole {
					part := p.Parts[i]
					is := kinds[int(part)%len(kinds)]
					ref, at := p.Rows.Of[i], int(int64(ids[i])-offsets[part])*is.RowBytes()
					if !bytes.Equal(
						p.Rows.Tables[ref.Table()][ref.Row()*is.RowBytes():][:is.RowBytes()],
						tables[part][at:][:is.RowBytes()]) {
						return fmt.Errorf("vertex %d has another row", ids[i])
					}
				}
				if asked := (trace.Counters{Remote: p.Remote, Sums: p.Sums, Summed: p.Summed,
					IDBytes: p.IDBytes, RowBytes: p.AskedBytes}); asked != foreseen {
					return fmt.Errorf("%+v, but foreseen are %+v", asked, foreseen)
				}
				all[c.Rank()] += p.Sums
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if all[0]+all[1]+all[2] == 0 {
			t.Error("no sum travelled")
		}
	}
}

// A request for sums that only a peer with other parts, or damaged memory, would make is an error
// that names both ranks.
func TestDamagedSumNamesBothRanks(t *testing.T) {
	l := newLayout(rand.New(rand.NewPCG(5, 0)), 2, 3, 1, 50, 4, compute.Float32)
	largest := func(rank int) int { // part of a rank
		return slices.MaxFunc([]int{3 * rank, 3*rank + 1, 3*rank + 2},
			func(a, b int) int { return cmp.Compare(len(l.tables[a]), len(l.tables[b])) })
	}
	asked := largest(0)
	other := slices.IndexFunc(l.tables[:3],
		func(t []byte) bool { return len(t) > 0 && &t[0] != &l.tables[asked][0] })
	rows, row, stray := l.offsets[3], l.offsets[asked], l.offsets[other]
	for _, c := range []struct {
		name   string
		at     int // the number of the message that is damaged: counts are rows, sums, members
		counts bool
		value  int64
		want   string
	}{
		{"member too large", 1, false, rows,
			fmt.Sprintf("rank 1 wants a sum with row %d of rank 0, which has %d in parts 0 to 2",
				rows, rows)},
		{"first member too large", 0, false, ^rows,
			fmt.Sprintf("a sum with row %d of rank 0", rows)},
		{"member of another part", 1, false, stray,
			fmt.Sprintf("rank 1 asks rank 0 for a sum of rows of part %d, but row %d in it "+
				"belongs to part %d", asked, stray, other)},
		{"a sum more", 1, false, ^row, "rank 1 asks rank 0 for 1 sums, but lists rows for 2 sums"},
		{"no first member", 0, false, row,
			"rank 1 asks rank 0 for 1 sums, but lists rows for 0 sums"},
		{"sums negative", 1, true, -1, "rank 1 wants -1 sums of"},
		{"more sums than members", 1, true, 1 << 40, "sums of"},
		{"members too many", 2, true, 1 << 40, "1 sums of 1099511627776 rows of rank 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := comm.RunWorld(2, func(world comm.Comm) error {
				transport := &tally{Comm: world}
				if world.Rank() == 1 {
					transport.damage = func(rowBytes int, send []byte) {
						switch {
						case c.counts && rowBytes == 3*countBytes:
							binary.LittleEndian.PutUint64(send[c.at*countBytes:], uint64(c.value))
						case !c.counts && rowBytes == IDBytes:
							binary.LittleEndian.PutUint32(send[c.at*IDBytes:], uint32(c.value))
						}
					}
				}
				o := l.options(world.Rank())
				o.Sums = &Sums{How: compute.ReduceMean}
				x, err := New(transport, o)
				if err != nil {
					return err
				}
				defer x.Free()
				var p Plan
				defer p.Free()
				asked := largest(1 - world.Rank())
				ids := l.frontier(rand.New(rand.NewPCG(6, 0)), 1, func(v graph.VertexID) bool {
					return int64(v) >= l.offsets[asked] && int64(v) < l.offsets[asked+1]
				})
				if err := x.Find(&p, ids); err != nil {
					return err
				}
				// one destination that reads them all
				e := Edges{Indptr: []int64{0, int64(len(ids))}}
				for i := range ids {
					e.Indices = append(e.Indices, int32(i))
				}
				x.Request(&p, ids, Wants{Edges: &e})
				return finish(x, &p)
			})
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "same directory of parts") {
				t.Errorf("got %v\nwant %q", err, c.want)
			}
		})
	}
}
