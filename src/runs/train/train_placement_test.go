package train

import (
	"fmt"
	"math"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/forecast/plan"
	"halognn/src/forecast/simulate"
	"halognn/src/rows/policy"
)

// What simulate counts for caches that the ranks of a node share is what training reads, row for
// row: in the own cache, in those of peers, and elsewhere; with rows from their owners and from the
// files; and no number of the training changes.
func TestSharedCachesAreSimulatedRowForRow(t *testing.T) {
	shards := generatedIn(t, 4)
	o := sageOptions()
	o.Ranks, o.Epochs = 4, 2
	want := (&journey{shards: shards, ranks: 4, dir: t.TempDir()}).finished(t, o)
	group := policy.Settings{Placement: policy.PlacementGroup, PeerCost: 0.3}
	for _, c := range []struct {
		policy string
		node   int
		with   policy.Settings
	}{
		{policy.VIP, 2, group},
		{policy.Oracle, 2, policy.Settings{Placement: policy.PlacementGroup}},
		{policy.VIP, 2, policy.Settings{Placement: policy.PlacementGroup, PeerCost: 0.3,
			Source: policy.SourceFiles}},
		{policy.VIP, 4, policy.Settings{Placement: policy.PlacementGroup, PeerCost: 0.3,
			Source: policy.SourceFiles}},
		{policy.VIP, 4, policy.Settings{Placement: policy.PlacementParts,
			Source: policy.SourceFiles}},
		{policy.Degree, 4, policy.Settings{Placement: policy.PlacementOwn,
			Source: policy.SourceFiles}},
		{policy.None, 4, policy.Settings{Placement: policy.PlacementGroup,
			Source: policy.SourceFiles}},
	} {
		name := fmt.Sprintf("%s %s of %d from %s", c.policy, c.with.Placement, c.node,
			c.with.Source)
		o.Cache, o.RanksPerNode = c.with, c.node
		o.Cache.Policy, o.Cache.Alpha, o.Cache.Gamma, o.Cache.Initial = c.policy, 0.4, 1,
			policy.Degree
		j := journey{shards: shards, ranks: 4, node: c.node, dir: t.TempDir()}
		got := j.finished(t, o)
		if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest {
			t.Errorf("%s: numbers change", name)
		}
		sim, err := simulate.New(shards, simulate.Options{
			Spec: o.Spec, Policies: []string{c.policy}, Alphas: []float64{0.4}, Workers: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run()
		sim.Close()
		if err != nil {
			t.Fatal(err)
		}
		far, peer := r.Rows[0][0], r.Peer[0][0]
		own := r.Remote - far - peer
		n := int64(o.Epochs)
		if c.with.FromFiles() && (got.Remote != 0 || got.Local != 0 || got.Peer != got.PeerCached) {
			t.Errorf("%s: %+v, though rows come from files", name, got.Rows)
		}
		if far/n != got.Remote+got.Stored || peer/n != got.PeerCached || own/n != got.Cached ||
			far == 0 {
			t.Errorf("%s: %d far, %d peer, %d own rows in %d epochs are simulated; measured %+v",
				name, far, peer, own, n, got.Rows)
		}
		if shares := c.with.Placement != policy.PlacementOwn && c.policy != policy.None; (peer >
			0) != shares || (own > 0) != (c.policy != policy.None) {
			t.Errorf("%s: %d peer and %d own rows", name, peer, own)
		}
		if cost := r.Cost(0, 0); cost != (float64(far)+c.with.PeerCost*float64(peer))/float64(n) {
			t.Errorf("%s: cost %g", name, cost)
		}
		p, err := plan.New(shards, plan.Job{Spec: o.Spec}, plan.Options{Rates: plan.Rates{
			Sample: 1e7, Lookups: 1e8, Rows: 1e7, Flops: 1e10, Network: 1e9,
		}})
		if err != nil {
			t.Fatal(err)
		}
		// oracle knows the minibatches; the plan has their probabilities
		steps := float64(int(n) * r.Steps)
		for what, x := range map[string][2]float64{
			"far":  {p.Traffic.Rows, float64(far) / steps},
			"peer": {p.Traffic.Peer, float64(peer) / steps},
		} {
			if c.policy != policy.Oracle && math.Abs(x[0]-x[1]) > 0.1*x[1] {
				t.Errorf("%s: %.1f %s rows a step are planned, %.1f counted", name, x[0], what,
					x[1])
			}
		}
		if c.with.FromFiles() && (p.Traffic.Busiest != 0 || p.Times.Remote != 0 ||
			p.Memory.Of(trace.MemFeatures) != shards.Vertices*int64(shards.RowBytes())) {
			t.Errorf("%s: planned %+v, %+v", name, p.Traffic, p.Memory)
		}
	}
}

// A run that is to measure the cost of a peer's row records what it measured, and its numbers are
// those of any other. Where ranks have no peers nothing is measured.
func TestPeerCostIsMeasured(t *testing.T) {
	shards := generatedIn(t, 4)
	o := sageOptions()
	o.Epochs = 1
	var digest string
	for _, c := range []struct {
		node   int
		source string
	}{{2, policy.SourceOwners}, {4, policy.SourceFiles}, {1, policy.SourceOwners}} {
		o.Cache = policy.Settings{
			Policy: policy.VIP, Alpha: 0.4, Placement: policy.PlacementGroup, Source: c.source,
			PeerCost: policy.MeasuredPeerCost,
		}
		j := journey{shards: shards, ranks: 4, node: c.node, dir: t.TempDir()}
		got := j.finished(t, o)
		if digest == "" {
			digest = got.LossDigest
		}
		if got.LossDigest != digest {
			t.Errorf("%d ranks a node: numbers change", c.node)
		}
		cost := got.Cache.PeerCost
		if c.node == 1 {
			if cost != nil {
				t.Errorf("measured %+v without peers", cost)
			}
			continue
		}
		if cost == nil || !(cost.Ratio >= 0 && cost.Ratio <= 1) ||
			!(cost.Own > 0 && cost.Peer > 0 && cost.Far > 0) {
			t.Errorf("%d ranks a node: measured %+v", c.node, cost)
		}
	}
}
