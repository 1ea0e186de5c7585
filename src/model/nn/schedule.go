package nn

import (
	"errors"
	"fmt"
	"math"
)

// The shapes of a learning-rate schedule.
const (
	ScheduleConstant = "constant"
	ScheduleCosine   = "cosine"
	ScheduleStep     = "step"
)

// Schedule is the learning rate as a function of the step. It has no state, so a resumed run need
// not restore any.
//
//	Base ┤   ┌───────────  constant         ╭─╮            cosine        ┌──────┐        step
//	     │  /                              /   ╲                        /       └──────┐
//	     │ /                              /     ╲___                   /               └───
//	   0 └┴──┴──────────────────       Floor·Base                    Warmup   Every   Every
type Schedule struct {
	Kind string  // ScheduleConstant, ScheduleCosine or ScheduleStep
	Base float64 // the highest rate; with 0 nothing is learned
	// Number of steps in which the rate rises: step s < Warmup has the rate Base (s+1)/Warmup. 0
	// means no rise.
	Warmup int
	Floor  float64 // for cosine: the final rate divided by Base; 0: the rate ends at 0
	Every  int     // for step: number of steps between two decays after the warm-up, >= 1
	Gamma  float64 // for step: factor of each decay, in (0, 1]
}

// Check returns all errors in s, joined into one.
func (s Schedule) Check() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	switch s.Kind {
	case ScheduleConstant:
	case ScheduleCosine:
		fault(!(s.Floor >= 0 && s.Floor <= 1),
			"cosine schedule ends at %g of the learning rate; the share must lie in [0,1]", s.Floor)
	case ScheduleStep:
		fault(s.Every < 1, "step schedule decays every %d steps; it needs at least 1", s.Every)
		fault(!(s.Gamma > 0 && s.Gamma <= 1),
			"step schedule decays by a factor of %g; it must lie in (0,1]", s.Gamma)
	default:
		fault(true, "schedule %q is not one of: %s, %s, %s", s.Kind, ScheduleConstant,
			ScheduleCosine, ScheduleStep)
	}
	fault(!(s.Base >= 0) || math.IsInf(s.Base, 1), "learning rate is %g; it must be 0 or more",
		s.Base)
	fault(s.Warmup < 0, "warm-up lasts %d steps; it must be 0 or more", s.Warmup)
	return errors.Join(faults...)
}

// LR returns the learning rate of a step, counted from 0. The argument `total` is the number of
// steps of the run.
func (s Schedule) LR(step, total int) float64 {
	if step < s.Warmup {
		return s.Base * float64(step+1) / float64(s.Warmup)
	}
	step, total = step-s.Warmup, total-s.Warmup
	switch s.Kind {
	case ScheduleCosine:
		// Loshchilov and Hutter, ICLR 2017, eq. 5, without restarts. The rate reaches the floor at
		// step total, which no step has, so no step has the rate 0 if the floor is 0.
		progress := min(1, float64(step)/float64(max(1, total)))
		return s.Base * (s.Floor + (1-s.Floor)*(1+math.Cos(math.Pi*progress))/2)
	case ScheduleStep:
		return s.Base * math.Pow(s.Gamma, float64(step/s.Every))
	}
	return s.Base
}
