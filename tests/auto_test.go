//go:build e2e

package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A run that chooses its cache, and changes it between epochs, has the same numbers as a run
// without a cache. It reports its choice and uses it.
func TestAutoChoosesACacheAndChangesNoNumber(t *testing.T) {
	for _, c := range []struct{ ranks, depth int }{{2, 0}, {4, 3}} {
		t.Run(fmt.Sprintf("%d ranks, depth %d", c.ranks, c.depth), func(t *testing.T) {
			t.Parallel()
			sets := []string{"run.ranks_per_node=1", "train.epochs=10", "cache.alpha=0.3",
				fmt.Sprint("pipeline.depth=", c.depth)}
			none := trained(t, smallParts.dir(t), c.ranks, append(sets, "cache.policy=none")...)
			auto := trained(t, smallParts.dir(t), c.ranks, append(sets, "cache.policy=auto")...)
			sameNumbers(t, auto, none)
			if auto.Cache == nil ||
				!slices.Contains([]string{"none", "vip", "prefetch", "lookahead"},
					auto.Cache.Policy) ||
				// look-ahead and vip at least
				!strings.HasPrefix(auto.Cache.Chosen, auto.Cache.Policy) ||
				strings.Count(auto.Cache.Chosen, "rows a step") < 2 {
				t.Fatalf("chosen: %+v", auto.Cache)
			}
			if !strings.Contains(auto.notes, "cache.policy auto chooses "+auto.Cache.Chosen) {
				t.Errorf("the choice is not told:\n%s", auto.notes)
			}
			first, last := auto.epochs[0], auto.epochs[len(auto.epochs)-1]
			// the first trial is the cache that transfers least
			if first.Remote >= none.epochs[0].Remote {
				t.Errorf("the first epoch fetched %d rows, as many as without a cache",
					first.Remote)
			}
			if auto.Cache.Policy != "none" && last.Remote >= none.epochs[9].Remote {
				t.Errorf("with %s the last epoch fetched %d rows, without a cache %d",
					auto.Cache.Policy, last.Remote, none.epochs[9].Remote)
			}
		})
	}
}

// On one node every row is read from memory, so nothing is chosen.
func TestAutoOnOneNode(t *testing.T) {
	t.Parallel()
	o := trained(t, smallParts.dir(t), 2, "cache.policy=auto")
	if o.Cache == nil || !strings.HasPrefix(o.Cache.Chosen, "none: ") || o.Remote != 0 {
		t.Errorf("%+v, %d remote rows", o.Cache, o.Remote)
	}
}
