//go:build e2e

package tests

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"halognn/src/runs/config"
)

var (
	cells = flag.Int("cells", 12,
		"how many cells of the matrix TestMatrix trains, drawn at random; 0: all that work")
	mpiCells = flag.Int("cells-mpi", 10, "how many cells, with random settings, "+
		"TestMatrixUnderAnyMPI trains")
)

// Cells of one group have the same digest, with any topology, cache and sums. Hybrid has two nodes
// of two ranks.
func TestMatrix(t *testing.T) {
	unlessShort(t)
	parts := smallParts.dir(t)
	seed := uint64(time.Now().UnixNano())
	digests := map[string]string{}
	train := func(c cell) {
		got := trained(t, parts, 4, c.job()...).LossDigest
		if want, there := digests[c.group()]; there && got != want {
			t.Errorf("seed %d: %v: loss digest %s, others of %q have %s", seed, c, got, c.group(),
				want)
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
		rand.New(rand.NewPCG(seed, 27)).Shuffle(len(work),
			func(i, j int) { work[i], work[j] = work[j], work[i] })
		work = work[:min(*cells, len(work))]
		for _, c := range work { // each is compared with the plainest cell of its group
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

// job returns the settings of a short training.
func (c cell) job() []string {
	node := "run.ranks_per_node=1"
	if c.mode == "hybrid" {
		node = "run.ranks_per_node=2"
	}
	return append(c.sets(), "model.layers=2", "sample.fanouts=5,3", "train.epochs=1",
		"train.eval_every=0", "cache.initial=degree", "cache.alpha=0.3", node)
}

// Cells drawn at random, with settings beyond those of the page, have the same digest under MPI as
// the plainest cell of their group has in process.
func TestMatrixUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 28))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	all, digests := matrix(), map[string]string{}
	taken := func(c cell, more []string) bool {
		_, err := config.WithDefaults(append(c.job(), more...))
		return err == nil
	}
	for n := 0; n < *mpiCells; {
		c, parts := all[random.IntN(len(all))], smallParts
		numbers := []string{"sample.seeds=" + one("local", "global"), "model.norm=" + one("none",
			"layer", "batch"), "sample.streams=" + one("rank", "rank", "part")}
		if weighs := slices.Contains([]string{"sage mean", "gcn", "gin"}, c.model); weighs &&
			random.IntN(2) == 0 {
			parts, numbers = weightedParts, append(numbers, "model.edge_weights=true")
		}
		plumbing := append(slices.Clone(numbers), "cache.placement="+one("own", "group"))
		plain := cell{c.mode, "replicated", c.model, c.sampler, "none", "off"}
		if !taken(c, plumbing) || !taken(plain, numbers) {
			continue
		}
		n++
		key := fmt.Sprint(c.group(), parts.name, numbers)
		if digests[key] == "" {
			digests[key] = trained(t, parts.dir(t), 4,
				append(plain.job(), numbers...)...).LossDigest
		}
		got := trainedMPI(t, parts.dir(t), 4, append(c.job(), plumbing...)...).LossDigest
		if got != digests[key] {
			t.Errorf("seed %d: %v with %v: loss digest %s, in process without plumbing %s", seed, c,
				plumbing, got, digests[key])
		}
	}
}
