package main

import (
	"fmt"
	"os"

	"halognn/src/comm"
	"halognn/src/dataset"
	"halognn/src/rundir"
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
