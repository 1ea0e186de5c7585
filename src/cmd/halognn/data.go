package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"halognn/src/dataset"
)

// out is printed by commands to standard output.
func out(c *cobra.Command, format string,
	args ...any) {
	fmt.Fprintf(c.OutOrStdout(), format, args...)
}

// required reports the flags of a command that must be given and are not.
func required(c *cobra.Command, names ...string) error {
	var faults []error
	for _, name := range names {
		if !c.Flags().Changed(name) {
			faults = append(faults, fmt.Errorf("--%s is missing: %s", name, c.Flag(name).Usage))
		}
	}
	return usageError(errors.Join(faults...))
}

// vacant refuses an --out that holds something before the work begins; what writes there looks
// again.
func vacant(dir string) error {
	return dataError(dataset.Vacant(dir))
}

func generateCommand(p *process) *cobra.Command {
	var o dataset.GenerateOptions
	var dir string
	c := &cobra.Command{
		Use:   "generate --kind sbm|rmat [--preset NAME --scale S] --seed S --out DATASET",
		Short: "Generate a graph with communities, power-law degrees, features and labels",
		Example: "  halognn generate --kind sbm --preset arxiv --scale 0.1 --seed 1 --out " +
			"data/arxiv\n" +
			"  halognn generate --kind rmat --vertices 1000000 --degree 20 --features 64 " +
			"--classes 10 --seed 1 --out data/rmat",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "out"); err != nil {
				return err
			}
			for _, name := range []string{"scale", "vertices", "degree", "classes"} { // zero stands for the default
				if f := c.Flag(name); f.Changed &&
					(f.Value.String() == "0" || strings.HasPrefix(f.Value.String(), "-")) {
					return usageError(fmt.Errorf("--%s is %s; it must be positive", name, f.Value))
				}
			}
			if err := vacant(dir); err != nil {
				return err
			}
			if c.Flags().Changed("homophily") && o.Homophily == 0 {
				o.Homophily = -1 // the zero value stands for the default
			}
			p.discardOnSignal()
			if term.IsTerminal(int(os.Stderr.Fd())) {
				o.Stage = func(line string) { slog.Info(line) }
			}
			if err := dataset.Generate(dir, o); err != nil {
				var system syscall.Errno
				if errors.Is(err, dataset.ErrExists) || errors.Is(err, dataset.ErrRoom) ||
					errors.As(err, &system) {
					return dataError(err)
				}
				return usageError(err) // what is generated depends on the flags alone
			}
			d, err := dataset.Open(dir)
			if err != nil {
				return dataError(err)
			}
			defer d.Close()
			m := d.Meta
			out(c, "%s: %d vertices, %d directed edges, %d features (%s), %d classes; %d train, "+
				"%d valid, %d test\n", dir,
				m.Vertices, m.Edges, m.Features, m.FeatureType, m.Classes, len(d.Split.Train),
				len(d.Split.Valid), len(d.Split.Test))
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.Kind, "kind", dataset.SBM,
		"sbm: degree-corrected stochastic block model; rmat: recursive matrix")
	f.StringVar(&o.Preset, "preset", "",
		"sizes of a known graph: "+strings.Join(dataset.Presets(), ", "))
	f.Float64Var(&o.Scale, "scale", 1, "multiplies the vertices of the preset")
	f.IntVar(&o.Vertices, "vertices", 0, "vertices (default 10000, or the preset's)")
	f.Float64Var(&o.Degree, "degree", 0, "mean degree (default 20, or the preset's)")
	f.IntVar(&o.Features, "features", 0, "feature columns (default 64, or the preset's)")
	f.IntVar(&o.Classes, "classes", 0, "classes (default 16, or the preset's)")
	f.Float64Var(&o.Homophily, "homophily", 0,
		"share of edges that stay inside a class (default 0.8, or the preset's)")
	f.StringVar(&o.Split, "split", "",
		"train/valid/test in percent (default 60/20/20, or the preset's)")
	f.StringVar(&o.FeatureType, "feature-type", dataset.Float32, "float32 or float16")
	f.Uint64Var(&o.Seed, "seed", 0, "random seed: equal seeds give equal graphs")
	f.StringVar(&dir, "out", "", "the DATASET directory to write")
	return c
}

func importCommand(p *process) *cobra.Command {
	var o dataset.ImportOptions
	var undirected, directed bool
	c := &cobra.Command{
		Use: "import --format FORMAT --in PATH --out DATASET [--undirected] [--split " +
			"FILE|60/20/20]",
		Short: "Import a graph from a public file format: " + strings.Join(dataset.Formats(), ", "),
		Example: "  halognn import --format ogb --in ogbn_products --out data/products\n" +
			"  halognn import --format npz --in amazon_electronics_computers.npz --split " +
			"60/20/20 --seed 0 --out data/computers",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "format", "in", "out"); err != nil {
				return err
			}
			switch {
			case !slices.Contains(dataset.Formats(), o.Format):
				return usageError(fmt.Errorf("--format %s is unknown; use one of %s", o.Format,
					strings.Join(dataset.Formats(), ", ")))
			case undirected && directed:
				return usageError(errors.New("--undirected and --directed exclude each other"))
			case undirected:
				o.Undirected = dataset.Yes
			case directed:
				o.Undirected = dataset.No
			}
			if err := vacant(o.Out); err != nil {
				return err
			}
			p.discardOnSignal()
			report, err := dataset.Import(o)
			if err != nil {
				return dataError(err)
			}
			out(c, "%s", report)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.Format, "format", "", "one of "+strings.Join(dataset.Formats(), ", "))
	f.StringVar(&o.In, "in", "", "the file or directory to read")
	f.StringVar(&o.Out, "out", "", "the DATASET directory to write")
	f.StringVar(&o.Name, "name", "", "name of the dataset (default: what the input is called)")
	f.BoolVar(&undirected, "undirected", false, "add the reverse of every edge (default: where "+
		"the format stores each edge once)")
	f.BoolVar(&directed, "directed", false, "keep edges as stored")
	f.BoolVar(&o.KeepLoops, "keep-loops", false, "keep edges from a vertex to itself")
	f.BoolVar(&o.KeepDuplicates, "keep-duplicates", false, "keep repeated edges")
	f.StringVar(&o.Split, "split", "", "a file, or train/valid/test in percent (default: the "+
		"split that comes with the data, else 60/20/20)")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of the shuffle behind percentages")
	f.StringVar(&o.FeatureType, "feature-type", "",
		"float32 or float16 (default: float16 stays, all else becomes float32)")
	f.Int64Var(&o.MaxFeatureBytes, "max-feature-bytes", 0, "refuse features that take more than "+
		"this (default: four fifths of the free disk)")
	return c
}
