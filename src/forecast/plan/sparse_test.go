package plan

import (
	"errors"
	"strings"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/data/shard/shardtest"
	"halognn/src/rows/policy"
)

// What training refuses of sparse rows is not planned either, and a cache of bytes of them is.
func TestCachesOfSparseRows(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{Sparse: true}),
		shardtest.Options{Parts: 2})
	for _, name := range []string{policy.Auto, policy.Lookahead} {
		j := planJob()
		j.Cache.Policy = name
		_, err := New(s, j, given)
		if want := "cannot be combined with cache.policy " + name; !errors.Is(err, ErrJob) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	j := planJob()
	j.Cache.Policy, j.Cache.Alpha = policy.VIP, 0.5
	got, err := New(s, j, given)
	if err != nil {
		t.Fatal(err)
	}
	p := got.Traffic
	if fit := int(s.Vertices) / 4; p.Capacity == 0 || p.Capacity > 3*fit || !(p.Rows < p.Reads) {
		t.Errorf("a cache of %d rows, where there is room for %d of mean length, leaves %g of %g",
			p.Capacity, fit, p.Rows, p.Reads)
	}
	if n := len(got.Curve); n == 0 || got.Curve[n-1].Rows > 0.01*p.Reads || got.Suggestion == nil {
		t.Errorf("caches up to all rows of other ranks are %+v, suggested %+v", got.Curve,
			got.Suggestion)
	}

	// A GPU holds none of them but those of minibatches, and turns the weights; what begins with
	// something else than a product gets dense ones.
	j.GPU = &GPU{Memory: 1e9}
	on := planned(t, s, j, givenGPU)
	d := on.Device.Items
	turned := int64(2 * 4 * s.Features * j.Model.Hidden)
	if on.Device.Resident != 0 || d.Of(CachedRows) != 0 || d.Of(InputRows) != 0 ||
		d.Of(trace.MemMinibatches) == 0 || d.Of(trace.MemActivations) < turned {
		t.Errorf("a GPU has %+v", on.Device)
	}
	j.Model.Kind, j.Model.Heads = "gat", 1
	if d := planned(t, s, j, givenGPU).Device.Items; d.Of(InputRows) < int64(4*s.Features*j.Batch) {
		t.Errorf("a GPU has %d bytes of dense rows", d.Of(InputRows))
	}
}
