package train

import (
	"slices"
	"strings"
	"testing"

	"halognn/src/rows/policy"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// A run that has chosen its cache keeps the choice over a restart. A run that had not chosen yet,
// or whose cache has changed its size, chooses within the remaining epochs. The summary names the
// policy of the chosen cache and predicts its traffic.
func TestAutoKeepsItsChoiceOverARestart(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	// 3 trials of an epoch each
	o.Epochs, o.Patience, o.Cache.Policy, o.Cache.Alpha = 9, 0, policy.Auto, 0.3
	chooses := func(j *journey) bool {
		return slices.ContainsFunc(j.notes,
			func(line string) bool { return strings.HasPrefix(line, "cache.policy auto chooses ") })
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
				t.Errorf("does it choose after the restart? %v, want %v: %q", chooses(&j), c.again,
					j.notes)
			}
			sameRun(t, got, want)
			if got.Cache == nil || !strings.HasPrefix(got.Cache.Chosen, got.Cache.Policy) ||
				got.Cache.Policy != got.CachePolicy {
				t.Errorf("%s: %+v", got.CachePolicy, got.Cache)
			}
			if predicts := got.CachePolicy == policy.VIP ||
				got.CachePolicy == policy.Lookahead; predicts != (got.ExpectedRowsPerStep > 0) {
				t.Errorf("%s: predicts %g rows a step", got.CachePolicy, got.ExpectedRowsPerStep)
			}
		})
	}
}

// Of a sampler without fanouts what is tried follows from none, whatever the topology, and the
// choice holds over a restart.
func TestAutoWithoutFanouts(t *testing.T) {
	shards := generatedIn(t, 12)
	o := drawnBy(sample.LADIES)
	o.Epochs, o.Patience, o.Cache = 12, 0, policy.Settings{Policy: policy.None}
	want := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).finished(t, o)
	o.Cache = policy.Settings{Policy: policy.Auto, Alpha: 0.3, Initial: policy.VIP}
	for _, o.Partitioned = range []bool{false, true} {
		j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
		j.stopped(t, o, 5*want.StepsPerEpoch)
		got := j.finished(t, o)
		sameRun(t, got, want)
		if got.CachePolicy == policy.VIP || got.Cache == nil ||
			!strings.HasPrefix(got.Cache.Chosen, got.CachePolicy) {
			t.Errorf("partitioned %t: %s, %+v", o.Partitioned, got.CachePolicy, got.Cache)
		}
	}
}

// A choice holds for one number of nodes: on a single node nothing is chosen, and on another number
// the run chooses again.
func TestAutoChoosesAgainOnOtherNodes(t *testing.T) {
	o := resumable()
	o.Epochs, o.Patience, o.Cache.Policy, o.Cache.Alpha, o.Cache.Placement = 9, 0,
		policy.Auto, 0.3, policy.PlacementOwn
	j := journey{shards: generatedIn(t, 12), ranks: 2, dir: t.TempDir(), node: 2}
	j.stopped(t, o, 2)
	j.node = 1
	if got := j.finished(t, o); got.Cache == nil ||
		!strings.Contains(got.Cache.Chosen, "rows a step, counted") || got.Nodes != 2 {
		t.Errorf("on two nodes after one: %+v", got.Cache)
	}
}

// Trials of several epochs with a window longer than an epoch: the window ends with the trial.
func TestAutoTriesWindowsOfManyEpochs(t *testing.T) {
	race.Alone(t)
	o := resumable()
	o.Epochs, o.Patience = 36, 0
	shards := generatedIn(t, 12)
	none := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := none.finished(t, o)
	for _, window := range []int{0, 3 * want.StepsPerEpoch} {
		for _, alpha := range []float64{0.1, 0.25} {
			a := o
			a.Cache.Policy, a.Cache.Alpha, a.Cache.Window = policy.Auto, alpha, window
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			j.stopped(t, a, want.StepsPerEpoch+2)
			got := j.finished(t, a)
			sameRun(t, got, want)
			if got.Cache == nil || !strings.Contains(got.Cache.Chosen, "lookahead") {
				t.Errorf("window %d, alpha %g: look-ahead was not tried: %+v", window, alpha,
					got.Cache)
			}
		}
	}
}
