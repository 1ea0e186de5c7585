package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/pkg/profile"
	"github.com/spf13/cobra"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/ranks/comm"
	"halognn/src/runs/config"
	"halognn/src/runs/record"
	"halognn/src/runs/train"
	"halognn/src/step/parallel"
)

func trainCommand(p *process) *cobra.Command {
	var o trainFlags
	c := &cobra.Command{
		Use:   "train --config FILE.yaml [--set key.path=value ...] [--resume RUN]",
		Short: "Train a model; under mpirun or srun, each rank on its own parts",
		Example: "  mpirun -np 4 halognn train --config inputs/demo.yaml --set train.lr=0.01\n" +
			"  halognn train --config inputs/demo.yaml --ranks-in-process 4   (without MPI)\n" +
			"  mpirun -np 4 halognn train --resume run/demo                   (from the last " +
			"checkpoint)",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			begun := time.Now()
			if o.dry && (o.profile != "" || o.trace || o.kernels) {
				return usageError(errors.New("--dry-run trains nothing that --profile, --trace " +
					"or --kernels could record; leave these out"))
			}
			if o.config == "" && o.resume == "" {
				return usageError(fmt.Errorf("--config is missing: the YAML file of the run; " +
					"inputs/ has examples and docs/config.md lists the keys"))
			}
			if _, known := profileKinds[o.profile]; o.profile != "" && !known {
				return usageError(fmt.Errorf("--profile %s is unknown; use %s", o.profile,
					config.OrList(slices.Sorted(maps.Keys(profileKinds)))))
			}
			if o.config == "" {
				o.sets = besideRun(o.resume, o.sets)
			}
			if err := p.enoughParts(o.configPath(), o.sets); err != nil {
				return err
			}
			if p.byMPI() {
				p.chooseGPU(o.configPath(), o.sets)
			}
			return p.run(func(c comm.Comm) error { return trainRank(c, p, o, begun) })
		},
	}
	c.Flags().StringVar(&o.config, "config", "", "YAML file of the run")
	c.Flags().StringArrayVar(&o.sets, "set", nil, "override a key, as train.lr=0.01; repeatable")
	p.flag(c)
	c.Flags().StringVar(&o.profile, "profile", "", "write a pprof profile of every rank into the "+
		"run directory: cpu, heap, block, mutex or trace")
	c.Flags().BoolVar(&o.trace, "trace", false, "write a trace of every rank into the run "+
		"directory, for Perfetto: trace/rank-0000.json ...")
	c.Flags().BoolVar(&o.kernels, "kernels", false, "time every kernel of rank 0 and compare it "+
		"with what the device can do, in kernels.json; slows the run: docs/profiling.md")
	c.Flags().BoolVar(&o.dry, "dry-run", false,
		"check config, parts, ranks, devices and memory, say what would run, and write nothing")
	c.Flags().StringVar(&o.resume, "resume", "", "go on from the last checkpoint of this run "+
		"directory, with its config; with --config, begin there if it holds no run")
	return c
}

// trainFlags has those flags of the command train that every rank reads.
type trainFlags struct {
	config, resume, profile string
	sets                    []string
	trace, kernels, dry     bool
}

// configPath returns the path of the config that the run will have, as far as one rank can tell
// without asking the others.
func (o *trainFlags) configPath() string {
	if o.config != "" {
		return o.config
	}
	return filepath.Join(o.resume, rundir.ConfigFile)
}

var profileKinds = map[string]func(*profile.Profile){
	"cpu": profile.CPUProfile, "heap": profile.MemProfileHeap, "block": profile.BlockProfile,
	"mutex": profile.MutexProfile, "trace": profile.TraceProfile,
}

