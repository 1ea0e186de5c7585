package simulate

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/data/shard/shardtest"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
)

// Bounds for any graph: no static cache beats the oracle, no policy beats the optimum, and a larger
// oracle cache never transfers more rows. A cache whose first rows are sure to be read transfers no
// more rows than no cache, even in the shortest run.
func TestBounds(t *testing.T) {
	o := options()
	r := simulated(t, generated(t), o)
	at := func(name string) []int64 { return r.Rows[slices.Index(o.Policies, name)] }
	for p, name := range o.Policies {
		for a, alpha := range o.Alphas {
			rows := r.Rows[p][a]
			if rows < at(policy.Optimum)[a] {
				t.Errorf("alpha %g: %s fetches %d rows, fewer than the optimum's %d", alpha, name,
					rows, at(policy.Optimum)[a])
			}
			if policy.Find(name).Static() && rows < at(policy.Oracle)[a] {
				t.Errorf("alpha %g: %s fetches %d rows, fewer than the oracle's %d", alpha, name,
					rows, at(policy.Oracle)[a])
			}
			if alpha == 0 && rows != r.Remote {
				t.Errorf("%s without room fetches %d rows, want all %d", name, rows, r.Remote)
			}
			all := rows + r.Filled[p][a]
			if (name == policy.Lookahead || name == policy.Optimum) && all > r.Remote {
				t.Errorf("alpha %g: %s transfers %d rows with its first fill; without a cache %d",
					alpha, name, all, r.Remote)
			}
			if name == policy.Oracle && alpha == 5 && rows != 0 {
				t.Errorf("an oracle with room for everything fetches %d rows", rows)
			}
		}
	}
	none := slices.Index(o.Policies, policy.None)
	counted, _ := r.PerEpoch(none, 0)
	if off := math.Abs(r.Predicted[none][0]/counted - 1); off > 0.05 {
		t.Errorf("%.1f rows an epoch predicted, %.1f counted", r.Predicted[none][0], counted)
	}
}

// Nodes that fetch as one are counted where there are none: of one rank each, or a single one.
func TestNodesWithoutEffect(t *testing.T) {
	for _, node := range []int{0, 1, 6} {
		o := options()
		o.AsNodes, o.Ranks, o.RanksPerNode = true, 6, node
		if err := o.Check(); err != nil {
			t.Errorf("%d ranks a node: %v", node, err)
		}
	}
}

// Sparse rows are cached if they stay, and ranks that share minibatches do not share them.
func TestSparseRows(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{Sparse: true}),
		shardtest.Options{Parts: 4})
	o := options()
	o.Policies = []string{policy.Lookahead}
	if _, err := New(s, o); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "cannot be combined with cache.policy lookahead") {
		t.Errorf("lookahead of sparse rows: %v", err)
	}
	o.Sparse = true
	if o.Policies = o.Possible(); !slices.Equal(o.Policies, policy.Names((*policy.Policy).Static)) {
		t.Errorf("possible: %v", o.Policies)
	}
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	sim.Close()
	m, err := CompareModes(s, modeOptions())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range m.Counts {
		if c.Mode != parallel.ModeData {
			t.Errorf("mode %s of sparse rows is counted", c.Mode)
		}
	}
}

// Rounds are counted in minibatches, of which a rank may train several in a step.
func TestRoundsAreCountedInMinibatches(t *testing.T) {
	for _, c := range []struct {
		name        string
		minibatches int // of a step
		delta       int
		own         bool
		want        []string // hit rates: before the first round, and after each round shown
	}{
		{"one a step", 1, 4, false, []string{"after 0 rounds 0.1500", "after 1 rounds 0.5500"}},
		{"settings of its own", 1, 4, true, []string{"after 0 rounds 0.1500",
			"after 1 rounds 0.5500"}},
		{"two a step", 2, 4, false, []string{"after 0 rounds 0.0500", "after 1 rounds 0.2500",
			"after 3 rounds 0.6500"}},
		{"a round within a step", 3, 4, false,
			[]string{"after 0 rounds 0.0000", "after 1 rounds 0.1000", "after 2 rounds 0.2500",
				"after 5 rounds 0.6500"}},
		{"several rounds in a step", 8, 2, false, []string{"after 0 rounds 0.0000",
			"after 31 rounds 0.7000"}},
		{"no round", 1, 8, false, nil},
	} {
		r := &Result{
			Options: Options{
				Spec:     job.Spec{Cache: policy.Settings{Delta: c.delta, Evict: true}},
				Policies: []string{policy.Prefetch}, Alphas: []float64{1},
			}, Minibatches: c.minibatches,
			Traces: [][]Trace{{nil}},
		}
		if c.own { // the policy has settings of its own, the config others
			r.Options.Policies[0] += ":delta=4"
			r.Options.Own = map[string]policy.Settings{r.Options.Policies[0]: r.Options.Cache}
			r.Options.Cache = policy.Settings{Delta: 3}
		}
		for step := range int64(8) { // the hit rate of a step is a tenth of its number
			r.Each, r.Traces[0][0] = append(r.Each, 10),
				append(r.Traces[0][0], trace.Counters{Remote: 10 - step, Cached: step})
		}
		table := r.rounds(func(string) []string { return nil })
		var rows []string
		for _, row := range table {
			rows = append(rows, strings.Join(row, " "))
		}
		for _, want := range c.want {
			if !slices.Contains(rows, want) {
				t.Errorf("%s: %q is not in %q", c.name, want, rows)
			}
		}
		if (c.want == nil) != (table == nil) {
			t.Errorf("%s: %q", c.name, rows)
		}
	}
}
