package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"halognn/src/base/chart"
	"halognn/src/base/trace"
)

// table is a heading, columns and rows of text.
type table struct {
	id, title, note string
	why             string // the reason why some cells have no value
	columns         []string
	rows            [][]string
	words           bool // cells are words, not numbers
	turned          bool // whether each run is a column instead of a row
}

func tablesOf(runs []*Run) []table {
	runs = ranked(runs)
	tables := append([]table{repetitions(runs), outcomes(runs), settings(runs)},
		confusions(runs)...)
	if len(runs) > 1 {
		tables = append(tables, differences(runs))
	}
	tables = append(tables, scaling(runs), weakScaling(runs), efficiencies(runs), phases(runs),
		overheads(runs), timeModel(runs),
		setUp(runs), traffic(runs), caches(runs), baselines(runs), locality(runs), balance(runs))
	for _, r := range runs {
		t := kernels(r)
		if len(runs) > 1 {
			t.id, t.title = t.id+"-"+r.Name, t.title+" of "+r.Name
		}
		tables = append(tables, t)
	}
	for i := range tables {
		tables[i].dropZeros()
	}
	return slices.DeleteFunc(tables, func(t table) bool { return len(t.rows) == 0 })
}

// dropZeros removes columns of numbers that are zero or absent in every row. If all columns are
// such, it removes none.
func (t *table) dropZeros() {
	if t.words || t.allZero() {
		return
	}
	if t.turned {
		t.turn()
		defer t.turn()
	}
	for at := len(t.columns) - 1; at > 0; at-- {
		if slices.ContainsFunc(t.rows, func(row []string) bool {
			return at < len(row) && row[at] != chart.Absent && strings.Trim(row[at],
				"0.\u202f%") != ""
		}) {
			continue
		}
		cut := func(row []string) []string { return slices.Delete(slices.Clone(row), at, at+1) }
		t.columns = cut(t.columns)
		for i, row := range t.rows {
			if at < len(row) {
				t.rows[i] = cut(row)
			}
		}
	}
}

// outcomes is the table of every run's results.
func outcomes(runs []*Run) table {
	t := table{
		id: "runs", title: "Runs",
		columns: []string{"run", "ranks", "test", "valid", "epochs", "s/epoch", "least to most",
			"waiting", "MB/rank", "loss digest"},
		note: "test, valid: the metric at the best epoch; s/epoch: median, and the least to the " +
			"most; waiting: share of the epoch in which training waited for a minibatch; " +
			"MB/rank: largest resident set. Runs with equal loss digests had the same loss, bit " +
			"by bit, at every step. " + chart.Absent + ": not recorded, which is not zero.",
	}
	score := scores(runs)
	for _, r := range runs {
		seconds, timed := r.seconds()
		wait, waits := mean(r.Epochs, &the.epoch.WaitFraction)
		memory, measured := r.Summary.num(&the.summary.PeakRSSBytes)
		ranks, known := r.ranks()
		t.rows = append(t.rows, []string{
			r.Name, cell(float64(ranks), known),
			score(r, &the.summary.TestMetric), score(r, &the.summary.ValidMetric),
			strconv.Itoa(len(r.Epochs)), cell(seconds, timed), r.spread(),
			share(wait, waits), count(memory/1e6, measured),
			cmp.Or(r.Summary.text(&the.summary.LossDigest), chart.Absent),
		})
	}
	return t
}

// scores returns a function that formats a metric of a run. If the run has no value, the function
// returns the reason. It adds the name of the metric if the runs have different metrics.
func scores(runs []*Run) func(r *Run, f field) string {
	names := map[string]bool{}
	for _, r := range runs {
		if r.metric() != "" {
			names[r.metric()] = true
		}
	}
	return func(r *Run, f field) string {
		x, ok := r.Summary.num(f)
		text := metricText(r.metric(), x, ok)
		if why := r.noValue(f); !ok && why != "" {
			text += " (" + why + ")"
		}
		if ok && len(names) > 1 {
			text += " " + r.metric()
		}
		return text
	}
}

// differences is the table of the config keys in which the runs differ, and of their results. It
// has a column for each key, or a column for each run if this makes the table narrower.
func differences(runs []*Run) table {
	keys := differing(runs, noKey)
	t := table{
		id: "differences", title: "What differs in the configs",
		columns: append(append([]string{"run"}, keys...), "ranks", "s/epoch",
			"transferred/epoch", "hit rate", "valid", "test"),
		note: "All other settings are the same. " + chart.Absent +
			": the run's version had no such key.",
	}
	score := scores(runs)
	for _, r := range runs {
		row := []string{r.Name}
		for _, k := range keys {
			row = append(row, r.shown(k))
		}
		ranks, known := r.ranks()
		seconds, timed := r.seconds()
		remote, counted := transfers(r.Epochs)
		hit, rated := r.hitRate()
		t.rows = append(t.rows,
			append(row, cell(float64(ranks), known), cell(seconds, timed), count(remote, counted),
				percent(hit, rated), score(r, &the.summary.ValidMetric),
				score(r, &the.summary.TestMetric)))
	}
	if len(t.columns) > 10 && len(runs) < 10 {
		t.turn()
	}
	return t
}

