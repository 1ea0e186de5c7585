package main

import (
	"fmt"
	"os"

	"halognn/src/comm"
	"halognn/src/dataset"
	"halognn/src/rundir"
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
