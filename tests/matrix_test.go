package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"halognn/src/config"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/sample"
)

// cell is a combination of mode, topology, model, sampler, cache and sums that means something.
type cell struct{ mode, topology, model, sampler, cache, sums string }

// sets returns the settings of a cell.
func (c cell) sets() []string {
	kind, aggregation, _ := strings.Cut(c.model, " ")
	sets := []string{"parallel.mode=" + c.mode, "topology.kind=" + c.topology, "model.kind=" + kind,
		"sample.kind=" + c.sampler, "cache.policy=" + c.cache, "exchange.sums=" + c.sums}
	if aggregation != "" {
		sets = append(sets, "model.aggregation="+aggregation)
	}
	if c.sampler == string(sample.LADIES) {
		sets = append(sets, "sample.layer_vertices=300")
	}
	return sets
}

// group is what the numbers of a cell depend on.
func (c cell) group() string { return c.mode + " " + c.model + " " + c.sampler }

// matrix returns every cell that means something: attention draws no estimates and has no sums; ranks
// with their share of all rows, or columns of them, have no remote rows and so no cache.
func matrix() (all []cell) {
	samplers := []sample.Kind{sample.Neighbour, sample.Labor, sample.Poisson, sample.LADIES}
	for _, mode := range parallel.Modes() {
		for _, topology := range []string{"replicated", "partitioned"} {
			for _, model := range []string{"sage mean", "sage max", "gcn", "gin", "gat", "gatv2"} {
				kind, aggregation, _ := strings.Cut(model, " ")
				of := nn.Config{Kind: kind, Aggregation: aggregation, Layers: 2, Hidden: 8, Heads: 2}
				for _, sampler := range samplers {
					spec := sample.Spec{Kind: sampler}
					if spec.Estimates() && !of.Weighs() || mode.Columns && !of.Linear() {
						continue
					}
					caches, sums := []string{"none"}, []string{"off"}
					if mode.Sharing != sample.Together && !mode.Columns {
						ranked := "vip"
						if !spec.HasFanouts() {
							ranked = "sim"
						}
						caches = []string{"none", ranked, "prefetch", "lookahead"}
						if of.Needs().OnlySums() {
							sums = []string{"off", "on"}
						}
					}
					for _, cache := range caches {
						for _, s := range sums {
							all = append(all, cell{mode.Name, topology, model, string(sampler), cache, s})
						}
					}
				}
			}
		}
	}
	return all
}

// refused returns why a cell cannot be trained; "" if it can.
func (c cell) refused(t *testing.T) string {
	t.Helper()
	sets := append(c.sets(), "cache.initial=degree")
	run, err := config.WithDefaults(append(sets, "model.layers=2", "sample.fanouts=5,3"))
	if err == nil {
		spec := run.Spec()
		if err := parallel.Check(&spec); err != nil {
			t.Errorf("%v: config takes what package parallel refuses: %v", sets, err)
		}
		return ""
	}
	why := strings.SplitN(err.Error(), "because ", 2)
	if len(why) < 2 {
		t.Errorf("%v: %v", sets, err)
		return err.Error()
	}
	why[1], _, _ = strings.Cut(why[1], "; choose ")
	return why[1]
}

// docs/combinations.md is what the modes say of every combination.
func TestCombinationsAreDocumented(t *testing.T) {
	var page strings.Builder
	var reasons []string
	works, all, in := 0, matrix(), ""
	columns := []string{"none", "static", "prefetch", "lookahead"}
	cells := map[string]string{}
	for _, c := range all {
		mark, cache := "yes", c.cache
		if why := c.refused(t); why != "" {
			if !slices.Contains(reasons, why) {
				reasons = append(reasons, why)
			}
			mark = fmt.Sprint(1 + slices.Index(reasons, why))
		} else {
			works++
		}
		if cache == "vip" || cache == "sim" {
			cache = "static"
		}
		cells[fmt.Sprint(c.mode, c.topology, c.model, c.sampler, cache, c.sums)] = mark
	}
	fmt.Fprintf(&page, "Of %d combinations %d can be trained.\n", len(all), works)
	for i, c := range all {
		row := fmt.Sprint(c.mode, c.topology)
		if row != in {
			in = row
			fmt.Fprintf(&page, "\n### %s, %s\n\n| model | sampler | %s | %s |\n|---|---|%s\n", c.mode,
				c.topology, strings.Join(columns, " | "),
				strings.Join([]string{"none, sums", "static, sums", "prefetch, sums", "lookahead, sums"}, " | "),
				strings.Repeat("---|", 2*len(columns)))
		}
		if i > 0 && all[i-1].model == c.model && all[i-1].sampler == c.sampler &&
			all[i-1].mode == c.mode && all[i-1].topology == c.topology {
			continue
		}
		fmt.Fprintf(&page, "| %s | %s |", c.model, c.sampler)
		for _, sums := range []string{"off", "on"} {
			for _, cache := range columns {
				mark := cells[fmt.Sprint(c.mode, c.topology, c.model, c.sampler, cache, sums)]
				if mark == "" {
					mark = "-"
				}
				fmt.Fprintf(&page, " %s |", mark)
			}
		}
		page.WriteString("\n")
	}
	if len(reasons) > 0 {
		page.WriteString("\n### Why not\n\n")
	}
	for i, why := range reasons {
		fmt.Fprintf(&page, "%d. %s\n", i+1, why)
	}
	sameAsGenerated(t, "../docs/combinations.md", "combinations", page.String())
}
