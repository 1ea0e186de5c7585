package report

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/base/chart"
)

// verdict returns sentences about the quality of the model and the time of an epoch.
func verdict(runs []*Run) (sentences []string) {
	finished := slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return r.Summary == nil })
	switch {
	case len(finished) == 0:
		return []string{"No run has finished."}
	case len(finished) == 1:
		sentences = append(sentences, judged(finished[0]), paced(finished[0]), slowest(finished[0]))
	default:
		all := byData(finished)
		for _, g := range all {
			of := ""
			if len(all) > 1 {
				of = dataName(g[0]) + ": "
			}
			about := []string{best(g), fastest(g)}
			if len(g) == 1 {
				about = []string{judged(g[0]), paced(g[0])}
			}
			for _, s := range about {
				if s != "" {
					sentences = append(sentences, of+s)
				}
			}
		}
	}
	if n := len(runs) - len(finished); n > 0 {
		sentences = append(sentences, fmt.Sprintf("%d of %d runs have not finished.", n, len(runs)))
	}
	return slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
}

// judged returns a sentence about the quality of a run's model.
func judged(r *Run) string {
	test, ok := r.Summary.num(&the.summary.TestMetric)
	metric := cmp.Or(visible(r.metric()), "metric")
	if why := r.noValue(&the.summary.TestMetric); !ok && why != "" {
		return fmt.Sprintf("The test split gives no %s: %s.", metric, why)
	}
	if !ok {
		return ""
	}
	s := fmt.Sprintf("Test %s %s", metric, metricText(metric, test, true))
	if epoch, known := r.Summary.num(&the.summary.BestEpoch); known {
		s += fmt.Sprintf(" with the weights of epoch %g of %d", epoch, len(r.Epochs))
	}
	majority, known := r.Summary.num(&the.summary.MajorityAccuracy)
	if !known || r.metric() != "accuracy" {
		return s + "."
	}
	gain := 100 * (test - majority)
	if gain <= 0 {
		return s + fmt.Sprintf(": no better than the majority class, %s.", percent(majority, true))
	}
	return s + fmt.Sprintf(", %.1f points above the majority class.", gain)
}

// paced returns a sentence about the time of an epoch, and about how long training waited in an
// epoch.
func paced(r *Run) string {
	seconds, ok := r.seconds()
	if !ok {
		return ""
	}
	s := fmt.Sprintf("An epoch took %s s", chart.Number(seconds))
	if wait, waits := mean(r.Epochs, &the.epoch.WaitFraction); waits {
		s += fmt.Sprintf(", of which training waited %s for minibatches", percent(wait, true))
	}
	if remote, counted := mean(r.Epochs, &the.epoch.Remote); counted && remote > 0 {
		s += fmt.Sprintf("; %s feature rows crossed between nodes", count(remote, true))
	}
	return s + "."
}

// best returns a sentence that names the run with the best validation metric and its test result.
// It returns "" if the runs have different metrics. If jobs were repeated with other seeds or
// splits, it names the best job. It also says how many runs have no validation value.
func best(runs []*Run) string {
	for _, r := range runs[1:] {
		if r.metric() != runs[0].metric() {
			return ""
		}
	}
	jobs := jobsOf(runs)
	if len(jobs) == 0 {
		return ""
	}
	first, last := jobs[0], jobs[len(jobs)-1]
	metric, valued := visible(first.runs[0].metric()), 0
	for _, j := range jobs {
		valued += len(j.runs)
	}
	rest := ""
	if n := len(runs) - valued; n > 0 {
		rest = fmt.Sprintf(" %d of %d runs have no validation.", n, len(runs))
	}
	if len(jobs) > 1 && rest == "" && first.valid == last.valid && first.test == last.test {
		return fmt.Sprintf("All runs have the same validation %s, %s; test %s.", metric,
			first.text(first.valid), first.text(first.test))
	}
	s := fmt.Sprintf("Best by validation: %s, %s %s; test %s", first.name, metric,
		first.text(first.valid), first.text(first.test))
	if len(first.runs) > 1 {
		s += fmt.Sprintf(" (mean ± standard deviation of %d runs)", len(first.runs))
	}
	if len(jobs) > 1 {
		s += fmt.Sprintf(". The last of %d, %s, has %s; test %s", len(jobs), last.name,
			last.text(last.valid), last.text(last.test))
	}
	return s + "." + rest
}

