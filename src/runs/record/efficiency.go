package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"halognn/src/base/trace"
)

// Efficiency is how much of the time of all CPUs is work, and what takes the rest, by the definitions
// of the POP centre of excellence (https://pop-coe.eu/node/69): a rank's useful time is the mean over
// its CPUs of the time in which they worked for it, as `busy_fraction` counts it. Of the epochs since
// the last start; null what was not measured.
type Efficiency struct {
	// mean useful time / the longest of a rank
	LoadBalance *float64 `json:"load_balance"`
	// longest useful time / epoch time
	Communication *float64 `json:"communication_efficiency"`
	// their product
	Parallel *float64 `json:"parallel_efficiency"`
	// epoch time on an ideal network / epoch time
	Transfer *float64 `json:"transfer_efficiency"`
	// longest useful time / epoch time on an ideal network
	Serialisation *float64 `json:"serialisation_efficiency"`
	// processor seconds of an epoch, all ranks
	ComputationSeconds *float64 `json:"computation_seconds"`
	// the rank with the longest useful time
	Slowest *SlowestRank `json:"slowest_rank,omitempty"`
	// why what is null is
	NoValue map[string]string `json:"no_value,omitempty"`
}

// SlowestRank is where the time of one rank goes.
type SlowestRank struct {
	// which
	Rank int `json:"rank"`
	// of an epoch
	Seconds float64 `json:"seconds"`
	// share of its CPUs' time
	Useful float64 `json:"useful"`
	// of its training thread
	PhaseSeconds map[string]float64 `json:"phase_seconds"`
}

// RankTime is a rank's time in some epochs: seconds.
type RankTime struct {
	Elapsed float64
	Useful  float64 // mean over its CPUs
	CPUs    float64
	Phases  [trace.NumPhases]float64
}

// Add adds another epoch's.
func (t *RankTime) Add(o RankTime) {
	t.Elapsed += o.Elapsed
	t.Useful += o.Useful
	t.CPUs = o.CPUs
	for p, s := range o.Phases {
		t.Phases[p] += s
	}
}

const noReplay = "a run is not replayed on an ideal network; a plan is (docs/guide/size-a-job.md)"

// EfficiencyOf computes it from the times of all ranks in so many epochs, or tells why there is none.
func EfficiencyOf(ranks []RankTime, epochs int, why string) Efficiency {
	e := Efficiency{NoValue: map[string]string{"transfer_efficiency": noReplay,
		"serialisation_efficiency": noReplay}}
	most, elapsed, computed, cpus, slowest := 0.0, 0.0, 0.0, 0.0, 0
	for rank, t := range ranks {
		elapsed = max(elapsed, t.Elapsed)
		computed += t.Useful * t.CPUs
		cpus += t.CPUs
		if len(ranks) > 1 && t.CPUs > 0 && t.CPUs < 1 && why == "" {
			why = "ranks share CPUs, so that one may work in another's time"
		}
		if t.Useful > most {
			most, slowest = t.Useful, rank
		}
	}
	if why == "" && (epochs == 0 || elapsed == 0) {
		why = "no epoch was completed since the last start"
	}
	if why == "" && most == 0 {
		why = "the system does not tell the processor time of a rank"
	}
	if why != "" {
		for _, key := range []string{"load_balance", "communication_efficiency", "parallel_efficiency",
			"computation_seconds"} {
			e.NoValue[key] = why
		}
		return e
	}
	mean := computed / cpus
	set := func(x float64) *float64 { return &x }
	e.LoadBalance, e.Communication, e.Parallel = set(mean/most), set(most/elapsed), set(mean/elapsed)
	e.ComputationSeconds = set(computed / float64(epochs))
	t := ranks[slowest]
	e.Slowest = &SlowestRank{Rank: slowest, Seconds: t.Elapsed / float64(epochs),
		Useful: t.Useful / t.Elapsed, PhaseSeconds: map[string]float64{}}
	for p := range trace.NumPhases {
		e.Slowest.PhaseSeconds[p.String()] = t.Phases[p] / float64(epochs)
	}
	return e
}

// WhatToDo names the page about long phases.
const WhatToDo = "What to do about a long phase: docs/guide/reading-a-report.md, Long phases."

// Sentence says where the time of the slowest rank goes; "" where that was not measured.
func (e *Efficiency) Sentence() string {
	if e.Slowest == nil {
		return ""
	}
	s, own := e.Slowest, trace.OfTraining()
	slices.SortStableFunc(own, func(a, b trace.Phase) int {
		return cmp.Compare(s.PhaseSeconds[b.String()], s.PhaseSeconds[a.String()])
	})
	var parts []string
	for _, p := range own {
		if share := 100 * s.PhaseSeconds[p.String()] / s.Seconds; share >= 1 {
			parts = append(parts, fmt.Sprintf("%s %.0f %%", p, share))
		}
	}
	text := fmt.Sprintf("Rank %d works longest, %.0f %% of its CPUs' time", s.Rank, 100*s.Useful)
	if len(parts) == 0 {
		return text + "."
	}
	return fmt.Sprintf("%s; of the %.3g s of an epoch its training thread spends %s.", text, s.Seconds,
		strings.Join(parts, ", "))
}
