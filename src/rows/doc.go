// Package rows groups the packages about the feature rows that a rank reads and does not own. They
// predict how often each of these rows will be read, decide which of them the rank keeps, and fetch
// the rest from the rows' owners. They handle vertex numbers and bytes, and know no layers or
// labels. The package itself holds no code.
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
// Begin with exchange/exchange.go, exchange/plan.go and exchange/fetch.go, which make up a whole
// exchange without a cache. Then read cache/cache.go, which says what a policy decides,
// cache/static.go, the simplest policy, and access/vip.go, the ranking of policy vip.
package rows
