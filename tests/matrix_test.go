package tests

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/policy"
	"halognn/src/runs/config"
	spec "halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// cell is a meaningful combination of mode, topology, model, sampler, cache and sums.
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

// group names what the numbers of a cell depend on.
func (c cell) group() string { return c.mode + " " + c.model + " " + c.sampler }

// matrix returns every meaningful cell: attention has no estimates and no sums; ranks that hold
// their share of all rows, or columns of them, fetch no remote rows and so have no cache.
func matrix() (all []cell) {
	samplers := []sample.Kind{sample.Neighbour, sample.Labor, sample.Poisson, sample.LADIES}
	for _, mode := range parallel.Modes() {
		for _, topology := range []string{"replicated", "partitioned"} {
			for _, model := range []string{"sage mean", "sage max", "gcn", "gin", "gat", "gatv2"} {
				kind, aggregation, _ := strings.Cut(model, " ")
				of := nn.Config{Kind: kind, Aggregation: aggregation, Layers: 2, Hidden: 8,
					Heads: 2}
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
							all = append(all, cell{mode.Name, topology, model, string(sampler),
								cache, s})
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

// Every cell of the matrix trains: docs/combinations.md says that whatever it does not refuse
// works.
func TestMatrixIsTaken(t *testing.T) {
	for _, c := range matrix() {
		if why := c.refused(t); why != "" {
			t.Errorf("%v is refused: %s", c, why)
		}
	}
}

// feature is a deviation of a job from the plainest one.
type feature struct {
	name string
	set  func(*spec.Spec)
}

// features lists the features on which refusals depend.
func features() (all []feature) {
	add := func(name string, set func(*spec.Spec)) { all = append(all, feature{name, set}) }
	for _, m := range parallel.Modes() {
		add("parallel.mode "+m.Name, func(s *spec.Spec) { s.Mode = m.Mode })
	}
	for _, k := range nn.Kinds() {
		add("model.kind "+k.Name, func(s *spec.Spec) { s.Model.Kind = k.Name })
	}
	for _, k := range []sample.Kind{sample.Labor, sample.Poisson, sample.LADIES} {
		add("sample.kind "+string(k), func(s *spec.Spec) { s.Sample.Kind = k })
	}
	for _, p := range policy.Names(policy.Trainable) {
		add("cache.policy "+p, func(s *spec.Spec) { s.Cache.Policy = p })
	}
	add("model.gcn_norm both",
		func(s *spec.Spec) { s.Model.Kind, s.Model.GCNNorm = "gcn", nn.GCNBoth })
	add("cache.policy auto", func(s *spec.Spec) { s.Cache.Policy = policy.Auto })
	add("model.aggregation max", func(s *spec.Spec) {
		s.Model.Kind, s.Model.Aggregation = "sage", nn.AggregateMax
	})
	add("sample.on device", func(s *spec.Spec) { s.DrawOn = parallel.DrawDevice })
	add("sample.locality", func(s *spec.Spec) { s.Locality.Favour = 2 })
	add("sample.locality_adapt",
		func(s *spec.Spec) { s.Locality.Favour, s.Locality.Adapts = 2, true })
	typed := graph.Schema{Types: []string{"a", "b"},
		Relations: []graph.Relation{{Source: "a", Name: "r", Target: "b"},
			{Source: "b", Name: "s", Target: "a"}}}
	types := func(name string, widths ...int) {
		add(name, func(s *spec.Spec) { s.Model.Schema, s.Model.TypeFeatures = typed, widths })
	}
	types("vertex types", 3, 3)
	types("a vertex type without features", 3, 0)
	add("model.learned", func(s *spec.Spec) { s.Model.Learned, s.Model.Learns = 8, []bool{true} })
	add("sparse features", func(s *spec.Spec) { s.Sparse = true })
	add("topology.kind partitioned", func(s *spec.Spec) { s.Partitioned = true })
	add("model.edge_features", func(s *spec.Spec) { s.Model.EdgeIn = 2 })
	add("model.edge_weights", func(s *spec.Spec) { s.Model.EdgeWeights = true })
	add("exchange.sums", func(s *spec.Spec) { s.Sums = true })
	add("exchange.nodes", func(s *spec.Spec) { s.AsNodes = true })
	add("cache.level", func(s *spec.Spec) { s.Cache.Level = true })
	add("cache.halo_fraction", func(s *spec.Spec) { s.Cache.HaloFraction = 0.5 })
	add("sample.streams part", func(s *spec.Spec) { s.StreamPerPart = true })
	for _, p := range []string{policy.PlacementGroup, policy.PlacementParts} {
		add("cache.placement "+p, func(s *spec.Spec) { s.Cache.Placement = p })
	}
	add("cache.source files", func(s *spec.Spec) { s.Cache.Source = policy.SourceFiles })
	links := func(name string, set func(*spec.Spec)) {
		add(name, func(s *spec.Spec) { s.Model.Task = task.Links; set(s) })
	}
	links("links.exclude", func(s *spec.Spec) { s.Links.Exclude = true })
	links("links.filter", func(s *spec.Spec) { s.Links.Filter = true })
	links("links.graph", func(s *spec.Spec) { s.Links.Graph = spec.TrainValidGraph })
	links("links.corrupt", func(s *spec.Spec) {
		s.Links.Corrupt, s.Links.Negatives.Kind = sample.CorruptPair, sample.NegativesBatch
	})
	return all
}

// docs/combinations.md lists the refusals: all that two or three features of a job cause together,
// and fewer of them do not. Those that vertex types lift are told apart.
func TestRefusalsAreDocumented(t *testing.T) {
	type row struct{ what, why string }
	with, untyped, known := map[row][]string{}, map[row][]string{}, map[string]bool{}
	const typedGraph = "a graph with vertex types"
	var order []row
	all := features()
	types := all[slices.IndexFunc(all, func(f feature) bool { return f.name == "vertex types" })]
	// no model trains on what CheckTypes refuses, whatever else the job has
	refusals := func(met ...feature) (all []spec.Refusal, trains bool) {
		s := spec.Spec{Model: nn.Config{Kind: "sage", In: 3, Layers: 2,
			Aggregation: nn.AggregateMean},
			Sample: sample.Neighbours(4, 3), Cache: policy.Settings{Policy: policy.None}}
		for _, f := range met {
			f.set(&s)
		}
		return parallel.Refusals(&s), s.Model.CheckTypes() == nil
	}
	meet := func(met ...feature) {
		found, trains := refusals(met...)
		if !trains {
			return
		}
		onTypes, typed := refusals(append([]feature{types}, met...)...)
		for _, r := range found {
			if slices.ContainsFunc(found, func(o spec.Refusal) bool { // whatever else it has
				return o.Key == r.Key && o.What == typedGraph && r.What != typedGraph
			}) {
				continue
			}
			at := row{strings.TrimPrefix(r.Key+" "+r.Value, "the graph "), r.Why}
			lifted := typed && !slices.ContainsFunc(onTypes, func(o spec.Refusal) bool {
				return o.Key == r.Key && o.What == r.What && o.Why == r.Why
			})
			if known[fmt.Sprint(at, r.What)] {
				continue
			}
			known[fmt.Sprint(at, r.What)] = true
			if with[at] == nil && untyped[at] == nil {
				order = append(order, at)
			}
			for _, f := range met { // a feature that the refusal does not name, but depends on
				if len(met) == 3 && !strings.Contains(at.what+r.What, f.name) {
					r.What += " and " + f.name
				}
			}
			if lifted {
				untyped[at] = append(untyped[at], r.What)
			} else {
				with[at] = append(with[at], r.What)
			}
		}
	}
	for _, a := range all {
		meet(a)
	}
	for i, a := range all {
		for _, b := range all[i:] {
			meet(a, b)
		}
	}
	for i, a := range all {
		for j, b := range all[i:] {
			for _, c := range all[i+j:] {
				meet(a, b, c)
			}
		}
	}
	slices.SortFunc(order, func(a, b row) int {
		return cmp.Or(strings.Compare(a.what, b.what), strings.Compare(a.why, b.why))
	})
	var page strings.Builder
	page.WriteString("| what | cannot be combined with | because |\n|---|---|---|\n")
	for _, r := range order {
		var what []string
		if len(with[r]) > 0 {
			what = append(what, short(with[r]))
		}
		if len(untyped[r]) > 0 {
			what = append(what, "without vertex types "+short(untyped[r]))
		}
		fmt.Fprintf(&page, "| %s | %s | %s |\n", r.what, strings.Join(what, "; "), r.why)
	}
	sameAsGenerated(t, "../docs/combinations.md", "combinations", page.String())
}

// short joins settings. It writes the key of several settings once.
func short(settings []string) string {
	slices.Sort(settings)
	last := ""
	for i, s := range settings {
		key, value, found := strings.Cut(s, " ")
		if found && key == last && !strings.Contains(value, " ") {
			settings[i] = value
		}
		last = key
	}
	return strings.Join(settings, ", ")
}
