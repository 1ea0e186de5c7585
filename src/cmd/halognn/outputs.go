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

// vacantFile refuses an output file that is there.
func vacantFile(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() { // what else is wrong with it is told by what writes
		return nil
	}
	return fmt.Errorf("%s: %w; remove it or choose another one", path, dataset.ErrExists)
}

// vacantRunDir refuses a run directory that holds something, unless it is a run: of that
// rundir.Create knows more. Collective.
func (j *rankJob) vacantRunDir() error {
	var err error
	if dir := j.config.Run.Dir; j.comm.Rank() == 0 && !rundir.Begun(dir) {
		if err = dataset.Vacant(dir); err != nil {
			err = fmt.Errorf("run directory: %w", err)
		}
	}
	return usageError(comm.Agree(j.comm, err))
}

// fitting returns why the model of a run is not for these parts.
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
