package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"halognn/src/data/dataset"
	"halognn/src/data/presample"
	"halognn/src/data/shard"
	"halognn/src/runs/config"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
)

// The values of --weights. data balances parts for data parallelism; the others are GSplit's
// weights for minibatches that all ranks share.
const (
	weighData      = "data"
	weighPresample = "presample"
	weighNode      = "node"
	weighEdge      = "edge"
	weighRand      = "rand"
)

// weighings lists the values of --weights with their meaning.
var weighings = words{
	{weighData, "vertices, training seeds, evaluated vertices and edges; every edge costs " +
		"the same"},
	{weighPresample, "how often sampling touches vertices; the cost of an edge is how often it " +
		"is drawn"},
	{weighNode, "how often sampling touches vertices; every edge costs the same"},
	{weighEdge, "training seeds and edges; every edge costs the same"},
	{weighRand, "vertices, dealt out at random"},
}

// weighing has the flags that say what the parts of a partition balance, and what it costs to cut
// an edge.
type weighing struct {
	by     string
	config string // YAML file with the defaults for sampling
	sets   []string
	counts string  // directory where counts are kept; "" for none
	within float32 // the largest allowed ratio of a part's count to the mean count

	sampling presample.Options // how to sample; nothing is sampled if there are no fanouts
}

func (w *weighing) flags(c *cobra.Command) {
	var meanings []string
	for _, of := range weighings {
		meanings = append(meanings, of.word+" ("+of.means+")")
	}
	f := c.Flags()
	f.StringVar(&w.by, "weights", weighData,
		"what parts balance, and what cutting costs: "+strings.Join(meanings, ", "))
	f.StringVar(&w.config, "config", "", "--weights other than data: the YAML file of the runs "+
		"to come, which gives the sampler, the seeds of a minibatch of all ranks together and "+
		"train.seed")
	f.StringArrayVar(&w.sets, "set", nil, "override a key of --config; repeatable")
	f.IntVar(&w.sampling.Epochs, "epochs", presample.DefaultEpochs,
		"--weights presample, node: epochs that are sampled")
	f.Float32Var(&w.within, "imbalance", 1.05, "--weights presample, node: the largest "+
		"permitted ratio of a part's counts to the mean; more gives a smaller cut")
	f.Uint64Var(&w.sampling.Seed, "sample-seed", config.Default().Job.Seed,
		"--weights other than data: the random seed of what is sampled, as train.seed")
	f.StringVar(&w.counts, "counts", "", "--weights presample, node: the directory that keeps the "+
		"counts; they are read if they are there, and written if not")
	must(c.RegisterFlagCompletionFunc("weights",
		cobra.FixedCompletions(weighings.list(), cobra.ShellCompDirectiveNoFileComp)))
	must(c.MarkFlagDirname("counts"))
}

func (w *weighing) counted() bool { return w.by == weighPresample || w.by == weighNode }

// check fills in how to sample, and returns all faults of the flags. It reads --fanouts and --batch
// from the flags of the order (`order`), and may change the method of cutting (`how`).
func (w *weighing) check(c *cobra.Command, how *cutting, order *hotOrder, parts int) error {
	if words := weighings.list(); !slices.Contains(words, w.by) {
		return fmt.Errorf("--weights is %q; it must be %s", w.by, config.OrList(words))
	}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	for _, flag := range []string{"config", "set", "sample-seed"} {
		if w.by == weighData && c.Flags().Changed(flag) {
			fault("--%s has no effect with --weights data, because these weights do not "+
				"depend on how minibatches are sampled; leave it out", flag)
		}
	}
	for _, flag := range []string{"epochs", "counts", "imbalance"} {
		if !w.counted() && c.Flags().Changed(flag) {
			fault("--%s has an effect only with --weights presample or node, which count "+
				"what minibatches sample; leave it out", flag)
		}
	}
	if len(w.sets) > 0 && w.config == "" {
		fault("--set overrides a key of --config, which is missing; give --config")
	}
	if w.by == weighData {
		return errors.Join(faults...)
	}
	switch given := c.Flags().Changed("method"); {
	case w.by != weighRand && !how.weighs():
		fault("--method %s cannot use weights; with --weights %s use metis, kaminpar or ldg",
			how.method, w.by)
	case w.by == weighRand && given && how.method != "random":
		fault("--weights rand deals vertices out at random; leave out --method %s", how.method)
	case w.by == weighRand:
		how.method = "random"
	}
	if order.by != "degree" {
		fault("--order %s is for minibatches of one part, but --weights %s is for minibatches of "+
			"all ranks; use --order degree", order.by,
			w.by)
	}
	if !(w.within >= 1 && w.within <= 100) {
		fault("--imbalance is %g; it must be from 1 (parts of equal counts) to 100", w.within)
	}
	if err := w.settings(c, order, parts); err != nil {
		return errors.Join(append(faults, err)...)
	}
	return errors.Join(faults...)
}

