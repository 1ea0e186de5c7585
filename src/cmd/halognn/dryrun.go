package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/forecast/plan"
	"halognn/src/ranks/comm"
	"halognn/src/runs/train"
	"halognn/src/step/parallel"
)

// dryRun opens everything that the first step needs, predicts the memory, and says what would run.
// It writes nothing. If vacant is true, it refuses a run directory that holds a run. Collective.
func (j *rankJob) dryRun(vacant, resumed bool) error {
	if !resumed {
		if err := j.newRunDir(vacant); err != nil {
			return err
		}
	}
	if vacant {
		err := comm.OnFirst(j.comm, func() error {
			if dir := j.config.Run.Dir; rundir.Begun(dir) {
				return fmt.Errorf("run directory %s: %w; choose another run.dir, or go on with "+
					"--resume %s", dir, rundir.ErrRunExists, dir)
			}
			return nil
		})
		if err != nil {
			return usageError(err)
		}
	}
	if resumed {
		if done, err := j.openResumed(); err != nil || done {
			return err
		}
	}
	err := workOn(j.env.Shards, func() error {
		t, err := train.Open(j.env, trainOptions(j.config))
		if err != nil {
			return err
		}
		err = comm.OnFirst(j.comm, func() error {
			return errors.Join(possibleDir(j.config.Run.Dir), j.tellDry(t))
		})
		if err != nil {
			return t.End(err)
		}
		return t.Close()
	})
	if errors.Is(err, parallel.ErrTransport) {
		return usageError(err)
	}
	return setUpError(err)
}

// tellDry says what would run, and what memory it would take on this node.
func (j *rankJob) tellDry(t *train.Training) error {
	fmt.Fprintln(stdout, t.Describe())
	p, err := j.plan()
	if errors.Is(err, plan.ErrJob) {
		return usageError(err)
	}
	if err != nil {
		return err
	}
	rows := [][]string{{"memory of a rank, predicted", "MB"}}
	for _, item := range p.Memory {
		rows = append(rows, []string{item.Name, megabytes(item.Bytes)})
	}
	ranks := j.headroom.ranks
	rows = append(rows, []string{"rank", megabytes(p.MemoryRank)},
		[]string{fmt.Sprintf("node (ranks: %d)", ranks), megabytes(p.Memory.Node(ranks))},
		[]string{"free on this node", megabytes(j.headroom.node)})
	if err := trace.Table(stdout, rows); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "gradients of a step, all ranks: %s MB\n", megabytes(p.Gradients))
	if err := j.headroom.checkMemory(p.Memory, predicted); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "dry run: config, parts, ranks, devices and memory are in order; nothing "+
		"was written "+
		"to %s\n", j.config.Run.Dir)
	return nil
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }

// possibleDir returns an error if the directory, with the missing directories above it, cannot be
// made.
func possibleDir(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at):
			continue
		case err == nil && !info.IsDir():
			err = fmt.Errorf("%s is not a directory", at)
		case err == nil:
			err = os.NewSyscallError("write to "+at, unix.Access(at, unix.W_OK))
		}
		if err != nil {
			return usageError(fmt.Errorf("run directory: %w; choose another run.dir", err))
		}
		return nil
	}
}
