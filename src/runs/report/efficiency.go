package report

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"halognn/src/base/timing"
	"halognn/src/runs/record"
)

// popMetrics are the metrics of the POP project, which analyses parallel efficiency, in the order
// of the table's columns.
var popMetrics = []struct {
	column string
	of     field
}{
	{"parallel", &the.summary.Efficiency.Parallel},
	{"load balance", &the.summary.Efficiency.LoadBalance},
	{"communication", &the.summary.Efficiency.Communication},
	{"transfer", &the.summary.Efficiency.Transfer},
	{"serialisation", &the.summary.Efficiency.Serialisation},
}

// efficiencies is the table of the metrics of parallel efficiency by the POP project.
func efficiencies(runs []*Run) table {
	t := table{
		id: "efficiency", title: "Parallel efficiency, by POP's definitions",
		columns: []string{"run", "ranks"},
		note: "Parallel = load balance × communication; communication = transfer × " +
			"serialisation. These two need the time of the same epoch on an ideal network. " +
			"Useful is the time in " +
			"which a rank's CPUs work for it, neither idle nor polling. Computation scaling: " +
			"processor seconds of an epoch of the same work on the fewest ranks, the median of " +
			"several, over those of the run.",
	}
	for _, m := range popMetrics {
		t.columns = append(t.columns, m.column)
	}
	t.columns = append(t.columns, "processor s/epoch", "computation scaling")
	smallest := smallestRuns(runs)
	var told []*Run
	for _, r := range runs {
		e := r.Summary.object(&the.summary.Efficiency)
		if e == nil {
			continue
		}
		told = append(told, r)
		ranks, known := r.ranks()
		row := []string{r.Name, cell(float64(ranks), known)}
		for _, m := range popMetrics {
			x, ok := e.num(m.of)
			row = append(row, percent(x, ok))
		}
		seconds, ok := r.computation()
		least, compared := smallest[r]
		t.rows = append(t.rows, append(row, cell(seconds, ok),
			percent(least/max(seconds, 1e-9), ok && compared)))
	}
	t.why = withoutEfficiency(told)
	return t
}

// computation returns the seconds that the processors of all ranks computed in an epoch. If ok is
// false, it is not known.
func (r *Run) computation() (seconds float64, ok bool) {
	e := &the.summary.Efficiency
	seconds, ok = r.Summary.object(e).num(&e.ComputationSeconds)
	return seconds, ok && seconds > 0
}

// sameWork reports whether an epoch computes the same amount for every value of a key. This is so
// for keys of caches, rates and seeds.
func sameWork(key string) bool {
	switch key {
	case "train.lr", "train.schedule", "train.step_epochs", "train.weight_decay", "train.epochs",
		"train.patience":
		return true
	}
	return sameEpoch(key) && !strings.HasPrefix(key, "compute.") || seedKey(key)
}

// smallestRuns returns, for each run that can be compared with others, the processor seconds of the
// comparable run on the fewest ranks. If several runs are on this number of ranks, it returns their
// median.
func smallestRuns(runs []*Run) map[*Run]float64 {
	of := map[*Run]float64{}
	for _, g := range equalWork(slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool {
		_, ok := r.computation()
		ranks, known := r.ranks()
		return !ok || !known || ranks < 1
	}), sameWork) {
		if len(g) < 2 {
			continue
		}
		fewest := math.MaxInt
		for _, r := range g {
			ranks, _ := r.ranks()
			fewest = min(fewest, ranks)
		}
		var seconds []float64
		for _, r := range g {
			if ranks, _ := r.ranks(); ranks == fewest {
				x, _ := r.computation()
				seconds = append(seconds, x)
			}
		}
		for _, r := range g {
			of[r] = timing.Median(seconds)
		}
	}
	return of
}

// withoutEfficiency returns sentences that list the runs without a value of a metric, and the
// reason.
func withoutEfficiency(runs []*Run) string {
	var sentences []string
	told := map[string]bool{}
	for _, m := range popMetrics {
		for _, r := range runs {
			why := whyNone(r, m.of)
			if why == "" || told[why] {
				continue
			}
			told[why] = true
			var columns, names []string
			for _, other := range popMetrics {
				if whyNone(r, other.of) == why {
					columns = append(columns, other.column)
				}
			}
			for _, other := range runs {
				if whyNone(other, m.of) == why {
					names = append(names, other.Name)
				}
			}
			of := ""
			if n := len(names) - mostNamed; len(names) < len(runs) {
				of = " of " + strings.Join(names[:min(len(names), mostNamed)], ", ")
				if n > 0 {
					of += fmt.Sprintf(" and %d more", n)
				}
			}
			sentences = append(sentences, fmt.Sprintf("No %s%s: %s.", strings.Join(columns, ", "),
				of, why))
		}
	}
	return strings.Join(sentences, " ")
}

// mostNamed is the largest number of runs that a sentence names.
const mostNamed = 3

// whyNone returns the reason why a run has no value of a metric. It returns "" if the run has a
// value, or gives no reason.
func whyNone(r *Run, f field) string {
	e := r.Summary.object(&the.summary.Efficiency)
	if _, ok := e.num(f); ok {
		return ""
	}
	return e.object(&the.summary.Efficiency.NoValue).text(f)
}

// slowest returns a sentence about the rank for which the other ranks wait. The sentence names the
// page that says what to do. It is empty if this rank is not known.
func slowest(r *Run) string {
	text, err := json.Marshal(r.Summary.object(&the.summary.Efficiency))
	var e record.Efficiency
	if err != nil || json.Unmarshal(text, &e) != nil {
		return ""
	}
	if n, known := r.ranks(); !known || n < 2 || e.Slowest == nil {
		return ""
	}
	return e.Sentence() + " " + record.WhatToDo
}
