package train

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/devices/compute/ref"
	"halognn/src/forecast/plan"
	"halognn/src/forecast/simulate"
	"halognn/src/rows/policy"
	"halognn/src/runs/blocks"
	"halognn/src/runs/record"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// nearby trains by draws of what is at hand, eight times likelier, with a cache that holds some.
func nearby(kind sample.Kind) Options {
	o := drawnBy(kind)
	o.Cache = policy.Settings{Policy: policy.Degree, Alpha: 0.2}
	o.Locality.Favour, o.Locality.Vertices = 8, 20
	return o
}

// What is at hand is drawn more often, so fewer rows are fetched. What is drawn depends on the
// cache, and neither on how minibatches are prepared nor on a stop; and a run goes on with the same
// cache alone.
func TestLocalityFetchesLess(t *testing.T) {
	shards := generatedIn(t, 4)
	for _, kind := range []sample.Kind{sample.Poisson, sample.LADIES} {
		o := nearby(kind)
		run := journey{shards: shards, ranks: 2, dir: t.TempDir()}
		want := run.finished(t, o)
		o.Locality.Favour, run.dir = 1, t.TempDir()
		plain := run.finished(t, o)
		if want.Remote >= plain.Remote*9/10 {
			t.Errorf("%s: %d rows an epoch, without locality %d", kind, want.Remote, plain.Remote)
		}
		if want.ExpectedRowsPerStep != 0 || plain.ExpectedRowsPerStep == 0 {
			t.Errorf("%s: %g rows a step are predicted, without locality %g", kind,
				want.ExpectedRowsPerStep, plain.ExpectedRowsPerStep)
		}
		o = nearby(kind)
		o.Depth, run.workers, run.dir = 0, 1, t.TempDir()
		run.stopped(t, o, 3)
		other := o
		other.Cache.Alpha = 0.4
		if _, err := run.start(other, 0); err == nil ||
			!strings.Contains(err.Error(), "held other rows, on their nodes or in their caches") {
			t.Errorf("%s: another cache goes on: %v", kind, err)
		}
		sameRun(t, run.finished(t, o), want)
		if run.dir = t.TempDir(); kind == sample.LADIES { // the asker draws, and knows what it has
			o.Partitioned = true
			got := run.finished(t, o)
			if sameRun(t, got, want); got.Remote != want.Remote {
				t.Errorf("partitioned: %d rows are fetched, replicated %d", got.Remote, want.Remote)
			}
			run.dir = t.TempDir()
		}
		if got := run.finished(t, other); got.BlocksDigest == want.BlocksDigest {
			t.Errorf("%s: another cache draws the same", kind)
		}
	}
}

// The factor adapts to counts: equally however minibatches are prepared, and wherever the run was
// stopped, in the midst of an epoch, at its end, or twice.
func TestLocalityAdapts(t *testing.T) {
	race.Alone(t)
	shards := generatedIn(t, 4)
	for kind, link := range map[sample.Kind]float64{sample.Poisson: 2e5, sample.LADIES: 7e4} {
		o := nearby(kind)
		o.Epochs = 5
		// With these rates loading takes more than a third of the time at first.
		o.Locality.Adapts, o.Locality.Adaption = true,
			job.Adaption{Lower: 0.25, Upper: 0.3, Link: link, Edges: 6e4}
		whole := journey{shards: shards, ranks: 2, dir: t.TempDir()}
		want := whole.finished(t, o)
		if l := want.Locality; l == nil || len(l.Factors) != 5 || l.Factors[0] != 1 ||
			l.Factors[1] != 2 || l.Shares[0] < 0.3 || l.Shares[1] >= l.Shares[0] {
			t.Fatalf("%s: %+v", kind, l)
		}
		for _, at := range []int{want.StepsPerEpoch - 1, want.StepsPerEpoch + 3,
			3 * want.StepsPerEpoch} {
			run := journey{shards: shards, ranks: 2, dir: t.TempDir(), workers: 1}
			second := o
			second.Depth = 0
			run.stopped(t, o, at)
			if at > want.StepsPerEpoch {
				run.stopped(t, second, 5)
			}
			got := run.finished(t, second)
			sameRun(t, got, want)
			if !reflect.DeepEqual(got.Locality, want.Locality) {
				t.Errorf("%s: stopped at step %d: %+v, want %+v", kind, at, got.Locality,
					want.Locality)
			}
			if got, want := run.records(t), whole.records(t); !slices.Equal(got, want) {
				t.Errorf("%s: metrics.jsonl holds\n%v\nwithout interruption\n%v", kind, got, want)
			}
		}
	}
}

