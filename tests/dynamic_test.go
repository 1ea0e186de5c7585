//go:build e2e

package tests

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"halognn/tests/race"
)

// dynamic lists settings of dynamic caches: policies, sizes, windows and scores, combined with
// depths and nodes. A window of 100 is wider than an epoch; a delta of 3 gives several rounds in an
// epoch.
var dynamic = []string{
	"prefetch alpha=0.05 delta=3 depth=0",
	"prefetch alpha=0.3 delta=3 depth=2",
	"prefetch alpha=0.3 delta=2 gamma=0.9 depth=10 per_node=2",
	"prefetch alpha=2 delta=1 depth=1",
	"prefetch halo_fraction=0.3 delta=3 halo_hops=1 depth=4",
	"prefetch alpha=0.3 delta=3 initial=vip depth=3",
	"prefetch alpha=0.3 delta=3 evict=false depth=2",
	"sieve alpha=0.05 depth=0",
	"sieve alpha=0.3 depth=2 per_node=2",
	"sieve alpha=2 depth=10",
	"lookahead alpha=0.05 window=1 depth=0",
	"lookahead alpha=0.3 window=1 depth=3",
	"lookahead alpha=0.3 window=3 depth=2 per_node=2",
	"lookahead alpha=0.3 window=100 depth=0",
	"lookahead alpha=0.1 window=100 depth=10",
	"lookahead alpha=0.3 depth=1",
	"lookahead alpha=2 window=4 depth=2",
	"lookahead alpha=0 window=4 depth=2",
}

// dynamicSets converts a line of dynamic to settings.
func dynamicSets(line string) (sets []string, perNode int) {
	words := strings.Fields(line)
	sets, perNode = []string{"cache.policy=" + words[0]}, 1
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "depth":
			sets = append(sets, "pipeline.depth="+value)
		case "per_node":
			perNode, _ = strconv.Atoi(value)
		default:
			sets = append(sets, "cache."+w)
		}
	}
	return append(sets, fmt.Sprint("run.ranks_per_node=", perNode)), perNode
}

// Dynamic caches change no number, whatever their window and the depth of the pipeline. Their hits
// and misses add up to the rows fetched without a cache, and every fetched row is accounted for.
func TestDynamicCachesChangeOnlyTraffic(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			none := map[int]*outcome{}
			for _, perNode := range []int{1, 2} {
				none[perNode] = trained(t, smallParts.dir(t), ranks, "cache.policy=none",
					fmt.Sprint("run.ranks_per_node=", perNode))
			}
			for i, line := range dynamic {
				// fewer lines, but still every policy
				if ranks == 2 && i%2 == 1 || race.Detector && i%3 > 0 {
					continue
				}
				t.Run(line, func(t *testing.T) {
					t.Parallel()
					sets, perNode := dynamicSets(line)
					want := none[perNode]
					got := trained(t, smallParts.dir(t), ranks, sets...)
					sameNumbers(t, got, want)
					for i, e := range got.epochs {
						if need := want.epochs[i].Remote; e.Cached+e.Fetched != need ||
							e.Remote != e.Fetched+e.Replaced+e.Early ||
							e.Local != want.epochs[i].Local || e.Peer != want.epochs[i].Peer {
							t.Errorf("epoch %d: %+v; without a cache %+v", e.Epoch, e,
								want.epochs[i])
						}
					}
					// 3000 vertices, 16 features
					if rows := int64(got.Cache.Capacity); got.Cache.Alpha > 0 &&
						ranks/perNode > 1 &&
						(rows != min(int64(got.Cache.Alpha*3000/float64(ranks)), 3000) ||
							got.Cache.Bytes != rows*16*4) {
						t.Errorf("%d rows in %d bytes for alpha %g", rows, got.Cache.Bytes,
							got.Cache.Alpha)
					}
					// the cache has room for every remote row
					if strings.Contains(line, "alpha=2 ") && got.HitRate < 0.4 {
						t.Errorf("hit rate %g", got.HitRate)
					}
				})
			}
		})
	}
}

