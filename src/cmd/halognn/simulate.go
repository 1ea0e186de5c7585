package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"halognn/src/config"
	"halognn/src/mem"
	"halognn/src/policy"
	"halognn/src/sample"
	"halognn/src/shard"
	"halognn/src/simulate"
)

func simulateCommand() *cobra.Command {
	var o simulate.Options
	var parts, dir string
	run := config.Default() // of which flags set the keys of the same names
	c := &cobra.Command{
		Use: "simulate --parts PARTS --fanouts 15,10,5 --batch 1024 --policies " +
			"none,vip,oracle --alphas 0.05,0.1,0.2 --epochs 5 [--seed S] --out DIR",
		Short: "Count the rows that training would fetch, for every cache policy and size, " +
			"without training",
		Example: "  halognn simulate --parts parts/products-4 --out runs/traffic",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "parts", "out"); err != nil {
				return err
			}
			for _, f := range []string{"ranks", "ranks-per-node"} { // zero stands for the default
				if n, _ := c.Flags().GetInt(f); n == 0 && c.Flags().Changed(f) {
					return usageError(fmt.Errorf("--%s is 0; it must be at least 1", f))
				}
			}
			if len(o.HaloFractions) > 0 && !c.Flags().Changed("alphas") {
				o.Alphas = nil
			}
			if o.Sample.Kind = sample.Kind(run.Sample.Kind); !o.Sample.HasFanouts() {
				o.Sample.Fanouts = nil
			}
			switch given := c.Flags().Changed("layer-vertices"); {
			case o.Sample.Kind == sample.LADIES && !given:
				return usageError(fmt.Errorf("--layer-vertices is missing: --sample-kind %s needs the "+
					"vertices drawn for each layer, seed hop first, as %[2]d,%[2]d,%[2]d", sample.LADIES,
					run.Sample.LayerVertices))
			case o.Sample.Kind != sample.LADIES && given:
				slog.Info(fmt.Sprintf("--layer-vertices is for --sample-kind %s", sample.LADIES))
			}
			o.GlobalBatch = run.Sample.BatchScope == "global"
			o.GlobalSeeds = run.Sample.Seeds == "global"
			o.StreamPerPart = run.Sample.Streams == "part"
			o.Locality = locality(run)
			o.Model.Kind, o.Sums = run.Model.Kind, run.Exchange.Sums == config.SumsOn
			if !c.Flags().Changed("policies") {
				o.Policies = policy.Names(func(p *policy.Policy) bool {
					static := o.Cache.Shared() || o.Cache.FromFiles()
					return (p.Static() || !static) && !(o.Sums && p.Hindsight) &&
						(o.Sample.HasFanouts() || !p.Fanouts) &&
						!(o.Locality.Favours() &&
							(p.Foresees || o.Locality.Adapt != nil && !p.Static()))
				})
			}
			err := errors.Join(
				flagWord("model", run.Model.Kind, "model.kind"),
				flagWord("sums", run.Exchange.Sums, "exchange.sums"),
				onOrOff(run.Exchange.Sums),
				flagWord("sample-kind", run.Sample.Kind, "sample.kind"),
				flagWord("placement", o.Cache.Placement, "cache.placement"),
				flagWord("source", o.Cache.Source, "cache.source"),
				flagWord("batch-scope", run.Sample.BatchScope, "sample.batch_scope"),
				flagWord("seeds", run.Sample.Seeds, "sample.seeds"),
				flagWord("streams", run.Sample.Streams, "sample.streams"))
			if err == nil { // which would tell of an unknown word again
				err = o.Check()
			}
			if err != nil {
				return usageError(err)
			}
			for _, flag := range strings.Fields(
				"halo-hops gamma delta evict initial window level") {
				by := config.Readers("cache." + strings.ReplaceAll(flag, "-", "_"))
				reads := func(policy string) bool { return slices.Contains(by, policy) }
				if c.Flags().Changed(flag) && !slices.ContainsFunc(o.Policies, reads) {
					slog.Info(fmt.Sprintf("--%s is for %s, which --policies does not name",
						flag, config.OrList(by)))
				}
			}
			return runSimulate(c, parts, dir, o)
		},
	}
	f := c.Flags()
	f.StringVar(&parts, "parts", "", "the PARTS directory")
	f.IntSliceVar(&o.Sample.Fanouts, "fanouts", run.Sample.Fanouts,
		"neighbours drawn per vertex and hop, seed hop first; -1 for all")
	f.StringVar(&run.Sample.Kind, "sample-kind", run.Sample.Kind, "how neighbours are drawn: "+
		config.OrList(config.Words("sample.kind")))
	f.IntSliceVar(&o.Sample.Vertices, "layer-vertices", nil, "--sample-kind ladies: vertices drawn "+
		"for each layer, seed hop first")
	f.Float64Var(&run.Sample.Locality, "locality", run.Sample.Locality, "--sample-kind poisson, "+
		"ladies: how many times likelier vertices whose rows a rank has at hand are drawn")
	f.IntVar(&run.Sample.LocalityVertices, "locality-vertices", run.Sample.LocalityVertices,
		"--locality: vertices of each layer but the input layer that are likelier")
	f.BoolVar(&run.Sample.LocalityAdapt, "locality-adapt", run.Sample.LocalityAdapt,
		"--locality is the most, and epochs adapt the factor to the share of loading")
	for _, l := range []struct {
		name, means string
		value       *float64
	}{
		{"lower", "the share of loading below which it falls", &run.Sample.LocalityLower},
		{"upper", "the share of loading above which it doubles", &run.Sample.LocalityUpper},
		{"link", "bytes/s at which a rank gets far rows", &run.Sample.LocalityLink},
		{"edges", "sampled edges/s that a rank draws and trains", &run.Sample.LocalityEdges},
	} {
		f.Float64Var(l.value, "locality-"+l.name, *l.value, "--locality-adapt: "+l.means)
	}
	f.IntVar(&o.Batch, "batch", run.Sample.Batch, "seeds of a rank's minibatch")
	f.StringVar(&run.Sample.BatchScope, "batch-scope", run.Sample.BatchScope, "what --batch "+
		"counts: the seeds of each stream (rank), or of all together (global)")
	f.StringVar(&run.Sample.Seeds, "seeds", run.Sample.Seeds, "where streams draw seeds from: "+
		"local (their own parts) or global (the whole graph)")
	f.StringVar(&run.Sample.Streams, "streams", run.Sample.Streams,
		"a stream of minibatches for each rank or for each part")
	f.StringSliceVar(&o.Policies, "policies", simulate.Policies(),
		"some of "+strings.Join(simulate.Policies(), ", "))
	f.Float64SliceVar(&o.Alphas, "alphas", []float64{0.05, 0.1, 0.2, 0.5, 1},
		"cache sizes, as fractions of an average rank's vertices, ascending")
	f.Float64SliceVar(&o.HaloFractions, "halo-fractions", nil,
		"cache sizes, as fractions of a rank's 1-hop halo, instead of --alphas")
	f.IntVar(&o.Cache.HaloHops, "halo-hops", 0, "degree, paths, prefetch: hops from a rank's "+
		"vertices within which remote ones are kept (default: one for each fanout)")
	f.IntVar(&o.Epochs, "epochs", 5, "epochs to count")
	f.Uint64Var(&o.Seed, "seed", uint64(run.Train.Seed), "train.seed of the run that is simulated")
	f.IntVar(&o.Ranks, "ranks", 0, "ranks (default: one for each part)")
	f.IntVar(&o.RanksPerNode, "ranks-per-node", 1,
		"ranks of a node, which read each other's rows in memory")
	f.BoolVar(&o.LastShort, "last-short", false, "full batches and a short last one, as "+
		"published figures count; training cuts near-equal ones")
	f.Float64Var(&o.Cache.Gamma, "gamma", run.Cache.Gamma, "prefetch: decay of a row's score in "+
		"a step that does not use it; 1: no decay and no eviction")
	f.IntVar(&o.Cache.Delta, "delta", run.Cache.Delta,
		"prefetch: minibatches between two evictions")
	f.BoolVar(&o.Cache.Evict, "evict", run.Cache.Evict,
		"prefetch: exchange rows; false keeps what it begins with")
	f.StringVar(&o.Cache.Initial, "initial", run.Cache.Initial,
		"prefetch: what it is filled by, "+config.OrList(config.Words("cache.initial")))
	f.IntVar(&o.Cache.Window, "window", 0,
		"lookahead: minibatches known in advance (default: planned as in training)")
	f.BoolVar(&o.Cache.Level, "level", false,
		"lookahead: fetch early where the next minibatch has more misses")
	f.StringVar(&o.Cache.Placement, "placement", run.Cache.Placement,
		"cache.placement: where the rows of static caches lie, "+
			config.OrList(config.Words("cache.placement")))
	f.Float64Var(&o.Cache.PeerCost, "peer-cost", policy.AssumedPeerCost, "placement group: the "+
		"cost of a row of a peer's cache over that of a far one; cache.peer_cost of a run's "+
		"summary.json says what was measured")
	f.StringVar(&o.Cache.Source, "source", run.Cache.Source, "cache.source: where rows come from "+
		"that no cache holds, "+config.OrList(config.Words("cache.source")))
	f.StringVar(&run.Exchange.Sums, "sums", run.Exchange.Sums, "exchange.sums: on counts what travels "+
		"where owners add rows")
	f.StringVar(&run.Model.Kind, "model", run.Model.Kind, "--sums on: the model, "+
		config.OrList(config.Words("model.kind")))
	f.IntVar(&o.Workers, "workers", 0, "goroutines (default: one for each CPU)")
	f.StringVar(&dir, "out", "",
		"the directory to write simulate.csv, steps.csv and simulate.svg to")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if err.Error() == "unknown flag: --set" && c.Flags().Lookup("sample-kind") != nil { // not modes
			err = errors.New("there is no --set: flags have the names of keys, as --sample-kind for " +
				"sample.kind and --batch for sample.batch")
		}
		return flagError(c, err)
	})
	c.AddCommand(modesCommand())
	return c
}