// turn transposes the table.
func (t *table) turn() {
	all := append([][]string{t.columns}, t.rows...)
	turned := make([][]string, len(t.columns))
	for _, row := range all {
		for k, v := range row {
			turned[k] = append(turned[k], v)
		}
	}
	t.columns, t.rows, t.turned = turned[0], turned[1:], !t.turned
}

// turnedIfFew transposes the table if there are few runs, so that each run is a column.
func (t table) turnedIfFew() table {
	if n := len(t.rows); n > 0 && n <= mostTurned {
		t.turn()
	}
	return t
}

func traffic(runs []*Run) table {
	t := table{
		id: "traffic", title: "Feature rows per epoch, all ranks", columns: []string{"run"},
		note: "Transferred: the sum of the three columns before it. Rounds/step: number of " +
			"collectives that every rank started for its minibatches of a step.",
	}
	for _, tier := range tiers {
		t.columns = append(t.columns, tier.name)
	}
	t.columns = append(t.columns, "transferred", "MB", "rounds/step")
	for _, r := range runs {
		row := []string{r.Name}
		for i := range tiers {
			row = append(row, chart.Number(math.Round(tier(r.Epochs, i))))
		}
		remote, counted := transfers(r.Epochs)
		bytes, sized := mean(r.Epochs, &the.epoch.RemoteBytes)
		rounds, known := r.Summary.num(&the.summary.CollectivesPerStep)
		t.rows = append(t.rows,
			append(row, count(remote, counted), cell(bytes/1e6, sized), cell(rounds, known)))
	}
	return t
}

// caches is the table of the runs' caches and of what they saved.
func caches(runs []*Run) table {
	t := table{
		id: "caches", title: "Caches",
		columns: []string{"run", "policy", "rows", "MB", "hit rate", "buffer hit rate",
			"evictions/epoch", "deciding, s/epoch", "transferred/step", "predicted/step"},
		note: "Rows, MB: of the rank with the largest cache; MB include the policy's memory. Hit " +
			"rate: 1 - transferred / remote accesses; the buffer hit rate does not count rows " +
			"fetched ahead as misses. Deciding: seconds of the policy beside training, summed " +
			"over ranks. Predicted: before the first step, from access probabilities.",
	}
	for _, r := range runs {
		if r.policy() == "none" {
			continue
		}
		held := r.Summary.object(&the.summary.Cache)
		rows, sized := held.num(&the.cache.Capacity)
		bytes, _ := held.num(&the.cache.Bytes)
		plan, _ := held.num(&the.cache.PolicyBytes)
		hit, rated := r.hitRate()
		buffer, buffered := r.Summary.num(&the.summary.BufferHitRate)
		evictions, evicts := mean(r.Epochs, &the.epoch.Evictions)
		score, scored := mean(r.Epochs, &the.epoch.ScoreSeconds)
		step, stepped := r.Summary.num(&the.summary.RemoteRowsPerStep)
		expected, predicted := r.Summary.num(&the.summary.ExpectedRowsPerStep)
		t.rows = append(t.rows, []string{
			r.Name, r.policyName(), count(rows, sized), cell((bytes+plan)/1e6, sized),
			percent(hit, rated), percent(buffer, buffered),
			count(evictions, evicts), cell(score, scored), count(step, stepped),
			count(expected, predicted && !r.tried()),
		})
	}
	return t
}

// scaling is the table of the scaling studies that are not weak ones.
func scaling(runs []*Run) table {
	t := table{
		id: "scaling", title: "Strong scaling",
		columns: []string{"runs", "ranks", "s/epoch", "speed-up", "efficiency", "seeds/step"},
		note:    "Speed-up and efficiency: against the fewest ranks.",
	}
	steady := true
	for _, s := range studies(runs) {
		if s.weak() {
			continue
		}
		for i, p := range s.points {
			steady = steady && p.seeds == s.points[0].seeds
			t.rows = append(t.rows, []string{
				p.names(), strconv.Itoa(p.ranks), chart.Number(p.seconds),
				fmt.Sprintf("%.2f", s.speedup(i)), percent(s.efficiency(i), true),
				cell(p.seeds, p.seeds > 0),
			})
		}
	}
	if !steady {
		t.note += " Steps have different numbers of seeds, so more ranks do fewer, larger steps. " +
			"With sample.batch_scope=global the minibatch would stay the same."
	}
	return t
}

