package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"halognn/src/dataset"
	"halognn/src/mem"
	"halognn/src/partition"
	"halognn/src/partition/metis"
	"halognn/src/shard"
)

func partitionCommand() *cobra.Command {
	var o partition.Options
	var data, order, dir string
	var unbalanced bool
	c := &cobra.Command{
		Use:     "partition --data DATASET --parts P --method metis|ldg|random|contiguous [--seed S] --out PARTS",
		Short:   "Cut a dataset into parts, one or more for each rank of a later run",
		Example: "  halognn partition --data data/arxiv --parts 8 --method metis --out parts/arxiv-8",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, "data", "parts", "out"); err != nil {
				return err
			}
			if o.Parts < 1 {
				return usageError(fmt.Errorf("--parts is %d; it must be at least 1", o.Parts))
			}
			if order != "degree" {
				return usageError(fmt.Errorf("--order %s is not in this version; use degree", order))
			}
			return dataError(mem.Guard(func() error { return runPartition(c, data, dir, o, unbalanced) }))
		},
	}
	f := c.Flags()
	f.StringVar(&data, "data", "", "the DATASET directory")
	f.IntVar(&o.Parts, "parts", 0, "number of parts; a run needs a number of ranks that divides it")
	f.StringVar(&o.Method, "method", "metis", "metis: best cut, most memory; ldg: streaming; random; contiguous")
	f.StringVar(&order, "order", "degree", "vertices inside a part: degree, hottest first")
	f.Uint64Var(&o.Seed, "seed", 0, "random seed: equal seeds give equal parts")
	f.BoolVar(&unbalanced, "allow-imbalance", false, "write parts even if training seeds or edges are badly balanced")
	f.StringVar(&dir, "out", "", "the PARTS directory to write")
	return c
}

func runPartition(c *cobra.Command, data, dir string, o partition.Options, unbalanced bool) error {
	d, err := dataset.Open(data)
	if err != nil {
		return dataError(err)
	}
	defer d.Close()
	methods := partition.Methods()
	methods["metis"] = metis.KWay
	if _, ok := methods[o.Method]; !ok {
		return usageError(fmt.Errorf("--method %s is unknown; use metis, ldg, random or contiguous", o.Method))
	}
	if err := vacant(dir); err != nil {
		return err
	}
	if err := d.Verify(); err != nil { // the partitioners trust the graph
		return dataError(err)
	}
	weights, err := partition.TrainingWeights(d.Graph, d.Split)
	if err != nil {
		return dataError(err)
	}
	part, err := partition.Run(methods, d.Graph, weights, o)
	if err != nil {
		return dataError(err)
	}
	report := partition.Measure(d.Graph, part, o.Parts, d.Split)
	out(c, "%s", report)
	if err := report.Check(partition.DefaultLimits); err != nil {
		if !unbalanced {
			return dataError(err)
		}
		out(c, "going on with unbalanced parts:\n%s\n", strings.TrimSpace(err.Error()))
	}
	newID, offsets := partition.Order(part, o.Parts, partition.InDegrees(d.Graph))
	err = shard.Write(dir, d, shard.Layout{
		NewID: newID, Offsets: offsets, Report: report,
		Origin: shard.Origin{Method: o.Method, Seed: o.Seed, Order: "in-degree, highest first"},
	})
	if err != nil {
		return dataError(err)
	}
	out(c, "written to %s: %d parts; train on %s ranks\n", dir, o.Parts, divisors(o.Parts))
	return nil
}

// divisors lists the numbers of ranks that P parts run on.
func divisors(p int) string {
	var list []string
	for k := 1; k <= p; k++ {
		if p%k == 0 {
			list = append(list, fmt.Sprint(k))
		}
	}
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
				return usageError(errors.New("check takes one path: a DATASET, PARTS or run directory"))
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
