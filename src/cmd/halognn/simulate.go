package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/forecast/simulate"
	"halognn/src/rows/policy"
	"halognn/src/runs/config"
	"halognn/src/step/job"
)

// simulated has the flags that simulate and simulate modes share, which describe the runs.
type simulated struct {
	parts, config, out       string
	sets                     []string
	epochs, workers, perNode int
	split                    int // data.split of the config; the method spec sets it
}

func (o *simulated) flags(c *cobra.Command, epochs int, out string) {
	f := c.Flags()
	f.StringVar(&o.parts, "parts", "", "the PARTS directory (default: data.parts of the config)")
	f.StringVar(&o.config, "config", "", "YAML file of the run (default: every key at its default)")
	f.StringArrayVar(&o.sets, "set", nil, "override a key, as sample.fanouts=15,10,5; repeatable")
	f.IntVar(&o.epochs, "epochs", epochs, "epochs to count")
	f.IntVar(&o.perNode, "ranks-per-node", 0,
		"ranks of a node, which read each other's rows in memory (default: "+
			"run.ranks_per_node, or 1)")
	f.IntVar(&o.workers, "workers", 0, "worker threads (default: one for each CPU)")
	f.StringVar(&o.out, "out", "", out)
}

// spec returns the job that is simulated. It sets o.parts and o.split.
func (o *simulated) spec(c *cobra.Command) (s job.Spec, err error) {
	if err := required(c, "out"); err != nil {
		return s, err
	}
	// an option of zero means its default, so an explicit 0 is refused here
	for _, f := range []string{"ranks", "ranks-per-node"} {
		if n, err := c.Flags().GetInt(f); err == nil && n == 0 && c.Flags().Changed(f) {
			return s, usageError(fmt.Errorf("--%s is 0; it must be at least 1", f))
		}
	}
	// config.Load requires run.dir; nothing is written there
	sets := append(o.sets, "run.dir=simulated")
	if o.parts != "" {
		sets = append(sets, "data.parts="+o.parts)
	}
	run, err := config.Load(o.config, sets)
	if err != nil {
		return s, usageError(err)
	}
	s, o.parts, o.split = run.Spec(), run.Data.Parts, run.Data.Split
	s.Epochs, s.RanksPerNode = o.epochs, cmp.Or(o.perNode, run.Run.RanksPerNode, 1)
	return s, nil
}

