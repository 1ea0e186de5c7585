package config

import (
	"fmt"
	"slices"

	"halognn/src/access"
	"halognn/src/cache"
)

// settle gives keys that were not set the values that those that were set ask for. A default policy
// that decides step by step gives way to a fixed cache where the ranks of a node are to share one.
func (c *Config) settle(given func(key string) bool) {
	if c.Cache.Placement == PlacementGroup && !given("cache.policy") {
		c.Cache.Policy = access.PolicyVIP
	}
}

// readers are the policies that read a key of the cache, for keys that not every cache reads.
var readers = map[string][]string{
	"cache.halo_hops": {access.PolicyDegree, access.PolicyPaths, cache.NamePrefetch, policyAuto},
	"cache.gamma":     {cache.NamePrefetch},
	"cache.delta":     {cache.NamePrefetch},
	"cache.evict":     {cache.NamePrefetch},
	"cache.initial":   {cache.NamePrefetch},
	"cache.scores":    {cache.NamePrefetch, policyAuto},
	"cache.window":    {cache.NameLookahead, policyAuto},
	"cache.level":     {cache.NameLookahead, policyAuto},
}

// Readers returns the cache policies that read a key; nil for a key that does not depend on them.
func Readers(key string) []string { return readers[key] }

// Unread says which keys of the cache have other values than their defaults, though the policy does
// not read them: whoever set them may have another policy in mind.
func (c *Config) Unread() (notes []string) {
	defaults := Default().Flat()
	for _, k := range c.keys() {
		by := readers[k.Name]
		if by == nil || k.flat() == defaults[k.Name] || slices.Contains(by, c.Cache.Policy) {
			continue
		}
		notes = append(notes, fmt.Sprintf(
			"%s is %s, but cache.policy is %s, which does not read it; %s does",
			k.Name, k.flat(), c.Cache.Policy, OrList(by)))
	}
	return notes
}
