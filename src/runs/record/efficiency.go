package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"halognn/src/base/trace"
)

// Efficiency is how much of the time of all CPUs is work, and what takes the rest of the time, by
// the definitions of the POP centre of excellence (https://pop-coe.eu/node/69). A rank's useful
// time is the mean, over its CPUs, of the time in which they worked for it, as `busy_fraction`
// counts it. The numbers are those of the epochs since the last start. A number that was not
// measured is null.
type Efficiency struct {
	// mean useful time / longest of any rank
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
	// why values are null
	NoValue map[string]string `json:"no_value,omitempty"`
}

// SlowestRank says where the time of the slowest rank goes.
type SlowestRank struct {
	// number of the slowest rank
	Rank int `json:"rank"`
	// seconds of an epoch on this rank
	Seconds float64 `json:"seconds"`
	// useful time, as a share of the time of the rank's CPUs
	Useful float64 `json:"useful"`
	// seconds of the phases of the rank's training thread
	PhaseSeconds map[string]float64 `json:"phase_seconds"`
}

// RankTime is a rank's time in some epochs, in seconds.
type RankTime struct {
	Elapsed float64
	Useful  float64 // mean over the CPUs of the rank
	CPUs    float64
	Phases  [trace.NumPhases]float64
}

// Add adds the times of another epoch.
func (t *RankTime) Add(o RankTime) {
	t.Elapsed += o.Elapsed
	t.Useful += o.Useful
	t.CPUs = o.CPUs
	for p, s := range o.Phases {
		t.Phases[p] += s
	}
}

const noReplay = "a run is not replayed on an ideal network; a plan is (docs/guide/size-a-job.md)"

// EfficiencyOf computes the Efficiency of a run. The argument `ranks` has the times of all ranks,
// which are sums over the given number of epochs. If why is not empty, it says why there are no
// such times.
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
		why = "the system does not report the processor time of a rank"
	}
	if why != "" {
		for _, key := range []string{
			"load_balance", "communication_efficiency", "parallel_efficiency",
			"computation_seconds",
		} {
			e.NoValue[key] = why
		}
		return e
	}
	mean := computed / cpus
	set := func(x float64) *float64 { return &x }
	e.LoadBalance, e.Communication = set(mean/most), set(most/elapsed)
	e.Parallel = set(mean / elapsed)
	e.ComputationSeconds = set(computed / float64(epochs))
	t := ranks[slowest]
	e.Slowest = &SlowestRank{Rank: slowest, Seconds: t.Elapsed / float64(epochs),
		Useful: t.Useful / t.Elapsed, PhaseSeconds: map[string]float64{}}
	for p := range trace.NumPhases {
		e.Slowest.PhaseSeconds[p.String()] = t.Phases[p] / float64(epochs)
	}
	return e
}

// WhatToDo names the page that says what to do about long phases.
const WhatToDo = "What to do about a long phase: docs/guide/reading-a-report.md, Long phases."

// Sentence says where the time of the slowest rank goes. It is empty if that was not measured.
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
	return fmt.Sprintf("%s; of the %.3g s of an epoch its training thread spends %s.", text,
		s.Seconds, strings.Join(parts, ", "))
}
