package report

import (
	"slices"
	"strings"
	"testing"

	"halognn/src/base/chart"
)

func ids(charts []*chart.Chart) (out []string) {
	for _, c := range charts {
		out = append(out, c.ID)
	}
	return out
}

// Runs are a scaling study only if nothing but their ranks differs.
func TestAStudyIsOfEqualWork(t *testing.T) {
	for _, c := range []struct {
		name  string
		wide  func(r *Run)
		study bool
	}{
		{"as it is", func(*Run) {}, true},
		{"another place, and louder", func(r *Run) {
			r.Config["run.dir"], r.Config["run.progress"], r.Config["run.stall_seconds"] = "x",
				"bar", 9
		}, true},
		{"half the minibatch a rank, the same for all",
			func(r *Run) { r.Config["sample.batch"] = 32 }, true},
		{"another minibatch",
			func(r *Run) { r.Config["sample.batch"], r.Steps.of["seeds"][0] = 32, 64 }, false},
		{"pretended nodes", func(r *Run) { r.Config["run.ranks_per_node"] = 2 }, false},
		{"other parts", func(r *Run) { r.Config["data.parts"] = "parts-8" }, false},
		{"parts staged", func(r *Run) { r.Config["run.stage_dir"] = "/scratch" }, false},
		{"workers", func(r *Run) { r.Config["pipeline.workers"] = 4 }, false},
		{"threads", func(r *Run) { r.Config["compute.threads"] = 4 }, false},
		{"checkpoints", func(r *Run) { r.Config["checkpoint.every_steps"] = 1 }, false},
		{"another graph", func(r *Run) { r.Summary["graph"] = map[string]any{"vertices": 7.0} },
			false},
		{"not finished", func(r *Run) { r.Summary = nil }, false},
		{"no ranks", func(r *Run) {
			r.Summary["ranks"] = 0.0
			for _, e := range r.Epochs {
				delete(e, "ranks")
			}
		}, false},
		{"epochs in no time", func(r *Run) {
			for _, e := range r.Epochs {
				e["seconds"] = 0.0
			}
		}, false},
		{"moved to other ranks on its way",
			func(r *Run) { r.Epochs[0]["ranks"] = []any{map[string]any{}} }, false},
	} {
		runs := fixture(t, "base", "wide")
		c.wide(runs[1])
		all := studies(runs)
		if (len(all) == 1) != c.study ||
			slices.Contains(ids(chartsOf(runs)), "scaling") != c.study {
			t.Errorf("%s: %d studies", c.name, len(all))
		}
		if text := scalingChart(runs).HTML(); strings.Contains(text, "NaN") ||
			strings.Contains(text, "Inf") {
			t.Errorf("%s: the plot has points nowhere", c.name)
		}
	}
}

// Epoch times are compared only between runs that differ in their caches and nothing else.
func TestPoliciesAreComparedOnEqualWork(t *testing.T) {
	runs := fixture(t, "base", "vip", "wide", "vip", "base", "vip")
	runs[3].Summary["ranks"] = 4.0
	for i, r := range runs {
		r.Config["cache.alpha"] = i
	}
	runs[4].Config["train.lr"], runs[5].Config["train.lr"] = 0.5, 0.7
	all, names := policyGroups(runs)
	if len(all) != 2 || !slices.Equal(all[0], []*Run{runs[0], runs[1]}) ||
		!slices.Equal(all[1], []*Run{runs[2], runs[3]}) {
		t.Errorf("groups %v", names)
	}
	if got := ids(chartsOf(runs)); !slices.Contains(got, "policies-1") ||
		!slices.Contains(got, "policies-2") {
		t.Errorf("plots %q", got)
	}
	unknown := fixture(t, "base", "vip")
	for _, e := range unknown[1].Epochs {
		delete(e, "wait_fraction")
	}
	if text := policyTimes(unknown).HTML(); strings.Contains(text, "vip, training: ") ||
		!strings.Contains(text, "vip, of both, waiting not recorded: 1.500") {
		t.Error("waiting that was not recorded is taken for none")
	}
}

// Metrics and losses of different tasks have separate axes. A killed run joins the runs on its
// parts.
func TestMetricsDoNotShareAnAxis(t *testing.T) {
	runs := fixture(t, "base", "vip", "killed", "old")
	runs[1].Summary["metric_name"], runs[1].Config["data.parts"],
		runs[3].Config["data.parts"] = "micro_f1", "yelp", "other"
	all, names := byMetric(runs)
	if want := []string{"accuracy", "micro_f1", "metric not recorded, other"}; !slices.Equal(names,
		want) {
		t.Fatalf("%q, expected %q", names, want)
	}
	if !slices.Equal(all[0], []*Run{runs[0], runs[2]}) {
		t.Error("the killed run is not beside the one on its parts")
	}
	got := ids(chartsOf(runs))
	for _, id := range []string{"loss-1", "accuracy-1", "accuracy-2", "loss-3"} {
		if !slices.Contains(got, id) {
			t.Errorf("no plot %s among %q", id, got)
		}
	}
	if text := validation(all[1], names[1]).HTML(); !strings.Contains(text,
		"validation micro_f1, %") {
		t.Error("the axis does not say what it measures")
	}
	if rows := plainText(outcomes(runs).rows); rows[0][2] != "71.00 % accuracy" ||
		rows[1][2] != "71.00 % micro_f1" || rows[2][2] != chart.Absent {
		t.Errorf("the table says %q", rows)
	}
}

