package config

import (
	"slices"
	"strings"
	"testing"

	"halognn/src/rows/policy"
)

// A default policy that is not possible is replaced; a policy that was set is not.
func TestDefaultPolicy(t *testing.T) {
	for _, tc := range []struct {
		text string
		sets []string
		want string // policy, or an error
	}{
		{"", nil, "lookahead"},
		{"cache: {placement: own}\n", nil, "lookahead"},
		{"cache: {placement: group}\n", nil, "vip"},
		{"", []string{"cache.placement=group"}, "vip"},
		{"cache: {placement: group, policy: degree}\n", nil, "degree"},
		{"cache: {source: files}\n", nil, "vip"},
		{"cache: {placement: group}\n", []string{"cache.policy=oracle"}, "oracle"},
		{
			"cache: {placement: group, policy: lookahead}\n", nil,
			"which cannot be combined with cache.policy lookahead",
		},
		{"sample: {kind: poisson}\n", nil, "lookahead"},
		{"sample: {kind: poisson, locality: 2}\n", nil, "vip"},
		{"sample: {kind: ladies, locality: 2}\n", nil, "sim"},
		{"sample: {kind: ladies}\n", nil, "lookahead"},
		{"sample: {kind: ladies, locality: 2}\ncache: {source: files}\n", nil, "sim"},
		{"cache: {policy: prefetch}\n", nil, "prefetch"},
		{"cache: {gamma: 0.9}\n", nil, "lookahead"},
		{"model: {learned: 64}\n", nil, "none"},
		{"", []string{"model.learned=64"}, "none"},
		{"model: {learned: 64}\n", []string{"cache.policy=vip"}, "vip"},
	} {
		c, err := Load(writeConfig(t, minimal+tc.text), tc.sets)
		switch {
		case err != nil && !strings.Contains(err.Error(), tc.want):
			t.Errorf("%q %q: %v, want %s", tc.text, tc.sets, err, tc.want)
		case err == nil && c.Job.Cache.Policy != tc.want:
			t.Errorf("%q %q: policy %s, want %s", tc.text, tc.sets, c.Job.Cache.Policy, tc.want)
		}
	}
}

// A key that the policy does not read gives a note that names the policies that read it.
func TestKeysThatThePolicyDoesNotRead(t *testing.T) {
	for _, tc := range []struct{ sets, want string }{ // keys below cache, and beginnings of notes
		{"", ""},
		{"gamma=0.995 delta=32", ""}, // their defaults
		{"gamma=0.9 delta=16",
			"gamma is 0.9, but cache.policy is lookahead, which does not read it; " +
				"choose prefetch, or leave the key out|delta is 16, but cache.policy is lookahead"},
		{"policy=prefetch gamma=0.9 delta=16 evict=false initial=vip scores=dense halo_hops=1", ""},
		{"policy=prefetch window=3",
			"window is 3, but cache.policy is prefetch, which does not read it; " +
				"choose lookahead or auto, or leave the key out"},
		{"window=3 level=true", ""},
		{"policy=auto window=3 evict=false", "evict is false, but cache.policy is auto"},
		{"policy=vip halo_hops=1", "halo_hops is 1, but cache.policy is vip"},
	} {
		var sets, wants []string
		for _, s := range strings.Fields(tc.sets) {
			sets = append(sets, "cache."+s)
		}
		if tc.want != "" {
			wants = strings.Split(tc.want, "|")
		}
		c, err := Load(writeConfig(t, minimal), sets)
		if err != nil {
			t.Fatal(err)
		}
		notes := c.Unread()
		if len(notes) != len(wants) {
			t.Errorf("%q: notes %q, want %q", tc.sets, notes, wants)
			continue
		}
		for i, want := range wants {
			if !strings.HasPrefix(notes[i], "cache."+want) {
				t.Errorf("%q: note %q, want %q", tc.sets, notes[i], want)
			}
		}
	}
	for _, name := range policy.Names(nil) {
		for _, read := range policy.Find(name).Reads {
			if key := "cache." + read; find(Default().keys(), key) == nil {
				t.Errorf("%s reads %s, which is no key", name, key)
			} else if !slices.Contains(Readers(key), name) {
				t.Errorf("%s reads %s, but is not among %v", name, key, Readers(key))
			}
		}
	}
}

