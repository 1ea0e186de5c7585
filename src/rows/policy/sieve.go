package policy

import (
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// Sieve is the name of the general-purpose policy.
const Sieve = "sieve"

// sieve is the general-purpose cache policy SIEVE. The caches made for graph training are compared
// with it.
var sieve = &Policy{
	Name: Sieve, Doc: "dynamic; SIEVE, starting empty",
	Open: func(s *Setup) (cache.Policy, []graph.VertexID, error) {
		p, err := cache.NewSieve(s.vertices(), s.Capacity)
		return p, nil, err
	},
	Bytes: func(s Size) int64 { return cache.IndexBytes(int(s.Vertices), int(s.Rows)) + 17*s.Rows },
}
