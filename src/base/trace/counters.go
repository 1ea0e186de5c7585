package trace

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"
)

// Counters count the rows, cache decisions and messages of minibatches, on one rank or several. The
// exchange, the decisions of a cache, and the simulation count them where they occur. Rows are
// vertices of the frontier unless said otherwise:
//
//	Frontier = Local + Cached + Peer + Stored + Remote - Early - Replaced + Shared + Summed
//	sum over ranks of Remote = sum over ranks of Served
//	sum over ranks of Sums = sum over ranks of ServedSums
//	sum over ranks of RowBytes = sum over ranks of Remote x bytes of a row + Sums x bytes of a sum
//
// Bytes are what a rank handed to the transport to send, counted from the sizes given to it.
//
// A counter is declared here alone: a field of 64 bits, its key in reports and checkpoints, and its
// meaning as docs/metrics.md has it. Those with omitzero are in checkpoints, and not in reports.
type Counters struct {
	// vertices whose rows are needed
	Frontier int64 `json:"frontier_rows,omitzero"`
	// input rows owned by the rank; per epoch, summed over ranks
	Local int64 `json:"local_rows"`
	// rows in the rank's own cache
	Cached int64 `json:"cache_hits"`
	// rows of another rank of the node, from its mapped file or its cache (`cache.placement:
	// group`)
	Peer int64 `json:"peer_rows"`
	// part of `peer_rows`: rows from a peer's cache, owned outside the node
	PeerCached int64 `json:"peer_cache_rows"`
	// rows read from files because no cache holds them (`cache.source: files`)
	Stored int64 `json:"stored_rows"`
	// rows fetched by eviction rounds of `prefetch`, to keep
	Replaced int64 `json:"replacement_rows"` // by exchange, which knows no policy, as Early
	// rows fetched a step early (`cache.level`)
	Early int64 `json:"early_rows"`
	// rows received from other nodes: the two above and `fetched_rows`
	Remote int64 `json:"remote_rows"`
	// rows that another rank of the node fetched in the same step (`exchange.nodes`), without early
	// ones
	Shared int64 `json:"shared_rows"`
	// bytes within nodes for shared rows of any kind: all rows passed on, a bit or two for each, 4
	// for each id, 8 for each count
	NodeBytes int64 `json:"node_bytes"`
	// remote rows never received: their owners added them (`exchange.sums`)
	Summed int64 `json:"summed_rows"`
	// vectors that came instead
	Sums int64 `json:"sum_vectors"`
	// bytes of the ids sent for that, 4 each, and of weights of members of sums; where nodes fetch
	// as one those that rank 0 sent in a step; of rows of several widths bytes that came for them
	IDBytes int64 `json:"id_bytes"`

	// where rows have several widths: bytes of the requested rows or, where nodes fetch as one, of
	// the rows that the rank bought for any rank of its node
	AskedBytes int64 `json:"asked_bytes,omitzero"`
	// rows of edge features from other nodes
	EdgeRows int64 `json:"edge_rows"`
	// those that another rank of the node fetched (`exchange.nodes`)
	EdgeShared int64 `json:"shared_edge_rows"`
	// bytes of `edge_rows`, and of 4 a position asked for
	EdgeBytes int64 `json:"edge_bytes"`

	// rows that this rank sent to others
	Served int64 `json:"served_rows,omitzero"`
	// sums that it sent to others
	ServedSums int64 `json:"served_sums,omitzero"`
	// rows that this rank read for others: those that it sent, and those that it added, as often
	ServedReads int64 `json:"read_for_others,omitzero"`
	// collectives started: ids with their counts, rows, one each; those of Sampling and Shuffles
	Collectives int64 `json:"collectives,omitzero"`
	// counts sent, one for each rank that is asked
	CountBytes int64 `json:"count_bytes,omitzero"`
	// rows and sums sent
	RowBytes int64 `json:"row_bytes,omitzero"`

	// rows that a dynamic cache overwrote
	Evictions int64 `json:"evictions"`
	// rows that entered a `prefetch` buffer: `replacement_rows` and kept misses
	Replacements int64 `json:"replacements"`
	// time that the policy took
	Scoring time.Duration `json:"score_nanoseconds,omitzero"`

	Sampling

	// sampled edges of the computed blocks
	Edges int64 `json:"computed_edges"`
	// feature rows read, once for a minibatch and rank, or once for a shared minibatch; with
	// `push-pull` columns of them
	Loaded int64 `json:"loaded_rows"`

	Shuffles
}

// Sampling counts what drawing minibatches from a partitioned topology has cost, and sending input
// hops to ranks that hold columns.
//
//	sum over ranks of Asked = sum over ranks of Answered
type Sampling struct {
	// with `topology.kind: partitioned`, `parallel.mode: split` or `hybrid`: frontier vertices that
	// other ranks were asked to draw for, over all hops; with `hybrid` also those of the last hop,
	// and those that other nodes drew for
	Asked int64 `json:"asked_vertices"`
	// vertices for which this rank drew for others
	Answered int64 `json:"answered_vertices,omitzero"`
	// neighbours that came back; neighbours of shared minibatches stay where they are drawn
	Drawn int64 `json:"drawn_neighbours"`
	// collectives started: ids, and neighbours, are one each, with their numbers
	Collectives int64 `json:"sampling_collectives,omitzero"`
	// bytes for that: 4 for each id, neighbour and weight (or place of its edge's features), 1 to 8
	// for the number of neighbours, 16 to each rank; of shared minibatches 4 for each id after each
	// hop, 8 to each rank; with `push-pull` also the input hops
	Bytes int64 `json:"sampling_bytes"`
}

