package session

import (
	"halognn/src/base/mem"
	"halognn/src/model/nn"
	"halognn/src/rows/exchange"
	"halognn/src/step/parallel"
)

// learnedRows makes the learned rows of the vertices that the rank owns.
func (s *Session) learnedRows() *nn.Learned {
	var ranges []nn.LearnedRange
	starts, types, own := s.Shards.Ranges(), s.Shards.Schema.NumTypes(), s.Shards.Offsets[s.First]
	for p := s.First; p < s.Last; p++ {
		for t, learns := range s.Job.Model.Learns {
			if !learns {
				continue
			}
			r := nn.LearnedRange{Part: p, Kind: t, First: int(starts[p*types+t] - own),
				End: int(starts[p*types+t+1] - own), Type: s.Shards.Schema.TypeName(t)}
			ranges = append(ranges, r)
		}
	}
	if ranges == nil {
		return new(nn.Learned)
	}
	return nn.NewLearned(s.Job.Model.Learned, ranges,
		s.Topology.Original[own:s.Shards.Offsets[s.Last]], s.Job.Seed, s.Job.Learned,
		!s.Forward)
}

// openLearned opens the exchanges of learned rows, if the model learns some, and sets them in o,
// the options of a training strategy. The function `close` closes them. Both are collective.
func (s *Session) openLearned(o *parallel.Options) (close func() error, err error) {
	if s.Learned.Cols == 0 || s.Forward {
		return func() error { return nil }, nil
	}
	o.Learned.Rows = s.Learned
	opened := []**exchange.Exchange{&o.Learned.Ask, &o.Learned.Move}
	if s.Store.FetchesAsNode() {
		opened = append(opened, &o.Learned.NodesAsk, &o.Learned.NodesMove)
	}
	var closers mem.Closers
	for i, x := range opened {
		f, err := s.Store.OpenLearned(i >= 2)
		if err != nil {
			return nil, err
		}
		*x, closers = f.Exchange, append(closers, f.Close)
	}
	return closers.Close, nil
}
