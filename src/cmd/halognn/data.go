package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"halognn/src/data/dataset"
	"halognn/src/model/task"
)

// out prints to the command's standard output.
func out(c *cobra.Command, format string, args ...any) {
	fmt.Fprintf(c.OutOrStdout(), format, args...)
}

// required returns an error for each flag in names that the command line lacks.
func required(c *cobra.Command, names ...string) error {
	var faults []error
	for _, name := range names {
		if !c.Flags().Changed(name) {
			faults = append(faults, fmt.Errorf("--%s is missing: %s", name, c.Flag(name).Usage))
		}
	}
	return usageError(errors.Join(faults...))
}

// vacant returns an error if --out names a directory that is not empty. Commands call it before
// their work, so that they fail early; the writer checks again.
func vacant(dir string) error {
	return dataError(dataset.Vacant(dir))
}

// replaceable is the --out directory of a command that has --force. With --force the command may
// replace what the directory holds.
type replaceable struct {
	dir   string
	parts bool // the directory holds parts of a graph, not a DATASET
	force bool
}

func (r *replaceable) flags(c *cobra.Command) {
	what := "DATASET"
	if r.parts {
		what = "PARTS"
	}
	c.Flags().StringVar(&r.dir, "out", "", "the "+what+" directory to write")
	c.Flags().BoolVar(&r.force, "force", false,
		"replace the "+what+" that --out holds, once the new one is complete")
}

// withDirectory calls the function `work` with the name of the directory to write. That is --out
// itself or, if --out has to be replaced, a directory beside it that takes its place after the
// work.
func (r *replaceable) withDirectory(work func(dir string) error) error {
	err := dataError(dataset.Target(r.dir))
	if err == nil || !r.force {
		if err == nil {
			return work(r.dir)
		}
		if _, beside := dataset.Beside(r.dir, r.parts); beside == nil {
			err = fmt.Errorf("%w; --force replaces it", err)
		}
		return dataError(err)
	}
	made, err := dataset.Beside(r.dir, r.parts)
	if err != nil {
		return dataError(err)
	}
	if err := work(made); err != nil {
		return err
	}
	return dataError(dataset.Replace(made, r.dir))
}

