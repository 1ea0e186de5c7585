package plan

import (
	"halognn/src/rows/exchange"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// Shuffles counts what ranks do and send each other in a step if they share minibatches or hold
// columns, summed over the ranks. Package train counts the same in a run. For each hidden row a
// gradient goes back, so a run's `shuffled_rows` are feature_rows + 2 hidden_rows. If ranks hold
// columns, partial sums count as hidden rows. Learned rows that come from their owners also count
// as hidden rows.
type Shuffles struct {
	Edges    float64 `json:"computed_edges"`
	Loaded   float64 `json:"loaded_rows"`
	Features float64 `json:"feature_rows"` // feature rows received
	Hidden   float64 `json:"hidden_rows"`  // hidden rows received
	Sums     float64 `json:"learned_sums"` // how many of the hidden rows are sums of learned rows
	// How many of the hidden rows are learned rows that another rank of the node fetches. Gradients
	// go back for these rows too.
	Shared   float64 `json:"shared_learned_rows,omitempty"`
	Bytes    float64 `json:"shuffle_bytes"`
	Sampling float64 `json:"sampling_bytes"`

	// Bytes that the busiest rank sends or receives, whichever is more. They are counted for
	// sampling (`found`), for feature rows (`features`), and for what travels between layers
	// (`between`).
	found, features, between float64

	learned bool // the hidden rows are learned rows
}

// shuffled counts one minibatch from the loads of all ranks. Layers whose vertices are drawn for
// all seeds together also need the number of candidates of each rank (sample.Minibatch.Candidates).
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
	// [layers] bytes of candidates that the ranks send each other
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
				// The rows that others want are assumed to have the same mean length as the
				// received rows.
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

// add adds the counts of o, divided by n.
func (s *Shuffles) add(o *Shuffles, n float64) {
	for _, pair := range [][2]*float64{{&s.Edges, &o.Edges}, {&s.Loaded, &o.Loaded},
		{&s.Features, &o.Features}, {&s.Hidden, &o.Hidden}, {&s.Sums, &o.Sums}, {&s.Bytes,
			&o.Bytes}, {&s.Shared, &o.Shared},
		{&s.Sampling, &o.Sampling}, {&s.found, &o.found}, {&s.features, &o.features},
		{&s.between, &o.between}} {
		*pair[0] += *pair[1] / n
	}
}

// join adds the mean counts o of a sampled group of ranks, which stands for the given number of
// groups of the job. The bytes of the busiest rank are not added: the larger of both stays.
func (s *Shuffles) join(o *Shuffles, groups float64) {
	found, features, between := max(s.found, o.found), max(s.features, o.features),
		max(s.between, o.between)
	s.add(o, 1/groups)
	s.found, s.features, s.between = found, features, between
}

// sendingSeconds returns the time in which a rank sends and receives the given bytes. Bytes for
// other nodes take the node's link, which its ranks share. Bytes for ranks on the node are written
// to memory and read once more. It is not known which ranks they go to, so all other ranks are
// assumed to get the same number of bytes.
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
