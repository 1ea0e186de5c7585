package exchange

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// The bytes of the cover are close to those of a minimum cut, and it covers every edge: at equal
// widths of rows and sums, at sums of twice the width, and with the ids.
func TestCoverIsNearTheLeast(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, is := range []struct {
		name            string
		row, sum, id    int
		sources, fanout int
		destinations    int
		most            float64
	}{
		{"float32, rows rarely shared", 400, 400, 0, 4000, 5, 1000, 1.01},
		{"float32, rows shared", 400, 400, 0, 1500, 5, 1000, 1.01},
		{"float32, rows shared by many", 400, 400, 0, 300, 10, 1000, 1.01},
		{"float32 with ids", 404, 400, 4, 1500, 5, 1000, 1.01},
		{"float16, rows rarely shared", 204, 400, 4, 4000, 15, 1000, 1.05},
		{"float16, rows shared", 204, 400, 4, 1500, 10, 1000, 1.05},
		{"ids as wide as a row", 36, 32, 4, 1500, 10, 1000, 1.06},
		{"nothing", 400, 400, 0, 10, 0, 10, 1},
	} {
		var c cover
		c.start(is.destinations*is.fanout, is.destinations)
		for range is.destinations {
			n := random.IntN(is.fanout + 1)
			for range n { // as degrees are: few sources have most of the edges
				x := random.Float64()
				c.member = append(c.member, int32(x*x*float64(is.sources)))
			}
			c.add(is.sum+n*is.id, is.row)
		}
		c.decide(is.sources)
		near(t, is.name, coverBytes(t, &c, is.sources), leastCover(&c, is.sources), is.most)
		c.free()
	}
}

// near fails the test unless a cover has at most so many times the bytes of the least.
func near(t *testing.T, name string, bytes, least int64, most float64) {
	t.Helper()
	t.Logf("%s: %d bytes, %.4f of the least", name, bytes, float64(bytes)/float64(max(1, least)))
	if bytes < least || float64(bytes) > most*float64(least) {
		t.Errorf("%s: %d bytes, but the least are %d", name, bytes, least)
	}
}

// coverBytes returns the bytes of what was decided, which covers every edge.
func coverBytes(t *testing.T, c *cover, sources int) (bytes int64) {
	t.Helper()
	for u := range sources {
		if c.isRow(u) {
			bytes += rowBytes(c, u)
		}
	}
	for g := range c.bytes {
		if c.isSum(g) {
			bytes += int64(c.bytes[g])
			continue
		}
		for _, u := range c.member[c.begin[g]:c.begin[g+1]] {
			if !c.isRow(int(u)) {
				t.Fatalf("an edge from %d to group %d is not covered", u, g)
			}
		}
	}
	return bytes
}

// The minibatches on which TestCoverOfMinibatches measures, instead of those of a small graph;
// profiling/lab/sums.sh gives them.
var (
	measured = flag.String("parts", "", "a PARTS directory")
	fanouts  = flag.String("fanouts", "15,10,5", "of its minibatches")
	drawn    = flag.String("layer-vertices", "", "of minibatches of kind ladies, without fanouts")
	batch    = flag.Int("batch", 256, "their seeds")
)

