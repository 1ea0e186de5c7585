package simulate

import (
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/model/nn"
	"halognn/src/rows/policy"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// No simulation uses more memory than the formula gives, nor much less: for static policies, for
// sim, and for dynamic policies.
func TestMemoryIsThatOfTheFormula(t *testing.T) {
	race.Alone(t)
	plain := generatedOf(t, 60000)
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: dataset.MAG, Vertices: 15000,
		Features: 6,
		Classes:  4, Seed: 1}, shardtest.Options{Parts: 6, Features: shard.FeaturesDegree})
	types := func(o *Options) {
		o.Model = nn.Config{Kind: "rgcn", Layers: 2, Hidden: 8}
	}
	for _, c := range []struct {
		policies []string
		ranks    int
		set      func(o *Options)
	}{
		{[]string{policy.VIP, policy.Inclusion}, 3, types},
		{[]string{policy.Prefetch}, 3, types},
		{[]string{policy.Lookahead}, 3, types},
		{[]string{policy.None, policy.VIP, policy.Oracle}, 3, func(*Options) {}},
		{[]string{policy.Degree}, 3, func(*Options) {}},
		{[]string{policy.Sim}, 1, func(*Options) {}},
		{[]string{policy.Sim}, 6, func(*Options) {}},
		{[]string{policy.Sieve, policy.Optimum}, 3, func(*Options) {}},
		{[]string{policy.Prefetch}, 3, func(*Options) {}},
		{[]string{policy.Lookahead}, 3, func(*Options) {}},
		{[]string{policy.VIP, policy.Sim}, 3, near}, {[]string{policy.Prefetch}, 3, near},
		{[]string{policy.VIP, policy.Oracle}, 3, asNodes},
		{[]string{policy.Sieve, policy.Lookahead}, 6, asNodes},
		{[]string{policy.Prefetch, policy.Lookahead}, 6, func(o *Options) {
			asNodes(o)
			o.Cache.Placement = policy.PlacementGroup
		}},
	} {
		o := options()
		c.set(&o)
		s := plain
		if o.Model.Kind != "" {
			s = typed
		}
		o.Policies, o.Ranks, o.Batch, o.Epochs, o.Alphas = c.policies, c.ranks, 6000, 1,
			[]float64{0.1, 0.5}
		var r *Result
		sim, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		peak := peakOf(func() {
			if r, err = sim.Run(); err != nil {
				t.Fatal(err)
			}
		})
		together := min(o.Workers, o.Ranks)
		each := o.Workers / together
		arrays := int64(together) * sim.rankBytes(each, r.used, r.Capacity)
		switch {
		case sim.job.FetchesAsNodes():
			arrays = sim.nodesBytes(together, each, r.used, r.Capacity)
		case sim.job.FavoursNear():
			arrays = sim.nearBytes(together, each, r.used, r.Capacity)
		}
		arrays += 12 * int64(sim.job.Streams.Streams()*sim.job.Steps()*o.Batch) // orders of seeds
		if sim.transposed {
			arrays += 4*s.Edges + 8*s.Vertices + 4*sim.columns()
		}
		if slack := int64(1 << 18); peak > arrays+slack || arrays > 4*peak {
			t.Errorf("%v, %d ranks: %d bytes are said to be held, and %d are", c.policies, c.ranks,
				arrays, peak)
		}
		t.Logf("%v, %d ranks: %d bytes are said to be held, and %d are", c.policies, c.ranks,
			arrays, peak)
		if r.Bytes < arrays {
			t.Errorf("%v: %d bytes in all, %d of them arrays", c.policies, r.Bytes, arrays)
		}
		sim.Close()
	}
}

// asNodes lets the two ranks of each node fetch as one.
func asNodes(o *Options) { o.AsNodes, o.RanksPerNode = true, 2 }

// near makes vertices at hand likelier.
func near(o *Options) {
	o.Sample.Kind, o.Locality.Favour, o.Locality.Vertices = sample.Poisson, 4, 100
}

// peakOf returns how many bytes of arrays f holds at once at most, beyond those there are. The peak
// that package mem keeps is of all time, so an array that nobody touches raises what is held to it
// first: then it moves by f alone.
func peakOf(f func()) int64 {
	ballast := mem.Make[byte](int(mem.PeakAllocated() - mem.Allocated()))
	defer mem.Free(ballast)
	before := mem.Allocated()
	f()
	return mem.PeakAllocated() - before
}
