package config

import (
	"fmt"
	"slices"
	"strings"

	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
)

// settle chooses values for keys that were not given, so that they fit the given keys.
func (c *Config) settle(given func(key string) bool) {
	if !given("cache.policy") {
		c.Job.Cache.Policy = c.fittingPolicy()
	}
	m, err := parallel.ModeOf(c.Job.Mode.Name)
	if err == nil && m.Depth > 0 && !given("pipeline.depth") {
		c.Job.Depth = m.Depth
	}
}

// fittingPolicy returns the first of the default policies that the other settings allow.
func (c *Config) fittingPolicy() string {
	spec := c.Spec()
	// With learned rows there is no cache, because these rows change in training and, with vertex
	// types, differ in width.
	if spec.Model.Learned > 0 {
		return policy.None
	}
	fallbacks := []string{c.Job.Cache.Policy, policy.VIP, policy.Sim}
	if spec.Locality.Favours() { // then draws favour cached rows, so a static policy comes first
		fallbacks = fallbacks[1:]
	}
	for _, name := range fallbacks {
		spec.Cache.Policy = name
		if !slices.ContainsFunc(parallel.Refusals(&spec), func(r job.Refusal) bool {
			return r.What == "cache.policy "+name
		}) {
			return name
		}
	}
	return policy.None
}

// autoReads lists keys that policy auto passes on to the policies that it tries. Only some policies
// read these keys. Policy auto chooses the other keys that only some policies read.
var autoReads = []string{"halo_hops", "scores", "window", "level"}

// Readers returns the cache policies that read a key which others ignore (Policy.Reads). It returns
// nil if the key is not in the section cache, or if no policy lists it there.
func Readers(key string) []string {
	name, ours := strings.CutPrefix(key, "cache.")
	if !ours {
		return nil
	}
	by := policy.Names(func(p *policy.Policy) bool { return slices.Contains(p.Reads, name) })
	if by != nil && slices.Contains(autoReads, name) {
		by = append(by, policy.Auto)
	}
	return by
}

// Unread returns notes on keys of the section cache whose values differ from the defaults although
// the policy does not read them. The user may have intended another policy.
func (c *Config) Unread() (notes []string) {
	defaults := Default().Flat()
	for _, k := range c.keys() {
		by := Readers(k.Name)
		if by == nil || k.flat() == defaults[k.Name] || slices.Contains(by, c.Job.Cache.Policy) {
			continue
		}
		notes = append(notes, fmt.Sprintf(
			"%s is %s, but cache.policy is %s, which does not read it; choose %s, or leave "+
				"the key out",
			k.Name, k.flat(), c.Job.Cache.Policy, OrList(by)))
	}
	return notes
}
