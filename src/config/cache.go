package config

import (
	"fmt"
	"slices"
	"strings"

	"halognn/src/policy"
)

// settle gives keys that were not set the values that those that were set ask for. A default policy
// that decides step by step gives way to a fixed cache where the ranks of a node are to share one,
// and to one that needs no graph where no rank holds it.
func (c *Config) settle(given func(key string) bool) {
	if c.Cache.Placement == PlacementGroup && !given("cache.policy") {
		c.Cache.Policy = policy.VIP
	}
	if c.Topology.Kind == TopologyPartitioned && !given("cache.policy") {
		c.Cache.Policy = policy.Sieve
	}
}

// autoReads are the keys that only some policies read, and that the run passes on to what it
// chooses; the others are among what it tries.
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

// Unread says which keys of the cache have other values than their defaults, though the policy does
// not read them: whoever set them may have another policy in mind.
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