// startProfile profiles the process until the function `stop` is called, and writes the profile to
// a file such as dir/rank-0003/cpu.pprof. Ranks of the same process share the profile of rank 0.
func startProfile(kind, dir string, rank int, p *process) (stop func(), err error) {
	if kind == "" || !p.byMPI() && rank > 0 {
		return func() {}, nil
	}
	dir = filepath.Join(dir, fmt.Sprintf("rank-%04d", rank))
	// If profile.Start had to make the directory and failed, it would end the process, and the
	// other ranks would wait for it.
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return func() {}, fmt.Errorf("--profile: %w", err)
	}
	return profile.Start(profileKinds[kind], profile.ProfilePath(dir), profile.Quiet,
		profile.NoShutdownHook).Stop, nil
}

// trainRank trains on one rank.
func trainRank(c comm.Comm, p *process, o trainFlags, begun time.Time) (err error) {
	setUp := trace.NewSetUp(begun)
	stopSignal := stopOnSignals()
	started := p.watchStart(stopSignal, errNotStarted)
	defer started()
	resumed, path := o.resume != "", o.config
	if resumed {
		config, fresh, err := resumeFrom(c, o.resume, path)
		if err != nil {
			return err
		}
		resumed, path, o.sets = !fresh, config, append(slices.Clone(o.sets), "run.dir="+o.resume)
	}
	if resumed {
		if err := keepsNumbers(c, o.resume, path, o.sets); err != nil {
			return err
		}
	}
	if o.dry {
		o.sets = append(slices.Clone(o.sets), "run.stage_dir=") // so that a dry run copies no files
	}
	j, err := openJob(c, p, path, o.sets, training, setUp)
	if err != nil {
		return err
	}
	defer func() { j.release(err) }()
	if o.dry {
		return j.dryRun(o.resume == "", resumed)
	}
	if c.Rank() == 0 {
		for _, note := range j.config.Unread() {
			j.env.Progress.Note(context.Background(), note)
		}
	}
	j.env.Stop, j.env.Config = stopSignal, j.config.Flat()
	defer j.unlock()
	if resumed {
		if err := j.lock(); err != nil {
			return err
		}
		if done, err := j.openResumed(); err != nil || done {
			return j.unbegun(err)
		}
	}
	part, err := j.partSuffix()
	if err != nil {
		return err
	}
	if o.trace {
		j.env.Trace = rundir.TraceDir + part
	}
	var watch *kernelWatch
	if o.kernels {
		watch = j.watchKernels()
		defer func() { err = errors.Join(err, watch.close()) }()
	}
	stop := func() {}
	defer func() { stop() }()
	ended := make(chan struct{})
	defer close(ended)
	if c.Rank() == 0 {
		go tellStopping(stopSignal, ended)
	}
	var summary *record.Summary
	err = workOn(j.env.Shards, func() error {
		t, err := train.Open(j.env, trainOptions(j.config))
		if err != nil {
			return j.unbegun(err)
		}
		// All checks have passed: now the run directory is made.
		if err := j.beginRunDir(o.resume == "", resumed); err != nil {
			return t.End(j.unbegun(err))
		}
		profiles := filepath.Join(j.config.Run.Dir, rundir.ProfileDir+part)
		stop, err = startProfile(o.profile, profiles, c.Rank(), p)
		if err := usageError(comm.Agree(c, err)); err != nil {
			return t.End(err)
		}
		started()
		summary, err = t.Run(context.Background(), j.held)
		return err
	})
	if errors.Is(err, train.ErrStopped) {
		return withCode(exitRequeue, err)
	}
	if errors.Is(err, parallel.ErrTransport) {
		return usageError(err)
	}
	if comm.IsAgreed(err) && !errors.Is(err, train.ErrResults) &&
		!errors.Is(err, train.ErrUnsaved) {
		return setUpError(err)
	}
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		// The results are on disk, so it is no failure if the reader of standard output has gone
		// away.
		if err := summary.Print(stdout); err != nil && !errors.Is(err, syscall.EPIPE) {
			return err
		}
		if watch != nil {
			if err := watch.report(stdout, j.config.Run.Dir); err != nil {
				return err
			}
		}
		fmt.Fprintf(stdout, "\nwritten to %s\n", j.config.Run.Dir)
	}
	return nil
}
