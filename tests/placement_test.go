//go:build e2e

package tests

import (
	"fmt"
	"os"
	"testing"
)

// The ranks of a node share their caches: a row that one rank holds need not be in the others, so
// fewer rows are fetched. No number changes.
func TestCachesOfANodeAreShared(t *testing.T) {
	unlessShort(t)
	if _, err := os.Stat("/dev/shm"); err != nil {
		t.Skipf("no shared memory: %v", err)
	}
	dir := smallParts.dir(t)
	for _, nodes := range []int{1, 2, 4} {
		node := fmt.Sprintf("run.ranks_per_node=%d", 4/nodes)
		none := trained(t, dir, 4, node)
		for _, policy := range []string{"vip", "degree", "oracle"} {
			// with one rank a node no cache is shared, and on one node no row is remote
			if nodes == 4 && policy != "vip" || nodes == 1 && policy == "degree" {
				continue
			}
			run := func(placement string, sets ...string) *outcome {
				got := trained(t, dir, 4,
					append(sets, node, "cache.policy="+policy, "cache.alpha=0.2",
						"cache.placement="+placement)...)
				sameNumbers(t, got, none)
				for i, e := range got.epochs {
					owned := e.Peer - e.PeerCached // rows that peers own
					if found := e.Cached +
						e.PeerCached; found+e.Remote != none.epochs[i].Remote ||
						owned != none.epochs[i].Peer {
						t.Errorf("%d nodes, %s, %s, epoch %d: %d rows found, %d fetched, %d "+
							"owned by peers, want %d together and %d", nodes, policy,
							placement, e.Epoch, found, e.Remote, owned, none.epochs[i].Remote,
							none.epochs[i].Peer)
					}
				}
				return got
			}
			own, group, same := run("own"), run("group", "cache.peer_cost=0"),
				run("group", "cache.peer_cost=1")
			if own.PeerCached != 0 {
				t.Errorf("%d nodes, %s: %d rows from peers' caches, though none are shared", nodes,
					policy, own.PeerCached)
			}
			// what the ranks keep on their own may be as good together, by chance
			if policy == "degree" {
				continue
			}
			switch several := nodes == 2; {
			case several && (group.PeerCached == 0 || group.Remote >= own.Remote):
				t.Errorf("%s: %d rows from peers' caches, %d fetched; %d without sharing", policy,
					group.PeerCached, group.Remote, own.Remote)
			case several && same.PeerCached != 0: // all ranks hold the same rows
				t.Errorf("%s: replicated, but %d rows from peers' caches", policy, same.PeerCached)
			case !several && (group.PeerCached != 0 || group.Remote != own.Remote ||
				same.Remote != own.Remote):
				t.Errorf("%d nodes, %s: %d and %d fetched, %d without sharing", nodes, policy,
					group.Remote, same.Remote, own.Remote)
			}
		}
	}
}
