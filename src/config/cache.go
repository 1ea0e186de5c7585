package config

import (
	"fmt"
	"slices"
	"strings"

	"halognn/src/policy"
	"halognn/src/sample"
)

// settle sets keys that were not given to values that fit the given ones.
func (c *Config) settle(given func(key string) bool) {
	if !given("cache.policy") {
		c.Cache.Policy = c.fittingPolicy()
	}
	if c.shares() && !given("pipeline.depth") {
		c.Pipeline.Depth = sharedDepth
	}
}

// fittingPolicy returns the default policy, or another one where only a static cache is possible or
// of use to sampling by what it holds, or one that needs less: no fanouts, no whole topology.
func (c *Config) fittingPolicy() string {
	drawn := sample.Spec{Kind: sample.Kind(c.Sample.Kind)}
	fixed := c.Cache.Placement != PlacementOwn || c.Cache.Source == SourceFiles ||
		c.Parallel.Mode == ModeHybrid || c.Sample.Locality > 1
	switch {
	case c.Parallel.Mode == ModeSplit || c.Parallel.Mode == ModePushPull:
		return policy.None
	case c.Topology.Kind == TopologyPartitioned:
		return policy.Sieve
	case fixed && drawn.HasFanouts():
		return policy.VIP
	case fixed:
		return policy.Sim
	case !drawn.HasFanouts():
		return policy.Sieve
	}
	return c.Cache.Policy
}

// shares reports whether ranks train minibatches together.
func (c *Config) shares() bool {
	return c.Parallel.Mode == ModeSplit || c.Parallel.Mode == ModeHybrid
}

// sharedDepth is the default of pipeline.depth where ranks draw minibatches together, in two
// collectives for each hop: a shallower pipeline starts them several ticks apart.
const sharedDepth = 4

// autoReads are the keys that only some policies read and that policy auto passes to the policies
// it tries; it chooses the other such keys itself.
var autoReads = []string{"halo_hops", "scores", "window", "level"}

// Readers returns the cache policies that read a key; nil for a key that does not depend on them.
func Readers(key string) []string {
	name, ours := strings.CutPrefix(key, "cache.")
	if !ours {
		return nil
	}
	by := policy.Names(func(p *policy.Policy) bool { return slices.Contains(p.Reads, name) })
	if by != nil && slices.Contains(autoReads, name) {
		by = append(by, policyAuto)
	}
	return by
}

// Unread returns notes on keys of the cache that differ from their defaults but that the policy
// does not read: the user may have intended another policy.
func (c *Config) Unread() (notes []string) {
	defaults := Default().Flat()
	for _, k := range c.keys() {
		by := Readers(k.Name)
		if by == nil || k.flat() == defaults[k.Name] || slices.Contains(by, c.Cache.Policy) {
			continue
		}
		notes = append(notes, fmt.Sprintf(
			"%s is %s, but cache.policy is %s, which does not read it; %s does",
			k.Name, k.flat(), c.Cache.Policy, OrList(by)))
	}
	return notes
}
