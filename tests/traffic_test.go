//go:build e2e

package tests

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/shard"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// traffic is a run with ranks placed on nodes, and the rows that must be moved. These are found
// independently from the parts with the plain sampler: for every minibatch of an epoch, and each
// vertex of its frontier, whether the rank, its node, or another node owns it.
type traffic struct {
	name         string
	ranks        int
	ranksPerNode int // 0: all ranks on one node
	perPart      bool
	asNodes      bool // the ranks of a node fetch as one
}

// minibatch is the minibatch of a stream at a step, with the rows that it needs.
type minibatch struct {
	epoch, step, rank int
	seeds             int
	rows
}

// expect samples two epochs of the base config.
func (c traffic) expect(t *testing.T, parts string) []minibatch {
	t.Helper()
	s, err := shard.Open(parts, shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	streams := c.ranks
	if c.perPart {
		streams = s.Parts
	}
	var seeds [][]graph.VertexID
	for k := range streams {
		seeds = append(seeds, nil)
		for p := k * s.Parts / streams; p < (k+1)*s.Parts/streams; p++ {
			seeds[k] = append(seeds[k], s.Train(p)...)
		}
	}
	order, err := sample.NewStreams(seeds,
		sample.StreamOptions{Batch: 96, Seed: 1, Original: s.Topology().Original})
	if err != nil {
		t.Fatal(err)
	}
	defer order.Free()
	node := func(rank int) int { return 0 }
	if c.ranksPerNode > 0 {
		node = func(rank int) int { return rank / c.ranksPerNode }
	}
	owner := func(v graph.VertexID) int {
		part := 0
		for int64(v) >= s.Offsets[part+1] {
			part++
		}
		return part * c.ranks / s.Parts
	}
	var all []minibatch
	for epoch := 1; epoch <= 2; epoch++ {
		for step := range order.Steps() {
			fetched := map[[2]int]bool{} // by node and vertex
			for stream := range streams {
				m := minibatch{epoch: epoch, step: step, rank: stream * c.ranks / streams}
				piece := order.Piece(epoch, step, stream, nil)
				m.seeds = len(piece)
				drawn := sample.Reference(s.Topology(), sample.Neighbours(5, 3), piece,
					sample.Key{Seed: 1, Epoch: epoch, Step: step, Stream: stream})
				for _, v := range drawn.Frontier {
					switch r := owner(v); {
					case r == m.rank:
						m.Local++
					case node(r) == node(m.rank):
						m.Peer++
					case c.asNodes && fetched[[2]int{node(m.rank), int(v)}]:
						m.Shared++
					default:
						fetched[[2]int{node(m.rank), int(v)}] = true
						m.Remote++
						m.RemoteBytes += int64(s.RowBytes())
					}
				}
				drawn.Free()
				all = append(all, m)
			}
		}
	}
	return all
}

func (r *rows) add(x rows) {
	r.Local += x.Local
	r.Peer += x.Peer
	r.Remote += x.Remote
	r.RemoteBytes += x.RemoteBytes
	r.Shared += x.Shared
}

func (r rows) frontier() int64 { return r.Local + r.Peer + r.Remote + r.Shared }

func TestTrafficIsWhatTheMinibatchesNeed(t *testing.T) {
	t.Parallel()
	parts := smallParts.dir(t)
	for _, c := range []traffic{
		{"1 rank", 1, 0, false, false},
		{"4 ranks, 1 node", 4, 0, false, false},
		{"4 ranks, 2 nodes", 4, 2, false, false},
		{"4 ranks, 4 nodes", 4, 1, false, false},
		{"4 parts a rank", 2, 1, true, false},
		{"4 ranks, 2 nodes that fetch as one", 4, 2, false, true},
		{"8 ranks, nodes of 3, 3 and 2 that fetch as one", 8, 3, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sets := []string{fmt.Sprintf("run.ranks_per_node=%d", c.ranksPerNode)}
			if c.perPart {
				sets = append(sets, "sample.streams=part")
			}
			if c.asNodes {
				sets = append(sets, "exchange.nodes=on")
			}
			got := trained(t, parts, c.ranks, sets...)
			c.check(t, parts, got)
		})
	}
}

