package train

import (
	"time"

	"halognn/src/cache"
	"halognn/src/exchange"
)

// tally counts rows and what a cache decided about them.
type tally struct {
	exchange.Counters
	Evictions    int64 // rows that others overwrote
	Replacements int64 // rows that entered in eviction rounds
	Scoring      int64 // nanoseconds that the policy took
}

// tallyOf returns the tally of a minibatch, for which the policy has taken some time.
func tallyOf(c exchange.Counters, d *cache.Decision, scoring time.Duration) tally {
	return tally{c, int64(d.Evictions), int64(d.Replacements), int64(scoring)}
}

func (t *tally) add(o tally) {
	t.Counters.Add(o.Counters)
	t.Evictions += o.Evictions
	t.Replacements += o.Replacements
	t.Scoring += o.Scoring
}

// rowsOf returns what a tally comes to in reports.
func (s *session) rowsOf(t tally) Rows {
	r := Rows{
		Local: t.Local, CacheHits: t.Cached, Peer: t.Peer, PeerCached: t.PeerCached, Fetched: t.Remote - t.Early,
		Remote: t.Remote, RemoteBytes: t.Remote * int64(s.Shards.Meta.RowBytes()),
		Evictions: t.Evictions, Replacements: t.Replacements, ScoreSeconds: float64(t.Scoring) / 1e9,
	}
	if s.cache.Policy().Rounds {
		r.Replacement = t.Early
	} else {
		r.Early = t.Early
	}
	r.HitRate, r.BufferHitRate = r.rates()
	return r
}

// rates returns the hit rate, which charges every row that was transferred, and that of MassiveGNN (eq. 8), which charges misses alone.
func (r *Rows) rates() (hit, buffer float64) {
	hits := r.CacheHits + r.PeerCached
	accesses := hits + r.Fetched
	if accesses == 0 {
		return 0, 0
	}
	return 1 - float64(r.Remote)/float64(accesses), float64(hits) / float64(accesses)
}
