package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"halognn/src/comm"
	"halognn/src/parallel"
	"halognn/src/plan"
	"halognn/src/rundir"
	"halognn/src/shard"
	"halognn/src/trace"
	"halognn/src/train"
)

// dryRun opens everything that the first step needs, predicts the memory, and says what would run.
// It writes nothing. available is the free memory of the node before anything was opened; 0:
// unknown. vacant: the run directory must not hold a run. Collective.
func (j *rankJob) dryRun(vacant, resumed bool, available int64) error {
	if vacant {
		if err := j.vacantRunDir(); err != nil {
			return err
		}
		var err error
		if dir := j.config.Run.Dir; j.comm.Rank() == 0 && rundir.Begun(dir) {
			err = fmt.Errorf("run directory %s: %w; choose another run.dir, or go on with --resume %s",
				dir, rundir.ErrRunExists, dir)
		}
		if err := usageError(comm.Agree(j.comm, err)); err != nil {
			return err
		}
	}
	if resumed {
		if done, err := j.openResumed(); err != nil || done {
			return err
		}
	}
	node, err := j.comm.Node()
	if err != nil {
		return err
	}
	ranks := node.Size()
	if err := node.Free(); err != nil {
		return err
	}
	err = workOn(j.env.Shards, func() error {
		t, err := train.Open(j.env, trainOptions(j.config))
		if err != nil {
			return err
		}
		if j.comm.Rank() == 0 {
			err = errors.Join(possibleDir(j.config.Run.Dir), j.tellDry(t, ranks, available))
		}
		if err := comm.Agree(j.comm, err); err != nil {
			return t.End(err)
		}
		return t.Close()
	})
	if errors.Is(err, parallel.ErrTransport) {
		return usageError(err)
	}
	return dataError(err)
}

// tellDry says what would run, and what memory it would take on a node of so many ranks.
func (j *rankJob) tellDry(t *train.Training, ranks int, available int64) error {
	fmt.Println(t.Describe())
	cores := j.env.CPUs
	job := planJob(j.config, j.comm.Size(), max(1, j.config.Run.RanksPerNode, ranks), cores)
	if j.config.Run.RanksPerNode > 0 {
		job.RanksPerNode = j.config.Run.RanksPerNode
	}
	if j.config.Compute.Device == "cuda" {
		gpus, err := planGPU(j.config, 0, 0, j.env.Device)
		if err != nil {
			return err
		}
		job.GPU = gpus
	}
	parts := j.env.Shards
	if job.Partitioned { // this rank has its own rows alone, and a plan looks at those of all
		var err error
		if parts, err = shard.Open(parts.Dir, shard.Options{}); err != nil {
			return err
		}
		defer parts.Close()
	}
	// Times are not asked for, so rates need not be measured.
	p, err := plan.New(parts, job, plan.Options{
		Rates: plan.Rates{Sample: 1, Lookups: 1, Rows: 1, Flops: 1, Network: 1, Device: 1, Bus: 1},
		Host:  j.env.Host, Device: j.env.Device,
	})
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
	need := p.Memory.Node(ranks)
	rows = append(rows, []string{"rank", megabytes(p.MemoryRank)},
		[]string{fmt.Sprintf("node (ranks: %d)", ranks), megabytes(need)},
		[]string{"free on this node", megabytes(available)})
	if err := trace.Table(os.Stdout, rows); err != nil {
		return err
	}
	if err := enoughMemory(need, available, ranks); err != nil {
		return err
	}
	fmt.Printf("dry run: config, parts, ranks, devices and memory are in order; nothing was written "+
		"to %s\n", j.config.Run.Dir)
	return nil
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }

// enoughMemory compares what the ranks of a node are predicted to take with what is free.
func enoughMemory(need, available int64, ranks int) error {
	if available == 0 || need <= available {
		return nil
	}
	return usageError(fmt.Errorf("the %d ranks of this node are predicted to need %s MB, and %s MB "+
		"are free; use fewer ranks a node, more nodes, or a smaller batch, model.hidden, cache or "+
		"pipeline depth", ranks, megabytes(need), megabytes(available)))
}

// possibleDir says why a directory, or those above it that are missing, could not be made.
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
			return usageError(fmt.Errorf("run directory: %w", err))
		}
		return nil
	}
}
