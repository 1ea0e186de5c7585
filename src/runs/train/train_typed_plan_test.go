package train

// This test compares what is planned of graphs with vertex types with what runs count.

import (
	"math"
	"strings"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute/ref"
	"halognn/src/forecast/plan"
	"halognn/src/forecast/simulate"
	"halognn/src/rows/policy"
	"halognn/src/runs/record"
	"halognn/src/step/job"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// typedPlan plans what typedRun trains.
func typedPlan(t *testing.T, s *shard.Shards, ranks int, o Options) *plan.Prediction {
	t.Helper()
	j := plan.Job{Spec: o.Spec, Machine: plan.Machine{Workers: 2}}
	j.Ranks, j.RanksPerNode = ranks, 1
	p, err := plan.New(s, j, plan.Options{Device: ref.New(), Host: ref.Host{}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What is planned of a graph with vertex types, or of learned rows, is what a run counts: rows of
// features and their bytes within 5 %, learned rows and gradients too, collectives exactly, and
// what a rank holds besides minibatches.
func TestTypedPlans(t *testing.T) {
	race.Alone(t)
	near := func(name, what string, planned float64, counted int64, tolerance float64) {
		t.Helper()
		if d := planned - float64(counted); math.Abs(d) > tolerance*float64(counted) {
			t.Errorf("%s: %.1f %s are planned, %d counted", name, planned, what, counted)
		}
	}
	for _, c := range []struct {
		name, kind string
		bare       []int // types whose rows are learned
		ranks      int
		cache      policy.Settings
	}{
		{"all types", "rgcn", nil, 4, policy.Settings{Policy: policy.None}},
		{"two parts a rank", "sage", nil, 2, policy.Settings{Policy: policy.VIP, Alpha: 0.3}},
		{"look-ahead", "gat", nil, 4, policy.Settings{Policy: policy.Lookahead, Alpha: 0.3}},
		{"sieve", "gatv2", nil, 4, policy.Settings{Policy: policy.Sieve, Alpha: 0.3}},
		{"partitioned", "rgcn", nil, 4, policy.Settings{Policy: policy.VIP, Alpha: 0.3}},
		{"authors and venues are learned", "rgcn", []int{1, 2}, 4,
			policy.Settings{Policy: policy.VIP, Alpha: 0.3}},
		{"learned beside a look-ahead", "rgcn", []int{1, 2}, 4,
			policy.Settings{Policy: policy.Lookahead, Alpha: 0.3}},
		{"sums", "sage", nil, 4, policy.Settings{Policy: policy.None}},
		{"sums beside a look-ahead", "sage", nil, 4,
			policy.Settings{Policy: policy.Lookahead, Alpha: 0.3}},
		{"split", "rgcn", nil, 4, policy.Settings{Policy: policy.None}},
	} {
		s := shardtest.Cut(t, typedData(t, c.bare...), shardtest.Options{Parts: 4})
		o := typedOptions(c.kind)
		o.Epochs, o.EvalEvery, o.Cache = 2, 2, c.cache
		o.Partitioned = c.name == "partitioned"
		o.Sums = strings.HasPrefix(c.name, "sums")
		if c.name == "split" {
			o.Mode, o.StreamPerPart = job.Mode{Name: c.name, Sharing: sample.Together}, false
		}
		if c.bare != nil {
			o.Model.Learned, o.Learned.LR = 4, 0.05
		}
		holdPlan(t, c.name, typedPlan(t, s, c.ranks, o), typedRun(t, s, c.ranks, o, false), near)
	}
	s := shardtest.Cut(t, manyAuthors(t), shardtest.Options{Parts: 4})
	for _, kind := range []string{"rgcn", "sage"} { // learned rows that owners add, in all steps
		o := typedOptions(kind)
		o.Epochs, o.EvalEvery, o.Batch, o.Sample, o.Sums = 1, 1, 3, sample.Neighbours(5, 4), true
		o.Model.Learned, o.Learned.LR = 4, 0.05
		p, run := typedPlan(t, s, 4, o).Shuffles, typedRun(t, s, 4, o, false)
		steps := float64(run.StepsPerEpoch)
		near(kind, "learned rows and sums", 2*p.Hidden*steps, run.Shuffles.Rows, 1e-9)
		near(kind, "learned sums", 2*p.Sums*steps, run.Shuffles.Sums, 1e-9)
		near(kind, "bytes of them", p.Bytes*steps, run.Shuffles.Bytes, 1e-9)
		if run.Shuffles.Sums == 0 {
			t.Errorf("%s: no learned sums travel", kind)
		}
		counted := simulated(t, s, 4, o).Learned
		if 2*(counted.Rows+counted.Sums) != run.Shuffles.Rows ||
			2*counted.Sums != run.Shuffles.Sums || counted.Bytes != run.Shuffles.Bytes ||
			counted.RowBytes <= counted.Bytes {
			t.Errorf("%s: %+v are simulated, %+v counted", kind, counted, run.Shuffles)
		}
	}
	s = shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{}), shardtest.Options{Parts: 4})
	o := typedOptions("sage")
	o.Epochs, o.EvalEvery, o.Model.Learned, o.Learned.LR = 2, 2, 8, 0.05
	run := typedRun(t, s, 4, o, false)
	holdPlan(t, "learned alone", typedPlan(t, s, 4, o), run, near)
	epochs := int64(o.Epochs)
	if n := simulated(t, s, 4, o).Learned; 2*n.Rows != epochs*run.Shuffles.Rows || n.Sums != 0 ||
		n.Bytes != epochs*run.Shuffles.Bytes {
		t.Errorf("learned alone: %+v are simulated, %+v counted", n, run.Shuffles)
	}
}

// simulated counts what typedRun trains, without a cache.
func simulated(t *testing.T, s *shard.Shards, ranks int, o Options) *simulate.Result {
	t.Helper()
	spec := o.Spec
	spec.Ranks, spec.RanksPerNode = ranks, 1
	sim, err := simulate.New(s, simulate.Options{Spec: spec, Workers: 2, Alphas: []float64{0},
		Policies: []string{policy.None}})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	r, err := sim.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func holdPlan(t *testing.T, name string, p *plan.Prediction, run *record.Summary,
	near func(name, what string, planned float64, counted int64, tolerance float64)) {
	t.Helper()
	steps := float64(p.Steps)
	near(name, "rows", p.Traffic.Rows*steps, run.Remote, 0.05)
	near(name, "bytes", p.Traffic.Bytes*steps, run.RemoteBytes, 0.05)
	if want := float64(p.Collectives); run.CollectivesPerStep > want ||
		run.CollectivesPerStep < want-0.5 {
		// None late at first.
		t.Errorf("%s: %v collectives are planned, %v counted", name, want, run.CollectivesPerStep)
	}
	if p.Sampling != nil {
		near(name, "bytes of sampling", p.Sampling.Bytes*steps, run.Sampling.Bytes, 0.05)
	}
	near(name, "sums", p.Traffic.Sums*steps, run.Sums, 0.1) // few
	rows := 0.0
	for _, of := range p.Traffic.Types {
		rows += of.Rows * float64(of.RowBytes)
	}
	if p.Traffic.Types != nil && p.Traffic.Sums == 0 && math.Abs(rows-p.Traffic.Bytes) > 1e-6*rows {
		t.Errorf("%s: types have %.1f bytes of %.1f", name, rows, p.Traffic.Bytes)
	}
	if p.Shuffles != nil {
		near(name, "shuffled or learned rows and gradients",
			(p.Shuffles.Features+2*p.Shuffles.Hidden)*steps, run.Shuffles.Rows, 0.05)
		near(name, "bytes of them", p.Shuffles.Bytes*steps, run.Shuffles.Bytes, 0.05)
	}
	for _, item := range []string{trace.MemFeatures, trace.MemTopology, trace.MemIDs,
		trace.MemParameters} {
		// A run in one process maps that of all ranks.
		if item == trace.MemTopology && p.Sampling != nil {
			continue
		}
		near(name, "bytes of "+item, float64(p.Memory.Of(item)), run.Memory[item], 0.1)
	}
}