// flagWord rejects a flag whose value is not among the words of a key.
func flagWord(flag, value, key string) error {
	if words := config.Words(key); !slices.Contains(words, value) {
		return fmt.Errorf("--%s is %q; it must be %s", flag, value, config.OrList(words))
	}
	return nil
}

// onOrOff rejects sums that a run would choose.
func onOrOff(sums string) error {
	if sums != config.SumsAuto {
		return nil
	}
	return fmt.Errorf("--sums is %s, which a run decides by how fast its network is; count with %s and "+
		"with %s", sums, config.SumsOn, config.SumsOff)
}

func runSimulate(c *cobra.Command, parts, dir string, o simulate.Options) error {
	s, err := shard.Open(parts, shard.Options{})
	if err != nil {
		return dataError(err)
	}
	defer s.Close()
	if err := vacant(dir); err != nil {
		return err
	}
	var r *simulate.Result
	ready := false
	err = workOn(s, func() (err error) {
		sim, err := simulate.New(s, o)
		if err != nil {
			return err
		}
		defer sim.Close()
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
		"simulate.csv": r.WriteCSV, "steps.csv": r.WriteStepsCSV, "simulate.svg": r.WriteSVG,
	}); err != nil {
		return dataError(err)
	}
	out(c, "%s: %d ranks, %d steps an epoch, %d epochs, %v, batch %d, seed %d\n",
		parts, r.Options.Ranks, r.Steps, r.Options.Epochs, r.Options.Sample,
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

// writeFiles writes files into a directory, each whole or not at all.
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
