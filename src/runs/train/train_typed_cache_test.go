package train

import (
	"slices"
	"testing"

	"halognn/src/data/shard/shardtest"
	"halognn/src/forecast/simulate"
	"halognn/src/rows/policy"
	"halognn/src/runs/record"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// A cache of rows of several types, or of sparse ones, changes no number, keeps no more bytes than
// it has room for, and leaves as many rows, sums and bytes to fetch as are simulated: whatever
// types have features, however long rows are, and whether or not owners add rows, which are not
// sparse.
func TestCachesOfBytes(t *testing.T) {
	race.Alone(t)
	typed := policy.Names(func(p *policy.Policy) bool { return policy.Trainable(p) && !p.None() })
	static := policy.Names(func(p *policy.Policy) bool { return p.Static() && !p.None() })
	for _, c := range []struct {
		name     string
		bare     []int // types whose rows are learned
		ranks    int
		alpha    float64
		policies []string
		sparse   bool
		kind     sample.Kind
	}{
		{"all types", nil, 4, 0.3, typed, false, ""},
		{"all types, two parts a rank", nil, 2, 0.3, []string{policy.VIP, policy.Lookahead}, false,
			""},
		{"no papers", []int{0}, 4, 0.3,
			[]string{policy.VIP, policy.Prefetch, policy.Lookahead, policy.Sieve}, false, ""},
		{"papers alone", []int{1, 2}, 2, 0.3, []string{policy.Degree, policy.Lookahead}, false, ""},
		{"less than a row", nil, 2, 0.002, []string{policy.VIP, policy.Lookahead, policy.Sieve},
			false, ""},
		{"sparse rows", nil, 4, 0.3, static, true, ""},
		{"sparse rows, two parts a rank", nil, 2, 0.6, []string{policy.VIP}, true, ""},
		{"poisson", nil, 2, 0.3, []string{policy.VIP, policy.Lookahead}, false, sample.Poisson},
		{"labor", nil, 2, 0.3, []string{policy.VIP, policy.Prefetch, policy.Lookahead}, false,
			sample.Labor},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := ""
			if c.sparse {
				data = shardtest.Bare(t, shardtest.BareOptions{Sparse: true})
			} else {
				data = typedData(t, c.bare...)
			}
			s := shardtest.Cut(t, data, shardtest.Options{Parts: 4})
			o := typedOptions("sage")
			o.Epochs, o.EvalEvery, o.Sample.Kind = 2, 2, c.kind
			o.Sample.Numbers.Dependency = 2
			if c.bare != nil {
				o.Model.Learned, o.Learned.LR = 4, 0.05
			}
			none := typedRun(t, s, c.ranks, o, false)
			sim := o.Spec
			sim.Ranks, sim.RanksPerNode = c.ranks, 1
			sim.Cache = policy.Settings{Policy: policy.None, Gamma: 0.9, Delta: 3, Evict: true,
				Initial: policy.VIP, HaloHops: 2}
			play := func(sums bool) *simulate.Result {
				sim.Sums = sums
				simulated, err := simulate.New(s, simulate.Options{Spec: sim, Workers: 2,
					Alphas:   []float64{c.alpha},
					Policies: append([]string{policy.None}, c.policies...)})
				if err != nil {
					t.Fatal(err)
				}
				defer simulated.Close()
				r, err := simulated.Run()
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			r := play(false)
			added := r
			sums := !c.sparse && !o.Sample.Estimates()
			if sums {
				added = play(true)
			}
			hold := func(i int, got *record.Summary) {
				t.Helper()
				r, name := r, r.Options.Policies[i]
				if o.Sums {
					r, name = added, name+" with sums"
					if got.Sums != r.Totals[i][0].Sums/2 || got.Sums == 0 && c.bare == nil {
						t.Errorf("%s: %d sums, %d are simulated", name, got.Sums,
							r.Totals[i][0].Sums/2)
					}
				}
				if got.LossDigest != none.LossDigest || got.WeightsDigest != none.WeightsDigest ||
					got.LearnedDigest != none.LearnedDigest {
					t.Errorf("%s changes numbers", name)
				}
				rows, bytes := r.Rows[i][0]/2, r.Totals[i][0].RowBytes/2
				if o.Sums {
					rows = r.Totals[i][0].Remote / 2
				}
				if got.Remote != rows || got.RemoteBytes != bytes {
					t.Errorf("%s: %d rows, %d bytes; %d and %d are simulated", name, got.Remote,
						got.RemoteBytes, rows, bytes)
				}
			}
			withSums := func(i int) {
				if o.Sums = sums; o.Sums {
					hold(i, typedRun(t, s, c.ranks, o, false))
				}
				o.Sums = false
			}
			hold(0, none)
			withSums(0)
			for i, name := range c.policies {
				o.Cache, o.Partitioned = sim.Cache, i%2 == 0 // which changes no number
				o.Cache.Policy, o.Cache.Alpha = name, c.alpha
				withSums(i + 1)
				got := typedRun(t, s, c.ranks, o, false)
				hold(i+1, got)
				kept := got.Cache.Capacity
				if full := c.alpha > 0.01; full != (kept > 0) ||
					full && got.RemoteBytes >= none.RemoteBytes ||
					!full && got.RemoteBytes != none.RemoteBytes {
					t.Errorf("%s keeps %d rows and fetches %d bytes, %d without", name, kept,
						got.RemoteBytes, none.RemoteBytes)
				}
				if capacity := r.Capacity[0]; got.Cache.Bytes > int64(capacity)+3*64 {
					t.Errorf("%s keeps %d bytes where there is room for %d", name, got.Cache.Bytes,
						capacity)
				}
			}
			if slices.Contains(c.policies, policy.Oracle) && !c.sparse { // all of them
				o.Cache.Policy = policy.Auto
				if got := typedRun(t, s, c.ranks, o, false); got.LossDigest != none.LossDigest ||
					got.Cache.Chosen == "" || got.RemoteBytes >= none.RemoteBytes {
					t.Errorf("auto: %+v, %d bytes", got.Cache, got.RemoteBytes)
				}
			}
		})
	}
}
