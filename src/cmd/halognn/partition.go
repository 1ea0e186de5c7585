package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
)

func partitionCommand(p *process) *cobra.Command {
	var o partition.Options
	var data string
	to := replaceable{parts: true}
	var how cutting
	var order hotOrder
	var weights weighing
	var features string
	var unbalanced bool
	c := &cobra.Command{
		Use: "partition --data DATASET --parts P --method " +
			"metis|kaminpar|file|ldg|random|contiguous|auto [--order degree|vip --fanouts " +
			"15,10,5 --batch 1024] [--seed S] --out PARTS",
		Short: "Cut a dataset into parts, one or more for each rank of a later run; under mpirun " +
			"or srun ranks share the writing",
		Example: "  halognn partition --data data/arxiv --parts 8 --method metis --out " +
			"parts/arxiv-8\n" +
			"  halognn partition --data data/arxiv --parts 4 --weights presample --fanouts " +
			"15,10,5 --batch 1024 --counts data/arxiv-counts --out parts/arxiv-split-4\n" +
			"  mpirun -np 4 halognn partition --data data/arxiv --parts 8 --out parts/arxiv-8",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "data", "parts", "out"); err != nil {
				return err
			}
			if o.Parts < 1 || o.Parts > partition.MaxParts {
				return usageError(fmt.Errorf("--parts is %d; it must be at least 1 and at most %d",
					o.Parts, partition.MaxParts))
			}
			err := errors.Join(order.check(c, weights.by != weighData),
				how.check(c), weights.check(c, &how, &order, o.Parts))
			if err != nil {
				return usageError(err)
			}
			if !launched() {
				// a process that no launcher started is the only rank, and needs no MPI
				p.goroutines = 1
			}
			p.discardOnSignal()
			return p.run(func(ranks comm.Comm) error {
				t := team{ranks}
				err := mem.Guard(func() error {
					if ranks.Rank() > 0 {
						return t.follow(data)
					}
					return to.withDirectory(func(dir string) error {
						return p.partition(c, t, data, dir, o, how, order, &weights, features,
							unbalanced)
					})
				})
				if !comm.IsAgreed(err) { // the other ranks do not know err yet, or there is none
					err = t.Agree(err)
				}
				return dataError(err)
			})
		},
	}
	to.flags(c)
	f := c.Flags()
	f.StringVar(&data, "data", "", "the DATASET directory")
	f.IntVar(&o.Parts, "parts", 0, "number of parts; a run needs a number of ranks that divides it")
	how.flags(c)
	f.StringVar(&order.by, "order", "degree", "order of the vertices in a part: degree, highest "+
		"in-degree first, or vip, those first that a minibatch most likely reads")
	f.IntSliceVar(&order.fanouts, "fanouts", nil,
		"for --order vip and for --weights other than data: sample.fanouts of the runs to come")
	f.IntVar(&order.batch, "batch", 0, "for --order vip: sample.batch of the runs to come; for "+
		"--weights other than data: seeds of a minibatch of all ranks together")
	weights.flags(c)
	f.Uint64Var(&o.Seed, "seed", 0, "random seed: equal seeds give equal parts")
	f.StringVar(&features, "features", "", "make features of the graph, for a dataset "+
		"without any: "+
		"degree (logarithm and size of the in-degree), or ones")
	must(c.RegisterFlagCompletionFunc("features", cobra.FixedCompletions(
		[]string{shard.FeaturesDegree, shard.FeaturesOnes}, cobra.ShellCompDirectiveNoFileComp)))
	f.BoolVar(&unbalanced, "allow-imbalance", false,
		"write parts even if training seeds or edges are badly balanced")
	return c
}

