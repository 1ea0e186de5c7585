package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"halognn/src/forecast/simulate"
)

// modesCommand returns the command `simulate modes`.
func modesCommand() *cobra.Command {
	var run simulated
	var o simulate.ModeOptions
	c := &cobra.Command{
		Use: "modes [--config FILE.yaml] [--parts PARTS] [--set key.path=value ...] " +
			"[--ranks 2,4,8] --out DIR",
		Short: "Count what ranks compute, load and receive if they share minibatches, and if not",
		Long: "Count, for several numbers of ranks, what they compute, load and receive with " +
			"each parallel.mode: data (each rank has minibatches of its own), split (all ranks " +
			"train each minibatch together), hybrid (the ranks of a node do, if there are " +
			"several nodes of several ranks) and push-pull (each rank has minibatches of its " +
			"own, and some columns of the features). Nothing is cached and nothing is trained.",
		Example: "  halognn simulate modes --parts parts/products-512 --set sample.batch=1024 " +
			"--set sample.batch_scope=global --out runs/modes",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Spec, err = run.spec(c); err != nil {
				return err
			}
			o.Workers = run.workers
			return compareModes(c, &run, o)
		},
	}
	run.flags(c, 1, "the directory to write modes.csv to")
	c.Flags().IntSliceVar(&o.RankCounts, "ranks", nil,
		"numbers of ranks, divisors of the parts (default: all of them)")
	complete(c)
	return c
}

func compareModes(c *cobra.Command, run *simulated, o simulate.ModeOptions) error {
	dir := run.out
	s, err := run.open()
	if err != nil {
		return err
	}
	defer s.Close()
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
	out(c, "%s: an epoch, the mean of %d; fanouts %v, batch %d, seed %d\n\n", run.parts, o.Epochs,
		o.Sample.Fanouts, o.Batch, o.Seed)
	if err := m.Print(c.OutOrStdout()); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	out(c, "\nwritten to %s\n", dir)
	return nil
}