// simulate counts the same rows for a dynamic cache as training fetches.
func TestSimulatedDynamicTrafficIsThatOfTraining(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	for _, c := range []struct {
		policy string
		sets   []string
	}{
		{"prefetch", []string{"cache.delta=3"}},
		{"prefetch", []string{"cache.delta=1", "cache.gamma=0.9"}},
		{"prefetch", []string{"cache.evict=false"}},
		{"prefetch", []string{"cache.delta=2", "cache.initial=vip", "cache.halo_hops=1"}},
		{"sieve", nil},
		{"sieve", []string{"run.ranks_per_node=2"}},
		{"lookahead", nil},
		{"lookahead", []string{"cache.window=1", "cache.level=true"}},
		{"lookahead", []string{"cache.window=100"}},
		{"lookahead", []string{"sample.streams=part", "cache.window=3"}},
		{"lookahead", []string{"sample.seeds=global"}},
		{"lookahead", []string{"sample.batch_scope=global", "train.eval_every=1"}},
		{"prefetch", []string{"cache.evict=false", "cache.initial=inclusion",
			"sample.streams=part"}},
		{"vip", []string{"sample.seeds=global"}},
		{"inclusion", []string{"sample.seeds=global", "sample.streams=part"}},
		{"vip", []string{"sample.streams=part", "run.ranks_per_node=2"}},
	} {
		t.Run(fmt.Sprint(c.policy, " ", c.sets), func(t *testing.T) {
			t.Parallel()
			args := []string{"--parts", parts, "--ranks", "4", "--epochs", "2", "--policies",
				c.policy, "--alphas", "0.05,0.3"}
			for _, set := range append([]string{"sample.fanouts=5,3", "model.layers=2",
				"sample.batch=96", "train.seed=7"}, c.sets...) {
				args = append(args, "--set", set)
			}
			got := simulated(t, args...)
			for alpha, depth := range map[string]string{"0.05": "3", "0.3": "0"} {
				run := trained(t, parts, 4,
					append([]string{"run.ranks_per_node=1", "train.seed=7",
						"cache.policy=" + c.policy,
						"cache.alpha=" + alpha, "pipeline.depth=" + depth}, c.sets...)...)
				var want int64
				for _, e := range run.epochs {
					want += e.Remote
				}
				if rows := got[c.policy+" "+alpha]; rows != want || want == 0 {
					t.Errorf("alpha %s, depth %s: %d rows simulated, %d fetched by training",
						alpha, depth, rows, want)
				}
			}
		})
	}
}

// By default a run uses lookahead; if the ranks of a node share their caches, it uses a static
// policy. A note names keys that are set but not read.
func TestDefaultCache(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	run := func(sets ...string) *outcome {
		dir := newRunDir(t)
		args := []string{"train", "--config", baseFile.dir(t), "--ranks-in-process", "4"}
		for _, s := range append([]string{"data.parts=" + parts, "run.dir=" + dir}, sets...) {
			args = append(args, "--set", s)
		}
		return outcomeOf(t, dir, halognn(t).must(t, args...))
	}
	none := trained(t, parts, 4, "run.ranks_per_node=1")
	got := run("run.ranks_per_node=1")
	sameNumbers(t, got, none)
	if got.CachePolicy != "lookahead" || strings.Contains(got.notes, "cache.") {
		t.Errorf("policy %s, notes %q", got.CachePolicy, got.notes)
	}
	for _, policy := range []string{"prefetch", "sieve", "vip", "inclusion", "oracle"} {
		o := trained(t, parts, 4, "run.ranks_per_node=1", "cache.policy="+policy)
		if o.Remote <= got.Remote {
			t.Errorf("%s transfers %d rows, the default %d", policy, o.Remote, got.Remote)
		}
	}
	got = run("run.ranks_per_node=1", "cache.gamma=0.9")
	want := "cache.gamma is 0.9, but cache.policy is lookahead, which does not read it"
	if got.CachePolicy != "lookahead" || !strings.Contains(got.notes, want) {
		t.Errorf("policy %s, notes %q, want %q", got.CachePolicy, got.notes, want)
	}
	shared := run("run.ranks_per_node=2", "cache.placement=group")
	sameNumbers(t, shared, trained(t, parts, 4, "run.ranks_per_node=2"))
	if shared.CachePolicy != "vip" || shared.Cache == nil || shared.Cache.Policy != "vip" {
		t.Errorf("a cache of the ranks of a node has policy %s", shared.CachePolicy)
	}
}
