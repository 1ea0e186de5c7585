package trace

import (
	"fmt"
	"time"
)

// Counters count the rows, cache decisions and messages of minibatches, on one rank or several. The
// exchange, the decisions of a cache, and the simulation count them where they occur. Rows are
// vertices of the frontier unless said otherwise:
//
//	Frontier = Local + Cached + Peer + Stored + Remote - Early - Replaced + Summed
//	sum over ranks of Remote = sum over ranks of Served
//	sum over ranks of Sums = sum over ranks of ServedSums
//	sum over ranks of RowBytes = sum over ranks of Remote x bytes of a row + Sums x bytes of a sum
//
// Bytes are what a rank handed to the transport to send, counted from the sizes given to it.
type Counters struct {
	Frontier int64 // vertices whose rows are needed
	Local    int64 // in this rank's own parts
	Cached   int64 // in the cache, among this rank's own rows
	Peer     int64 // in parts or caches of peers, read from shared memory
	Remote   int64 // requested from their owners, Early and Replaced ones included
	Early    int64 // of Remote: not read by the frontier, fetched ahead of their use
	Served   int64 // rows that this rank sent to others

	Summed     int64 // never at hand: read by their owners, for Sums
	Sums       int64 // of rows, requested from the owners of these rows
	ServedSums int64 // that this rank sent to others
	// rows that this rank read for others: those that it sent, and those that it added, as often
	ServedReads int64

	PeerCached int64 // of Peer: in caches
	Stored     int64 // read from the files that all ranks map, because no cache holds them

	Rounds     int64 // collectives started: counts, ids, rows, one each, and those of Sampling
	CountBytes int64 // counts sent, one for each rank
	IDBytes    int64 // ids sent
	RowBytes   int64 // rows and sums sent

	Evictions    int64         // rows of the cache that were overwritten
	Replacements int64         // rows that entered it in eviction rounds
	Scoring      time.Duration // time that the policy took

	// Replaced are rows of Remote that enter the cache in an eviction round and that the frontier
	// does not read. The exchange does not know the policy and counts them as Early; see Replacing.
	Replaced int64

	Sampling Sampling // of drawing the minibatches; of the others only Rounds includes it

	Edges  int64 // sampled edges of the blocks that this rank computes
	Loaded int64 // feature rows that it reads, each once for a minibatch

	// of ranks that share minibatches or hold columns; of the others only Rounds includes it
	Shuffle Shuffles
}

// Shuffles counts what ranks that share minibatches send each other besides vertices: rows of
// features, hidden rows, and their gradients; and ranks that hold columns: partial sums and their
// gradients.
//
//	sum over ranks of Bytes = sum over ranks of Got
type Shuffles struct {
	Rows   int64 // received
	Bytes  int64 // handed to the transport, counted from the sizes given to it
	Got    int64 // of the rows received, by the shuffle index
	Rounds int64 // collectives started between two layers, and to pass feature rows on
}

// Sampling counts what drawing minibatches from a partitioned topology has cost, and sending input
// hops to ranks that hold columns.
//
//	sum over ranks of Asked = sum over ranks of Answered
type Sampling struct {
	Asked    int64 // vertices, over all hops, for which other ranks were asked to draw
	Answered int64 // vertices for which this rank drew for others
	Drawn    int64 // neighbours that came back
	Rounds   int64 // collectives started: counts, ids, sizes and neighbours are one each
	Bytes    int64 // sent in them
}

// Check returns an error, which means a bug, unless the rows of one plan for so many vertices add
// up.
func (c *Counters) Check(frontier int) error {
	if c.Frontier == c.Local+c.Cached+c.Peer+c.Stored+c.Remote-c.Early-c.Replaced+c.Summed &&
		c.Frontier == int64(frontier) {
		return nil
	}
	return fmt.Errorf("rows do not add up: frontier %d, local %d, cached %d, peer %d, stored %d, "+
		"remote %d; this is a bug in halognn", frontier, c.Local, c.Cached, c.Peer, c.Stored,
		c.Remote)
}

