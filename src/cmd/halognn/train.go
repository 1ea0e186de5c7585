package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/pkg/profile"
	"github.com/spf13/cobra"

	"halognn/src/comm"
	"halognn/src/train"
)

func trainCommand() *cobra.Command {
	var path string
	var sets []string
	var ranks int
	var profiles string
	var traced bool
	c := &cobra.Command{
		Use:   "train --config FILE.yaml [--set key.path=value ...]",
		Short: "Train a model; under mpirun or srun, each rank on its own parts",
		Example: "  mpirun -np 4 halognn train --config inputs/demo.yaml --set train.lr=0.01\n" +
			"  halognn train --config inputs/demo.yaml --ranks-in-process 4      (four ranks as goroutines, without MPI)",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			if path == "" {
				return usageError(fmt.Errorf("--config is missing: the YAML file of the run; inputs/ has examples and docs/config.md lists the keys"))
			}
			if _, known := profileKinds[profiles]; profiles != "" && !known {
				return usageError(fmt.Errorf("--profile %s is unknown; use %s", profiles, orList(slices.Sorted(maps.Keys(profileKinds)))))
			}
			k := inProcess(ranks)
			return k.run(func(c comm.Comm) error { return trainRank(c, k, path, sets, profiles, traced) })
		},
	}
	c.Flags().StringVar(&path, "config", "", "YAML file of the run")
	c.Flags().StringArrayVar(&sets, "set", nil, "override a key, as train.lr=0.01; repeatable")
	c.Flags().IntVar(&ranks, "ranks-in-process", 0, "run so many ranks as goroutines of this process instead of MPI's")
	c.Flags().StringVar(&profiles, "profile", "", "write a pprof profile of every rank into the run directory: cpu, heap, block, mutex or trace")
	c.Flags().BoolVar(&traced, "trace", false, "write what every rank did when into the run directory, for Perfetto: trace/rank-0000.json ...")
	return c
}

var profileKinds = map[string]func(*profile.Profile){
	"cpu": profile.CPUProfile, "heap": profile.MemProfileHeap, "block": profile.BlockProfile, "mutex": profile.MutexProfile, "trace": profile.TraceProfile,
}

// startProfile profiles the process until stop: RUN/profile/rank-0003/cpu.pprof. In-process ranks share rank 0's.
func startProfile(kind, run string, rank int, k inProcess) (stop func(), err error) {
	if kind == "" || k > 0 && rank > 0 {
		return func() {}, nil
	}
	dir := filepath.Join(run, "profile", fmt.Sprintf("rank-%04d", rank))
	if err := os.MkdirAll(dir, 0o777); err != nil { // Start would end the process, and leave the other ranks waiting
		return func() {}, fmt.Errorf("--profile: %w", err)
	}
	return profile.Start(profileKinds[kind], profile.ProfilePath(dir), profile.Quiet, profile.NoShutdownHook).Stop, nil
}

// trainRank is the run of one rank.
func trainRank(c comm.Comm, k inProcess, path string, sets []string, profiles string, traced bool) error {
	j, err := openJob(c, k, path, sets)
	if err != nil {
		return err
	}
	defer j.close()
	j.env.Trace = traced
	stop := func() {}
	j.env.Begin = func() error {
		if err := j.createRunDir(); err != nil {
			return err
		}
		var err error
		stop, err = startProfile(profiles, j.config.Run.Dir, c.Rank(), k)
		return usageError(train.Agree(c, err))
	}
	defer func() { stop() }()
	summary, err := train.Run(context.Background(), j.env, j.config.trainOptions())
	if a := (*train.Agreed)(nil); errors.As(err, &a) {
		return dataError(err) // what all ranks can agree on before or after the steps is about files
	}
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		if err := summary.Print(os.Stdout); err != nil {
			return err
		}
		fmt.Printf("\nwritten to %s\n", j.config.Run.Dir)
	}
	return nil
}

// createRunDir makes the run directory. Collective.
func (j *job) createRunDir() error {
	var err error
	if j.comm.Rank() == 0 {
		text, fault := j.config.yaml()
		if err = fault; err == nil {
			err = train.CreateRunDir(j.config.Run.Dir, text)
		}
	}
	return usageError(train.Agree(j.comm, err))
}
