package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"halognn/src/config"
	"halognn/src/shard"
	"halognn/src/simulate"
)

// modesCommand is `simulate modes`.
func modesCommand() *cobra.Command {
	var o simulate.ModeOptions
	var parts, dir string
	run := config.Default() // of which flags set the keys of the same names
	c := &cobra.Command{
		Use: "modes --parts PARTS --fanouts 15,10,5 --batch 1024 [--batch-scope global] " +
			"[--ranks 2,4,8] [--epochs 1] [--seed S] --out DIR",
		Short: "Count what ranks compute, load and receive if they share minibatches, and if not",
		Long: "Count, for several numbers of ranks, what they compute, load and receive with " +
			"parallel.mode data, where each rank has minibatches of its own, split, where all ranks " +
			"train each together, hybrid, where those of a node do (if there are several nodes of " +
			"several ranks), and push-pull, where each rank has minibatches of its own and some " +
			"columns of the features. Nothing is cached and nothing is trained.",
		Example: "  halognn simulate modes --parts parts/products-512 --batch 1024 " +
			"--batch-scope global --out runs/modes",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "parts", "out"); err != nil {
				return err
			}
			o.GlobalBatch = run.Sample.BatchScope == "global"
			o.GlobalSeeds = run.Sample.Seeds == "global"
			if err := errors.Join(
				flagWord("batch-scope", run.Sample.BatchScope, "sample.batch_scope"),
				flagWord("seeds", run.Sample.Seeds, "sample.seeds")); err != nil {
				return usageError(err)
			}
			return compareModes(c, parts, dir, o)
		},
	}
	f := c.Flags()
	f.StringVar(&parts, "parts", "", "the PARTS directory")
	f.IntSliceVar(&o.RankCounts, "ranks", nil,
		"numbers of ranks, divisors of the parts (default: all of them)")
	f.IntVar(&o.RanksPerNode, "ranks-per-node", 1,
		"ranks of a node; with data they read each other's rows in memory")
	f.IntSliceVar(&o.Sample.Fanouts, "fanouts", run.Sample.Fanouts,
		"neighbours drawn per vertex and hop, seed hop first; -1 for all")
	f.IntVar(&o.Batch, "batch", run.Sample.Batch, "seeds of a minibatch, for each rank")
	f.StringVar(&run.Sample.BatchScope, "batch-scope", run.Sample.BatchScope,
		"what --batch counts: the seeds for each rank (rank), or of all together (global)")
	f.StringVar(&run.Sample.Seeds, "seeds", run.Sample.Seeds, "data: where ranks draw seeds from: "+
		"local (their own parts) or global (the whole graph)")
	f.IntVar(&o.Hidden, "hidden", run.Model.Hidden, "width of the hidden rows that split sends, and of the sums of push-pull")
	f.IntVar(&o.Epochs, "epochs", 1, "epochs to count")
	f.Uint64Var(&o.Seed, "seed", uint64(run.Train.Seed), "train.seed of the runs")
	f.IntVar(&o.Workers, "workers", 0, "goroutines (default: one for each CPU)")
	f.StringVar(&dir, "out", "", "the directory to write modes.csv to")
	complete(c)
	return c
}

func compareModes(c *cobra.Command, parts, dir string, o simulate.ModeOptions) error {
	s, err := shard.Open(parts, shard.Options{})
	if err != nil {
		return dataError(err)
	}
	defer s.Close()
	if err := vacant(dir); err != nil {
		return err
	}
	var m *simulate.Modes
	err = workOn(s, func() (err error) {
		m, err = simulate.CompareModes(s, o)
		return err
	})
	switch {
	case errors.Is(err, simulate.ErrOptions):
		return usageError(err)
	case err != nil:
		return dataError(err)
	}
	if err := writeFiles(dir, map[string]func(io.Writer) error{
		"modes.csv": m.WriteCSV}); err != nil {
		return dataError(err)
	}
	out(c, "%s: an epoch, the mean of %d; fanouts %v, batch %d, seed %d\n\n", parts, o.Epochs,
		o.Sample.Fanouts, o.Batch, o.Seed)
	if err := m.Print(c.OutOrStdout()); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	out(c, "\nwritten to %s\n", dir)
	return nil
}