func (c traffic) check(t *testing.T, parts string, got *outcome) {
	epochs, steps := map[int]*rows{1: {}, 2: {}}, map[[2]int]*rows{}
	var total rows
	for _, m := range c.expect(t, parts) {
		epochs[m.epoch].add(m.rows)
		total.add(m.rows)
		if m.rank == 0 {
			at := [2]int{m.epoch, m.step}
			if steps[at] == nil {
				steps[at] = &rows{}
			}
			steps[at].add(m.rows)
		}
	}
	if len(got.epochs) != 2 || len(got.steps) != len(steps) {
		t.Fatalf("%d epochs of %d steps in all, want 2 of %d", len(got.epochs), len(got.steps),
			len(steps))
	}
	for _, e := range got.epochs {
		if moved(e.Rows) != *epochs[e.Epoch] {
			t.Errorf("epoch %d: moved %+v, want %+v", e.Epoch, moved(e.Rows), *epochs[e.Epoch])
		}
	}
	for _, s := range got.steps {
		if want := *steps[[2]int{s.Epoch, s.Step}]; moved(s.Rows) != want {
			t.Errorf("epoch %d, step %d: rank 0 moved %+v, want %+v", s.Epoch, s.Step,
				moved(s.Rows), want)
		}
	}
	mean := rows{total.Local / 2, total.Peer / 2, total.Remote / 2, 0, total.Shared / 2}
	mean.RemoteBytes = mean.Remote * (total.RemoteBytes / max(1, total.Remote))
	if of := moved(got.Rows); of != mean {
		t.Errorf("summary.json: %+v an epoch, want %+v", of, mean)
	}
	collectives := 2.0
	if c.perPart {
		collectives *= 4 // a rank has 4 parts
	}
	if c.asNodes {
		collectives += 2
		if total.Shared == 0 {
			t.Error("ranks of a node want no row twice; nothing is tested")
		}
	}
	if got.CollectivesPerStep != collectives {
		t.Errorf("%g collectives a step, want %g", got.CollectivesPerStep, collectives)
	}
	if got.Cached != 0 || got.HitRate != 0 && !c.asNodes {
		t.Errorf("%d cache hits, hit rate %g, without a cache", got.Cached, got.HitRate)
	}
}

// With a stream for each part, the same minibatches are trained on any number of ranks. The blocks
// are the same, and the losses agree except for the order of float32 sums. A loss is a mean of
// positive terms: summed over parts in two orders it differs by at most the rounding of about 8
// additions, 8 * 2^-24 = 5e-7 of it. Gradients do too, relative to their terms. With plain SGD the
// weights take over that error times the learning rate, so over a handful of steps losses stay
// within a few times that. (Adam would divide a gradient near zero, rounding error and all, by its
// own size.)
const rounding = 2e-6

func TestPartsOnAnyNumberOfRanks(t *testing.T) {
	t.Parallel()
	sets := []string{"sample.streams=part", "sample.batch=80", "train.optimizer=sgd",
		"train.lr=0.1"}
	want := trained(t, smallParts.dir(t), 8, sets...)
	for _, ranks := range []int{4, 2, 1} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			got := trained(t, smallParts.dir(t), ranks, sets...)
			if got.BlocksDigest != want.BlocksDigest {
				t.Errorf("blocks_digest is %s, on 8 ranks %s", got.BlocksDigest, want.BlocksDigest)
			}
			sameLosses(t, got, want)
			for i, e := range got.epochs {
				if frontier, on8 := moved(e.Rows).frontier(),
					moved(want.epochs[i].Rows).frontier(); frontier != on8 {
					t.Errorf("epoch %d: frontiers have %d rows, on 8 ranks %d", e.Epoch, frontier,
						on8)
				}
			}
			// one of the 600 vertices may have two best classes that tie
			for i, e := range got.evals {
				if d := math.Abs(e.ValidMetric.Value -
					want.evals[i].ValidMetric.Value); d > 1.0/600 {
					t.Errorf("epoch %d: sampled validation gives %g, on 8 ranks %g", e.Epoch,
						e.ValidMetric.Value, want.evals[i].ValidMetric.Value)
				}
			}
		})
	}
}

