package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"halognn/src/base/timing"
	"halognn/src/runs/config"
)

// differing returns, in order, the config keys in which the runs differ. It leaves out the keys for
// which the function `ignored` returns true, and those that do not affect the result.
func differing(runs []*Run, ignored func(key string) bool) []string {
	keys := map[string]bool{}
	for _, r := range runs {
		for k := range r.Config {
			keys[k] = true
		}
	}
	maps.DeleteFunc(keys, func(k string, _ bool) bool {
		if ignored(k) || config.Has(k, config.NoResult) {
			return true
		}
		first, has := runs[0].setting(k)
		return !slices.ContainsFunc(runs[1:], func(r *Run) bool {
			v, ok := r.setting(k)
			return v != first || ok != has
		})
	})
	return slices.Sorted(maps.Keys(keys))
}

// Predicates for the config keys in which compared runs may differ.
func noKey(string) bool         { return false }
func cacheKey(key string) bool  { return strings.HasPrefix(key, "cache.") }
func batchKey(key string) bool  { return strings.HasPrefix(key, "sample.batch") }
func sameEpoch(key string) bool { return config.Has(key, config.SameEpoch) }

// alike reports whether two runs have the same graph, and configs that differ only in keys for
// which the function `ignored` returns true.
func alike(a, b *Run, ignored func(key string) bool) bool {
	graph := &the.summary.Graph
	if a.Summary != nil && b.Summary != nil &&
		fmt.Sprint(a.Summary.object(graph)) != fmt.Sprint(b.Summary.object(graph)) {
		return false
	}
	return len(differing([]*Run{a, b}, ignored)) == 0
}

// dataOf returns a text that identifies the data set of a run. The text is the size of the graph,
// so that all partitions of one graph count as one data set. If a run has no summary, the size is
// not known, and the text is the directory of its parts.
func dataOf(r *Run) string {
	if g := graphOf(r); g != "" {
		return g
	}
	parts, _ := r.setting("data.parts")
	return parts
}

func sameData(a, b *Run) bool { return dataOf(a) == dataOf(b) }

// byData divides runs by data set. A run without a summary joins the runs that use the same
// directory of parts.
func byData(runs []*Run) [][]*Run {
	return groups(runs, func(a, b *Run) bool {
		partsA, _ := a.setting("data.parts")
		partsB, _ := b.setting("data.parts")
		return sameData(a, b) || (a.Summary == nil || b.Summary == nil) && partsA == partsB
	})
}

// seedKey reports whether the runs of one job, which repeat it with other seeds, may differ in a
// key.
func seedKey(key string) bool { return key == "train.seed" || key == "data.split" }

// repeated divides runs into jobs. The runs of one job differ only in their seeds and splits.
func repeated(runs []*Run) [][]*Run {
	return groups(runs, func(a, b *Run) bool {
		ranksA, _ := a.ranks()
		ranksB, _ := b.ranks()
		return ranksA == ranksB && sameData(a, b) && alike(a, b, seedKey)
	})
}

// ranked orders runs by data set, and within it by the validation metric, best first. Runs with
// different metrics keep their order.
func ranked(runs []*Run) (out []*Run) {
	for _, g := range byData(runs) {
		valid := func(r *Run) float64 {
			x, ok := r.Summary.num(&the.summary.ValidMetric)
			if !ok {
				return -1
			}
			return x
		}
		one := !slices.ContainsFunc(g, func(r *Run) bool { return r.metric() != g[0].metric() })
		if one {
			slices.SortStableFunc(g, func(a, b *Run) int { return cmp.Compare(valid(b), valid(a)) })
		}
		out = append(out, g...)
	}
	return out
}

// groups divides runs, in order, into groups. A run joins the first group g for which
// fits(g[0], run) is true. If there is none, the run begins a new group.
func groups(runs []*Run, fits func(a, b *Run) bool) (all [][]*Run) {
	for _, r := range runs {
		if at := slices.IndexFunc(all, func(g []*Run) bool { return fits(g[0], r) }); at >= 0 {
			all[at] = append(all[at], r)
		} else {
			all = append(all, []*Run{r})
		}
	}
	return all
}

