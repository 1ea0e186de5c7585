package policy

import (
	"slices"

	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// Settings choose the policy and size of a cache. A field that the policy reads must be set, unless
// its comment gives the meaning of 0.
type Settings struct {
	Policy string // name of the policy in the table
	// If HaloFraction is 0, Alpha is the capacity as a fraction of an average rank's vertices. If
	// both are 0, there is no cache.
	Alpha        float64
	HaloFraction float64 // capacity as a fraction of the rank's 1-hop halo; if 0, Alpha sets it
	// Number of hops for degree, paths and prefetch; 0 means one for each layer.
	HaloHops  int
	Placement string // PlacementOwn, PlacementGroup or PlacementParts
	// For PlacementGroup, the cost of reading a row from the cache of a rank of this node, as a
	// fraction of the cost of fetching it, in [0, 1]. With 0, rows are spread as widely as
	// possible. With MeasuredPeerCost, the run measures the cost.
	PeerCost float64
	Source   string // SourceOwners or SourceFiles; "" is SourceOwners

	Window  int     // lookahead: number of minibatches known in advance; 0 means that it is planned
	Level   bool    // lookahead: fetch early if the next minibatch has more misses
	Gamma   float64 // prefetch: factor of a score in a step that does not use the row, in (0, 1]
	Delta   int     // prefetch: number of minibatches between eviction rounds, >= 1
	Leave   string  // prefetch: LeaveScore or LeaveUnused; "" is LeaveScore
	Evict   bool    // prefetch: whether rows are ever replaced; if not, the first fill stays
	Initial string  // prefetch: static policy that chooses the first fill
	Layout  cache.Layout
}

// Values of Settings.Placement: how the rows of static caches are divided among the ranks of a
// node.
const (
	PlacementOwn   = "own"   // every rank keeps the rows that are best for itself
	PlacementGroup = "group" // the ranks of a node divide the rows and read each other's caches
	// Every rank caches the best rows of its own parts, and reads the caches of the other ranks of
	// its node.
	PlacementParts = "parts"
)

// Values of Settings.Leave: which rows may leave a prefetch buffer.
const (
	LeaveScore  = "score"  // rows whose score has decayed to Gamma^Delta
	LeaveUnused = "unused" // rows that no minibatch has read since the last round
)

// Values of Settings.Source: where a rank reads the rows that no cache holds.
const (
	SourceOwners = "owners" // from their owners; on the same node they are read in memory
	SourceFiles  = "files"  // from the files of all parts, which every rank maps
)

const (
	// MeasuredPeerCost, as the value of PeerCost, makes the run measure how much a peer's row
	// costs.
	MeasuredPeerCost = -1
	// AssumedPeerCost is the cost that plans and simulations of a run with MeasuredPeerCost assume,
	// because they measure nothing.
	AssumedPeerCost = 0.1
)

// Shared reports whether the ranks of a node read each other's caches.
func (s *Settings) Shared() bool {
	return s.Placement == PlacementGroup || s.Placement == PlacementParts
}

// FromFiles reports whether rows that no cache holds are read from the files of the parts.
func (s *Settings) FromFiles() bool { return s.Source == SourceFiles }

// Cost returns PeerCost or, if the run is to measure the cost, AssumedPeerCost.
func (s *Settings) Cost() float64 {
	if s.PeerCost < 0 {
		return AssumedPeerCost
	}
	return s.PeerCost
}

// The config keys that Unsettled returns.
const (
	KeyPolicy   = "cache.policy"
	KeyPeerCost = "cache.peer_cost"
)

// With locality (job.Locality), sampling prefers vertices whose rows the rank already has. Then the
// content of the cache must be known before the run, and be the same in every run. Unsettled
// returns the config key whose value makes the content unknown until minibatches are sampled or
// something is measured, and says why. It returns "" if there is no such key. If draws adapt to the
// number of fetched rows (`adapts`), this number must also be the same in every run.
func (s *Settings) Unsettled(adapts bool) (key, why string) {
	switch p := Find(s.Policy); {
	case p == nil || p.Foresees: // auto tries policies that know minibatches in advance
		return KeyPolicy, "it samples minibatches of the run in advance, which depend on what it " +
			"holds"
	case adapts && !p.Static():
		return KeyPolicy, "a run that goes on would fetch other rows, and sample.locality_adapt " +
			"adapt to them"
	case s.Placement == PlacementGroup && s.PeerCost < 0 && p.Static():
		return KeyPeerCost, "it is measured, and what ranks hold depends on it"
	}
	return "", ""
}

// OfFanouts returns the setting whose meaning depends on fanouts, or "". This setting must be
// refused for kinds of sampling without fanouts.
func (s *Settings) OfFanouts() string {
	p, initial := Find(s.Policy), Find(s.Initial)
	switch {
	case p == nil:
	case p.Fanouts:
		return "cache.policy " + s.Policy
	case slices.Contains(p.Reads, "initial") && initial != nil && initial.Fanouts:
		return "cache.initial " + s.Initial
	}
	return ""
}

// WithoutFanouts replaces rankings that depend on fanouts. A static policy that needs fanouts
// becomes one that counts simulated epochs, and a first fill that needs them is chosen by degrees.
func (s *Settings) WithoutFanouts() {
	if p := Find(s.Policy); p != nil && p.Fanouts {
		s.Policy = Sim
	}
	if p := Find(s.Initial); p != nil && p.Fanouts {
		s.Initial = Degree
	}
}

// Place divides the rows of a static cache among the ranks of a node. Each rank caches up to slots
// rows; rank d owns the vertices own[d].
//
//	score [N]  probability that a rank of the node reads each vertex, summed over ranks; 0 for
//	           vertices that need no cache. With vip, inclusion, sim and oracle it is exact up to
//	           a factor that all scores have in common, which does not change the placement
//
// The caller frees the placement.
func (s *Settings) Place(score []float32, own []access.Range, slots int) (*cache.Placement, error) {
	if s.Placement == PlacementParts {
		return cache.PlaceOwned(score, len(own), slots, func(v graph.VertexID) int {
			return slices.IndexFunc(own, func(r access.Range) bool { return r.Has(v) })
		})
	}
	return cache.Place(score, len(own), slots, s.Cost())
}