func generateCommand(p *process) *cobra.Command {
	var o dataset.GenerateOptions
	var to replaceable
	c := &cobra.Command{
		Use:   "generate --kind sbm|rmat|mag [--preset NAME --scale S] --seed S --out DATASET",
		Short: "Generate a graph with communities, power-law degrees, features and labels",
		Example: "  halognn generate --kind sbm --preset arxiv --scale 0.1 --out data/arxiv\n" +
			"  halognn generate --kind rmat --vertices 1000000 --degree 20 --features 64 " +
			"--classes 10 --out data/rmat",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "out"); err != nil {
				return err
			}
			// In GenerateOptions 0 means the default, so a 0 that the user gives is refused here.
			for _, name := range []string{"scale", "vertices", "degree", "classes"} {
				if f := c.Flag(name); f.Changed &&
					(f.Value.String() == "0" || strings.HasPrefix(f.Value.String(), "-")) {
					return usageError(fmt.Errorf("--%s is %s; it must be positive", name, f.Value))
				}
			}
			if c.Flags().Changed("homophily") && o.Homophily == 0 {
				o.Homophily = -1 // Homophily 0 means the default, so an explicit 0 is passed as -1
			}
			if term.IsTerminal(int(os.Stderr.Fd())) {
				o.Stage = func(line string) { slog.Info(line) }
			}
			if err := to.withDirectory(func(dir string) error {
				p.discardOnSignal()
				return generated(dataset.Generate(dir, o))
			}); err != nil {
				return err
			}
			d, err := dataset.Open(to.dir)
			if err != nil {
				return dataError(err)
			}
			defer d.Close()
			m := d.Meta
			sizes, of := [3]int{len(d.Split.Train), len(d.Split.Valid), len(d.Split.Test)}, ""
			if task.Stored(m.Task).Embeds {
				sizes, of = [3]int{len(d.Links.Train), len(d.Links.Valid), len(d.Links.Test)},
					" links"
			}
			features := fmt.Sprintf(", %d features (%s)", m.Features, m.FeatureType)
			if m.Schema.Typed() {
				features = ""
			}
			out(c, "%s: %d vertices, %d directed edges%s, %d classes; %d train, %d valid, %d "+
				"test%s\n",
				to.dir, m.Vertices, m.Edges, features, m.Classes, sizes[0], sizes[1], sizes[2], of)
			for _, line := range m.Describe() {
				out(c, "  %s\n", line)
			}
			return nil
		},
	}
	to.flags(c)
	f := c.Flags()
	f.StringVar(&o.Kind, "kind", "",
		"sbm: degree-corrected stochastic block model (the default); rmat: recursive matrix; "+
			"mag: a graph with vertex types: papers, authors, institutions and fields")
	f.StringVar(&o.Preset, "preset", "",
		"sizes of a known graph: "+strings.Join(dataset.Presets(), ", "))
	f.Float64Var(&o.Scale, "scale", 1, "multiplies the vertices of the preset")
	f.IntVar(&o.Vertices, "vertices", 0, "vertices (default 10000, or the preset's)")
	f.Float64Var(&o.Degree, "degree", 0, "mean degree (default 20, or the preset's; fixed for mag)")
	f.IntVar(&o.Features, "features", 0, "feature columns (default 64, or the preset's)")
	f.IntVar(&o.Classes, "classes", 0, "classes (default 16, or the preset's)")
	f.Float64Var(&o.Homophily, "homophily", 0,
		"share of edges that stay inside a class (default 0.8, or the preset's)")
	f.StringVar(&o.Split, "split", "",
		"train/valid/test, as 60/20/20, 0.6/0.2/0.2 or 0.5%/0.2%/1% (default 60/20/20, or the "+
			"preset's)")
	f.StringVar(&o.FeatureType, "feature-type", "",
		"float32, float16 or int8 (default float32, or the preset's)")
	f.StringVar(&o.SplitLinks, "split-links", "", "make links the task: train/valid/test shares "+
		"of the pairs of vertices with an edge, such as 85/5/10")
	f.StringVar(&o.LinkLabels, "link-labels", "", "label of a link between vertices of classes "+
		"a and b: classes, for the class (a + b) mod C, or numbers, for the number a + b "+
		"(default: links have no labels and are ranked)")
	f.BoolVar(&o.EdgeWeights, "edge-weights", false, "weights of edges, uniform in [0,1)")
	f.Uint64Var(&o.Seed, "seed", 0, "random seed: equal seeds give equal graphs")
	return c
}

// generated adds the exit code to an error of the generator.
func generated(err error) error {
	var system syscall.Errno
	if errors.Is(err, dataset.ErrExists) || errors.Is(err, dataset.ErrTooLarge) ||
		errors.As(err, &system) {
		return dataError(err)
	}
	return usageError(err) // every other error is a fault of the flags
}