func TestDefaultsOfWhatIsPrinted(t *testing.T) {
	for set, want := range map[string]string{
		"cache.alpha=0.2": "lookahead", "cache.placement=group": "vip",
		"cache.policy=sieve": "sieve",
	} {
		c, err := WithDefaults([]string{set})
		if err != nil || c.Job.Cache.Policy != want {
			t.Errorf("%s: policy %s (%v), want %s", set, c.Job.Cache.Policy, err, want)
		}
	}
}

// Where all ranks share minibatches there is nothing to cache, and there are more rounds to hide.
func TestDefaultsOfSharers(t *testing.T) {
	for _, c := range []struct {
		sets   []string
		policy string
		depth  int
		fault  string
	}{
		{[]string{"parallel.mode=split"}, policy.None, 4, ""},
		{[]string{"parallel.mode=split", "cache.policy=none"}, policy.None, 4, ""},
		{[]string{"parallel.mode=split", "pipeline.depth=2"}, policy.None, 2, ""},
		{[]string{"parallel.mode=split", "topology.kind=partitioned"}, policy.None, 4, ""},
		{[]string{"parallel.mode=data"}, policy.Lookahead, 2, ""},
		{[]string{"parallel.mode=push-pull"}, policy.None, 2, ""},
		{[]string{"parallel.mode=push-pull", "topology.kind=partitioned"}, policy.None, 2, ""},
		{[]string{"parallel.mode=push-pull", "sample.kind=poisson", "model.kind=gcn",
			"model.aggregation=max"}, policy.None, 2, ""}, // which gcn ignores
		{[]string{"parallel.mode=push-pull", "model.aggregation=max"}, "", 0,
			"cannot be combined with model.kind sage with model.aggregation max"},
		{[]string{"parallel.mode=push-pull", "cache.policy=sieve"}, "", 0,
			"parallel.mode is push-pull, which cannot be combined with cache.policy sieve"},
		{[]string{"parallel.mode=push-pull", "cache.source=files"}, "", 0,
			"choose cache.source=owners"},
		{[]string{"parallel.mode=split", "cache.policy=sieve"}, "", 0,
			"parallel.mode is split, which cannot be combined with cache.policy sieve"},
		{[]string{"parallel.mode=split", "cache.source=files"}, "", 0,
			"choose cache.source=owners"},
		{[]string{"parallel.mode=hybrid"}, policy.Lookahead, 4, ""},
		{[]string{"parallel.mode=hybrid", "sample.kind=poisson"}, policy.Lookahead, 4, ""},
		{[]string{"parallel.mode=hybrid", "cache.policy=none"}, policy.None, 4, ""},
		{[]string{"parallel.mode=hybrid", "cache.policy=prefetch"}, policy.Prefetch, 4, ""},
		{[]string{"parallel.mode=hybrid", "cache.policy=auto"}, policy.Auto, 4, ""},
		{[]string{"topology.kind=partitioned"}, policy.Lookahead, 2, ""},
		{[]string{"parallel.mode=hybrid", "cache.policy=halo1", "cache.halo_fraction=0.5"},
			policy.Halo1, 4, ""},
		{[]string{"parallel.mode=hybrid", "cache.placement=group"}, "", 0,
			"choose cache.placement=own"},
		{[]string{"parallel.mode=hybrid", "cache.source=files"}, "", 0,
			"choose cache.source=owners"},
		{[]string{"parallel.mode=hybrid", "topology.kind=partitioned"}, policy.Lookahead, 4, ""},
	} {
		got, err := Load(writeConfig(t, minimal), c.sets)
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v: %v, want %q", c.sets, err, c.fault)
			}
		case err != nil:
			t.Errorf("%v: %v", c.sets, err)
		case got.Job.Cache.Policy != c.policy || got.Job.Depth != c.depth:
			t.Errorf("%v: policy %s, depth %d; want %s, %d", c.sets, got.Job.Cache.Policy,
				got.Job.Depth, c.policy, c.depth)
		}
	}
}
