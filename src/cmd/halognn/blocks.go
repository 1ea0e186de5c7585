package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"halognn/src/data/shard"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/runs/blocks"
	"halognn/src/runs/config"
)

// blocksFlags has the flags of the command blocks.
type blocksFlags struct {
	config, out  string
	sets         []string
	ranks, steps int
}

func blocksCommand() *cobra.Command {
	var o blocksFlags
	c := &cobra.Command{
		Use: "blocks --config FILE.yaml [--set key.path=value ...] [--ranks K] [--steps N] " +
			"--out DIR",
		Short: "Write the minibatches that training would draw, and the initial weights, as " +
			"NumPy arrays",
		Long: "Write the minibatches that training would draw, and the initial weights, for " +
			"other programs to train on the same.\n" +
			"docs/formats.md describes the files. Nothing is trained; run.dir is not touched.",
		Example: "  halognn blocks --config inputs/demo.yaml --ranks 4 --steps 100 " +
			"--out run/blocks",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "config", "out"); err != nil {
				return err
			}
			if o.ranks < 0 || c.Flags().Changed("ranks") && o.ranks == 0 {
				return usageError(fmt.Errorf("--ranks is %d; it must be at least 1", o.ranks))
			}
			if o.steps < 0 {
				return usageError(fmt.Errorf("--steps is %d; it must be at least 1, or 0 for all",
					o.steps))
			}
			return runBlocks(c, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", "", "YAML file of the run")
	f.StringArrayVar(&o.sets, "set", nil, "override a key, as train.epochs=1; repeatable")
	f.IntVar(&o.ranks, "ranks", 0, "ranks of the run (default: one for each part)")
	f.IntVar(&o.steps, "steps", 0,
		"number of steps to write, from the first on (default: all)")
	f.StringVar(&o.out, "out", "", "a new or empty directory to write to")
	return c
}

func runBlocks(command *cobra.Command, o blocksFlags) error {
	// config.Load requires run.dir; nothing is written there
	c, err := config.Load(o.config, append([]string{"run.dir=blocks"}, o.sets...))
	if err != nil {
		return usageError(err)
	}
	if !nn.FindKind(c.Job.Model.Kind).ReadsNeighbours {
		return usageError(fmt.Errorf("model.kind is %s, which reads no neighbours, so its "+
			"minibatches have no blocks; set it to sage", c.Job.Model.Kind))
	}
	if c.Job.ByNode() && c.Run.RanksPerNode == 0 {
		return usageError(errors.New("with parallel.mode hybrid or sample.share node, " +
			"minibatches depend on how many ranks a node has; set run.ranks_per_node to that " +
			"number"))
	}
	s, err := shard.Open(c.Data.Parts, shard.Options{Split: c.Data.Split})
	if err != nil {
		return dataError(err)
	}
	defer s.Close()
	if err := vacant(o.out); err != nil {
		return err
	}
	o.ranks = cmp.Or(o.ranks, s.Parts)
	export := blocks.Export{
		Shards: s, Device: ref.New(), Workers: runtime.GOMAXPROCS(0), Version: version,
		Ranks: o.ranks, RanksPerNode: c.Run.RanksPerNode, Steps: o.steps, Dir: o.out,
	}
	var b *blocks.Index
	err = workOn(s, func() (err error) {
		b, err = blocks.Write(export, c.Spec())
		return err
	})
	if err != nil {
		return dataError(err)
	}
	out(command, "written to %s: %d minibatches of %d ranks, digest %s\n", o.out,
		len(b.Minibatches), o.ranks, b.BlocksDigest)
	return nil
}
