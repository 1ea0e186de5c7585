package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"halognn/src/trace"
)

// table is a heading, columns and rows of text.
type table struct {
	id, title, note string
	columns         []string
	rows            [][]string
}

// figure formats a number for people: four digits, thousands apart.
func figure(x float64) string {
	switch {
	case x == float64(int64(x)) && x < 1e15 && x > -1e15:
		s := strconv.FormatInt(int64(x), 10)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "\u202f" + s[i:]
		}
		return s
	default:
		return strconv.FormatFloat(x, 'g', 4, 64)
	}
}

// cell is the figure of a number that may be absent.
func cell(x float64, ok bool) string {
	if !ok {
		return ""
	}
	return figure(x)
}

func percent(x float64, ok bool) string {
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.2f\u202f%%", 100*x)
}

func tablesOf(runs []*Run) []table {
	tables := []table{outcomes(runs)}
	if len(runs) > 1 {
		if t := differences(runs); len(t.rows) > 0 {
			tables = append(tables, t)
		}
	}
	tables = append(tables, traffic(runs))
	if t, ok := scaling(runs); ok {
		tables = append(tables, t)
	}
	if t := perRank(runs); len(t.rows) > 0 {
		tables = append(tables, t)
	}
	return append(tables, phases(runs))
}

// outcomes is what every run came to.
func outcomes(runs []*Run) table {
	t := table{
		id: "runs", title: "Runs", columns: []string{"run", "ranks", "test", "valid", "epochs", "s/epoch", "waiting", "memory/rank, MB", "loss digest"},
		note: "test and valid: the metric of the data set at the best epoch; s/epoch: median; waiting: share of the epoch in which training waited for a minibatch.",
	}
	for _, r := range runs {
		s := r.Summary
		test, hasTest := s.num("test_metric")
		valid, hasValid := s.num("valid_metric")
		seconds, timed := r.seconds()
		wait, waits := r.perEpoch("wait_fraction")
		memory, measured := s.num("peak_rss_bytes")
		ranks, known := s.num("ranks")
		row := []string{
			r.Name, cell(ranks, known), percent(test, hasTest), percent(valid, hasValid), strconv.Itoa(len(r.Epochs)), cell(seconds, timed),
			percent(wait, waits), cell(float64(int64(memory/1e6)), measured), s.text("loss_digest"),
		}
		if s == nil {
			row[len(row)-1] = "not finished"
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// differences shows only the keys in which the configs differ, beside what came of them.
func differences(runs []*Run) table {
	keys := differing(runs)
	t := table{id: "differences", title: "What differs in the configs", columns: []string{"run"}}
	for _, k := range keys {
		t.columns = append(t.columns, k)
	}
	t.columns = append(t.columns, "s/epoch", "remote rows/epoch", "hit rate", "test")
	for _, r := range runs {
		row := []string{r.Name}
		for _, k := range keys {
			row = append(row, r.setting(k))
		}
		seconds, timed := r.seconds()
		remote, counted := r.perEpoch("remote_rows")
		hit, rated := r.Summary.num("hit_rate")
		test, hasTest := r.Summary.num("test_metric")
		t.rows = append(t.rows, append(row, cell(seconds, timed), cell(float64(int64(remote)), counted), percent(hit, rated), percent(test, hasTest)))
	}
	if len(keys) == 0 {
		t.rows = nil
	}
	return t
}

// tiers are where rows come from, nearest first.
var tiers = []struct{ key, name string }{
	{"local_rows", "local"}, {"peer_rows", "peer"}, {"cache_hits", "cache"},
	{"fetched_rows", "fetched"}, {"replacement_rows", "replacements"}, {"early_rows", "early"},
}

func traffic(runs []*Run) table {
	t := table{
		id: "traffic", title: "Feature rows per epoch, all ranks",
		note:    "Transferred rows are fetched, replacements and early ones. Expected: as predicted before the first step from access probabilities.",
		columns: []string{"run", "local", "peer", "cache", "fetched", "replacements", "early", "transferred", "MB", "hit rate", "buffer hit rate", "per step", "expected per step", "evictions"},
	}
	for _, r := range runs {
		row := []string{r.Name}
		for _, tier := range tiers {
			x, ok := r.perEpoch(tier.key)
			row = append(row, cell(float64(int64(x)), ok))
		}
		remote, counted := r.perEpoch("remote_rows")
		bytes, sized := r.perEpoch("remote_bytes")
		hit, rated := r.Summary.num("hit_rate")
		buffer, buffered := r.Summary.num("buffer_hit_rate")
		step, stepped := r.Summary.num("remote_rows_per_step")
		expected, predicted := r.Summary.num("expected_remote_rows_per_step")
		evictions, evicts := r.perEpoch("evictions")
		t.rows = append(t.rows, append(row, cell(float64(int64(remote)), counted), cell(float64(int64(bytes/1e5))/10, sized), percent(hit, rated), percent(buffer, buffered),
			cell(float64(int64(step)), stepped), cell(float64(int64(expected)), predicted), cell(float64(int64(evictions)), evicts)))
	}
	return t
}

// scaling compares runs that differ in their number of ranks; false if they do not.
func scaling(runs []*Run) (table, bool) {
	t := table{
		id: "scaling", title: "Strong scaling", columns: []string{"run", "ranks", "s/epoch", "speed-up", "efficiency", "seeds/step"},
		note: "Against the run with the fewest ranks. The work of an epoch is the same only if the global minibatch is: sample.batch_scope: global.",
	}
	all := byRanks(runs)
	if len(all) < 2 {
		return t, false
	}
	base, _ := all[0].seconds()
	first, _ := all[0].Summary.num("ranks")
	for _, r := range all {
		ranks, _ := r.Summary.num("ranks")
		seconds, _ := r.seconds()
		seeds, ok := 0.0, false
		if len(r.Steps) > 0 {
			seeds, ok = r.Steps[0].num("seeds")
		}
		t.rows = append(t.rows, []string{
			r.Name, figure(ranks), figure(seconds), fmt.Sprintf("%.2f", base/seconds), percent(base*first/(seconds*ranks), true), cell(seeds, ok),
		})
	}
	return t, true
}

// byRanks returns the finished runs in the order of their ranks, the first of each number; nil if all have as many.
func byRanks(runs []*Run) []*Run {
	seen := map[float64]*Run{}
	for _, r := range runs {
		ranks, ok := r.Summary.num("ranks")
		if _, timed := r.seconds(); ok && timed && seen[ranks] == nil {
			seen[ranks] = r
		}
	}
	if len(seen) < 2 {
		return nil
	}
	var out []*Run
	for _, ranks := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, seen[ranks])
	}
	return out
}

// perRank is the traffic and the waiting of every rank, where the run has noted it.
func perRank(runs []*Run) table {
	t := table{id: "ranks", title: "Each rank, mean per epoch", columns: []string{"run", "rank", "transferred rows", "waiting"}}
	for _, r := range runs {
		var rows, waits []float64
		for _, e := range r.Epochs {
			list, _ := e["ranks"].([]any)
			for k, one := range list {
				if k == len(rows) {
					rows, waits = append(rows, 0), append(waits, 0)
				}
				object, _ := one.(map[string]any)
				x, _ := record(object).num("remote_rows")
				w, _ := record(object).num("wait_fraction")
				rows[k] += x / float64(len(r.Epochs))
				waits[k] += w / float64(len(r.Epochs))
			}
		}
		for k := range rows {
			t.rows = append(t.rows, []string{r.Name, strconv.Itoa(k), figure(float64(int64(rows[k]))), percent(waits[k], true)})
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
		id: "phases", title: "Seconds per epoch by phase, mean over ranks", columns: append([]string{"run", "epoch"}, phaseNames...),
		note: "Phases run beside each other, so they add up to more than the epoch; what could not be hidden is wait.",
	}
	for _, r := range runs {
		seconds, timed := r.seconds()
		row := []string{r.Name, cell(seconds, timed)}
		mean := r.phaseMeans()
		for _, p := range phaseNames {
			x, ok := mean[p]
			row = append(row, cell(x, ok))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// phaseMeans returns the mean seconds of each phase over the epochs.
func (r *Run) phaseMeans() map[string]float64 {
	mean := map[string]float64{}
	for _, e := range r.Epochs {
		for p, x := range e.nums("phase_seconds") {
			mean[p] += x / float64(len(r.Epochs))
		}
	}
	return mean
}

// markdown writes the table; cells are numbers and names, in which | is the only character that means something.
func (t *table) markdown(w *bytes.Buffer) {
	fmt.Fprintf(w, "## %s\n\n| %s |\n|%s\n", t.title, strings.Join(t.columns, " | "), "---|"+strings.Repeat("--:|", len(t.columns)-1))
	for _, row := range t.rows {
		cells := slices.Clone(row)
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", "\\|")
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	if t.note != "" {
		fmt.Fprintf(w, "\n%s\n", t.note)
	}
	w.WriteString("\n")
}

func writeMarkdown(w *bytes.Buffer, tables []table, charts []*chart) {
	w.WriteString("# halognn report\n\n")
	for i := range tables {
		tables[i].markdown(w)
	}
	for _, c := range charts {
		fmt.Fprintf(w, "![%s](%s/%s.svg)\n", c.title, PlotsDir, c.id)
	}
}

// Print writes the first tables for a terminal.
func Print(w io.Writer, runs []*Run) error {
	tables := tablesOf(runs)
	for _, t := range tables[:min(2, len(tables))] {
		if _, err := fmt.Fprintf(w, "\n%s\n", t.title); err != nil {
			return err
		}
		if err := trace.Table(w, append([][]string{t.columns}, t.rows...)); err != nil {
			return err
		}
	}
	return nil
}

// csvOf writes records as rows of the given columns; what a record lacks stays empty.
func csvOf(header []string, rows [][]string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(header) // a buffer takes everything
	_ = w.WriteAll(rows)
	return b.Bytes()
}

// plain formats a value of a record for a program to read.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return v
	default:
		return ""
	}
}

// columnsOf returns the keys of records that hold numbers or text, in order.
func columnsOf(records []record) []string {
	keys := map[string]bool{}
	for _, r := range records {
		for k, v := range r {
			switch v.(type) {
			case float64, string:
				keys[k] = true
			}
		}
	}
	delete(keys, "kind")
	return slices.Sorted(maps.Keys(keys))
}

func runsCSV(runs []*Run) []byte {
	var all []record
	config := map[string]bool{}
	for _, r := range runs {
		all = append(all, r.Summary)
		for k := range r.Config {
			config[k] = true
		}
	}
	columns, keys := columnsOf(all), slices.Sorted(maps.Keys(config))
	header := append(append([]string{"run", "dir"}, keys...), columns...)
	var rows [][]string
	for _, r := range runs {
		row := []string{r.Name, r.Dir}
		for _, k := range keys {
			row = append(row, r.setting(k))
		}
		for _, k := range columns {
			row = append(row, plain(r.Summary[k]))
		}
		rows = append(rows, row)
	}
	return csvOf(header, rows)
}

func epochsCSV(runs []*Run) []byte {
	return recordsCSV(runs, func(r *Run) []record {
		out := make([]record, len(r.Epochs))
		for i, e := range r.Epochs {
			out[i] = maps.Clone(e)
			for p, x := range e.nums("phase_seconds") {
				out[i]["seconds_"+p] = x
			}
		}
		return out
	})
}

func stepsCSV(runs []*Run) []byte { return recordsCSV(runs, func(r *Run) []record { return r.Steps }) }

func recordsCSV(runs []*Run, of func(*Run) []record) []byte {
	var all []record
	for _, r := range runs {
		all = append(all, of(r)...)
	}
	columns := columnsOf(all)
	var rows [][]string
	for _, r := range runs {
		for _, one := range of(r) {
			row := []string{r.Name}
			for _, k := range columns {
				row = append(row, plain(one[k]))
			}
			rows = append(rows, row)
		}
	}
	return csvOf(append([]string{"run"}, columns...), rows)
}
