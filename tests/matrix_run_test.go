//go:build e2e

package tests

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var cells = flag.Int("cells", 12,
	"how many cells of docs/combinations.md TestMatrix trains, drawn at random; 0: all that work")

// Cells of one group have one digest, whatever the topology, the cache and the sums. Hybrid has two
// nodes of two ranks.
func TestMatrix(t *testing.T) {
	unlessShort(t)
	parts := smallParts.dir(t)
	common := []string{"model.layers=2", "sample.fanouts=5,3", "train.epochs=1", "train.eval_every=0",
		"cache.initial=degree", "cache.alpha=0.3"}
	digests := map[string]string{}
	train := func(c cell) {
		node := "run.ranks_per_node=1"
		if c.mode == "hybrid" {
			node = "run.ranks_per_node=2"
		}
		got := trained(t, parts, 4, append(append(c.sets(), common...), node)...).LossDigest
		if want, there := digests[c.group()]; there && got != want {
			t.Errorf("%v: loss digest %s, others of %q have %s", c, got, c.group(), want)
		}
		digests[c.group()] = got
	}
	var work []cell
	for _, c := range matrix() {
		if c.refused(t) == "" {
			work = append(work, c)
		}
	}
	if *cells > 0 {
		rand.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
		work = work[:min(*cells, len(work))]
		for _, c := range work { // each beside the plainest of its group
			plain := cell{c.mode, "replicated", c.model, c.sampler, "none", "off"}
			if plain.refused(t) == "" {
				train(plain)
			}
		}
	}
	for _, c := range work {
		train(c)
	}
	t.Logf("%d cells in %d groups have one digest each", len(work), len(digests))
}
