package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// noResult are config keys that say where and how loudly a run works, not what it does.
var noResult = []string{"run.dir", "run.progress", "checkpoint."}

// differing returns the config keys in which the runs differ, in order, but for those that begin with one of but.
func differing(runs []*Run, but ...string) []string {
	keys := map[string]bool{}
	for _, r := range runs {
		for k := range r.Config {
			keys[k] = true
		}
	}
	maps.DeleteFunc(keys, func(k string, _ bool) bool {
		if slices.ContainsFunc(but, func(prefix string) bool { return strings.HasPrefix(k, prefix) }) {
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

// baseline returns the run without a cache of otherwise the same settings, or nil.
func baseline(r *Run, runs []*Run) *Run {
	ranks, _ := r.ranks()
	for _, b := range runs {
		n, _ := b.ranks()
		but := append([]string{"cache.", "compute.", "pipeline.", "train.epochs", "train.eval", "train.patience"}, noResult...)
		if b != r && b.policy() == "none" && n == ranks && len(b.Epochs) > 0 && len(differing([]*Run{r, b}, but...)) == 0 {
			return b
		}
	}
	return nil
}

// study is a strong-scaling study: runs of the same settings on different numbers of ranks, fewest first.
type study struct {
	name   string // what tells it from other studies; empty if there is one only
	points []point
}

// point is the runs of a study on one number of ranks.
type point struct {
	runs    []*Run
	ranks   int
	seconds float64 // of an epoch: median over its epochs, and median over the runs
	seeds   float64 // of the first step, all ranks; 0 if unknown
}

func (s *study) speedup(i int) float64 { return s.points[0].seconds / s.points[i].seconds }

// efficiency is the share of the ideal speed-up, which begins at the fewest ranks.
func (s *study) efficiency(i int) float64 {
	return s.speedup(i) * float64(s.points[0].ranks) / float64(s.points[i].ranks)
}

// sameWork is true for runs that differ in ranks only. How many threads a rank has and which parts it reads go with
// the ranks; a minibatch is the same if its size is, or the seeds of a step.
func sameWork(a, b *Run) bool {
	but := append([]string{"data.parts", "data.stage_dir", "run.ranks_per_node", "compute.threads", "pipeline.workers", "sample.batch"}, noResult...)
	if len(differing([]*Run{a, b}, but...)) > 0 || fmt.Sprint(a.Summary["graph"]) != fmt.Sprint(b.Summary["graph"]) {
		return false
	}
	if len(differing([]*Run{a, b}, slices.DeleteFunc(slices.Clone(but), func(k string) bool { return k == "sample.batch" })...)) == 0 {
		return true
	}
	seedsA, knownA := a.Steps.at("seeds", 0)
	seedsB, knownB := b.Steps.at("seeds", 0)
	return knownA && knownB && seedsA == seedsB
}

// studies finds the scaling studies among the finished runs.
func studies(runs []*Run) (out []study) {
	var groups [][]*Run
	for _, r := range runs {
		if _, timed := r.seconds(); r.Summary == nil || !timed {
			continue
		}
		if at := slices.IndexFunc(groups, func(g []*Run) bool { return sameWork(g[0], r) }); at >= 0 {
			groups[at] = append(groups[at], r)
		} else {
			groups = append(groups, []*Run{r})
		}
	}
	for _, g := range groups {
		by := map[int][]*Run{}
		for _, r := range g {
			if n, ok := r.ranks(); ok {
				by[n] = append(by[n], r)
			}
		}
		if len(by) < 2 {
			continue
		}
		s := study{name: g[0].policy()}
		for _, ranks := range slices.Sorted(maps.Keys(by)) {
			p := point{runs: by[ranks], ranks: ranks}
			var seconds []float64
			for _, r := range p.runs {
				x, _ := r.seconds()
				seconds = append(seconds, x)
			}
			p.seconds = median(seconds)
			p.seeds, _ = p.runs[0].Steps.at("seeds", 0)
			s.points = append(s.points, p)
		}
		out = append(out, s)
	}
	nameStudies(out)
	return out
}

// nameStudies names studies by the settings in which they differ.
func nameStudies(all []study) {
	var firsts []*Run
	for _, s := range all {
		firsts = append(firsts, s.points[0].runs[0])
	}
	for i := range all {
		var words []string
		if len(all) > 1 {
			for _, k := range differing(firsts, append([]string{"data."}, noResult...)...) {
				v, _ := firsts[i].setting(k)
				words = append(words, k+" "+v)
			}
			if len(words) == 0 {
				words = append(words, firsts[i].Name)
			}
		}
		all[i].name = strings.Join(words, ", ")
	}
}
