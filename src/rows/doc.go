// Package rows is the wing of feature rows that a rank does not own: how often each will be read,
// which of them it keeps, and how it fetches the rest from their owners. It knows vertex numbers
// and bytes, and no layers or labels. It holds no code itself.
//
//	input frontier ── where is each row? ─┬─ own part, or a peer's on this node: read where it lies
//	                        ^             ├─ cache: read from its slot
//	                        │             └─ remote ── ids ──> owner ── rows ──> landed here
//	        scores ──> policy: which rows to keep ────────────────────────────────────┘
//
// Its packages, each of which imports only those above it:
//
//	cache     which rows are held: static sets, prefetch, SIEVE, look-ahead, placement
//	access    how often each vertex will be read: VIP and other rankings
//	policy    the table of cache policies
//	exchange  where the rows of a frontier lie, and fetching the rest
//
// Begin with exchange/exchange.go, exchange/plan.go and exchange/fetch.go, which are the whole of
// an exchange without a cache. Then cache/cache.go has what a policy decides, cache/static.go the
// simplest, and access/vip.go the ranking of policy vip.
package rows
