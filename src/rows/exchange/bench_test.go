package exchange

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// BenchmarkSums is the work of an owner: it adds rows of a table much larger than the caches,
// groups of one to seven, as SliceRows copies rows. "of-row-copy" is the rate at which it reads
// rows to add them over that at which it copies the same rows, one run after the other.
func BenchmarkSums(b *testing.B) {
	const rows, members, cols = 400000, 100000, 100
	host, err := cpu.NewHost("")
	if err != nil {
		b.Fatal(err)
	}
	for _, dtype := range []compute.DType{compute.Float32, compute.Float16} {
		for _, weighted := range []bool{false, true} {
			b.Run(fmt.Sprintf("type=%v/weighted=%t", dtype, weighted), func(b *testing.B) {
				width := cols * dtype.Size()
				table := mem.Make[byte](rows * width)
				defer mem.Free(table)
				clear(table) // its pages are there before the clock runs
				x, err := New(comm.NewWorld(2).Rank(0), Options{Offsets: []int64{0, rows, rows},
					Tables: [][]byte{table, nil}, Kinds: []Kind{{cols, dtype}}, Host: host,
					Sums: &Sums{How: compute.ReduceMean, Weighted: weighted}})
				if err != nil {
					b.Fatal(err)
				}
				random := rand.New(rand.NewPCG(1, 2))
				ids, copied := make([]int32, 2*members), make([]int32, members)
				sums := 0
				for k, left := 0, 0; k < members; k, left = k+1, left-1 {
					ids[k] = random.Int32N(rows)
					copied[k] = ids[k]
					if left == 0 {
						left, sums, ids[k] = 1+random.IntN(7), sums+1, ^ids[k]
					}
				}
				p := Plan{wanted: []int64{0, 0, 0, 0, int64(sums), members}}
				dst := mem.Make[byte](members * width)
				defer mem.Free(dst)
				added := mem.Make[byte](sums * cols * floatBytes)
				defer mem.Free(added)
				var add, slice time.Duration
				b.SetBytes(members * int64(width))
				for b.Loop() {
					begin := time.Now()
					host.SliceRows(dst, table, width, copied)
					middle := time.Now()
					if err := x.addSums(&p, 1, ids, added); err != nil {
						b.Fatal(err)
					}
					slice, add = slice+middle.Sub(begin), add+time.Since(middle)
				}
				b.ReportMetric(slice.Seconds()/add.Seconds(), "of-row-copy")
				bytes := float64(members) * float64(width) * float64(b.N)
				b.ReportMetric(bytes/1e9/add.Seconds(), "GB/s-added")
				p.serving.free()
			})
		}
	}
}

// BenchmarkNodes is what a buyer does for the four ranks of its node, besides sending: it merges
// what they want, lists what it buys, and copies the rows as each rank wants them. Each row is
// wanted by 1.5 ranks, as on products; with a buffer the buyer has half of the rows already.
func BenchmarkNodes(b *testing.B) {
	const here, cols = 4, 100
	host, err := cpu.NewHost("")
	if err != nil {
		b.Fatal(err)
	}
	of := []int{0, 0, 0, 0, 1, 1, 1, 1}
	for _, wants := range []int{2000, 50000} {
		for _, keeps := range []bool{false, true} {
			b.Run(fmt.Sprintf("wants=%d/keeps=%t", wants, keeps), func(b *testing.B) {
				rows := wants * 100 / 26 // of which four ranks want 0.7
				all := int64(rows)
				o := Options{Offsets: []int64{0, 0, 0, 0, 0, all, all, all, all},
					Tables: make([][]byte, len(of)), Kinds: []Kind{{cols, compute.Float32}},
					Host: host, Node: &Node{Comm: NewEcho(0, here), Of: of, Keeps: keeps}}
				if keeps {
					o.Buffer = mem.Make[byte](rows / 2 * cols * floatBytes)
					defer mem.Free(o.Buffer)
					clear(o.Buffer)
				}
				x, err := New(comm.NewWorld(len(of)).Rank(0), o)
				if err != nil {
					b.Fatal(err)
				}
				defer x.Free()
				var p Plan
				defer p.Free()
				w := &p.bought
				random := rand.New(rand.NewPCG(1, 2))
				var ids []int32
				for m := range here {
					var own []graph.VertexID
					for _, v := range random.Perm(rows)[:wants] {
						ids, own = append(ids, int32(v)), append(own, graph.VertexID(v))
					}
					if m > 0 {
						continue
					}
					if err := x.Plan(&p, own); err != nil {
						b.Fatal(err)
					}
					if err := x.StartWants(&p).Wait(); err != nil {
						b.Fatal(err)
					}
				}
				var slot []int32
				var merge, buy, pass time.Duration
				union := 0
				for b.Loop() {
					copy(w.ids, ids)
					begin := time.Now()
					if err := x.Merge(&p); err != nil {
						b.Fatal(err)
					}
					merge += time.Since(begin)
					union = len(p.Wanted())
					for k := len(slot); keeps && k < union; k++ {
						slot = append(slot, int32(k/2)|-int32(k%2))
					}
					begin = time.Now()
					x.Buy(&p, slot, nil)
					middle := time.Now()
					x.PassOn(&p)
					buy, pass = buy+middle.Sub(begin), pass+time.Since(middle)
					w.own.swap(&p)
				}
				each := func(took time.Duration, rows int) float64 {
					return float64(took.Nanoseconds()) / float64(b.N) / float64(rows)
				}
				b.ReportMetric(each(merge, len(ids)), "ns/wanted-merge")
				b.ReportMetric(each(buy, union), "ns/row-buy")
				b.ReportMetric(each(pass, len(ids)), "ns/wanted-pass")
			})
		}
	}
}
