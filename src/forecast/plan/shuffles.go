package plan

import (
	"halognn/src/rows/exchange"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// Shuffles is what ranks that share minibatches, or hold columns, do and send each other in a step,
// summed over the ranks: what package train counts. Gradients go back for the hidden rows, so a
// run's `shuffled_rows` are feature_rows + 2 hidden_rows. Where ranks hold columns, partial sums
// count as hidden rows, and so do learned rows that come from their owners.
type Shuffles struct {
	Edges    float64 `json:"computed_edges"`
	Loaded   float64 `json:"loaded_rows"`
	Features float64 `json:"feature_rows"` // received
	Hidden   float64 `json:"hidden_rows"`  // received
	Sums     float64 `json:"learned_sums"` // of them, sums of learned rows
	Bytes    float64 `json:"shuffle_bytes"`
	Sampling float64 `json:"sampling_bytes"`

	// bytes that the busiest rank sends or receives, whichever is more: for sampling, for features,
	// and between layers
	found, features, between float64

	learned bool // the hidden rows are learned rows
}

// shuffled counts one minibatch, from the loads of all ranks and, for layers whose vertices are
// drawn for all seeds together, from the candidates of each rank (sample.Minibatch.Candidates).
func (p *planner) shuffled(mb *sample.Minibatch, loads [][]sample.Load,
	candidates [][]int) Shuffles {
	s := Shuffles{Edges: float64(mb.NumEdges()), Loaded: float64(len(mb.Frontier))}
	counts := float64(parallel.CountBytes * len(loads))
	norms := float64(p.job.Model.BatchNorms()*(len(loads)-1)) * parallel.NormBytes(
		p.job.Model.Hidden)
	s.Bytes += norms * float64(len(loads))
	if len(loads) == 1 {
		counts = 0
	}
	// bytes of candidates that the ranks send each other, by layer
	all := make([]float64, p.job.Sample.Layers())
	for _, of := range candidates {
		for l, n := range of {
			all[l] += float64(parallel.CountBytes + sample.CandidateBytes*n)
		}
	}
	for r, of := range loads {
		found, features, between := 0.0, 0.0, norms
		for l, x := range of {
			others, most := float64(x.Others), float64(max(x.Others, x.Wanted))
			if l > 0 || p.relays() {
				s.Sampling += counts + exchange.IDBytes*others
				found += counts + exchange.IDBytes*most
			} else { // the exchange sends the ids of the rows
				features = most * exchange.IDBytes
			}
			if l == 0 {
				s.Features += others
				s.Bytes += float64(x.Bytes)
				// rows that others want are taken to be as long as those received, on average
				features += most * float64(x.Bytes) / max(1, others)
				continue
			}
			in, _ := p.job.Model.Widths(l)
			s.Hidden += others
			bytes := parallel.StoredBytes(in, p.job.Model.Stored(l-1, p.job.Stored))
			s.Bytes += others * bytes
			between += most * bytes
		}
		for l, n := range candidates[r] {
			sent := float64(parallel.CountBytes + sample.CandidateBytes*n)
			s.Sampling += sent * float64(len(loads)-1)
			found += max(sent*float64(len(loads)-1), all[l]-sent)
		}
		s.found, s.features, s.between = max(s.found, found), max(s.features, features),
			max(s.between, between)
	}
	return s
}

// add adds 1/n of o.
func (s *Shuffles) add(o *Shuffles, n float64) {
	for _, pair := range [][2]*float64{{&s.Edges, &o.Edges}, {&s.Loaded, &o.Loaded},
		{&s.Features, &o.Features}, {&s.Hidden, &o.Hidden}, {&s.Sums, &o.Sums}, {&s.Bytes,
			&o.Bytes},
		{&s.Sampling, &o.Sampling}, {&s.found, &o.found}, {&s.features, &o.features},
		{&s.between, &o.between}} {
		*pair[0] += *pair[1] / n
	}
}

// join adds the mean of a probed group of ranks, which stands for the given number of groups of the
// job. Figures of the busiest rank become the larger of both.
func (s *Shuffles) join(o *Shuffles, groups float64) {
	found, features, between := max(s.found, o.found), max(s.features, o.features),
		max(s.between, o.between)
	s.add(o, 1/groups)
	s.found, s.features, s.between = found, features, between
}

// sendingSeconds is the time in which a rank sends and receives the given bytes. Bytes for other
// nodes take the node's link, which its ranks share; bytes for ranks on the node are written to
// memory and read once more. Which ranks they go to is not known: each rank is taken to get as
// many.
func (p *planner) sendingSeconds(bytes float64, r *Rates) float64 {
	others := float64(p.job.Ranks - 1)
	if others == 0 {
		return 0
	}
	near := float64(p.job.RanksPerNode-1) / others
	if p.relays() {
		near = 1
	}
	memory := r.Rows * float64(p.shards.RowBytes())
	return bytes * ((1-near)*float64(p.job.RanksPerNode)/r.Network + 2*near/memory)
}
