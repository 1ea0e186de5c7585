package residence

import (
	"slices"
	"strings"
	"testing"

	"halognn/src/rows/policy"
)

func candidate(name, kind string, rows float64) trial {
	return trial{name: name, options: policy.Settings{Policy: kind}, rows: rows}
}

// The best parameters of each policy are tried, fewest rows first, without candidates beyond
// maxRowsRatio, in at most a third of the epochs.
func TestWorthTrying(t *testing.T) {
	all := []trial{
		candidate("none", policy.None, 100), candidate("vip", policy.VIP, 60),
		candidate("lookahead", policy.Lookahead, 50),
		candidate("prefetch 8", policy.Prefetch, 80), candidate("prefetch 16", policy.Prefetch, 70),
	}
	for _, c := range []struct {
		epochs int
		want   string
	}{
		{1, "lookahead"},
		{5, "lookahead"},
		{6, "lookahead vip"},
		{9, "lookahead vip prefetch 16"},
		{30, "lookahead vip prefetch 16 none"},
	} {
		var names []string
		for _, o := range worthTrying(all, c.epochs) {
			names = append(names, o.name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%d epochs: tries %s, want %s", c.epochs, got, c.want)
		}
	}
	all[0].rows = 50*maxRowsRatio + 1
	if slices.ContainsFunc(worthTrying(all, 30), func(o trial) bool { return o.name == "none" }) {
		t.Error("a hopeless candidate is tried")
	}
	if all[1].name != "vip" {
		t.Error("the candidates themselves were sorted")
	}
}

// The fastest trial is chosen; among trials within tieTolerance of it, the one that transfers
// fewest rows.
func TestFastest(t *testing.T) {
	for _, c := range []struct {
		seconds []float64
		want    int
	}{
		{[]float64{1, 0.5, 0.9}, 1},
		{[]float64{1, 0.99, 2}, 0},
		{[]float64{1.015, 1, 1.01}, 0},
		{[]float64{1.06, 1.01, 1}, 1},
		{[]float64{0}, 0},
	} {
		var trials []trial
		for _, s := range c.seconds {
			trials = append(trials, trial{seconds: s})
		}
		if got := fastest(trials); got != c.want {
			t.Errorf("%v: %d, want %d", c.seconds, got, c.want)
		}
	}
}

// Short epochs are tried several times, within a third of all.
func TestLengthOfTrials(t *testing.T) {
	three := []trial{
		candidate("vip", policy.VIP, 60), candidate("lookahead", policy.Lookahead, 50),
		candidate("none", policy.None, 100),
	}
	for _, c := range []struct{ epochs, steps, trials, length int }{
		{1, 100, 1, 1}, {9, 8, 3, 1}, {30, 8, 3, 3}, {90, 8, 3, 6}, {90, 20, 3, 3},
		{90, trialSteps, 3, 1},
	} {
		var a Auto
		a.plan(three, c.epochs, c.steps)
		if len(a.trials) != c.trials || a.length != c.length {
			t.Errorf("%d epochs of %d steps: %d trials of %d epochs, want %d of %d",
				c.epochs, c.steps, len(a.trials), a.length, c.trials, c.length)
		}
	}
}

// The steps in which the pipeline fills count only if there are too few others.
func TestStepSecondsOfATrial(t *testing.T) {
	for _, c := range []struct {
		steps []float64
		depth int
		want  float64
	}{
		{[]float64{9, 1}, 1, 5},
		{[]float64{9, 9, 1, 1}, 1, 5},
		{[]float64{9, 9, 1, 2, 3}, 1, 2},
		{[]float64{9, 1, 2, 3}, 0, 2},
	} {
		if got := (&Auto{steps: c.steps}).stepSeconds(c.depth); got != c.want {
			t.Errorf("steps of %v s, depth %d: %g s, want %g", c.steps, c.depth, got, c.want)
		}
	}
}
