package nn

import (
	"math"
	"strings"
	"testing"
)

func TestScheduleValues(t *testing.T) {
	const total = 104
	constant := Schedule{Kind: ScheduleConstant, Base: 0.1}
	cosine := Schedule{Kind: ScheduleCosine, Base: 0.1, Warmup: 4}
	floor := Schedule{Kind: ScheduleCosine, Base: 0.1, Floor: 0.2}
	decay := Schedule{Kind: ScheduleStep, Base: 0.1, Warmup: 4, Every: 10, Gamma: 0.5}
	for _, c := range []struct {
		name string
		s    Schedule
		step int
		want float64
	}{
		{"constant, first", constant, 0, 0.1},
		{"constant, last", constant, total - 1, 0.1},
		{"warm-up begins above 0", cosine, 0, 0.025},
		{"warm-up ends at the base", cosine, 3, 0.1},
		{"cosine begins at the base", cosine, 4, 0.1},
		{"cosine, half way", cosine, 54, 0.05},
		{"cosine, beyond the end", cosine, 1000, 0},
		{"cosine, half way to a floor", floor, 52, 0.06},
		{"cosine, at the floor", floor, total, 0.02},
		{"step, before the first decay", decay, 13, 0.1},
		{"step, first decay", decay, 14, 0.05},
		{"step, third decay", decay, 34, 0.0125},
	} {
		if err := c.s.Check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := c.s.LR(c.step, total); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%s: LR(%d) = %g, want %g", c.name, c.step, got, c.want)
		}
	}
}

// A rate never rises after the warm-up, never exceeds the base and is above 0 on every step.
func TestScheduleFallsAfterWarmup(t *testing.T) {
	for _, s := range []Schedule{
		{Kind: ScheduleConstant, Base: 1, Warmup: 7},
		{Kind: ScheduleCosine, Base: 1, Warmup: 7},
		{Kind: ScheduleCosine, Base: 1, Warmup: 50, Floor: 0.1},
		{Kind: ScheduleStep, Base: 1, Warmup: 7, Every: 3, Gamma: 0.9},
	} {
		const total = 50
		for step := range total {
			lr := s.LR(step, total)
			if lr <= 0 || lr > 1 {
				t.Errorf("%+v: LR(%d) = %g, want it in (0,1]", s, step, lr)
			}
			if step > s.Warmup && lr > s.LR(step-1, total) {
				t.Errorf("%+v: LR rises at step %d", s, step)
			}
		}
	}
}

func TestScheduleFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Schedule
		want []string
	}{
		{"unknown kind", Schedule{Kind: "linear"},
			[]string{`schedule "linear" is not one of: constant, cosine, step`}},
		{"negative rate", Schedule{Kind: ScheduleConstant, Base: -1},
			[]string{"learning rate is -1"}},
		{"rate is not a number", Schedule{Kind: ScheduleConstant, Base: math.NaN()},
			[]string{"learning rate is NaN"}},
		{"all faults at once", Schedule{Kind: ScheduleStep, Gamma: 2, Warmup: -1},
			[]string{"every 0 steps", "factor of 2", "lasts -1 steps"}},
		{"floor above the base", Schedule{Kind: ScheduleCosine, Floor: 1.5},
			[]string{"ends at 1.5"}},
	} {
		err := c.s.Check()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q in it", c.name, err, want)
			}
		}
	}
}
