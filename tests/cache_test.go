//go:build e2e

package tests

import (
	"testing"
)

// A cache changes traffic, never a number: hits plus fetched rows equal the rows fetched without a
// cache.
func TestCachesChangeOnlyTraffic(t *testing.T) {
	unlessShort(t)
	dir := smallParts.dir(t)
	for _, ranks := range []int{4, 2} {
		want := trained(t, dir, ranks, "run.ranks_per_node=1")
		if want.Remote == 0 || want.Cached != 0 {
			t.Fatalf("%d ranks without a cache: %d remote rows, %d hits", ranks, want.Remote,
				want.Cached)
		}
		fetched := map[string]int64{}
		for _, policy := range []string{"degree", "halo1", "wpr", "paths", "sim", "vip",
			"inclusion", "oracle"} {
			if ranks == 2 && policy != "vip" && policy != "oracle" {
				continue // were tried with 4 ranks
			}
			got := trained(t, dir, ranks, "run.ranks_per_node=1", "cache.policy="+policy,
				"cache.alpha=0.2")
			sameNumbers(t, got, want)
			// Both numbers are means over epochs, rounded down.
			if sum := got.Cached + got.Remote; got.Cached == 0 || sum > want.Remote ||
				sum < want.Remote-1 {
				t.Errorf("%d ranks, %s: %d hits and %d rows fetched, want %d together", ranks,
					policy, got.Cached, got.Remote, want.Remote)
			}
			fetched[policy] = got.Remote
		}
		for policy, rows := range fetched { // oracle is the best static cache
			if rows < fetched["oracle"] {
				t.Errorf("%d ranks: %s fetches %d rows, fewer than the oracle's %d", ranks, policy,
					rows, fetched["oracle"])
			}
		}
	}
}

// If all remote rows fit into the cache, nothing is fetched after the first fill.
func TestCacheThatHoldsAllRemoteRows(t *testing.T) {
	got := trained(t, smallParts.dir(t), 2, "run.ranks_per_node=1", "cache.policy=oracle",
		"cache.alpha=4")
	if got.Remote != 0 || got.HitRate != 1 {
		t.Errorf("%d rows fetched, hit rate %v", got.Remote, got.HitRate)
	}
}
