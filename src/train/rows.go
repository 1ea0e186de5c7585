package train

import "halognn/src/trace"

// Rows counts feature rows by where they came from, per epoch, summed over ranks.
type Rows struct {
	Local       int64 `json:"local_rows"`
	CacheHits   int64 `json:"cache_hits"`
	Peer        int64 `json:"peer_rows"`
	PeerCached  int64 `json:"peer_cache_rows"`
	Fetched     int64 `json:"fetched_rows"`
	Replacement int64 `json:"replacement_rows"`
	Early       int64 `json:"early_rows"`
	Remote      int64 `json:"remote_rows"` // the sum of the three above
	RemoteBytes int64 `json:"remote_bytes"`

	HitRate       float64 `json:"hit_rate"`
	BufferHitRate float64 `json:"buffer_hit_rate"`

	Evictions    int64   `json:"evictions"`
	Replacements int64   `json:"replacements"`
	ScoreSeconds float64 `json:"score_seconds"`

	// Of sampling a partitioned topology.
	Asked         int64 `json:"asked_vertices"`
	Drawn         int64 `json:"drawn_neighbours"`
	SamplingBytes int64 `json:"sampling_bytes"`
}

// rowsOf puts counters under the names of reports. Bytes are rows times rowBytes: an identity that
// every epoch is held to.
func rowsOf(c trace.Counters, rowBytes int) Rows {
	hit, buffer := c.HitRates()
	return Rows{
		Local: c.Local, CacheHits: c.Cached, Peer: c.Peer, PeerCached: c.PeerCached,
		Fetched: c.Fetched(), Replacement: c.Replaced, Early: c.Early,
		Remote: c.Remote, RemoteBytes: c.Remote * int64(rowBytes), HitRate: hit, BufferHitRate: buffer,
		Evictions: c.Evictions, Replacements: c.Replacements, ScoreSeconds: c.Scoring.Seconds(),
		Asked: c.Sampling.Asked, Drawn: c.Sampling.Drawn, SamplingBytes: c.Sampling.Bytes,
	}
}
