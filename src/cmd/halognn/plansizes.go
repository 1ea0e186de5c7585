package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/forecast/plan"
	"halognn/src/model/task"
	"halognn/src/runs/config"
	"halognn/src/topology/partition"
)

// assumedCut is the default of --cut: the share of the edges that METIS is assumed to cut, if there
// is one part for each rank.
const assumedCut = 0.2

// graphSizes has the flags of the command plan that describe a graph without parts.
type graphSizes struct {
	preset, featureType      string
	vertices, edges          int
	features, classes, train int
	cut                      float64
}

func (g *graphSizes) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&g.preset, "preset", "", "plan without parts, by the sizes of a known graph: "+
		config.OrList(dataset.Presets()))
	f.IntVar(&g.vertices, "vertices", 0, "plan without parts: vertices (default: the preset's)")
	f.IntVar(&g.edges, "edges", 0, "stored directed edges (default: the preset's)")
	f.IntVar(&g.features, "features", 0, "feature columns (default: the preset's)")
	f.StringVar(&g.featureType, "feature-type", "", dataset.FeatureTypes+" (default: the preset's)")
	f.IntVar(&g.classes, "classes", 0, "classes (default: the preset's, or 16)")
	f.IntVar(&g.train, "train", 0, "training vertices (default: the preset's, or a tenth)")
	f.Float64Var(&g.cut, "cut", assumedCut, "share of the edges that join two parts, with one "+
		"part for each rank")
}

func (g *graphSizes) given() bool { return g.preset != "" || g.vertices != 0 }

// meta returns the meta.json that parts of a graph of these sizes would have, if the graph were cut
// into the given number of equal parts.
func (g *graphSizes) meta(parts int) (*shard.Meta, error) {
	o := dataset.GenerateOptions{Preset: g.preset, Vertices: g.vertices, Features: g.features,
		Classes: g.classes, FeatureType: g.featureType}
	var faults []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	need(g.preset != "" || g.edges > 0 && g.features > 0,
		"--vertices alone does not describe a graph; give --edges and --features too, or --preset")
	need(g.edges >= 0 && g.train >= 0, "--edges and --train must be above 0")
	need(g.cut >= 0 && g.cut <= 1, "--cut is %g; it must be a share, 0 to 1", g.cut)
	o, err := o.Resolve()
	need(o.Kind != dataset.MAG, "--preset %s has vertex types, and such a graph cannot be "+
		"planned from its sizes yet; give --parts",
		g.preset)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	most := min(o.Vertices, partition.MaxParts)
	need(parts >= 1 && parts <= most, "--ranks is %d; it must be 1 to %d, like the number of parts",
		parts, most)
	m := &shard.Meta{Format: shard.Format, Parts: parts, Vertices: int64(o.Vertices),
		Edges: int64(g.edges), Task: task.Multiclass, Classes: o.Classes, Features: o.Features,
		FeatureType: o.FeatureType, Offsets: []int64{0}}
	if g.edges == 0 {
		m.Edges = int64(float64(o.Vertices) * o.Degree)
	}
	shares, err := dataset.ParseFractions(o.Split)
	if err != nil {
		return nil, err
	}
	labelled := o.Labelled * float64(o.Vertices)
	train, valid, test := g.train, int(shares[1]*labelled), int(shares[2]*labelled)
	switch {
	case train > 0: // --train says nothing of validation and test vertices
		valid, test = 0, 0
	case g.preset != "":
		train = int(shares[0] * labelled)
	default:
		train, valid, test = o.Vertices/10, 0, 0
	}
	need(train <= o.Vertices, "--train is %d, but the graph has only %d vertices; lower --train "+
		"or raise --vertices", train, o.Vertices)
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	of := func(n, k int) int { return n*(k+1)/parts - n*k/parts }
	for k := range parts {
		m.Offsets = append(m.Offsets, int64(o.Vertices)*int64(k+1)/int64(parts))
		m.Splits = append(m.Splits, shard.SplitSizes{
			Train: of(train, k), Valid: of(valid, k), Test: of(test, k)})
	}
	return m, nil
}

// runPlanSizes plans a job on a graph whose sizes alone are known.
func runPlanSizes(command *cobra.Command, o planFlags) error {
	if o.parts != "" {
		return usageError(errors.New("--parts and the sizes of a graph exclude each other; " +
			"leave one out"))
	}
	if o.trace != "" {
		return usageError(errors.New("--trace needs a graph, not its sizes alone: give --parts"))
	}
	if o.ranks == 0 {
		return usageError(errors.New("--ranks is missing: the number of ranks, and of parts, to " +
			"plan for"))
	}
	// config.Load requires both keys; nothing is read or written there
	sets := append(o.sets, "run.dir=planned", "data.parts=none")
	c, err := config.Load(o.config, sets)
	if err != nil {
		return usageError(err)
	}
	m, err := o.graph.meta(o.ranks)
	if err != nil {
		return usageError(err)
	}
	if o.out != "" {
		if err := vacant(o.out); err != nil {
			return err
		}
	}
	options := plan.Options{Rates: plan.Rates{Network: o.network * 1e9}}
	if options.Memory, err = memoryOfNode(o.mem); err != nil {
		return err
	}
	perNode := min(max(1, cmp.Or(o.perNode, c.Run.RanksPerNode)), o.ranks)
	// only edges between nodes cross the network, not those between ranks of one node
	if o.ranks > 1 {
		options.Cut = o.graph.cut * float64(o.ranks-perNode) / float64(o.ranks-1)
	}
	var p *plan.Prediction
	err = mem.Contain(func() (err error) {
		s := shard.Sizes(m, cmp.Or(o.graph.preset, "a graph of these sizes"))
		p, err = plan.New(s, planJob(c, o.ranks, perNode, cmp.Or(o.cores, 1)), options)
		return err
	})
	if err != nil {
		return usageError(err)
	}
	if !command.Flags().Changed("cut") {
		p.Notes = append(p.Notes, fmt.Sprintf("the cut is assumed: %g of the edges lie between "+
			"parts; give --cut with the share that `halognn partition` prints", assumedCut))
	}
	p.Notes = append(p.Notes, cuttingNote(m.Vertices, m.Edges))
	return tellPlan(command, p, c, o.out)
}
