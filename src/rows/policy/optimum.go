package policy

import (
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// Optimum is the name of the offline optimum.
const Optimum = "optimum"

// optimum counts the transfers of the best possible cache. The rows that this cache holds before
// the first step do not count. No policy that moves whole rows transfers fewer rows.
var optimum = &Policy{
	Name: Optimum, Doc: "the offline optimum: the fewest rows that any cache of whole rows can " +
		"transfer",
	Open: func(s *Setup) (cache.Policy, []graph.VertexID, error) {
		o, err := cache.NewOptimum(s.Graph.NumVertices(), s.Capacity, true)
		return counts{o}, nil, err
	},
	Predict: func(reuse *cache.Reuse, capacity, _, minibatches int) float64 {
		return reuse.Fetched(capacity, minibatches, minibatches)
	},
	Bytes:     func(s Size) int64 { return 4*s.Vertices + 16*s.Steps },
	Foresees:  true,
	Hindsight: true,
}

// counts turns an Optimum into a cache.Policy. Its decisions contain the number of misses, but not
// which rows are missed.
type counts struct{ *cache.Optimum }

func (c counts) Step(remote []graph.VertexID, d *cache.Decision) {
	d.Clear()
	d.Misses = c.Optimum.Step(remote)
}
func (counts) Feed([]graph.VertexID, []uint8) {}
func (counts) Window() int                    { return 0 }
func (counts) Slots() int                     { return 0 }
func (counts) Bytes() int64                   { return 0 }
