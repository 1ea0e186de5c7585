package nn

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// foldedHop is a hop of the input layer whose rows are all means, or own rows, in both forms.
type foldedHop struct {
	mapped, folded Hop
	rows           []int // of each type
}

// foldable makes a hop of typed with that many destinations. The relations from type 1 have no rows
// if few.
func foldable(rng *rand.Rand, destinations int, own Relating, few bool) (f foldedHop) {
	type row struct{ kind, d int }
	var rows []row // of relations, then own
	kinds := make([]int, destinations)
	for d := range kinds {
		kinds[d] = d % 2
	}
	h := Hop{Destinations: destinations}
	ends := make([][]int32, len(typed.Types))
	count := make([]int, len(typed.Types))
	for r := range typed.Relations {
		source, target := typed.Ends(r)
		for d := range kinds {
			if kinds[d] == target && r < 3 && rng.IntN(3) > 0 && !(few && source == 1) {
				rows = append(rows, row{source, d})
				count[source]++
			}
		}
		h.Ends = append(h.Ends, int32(len(rows)))
		ends[source] = append(ends[source], int32(count[source]))
	}
	relations := len(rows)
	sets := [][]int{{0, 1}}
	if own == OwnByType {
		sets = [][]int{{0}, {1}}
	}
	setOf := make([]int, destinations)
	for s, of := range sets {
		for d, kind := range kinds {
			if kind == of[0] || len(of) > 1 {
				setOf[d] = s
				rows = append(rows, row{kind, d})
				count[kind]++
			}
		}
		h.OwnEnds = append(h.OwnEnds, int32(len(rows)-relations))
	}
	for t := range ends {
		ends[t] = append(ends[t], int32(count[t]))
	}
	next := []int{0, count[0]} // where the next row of a type lies
	z := make([]int32, len(rows))
	for i, row := range rows {
		z[i] = int32(next[row.kind])
		next[row.kind]++
	}
	h.Sources, h.Edges = len(rows), len(rows)
	list := func(of func(d int) []int32) (s compute.Segments) {
		s.Indptr = []int64{0}
		for d := range destinations {
			s.Indices = append(s.Indices, of(d)...)
			s.Indptr = append(s.Indptr, int64(len(s.Indices)))
		}
		return s
	}
	h.Forward.Indptr = []int64{0}
	for i := range rows {
		h.Forward.Indices = append(h.Forward.Indices, z[i])
		h.Forward.Indptr = append(h.Forward.Indptr, int64(i+1))
	}
	h.Transposed = transpose(h.Forward, len(rows))
	f.rows, f.mapped, f.folded = count, h, h
	f.mapped.Targets = list(func(d int) (to []int32) {
		for i, row := range rows {
			if row.d == d {
				to = append(to, int32(i))
			}
		}
		return append(to, int32(len(rows)+setOf[d]))
	})
	f.folded.Targets = list(func(d int) (to []int32) {
		for i, row := range rows {
			if row.d == d {
				to = append(to, z[i])
			}
		}
		return to
	})
	f.mapped.RowsOf = transpose(f.mapped.Targets, len(rows)+len(sets))
	f.folded.RowsOf = transpose(f.folded.Targets, len(rows))
	f.folded.Folded, f.folded.TypeEnds = true, ends
	return f
}

// Folding changes neither logits nor gradients, but for rounding: of parameters, and of the rows.
func TestFoldedRows(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, c := range []Config{{Kind: "rgcn"}, {Kind: "rgcn", Bases: 2}, {Kind: "sage"}} {
			for _, few := range []bool{false, true} {
				name := fmt.Sprintf("%s, %d bases, few %v", c.Kind, c.Bases, few)
				t.Run(name, func(t *testing.T) {
					c.Layers, c.In, c.Hidden, c.Out = 2, 5, 4, 3
					c.Norm, c.Task = NormNone, task.Multiclass
					c.Schema, c.TypeFeatures = typed, []int{6, 3}
					rng := rand.New(rand.NewPCG(1, 2))
					own := c.Needs().Relations
					upper := foldable(rng, 7, own, false)
					lower := foldable(rng, upper.mapped.Sources, own, few)
					b := Batch{Train: true, GlobalSeeds: 7, Labels: make([]byte, 4*7)}
					for k, n := range lower.rows {
						b.Types = append(b.Types, upload(t, dev, n, c.TypeFeatures[k],
							randomRows(rng, n*c.TypeFeatures[k])))
					}
					type result struct{ logits, grads, rows []float32 }
					run := func(hop Hop) (r result) {
						m := newModel(t, dev, c, 1)
						for _, p := range m.Params.List { // biases begin as zeros
							dev.Upload(p.part(m.Params.Values),
								randomRows(rand.New(rand.NewPCG(3, uint64(p.Offset))), p.Len()))
						}
						b.Hops = []Hop{hop, upper.mapped}
						logits, err := m.Forward(&b)
						if err != nil {
							t.Fatal(err)
						}
						r.logits = download(dev, logits.Data)
						_, d := m.Loss(&b, logits)
						dx := m.Backward(d, nil)
						at := 0
						for k, n := range lower.rows {
							rows := upload(t, dev, n, c.TypeFeatures[k], nil)
							m.RowGradient(rows, k, dx.RowsAt(at, at+n))
							at += n
							r.rows = append(r.rows,
								download(dev, rows.Data[:n*c.TypeFeatures[k]])...)
						}
						r.grads = download(dev, m.Params.Grads)
						return r
					}
					want, got := run(lower.mapped), run(lower.folded)
					for i, of := range [][2][]float32{
						{got.logits, want.logits},
						{got.grads, want.grads},
						{got.rows, want.rows},
					} {
						wide := make([]float64, len(of[1]))
						for k, x := range of[1] {
							wide[k] = float64(x)
						}
						if d := deviation(of[0], wide); !(d < 1e-5) || len(wide) == 0 {
							t.Errorf("array %d deviates by %.2g", i, d)
						}
					}
				})
			}
		}
	})
}
