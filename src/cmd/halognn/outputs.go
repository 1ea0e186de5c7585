package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"halognn/src/comm"
	"halognn/src/dataset"
	"halognn/src/rundir"
	"halognn/src/shard"
	"halognn/src/train"
)

// vacantFile refuses an output file that exists already.
func vacantFile(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() { // the writer reports other errors
		return nil
	}
	return fmt.Errorf("%s: %w; remove it or choose another one", path, dataset.ErrExists)
}

// vacantRunDir refuses a directory that is neither empty nor a run; rundir.Create refuses runs.
// Collective.
func (j *rankJob) vacantRunDir() error {
	var err error
	if dir := j.config.Run.Dir; j.comm.Rank() == 0 && !rundir.Begun(dir) {
		if err = dataset.Vacant(dir); err != nil {
			err = fmt.Errorf("run directory: %w", err)
		}
	}
	return usageError(comm.Agree(j.comm, err))
}

// fitting returns an error if the model of a run does not fit these parts.
func fitting(run string, parts shard.Meta) error {
	text, err := os.ReadFile(filepath.Join(run, rundir.SummaryFile))
	if err != nil {
		return err
	}
	var s train.Summary
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(run, rundir.SummaryFile), err)
	}
	if g := s.Graph; g.Features != 0 && g.Classes != 0 && (g.Features != parts.Features ||
		g.Classes != parts.Classes) {
		return fmt.Errorf("the parts have %d features and %d classes, but the run %s was trained "+
			"on %d and %d; give the parts of that graph, or of one like it, as data.parts",
			parts.Features, parts.Classes, run, g.Features, g.Classes)
	}
	return nil
}
