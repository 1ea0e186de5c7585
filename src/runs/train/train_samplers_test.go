package train

// These tests train with the samplers that weigh edges.

import (
	"fmt"
	"strings"
	"testing"

	"halognn/src/data/shard"
	"halognn/src/forecast/simulate"
	"halognn/src/model/nn"
	"halognn/src/rows/policy"
	"halognn/src/topology/sample"
)

// drawnBy trains with a sampler that weighs edges, and judges by the ordinary one.
func drawnBy(kind sample.Kind) Options {
	o := resumable()
	o.Eval = o.Sample
	o.Sample.Kind = kind
	if !o.Sample.HasFanouts() {
		o.Sample = sample.Spec{Kind: kind, Vertices: []int{20, 30, 40}}
	}
	return o
}

// The numbers of a training do not depend on how its minibatches are prepared or on where it was
// stopped, its draws not on the ranks either, and the rows that it fetches are those that a
// simulation counts.
func TestSamplersTrainAlike(t *testing.T) {
	shards := generatedIn(t, 4)
	lasting := sample.Numbers{Shared: true, Dependency: 3}
	for i, c := range []struct {
		kind    sample.Kind
		numbers sample.Numbers
	}{{kind: sample.Poisson}, {kind: sample.LADIES}, {sample.Labor, lasting},
		{sample.Poisson, lasting}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			for k, model := range []nn.Config{
				{Kind: "sage", Residual: true}, {Kind: "gcn", GCNNorm: nn.GCNBoth}, {Kind: "gin"},
			} {
				if testing.Short() && k != i%3 {
					continue
				}
				o := drawnBy(c.kind)
				o.Sample.Numbers = c.numbers
				o.Model.Kind, o.Model.GCNNorm, o.Model.Residual = model.Kind, model.GCNNorm,
					model.Residual
				o.StreamPerPart = true
				run := journey{shards: shards, ranks: 2, dir: t.TempDir()}
				want := run.finished(t, o)
				run.dir = t.TempDir()
				run.stopped(t, o, 3)
				o.Depth = (i + k) % 3
				o.Cache = policy.Settings{
					Policy: [][]string{{policy.VIP, policy.Lookahead, policy.Prefetch},
						{policy.Sim, policy.Sieve, policy.Degree}}[i%2][k],
					Alpha: 0.3, Gamma: 0.9, Delta: 4, Evict: true, Initial: policy.Degree,
				}
				o.Partitioned = true
				sameRun(t, run.finished(t, o), want)
				run.ranks, run.dir = 4, t.TempDir()
				got := run.finished(t, o)
				if got.BlocksDigest != want.BlocksDigest || got.EdgesDigest != want.EdgesDigest {
					t.Errorf("%s: 4 ranks draw %s, %s; 2 ranks %s, %s", model.Kind,
						got.BlocksDigest, got.EdgesDigest, want.BlocksDigest, want.EdgesDigest)
				}
				o.Ranks = 4
				if rows := simulatedRows(t, shards, o); rows != got.Remote {
					t.Errorf("%s: %d rows an epoch are simulated, %d measured", o.Cache.Policy,
						rows, got.Remote)
				}
			}
		})
	}
}

// simulatedRows returns the rows that a simulation counts for an epoch.
func simulatedRows(t *testing.T, shards *shard.Shards, o Options) int64 {
	t.Helper()
	sim, err := simulate.New(shards, simulate.Options{
		Spec: o.Spec, Policies: []string{o.Cache.Policy}, Alphas: []float64{o.Cache.Alpha},
		Workers: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	r, err := sim.Run()
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := r.PerEpoch(0, 0)
	return int64(rows)
}

// A sampler that weighs edges is refused for a model that cannot use weights, before any training.
func TestSamplersAreRefused(t *testing.T) {
	shards := generatedIn(t, 2)
	for want, change := range map[string]func(o *Options){
		"which model kind gat cannot use": func(o *Options) {
			o.Model.Kind, o.Model.Heads = "gat", 1
		},
		"which model kind sage with maxima cannot use": func(o *Options) {
			o.Model.Aggregation = nn.AggregateMax
		},
	} {
		for _, kind := range []sample.Kind{sample.Poisson, sample.LADIES} {
			o := drawnBy(kind)
			change(&o)
			_, err := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).start(o, 0)
			if err == nil || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: %v, want %q", kind, err, want)
			}
		}
	}
}