// open opens the parts, and checks that the results can be written.
func (o *simulated) open() (*shard.Shards, error) {
	s, err := shard.Open(o.parts, shard.Options{Split: o.split})
	if err != nil {
		return nil, dataError(err)
	}
	if err := vacant(o.out); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// own finds the policies that have settings of their own in --policies, written as
// NAME:key=value:... It returns the settings of each, by this whole text.
func (o *simulated) own(policies []string) (map[string]policy.Settings, error) {
	all := map[string]policy.Settings{}
	for _, name := range policies {
		words := strings.Split(name, ":")
		sets := append(slices.Clone(o.sets), "run.dir=simulated", "data.parts="+o.parts)
		for _, set := range words[1:] {
			key, _, _ := strings.Cut(set, "=")
			if policy.Find(words[0]) == nil {
				break // package simulate reports an unknown policy
			}
			if !slices.Contains(config.Readers("cache."+key), words[0]) {
				return nil, fmt.Errorf("--policies %s: policy %s does not read cache.%s; leave "+
					"the key out", name, words[0],
					key)
			}
			sets = append(sets, "cache."+set)
		}
		if len(words) == 1 {
			continue
		}
		run, err := config.Load(o.config, sets)
		if err != nil {
			return nil, fmt.Errorf("--policies %s: %w", name, err)
		}
		all[name] = run.Spec().Cache
	}
	return all, nil
}

func simulateCommand() *cobra.Command {
	var run simulated
	var o simulate.Options
	c := &cobra.Command{
		Use: "simulate [--config FILE.yaml] [--parts PARTS] [--set key.path=value ...] " +
			"[--policies none,vip,oracle] [--alphas 0.05,0.1,0.2] --out DIR",
		Short: "Count the rows that training would fetch, for every cache policy and size, " +
			"without training",
		Long: "Count the rows that training would fetch, for every cache policy and size, " +
			"without training.\nThe run is that of the config; its cache.policy and cache.alpha " +
			"are not read. With exchange.sums on, it counts the rows and sums that travel, and " +
			"with\nexchange.nodes on, the rows that each node fetches as one.",
		Example: "  halognn simulate --parts parts/products-4 --set sample.fanouts=10,10,5 " +
			"--out runs/traffic",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			ranks := o.Ranks
			if o.Spec, err = run.spec(c); err != nil {
				return err
			}
			o.Ranks, o.Workers, o.Sums = ranks, run.workers, o.Sums && !o.TrySums
			o.AsNodes = o.AsNodes && !o.TryNodes
			if len(o.HaloFractions) > 0 && !c.Flags().Changed("alphas") {
				o.Alphas = nil
			}
			if !c.Flags().Changed("policies") {
				o.Policies = o.Possible()
			}
			if o.Own, err = run.own(o.Policies); err != nil {
				return usageError(err)
			}
			if err := o.Check(); err != nil {
				return usageError(err)
			}
			return runSimulate(c, &run, o)
		},
	}
	f := c.Flags()
	run.flags(c, 5, "the directory to write simulate.csv, steps.csv and simulate.html to")
	f.IntVar(&o.Ranks, "ranks", 0, "ranks (default: one for each part)")
	f.StringSliceVar(&o.Policies, "policies", nil, "some of "+
		strings.Join(simulate.Policies(), ", ")+" (default: all that the run can have); each may "+
		"set keys of section cache for itself, as prefetch:gamma=0.95:delta=32")
	f.Float64SliceVar(&o.Alphas, "alphas", []float64{0.05, 0.1, 0.2, 0.5, 1},
		"cache sizes, as fractions of an average rank's vertices, ascending")
	f.Float64SliceVar(&o.HaloFractions, "halo-fractions", nil,
		"cache sizes, as fractions of a rank's 1-hop halo, instead of --alphas")
	f.BoolVar(&o.LastShort, "last-short", false, "count full batches and a short last one, as "+
		"published figures do, although training cuts batches of nearly equal size")
	c.AddCommand(modesCommand())
	return c
}

func runSimulate(c *cobra.Command, run *simulated, o simulate.Options) error {
	dir := run.out
	s, err := run.open()
	if err != nil {
		return err
	}
	defer s.Close()
	if o.Fit(s); !c.Flags().Changed("policies") {
		o.Policies = o.Possible()
	}
	var r *simulate.Result
	ready := false
	err = workOn(s, func() (err error) {
		sim, err := simulate.New(s, o)
		if err != nil {
			return err
		}
		defer sim.Close()
		if err := enoughForCounts(sim.Counts()); err != nil {
			return err
		}
		ready = true
		r, err = sim.Run()
		return err
	})
	switch {
	case errors.Is(err, simulate.ErrOptions):
		return usageError(err)
	case err != nil && !ready:
		return dataError(err)
	case err != nil:
		return err
	}
	if err := writeFiles(dir, map[string]func(io.Writer) error{
		"simulate.csv": r.WriteCSV, "steps.csv": r.WriteStepsCSV, "simulate.html": r.WritePage,
	}); err != nil {
		return dataError(err)
	}
	out(c, "%s: %d ranks, %d steps an epoch, %d epochs, %v, batch %d, seed %d\n",
		run.parts, r.Options.Ranks, r.Steps, r.Options.Epochs, r.Options.Sample,
		r.Options.Batch, r.Options.Seed)
	if err := r.Print(c.OutOrStdout()); err != nil {
		return err
	}
	peak, err := mem.PeakRSS()
	if err != nil {
		return err
	}
	out(c, "\n%d MB resident at most, %d MB predicted\n"+
		"written to %s\n", peak/1e6, r.Bytes/1e6, dir)
	return nil
}

// writeFiles writes files into a directory, each completely or not at all.
func writeFiles(dir string, files map[string]func(io.Writer) error) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, write := range files {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := renameio.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return nil
}