// names lists the runs of the point.
func (p *point) names() string {
	var names []string
	for _, r := range p.runs {
		names = append(names, r.Name)
	}
	return strings.Join(names, ", ")
}

// weakScaling is the table of the weak-scaling studies.
func weakScaling(runs []*Run) table {
	t := table{
		id: "weak-scaling", title: "Weak scaling",
		columns: []string{"runs", "ranks", "s/step", "seeds/s", "speed-up", "efficiency",
			"seeds/step"},
		note: "A rank has the same number of seeds a step on any number of ranks. Speed-up and " +
			"efficiency: against the fewest ranks.",
	}
	for _, s := range studies(runs) {
		if !s.weak() {
			continue
		}
		for i, p := range s.points {
			t.rows = append(t.rows, []string{
				p.names(), strconv.Itoa(p.ranks), chart.Number(p.step), chart.Number(
					p.seeds / p.step),
				fmt.Sprintf("%.2f", s.speedup(i)), percent(s.efficiency(i),
					true), chart.Number(p.seeds),
			})
		}
	}
	return t
}

// balance is the table that compares the load of ranks. The chart rankDots draws the load of every
// rank.
func balance(runs []*Run) table {
	t := table{
		id: "balance", title: "Balance of the ranks, mean per epoch",
		columns: []string{"run", "ranks", "rows: least", "mean", "most", "by rank",
			"waiting: least", "mean", "most", "of rank"},
		note: "Rows: transferred. Ranks wait for each other at every step.",
	}
	for _, r := range runs {
		row := []string{r.Name}
		for i, f := range []field{&the.rank.Remote, &the.rank.WaitFraction} {
			all := r.rankMeans(f)
			if len(all) < 2 {
				row = nil
				break
			}
			sum, most := 0.0, slices.Max(all)
			for _, x := range all {
				sum += x
			}
			show := count
			if i == 1 {
				show = percent
			} else {
				row = append(row, strconv.Itoa(len(all)))
			}
			row = append(row, show(slices.Min(all), true), show(sum/float64(len(all)), true),
				show(most, true), strconv.Itoa(slices.Index(all, most)))
		}
		if row != nil {
			t.rows = append(t.rows, row)
		}
	}
	return t
}

var phaseNames = func() (names []string) {
	for p := range trace.NumPhases {
		names = append(names, p.String())
	}
	return names
}()

func phases(runs []*Run) table {
	t := table{
		id: "seconds", title: "Seconds per epoch by phase, mean over ranks",
		columns: append([]string{"run", "epoch"}, phaseNames...),
		note: "Epoch: mean. Phases run beside each other, so they add up to more; the time that " +
			"is not hidden is wait.",
	}
	for _, r := range runs {
		if len(r.Epochs) == 0 {
			continue
		}
		seconds, timed := mean(r.Epochs, &the.epoch.Seconds)
		row := []string{r.Name, cell(seconds, timed)}
		all := meanOf(r.Epochs, &the.epoch.PhaseSeconds)
		for _, p := range phaseNames {
			x, ok := all[p]
			row = append(row, cell(x, ok))
		}
		t.rows = append(t.rows, row)
	}
	return t.turnedIfFew()
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Print writes the list of damaged records and the most important tables to w, for a terminal.
func Print(w io.Writer, runs []*Run) error {
	ids := []string{"seeds", "runs", "differences", "scaling", "efficiency", "overheads", "model",
		"caches"}
	return printTables(w, runs, slices.DeleteFunc(tablesOf(runs), func(t table) bool {
		return !slices.Contains(ids, t.id)
	}))
}

// PrintSweep writes the tables of a sweep and the parallel efficiency of its runs. The rows are
// jobs if there are several seeds, otherwise runs.
func PrintSweep(w io.Writer, runs []*Run) error {
	runs = ranked(runs)
	t := repetitions(runs)
	if len(t.rows) == 0 {
		t = outcomes(runs)
	}
	tables := []table{t}
	if e := efficiencies(runs); len(e.rows) > 0 {
		tables = append(tables, e)
	}
	for i := range tables {
		tables[i].dropZeros()
	}
	return printTables(w, runs, tables)
}

func printTables(w io.Writer, runs []*Run, tables []table) error {
	for _, fault := range warnings(runs) {
		if _, err := fmt.Fprintln(w, fault); err != nil {
			return err
		}
	}
	for _, t := range tables {
		if _, err := fmt.Fprintf(w, "\n%s\n", t.title); err != nil {
			return err
		}
		if err := trace.Table(w, append([][]string{t.columns}, t.rows...)); err != nil {
			return err
		}
		if t.why != "" {
			if _, err := fmt.Fprintf(w, "  %s\n", t.why); err != nil {
				return err
			}
		}
	}
	return nil
}
