package train

import (
	"math"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/session"
	"halognn/src/step/residence"
)

// Every phase that a run goes through has a positive time, no time is negative, and the policy's
// phase equals the sum of the times in the records of rows.
func TestPhasesOfARun(t *testing.T) {
	shards := generatedIn(t, 12)
	for _, c := range []struct {
		policy string
		depth  int
	}{
		{policy.None, 0}, {policy.VIP, 2}, {policy.Prefetch, 0}, {policy.Prefetch, 2},
		{policy.Lookahead, 1},
	} {
		t.Run(c.policy, func(t *testing.T) {
			o := resumable()
			o.Depth, o.Checkpoint.EverySteps = c.depth, 6
			o.Cache = policy.Settings{
				Policy: c.policy, Alpha: 0.3, Gamma: 0.9, Delta: 4, Evict: true,
				Initial: policy.Degree,
			}
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			s := j.finished(t, o)
			for p := range trace.NumPhases {
				took := s.PhaseSeconds[p.String()]
				none := p == trace.Ask || p == trace.Shuffle ||
					p == trace.Score && policy.Find(c.policy).Static()
				if took < 0 || (took == 0) != none {
					t.Errorf("phase %s took %g s", p, took)
				}
			}
			got := s.PhaseSeconds["score"] * float64(s.Ranks)
			if math.Abs(got-s.ScoreSeconds) > 1e-9 {
				t.Errorf("the ranks scored for %g s, but score_seconds is %g", got, s.ScoreSeconds)
			}
			if len(s.PhaseSeconds) != int(trace.NumPhases) {
				t.Errorf("%d phases, want %d", len(s.PhaseSeconds), trace.NumPhases)
			}
		})
	}
}

// A run resumed in the middle of an epoch keeps the times of the phases before the restart, by
// name.
func TestPhasesGoOn(t *testing.T) {
	state := &checkpoint.State{
		Place:    checkpoint.Place{Epoch: 3, Step: 1},
		UnderWay: checkpoint.UnderWay{Phases: map[string]float64{"slice": 1.5, "save": 0.25}},
	}
	r := &run{env: Env{Resume: &checkpoint.Checkpoint{State: state}}, s: &session.Session{
		Env:   session.Env{Comm: comm.NewWorld(1).Rank(0)},
		Cache: &residence.Cache{Settings: policy.Settings{Policy: policy.None}},
	}}
	r.beginEpoch(3)
	for p, took := range r.clock.Seconds() {
		if name := trace.Phase(p).String(); took != state.Phases[name] {
			t.Errorf("phase %s begins at %g s, want %g", name, took, state.Phases[name])
		}
	}
}
