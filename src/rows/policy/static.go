package policy

import (
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
)

// The names of the static policies.
const (
	None      = "none"
	Degree    = "degree"
	Halo1     = "halo1"
	WPR       = "wpr"
	Paths     = "paths"
	Sim       = "sim"
	VIP       = "vip"
	Inclusion = "inclusion"
	Oracle    = "oracle"
)

// ranking is the type of Policy.Rank: a function that returns a score for every vertex.
type ranking = func(m *access.Graph, r *access.Workload) ([]float32, error)

// The static policies of SALIENT++, section 3.2, and inclusion. Each uses one analysis of package
// access.
var (
	none = &Policy{
		Name: None, Doc: "no cache",
		Bytes:    func(Size) int64 { return 0 },
		Variants: asIs(None),
	}
	degree = static(Degree, "static; most out-edges, within the model's hops of the training seeds",
		func(m *access.Graph, r *access.Workload) ([]float32, error) {
			return m.Nearby(r, m.Degree)
		})
	halo1 = static(Halo1, "static; the 1-hop halo",
		func(m *access.Graph, r *access.Workload) ([]float32, error) { return m.RankHalo(r, 1) })
	wpr = static(WPR, "static; weighted reverse PageRank",
		func(m *access.Graph, r *access.Workload) ([]float32, error) {
			return m.PageRank(r.Seeds())
		})
	paths = static(Paths, "static; the number of paths from the training seeds",
		func(m *access.Graph, r *access.Workload) ([]float32, error) {
			return m.Nearby(r, m.Paths)
		})
	sim = static(Sim, "static; counts over 2 simulated epochs",
		func(_ *access.Graph, r *access.Workload) ([]float32, error) {
			return r.Counted(access.SimulatedFirst, access.SimulatedEpochs)
		})
	vip = static(VIP, "static; SALIENT++'s access probability, summed over a step's minibatches "+
		"(`inclusion` with `sample.seeds: global`)",
		(*access.Graph).RankVIP)

	inclusion = static(Inclusion, "static; as `vip`, for this program's sampler: vertices draw "+
		"at every hop after they are reached, and a seed's own row counts",
		(*access.Graph).RankInclusion)
	oracle = static(Oracle, "static; counts over the run's own epochs: the best static cache, "+
		"for sampling twice",
		func(_ *access.Graph, r *access.Workload) ([]float32, error) {
			return r.Counted(1, r.Epochs)
		})
)

func init() {
	degree.Reads, paths.Reads = []string{"halo_hops"}, []string{"halo_hops"}
	vip.Variants = asIs(VIP)
	sim.Counts, oracle.Counts = true, true
	oracle.Foresees = true
	vip.Fanouts, inclusion.Fanouts = true, true
	sim.Scratch = func(n, sampler int64, _ *Settings) int64 { return 8*n + sampler }
	vip.Scratch = func(n, _ int64, _ *Settings) int64 { return 12*n + n/8 }
	inclusion.Scratch = func(n, _ int64, _ *Settings) int64 { return 8*n + n/8 }
	oracle.Scratch = func(n, _ int64, _ *Settings) int64 { return 4 * n }
}

// static returns the description of a policy that keeps the rows of the vertices with the highest
// scores.
func static(name, doc string, rank ranking) *Policy {
	return &Policy{
		Name: name, Doc: doc, Rank: rank,
		Bytes:   func(s Size) int64 { return cache.IndexBytes(int(s.Vertices), int(s.Rows)) },
		Scratch: func(n, _ int64, _ *Settings) int64 { return 8*n + n/2 },
	}
}

// asIs returns a function for Policy.Variants. That function returns a single variant, which leaves
// the settings of the config as they are.
func asIs(name string) func(int) []Variant {
	return func(int) []Variant {
		return []Variant{{name, func(o *Settings) { o.Policy = name }}}
	}
}
