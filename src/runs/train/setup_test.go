package train

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"halognn/src/data/rundir"
	"halognn/src/rows/policy"
)

// The set-up before the first step is itemised: the items add up to the total, which is less than
// the time of the run, and ranking and filling appear if there is a cache.
func TestSetUpIsItemised(t *testing.T) {
	shards := generatedIn(t, 12)
	for _, c := range []struct {
		name, policy string
		node         int
		placement    string
		took         []string // items present, of those that a run may lack
	}{
		{"no cache", policy.None, 1, policy.PlacementOwn, nil},
		{"one node", policy.VIP, 2, policy.PlacementOwn, nil},
		{"a static cache", policy.VIP, 1, policy.PlacementOwn, []string{"rank", "predict", "fill"}},
		{"a cache of a node", policy.VIP, 2, policy.PlacementGroup,
			[]string{"rank", "predict", "fill"}},
		{"a buffer", policy.Prefetch, 1, policy.PlacementOwn, []string{"rank", "fill"}},
		{"looking ahead", policy.Lookahead, 1, policy.PlacementOwn,
			[]string{"rank", "predict", "fill"}},
		{"auto", policy.Auto, 1, policy.PlacementOwn, []string{"choose"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := resumable()
			o.Epochs = 1
			o.Cache = policy.Settings{
				Policy: c.policy, Alpha: 0.3, Gamma: 0.9, Delta: 4, Evict: true,
				Initial: policy.Degree, Placement: c.placement, PeerCost: 0.1,
			}
			begun := time.Now()
			j := journey{shards: shards, ranks: 2, node: c.node, dir: t.TempDir()}
			if c.placement == policy.PlacementGroup {
				j.ranks = 4
			}
			j.finished(t, o)
			whole := time.Since(begun).Seconds()
			var s struct {
				Total float64            `json:"setup_seconds"`
				Items map[string]float64 `json:"setup"`
			}
			text, err := os.ReadFile(filepath.Join(j.dir, rundir.SummaryFile))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for item, took := range s.Items {
				sum += took
				// The last three are measured by the caller.
				may := []string{"choose", "rank", "predict", "fill", "launch", "open", "verify"}
				if always := !slices.Contains(may, item); always && took <= 0 {
					t.Errorf("%s took %g s", item, took)
				}
				if want := slices.Contains(c.took, item); slices.Contains(may, item) &&
					c.policy != policy.Auto && (took > 0) != want {
					t.Errorf("%s took %g s", item, took)
				}
			}
			if c.policy == policy.Auto && s.Items["choose"] <= 0 {
				t.Error("nothing was chosen")
			}
			if math.Abs(sum-s.Total) > 1e-3 || s.Total <= 0 || s.Total >= whole {
				t.Errorf("items add up to %g s, setup_seconds is %g, the whole run took %g", sum,
					s.Total, whole)
			}
		})
	}
}
