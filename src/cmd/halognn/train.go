package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"halognn/src/comm"
	"halognn/src/train"
)

func trainCommand() *cobra.Command {
	var path string
	var sets []string
	var ranks int
	c := &cobra.Command{
		Use:   "train --config FILE.yaml [--set key.path=value ...]",
		Short: "Train a model; under mpirun or srun, each rank on its own parts",
		Example: "  mpirun -np 4 halognn train --config inputs/demo.yaml --set train.lr=0.01\n" +
			"  halognn train --config inputs/demo.yaml --ranks-in-process 4      (four ranks as goroutines, without MPI)",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if path == "" {
				return usageError(fmt.Errorf("--config is missing: the YAML file of the run; inputs/ has examples and docs/config.md lists the keys"))
			}
			k := inProcess(ranks)
			return k.run(func(c comm.Comm) error { return trainRank(c, k, path, sets) })
		},
	}
	c.Flags().StringVar(&path, "config", "", "YAML file of the run")
	c.Flags().StringArrayVar(&sets, "set", nil, "override a key, as train.lr=0.01; repeatable")
	c.Flags().IntVar(&ranks, "ranks-in-process", 0, "run so many ranks as goroutines of this process instead of MPI's")
	return c
}

// trainRank is the run of one rank.
func trainRank(c comm.Comm, k inProcess, path string, sets []string) error {
	j, err := openJob(c, k, path, sets)
	if err != nil {
		return err
	}
	defer j.close()
	j.env.Begin = j.createRunDir
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
