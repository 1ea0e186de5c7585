package parallel

import (
	"strings"
	"testing"

	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// plainJob is refused nothing, in any mode.
func plainJob() job.Spec {
	return job.Spec{Model: nn.Config{Kind: "sage", Layers: 2, Aggregation: nn.AggregateMean},
		Sample: sample.Neighbours(4, 3), Cache: policy.Settings{Policy: policy.None}}
}

// What has no meaning is refused by name, with its reason and a cure, and nothing else is.
func TestRefusalsNameTheSetting(t *testing.T) {
	for _, m := range Modes() {
		s := plainJob()
		if s.Mode = m.Mode; Check(&s) != nil {
			t.Errorf("mode %s: %v", m.Name, Check(&s))
		}
	}
	for _, c := range []struct {
		mode   string
		change func(*job.Spec)
		want   string
	}{
		{ModePushPull, func(s *job.Spec) { s.Model.Kind = "gat" },
			"parallel.mode is push-pull, which cannot be combined with model.kind gat, because " +
				"its input layer is not a sum over the columns of features; choose model.kind " +
				"sage with means, gcn, gin or mlp, or parallel.mode=data"},
		{ModePushPull, func(s *job.Spec) { s.Model.Kind = "gatv2" }, "model.kind gatv2"},
		{ModePushPull, func(s *job.Spec) { s.Model.Aggregation = nn.AggregateMax },
			"model.kind sage with model.aggregation max"},
		{ModePushPull, func(s *job.Spec) { s.Cache.Policy = policy.Sieve },
			"no feature row travels"},
		{ModeSplit, func(s *job.Spec) { s.Cache.Policy = policy.VIP }, "choose cache.policy=none"},
		{ModeHybrid, func(s *job.Spec) { s.StreamPerPart = true }, "sample.streams part"},
		{ModeData, func(s *job.Spec) { s.Sums, s.Model.Kind = true, "gat" },
			"exchange.sums is on, which cannot be combined with model.kind gat"},
		{ModeData, func(s *job.Spec) {
			s.Cache.Policy, s.Cache.Placement, s.AsNodes = policy.Auto, policy.PlacementGroup, true
		}, "cache.placement is group, which cannot be combined with cache.policy auto, because " +
			"it compares only caches that each rank keeps for itself; choose cache.policy="},
		{ModeSplit, func(s *job.Spec) { s.Sums = true },
			"which cannot be combined with parallel.mode split"},
	} {
		m, err := ModeOf(c.mode)
		if err != nil {
			t.Fatal(err)
		}
		s := plainJob()
		s.Mode = m.Mode
		c.change(&s)
		if err := Check(&s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.mode, err, c.want)
		}
	}
}

// A run that may try sums learns why it has none, and is not refused.
func TestWithoutSumsSaysWhy(t *testing.T) {
	s := plainJob()
	if why := WithoutSums(&s); why != "" {
		t.Errorf("sums of means: %s", why)
	}
	s.Model.Kind, s.Sums, s.TrySums = "gat", true, true
	if why := WithoutSums(&s); why != "model.kind gat: its input layer reads rows themselves" {
		t.Errorf("attention: %q", why)
	}
	if err := Check(&s); err != nil {
		t.Error(err)
	}
}

// Whatever the model, what a mode cannot have is asked before the model is checked: kinds that read
// one relation alone are refused by name on a typed graph.
func TestRefusalsOfAnyKind(t *testing.T) {
	for _, k := range nn.Kinds() {
		for _, mode := range Modes() {
			s := &job.Spec{Mode: mode.Mode, Sums: true}
			s.Model.Kind, s.Model.In, s.Model.TypeFeatures = k.Name, 4, []int{3}
			s.Model.Schema = graph.Schema{Types: []string{"a"},
				Relations: []graph.Relation{{Source: "a", Name: "r", Target: "a"}}}
			adds, shares := s.Model.Adds(), mode.Columns || mode.Sharing != sample.Alone
			if got := Refusals(s); len(got) == 0 && (!adds || shares) {
				t.Errorf("%s of %s: sums are not refused", mode.Name, k.Name)
			}
		}
	}
}

// What links cannot be trained with is refused by name, and without links none of it is.
func TestRefusalsOfLinks(t *testing.T) {
	for want, change := range map[string]func(*job.Spec){
		"links.filter": func(s *job.Spec) {
			s.Partitioned, s.Links.Filter = true, true
		},
		"near neighbours among all edges": func(s *job.Spec) { s.Locality.Favour = 2 },
		"validation links have no weights": func(s *job.Spec) {
			s.Links.Graph, s.Model.EdgeWeights = job.TrainValidGraph, true
		},
		"tell which vertices they join": func(s *job.Spec) { s.Model.EdgeWeights = true },
		"divides by degrees": func(s *job.Spec) {
			s.Mode, s.Model.Kind, s.Model.GCNNorm = modes[1].Mode, "gcn", nn.GCNBoth
		},
	} {
		s := job.Spec{Model: nn.Config{Kind: "sage", Layers: 2, Task: task.Links},
			Sample: sample.Neighbours(2, 2)}
		s.Links.Exclude = true
		change(&s)
		named := func() (found bool) {
			for _, r := range Refusals(&s) {
				found = found || strings.Contains(r.Error(), want) && r.Key != "sample.kind"
			}
			return found
		}
		if !named() {
			t.Errorf("%s is not refused: %v", want, Refusals(&s))
		}
		if s.Model.Task = task.Multiclass; named() {
			t.Errorf("%s is refused without links", want)
		}
	}
}
