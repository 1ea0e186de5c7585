package train

import "halognn/src/runs/record"

// efficiency holds the time of every rank in those epochs that this process has trained from their
// first step.
type efficiency struct {
	ranks  []record.RankTime
	epochs int
	part   bool // the epoch under way was resumed, so its time is not complete
}

// add adds the epoch that has ended, unless it was resumed.
func (e *efficiency) add(all *shares) {
	if e.part {
		e.part = false
		return
	}
	e.epochs++
	if e.ranks == nil {
		e.ranks = make([]record.RankTime, len(all.each))
	}
	for rank, one := range all.each {
		e.ranks[rank].Add(record.RankTime{Elapsed: one.Seconds, Useful: one.Busy * one.Seconds,
			CPUs: one.CPUs, Phases: one.Phases})
	}
}

func (e *efficiency) summary(why string) record.Efficiency {
	return record.EfficiencyOf(e.ranks, e.epochs, why)
}

// noEfficiency says why the useful time is not known. It returns "" if it is.
func (r *run) noEfficiency() string {
	switch {
	case r.s.Device.Capabilities().Accelerator != nil:
		return "a GPU computes, and processor time does not count its work"
	case r.processor.Ranks > 1:
		return "ranks of one process share its processor time"
	}
	return ""
}