// fastest returns a sentence that names the run with the shortest epochs.
func fastest(runs []*Run) string {
	var measured []*Run
	for _, r := range runs {
		if _, ok := r.seconds(); ok {
			measured = append(measured, r)
		}
	}
	if len(measured) < 2 {
		return ""
	}
	slices.SortStableFunc(measured, func(a, b *Run) int {
		x, _ := a.seconds()
		y, _ := b.seconds()
		return cmp.Compare(x, y)
	})
	first, last := measured[0], measured[len(measured)-1]
	low, _ := first.seconds()
	high, _ := last.seconds()
	s := fmt.Sprintf("Fastest epochs: %s, %s s", first.Name, chart.Number(low))
	if low > 0 {
		s += fmt.Sprintf(", %.1f times as fast as %s", high/low, last.Name)
	}
	return s + "."
}

// spread returns the shortest and the longest time of an epoch, as a text.
func (r *Run) spread() string {
	least, most, n := math.Inf(1), math.Inf(-1), 0
	for _, e := range r.Epochs {
		if x, ok := e.num(&the.epoch.Seconds); ok {
			least, most, n = min(least, x), max(most, x), n+1
		}
	}
	if n < 2 {
		return chart.Absent
	}
	return chart.Number(least) + " to " + chart.Number(most)
}

// mostCards is the largest number of runs that have a column in the table "What was run".
const mostCards = 6

// settings is the table "What was run". It shows data, model, machine and time, in a column for
// each run.
func settings(runs []*Run) table {
	t := table{id: "settings", title: "What was run", columns: []string{""}, words: true}
	shown := runs[:min(len(runs), mostCards)]
	if len(shown) < len(runs) {
		t.note = fmt.Sprintf("The first %d of %d runs.", len(shown), len(runs))
	}
	lines := []struct {
		name string
		of   func(r *Run) string
	}{
		{"data", dataName},
		{"graph", graphOf},
		{"model", modelOf},
		{"minibatch", minibatchOf},
		{"optimiser", func(r *Run) string {
			return r.words("train.optimizer", "lr ", "train.lr", "seed ", "train.seed")
		}},
		{"cache", (*Run).policyName},
		{"ranks", placeOf},
		{"device", func(r *Run) string { return visible(r.Summary.text(&the.summary.Device)) }},
		{"finished", finishOf},
		{"version", func(r *Run) string { return visible(r.Summary.text(&the.summary.Version)) }},
	}
	for _, r := range shown {
		t.columns = append(t.columns, r.Name)
	}
	for _, line := range lines {
		row, known := []string{line.name}, false
		for _, r := range shown {
			text := strings.TrimSpace(line.of(r))
			known = known || text != "" && text != "."
			row = append(row, cmp.Or(text, chart.Absent))
		}
		if known {
			t.rows = append(t.rows, row)
		}
	}
	return t
}

func dataName(r *Run) string {
	v, _ := r.setting("data.parts")
	return visible(filepath.Base(v))
}

// words returns the values of the given config keys, joined by commas. An argument that ends in a
// blank is not a key but text, which is put before the next value.
func (r *Run) words(keys ...string) string {
	var all []string
	before := ""
	for _, k := range keys {
		if strings.HasSuffix(k, " ") {
			before = k
			continue
		}
		if v, ok := r.setting(k); ok {
			all = append(all, before+v)
		}
		before = ""
	}
	return strings.Join(all, ", ")
}

func graphOf(r *Run) string {
	g := r.Summary.object(&the.summary.Graph)
	var all []string
	size := &the.summary.Graph
	for _, f := range []field{&size.Vertices, &size.Edges, &size.Features, &size.Classes} {
		if x, ok := g.num(f); ok {
			all = append(all, count(x, true)+" "+keyOf(f))
		}
	}
	return strings.Join(all, ", ")
}

func modelOf(r *Run) string {
	kind, _ := r.setting("model.kind")
	layers, _ := r.setting("model.layers")
	hidden, known := r.setting("model.hidden")
	if !known {
		return kind
	}
	return fmt.Sprintf("%s, %s layers of %s", kind, layers, hidden)
}

