package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"halognn/src/comm"
	"halognn/src/nn"
	"halognn/src/rundir"
	"halognn/src/train"
)

func inferCommand(p *process) *cobra.Command {
	var run, mode, path string
	var logits bool
	var sets []string
	c := &cobra.Command{
		Use:     "infer --run RUN [--mode full|sampled] --out predictions.npy",
		Short:   "Predict every vertex with the model of a run; under mpirun or srun, like train",
		Example: "  mpirun -np 4 halognn infer --run run/demo/sage --out predictions.npy",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "run", "out"); err != nil {
				return err
			}
			if mode != "full" && mode != "sampled" {
				return usageError(fmt.Errorf("--mode %s is unknown; use full (all neighbours, "+
					"layer by layer) or sampled", mode))
			}
			if p.byMPI() {
				p.chooseGPU(filepath.Join(run, rundir.ConfigFile), sets)
			}
			return p.run(func(c comm.Comm) error {
				return inferRank(c, p, run, sets, train.Inference{Full: mode == "full",
					Logits: logits, Path: path})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&run, "run", "", "the run directory")
	f.StringVar(&mode, "mode", "full", "full: all neighbours, layer by layer; sampled: "+
		"minibatches, by sample.eval_fanouts if the run has them")
	f.StringVar(&path, "out", "",
		"the NumPy file to write: the class of every vertex, in original ids")
	f.BoolVar(&logits, "logits", false, "write what the model says for each class, float32 "+
		"[vertices, classes], instead of the class")
	f.StringArrayVar(&sets, "set", nil,
		"override a key of the run's config, as data.parts=parts-8; repeatable")
	p.flag(c)
	return c
}

func inferRank(
	c comm.Comm, p *process, run string, sets []string, what train.Inference,
) (err error) {
	ctx := untilSignal()
	if p.byMPI() && c.Rank() > 0 {
		ctx = lagging(ctx, time.Second) // rank 0 speaks for all, if it lives
	}
	config := filepath.Join(run, rundir.ConfigFile)
	_, err = os.Stat(config)
	if err != nil {
		err = fmt.Errorf("%s holds no run: %w", run, err)
	}
	if err := comm.Agree(c, err); err != nil {
		return dataError(err)
	}
	j, err := openJob(c, p, config, sets, nil)
	if err != nil {
		return err
	}
	defer func() { j.release(err) }()
	// A run that is being continued has no summary; its model is that of the time before.
	_, err = os.Stat(filepath.Join(run, rundir.SummaryFile))
	var weights []nn.Tensor
	if err == nil {
		weights, _, err = nn.ReadSafetensors(filepath.Join(run, rundir.ModelFile))
	}
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the run has not finished; go on with `halognn train --resume %s`",
			err, run)
	}
	if err := comm.Agree(c, err); err != nil {
		return dataError(err)
	}
	if c.Rank() == 0 {
		err = vacantFile(what.Path)
	}
	if err := comm.Agree(c, err); err != nil {
		return dataError(err)
	}
	if err := comm.Agree(c, fitting(run, j.env.Shards.Meta)); err != nil {
		return dataError(err)
	}
	err = workOn(j.env.Shards, func() error {
		return train.Infer(ctx, j.env, trainOptions(j.config), weights, what)
	})
	if comm.IsAgreed(err) {
		return dataError(err)
	}
	if err == nil && c.Rank() == 0 {
		fmt.Printf("written to %s: %d vertices\n", what.Path, j.env.Shards.Meta.Vertices)
	}
	return err
}
