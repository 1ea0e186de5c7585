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