// sameLosses fails the test unless the losses of all steps agree up to rounding.
func sameLosses(t *testing.T, got, want *outcome) {
	t.Helper()
	if len(got.steps) != len(want.steps) || len(want.steps) == 0 {
		t.Fatalf("%d steps, want %d", len(got.steps), len(want.steps))
	}
	worst := 0.0
	for i, w := range want.steps {
		g := got.steps[i]
		if g.Seeds != w.Seeds {
			t.Errorf("epoch %d, step %d: %d seeds, want %d", w.Epoch, w.Step, g.Seeds, w.Seeds)
		}
		off := math.Abs(g.Loss-w.Loss) / w.Loss
		worst = max(worst, off)
		if !(off <= rounding) {
			t.Errorf("epoch %d, step %d: the loss is %g, want %g within %g of it", w.Epoch, w.Step,
				g.Loss, w.Loss, rounding)
		}
	}
	t.Logf("losses differ by %.1e of their value at most", worst)
}

// Under MPI, ranks of a node that fetch as one count and compute what ranks in one process do.
func TestNodesThatFetchAsOneUnderMPI(t *testing.T) {
	t.Parallel()
	parts := smallParts.dir(t)
	for _, placement := range []string{"own", "group"} {
		sets := []string{"run.ranks_per_node=2", "exchange.nodes=on", "cache.policy=lookahead",
			"cache.alpha=0.1", "cache.placement=" + placement}
		want, got := trained(t, parts, 4, sets...), trainedMPI(t, parts, 4, sets...)
		sameNumbers(t, got, want)
		if moved(got.Rows) != moved(want.Rows) || got.NodeBytes != want.NodeBytes ||
			got.Shared == 0 || (got.PeerCached > 0) != (placement == "group") {
			t.Errorf("%s: %+v, in one process %+v", placement, got.Rows, want.Rows)
		}
	}
}

// So do rows of edges and learned rows, whose numbers are those of ranks that fetch for themselves,
// and of which less crosses.
func TestNodesShareEdgeAndLearnedRowsUnderMPI(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	launcher(t)
	mag := partitioned(t, papersAlone(t, t.TempDir()), 4, "ldg", "--allow-imbalance")
	learned := []string{"model.kind=rgcn", "model.learned=32", "cache.policy=none"}
	for _, c := range []struct {
		name, parts string
		sets        []string
	}{
		{"learned", mag, learned},
		{"learned, nothing ahead, sums", mag, append(learned, "pipeline.depth=0",
			"exchange.sums=on")},
		{"learned, sums, partitioned", mag, append(learned, "pipeline.depth=4",
			"exchange.sums=on", "topology.kind=partitioned")},
		{"edges", edgeParts.dir(t), []string{"model.kind=gatv2", "sample.fanouts=-1,-1",
			"sample.batch=300", "cache.policy=vip", "cache.alpha=0.1"}},
	} {
		sets := append(slices.Clone(c.sets), "train.epochs=2", "run.ranks_per_node=2")
		off := trained(t, c.parts, 4, sets...)
		sets = append(sets, "exchange.nodes=on")
		want, got := trained(t, c.parts, 4, sets...), trainedMPI(t, c.parts, 4, sets...)
		sameNumbers(t, got, off)
		sameNumbers(t, want, off)
		if got.LearnedDigest != off.LearnedDigest || got.Shuffles != want.Shuffles ||
			moved(got.Rows) != moved(want.Rows) || got.NodeBytes != want.NodeBytes ||
			got.EdgeRows != want.EdgeRows || got.EdgeShared != want.EdgeShared {
			t.Errorf("%s: %+v, in one process %+v", c.name, got.Rows, want.Rows)
		}
		if c.parts == mag && (got.Shuffles.Shared == 0 ||
			got.Shuffles.Rows >= off.Shuffles.Rows || got.Shuffles.Bytes >= off.Shuffles.Bytes) ||
			c.parts != mag && (got.EdgeShared == 0 || got.EdgeRows >= off.EdgeRows) {
			t.Errorf("%s: nothing is saved: %+v, each rank for itself %+v", c.name, got.Rows,
				off.Rows)
		}
	}
}

// A run that cannot share within nodes, though it is asked to, says so.
func TestNodesWithNothingToShare(t *testing.T) {
	t.Parallel()
	for _, perNode := range []string{"1", "2"} {
		run := trained(t, smallParts.dir(t), 2, "exchange.nodes=on", "run.ranks_per_node="+perNode)
		if !strings.Contains(run.notes, "exchange.nodes=on changes nothing") || run.Shared != 0 {
			t.Errorf("%s ranks a node: %d rows are shared; %s", perNode, run.Shared, run.notes)
		}
	}
}