// groupNames names groups by the settings in which their first runs differ. A key for which the
// function but returns true is left out of names. If there is only one group, its name is empty.
func groupNames(all [][]*Run, but func(key string) bool) []string {
	names := make([]string, len(all))
	if len(all) < 2 {
		return names
	}
	var firsts []*Run
	for _, g := range all {
		firsts = append(firsts, g[0])
	}
	for i, r := range firsts {
		var words []string
		for _, k := range differing(firsts, but) {
			words = append(words, k+" "+r.shown(k))
		}
		if len(words) == 0 {
			words = append(words, r.Name)
		}
		names[i] = strings.Join(words, ", ")
	}
	return names
}

// baseline returns the run that has the same settings as r but no cache. It returns nil if there is
// none.
func baseline(r *Run, runs []*Run) *Run {
	ranks, _ := r.ranks()
	for _, b := range runs {
		n, _ := b.ranks()
		if b != r && b.policy() == "none" && n == ranks && len(b.Epochs) > 0 &&
			len(differing([]*Run{r, b}, sameEpoch)) == 0 {
			return b
		}
	}
	return nil
}

// study is a scaling study: runs of the same settings on different numbers of ranks. The points are
// in ascending order of ranks. Strong scaling divides the work of an epoch among more ranks. Weak
// scaling gives a rank the same number of seeds a step on any number of ranks.
type study struct {
	name   string // the settings that distinguish it from other studies; empty if there is only one
	points []point
}

// point has the runs of a study on one number of ranks.
type point struct {
	runs  []*Run
	ranks int
	// seconds of an epoch: the median of a run's epochs, and of these medians the median over the
	// runs
	seconds float64
	// seconds of a step: the median over the runs of a run's epoch divided by its number of steps;
	// 0 if unknown
	step  float64
	seeds float64 // seeds of the first step, on all ranks; 0 if unknown
}

// weak reports whether the study is a weak one, so that a rank has the same number of seeds a step
// at all points. It compares the batch size in the settings and not the recorded seeds. Those are
// only roughly in proportion to the ranks, because ranks, and so minibatches, have unequal numbers
// of seeds.
func (s *study) weak() bool {
	batch, _ := s.points[0].runs[0].setting("sample.batch")
	return !slices.ContainsFunc(s.points, func(p point) bool {
		return !(p.seeds > 0) || !(p.step > 0) || slices.ContainsFunc(p.runs, func(r *Run) bool {
			scope, _ := r.setting("sample.batch_scope")
			own, _ := r.setting("sample.batch")
			return scope != "rank" || own != batch
		})
	})
}

// speedup returns the speed-up of point i over the first point. In strong scaling it is the ratio
// of the epoch times, in weak scaling the ratio of the seeds trained a second.
func (s *study) speedup(i int) float64 {
	if p, first := s.points[i], s.points[0]; s.weak() {
		return p.seeds / p.step / (first.seeds / first.step)
	}
	return s.points[0].seconds / s.points[i].seconds
}

// efficiency returns the speed-up of point i divided by the ideal speed-up, which is the ratio of
// its ranks to the ranks of the first point.
func (s *study) efficiency(i int) float64 {
	return s.speedup(i) * float64(s.points[0].ranks) / float64(s.points[i].ranks)
}

// sameSeeds reports whether the first steps of two runs have the same number of seeds.
func sameSeeds(a, b *Run) bool {
	seedsA, knownA := a.Steps.numberOf(&the.step.Seeds, 0)
	seedsB, knownB := b.Steps.numberOf(&the.step.Seeds, 0)
	return knownA && knownB && seedsA == seedsB
}

// timed reports whether a run can be a point of a study. It can if it finished, kept the same
// number of ranks throughout, and took more than 0 seconds an epoch.
func timed(r *Run) bool {
	ranks, known := r.ranks()
	seconds, _ := r.seconds()
	moved := slices.ContainsFunc(r.Epochs,
		func(e values) bool { n := len(e.list(&the.epoch.Ranks)); return n > 0 && n != ranks })
	return r.Summary != nil && known && ranks > 0 && seconds > 0 && !moved
}

