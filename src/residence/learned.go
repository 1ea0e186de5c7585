package residence

import (
	"slices"

	"halognn/src/compute"
	"halognn/src/exchange"
)

// OpenLearned makes an exchange of learned rows alone. Collective.
func (s *Store) OpenLearned() (*exchange.Fetcher, error) {
	o := exchange.Options{Offsets: s.shards().Ranges(), Host: s.Host, Window: s.Job.Window}
	o.Kinds = make([]exchange.Kind, len(s.shards().Schema.Types))
	s.addLearned(&o)
	return exchange.Open(s.Comm, o)
}

// addLearned adds the learned rows of own vertices to what an exchange reads.
func (s *Store) addLearned(o *exchange.Options) {
	kind, types := exchange.Kind{Cols: s.Learned.Cols, Type: compute.Float32}, s.shards().Schema.NumTypes()
	o.Cols, o.Type = kind.Cols, kind.Type
	o.Tables = slices.Clone(o.Tables)
	if o.Tables == nil {
		o.Tables = make([][]byte, len(o.Offsets)-1)
	}
	for t, learns := range s.Job.Model.Learns {
		if !learns {
			continue
		}
		if len(o.Kinds) > 0 {
			o.Kinds[t] = kind
		}
		for p := range s.shards().Parts {
			o.Tables[p*types+t] = nil // of peers too, whose rows are in their own memory
		}
	}
	for k, r := range s.Learned.Ranges {
		o.Tables[r.Part*types+r.Kind] = s.Learned.Table(k)
	}
}
