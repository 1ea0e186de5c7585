package train

import (
	"halognn/src/shard"
	"halognn/src/trace"
)

// Rows counts feature rows by where they came from, per epoch, summed over ranks.
type Rows struct {
	// rows of input frontiers owned by the rank; per epoch, summed over ranks
	Local int64 `json:"local_rows"`
	// rows found in the rank's own cache
	CacheHits int64 `json:"cache_hits"`
	// rows of another rank of the same node: read from its mapped file, or from its cache
	// (`cache.placement: group`)
	Peer int64 `json:"peer_rows"`
	// those of `peer_rows` that were read from a peer's cache: they are owned outside the node
	PeerCached int64 `json:"peer_cache_rows"`
	// rows read from the files of the parts, because no cache holds them (`cache.source: files`)
	Stored int64 `json:"stored_rows"`
	// rows fetched for the step that reads them
	Fetched int64 `json:"fetched_rows"`
	// rows that an eviction round of `prefetch` fetched in order to keep them
	Replacement int64 `json:"replacement_rows"`
	// rows fetched ahead of the step that reads them (`cache.level`)
	Early int64 `json:"early_rows"`
	// transferred rows: received from another node, the sum of the three above
	Remote int64 `json:"remote_rows"`
	// rows owned outside the node that were never received: their owners added them
	// (`exchange.sums`)
	Summed int64 `json:"summed_rows"`
	// vectors that came in their stead
	Sums int64 `json:"sum_vectors"`
	// bytes of the transferred rows and of the sums as handed to the transport
	RemoteBytes int64 `json:"remote_bytes"`
	// ids of rows and of members of sums that were sent for that, 4 bytes each, and the weights of
	// members
	IDBytes int64 `json:"id_bytes"`

	// 1 - (transferred rows + sums) / remote accesses; remote accesses are the frontier rows owned
	// outside the node: `cache_hits` + `peer_cache_rows` + those fetched for the step + those summed.
	// With `cache.source: files` all frontier rows are, and `stored_rows` are the transferred ones.
	// 0 if neither a cache nor a sum spares anything
	HitRate float64 `json:"hit_rate"`
	// remote accesses found in the own cache or a peer's / remote accesses
	BufferHitRate float64 `json:"buffer_hit_rate"`

	// rows of a dynamic cache that were overwritten
	Evictions int64 `json:"evictions"`
	// rows that entered a `prefetch` buffer in eviction rounds: `replacement_rows`, and misses of
	// the step that were kept
	Replacements int64 `json:"replacements"`
	// the phase `score`, summed over ranks
	ScoreSeconds float64 `json:"score_seconds"`

	// with `topology.kind: partitioned`, or `parallel.mode: split` or `hybrid`: vertices of frontiers,
	// over all hops, for which ranks asked other ranks to draw; with `hybrid` those of the last hop
	// too, whose rows they asked for
	Asked int64 `json:"asked_vertices"`
	// neighbours that came back; where ranks share minibatches they stay where they are drawn
	Drawn int64 `json:"drawn_neighbours"`
	// sent for that: 16 bytes to each rank (how many vertices, and the word that names their draws),
	// 4 for each id, 1 for the number of its neighbours (4 if the fanout is above 255 or all), 4 for
	// each neighbour. Where ranks share minibatches 8 bytes to each of them (how many vertices) and 4
	// for each id, after each hop, with `split` but the last. With `push-pull` also 24 bytes to each
	// other rank (the size of the input hop) and 4 for each source, destination and edge of it, and
	// each weight
	SamplingBytes int64 `json:"sampling_bytes"`

	// sampled edges of the blocks that the ranks compute
	Edges int64 `json:"computed_edges"`
	// feature rows that the ranks read: each once for a minibatch and rank; where ranks share
	// minibatches each once for a minibatch, by the rank that owns it; with `push-pull` each rank reads
	// its columns of it
	Loaded int64 `json:"loaded_rows"`
	// where ranks share minibatches (`parallel.mode`): rows that these sent each other: of features,
	// hidden rows, and gradients of these; with `push-pull`: rows of partial sums of the first layer,
	// and of their gradients
	Shuffled int64 `json:"shuffled_rows"`
	// bytes of those rows as handed to the transport
	ShuffleBytes int64 `json:"shuffle_bytes"`
}

// rowsOf puts counters under the names of reports. Bytes are those of so many rows and sums: an
// identity that every epoch is held to.
func rowsOf(c trace.Counters, of shard.Meta) Rows {
	hit, buffer := c.HitRates()
	return Rows{
		Local: c.Local, CacheHits: c.Cached, Peer: c.Peer, PeerCached: c.PeerCached,
		Stored:  c.Stored,
		Fetched: c.Fetched(), Replacement: c.Replaced, Early: c.Early,
		Remote:      c.Remote,
		RemoteBytes: c.Remote*int64(of.RowBytes()) + c.Sums*int64(4*of.Features),
		Summed:      c.Summed, Sums: c.Sums, IDBytes: c.IDBytes, HitRate: hit, BufferHitRate: buffer,
		Evictions: c.Evictions, Replacements: c.Replacements, ScoreSeconds: c.Scoring.Seconds(),
		Asked: c.Sampling.Asked, Drawn: c.Sampling.Drawn, SamplingBytes: c.Sampling.Bytes,
		Edges: c.Edges, Loaded: c.Loaded, Shuffled: c.Shuffle.Rows, ShuffleBytes: c.Shuffle.Bytes,
	}
}
