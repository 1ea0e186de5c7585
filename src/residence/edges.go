package residence

import (
	"fmt"
	"math"

	"halognn/src/comm"
	"halognn/src/exchange"
	"halognn/src/shard"
)

// OpenEdgeRows makes the exchange of the feature rows of edges, whose ids are their positions in the
// whole topology: an edge's row is with the owner of its target. Collective.
func (s *Store) OpenEdgeRows() (*exchange.Fetcher, error) {
	if err := comm.Agree(s.Comm, s.mapEdgeRows()); err != nil {
		return nil, err
	}
	o := exchange.Options{Host: s.Host, Window: s.Job.Window, Tables: s.edgeTables,
		Kinds: []exchange.Kind{{Cols: s.shards().EdgeFeatures}}, Offsets: shard.EdgeOffsets(s.shards())}
	return exchange.Open(s.Comm, o)
}

// mapEdgeRows opens the features of edges of the parts of Tables.
func (s *Store) mapEdgeRows() error {
	if s.edgeTables != nil {
		return nil
	}
	if n := s.shards().Edges; n > math.MaxInt32 {
		return fmt.Errorf("%s: the graph has %d edges, and features of edges are fetched for at most %d; "+
			"set model.edge_features=false to leave them out", s.shards().Dir, n, math.MaxInt32)
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