// Add adds o to c.
func (c *Counters) Add(o Counters) {
	c.Frontier += o.Frontier
	c.Local += o.Local
	c.Cached += o.Cached
	c.Peer += o.Peer
	c.Remote += o.Remote
	c.Early += o.Early
	c.Served += o.Served
	c.PeerCached += o.PeerCached
	c.Stored += o.Stored
	c.Summed += o.Summed
	c.Sums += o.Sums
	c.ServedSums += o.ServedSums
	c.ServedReads += o.ServedReads
	c.Rounds += o.Rounds
	c.CountBytes += o.CountBytes
	c.IDBytes += o.IDBytes
	c.RowBytes += o.RowBytes
	c.Evictions += o.Evictions
	c.Replacements += o.Replacements
	c.Scoring += o.Scoring
	c.Replaced += o.Replaced
	c.Sampling.Asked += o.Sampling.Asked
	c.Sampling.Answered += o.Sampling.Answered
	c.Sampling.Drawn += o.Sampling.Drawn
	c.Sampling.Rounds += o.Sampling.Rounds
	c.Sampling.Bytes += o.Sampling.Bytes
	c.Edges += o.Edges
	c.Loaded += o.Loaded
	c.Shuffle.Rows += o.Shuffle.Rows
	c.Shuffle.Bytes += o.Shuffle.Bytes
	c.Shuffle.Got += o.Shuffle.Got
	c.Shuffle.Rounds += o.Shuffle.Rounds
}

// Per returns an n-th of c, rounded down.
func (c Counters) Per(n int64) Counters {
	return Counters{
		Frontier: c.Frontier / n, Local: c.Local / n, Cached: c.Cached / n, Peer: c.Peer / n,
		Remote: c.Remote / n, Early: c.Early / n, Served: c.Served / n, PeerCached: c.PeerCached / n,
		Stored: c.Stored / n, Summed: c.Summed / n, Sums: c.Sums / n, ServedSums: c.ServedSums / n,
		ServedReads: c.ServedReads / n,
		Rounds:      c.Rounds / n, CountBytes: c.CountBytes / n, IDBytes: c.IDBytes / n,
		RowBytes:  c.RowBytes / n,
		Evictions: c.Evictions / n, Replacements: c.Replacements / n,
		Scoring:  c.Scoring / time.Duration(n),
		Replaced: c.Replaced / n,
		Sampling: Sampling{
			Asked: c.Sampling.Asked / n, Answered: c.Sampling.Answered / n,
			Drawn:  c.Sampling.Drawn / n,
			Rounds: c.Sampling.Rounds / n, Bytes: c.Sampling.Bytes / n,
		},
		Edges: c.Edges / n, Loaded: c.Loaded / n,
		Shuffle: Shuffles{
			Rows: c.Shuffle.Rows / n, Bytes: c.Shuffle.Bytes / n, Got: c.Shuffle.Got / n,
			Rounds: c.Shuffle.Rounds / n,
		},
	}
}

// Replacing returns the counters of a policy with eviction rounds: Early rows become Replaced.
func (c Counters) Replacing() Counters {
	c.Replaced, c.Early = c.Replaced+c.Early, 0
	return c
}

// Fetched returns the remote rows that the frontier reads: misses of the cache.
func (c Counters) Fetched() int64 { return c.Remote - c.Early - c.Replaced }

// Accesses returns how many remote vertices the frontier reads, in caches or not.
func (c Counters) Accesses() int64 {
	return c.Cached + c.PeerCached + c.Stored + c.Fetched() + c.Summed
}

// HitRates returns 1 - transferred rows and sums / remote accesses, and the share of remote accesses
// found in a cache: MassiveGNN's hit rate (eq. 8), which counts misses alone. Rows read from the files
// count as transferred. Both are 0 without accesses.
func (c Counters) HitRates() (hit, buffer float64) {
	hits, accesses := c.Cached+c.PeerCached, c.Accesses()
	if accesses == 0 {
		return 0, 0
	}
	return 1 - float64(c.Stored+c.Remote+c.Sums)/float64(accesses), float64(hits) / float64(accesses)
}
