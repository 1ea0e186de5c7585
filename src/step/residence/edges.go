package residence

import (
	"halognn/src/data/shard"
	"halognn/src/ranks/comm"
	"halognn/src/rows/exchange"
)

// OpenEdgeRows makes the exchange for the feature rows of edges. The id of an edge is its position
// in the whole topology. The rank that owns the edge's target has the edge's row. Collective.
func (s *Store) OpenEdgeRows() (*exchange.Fetcher, error) {
	if err := comm.Agree(s.Comm, s.mapEdgeRows()); err != nil {
		return nil, err
	}
	o := exchange.Options{Host: s.Host, Window: s.Job.Window, Tables: s.edgeTables,
		Kinds:   []exchange.Kind{{Cols: s.shards().EdgeFeatures}},
		Offsets: shard.EdgeOffsets(s.shards()), Node: s.asNode()}
	return exchange.Open(s.Comm, o)
}

// mapEdgeRows opens the edge features of the parts in Tables.
func (s *Store) mapEdgeRows() error {
	if s.edgeTables != nil {
		return nil
	}
	if err := shard.CheckEdgeRows(s.shards()); err != nil {
		return err
	}
	s.edgeTables = make([][]byte, s.shards().Parts)
	for p, table := range s.Tables {
		if table == nil {
			continue
		}
		f, err := shard.OpenEdgeRows(s.shards(), p)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, f.Close)
		s.edgeTables[p] = f.Data
	}
	return nil
}
