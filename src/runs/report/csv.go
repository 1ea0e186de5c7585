package report

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
)

// plain formats a value of a record so that programs can read it. It returns an empty text if the
// value is absent, a list or an object.
func plain(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return visible(v)
	}
	return ""
}

// flat returns a record in which objects are replaced by their values. The key of such a value is
// the object's key and the value's own key, joined by a dot.
func flat(r values) values {
	out := map[string]any{}
	flatten("", r, out)
	delete(out, keyOf(&the.step.Kind))
	return out
}

// keysOf returns the sorted keys whose values are neither lists nor objects, in any of the records.
func keysOf(records []values) []string {
	keys := map[string]bool{}
	for _, r := range records {
		for k, v := range r {
			switch v.(type) {
			case float64, string:
				keys[k] = true
			}
		}
	}
	return sorted(keys)
}

// writeRuns writes a line for each run: its settings and its summary.
func writeRuns(w io.Writer, runs []*Run) error {
	config := map[string]bool{}
	var all []values
	for _, r := range runs {
		for k := range r.Config {
			config[k] = true
		}
		all = append(all, flat(r.Summary))
	}
	settings, columns := sorted(config), keysOf(all)
	lines := [][]string{slices.Concat([]string{"run", "dir", "state"}, settings, columns)}
	for i, r := range runs {
		line := []string{r.Name, r.Dir, r.state()}
		for _, k := range settings {
			v, _ := r.setting(k)
			line = append(line, v)
		}
		for _, k := range columns {
			line = append(line, plain(all[i][k]))
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// writeEpochs writes a line for each epoch. It includes the evaluation after the epoch.
func writeEpochs(w io.Writer, runs []*Run) error {
	var all []values
	var of []*Run
	for _, r := range runs {
		evals := map[float64]values{}
		for _, e := range r.Evals {
			epoch, _ := e.num(&the.epoch.Epoch)
			evals[epoch] = e
		}
		for _, e := range r.Epochs {
			one := flat(e)
			epoch, _ := e.num(&the.epoch.Epoch)
			for k, v := range evals[epoch] {
				if k != keyOf(&the.eval.Kind) && k != keyOf(&the.eval.Epoch) {
					one["eval."+k] = v
				}
			}
			all, of = append(all, one), append(of, r)
		}
	}
	columns := keysOf(all)
	lines := [][]string{append([]string{"run"}, columns...)}
	for i, e := range all {
		line := []string{of[i].Name}
		for _, k := range columns {
			line = append(line, plain(e[k]))
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// writeSteps writes a line for each step.
func writeSteps(w io.Writer, runs []*Run) error {
	keys := map[string]bool{}
	for _, r := range runs {
		for _, k := range r.Steps.keys() {
			keys[k] = true
		}
	}
	columns := sorted(keys)
	out := csv.NewWriter(w)
	_ = out.Write(append([]string{"run"}, columns...)) // out.Error returns the failure
	for _, r := range runs {
		for i := range r.Steps.n {
			line := []string{r.Name}
			for _, k := range columns {
				text := ""
				if x, ok := r.Steps.under(k, i); ok {
					text = plain(x)
				}
				line = append(line, text)
			}
			_ = out.Write(line)
		}
	}
	out.Flush()
	return out.Error()
}
