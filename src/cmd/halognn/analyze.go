package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"halognn/src/data/shard"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/runs/config"
	"halognn/src/step/job"
	"halognn/src/step/ranking"
)

// analyzeFlags has the flags of the command analyze.
type analyzeFlags struct {
	config         string
	sets, policies []string
	ranks, perNode int
	alpha          float64
}

func analyzeCommand() *cobra.Command {
	var o analyzeFlags
	c := &cobra.Command{
		Use: "analyze [PARTS] --config FILE.yaml [--set key.path=value ...] [--ranks K] " +
			"[--policies vip,degree,...]",
		Short: "Rank the vertices for static caches, for runs in which no rank has all edges",
		Long: "For every rank of a run, rank the vertices of the other ranks as static cache " +
			"policies do, and write them into PARTS/analysis, best first. All runs with " +
			"topology.kind partitioned and the same parts, ranks, fanouts and batch read these " +
			"files. One process does this, with the graph mapped into memory.",
		Example: "  halognn analyze parts/products-4 --config inputs/products.yaml " +
			"--policies vip,oracle",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := required(c, "config"); err != nil {
				return err
			}
			return analyze(c, o, args)
		},
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", "", "YAML file of the run")
	f.StringArrayVar(&o.sets, "set", nil, "override a key, as sample.batch=512; repeatable")
	f.IntVar(&o.ranks, "ranks", 0,
		"ranks of the run: a divisor of the parts (default: one for each part)")
	f.IntVar(&o.perNode, "ranks-per-node", 0,
		"ranks that share a node's memory (default: run.ranks_per_node, or 1)")
	f.StringSliceVar(&o.policies, "policies", []string{policy.VIP},
		"the static policies to rank by, as in cache.policy")
	f.Float64Var(&o.alpha, "alpha", 1, "the largest cache.alpha that the runs will have")
	return c
}

// check refuses flags with impossible values, and policies that rank no vertices.
func (o *analyzeFlags) check() error {
	var faults []error
	for _, name := range o.policies {
		if p := policy.Find(name); p == nil || p.Rank == nil {
			ranking := policy.Names(func(p *policy.Policy) bool { return p.Rank != nil })
			faults = append(faults, fmt.Errorf("--policies: %q ranks no vertices, so there is "+
				"nothing to write for it; use %s",
				name, config.OrList(ranking)))
		}
	}
	if o.ranks < 0 || o.perNode < 0 {
		faults = append(faults, fmt.Errorf(
			"--ranks is %d and --ranks-per-node is %d; both must be at least 1",
			o.ranks, o.perNode))
	}
	if !(o.alpha >= 0) || o.alpha > 1e6 {
		faults = append(faults, fmt.Errorf("--alpha is %g; it must be 0 to 1e6", o.alpha))
	}
	return usageError(errors.Join(faults...))
}

func analyze(command *cobra.Command, o analyzeFlags, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	// config.Load requires run.dir; nothing is written there
	sets := append(o.sets, "run.dir=analyzed")
	if len(args) > 0 {
		sets = append(sets, "data.parts="+args[0])
	}
	c, err := config.Load(o.config, sets)
	if err != nil {
		return usageError(err)
	}
	s, err := shard.Open(c.Data.Parts, shard.Options{Split: c.Data.Split})
	if err != nil {
		return dataError(err)
	}
	defer s.Close()
	if s.Schema.Typed() {
		return dataError(errors.New("analyze cannot order the vertices of a graph with vertex " +
			"types. A run on such a graph does so itself: start it without analyze"))
	}
	spec := trainOptions(c).Spec
	if spec.Ranks, spec.RanksPerNode = o.ranks, o.perNode; spec.RanksPerNode == 0 {
		spec.RanksPerNode = max(1, c.Run.RanksPerNode)
	}
	if spec.Ranks > 0 && s.Parts%spec.Ranks != 0 {
		_, _, err := s.RankRange(0, spec.Ranks)
		return dataError(err)
	}
	return workOn(s, func() error {
		j, err := job.New(s, spec)
		if err != nil {
			return dataError(err)
		}
		defer j.Close()
		if !j.Reads() {
			return usageError(fmt.Errorf(
				"a model of kind %s reads no neighbours, so its ranks read no rows of others and "+
					"need no cache; run it without analyze",
				spec.Model.Kind))
		}
		m, err := access.New(&s.Topology().Graph, access.Options{})
		if err != nil {
			return err
		}
		defer m.Free()
		for _, name := range o.policies {
			dir, err := ranking.Write(j, policy.Find(name), m, o.alpha, runtime.NumCPU())
			if err != nil {
				return dataError(fmt.Errorf("ranking by %s: %w", name, err))
			}
			out(command, "written to %s\n", dir)
		}
		return nil
	})
}
