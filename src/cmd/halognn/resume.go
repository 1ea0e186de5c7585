package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/data/rundir"
	"halognn/src/ranks/comm"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/config"
)

// resumeFrom finds the config of a resumed run: the file at path or, if path is "", the config in
// the run directory. The result fresh is true if the directory holds no run yet and path is given:
// then a run begins there, so that a job script can use one command for the first try and all later
// ones. Collective.
func resumeFrom(c comm.Comm, run, path string) (config string, fresh bool, err error) {
	config = filepath.Join(run, rundir.ConfigFile)
	if c.Rank() == 0 {
		_, err = os.Stat(config)
		if fresh = errors.Is(err, fs.ErrNotExist) && path != ""; fresh {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("--resume %s holds no run: %w; add --config FILE.yaml to begin a "+
				"run there", run,
				err)
		}
	}
	if err := comm.Agree(c, err); err != nil {
		return "", false, dataError(err)
	}
	begins, err := comm.AgreeAny(c, fresh)
	if path != "" {
		config = path
	}
	return config, begins, err
}

// besideRun adds the setting data.parts to sets, if the run's config names its parts by a path
// relative to another working directory, in which the run was begun. It finds that directory by
// cutting run.dir from the end of the run's absolute path.
func besideRun(run string, sets []string) []string {
	given := func(set string) bool { return strings.HasPrefix(set, "data.parts=") }
	c, err := config.Load(filepath.Join(run, rundir.ConfigFile), nil)
	at, unknown := filepath.Abs(run)
	if err != nil || unknown != nil || slices.ContainsFunc(sets, given) {
		return sets
	}
	if _, err := os.Stat(c.Data.Parts); err == nil {
		return sets
	}
	begun, ok := strings.CutSuffix(at, string(filepath.Separator)+filepath.Clean(c.Run.Dir))
	parts := filepath.Join(begun, c.Data.Parts)
	if _, err := os.Stat(parts); err != nil || !ok || filepath.IsAbs(c.Data.Parts) {
		return sets
	}
	return append(slices.Clone(sets), "data.parts="+parts)
}

// keepsNumbers returns an error if the config changes a setting on which the numbers of the run
// depend. Collective.
func keepsNumbers(c comm.Comm, run, path string, sets []string) error {
	err := config.Keeps(filepath.Join(run, rundir.ConfigFile), path, sets)
	if err != nil {
		err = fmt.Errorf("--resume %s: %w", run, err)
	}
	return usageError(comm.Agree(c, err))
}

// openResumed opens the newest checkpoint of the job's run and checks that the config fits it. The
// result done is true if the run has finished. Collective.
func (j *rankJob) openResumed() (done bool, err error) {
	run := j.config.Run.Dir
	ck, err := checkpoint.Open(j.comm, run)
	if err != nil || ck == nil {
		if ck == nil && err == nil && j.comm.Rank() == 0 {
			slog.Info(run+" holds no checkpoint: the run begins again", "rank", 0)
		}
		return false, dataError(err)
	}
	if err := j.config.Changes(ck.Config()); err != nil { // the result is the same on every rank
		return false, usageError(comm.AgreedOn(j.comm, fmt.Errorf("--resume %s: %w", run, err)))
	}
	epochs := j.config.Job.Epochs
	if epochs < ck.Begun() {
		return false,
			usageError(comm.AgreedOn(j.comm, fmt.Errorf("--resume %s: train.epochs is %d, but %d "+
				"epochs were begun already; set train.epochs to at least that",
				run, epochs, ck.Begun())))
	}
	if ck.Finished(epochs, j.config.Training.Patience) {
		if j.comm.Rank() == 0 {
			fmt.Fprintf(stdout, "%s has finished: nothing is left to do. Set a larger "+
				"train.epochs to train it further\n", run)
		}
		return true, nil
	}
	j.env.Resume = ck
	return false, nil
}

// lock keeps other jobs out of the run directory, which must exist. Collective.
func (j *rankJob) lock() error {
	return usageError(comm.OnFirst(j.comm, func() (err error) {
		j.held, err = rundir.LockRun(j.config.Run.Dir,
			func(why string) { slog.Info(why, "rank", 0) })
		return err
	}))
}

// unlock releases the run directory. If the lock cannot be removed, the next job takes it over,
// because the process named in it has ended.
func (j *rankJob) unlock() {
	_ = j.held.Release()
}

// partSuffix returns what to append to the names of the trace and profile directories, such as
// "-2", so that this start of the run overwrites no earlier ones. Collective.
func (j *rankJob) partSuffix() (string, error) {
	suffix := ""
	if j.comm.Rank() == 0 {
		suffix = rundir.PartSuffix(j.config.Run.Dir)
	}
	return comm.Bcast(j.comm, suffix)
}

// beginRunDir makes the run directory, or rewrites the config of a resumed run. If vacant is true,
// it refuses a directory that is not empty. Collective.
func (j *rankJob) beginRunDir(vacant, resumed bool) error {
	dir, write := j.config.Run.Dir, rundir.ReplaceConfig
	if !resumed {
		if err := j.newRunDir(vacant); err != nil {
			return err
		}
		err := comm.OnFirst(j.comm, func() error {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return fmt.Errorf("run directory: %w", err)
			}
			return nil
		})
		if err != nil {
			return usageError(err)
		}
		if err := j.lock(); err != nil {
			return err
		}
		write = rundir.Create
	}
	return usageError(comm.OnFirst(j.comm,
		func() error { return write(dir, []byte(j.config.YAML())) }))
}
