// Package report turns run directories into tables, plots and one page.
//
//	RUN/config.yaml    ──┐                ┌─> tables ─> report.md, runs.csv, epochs.csv, steps.csv
//	RUN/summary.json   ──┼─> Load ─> Run ─┤      └────────────────┐
//	RUN/metrics.jsonl  ──┘                └─> charts ─> plots/*.svg ──> report.html
//
// A run that has not finished, or was killed, has no summary and perhaps an incomplete last line.
// The report shows what exists and marks the rest as absent, never as zero. The page is
// self-contained: no network, no scripts, no fonts. Its plots are SVG elements of package chart,
// whose colours adapt to a dark theme; the page prints dark on white.
//
// The package reads files and knows no ranks, graphs or models.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"halognn/src/chart"
	"halognn/src/dataset"
	"halognn/src/mem"
)

// origin marks the plots of reports.
const origin = "a plot of a halognn report"

// Files that Write makes.
const (
	PageFile     = "report.html"
	MarkdownFile = "report.md"
	RunsFile     = "runs.csv"
	EpochsFile   = "epochs.csv"
	StepsFile    = "steps.csv"
	PlotsDir     = "plots"
)

// Write writes a report of the runs into directory dir, which it makes if necessary. Files of an
// earlier report there are replaced, and its plots removed; other files stay.
func Write(runs []*Run, dir string) error {
	if len(runs) == 0 {
		return errors.New("report: no runs")
	}
	if err := dataset.Apart(filepath.Join(dir, PageFile)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, name := range []string{MarkdownFile, RunsFile, EpochsFile, StepsFile} {
		_, none := os.Lstat(filepath.Join(dir, PageFile))
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil && none != nil {
			return fmt.Errorf("report: %s holds no report but a file %s, which would be replaced; choose "+
				"another directory", dir, name)
		}
	}
	plots := filepath.Join(dir, PlotsDir)
	if err := os.MkdirAll(plots, 0o777); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	tables, charts := tablesOf(runs), chartsOf(runs)
	var faults []error
	write := func(name string, fill func(io.Writer) error) {
		var b bytes.Buffer
		err := fill(&b)
		if err == nil {
			err = renameio.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o666)
		}
		faults = append(faults, err)
	}
	write(PageFile, func(w io.Writer) error { return writePage(w, runs, tables, charts) })
	write(MarkdownFile, func(w io.Writer) error {
		writeMarkdown(w, runs, tables,
			charts)
		return nil
	})
	write(RunsFile, func(w io.Writer) error { return writeRuns(w, runs) })
	write(EpochsFile, func(w io.Writer) error { return writeEpochs(w, runs) })
	write(StepsFile, func(w io.Writer) error { return writeSteps(w, runs) })
	for _, c := range charts {
		write(filepath.Join(PlotsDir, c.ID+".svg"),
			func(w io.Writer) error { _, err := io.WriteString(w, c.File(origin)); return err })
	}
	if err := errors.Join(append(faults, removeOthers(plots, charts))...); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// removeOthers removes the plots of earlier reports that are not among the charts.
func removeOthers(dir string, charts []*chart.Chart) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, isPlot := strings.CutSuffix(e.Name(), ".svg")
		if !isPlot || !e.Type().IsRegular() ||
			slices.ContainsFunc(charts, func(c *chart.Chart) bool { return c.ID == id }) {
			continue
		}
		if path := filepath.Join(dir, e.Name()); ours(path) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// ours reports whether a report wrote the plot. A file that cannot be read does not count as ours.
func ours(path string) bool {
	f, err := mem.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	want := chart.FileHead(origin)
	head := make([]byte, len(want))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == want
}
