package record

import "halognn/src/base/trace"

// Rows counts feature rows by where they came from: per epoch, summed over ranks.
type Rows struct {
	trace.Counters

	// rows fetched for the step that reads them
	Fetched int64 `json:"fetched_rows"`
	// bytes of transferred rows and sums
	RemoteBytes int64 `json:"remote_bytes"`
	// 1 - (transferred rows + `shared_rows` + sums) / remote accesses: `cache_hits` +
	// `peer_cache_rows` + `fetched_rows` + `shared_rows` + `summed_rows`; with `cache.source:
	// files` all frontier rows, of which `stored_rows` are transferred. 0 if nothing spares any
	HitRate float64 `json:"hit_rate"`
	// remote accesses found in own or peers' caches / remote accesses
	BufferHitRate float64 `json:"buffer_hit_rate"`
	// the phase `score`, summed over ranks
	ScoreSeconds float64 `json:"score_seconds"`
}

// RowsOf makes from counters the numbers that reports show. A row has rowBytes bytes, and a sum
// sumBytes.
func RowsOf(c trace.Counters, rowBytes, sumBytes int) Rows {
	hit, buffer := c.HitRates()
	return Rows{
		Counters: c.Reported(), Fetched: c.Fetched(),
		RemoteBytes: c.Remote*int64(rowBytes) + c.Sums*int64(sumBytes),
		HitRate:     hit, BufferHitRate: buffer, ScoreSeconds: c.Scoring.Seconds(),
	}
}