// Shuffles counts what ranks that share minibatches send each other besides vertices: rows of
// features, hidden rows, and their gradients; and ranks that hold columns: partial sums and their
// gradients.
//
//	sum over ranks of Bytes = sum over ranks of Got
type Shuffles struct {
	// rows that ranks sent each other: features, hidden rows and gradients of shared minibatches;
	// partial sums and gradients with `push-pull`; learned rows and gradients
	Rows int64 `json:"shuffled_rows"`
	// with `exchange.sums`: those that are sums of learned rows, or gradients of sums
	Sums int64 `json:"shuffled_sums"`
	// learned rows that another rank of the node fetched (`exchange.nodes`)
	Shared int64 `json:"shared_learned_rows"`
	// bytes of `shuffled_rows`; of learned rows also ids and a bit a row
	Bytes int64 `json:"shuffle_bytes"`
	// learned rows and sums of `shuffled_rows` that training waited for, as a step under way
	// changed them
	Late int64 `json:"late_rows"`
	// bytes of `late_rows`
	LateBytes int64 `json:"late_bytes"`
	// bytes of the rows that ranks received, counted by the receivers
	Got int64 `json:"shuffle_got,omitzero"`
	// collectives started between two layers, and to pass feature rows on
	Collectives int64 `json:"shuffle_collectives,omitzero"`
}

// numCounters is the number of counters. Each must have 64 bits, which TestCountersAreWords checks.
const numCounters = unsafe.Sizeof(Counters{}) / 8

// words returns the counters as an array, for operations on all of them.
func (c *Counters) words() *[numCounters]int64 {
	return (*[numCounters]int64)(unsafe.Pointer(c))
}

// Add adds each counter of o to the same counter of c.
func (c *Counters) Add(o Counters) {
	sum := c.words()
	for i, n := range o.words() {
		sum[i] += n
	}
}

// Per returns all counters divided by n and rounded down.
func (c Counters) Per(n int64) Counters {
	for i := range c.words() {
		c.words()[i] /= n
	}
	return c
}

// Reported returns the counters that appear in reports. The others are set to 0.
func (c Counters) Reported() Counters {
	unreported(reflect.ValueOf(&c).Elem())
	return c
}

func unreported(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Anonymous:
			unreported(v.Field(i))
		case strings.HasSuffix(f.Tag.Get("json"), ",omitzero"):
			v.Field(i).SetInt(0)
		}
	}
}

// Check returns an error unless the rows of a plan add up to the number of vertices in the
// frontier. The error means a bug.
func (c *Counters) Check(frontier int) error {
	if c.Frontier == c.Local+c.Cached+c.Peer+c.Stored+c.Fetched()+c.Shared+c.Summed &&
		c.Frontier == int64(frontier) {
		return nil
	}
	return fmt.Errorf("rows do not add up: %d vertices, frontier %d, local %d, cached %d, "+
		"peer %d, "+
		"stored %d, remote %d, of these %d early and %d replaced, shared %d, summed %d; this is a "+
		"bug in halognn", frontier, c.Frontier, c.Local, c.Cached, c.Peer, c.Stored, c.Remote,
		c.Early, c.Replaced, c.Shared, c.Summed)
}

// Replacing returns the counters for a policy with eviction rounds, for which early rows count as
// replaced.
func (c Counters) Replacing() Counters {
	c.Replaced, c.Early = c.Replaced+c.Early, 0
	return c
}

// Fetched returns the number of remote rows that the frontier reads, which are the misses of the
// cache.
func (c Counters) Fetched() int64 { return c.Remote - c.Early - c.Replaced }

// Accesses returns how many remote vertices the frontier reads, cached or not.
func (c Counters) Accesses() int64 {
	return c.Cached + c.PeerCached + c.Stored + c.Fetched() + c.Shared + c.Summed
}

// HitRates returns two hit rates. The first, hit, is 1 - (transferred rows and sums) / (remote
// accesses). Rows that were read from files, or fetched by another rank of the node, count as
// transferred, because otherwise they would seem to be in a cache. The second, buffer, is the share
// of remote accesses found in a cache: MassiveGNN's hit rate (eq. 8), whose misses are only the
// rows fetched for the frontier. Without accesses both are 0.
func (c Counters) HitRates() (hit, buffer float64) {
	hits, accesses := c.Cached+c.PeerCached, c.Accesses()
	if accesses == 0 {
		return 0, 0
	}
	return 1 - float64(c.Stored+c.Remote+c.Shared+c.Sums)/float64(accesses),
		float64(hits) / float64(accesses)
}
