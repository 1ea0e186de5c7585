package report

import (
	"encoding/json"

	measured "halognn/src/record"
)

// efficiencies is the table of POP's metrics. Computation scaling is against the fewest ranks of the
// run's study.
func efficiencies(runs []*Run) table {
	t := table{
		id: "efficiency", title: "Parallel efficiency, by POP's definitions",
		columns: []string{"run", "ranks", "parallel", "load balance", "communication", "transfer",
			"serialisation", "processor s/epoch", "computation scaling"},
		note: "Parallel = load balance × communication; communication = transfer × serialisation, " +
			"which need the same epoch on an ideal network. Useful is the time in which a rank's CPUs " +
			"work for it, neither idle nor polling. Computation scaling: processor seconds of the " +
			"fewest ranks over those of the run.",
	}
	smallest := map[*Run]*Run{}
	for _, s := range studies(runs) {
		for _, p := range s.points {
			for _, r := range p.runs {
				smallest[r] = s.points[0].runs[0]
			}
		}
	}
	for _, r := range runs {
		e := r.Summary.object("efficiency")
		if _, known := e.num("parallel_efficiency"); !known {
			continue
		}
		ranks, known := r.ranks()
		row := []string{r.Name, cell(float64(ranks), known)}
		for _, key := range []string{"parallel_efficiency", "load_balance", "communication_efficiency",
			"transfer_efficiency", "serialisation_efficiency"} {
			x, ok := e.num(key)
			row = append(row, percent(x, ok))
		}
		seconds, ok := e.num("computation_seconds")
		row = append(row, cell(seconds, ok))
		first, compared := 0.0, false
		if of := smallest[r]; of != nil && seconds > 0 {
			first, compared = of.Summary.object("efficiency").num("computation_seconds")
		}
		t.rows = append(t.rows, append(row, percent(first/max(seconds, 1e-9), ok && compared)))
	}
	return t
}

// slowest returns the sentence about the rank that the others wait for; "" if it is not known.
func slowest(r *Run) string {
	text, err := json.Marshal(r.Summary.object("efficiency"))
	var e measured.Efficiency
	if err != nil || json.Unmarshal(text, &e) != nil {
		return ""
	}
	if n, known := r.ranks(); !known || n < 2 {
		return ""
	}
	return e.Sentence()
}