// A run that tried several caches is left out of predictions: its means are over all of them, the
// prediction is of one.
func TestTrialsStandBesideNoPrediction(t *testing.T) {
	runs := fixture(t, "base", "vip", "vip")
	runs[1].Name, runs[2].Name, runs[2].Config["cache.policy"] = "vip", "tries", "auto"
	if _, rows := predicted(runs).Table(); len(rows) != 1 || rows[0][0] != "vip" {
		t.Errorf("predictions of %q", rows)
	}
	rows := caches(runs).rows
	if row := rows[1]; row[1] != "auto (vip)" || row[len(row)-1] != chart.Absent {
		t.Errorf("the table of caches says %q", row)
	}
	if !strings.Contains(strings.Join(warnings(runs), "\n"), "tries: cache.policy auto") {
		t.Error("nothing says that the numbers are of several caches")
	}
}

// Balance compares the ranks at the end of the run.
func TestARunThatMovedHasTheRanksOfItsEnd(t *testing.T) {
	r := fixture(t, "base")[0]
	r.Epochs[0]["ranks"] = []any{map[string]any{"remote_rows": 9e6}}
	if got := r.rankMeans(&the.rank.Remote); len(got) != 2 || got[0] != 500 {
		t.Errorf("rows of each rank: %v", got)
	}
}

// In a weak study seeds grow with the ranks, and what counts is how many are trained in a second.
// Of a strong one in the same report, whose minibatch of four ranks is as large, it keeps its runs.
func TestWeakScaling(t *testing.T) {
	of := func(name string, ranks, batch int, scope string, seeds, seconds float64) *Run {
		r := fixture(t, "base")[0]
		r.Name, r.Summary["ranks"], r.Summary["steps_per_epoch"] = name, float64(ranks), 10.0
		r.Config["sample.batch"], r.Config["sample.batch_scope"] = batch, scope
		r.Steps.of["seeds"][0] = seeds
		r.Summary["efficiency"] = map[string]any{"computation_seconds": seconds}
		for _, e := range r.Epochs {
			e["seconds"], e["ranks"] = seconds, slices.Repeat([]any{map[string]any{}}, ranks)
		}
		return r
	}
	runs := []*Run{of("strong-2", 2, 256, "global", 256, 2), of("strong-4", 4, 256, "global", 256,
		1.25), of("weak-2", 2, 64, "rank", 128, 1), of("weak-4", 4, 64, "rank", 240, 1.2)}
	want := [][]string{
		{"weak-2", "2", "0.1000", "1 280", "1.00", "100.00 %", "128"},
		{"weak-4", "4", "0.1200", "2 000", "1.56", "78.12 %", "240"},
	}
	if got := plainText(weakScaling(runs).rows); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("weak scaling is %v, want %v", got, want)
	}
	strong := [][]string{{"strong-2", "2", "2", "1.00", "100.00 %", "256"},
		{"strong-4", "4", "1.250", "1.60", "80.00 %", "256"}}
	if got := plainText(scaling(runs).rows); !slices.EqualFunc(got, strong, slices.Equal) {
		t.Errorf("strong scaling is %v, want %v", got, strong)
	}
	if got := runs[3]; smallestRuns(runs)[got] != 1 { // those of weak-2
		t.Errorf("%s is compared with %g processor seconds", got.Name, smallestRuns(runs)[got])
	}
	byHand := []*Run{of("rank-2", 2, 128, "rank", 256, 2), of("rank-4", 4, 64, "rank", 256, 1.25)}
	if weakScaling(byHand).rows != nil || len(scaling(byHand).rows) != 2 {
		t.Error("a strong study by hand is a weak one")
	}
	curves := points(weakScalingChart(runs))
	for i, c := range [][][2]float64{{{2, 1280}, {4, 2560}}, {{2, 1280}, {4, 2000}}} {
		near(t, "weak scaling, ideal first", curves[i], c)
	}
	delete(runs[3].Summary, "steps_per_epoch") // of an older program: no step is known
	if got := weakScaling(runs).rows; got != nil {
		t.Errorf("without the steps of an epoch weak scaling is %v", got)
	}
	if text := scalingChart(runs).HTML() + weakScalingChart(runs).HTML(); strings.Contains(text,
		"NaN") {
		t.Error("a plot has points nowhere")
	}
}
