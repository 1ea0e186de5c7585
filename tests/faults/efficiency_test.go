//go:build faults

package faults

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A planted imbalance and a planted delay show in the efficiency as large as they are: rank 1 works
// longer, and all ranks sleep, in each step. Bounds hold on a machine that others use, too: what
// was burnt is processor time, and sleeping takes at least as long as was asked for.
func TestFaultsShowInEfficiency(t *testing.T) {
	l := newLab(t)
	type efficiency struct {
		LoadBalance        float64           `json:"load_balance"`
		Communication      float64           `json:"communication_efficiency"`
		Parallel           float64           `json:"parallel_efficiency"`
		ComputationSeconds float64           `json:"computation_seconds"`
		NoValue            map[string]string `json:"no_value"`
		Slowest            struct {
			Rank            int
			Seconds, Useful float64
		} `json:"slowest_rank"`
	}
	train := func(name, faults string) (e efficiency, steps float64) {
		run := filepath.Join(l.dir, name)
		j := l.start(2, faults, nil,
			append(l.args(l.parts(), run), "--set", "train.epochs=2", "--set",
				"checkpoint.every_steps=0", "--set", "run.stall_seconds=0")...)
		if j.code != 0 {
			t.Fatalf("%s: code %d\n%s", name, j.code, j.text)
		}
		text, err := os.ReadFile(filepath.Join(run, "summary.json"))
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Efficiency efficiency `json:"efficiency"`
			Steps      float64    `json:"steps_per_epoch"`
		}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if why := s.Efficiency.NoValue["parallel_efficiency"]; strings.Contains(why, "share CPUs") {
			t.Skip("two ranks have fewer than two CPUs here: ", why)
		}
		if e = s.Efficiency; e.Parallel == 0 {
			t.Fatalf("%s: no efficiency:\n%s", name, text)
		}
		return e, s.Steps
	}
	alone, _ := train("alone", "")
	const burnt, slept = 0.08, 0.08
	e, steps := train("planted", "forward=burn:80@1:-1:-1,forward=slow:80@-1:-1:-1")
	span := e.Slowest.Seconds
	cpus := e.ComputationSeconds / (2 * e.Parallel * span)
	t.Logf("alone %+v\nplanted %+v, %g steps, %.2f CPUs a rank", alone, e, steps, cpus)
	if e.Slowest.Rank != 1 {
		t.Errorf("rank %d works longest, not rank 1", e.Slowest.Rank)
	}
	if math.Abs(e.Parallel-e.LoadBalance*e.Communication) > 1e-9 {
		t.Errorf("%g is not %g times %g", e.Parallel, e.LoadBalance, e.Communication)
	}
	// What was burnt, beside what both ranks do without it.
	own := alone.ComputationSeconds / 2
	if want := (own + burnt*steps/2) / (own + burnt*steps); math.Abs(e.LoadBalance-want) > 0.1 {
		t.Errorf("a load balance of %g, want %g", e.LoadBalance, want)
	}
	other := own / cpus / span // threads that prepare may work while the training thread sleeps
	if least := burnt * steps / cpus / span; e.Communication < 0.98*least ||
		e.Communication > 1.02*(1-slept*steps*min(1, 1/cpus)/span)+2*other {
		t.Errorf("a communication efficiency of %g; the longest rank burnt %g of %g s, and slept "+
			"%g", e.Communication, burnt*steps, span, slept*steps)
	}
	if grown := e.ComputationSeconds - alone.ComputationSeconds; grown < burnt*steps-own {
		t.Errorf("an epoch computes %g s more; %g were burnt", grown, burnt*steps)
	}
}
