package policy

import (
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// Lookahead is the name of the policy that samples minibatches ahead of time.
const Lookahead = "lookahead"

// lookahead makes Belady's choice over a window of known minibatches: it keeps the rows that are
// read again soonest. A row that is not worth a slot is fetched for its minibatch and not kept
// (bypass).
var lookahead = &Policy{
	Name: Lookahead, Doc: "dynamic; minibatches are sampled ahead, and rows read again soonest " +
		"stay, or with `exchange.sums: on` those that save most sums ([fewest " +
		"transfers](results/default-policy.md))",
	Needs: true, // analyses the graph to plan the window, and samples the first window
	Open: func(s *Setup) (cache.Policy, []graph.VertexID, error) {
		n := s.Graph.NumVertices()
		start, err := cache.Start(n, s.Capacity, s.Ahead)
		if err != nil {
			return nil, nil, err
		}
		o := cache.LookaheadOptions{
			Vertices: n, Capacity: s.Capacity, Window: s.Window, Level: s.Settings.Level,
			Initial: start,
		}
		if s.Sums {
			p, err := cache.NewSavings(o)
			return p, start, err
		}
		p, err := cache.NewLookahead(o)
		return p, start, err
	},
	Window: func(s *Setup, p []float32) (int, error) {
		return s.Graph.PlanWindow(s.Workload, p, s.Capacity)
	},
	Predict: func(reuse *cache.Reuse, capacity, window, minibatches int) float64 {
		return reuse.Fetched(capacity, window, minibatches)
	},
	Bytes: func(s Size) int64 {
		o := cache.LookaheadOptions{
			Vertices: int(s.Vertices), Capacity: int(s.Rows), Window: int(s.Window),
		}
		if s.Sums {
			return cache.SavingsBytes(o, int(s.Uses))
		}
		return cache.LookaheadBytes(o, int(s.Uses*float64(s.Window+1)))
	},
	Foresees: true,
	Variants: asIs(Lookahead),
	Reads:    []string{"window", "level"},
}
