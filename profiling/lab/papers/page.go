package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"halognn/src/base/chart"
)

// page is the text of a figure while it is written.
type page struct {
	name, graph, dir string
	text             strings.Builder
	verdicts         []string // of the current graph; they are printed below its tables
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

// table begins a Markdown table: the first column is text, the others are numbers.
func (p *page) table(note string, columns ...string) {
	p.printf("\n%s: %s\n\n| %s |\n|---%s|\n", p.graph, note, strings.Join(columns, " | "),
		strings.Repeat("|--:", len(columns)-1))
}

// links describes what all ranks of a table share.
func links(rate string) string {
	return fmt.Sprintf("links of %s, %d cores for all ranks", rate, runtime.NumCPU())
}

// row adds a row to the table. Cells are text, or a number with its format.
func (p *page) row(cells ...string) { p.printf("| %s |\n", strings.Join(cells, " | ")) }

// verdict says whether a claim holds, and by which numbers.
func (p *page) verdict(holds bool, format string, args ...any) {
	word := "held"
	if !holds {
		word = "**did not hold**"
	}
	p.verdicts = append(p.verdicts, fmt.Sprintf("| %s | %s |", fmt.Sprintf(format, args...), word))
}

// end writes the verdicts of a graph.
func (p *page) end() {
	if len(p.verdicts) > 0 {
		p.printf("\n| claim | |\n|---|---|\n%s\n", strings.Join(p.verdicts, "\n"))
	}
	p.verdicts = nil
}

// plot writes a chart beside the page and refers to it.
func (p *page) plot(title string, d chart.Drawing) error {
	id := p.name + "-" + p.graph
	numbers, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	draw := exec.Command("python3", "profiling/lab/figure.py", filepath.Join(p.dir, id+".svg"))
	draw.Stdin = bytes.NewReader(numbers)
	if text, err := draw.CombinedOutput(); err != nil {
		return fmt.Errorf("profiling/lab/figure.py: %w\n%s", err, text)
	}
	p.printf("\n![%s](%s.svg)\n", title, id)
	return nil
}

// bars draws one bar for each name.
func (p *page) bars(title, x string, names []string, values []float64) error {
	b := &chart.Bars{X: x, Pieces: []chart.Piece{{Name: x}}}
	for i, name := range names {
		b.Add(chart.Bar{Name: name, Values: values[i : i+1], End: num(values[i])})
	}
	return p.plot(title, b)
}

// num, percent, change, count, megabytes and seconds are cells of a table.
func num(v float64) string     { return fmt.Sprintf("%.3g", v) }
func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
func change(now, before float64) string {
	return fmt.Sprintf("%+.1f %%", 100*(now/before-1))
}
func count(v int64) string     { return fmt.Sprint(v) }
func megabytes(v int64) string { return fmt.Sprintf("%.1f", float64(v)/1e6) }
func seconds(v float64) string { return fmt.Sprintf("%.3f", v) }
func names(lines []line) (out []string) {
	for _, l := range lines {
		out = append(out, l.name)
	}
	return out
}

// times returns the epochs of the runs.
func times(runs []*result) (out []float64) {
	for _, r := range runs {
		out = append(out, r.EpochSeconds)
	}
	return out
}