// partition makes parts of a dataset: rank 0 cuts it, then all ranks write.
func (p *process) partition(c *cobra.Command, t team, data, dir string, o partition.Options,
	how cutting,
	order hotOrder, weights *weighing, features string, unbalanced bool) error {
	if isParts(data) {
		return dataError(fmt.Errorf("--data %s: these are parts, not a dataset; give the DATASET "+
			"that they were cut from", data))
	}
	d, err := dataset.Open(data)
	if err != nil {
		return dataError(err)
	}
	defer d.Close()
	if d.Meta.Schema.Typed() && (order.by != "degree" || weights.counted()) {
		return usageError(errors.New("--order vip and --weights presample or node treat all " +
			"relations as one; leave them out for a graph with vertex types"))
	}
	if err := shard.CheckFeatures(features, &d.Meta); err != nil {
		return usageError(fmt.Errorf("--features %s: %s: %w", features, data, err))
	}
	if err := d.Verify(); err != nil { // the partition methods do not check the graph themselves
		return dataError(err)
	}
	if err := how.choose(c, d); err != nil {
		return err
	}
	methods, done := how.table(dir)
	defer done()
	o.Method, o.Note = how.method, func(line string) { out(c, "%s\n", line) }
	part, err := weights.cut(c, methods, d, o, features)
	done() // removes kaminpar's files, because the parts may need their disk space
	if err != nil {
		return dataError(err)
	}
	report := partition.Measure(d.Graph, part, o.Parts, d.Split)
	if d.Meta.Schema.Typed() {
		report.MeasureTypes(d.Graph, &d.Columns, &d.Meta.Schema, part)
	}
	if err := weights.measure(d, part, &report); err != nil {
		return dataError(err)
	}
	out(c, "%s", report)
	if note := report.Note(); note != "" {
		out(c, "note: %s\n", note)
	}
	if err := report.Check(weights.limits(), o.Method); err != nil {
		if !unbalanced {
			return dataError(err)
		}
		out(c, "going on with unbalanced parts:\n%s\n", strings.TrimSpace(err.Error()))
	}
	layout, err := order.layout(d, part, o.Parts)
	if err != nil {
		return dataError(err)
	}
	layout.Report, layout.Origin.Method, layout.Origin.Seed = report, o.Method, o.Seed
	layout.Origin.Features = features
	if weights.by != weighData {
		layout.Origin.Weights = weights.by
	}
	if err := t.lead(dir, d, layout); err != nil {
		return dataError(err)
	}
	out(c, "written to %s: %d parts; train on %s ranks\n", c.Flag("out").Value, o.Parts,
		rankCounts(o.Parts))
	if bare := d.Meta.Featureless(); len(bare) > 0 && features == "" {
		of := "the graph has"
		if d.Meta.Schema.Typed() {
			of = fmt.Sprintf("vertices of the types %q have", bare)
		}
		out(c, "note: %s no features, but a model needs some; make them from the graph here by "+
			"--features degree or ones, or learn them in training by model.learned=64\n", of)
	}
	return nil
}

// hotOrder says how the vertices of a part are ordered.
type hotOrder struct {
	by      string
	fanouts []int
	batch   int
}

// check returns all faults of --order, --fanouts and --batch. If --weights reads --fanouts and
// --batch too, `sampled` is true.
func (h *hotOrder) check(c *cobra.Command, sampled bool) error {
	switch h.by {
	case "degree":
		if !sampled && (c.Flags().Changed("fanouts") || c.Flags().Changed("batch")) {
			return errors.New("--fanouts and --batch apply only to --order vip and to --weights " +
				"other than data; leave them out, or choose one of these")
		}
		return nil
	case "vip":
		var faults []error
		if len(h.fanouts) == 0 && !c.Flags().Changed("batch") {
			return errors.New("--order vip needs --fanouts and --batch, as in sample.fanouts and " +
				"sample.batch of the runs to come")
		}
		if len(h.fanouts) == 0 {
			faults = append(faults,
				errors.New("--order vip needs --fanouts, as in sample.fanouts of the runs to come"))
		}
		if h.batch < 1 {
			faults = append(faults,
				fmt.Errorf("--order vip needs --batch, as in sample.batch of the runs to come; "+
					"it is %d", h.batch))
		}
		for i, f := range h.fanouts {
			if f < 1 && f != sample.All {
				faults = append(faults,
					fmt.Errorf("--fanouts: fanout %d is %d; it must be at least 1, or %d for all "+
						"neighbours",
						i+1, f, sample.All))
			}
		}
		return errors.Join(faults...)
	}
	return fmt.Errorf("--order is %q; it must be degree or vip", h.by)
}

// layout numbers the vertices within the parts, in the order that --order names.
func (h *hotOrder) layout(d *dataset.Dataset, part []int32, parts int) (l shard.Layout, err error) {
	if h.by == "degree" {
		l.NewID, l.Offsets = partition.Order(part, parts, partition.InDegrees(d.Graph, &d.Columns))
		l.Origin.Order = shard.OrderDegree
		return l, nil
	}
	m, err := access.New(d.Graph, access.Options{})
	if err != nil {
		return l, err
	}
	defer m.Free()
	train := make([][]graph.VertexID, parts)
	for _, v := range d.Split.Train {
		train[part[v]] = append(train[part[v]], v)
	}
	heat, err := m.OwnParts(part, train, h.batch, h.fanouts)
	if err != nil {
		return l, err
	}
	defer mem.Free(heat)
	l.NewID, l.Offsets = partition.Order(part, parts, heat)
	l.Origin = shard.Origin{Order: shard.OrderVIP, Fanouts: h.fanouts, Batch: h.batch}
	return l, nil
}

// rankCounts lists the numbers of ranks that can run on p parts.
func rankCounts(p int) string {
	list := strings.Fields(strings.Trim(fmt.Sprint(shard.RankCounts(p)), "[]"))
	if len(list) > 8 {
		list = append(list[:7], "...", list[len(list)-1])
	}
	return strings.Join(list, ", ")
}

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check PATH",
		Short: "Verify a DATASET, PARTS or run directory: checksums, shapes, invariants",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(errors.New("check takes one path: a DATASET, PARTS or run " +
					"directory"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			what, err := check(args[0])
			if err != nil {
				return dataError(err)
			}
			out(c, "%s: %s, ok\n", args[0], what)
			return nil
		},
	}
}
