package train

import (
	"slices"
	"strings"
	"testing"

	"halognn/src/policy"
)

func candidate(name, kind string, rows float64) trial {
	return trial{name: name, options: policy.Settings{Policy: kind}, rows: rows}
}

// Of each policy the best parameters are tried, fewest rows first, no hopeless ones, and no more than a third of the epochs has room for.
func TestWorthTrying(t *testing.T) {
	all := []trial{
		candidate("none", policy.None, 100), candidate("vip", policy.VIP, 60), candidate("lookahead", policy.Lookahead, 50),
		candidate("prefetch 8", policy.Prefetch, 80), candidate("prefetch 16", policy.Prefetch, 70),
	}
	for _, c := range []struct {
		epochs int
		want   string
	}{{1, "lookahead"}, {5, "lookahead"}, {6, "lookahead vip"}, {9, "lookahead vip prefetch 16"}, {30, "lookahead vip prefetch 16 none"}} {
		var names []string
		for _, o := range worthTrying(all, c.epochs) {
			names = append(names, o.name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%d epochs: tries %s, want %s", c.epochs, got, c.want)
		}
	}
	all[0].rows = 50*hopeless + 1
	if slices.ContainsFunc(worthTrying(all, 30), func(o trial) bool { return o.name == "none" }) {
		t.Error("a hopeless candidate is tried")
	}
	if all[1].name != "vip" {
		t.Error("the candidates themselves were sorted")
	}
}

// The fastest is chosen; among those as fast as that within the noise, the one that transfers least.
func TestFastest(t *testing.T) {
	for _, c := range []struct {
		seconds []float64
		want    int
	}{{[]float64{1, 0.5, 0.9}, 1}, {[]float64{1, 0.99, 2}, 0}, {[]float64{1.015, 1, 1.01}, 0}, {[]float64{1.06, 1.01, 1}, 1}, {[]float64{0}, 0}} {
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
	three := []trial{candidate("vip", policy.VIP, 60), candidate("lookahead", policy.Lookahead, 50), candidate("none", policy.None, 100)}
	for _, c := range []struct{ epochs, steps, trials, length int }{{1, 100, 1, 1}, {9, 8, 3, 1}, {30, 8, 3, 3}, {90, 8, 3, 6}, {90, 20, 3, 3}, {90, trialSteps, 3, 1}} {
		var a auto
		a.plan(three, c.epochs, c.steps)
		if len(a.trials) != c.trials || a.length != c.length {
			t.Errorf("%d epochs of %d steps: %d trials of %d epochs, want %d of %d", c.epochs, c.steps, len(a.trials), a.length, c.trials, c.length)
		}
	}
}

// The steps in which the pipeline fills count only if there are too few others.
func TestStepSecondsOfATrial(t *testing.T) {
	for _, c := range []struct {
		steps []float64
		depth int
		want  float64
	}{{[]float64{9, 1}, 1, 5}, {[]float64{9, 9, 1, 1}, 1, 5}, {[]float64{9, 9, 1, 2, 3}, 1, 2}, {[]float64{9, 1, 2, 3}, 0, 2}} {
		if got := (&auto{steps: c.steps}).stepSeconds(c.depth); got != c.want {
			t.Errorf("steps of %v s, depth %d: %g s, want %g", c.steps, c.depth, got, c.want)
		}
	}
}

// A run that has chosen keeps its choice over a restart; one that had not yet, or whose cache has another size now, chooses (again), within the
// epochs that are left. Prediction and policy are of the cache that was chosen.
func TestAutoKeepsItsChoiceOverARestart(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Epochs, o.Patience, o.Cache.Policy, o.Cache.Alpha = 9, 0, PolicyAuto, 0.3 // 3 trials of an epoch each
	chooses := func(j *journey) bool {
		return slices.ContainsFunc(j.notes, func(line string) bool { return strings.HasPrefix(line, "cache.policy auto chooses ") })
	}
	none := o
	none.Cache.Policy = policy.None
	whole := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := whole.finished(t, none)
	for _, c := range []struct {
		name  string
		steps int
		alpha float64
		again bool
	}{
		{"chosen", 4*want.StepsPerEpoch + 2, 0.3, false},
		{"in a trial", want.StepsPerEpoch + 2, 0.3, true},
		{"chosen for another size", 4*want.StepsPerEpoch + 2, 0.2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			j.stopped(t, o, c.steps)
			if got := chooses(&j); got != (c.steps > 3*want.StepsPerEpoch) {
				t.Errorf("has it chosen before the restart? %v", got)
			}
			second := o
			second.Cache.Alpha = c.alpha
			got := j.finished(t, second)
			if chooses(&j) != c.again {
				t.Errorf("does it choose after the restart? %v, want %v: %q", chooses(&j), c.again, j.notes)
			}
			sameRun(t, got, want)
			if got.Cache == nil || !strings.HasPrefix(got.Cache.Chosen, got.Cache.Policy) || got.Cache.Policy != got.CachePolicy {
				t.Errorf("%s: %+v", got.CachePolicy, got.Cache)
			}
			if predicts := got.CachePolicy == policy.VIP || got.CachePolicy == policy.Lookahead; predicts != (got.ExpectedRowsPerStep > 0) {
				t.Errorf("%s: predicts %g rows a step", got.CachePolicy, got.ExpectedRowsPerStep)
			}
		})
	}
}

// A choice holds for the nodes that it was made for: on a single one there is none to make, and on others it is made again.
func TestAutoChoosesAgainOnOtherNodes(t *testing.T) {
	o := resumable()
	o.Epochs, o.Patience, o.Cache.Policy, o.Cache.Alpha, o.Cache.Placement = 9, 0, PolicyAuto, 0.3, policy.PlacementOwn
	j := journey{shards: generatedIn(t, 12), ranks: 2, dir: t.TempDir(), node: 2}
	j.stopped(t, o, 2)
	j.node = 1
	if got := j.finished(t, o); got.Cache == nil || !strings.Contains(got.Cache.Chosen, "rows a step, counted") || got.Nodes != 2 {
		t.Errorf("on two nodes after one: %+v", got.Cache)
	}
}

// Trials of several epochs whose look-ahead sees further than an epoch: what is foreseen ends with the trial.
func TestAutoTriesWindowsOfManyEpochs(t *testing.T) {
	o := resumable()
	o.Epochs, o.Patience = 36, 0
	shards := generatedIn(t, 12)
	none := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := none.finished(t, o)
	for _, window := range []int{0, 3 * want.StepsPerEpoch} {
		for _, alpha := range []float64{0.1, 0.25} {
			a := o
			a.Cache.Policy, a.Cache.Alpha, a.Cache.Window = PolicyAuto, alpha, window
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			j.stopped(t, a, want.StepsPerEpoch+2)
			got := j.finished(t, a)
			sameRun(t, got, want)
			if got.Cache == nil || !strings.Contains(got.Cache.Chosen, "lookahead") {
				t.Errorf("window %d, alpha %g: look-ahead was not tried: %+v", window, alpha, got.Cache)
			}
		}
	}
}
