package report

import (
	"strings"
	"testing"
)

// Each metric without a value has its reason below the table, of the runs that it is about; a sweep
// prints the table and the reasons.
func TestWhyEfficiencyIsUnknown(t *testing.T) {
	runs := fixture(t, "base", "wide")
	const replay, shared = "a run is not replayed", "ranks share CPUs"
	for i, r := range runs {
		why := map[string]any{"transfer_efficiency": replay, "serialisation_efficiency": replay}
		e := map[string]any{"load_balance": 0.5, "communication_efficiency": 0.5,
			"parallel_efficiency": 0.25,
			"computation_seconds": float64(4 * (i + 1)), "no_value": why}
		if i == 1 {
			for _, key := range []string{"load_balance", "communication_efficiency",
				"parallel_efficiency",
				"computation_seconds"} {
				e[key], why[key] = nil, shared
			}
		}
		r.Summary["efficiency"] = e
	}
	const want = "No parallel, load balance, communication of wide: ranks share CPUs. " +
		"No transfer, serialisation: a run is not replayed."
	if got := efficiencies(runs).why; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var printed strings.Builder
	if err := PrintSweep(&printed, runs); err != nil {
		t.Fatal(err)
	}
	if got := printed.String(); !strings.Contains(got, want) || !strings.Contains(got, "25.00") {
		t.Errorf("a sweep says:\n%s", got)
	}
}

// Runs whose epochs compute the same are compared, on any number of ranks, with the median of those
// on the fewest; another model is not.
func TestComputationScaling(t *testing.T) {
	runs := fixture(t, "base", "base", "base", "wide", "base")
	for i, c := range []struct {
		seconds    float64
		key, value string
	}{{10, "train.lr", "0.1"}, {8, "train.lr", "0.2"}, {6, "train.seed", "3"}, {16, "", ""},
		{8, "model.hidden", "7"}} {
		runs[i].Summary["efficiency"] = map[string]any{"computation_seconds": c.seconds}
		if c.key != "" {
			runs[i].Config[c.key] = c.value
		}
	}
	table := efficiencies(runs)
	var got []string
	for _, row := range plainText(table.rows) {
		got = append(got, row[len(row)-1])
	}
	if want := "80.00 % 100.00 % 133.33 % 50.00 % –"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}