// Where a rank has nothing at hand but its own cache of rows from the files, what it draws does not
// depend on the nodes; where the ranks of a node share caches, it does.
func TestLocalityAndNodes(t *testing.T) {
	shards := generatedIn(t, 4)
	o := nearby(sample.Poisson)
	o.Cache.Source = policy.SourceFiles
	run := func(node int, placement string) *record.Summary {
		o.Cache.Placement = placement
		return (&journey{shards: shards, ranks: 4, node: node, dir: t.TempDir()}).finished(t, o)
	}
	alone := run(1, policy.PlacementOwn)
	sameRun(t, run(2, policy.PlacementOwn), alone)
	if group := run(2, policy.PlacementGroup); group.BlocksDigest == alone.BlocksDigest ||
		group.Stored >= alone.Stored {
		t.Errorf("ranks that share caches read %d rows of files, and alone %d", group.Stored,
			alone.Stored)
	}
	// All rows are in the memory of one node: nothing is likelier.
	o.Cache.Source = policy.SourceOwners
	want := run(4, policy.PlacementOwn)
	o.Locality.Favour = 1
	sameRun(t, run(4, policy.PlacementOwn), want)
}

// A plan counts what is drawn with the cache that training will hold.
func TestLocalityIsPlanned(t *testing.T) {
	shards := generatedIn(t, 4)
	for _, c := range []struct {
		kind  sample.Kind
		node  int
		cache policy.Settings
	}{
		{sample.Poisson, 1, policy.Settings{Policy: policy.None}},
		{sample.Poisson, 2, policy.Settings{Policy: policy.VIP, Placement: policy.PlacementGroup}},
		{sample.Poisson, 1, policy.Settings{Policy: policy.Sieve}},
		{sample.LADIES, 1, policy.Settings{Policy: policy.Sim}},
	} {
		o := nearby(c.kind)
		o.Cache, o.Cache.Alpha, o.Ranks, o.RanksPerNode = c.cache, 0.3, 4, c.node
		o.Epochs = 4
		got := (&journey{shards: shards, ranks: 4, node: c.node, dir: t.TempDir()}).finished(t, o)
		planned := func() *plan.Prediction {
			p, err := plan.New(shards, plan.Job{Spec: o.Spec}, plan.Options{Rates: plan.Rates{
				Sample: 1e7, Lookups: 1e8, Rows: 1e7, Flops: 1e10, Network: 1e9,
			}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		p := planned()
		// The minibatches of an epoch of so small a graph are few.
		if x, want := p.Traffic.Rows, got.RemoteRowsPerStep; math.Abs(x-want) > 0.15*want {
			t.Errorf("%s, %+v: %.1f rows a step are planned, %.1f counted", c.kind, c.cache, x,
				want)
		}
		o.Locality.Favour = 1
		plain := planned()
		sets := int64(o.Sample.Hops()) * ((shards.Vertices + 63) / 64) * 8
		if more := p.Memory.Of(trace.MemSamplers) - plain.Memory.Of(trace.MemSamplers); c.kind ==
			sample.Poisson && more < sets { // the arrays of ladies are as large as its layers
			t.Errorf("samplers take %d bytes more, and sets of vertices alone %d", more, sets)
		}
		if p.Traffic.Rows > 0.95*plain.Traffic.Rows || len(p.Curve) > 0 || len(plain.Curve) == 0 {
			t.Errorf("%s: %.1f rows are planned, without locality %.1f", c.kind, p.Traffic.Rows,
				plain.Traffic.Rows)
		}
	}
}

// What simulate counts where draws depend on the cache is what training reads, row for row: in
// caches of every kind, by a factor that is fixed or adapts.
func TestLocalityIsSimulatedRowForRow(t *testing.T) {
	shards := generatedIn(t, 4)
	group := policy.Settings{Placement: policy.PlacementGroup, PeerCost: 0.3}
	files := group
	files.Source = policy.SourceFiles
	adapt := &job.Adaption{Lower: 0.25, Upper: 0.3, Link: 2e5, Edges: 6e4}
	for _, c := range []struct {
		kind   sample.Kind
		node   int
		policy string
		cache  policy.Settings
		adapt  *job.Adaption
	}{
		{sample.Poisson, 1, policy.Degree, policy.Settings{}, nil},
		{sample.Poisson, 1, policy.Degree, policy.Settings{}, adapt},
		{sample.Poisson, 2, policy.VIP, group, nil},
		{sample.Poisson, 4, policy.VIP, files, adapt},
		{sample.LADIES, 1, policy.None, policy.Settings{}, nil},
		{sample.LADIES, 2, policy.Sim, files, adapt},
		{sample.LADIES, 1, policy.Sieve, policy.Settings{}, nil},
		{sample.Poisson, 2, policy.Prefetch, policy.Settings{}, nil},
	} {
		o := nearby(c.kind)
		o.Ranks, o.RanksPerNode, o.Epochs = 4, c.node, 4
		if o.Locality.Adapts = c.adapt != nil; o.Locality.Adapts {
			o.Locality.Adaption = *c.adapt
		}
		o.Cache = c.cache
		o.Cache.Policy, o.Cache.Alpha = c.policy, 0.3
		o.Cache.Gamma, o.Cache.Delta, o.Cache.Evict, o.Cache.Initial = 0.9, 3, true, policy.Degree
		name := fmt.Sprintf("%s, %s, %d ranks a node, adapting %t", c.kind, c.policy, c.node,
			c.adapt != nil)
		got := (&journey{shards: shards, ranks: 4, node: c.node, dir: t.TempDir()}).finished(t, o)
		sim, err := simulate.New(shards, simulate.Options{
			Spec: o.Spec, Policies: []string{c.policy}, Alphas: []float64{0.1, 0.3}, Workers: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run()
		sim.Close()
		if err != nil {
			t.Fatal(err)
		}
		far, peer, n := r.Rows[0][1], r.Peer[0][1], int64(o.Epochs)
		own := r.Read[0][1] - peer - far
		for _, d := range r.Traces[0][1] { // a cache that changes fetches some that are not read
			own += d.Early
		}
		if far/n != got.Remote+got.Stored || peer/n != got.PeerCached || own/n != got.Cached {
			t.Errorf("%s: %d far, %d peer, %d own rows in %d epochs are simulated; measured %+v",
				name, far, peer, own, n, got.Rows)
		}
		factors := []float64{8, 8, 8, 8}
		if c.adapt != nil {
			factors = got.Locality.Factors
		}
		if !slices.Equal(r.Factors[0][1], factors) || c.adapt != nil && slices.Max(factors) == 1 {
			t.Errorf("%s: factors %v are simulated, %v trained", name, r.Factors[0][1], factors)
		}
		if r.Remote <= far+peer || !math.IsNaN(r.Predicted[0][1]) {
			t.Errorf("%s: %d rows without a cache, %g predicted", name, r.Remote, r.Predicted[0][1])
		}
	}
}

// What follows from minibatches that depend on it is refused by name, before any training.
func TestLocalityIsRefused(t *testing.T) {
	shards := generatedIn(t, 2)
	shared := func(o *Options) {
		o.Mode = job.Mode{Name: parallel.ModeSplit, Sharing: sample.Together}
	}
	for want, change := range map[string]func(o *Options){
		"cannot be combined with cache.policy lookahead, because it samples": func(o *Options) {
			o.Cache.Policy = policy.Lookahead
		},
		"cannot be combined with cache.policy oracle, because it samples": func(o *Options) {
			o.Cache.Policy = policy.Oracle
		},
		"cannot be combined with cache.policy auto, because it samples": func(o *Options) {
			o.Cache.Policy = policy.Auto
		},
		"because a run that goes on would fetch other rows": func(o *Options) {
			o.Cache.Policy, o.Locality.Adapts = policy.Sieve, true
		},
		"which cannot be combined with cache.peer_cost auto": func(o *Options) {
			o.Cache.Placement, o.Cache.PeerCost = policy.PlacementGroup, policy.MeasuredPeerCost
		},
		"cannot be combined with sample.locality, because a minibatch that ranks share": shared,
		"cannot be combined with sample.kind neighbour, because it draws all": func(o *Options) {
			o.Sample.Kind = sample.Neighbour
		},
	} {
		o := nearby(sample.Poisson)
		change(&o)
		_, err := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).start(o, 0)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	o := nearby(sample.LADIES)
	_, err := blocks.Write(blocks.Export{Shards: shards,
		Device: ref.New(), Workers: 1, Ranks: 2, Steps: 1,
		Dir: filepath.Join(t.TempDir(), "blocks")}, o.Spec)
	if err == nil || !strings.Contains(err.Error(), "set sample.locality=1") {
		t.Errorf("blocks that no run draws: %v", err)
	}
}
