package record

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"halognn/src/base/trace"
)

// Two ranks of 2 CPUs, 10 s: one works 8 s of each CPU, the other 4 s.
func TestEfficiency(t *testing.T) {
	var phases [trace.NumPhases]float64
	phases[trace.Forward], phases[trace.Wait], phases[trace.Save] = 6, 3, 0.05
	e := EfficiencyOf([]RankTime{
		{Elapsed: 10, Useful: 4, CPUs: 2, Phases: phases},
		{Elapsed: 10, Useful: 8, CPUs: 2, Phases: phases},
	}, 2, "")
	for name, x := range map[string]struct {
		got  *float64
		want float64
	}{"load balance": {e.LoadBalance, 0.75}, "communication": {e.Communication, 0.8},
		"parallel": {e.Parallel, 0.6}, "computation": {e.ComputationSeconds, 12}} {
		if x.got == nil || math.Abs(*x.got-x.want) > 1e-12 {
			t.Errorf("%s: %v, want %g", name, x.got, x.want)
		}
	}
	want := "Rank 1 works longest, 80 % of its CPUs' time; of the 5 s of an epoch its training " +
		"thread spends forward 60 %, wait 30 %."
	if got := e.Sentence(); got != want {
		t.Error(got)
	}
	e = EfficiencyOf(
		[]RankTime{{Elapsed: 10, Useful: 10, CPUs: 1}, {Elapsed: 10, Useful: 1, CPUs: 7}}, 1, "")
	if math.Abs(*e.Parallel-17.0/80) > 1e-12 || math.Abs(*e.LoadBalance-0.2125) > 1e-12 {
		t.Errorf("unequal ranks: parallel %g, balance %g", *e.Parallel, *e.LoadBalance)
	}
	if e.Transfer != nil || e.Serialisation != nil || e.NoValue["transfer_efficiency"] == "" {
		t.Errorf("without a replay: %+v", e)
	}
}

// What was not measured is null, with the reason, never 0.
func TestNoEfficiency(t *testing.T) {
	for why, of := range map[string]struct {
		ranks  []RankTime
		epochs int
		said   string
	}{
		"no epoch":        {nil, 0, ""},
		"does not report": {[]RankTime{{Elapsed: 3, CPUs: 1}}, 1, ""},
		"share CPUs": {[]RankTime{{Elapsed: 3, Useful: 4, CPUs: 0.5},
			{Elapsed: 3, Useful: 1, CPUs: 0.5}}, 1, ""},
		"a GPU": {[]RankTime{{Elapsed: 3, Useful: 1, CPUs: 1}}, 1, "a GPU computes"},
	} {
		e := EfficiencyOf(of.ranks, of.epochs, of.said)
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `"parallel_efficiency":null`) || e.Sentence() != "" ||
			!strings.Contains(e.NoValue["parallel_efficiency"], why) {
			t.Errorf("%s: %s", why, text)
		}
	}
}
