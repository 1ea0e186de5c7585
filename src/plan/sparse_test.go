package plan

import (
	"errors"
	"strings"
	"testing"

	"halognn/src/dataset"
	"halognn/src/policy"
	"halognn/src/shard/shardtest"
)

// What training refuses of sparse rows is not planned either.
func TestSparseRowsAreNotCached(t *testing.T) {
	graph := generatedOptions
	graph.Vertices = 200
	s := shardtest.Open(t, graph, shardtest.Options{Parts: 2})
	s.FeatureType = dataset.SparseOnes
	for _, name := range []string{policy.Auto, policy.VIP} {
		j := planJob()
		j.Cache.Policy = name
		_, err := New(s, j, given)
		if want := "cache.policy " + name + " cannot be had"; !errors.Is(err, ErrJob) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