func minibatchOf(r *Run) string {
	fanouts, known := r.setting("sample.fanouts")
	s := r.words("sample.batch")
	switch {
	case s == "":
	case r.words("sample.batch_scope") == "global":
		s += " seeds of all ranks together"
	default:
		s += " seeds a rank"
	}
	if known {
		s += ", fanouts " + strings.ReplaceAll(strings.Trim(fanouts, "[]"), " ", ", ")
	}
	return s
}

func placeOf(r *Run) string {
	ranks, known := r.ranks()
	if !known {
		return ""
	}
	s := fmt.Sprint(ranks)
	if nodes, ok := r.Summary.num(&the.summary.Nodes); ok {
		s += fmt.Sprintf(" on %g nodes", nodes)
		if nodes == 1 {
			s = strings.TrimSuffix(s, "s")
		}
	}
	if host := r.Summary.text(&the.summary.Host); host != "" {
		s += ", " + visible(host)
	}
	if job := r.Summary.text(&the.summary.Job); job != "" {
		s += ", job " + visible(job)
	}
	return s
}

func finishOf(r *Run) string {
	if at := r.Summary.text(&the.summary.Finished); at != "" {
		return visible(strings.Replace(strings.TrimSuffix(at, "Z"), "T", " ", 1)) + " UTC"
	}
	return ""
}

// mostMatrix is the largest number of classes for which the whole confusion matrix is shown.
const mostMatrix = 12

// confusions are tables of the test vertices by their class and by the predicted class, one table
// for each run.
func confusions(runs []*Run) (all []table) {
	for i, r := range runs[:min(len(runs), mostCards)] {
		m := confusionOf(r)
		if m == nil {
			continue
		}
		t := table{
			id: fmt.Sprintf("classes-%d", i+1), title: "Classes of the test vertices: " + r.Name,
			columns: []string{"class", "vertices", "recall", "precision"},
			note: "Recall: share of the vertices of the class that were predicted as it. " +
				"Precision: share of the vertices predicted as the class that belong to it. " +
				"Columns after these: what the vertices of the class were predicted as.",
		}
		if len(runs) == 1 {
			t.title = "Classes of the test vertices"
		}
		if len(m) <= mostMatrix {
			for j := range m {
				t.columns = append(t.columns, "as "+className(r, j))
			}
		} else {
			t.columns = append(t.columns, "most often taken for")
		}
		for c, row := range m {
			t.rows = append(t.rows, classRow(r, m, c, row))
		}
		all = append(all, t)
	}
	return all
}

// className returns the name of a class in the dataset, or its number.
func className(r *Run, c int) string {
	names, _ := r.Summary[keyOf(&the.summary.ClassNames)].([]any)
	if c < len(names) {
		if name, ok := names[c].(string); ok && name != "" {
			return visible(name)
		}
	}
	return fmt.Sprint(c)
}

func classRow(r *Run, m [][]float64, c int, row []float64) []string {
	of, as, worst := 0.0, 0.0, -1
	for j, n := range row {
		of += n
		as += m[j][c]
		if j != c && n > 0 && (worst < 0 || n > row[worst]) {
			worst = j
		}
	}
	cells := []string{
		className(r, c), count(of, true), percent(row[c]/of, of > 0), percent(row[c]/as, as > 0),
	}
	if len(m) > mostMatrix {
		if worst < 0 {
			return append(cells, chart.Absent)
		}
		return append(cells, fmt.Sprintf("%s (%s)", className(r, worst),
			percent(row[worst]/of, true)))
	}
	for _, n := range row {
		cells = append(cells, count(n, true))
	}
	return cells
}

// confusionOf returns the confusion matrix of a run's summary. It returns nil if there is none, or
// if it is damaged.
func confusionOf(r *Run) (m [][]float64) {
	rows, _ := r.Summary[keyOf(&the.summary.Confusion)].([]any)
	for _, row := range rows {
		cells, _ := row.([]any)
		if len(cells) != len(rows) {
			return nil
		}
		line := make([]float64, len(cells))
		for j, x := range cells {
			n, ok := x.(float64)
			if !ok || n < 0 {
				return nil
			}
			line[j] = n
		}
		m = append(m, line)
	}
	return m
}

// allZero reports whether every number of the table is zero or absent.
func (t *table) allZero() bool {
	for _, row := range t.rows {
		for _, cell := range row[1:] {
			if strings.ContainsAny(cell, "123456789") {
				return false
			}
		}
	}
	return true
}