// equalWork groups runs that differ only in ranks and in keys for which the function `ignored`
// returns true. The runs of a group have the same graph and parts, the same pretended nodes, and
// the same number of threads a rank. A group on one number of ranks joins a group with another
// batch size if the steps of both have the same number of seeds on all ranks. A group on several
// numbers of ranks joins no other: it may be a weak study, which would lose a point to a strong
// study with the same number of seeds.
func equalWork(runs []*Run, ignored func(key string) bool) (all [][]*Run) {
	same := groups(runs, func(a, b *Run) bool { return alike(a, b, ignored) })
	// groups on several numbers of ranks come first, so that the order of the runs does not matter
	for _, several := range []bool{true, false} {
		for _, g := range same {
			if severalRanks(g) != several {
				continue
			}
			at := -1
			if !several {
				at = slices.IndexFunc(all, func(h []*Run) bool {
					return sameSeeds(h[0], g[0]) &&
						alike(h[0], g[0],
							func(key string) bool { return ignored(key) || batchKey(key) })
				})
			}
			if at >= 0 {
				all[at] = append(all[at], g...)
			} else {
				all = append(all, g)
			}
		}
	}
	return all
}

func severalRanks(runs []*Run) bool {
	first, _ := runs[0].ranks()
	return slices.ContainsFunc(runs, func(r *Run) bool { n, _ := r.ranks(); return n != first })
}

// studies finds the scaling studies among the runs.
func studies(runs []*Run) (out []study) {
	some := slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return !timed(r) })
	all := slices.DeleteFunc(equalWork(some, noKey),
		func(g []*Run) bool { return !severalRanks(g) })
	names := groupNames(all, noKey)
	for i, g := range all {
		s := study{name: names[i]}
		by := map[int][]*Run{}
		for _, r := range g {
			n, _ := r.ranks()
			by[n] = append(by[n], r)
		}
		for _, ranks := range slices.Sorted(maps.Keys(by)) {
			p := point{runs: by[ranks], ranks: ranks}
			var seconds, step []float64
			for _, r := range p.runs {
				x, _ := r.seconds()
				seconds = append(seconds, x)
				if n, ok := r.Summary.num(&the.summary.StepsPerEpoch); ok && n > 0 {
					step = append(step, x/n)
				}
			}
			p.seconds = timing.Median(seconds)
			if len(step) == len(seconds) {
				p.step = timing.Median(step)
			}
			p.seeds, _ = p.runs[0].Steps.numberOf(&the.step.Seeds, 0)
			s.points = append(s.points, p)
		}
		out = append(out, s)
	}
	return out
}

// byMetric divides runs by data set and validation metric, as different metrics mean different
// tasks and losses. The metric of an unfinished run is unknown, so this run joins the runs that use
// the same directory of parts.
func byMetric(runs []*Run) (all [][]*Run, names []string) {
	of := map[string]string{} // the metric of the runs that use each directory of parts
	for _, r := range runs {
		if parts, ok := r.setting("data.parts"); ok && r.metric() != "" {
			of[parts] = r.metric()
		}
	}
	name := func(r *Run) string {
		parts, _ := r.setting("data.parts")
		return cmp.Or(r.metric(), of[parts], "metric not recorded, "+parts)
	}
	for _, some := range byData(runs) {
		all = append(all, groups(some, func(a, b *Run) bool { return name(a) == name(b) })...)
	}
	for _, g := range all {
		names = append(names, name(g[0]))
	}
	return all, names
}

// policyGroups finds groups of runs that differ in nothing but the cache policy. It returns the
// groups and their names.
func policyGroups(runs []*Run) (all [][]*Run, names []string) {
	ranked := slices.DeleteFunc(slices.Clone(runs),
		func(r *Run) bool { s, _ := r.seconds(); return s <= 0 })
	all = groups(ranked, func(a, b *Run) bool {
		ranksA, _ := a.ranks()
		ranksB, _ := b.ranks()
		return ranksA == ranksB && sameData(a, b) && alike(a, b, cacheKey)
	})
	all = slices.DeleteFunc(all, func(g []*Run) bool {
		return !slices.ContainsFunc(g, func(r *Run) bool { return r.policy() != g[0].policy() })
	})
	return all, groupNames(all, cacheKey)
}