// settings takes the fanouts, batch and seed from the flags or, where these are not given, from the
// config.
func (w *weighing) settings(c *cobra.Command, order *hotOrder, parts int) error {
	o := &w.sampling
	o.Batch = order.batch
	o.Sample = sample.Neighbours(order.fanouts...)
	if w.config != "" {
		run, err := config.Load(w.config, // no run is begun, so these two keys do not matter
			append(w.sets, "data.parts=none", "run.dir=partitioned"))
		if err != nil {
			return err
		}
		o.Sample = trainOptions(run).Sample
		if len(order.fanouts) > 0 {
			o.Sample.Fanouts = order.fanouts
		}
		if !c.Flags().Changed("batch") {
			if o.Batch = run.Job.Batch; !run.Job.GlobalBatch {
				o.Batch *= parts
			}
		}
		if !c.Flags().Changed("sample-seed") {
			o.Seed = run.Job.Seed
		}
	}
	hops := o.Sample.Hops()
	if hops == 0 && !w.counted() && !c.Flags().Changed("batch") {
		return nil
	}
	if hops == 0 || o.Batch == 0 {
		return fmt.Errorf("--weights %s samples minibatches, so it needs --config, or --fanouts "+
			"and --batch: the sample.fanouts of the runs to come, and how many seeds a "+
			"minibatch of all ranks has", w.by)
	}
	return o.Check()
}

// cut partitions the dataset by the method and the weights of the flags.
func (w *weighing) cut(c *cobra.Command, methods map[string]partition.Func, d *dataset.Dataset,
	o partition.Options, features string) ([]int32, error) {
	if w.counted() {
		counts, err := w.count(c, d)
		if err != nil {
			return nil, err
		}
		defer counts.Free()
		o.Imbalance = []float32{w.within}
		return counts.Partition(methods[o.Method], d.Graph, o, w.by == weighPresample)
	}
	weights, err := partition.TrainingWeights(d.Graph, d.Split)
	if err != nil {
		return nil, err
	}
	switch all := weights.Vertex; w.by {
	case weighEdge:
		weights.Vertex = [][]int32{all[partition.TrainSeeds], all[partition.InEdges]}
	case weighRand:
		weights.Vertex = all[partition.Vertices : partition.Vertices+1]
	case weighData:
		if m := &d.Meta; m.Schema.Typed() {
			weights.Vertex = append(all, partition.TypeWeights(&d.Columns, int(m.Vertices),
				slices.Index(m.Schema.Types, m.LabelType), shard.RowSizes(m, features))...)
		}
	}
	return partition.Run(methods, d.Graph, weights, o)
}

// count reads saved counts. If there are none, it samples, and saves the counts in --counts if that
// is given.
func (w *weighing) count(c *cobra.Command, d *dataset.Dataset) (*presample.Counts, error) {
	purpose := presample.PurposeOf(d, w.sampling)
	if w.counts != "" && presample.Saved(w.counts) {
		return presample.Load(w.counts, purpose, d.Meta.Vertices, d.Meta.Edges)
	}
	if w.counts != "" {
		if err := dataset.Target(w.counts); err != nil {
			return nil, err
		}
	}
	counts, err := presample.Count(d.Graph, d.Split.Train, w.sampling)
	if err != nil || w.counts == "" {
		return counts, err
	}
	if err := counts.Save(w.counts, purpose); err != nil {
		counts.Free()
		return nil, err
	}
	out(c, "counts of %d minibatches written to %s\n", counts.Minibatches, w.counts)
	return counts, nil
}

// measure adds to the report what sampled minibatches cost on these parts. It does nothing if the
// flags describe no sampling.
func (w *weighing) measure(d *dataset.Dataset, part []int32, r *partition.Report) (err error) {
	if w.sampling.Sample.Hops() > 0 {
		r.Sampled, err = presample.Measure(d.Graph, d.Split.Train, part, len(r.Parts), w.sampling)
	}
	return err
}

// limits returns the imbalances above which parts are refused. Parts for shared minibatches have no
// limits: they balance the vertices and edges that sampling touches, so their seeds and edges in
// the graph may be unbalanced.
func (w *weighing) limits() partition.Limits {
	if w.by == weighData || w.by == weighEdge {
		return partition.DefaultLimits
	}
	return partition.NoLimits
}
