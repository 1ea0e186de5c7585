package policy

import "halognn/src/cache"

// Settings choose the policy and size of a cache. A field that the policy reads must be set, unless
// its comment gives the meaning of 0.
type Settings struct {
	Policy       string  // a name of the table
	Alpha        float64 // capacity as a fraction of an average rank's vertices, unless
	HaloFraction float64 // it is above 0: capacity as a fraction of the rank's 1-hop halo
	HaloHops     int     // depth that degree, paths and prefetch consider; 0: one for each layer
	Placement    string  // PlacementOwn or PlacementGroup
	PeerCost     float64 // PlacementGroup: cost of a peer's row relative to one from another node

	Window  int     // lookahead: minibatches known in advance; 0: planned
	Level   bool    // lookahead: fetch early where the next minibatch has more misses
	Gamma   float64 // prefetch: decay of a score in a step that does not use the row
	Delta   int     // prefetch: minibatches between eviction rounds
	Evict   bool    // prefetch; false keeps the first rows
	Initial string  // prefetch: the static policy that fills it
	Layout  cache.Layout
}

// How the rows of a static cache are placed.
const (
	PlacementOwn   = "own"   // every rank keeps what is best for itself
	PlacementGroup = "group" // the ranks of a node divide the rows and read each other's
)