func numbers(t *testing.T, list string) (out []int) {
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// The cover of sampled minibatches is close to the least: within 1 % for float32 rows and 5 % for
// float16, ids included: where each vertex draws neighbours, and where a layer does (LADIES).
func TestCoverOfMinibatches(t *testing.T) {
	specs := []sample.Spec{sample.Neighbours(10, 5),
		{Kind: sample.LADIES, Vertices: []int{256, 256}}}
	var s *shard.Shards
	if *measured == "" {
		s = shardtest.Open(t, dataset.GenerateOptions{Vertices: 6000, Degree: 20, Features: 100,
			Classes: 4, Seed: 1}, shardtest.Options{Parts: 4})
	} else {
		if specs = []sample.Spec{sample.Neighbours(numbers(t, *fanouts)...)}; *drawn != "" {
			specs = []sample.Spec{{Kind: sample.LADIES, Vertices: numbers(t, *drawn)}}
		}
		var err error
		if s, err = shard.Open(*measured, shard.Options{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	for _, spec := range specs {
		sampler, err := sample.New(s.Topology(), sample.Options{Spec: spec, Workers: 1,
			MaxSeeds: *batch, ForwardOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer sampler.Free()
		for _, of := range []struct {
			dtype compute.DType
			most  float64
		}{{compute.Float32, 1.01}, {compute.Float16, 1.05}} {
			var bytes, least int64
			for rank := range min(s.Parts, 4) {
				sums := &Sums{How: compute.ReduceMean, Own: true, Weighted: !spec.HasFanouts()}
				c := coverOf(t, s, sampler, rank, sums, of.dtype)
				bytes += coverBytes(t, &c.cover, len(c.needed))
				least += leastCover(&c.cover, len(c.needed))
				c.Free()
			}
			near(t, fmt.Sprintf("%v, %v", spec, of.dtype), bytes, least, of.most)
		}
	}
}

// coverOf returns what is chosen, without a cache, for a minibatch of a rank that owns one part.
func coverOf(t *testing.T, s *shard.Shards, sampler sample.Sampler, rank int, sums *Sums,
	dtype compute.DType) *Chooser {
	x, err := NewPlanning(rank, s.Parts, s.Offsets, []Kind{{1, compute.Float16}},
		func(part int) bool { return part == rank }, sums)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Free()
	seeds := slices.Clone(s.Train(rank))
	rand.New(rand.NewPCG(uint64(rank), 1)).Shuffle(len(seeds),
		func(i, j int) { seeds[i], seeds[j] = seeds[j], seeds[i] })
	var mb sample.Minibatch
	defer mb.Free()
	var p Plan
	defer p.Free()
	var groups graph.Grouper
	defer groups.Free()
	var g Groups
	defer g.Free()
	key := sample.Key{Seed: 1, Epoch: 1, Stream: rank}
	if err := sampler.Sample(&mb, seeds[:min(len(seeds), *batch)], key); err != nil {
		t.Fatal(err)
	}
	if err := x.Locate(&p, mb.Frontier); err != nil {
		t.Fatal(err)
	}
	b := &mb.Blocks[0]
	groups.ByPart(b.Indptr, b.Indices, nil, p.Parts, x.Parts())
	x.List(&p, &Edges{Indptr: b.Indptr, Indices: b.Indices}, &g)
	c := NewChooser(sums, []Kind{{s.Features, dtype}}, nil)
	c.choose(&g, nil, nil)
	return c
}

// rowBytes returns those of a source's row.
func rowBytes(c *cover, u int) int64 {
	if c.first[u] == c.first[u+1] {
		return 0
	}
	return int64(c.row[c.group[c.first[u]]])
}

// leastCover returns the bytes of a minimum cut between the sources, whose capacities are of rows,
// and the groups, whose capacities are of sums: those of the least cover. Source: Dinic, 1970.
func leastCover(c *cover, sources int) int64 {
	const endless = 1 << 60
	type arc struct {
		to  int
		cap int64
	}
	nodes := sources + len(c.bytes) + 2
	from, end := nodes-2, nodes-1
	var arcs []arc // arc i^1 is the reverse of arc i
	out := make([][]int, nodes)
	join := func(a, b int, capacity int64) {
		out[a], out[b] = append(out[a], len(arcs)), append(out[b], len(arcs)+1)
		arcs = append(arcs, arc{b, capacity}, arc{a, 0})
	}
	for u := range sources {
		join(from, u, rowBytes(c, u))
	}
	for g := range c.bytes {
		join(sources+g, end, int64(c.bytes[g]))
		for _, u := range c.member[c.begin[g]:c.begin[g+1]] {
			join(int(u), sources+g, endless)
		}
	}
	level, next := make([]int, nodes), make([]int, nodes)
	reach := func() bool {
		for i := range level {
			level[i] = -1
		}
		level[from] = 0
		for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
			for _, i := range out[queue[0]] {
				if to := arcs[i].to; arcs[i].cap > 0 && level[to] < 0 {
					level[to] = level[queue[0]] + 1
					queue = append(queue, to)
				}
			}
		}
		return level[end] >= 0
	}
	var push func(at int, most int64) int64
	push = func(at int, most int64) int64 {
		if at == end {
			return most
		}
		for ; next[at] < len(out[at]); next[at]++ {
			i := out[at][next[at]]
			if arcs[i].cap <= 0 || level[arcs[i].to] != level[at]+1 {
				continue
			}
			if n := push(arcs[i].to, min(most, arcs[i].cap)); n > 0 {
				arcs[i].cap -= n
				arcs[i^1].cap += n
				return n
			}
		}
		return 0
	}
	flow := int64(0)
	for reach() {
		clear(next)
		for n := push(from, endless); n > 0; n = push(from, endless) {
			flow += n
		}
	}
	return flow
}

// A row is worth a vector if it is read itself or stands alone in a group, and otherwise its
// shares.
func TestWorthIsTheShareOfVectors(t *testing.T) {
	for _, c := range []struct {
		groups [][]int32
		alone  []uint8
		want   []uint8
	}{
		{[][]int32{{0, 1, 2}, {0}}, []uint8{0, 1, 0}, []uint8{255, 255, 127}},
		{[][]int32{{0, 1, 2, 3}, {3, 2}}, []uint8{0, 0, 0, 0}, []uint8{63, 63, 190, 190}},
		{[][]int32{{-1, 0}}, []uint8{0}, []uint8{255}},
		{nil, []uint8{0}, []uint8{0}},
	} {
		g := Groups{begin: []int32{0}, alone: c.alone}
		for _, members := range c.groups {
			g.member = append(g.member, members...)
			g.begin = append(g.begin, int32(len(g.member)))
		}
		if got := g.Worth(nil); !slices.Equal(got, c.want) {
			t.Errorf("%v: worth %v, want %v", c.groups, got, c.want)
		}
	}
}
