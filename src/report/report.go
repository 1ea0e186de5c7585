// Package report turns run directories into what people read: tables, plots and one page.
//
//	RUN/config.yaml    ──┐
//	RUN/summary.json   ──┼─> Load ─> Run ──┬─> tables ─> report.md, runs.csv, epochs.csv, steps.csv
//	RUN/metrics.jsonl  ──┘                 └─> charts ─> plots/*.svg ─┐
//	                                            tables ────────────────┴─> report.html
//
// A run that has not finished, or was killed, has no summary and perhaps half a last line; what is there is reported, and
// what is not is left blank, never taken for zero. The page needs nothing but itself: no network, no scripts, no fonts. Its
// plots are SVG inside the page with the page's own colours, so that they follow a dark theme and print in black on white;
// gonum/plot, which draws elsewhere in this program, writes colours into every element.
//
// The package reads files and knows no ranks, graphs or models.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Files that Write makes.
const (
	PageFile     = "report.html"
	MarkdownFile = "report.md"
	RunsFile     = "runs.csv"
	EpochsFile   = "epochs.csv"
	StepsFile    = "steps.csv"
	PlotsDir     = "plots"
)

// Write reports the runs into directory dir, which is made if need be. Files of an earlier report there are replaced.
func Write(runs []*Run, dir string) error {
	if len(runs) == 0 {
		return errors.New("report: no runs")
	}
	if err := os.MkdirAll(filepath.Join(dir, PlotsDir), 0o777); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	tables, charts := tablesOf(runs), chartsOf(runs)
	var page, text bytes.Buffer
	if err := writePage(&page, runs, tables, charts); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	writeMarkdown(&text, tables, charts)
	files := map[string][]byte{
		PageFile: page.Bytes(), MarkdownFile: text.Bytes(),
		RunsFile: runsCSV(runs), EpochsFile: epochsCSV(runs), StepsFile: stepsCSV(runs),
	}
	for _, c := range charts {
		files[filepath.Join(PlotsDir, c.id+".svg")] = []byte(c.file())
	}
	var faults []error
	for name, data := range files {
		faults = append(faults, renameio.WriteFile(filepath.Join(dir, name), data, 0o666))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