func importCommand(p *process) *cobra.Command {
	var o dataset.ImportOptions
	var undirected, directed bool
	var to replaceable
	var index, classes string
	var numbers []string
	c := &cobra.Command{
		Use: "import --format FORMAT --in PATH --out DATASET [--undirected] [--split " +
			"FILE|60/20/20]",
		Short: "Import a graph from a public file format: " + strings.Join(dataset.Formats(), ", "),
		Example: "  halognn import --format ogb --in ogbn_products --out data/products\n" +
			"  halognn import --format npz --in amazon_electronics_computers.npz " +
			"--split 60/20/20 --out data/computers\n" +
			"  halognn import --format csv --in edges.csv --nodes nodes.csv --label class " +
			"--undirected --out data/mine",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			needed := []string{"format", "in", "out"}
			if o.DryRun {
				needed = needed[:2]
			}
			if err := required(c, needed...); err != nil {
				return err
			}
			if c.Flags().Changed("no-label") && o.NoLabel == nil {
				o.NoLabel = []string{}
			}
			switch {
			case !slices.Contains(dataset.Formats(), o.Format):
				return usageError(fmt.Errorf("--format %s is unknown; use one of %s", o.Format,
					strings.Join(dataset.Formats(), ", ")))
			case undirected && directed:
				return usageError(errors.New("--undirected and --directed exclude each other; " +
					"leave one out"))
			case undirected:
				o.Undirected = dataset.Yes
			case directed:
				o.Undirected = dataset.No
			}
			switch links := o.Task == task.Links; {
			case o.Task != "" && o.Task != task.Regression && !links:
				return usageError(fmt.Errorf("--task %s is unknown; leave it out for labels that "+
					"are classes, or use %s or %s", o.Task, task.Regression, task.Links))
			case !links && (o.SplitLinks != "" || o.KeepLeaks || o.LinksOf != "" || classes != "" ||
				len(numbers) > 0):
				return usageError(errors.New("--split-links, --relation, --link-classes, " +
					"--link-numbers and --keep-leaks apply only with --task links; add it, or " +
					"leave them out"))
			case classes != "" && len(numbers) > 0:
				return usageError(errors.New("--link-classes and --link-numbers exclude each " +
					"other; leave one out"))
			case links && (o.Split != "" || c.Flags().Changed("split-index")):
				return usageError(errors.New("--split and --split-index split vertices, but " +
					"--task links splits links; use --split-links"))
			case links && o.SplitLinks == "":
				o.SplitLinks = "85/5/10"
			}
			if classes != "" {
				o.Task, o.LinkLabels = task.LinkClasses, []string{classes}
			} else if len(numbers) > 0 {
				o.Task, o.LinkLabels = task.LinkNumbers, numbers
			}
			if k, err := strconv.ParseUint(index, 10, 16); err == nil {
				of := int(k)
				o.SplitIndex = &of
			} else if o.AllSplits = index == "all"; !o.AllSplits &&
				c.Flags().Changed("split-index") {
				return usageError(fmt.Errorf("--split-index %s: want a number from 0 on, or all",
					index))
			}
			work := func(dir string) error {
				o.Out = dir
				p.discardOnSignal()
				report, err := dataset.Import(o)
				if errors.As(err, new(dataset.OptionError)) {
					return usageError(err)
				}
				if err != nil {
					return dataError(err)
				}
				out(c, "%s", report)
				return nil
			}
			if o.DryRun {
				return work("")
			}
			return to.withDirectory(work)
		},
	}
	to.flags(c)
	f := c.Flags()
	f.BoolVar(&o.DryRun, "dry-run", false, "say what each column and array is taken as, and "+
		"write nothing")
	f.StringSliceVar(&o.NoLabel, "no-label", nil, "labels which mean that a vertex has none; '' "+
		"reads them all as classes (default: nan, none, null, na, n/a, <NA>, #N/A, -1, -100 and "+
		"an empty field)")
	f.StringVar(&o.Format, "format", "", "one of "+strings.Join(dataset.Formats(), ", "))
	f.StringVar(&o.In, "in", "", "the file or directory to read")
	f.StringVar(&o.Name, "name", "", "name of the dataset (default: what the input is called)")
	f.BoolVar(&undirected, "undirected", false, "add the reverse of every edge (default: where "+
		"the format stores each edge once); for a relation between two vertex types, in a new "+
		"relation rev_NAME")
	f.BoolVar(&directed, "directed", false, "keep edges as stored")
	f.BoolVar(&o.Reverse, "reverse", false, "for a graph with vertex types: add the reverse of "+
		"every relation, in a new relation rev_NAME")
	f.BoolVar(&o.KeepLoops, "keep-loops", false, "keep edges from a vertex to itself")
	f.StringVar((*string)(&o.Weights), "merge-weights", "", "weight of an edge that comes "+
		"several times: sum, mean, "+
		"max, min or first (default sum)")
	f.BoolVar(&o.KeepDuplicates, "keep-duplicates", false, "keep repeated edges")
	f.StringVar(&o.Task, "task", "",
		"regression: labels are numbers to predict; links: edges are what to predict (default: "+
			"labels are classes)")
	f.StringVar(&o.Split, "split", "", "a file, or train/valid/test, as 60/20/20, 0.6/0.2/0.2 or "+
		"0.5%/0.2%/1% (default: the split that comes with the data, else 60/20/20)")
	f.StringVar(&o.SplitLinks, "split-links", "", "--task links: train/valid/test shares of the "+
		"pairs of vertices with an edge, or a directory with train.npy, valid.npy and test.npy, "+
		"each of shape [n, 2] (default 85/5/10)")
	f.StringVar(&classes, "link-classes", "", "where the class of each link is, 0 to C-1: a "+
		"column of the edge table (csv), an array (npz), or NAME for the files train_NAME.npy "+
		"and so on in the directory of --split-links")
	f.StringSliceVar(&numbers, "link-numbers", nil, "like --link-classes, for one or several "+
		"numbers to predict")
	f.StringVar(&o.LinksOf, "relation", "", "for a graph with vertex types: the relation whose "+
		"edges are the links, such as author,writes,paper")
	f.BoolVar(&o.KeepLeaks, "keep-leaks", false, "for a graph with vertex types: keep the edges "+
		"of other relations, such as the reverse, that join the same vertices as validation and "+
		"test links")
	f.Uint64Var(&o.Seed, "seed", 0, "random seed of splits that are given in percent")
	f.StringVar(&index, "split-index", "", "number of the split to use, from 0, if the data "+
		"have several; all keeps them all, and each run chooses by data.split")
	f.StringToStringVar(&o.Keys, "keys", nil,
		"npz: the names of arrays, such as x=embedding,edge_index=links")
	f.StringSliceVar(&o.Ignore, "ignore", nil, "arrays or columns to leave out, such as edge_type")
	f.BoolVar(&o.Standardize, "standardize", false,
		"shift and scale feature columns to mean 0, variance 1 over the training vertices")
	f.StringVar(&o.StandardizeAs, "standardize-as", "",
		"a dataset imported with --standardize: shift and scale features as there, so that its "+
			"models can predict this graph")
	f.StringVar(&o.Table.Nodes, "nodes", "", "csv: the node table")
	f.StringVar(&o.Table.Source, "source", "",
		"csv: column of the edge table with the source vertex (default: found by pairs of "+
			"names, such as source,target or from,to)")
	f.StringVar(&o.Table.Target, "target", "",
		"csv: column of the edge table with the target vertex (default: found by pairs of "+
			"names, such as source,target or from,to)")
	f.StringSliceVar(&o.Table.EdgeFeatures, "edge-features", nil,
		"csv: columns of the edge table that are features of edges; NAME=a,b for relation NAME")
	f.StringVar(&o.Table.Weight, "weight", "",
		"csv: column of the edge table with the weight of the edge; NAME=COLUMN for relation "+
			"NAME (default: edge_weight, weight, ...)")
	f.StringVar(&o.Table.ID, "id", "",
		"csv: column of the node table with the vertex id (default: id, node, ..., else the first)")
	f.StringSliceVar(&o.Table.Labels, "label", nil, "csv: column with the class, several "+
		"columns of 0 and 1 or of numbers, or a file, .npy or text; TYPE=... for one vertex "+
		"type (default: label, y, class)")
	f.StringSliceVar(&o.Table.Features, "features", nil,
		"csv: columns with features, or a .npy file; TYPE=... for one vertex type (default: all "+
			"other columns)")
	f.StringVar(&o.Table.Split, "split-column", "",
		"csv: column with train, valid or test, or 0, 1 or 2 (default: split, marks in "+
			"train_mask, val_mask, test_mask, "+
			"or the one column with such words)")
	f.BoolVar(&o.Table.FirstRows, "first-rows", false,
		"csv: if a vertex has several rows in the node table, take the first (default: an error)")
	f.BoolVar(&o.Table.NoHeader, "no-header", false,
		"csv: the first row is data; columns are called 0, 1, ... (default: as the row shows)")
	f.BoolVar(&o.Table.Header, "header", false,
		"csv: the first row is the names of the columns (default: as the row shows)")
	f.StringVar(&o.FeatureType, "feature-type", "",
		dataset.FeatureTypes+" (default: float16 stays, all else becomes float32)")
	f.Int64Var(&o.MaxFeatureBytes, "max-feature-bytes", 0, "refuse features that take more than "+
		"this (default: four fifths of the free disk)")
	return c
}
