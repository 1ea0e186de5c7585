package residence

import (
	"slices"

	"halognn/src/rows/exchange"
)

// OpenLearned makes an exchange for learned rows only. If asNode is set, it exchanges the rows that
// the ranks of this node fetch as one; otherwise rows and sums travel from rank to rank.
// Collective.
func (s *Store) OpenLearned(asNode bool) (*exchange.Fetcher, error) {
	o := exchange.Options{Offsets: s.shards().Ranges(), Host: s.Host, Window: s.Job.Window,
		Kinds: s.Job.LearnedKinds(), Sums: s.Job.LearnedSums()}
	if asNode {
		o.Sums, o.Node = nil, s.asNode()
	}
	s.addLearned(&o)
	return exchange.Open(s.Comm, o)
}

// FetchesAsNode reports whether the ranks of this node fetch as one.
func (s *Store) FetchesAsNode() bool { return s.asNode() != nil }

// addLearned adds the learned rows of own vertices to the tables of an exchange.
func (s *Store) addLearned(o *exchange.Options) {
	types := len(o.Kinds)
	o.Tables = slices.Clone(o.Tables)
	if o.Tables == nil {
		o.Tables = make([][]byte, len(o.Offsets)-1)
	}
	for t, kind := range s.Job.LearnedKinds() {
		if kind.Cols == 0 {
			continue
		}
		o.Kinds[t] = kind
		for p := range s.shards().Parts {
			o.Tables[p*types+t] = nil // peers too have their learned rows in their own memory
		}
	}
	for k, r := range s.Learned.Ranges {
		o.Tables[r.Part*types+r.Kind] = s.Learned.Table(k)
	}
}
