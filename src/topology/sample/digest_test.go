package sample

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
)

// The edges of a minibatch, shared out to blocks with numberings and orders of their own, have the
// same digest.
func TestEdgesDigestDoesNotDependOnNumbering(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 0))
	topology := randomTopology(r, 150)
	key := Key{Seed: 3, Epoch: 1, Step: 2, Stream: 4}
	m := Reference(topology, Neighbours(5, All, 3), someSeeds(r, 150, 12), key)
	defer m.Free()
	want := m.EdgesDigest(key)
	for _, ranks := range []int{1, 2, 3} {
		sum := uint64(0)
		for l := range m.Blocks {
			for rank := range ranks {
				b, original := rankBlock(r, &m.Blocks[l], m.Original, rank, ranks)
				sum += EdgesDigest(b, original, len(m.Blocks)-l, key)
			}
		}
		if sum != want {
			t.Errorf("shared by %d ranks the digest is %x, not %x", ranks, sum, want)
		}
	}
}

// rankBlock is the block of every ranks-th destination, in an order and with a numbering drawn at
// random.
func rankBlock(r *rand.Rand, b *graph.Block, original []int32, rank, ranks int) (*graph.Block,
	[]int32) {
	var mine []int
	for d := rank; d < b.NumDst; d += ranks {
		mine = append(mine, d)
	}
	r.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
	local := map[int32]int32{}
	var ids []int32
	number := func(s int32) int32 {
		if _, seen := local[s]; !seen {
			local[s] = int32(len(ids))
			ids = append(ids, original[s])
		}
		return local[s]
	}
	for _, d := range mine {
		number(int32(d))
	}
	out := &graph.Block{NumDst: len(mine), Indptr: []int64{0}}
	for _, d := range mine {
		row := slices.Clone(b.Indices[b.Indptr[d]:b.Indptr[d+1]])
		r.Shuffle(len(row), func(i, j int) { row[i], row[j] = row[j], row[i] })
		for _, s := range row {
			out.Indices = append(out.Indices, number(s))
		}
		out.Indptr = append(out.Indptr, int64(len(out.Indices)))
	}
	out.NumSrc = len(ids)
	return out, ids
}

// Whatever is changed about one edge changes the digest.
func TestEdgesDigestTellsEdgesApart(t *testing.T) {
	b := &graph.Block{NumDst: 2, NumSrc: 4, Indptr: []int64{0, 2, 3}, Indices: []int32{2, 3, 1}}
	original := []int32{10, 20, 30, 40}
	key := Key{Seed: 1, Epoch: 1, Step: 1, Stream: 1}
	digests := map[uint64]string{}
	add := func(what string, b graph.Block, original []int32, hop int, key Key) {
		d := EdgesDigest(&b, original, hop, key)
		if before, seen := digests[d]; seen {
			t.Errorf("%s has the digest of %s", what, before)
		}
		digests[d] = what
	}
	add("the block", *b, original, 1, key)
	add("another hop", *b, original, 2, key)
	add("another seed", *b, original, 1, Key{Seed: 2, Epoch: 1, Step: 1, Stream: 1})
	add("another epoch", *b, original, 1, Key{Seed: 1, Epoch: 2, Step: 1, Stream: 1})
	add("another step", *b, original, 1, Key{Seed: 1, Epoch: 1, Step: 2, Stream: 1})
	add("another stream", *b, original, 1, Key{Seed: 1, Epoch: 1, Step: 1, Stream: 2})
	add("another source", *b, []int32{10, 20, 31, 40}, 1, key)
	add("another destination", *b, []int32{11, 20, 30, 40}, 1, key)
	add("sources exchanged",
		graph.Block{NumDst: 2, NumSrc: 4, Indptr: b.Indptr, Indices: []int32{2, 1, 3}}, original, 1,
		key)
	add("an edge more", graph.Block{NumDst: 2, NumSrc: 4, Indptr: []int64{0, 2, 4},
		Indices: []int32{2, 3, 1, 1}}, original, 1, key)
	add("an edge less", graph.Block{NumDst: 2, NumSrc: 4, Indptr: []int64{0, 2, 2},
		Indices: []int32{2, 3}}, original, 1, key)
	add("an edge turned round",
		graph.Block{NumDst: 2, NumSrc: 4, Indptr: []int64{0, 2, 2}, Indices: []int32{2, 3}},
		[]int32{20, 10, 30, 40}, 1, key)
	add("no edge", graph.Block{NumDst: 2, NumSrc: 2, Indptr: []int64{0, 0, 0}}, original, 1, key)
}

func BenchmarkEdgesDigest(b *testing.B) {
	s := mustNew(b, benchTopology(),
		Options{Spec: Neighbours(benchFanouts...), MaxSeeds: benchBatch})
	var mb Minibatch
	defer mb.Free()
	seeds := someSeeds(rand.New(rand.NewPCG(1, 7)), *benchVertices, benchBatch)
	if err := s.Sample(&mb, seeds, Key{}); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		digest func() uint64
	}{{"edges", func() uint64 { return mb.EdgesDigest(Key{}) }}, {"blocks", mb.Digest}} {
		b.Run("digest="+c.name, func(b *testing.B) {
			sum := uint64(0)
			for b.Loop() {
				sum += c.digest()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(mb.NumEdges()),
				"ns/edge")
			_ = sum
		})
	}
}
