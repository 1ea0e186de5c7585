// Package report turns run directories into tables, plots and one page.
//
//	RUN/config.yaml    ─┐               ┌─> tables ─┬─> report.md, runs.csv, epochs.csv, steps.csv
//	RUN/summary.json   ─┼─> Load ─> Run ┤           ├─> report.html, or a server's page
//	RUN/metrics.jsonl  ─┘               └─> charts ─┘
//
// A run that has not finished, or was killed, has no summary and perhaps an incomplete last line.
// The report shows what exists and marks the rest as absent, never as zero. The page is
// self-contained: its plots, of package chart, need no network.
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

	"github.com/google/renameio/v2"

	"halognn/src/data/dataset"
)

// Files that Write makes.
const (
	PageFile     = "report.html"
	MarkdownFile = "report.md"
	RunsFile     = "runs.csv"
	EpochsFile   = "epochs.csv"
	StepsFile    = "steps.csv"
)

// Write writes a report of the runs into directory dir, which it makes if necessary. It replaces
// files of an earlier report in dir and leaves other files alone.
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
			return fmt.Errorf("report: directory %s has no earlier report, but it has a file "+
				"%s, which the report would replace; choose "+
				"another directory", dir, name)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var faults []error
	write := func(name string, fill func(io.Writer) error) {
		var b bytes.Buffer
		err := fill(&b)
		if err == nil {
			err = renameio.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o666)
		}
		faults = append(faults, err)
	}
	write(PageFile, func(w io.Writer) error { return writePage(w, runs, false) })
	write(MarkdownFile, func(w io.Writer) error { writeMarkdown(w, runs); return nil })
	write(RunsFile, func(w io.Writer) error { return writeRuns(w, runs) })
	write(EpochsFile, func(w io.Writer) error { return writeEpochs(w, runs) })
	write(StepsFile, func(w io.Writer) error { return writeSteps(w, runs) })
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
