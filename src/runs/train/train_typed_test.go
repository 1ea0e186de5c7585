package train

// These tests train on graphs with vertex types, on any ranks, topology and device.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/src/forecast/simulate"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/config"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// typedData writes a graph of papers, authors and venues, in which a paper's class is that of its
// authors, and the features of every type are of another width. Types in bare have none.
func typedData(t testing.TB, bare ...int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "typed")
	counts, widths := []int64{240, 90, 8}, []int{6, 3, 2}
	for _, kind := range bare {
		widths[kind] = 0
	}
	r := rand.New(rand.NewPCG(3, 4))
	class := make([]int32, counts[0])
	author := func(c int32) int32 { return c*30 + r.Int32N(30) }
	edges := []dataset.TypedEdges{
		{Relation: graph.Relation{Source: "author", Name: "writes", Target: "paper"}},
		{Relation: graph.Relation{Source: "paper", Name: "rev_writes", Target: "author"}},
		{Relation: graph.Relation{Source: "venue", Name: "prints", Target: "paper"}},
		{Relation: graph.Relation{Source: "paper", Name: "rev_prints", Target: "venue"}},
		{Relation: graph.Relation{Source: "paper", Name: "cites", Target: "paper"}},
	}
	add := func(k int, u, v int32) {
		edges[k].Sources, edges[k].Targets = append(edges[k].Sources, u),
			append(edges[k].Targets, v)
	}
	for p := range int32(counts[0]) {
		class[p] = r.Int32N(3)
		for range 1 + r.IntN(4) {
			a := author(class[p])
			add(0, a, p)
			add(1, p, a)
		}
		v := r.Int32N(8)
		add(2, v, p)
		add(3, p, v)
		for range r.IntN(4) {
			add(4, r.Int32N(240), p)
		}
	}
	writeTyped(t, dir, counts, widths, edges, class, 140, r)
	return dir
}

// manyAuthors makes a graph of which few papers are trained, that cite others and have many
// authors; two more review each. So of papers and authors there are more rows than means. Venues
// alone have features.
func manyAuthors(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "authors")
	r := rand.New(rand.NewPCG(5, 6))
	edges := []dataset.TypedEdges{
		{Relation: graph.Relation{Source: "author", Name: "writes", Target: "paper"}},
		{Relation: graph.Relation{Source: "author", Name: "reviews", Target: "paper"}},
		{Relation: graph.Relation{Source: "venue", Name: "prints", Target: "paper"}},
		{Relation: graph.Relation{Source: "paper", Name: "cites", Target: "paper"}},
		{Relation: graph.Relation{Source: "paper", Name: "rev_writes", Target: "author"}},
		{Relation: graph.Relation{Source: "paper", Name: "rev_prints", Target: "venue"}},
	}
	add := func(k int, u, v int32) {
		edges[k].Sources, edges[k].Targets = append(edges[k].Sources, u),
			append(edges[k].Targets, v)
	}
	class := make([]int32, 150)
	for p := range int32(len(class)) {
		class[p] = r.Int32N(3)
		for k := range 5 {
			a := class[p]*100 + r.Int32N(100)
			add(0, a, p)
			add(4, p, a)
			add(3, r.Int32N(150), p)
			if k < 2 {
				add(1, class[p]*100+r.Int32N(100), p)
			}
		}
		v := r.Int32N(8)
		add(2, v, p)
		add(5, p, v)
	}
	writeTyped(t, dir, []int64{150, 300, 8}, []int{0, 0, 4}, edges, class, 20, r)
	return dir
}

// writeTyped writes a graph of papers, authors and venues; class is of papers, of which so many are
// for training.
func writeTyped(t testing.TB, dir string, counts []int64, widths []int, edges []dataset.TypedEdges,
	class []int32, train int, r *rand.Rand) {
	t.Helper()
	w, err := dataset.Create(dir, dataset.Meta{Name: "typed", Task: task.Multiclass, Classes: 3,
		LabelType: "paper", Schema: graph.Schema{Types: []string{"paper", "author", "venue"}}})
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	check(err)
	_, err = w.TypedTopology(counts, edges, graph.CleanOptions{})
	check(err)
	for kind, cols := range widths {
		if cols == 0 {
			continue
		}
		rows, err := w.TypeFeatures(kind, cols, []string{dataset.Float32, dataset.Float16}[kind%2])
		check(err)
		for i := range counts[kind] {
			row := make([]float32, cols)
			for k := range row {
				row[k] = r.Float32() - 0.5
			}
			if kind == 1 {
				row[i/30]++
			}
			check(rows.Write(row))
		}
		check(rows.Close())
	}
	labels := make([]int32, w.Meta.Vertices)
	var ids []graph.VertexID
	for v := range labels {
		labels[v] = -1
		if v < len(class) {
			labels[v], ids = class[v], append(ids, graph.VertexID(v))
		}
	}
	check(w.Labels(mem.Bytes(labels)))
	check(w.Splits(graph.Split{Train: ids[:train], Valid: ids[train : train+40],
		Test: ids[train+40:]}))
	check(w.Close())
}

// typedOptions are those of graphs that are too small for folding to pay: all fold where they can,
// and TestTypedTrainingOnAnyRanks and TestSumsOfLearnedRowsChangeNoNumber map as well.
func typedOptions(kind string) Options {
	return Options{
		Spec: job.Spec{
			Model: nn.Config{Kind: kind, Layers: 2, Hidden: 8, Norm: "layer", Dropout: 0.2,
				Bases: 3, Heads: 2, Slope: 0.2, Fold: nn.FoldAlways},
			Sample: sample.Neighbours(4, 3), Batch: 20, Epochs: 8,
			Optimizer: nn.DefaultOptimizer("adam"),
			Schedule:  nn.Schedule{Kind: nn.ScheduleConstant, Base: 0.02}, StepEpochs: 1, Seed: 1,
			Depth: 2, StreamPerPart: true, Cache: policy.Settings{Policy: policy.None},
			Learned: nn.LearnedOptions{LR: 0.05, Scale: 1, Unread: nn.UnreadZero},
		},
		Training: config.Training{EvalEvery: 1, EvalFull: true},
	}
}

// typedRun trains on so many ranks, each a node of its own, and returns the summary of rank 0.
func typedRun(t *testing.T, s *shard.Shards, ranks int, o Options, onCPU bool) *record.Summary {
	t.Helper()
	var sum *record.Summary
	dir := t.TempDir()
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		var dev compute.Device = ref.New()
		if onCPU {
			d, err := cpu.New(cpu.Options{Threads: 2})
			if err != nil {
				return err
			}
			dev = d
		}
		of := s
		if o.Partitioned { // of which a rank maps its own part
			own, err := shard.Open(s.Dir, shard.Options{Rank: c.Rank(), Ranks: ranks})
			if err != nil {
				return err
			}
			defer own.Close()
			of = own
		}
		got, err := Run(context.Background(),
			Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: of, Device: dev,
				Host: ref.Host{}, Workers: 2}, Dir: dir}, o)
		if c.Rank() == 0 {
			sum = got
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// A typed graph is trained and evaluated to the same numbers on any number of ranks that divides
// the parts, and what is learned needs its relations.
func TestTypedTrainingOnAnyRanks(t *testing.T) {
	data := typedData(t)
	for _, kind := range []string{"rgcn", "sage", "gat", "gatv2"} {
		t.Run(kind, func(t *testing.T) {
			s := shardtest.Cut(t, data, shardtest.Options{Parts: 4})
			if err := s.Verify(); err != nil {
				t.Fatal(err)
			}
			want := typedRun(t, s, 1, typedOptions(kind), false)
			learned, least := want, 0.8
			if nn.FindKind(kind).HasHeads { // which read no own rows
				o := typedOptions(kind)
				o.Epochs, o.EvalEvery = 30, 30
				learned, least = typedRun(t, s, 1, o, false), 0.6
			}
			if !(learned.TestAccuracy.Value > least) {
				t.Errorf("test accuracy %.3f", learned.TestAccuracy.Value)
			}
			mapped := typedOptions(kind)
			mapped.Model.Fold = nn.FoldNever
			if !nn.FindKind(kind).HasHeads { // the same numbers, but for rounding
				one := typedRun(t, s, 1, mapped, false)
				if d := one.TrainLoss - want.TrainLoss; one.LossDigest == want.LossDigest ||
					!(d < 1e-4 && d > -1e-4) {
					t.Errorf("mapped loss %v of digest %s, folded %v of %s", one.TrainLoss,
						one.LossDigest, want.TrainLoss, want.LossDigest)
				}
				if four := typedRun(t, s, 4, mapped, false); four.LossDigest != one.LossDigest {
					t.Errorf("4 ranks that map: digest %s, want %s", four.LossDigest,
						one.LossDigest)
				}
			}
			for _, ranks := range []int{2, 4} {
				got := typedRun(t, s, ranks, typedOptions(kind), false)
				// Two ranks add the gradients of two minibatches each before they add these; the
				// others add four one by one.
				if ranks == 4 && got.LossDigest != want.LossDigest {
					t.Errorf("%d ranks: digest %s, want %s", ranks, got.LossDigest, want.LossDigest)
				}
				if d := got.TrainLoss - want.TrainLoss; !(d < 1e-5 && d > -1e-5) ||
					*got.TestAccuracy != *want.TestAccuracy {
					t.Errorf("%d ranks: loss %v, accuracy %v; want %v, %v", ranks, got.TrainLoss,
						got.TestAccuracy, want.TrainLoss, want.TestAccuracy)
				}
				if ranks > 1 && got.RemoteRowsPerStep == 0 {
					t.Errorf("%d ranks: no row was fetched", ranks)
				}
			}
		})
	}
}

// Where a rank holds the columns of its own vertices alone the numbers are the same, whatever is
// drawn, and ranks ask each other for as much as is simulated; so are they with features of edges.
func TestTypedTrainingOnAPartitionedTopology(t *testing.T) {
	race.Alone(t)
	data, bare := typedData(t), typedData(t, 1, 2)
	edges := shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true})
	for _, c := range []struct {
		kind, data string
		ranks      int
		change     func(*Options)
	}{
		{"gatv2", edges, 4, func(o *Options) {
			o.Model.EdgeFeatures, o.Model.Learned, o.Learned.LR = true, 4, 0.05
		}},
		{"gine", edges, 2, func(o *Options) {
			o.Model.EdgeFeatures, o.Model.Learned, o.Learned.LR = true, 4, 0.05
			o.Sample.Kind, o.Sample.Fanouts, o.EvalFull = sample.Labor, []int{2, -1}, false
		}},
		{"rgcn", data, 4, func(o *Options) { o.EvalFull = false }},
		{"sage", data, 2, func(o *Options) {
			o.RelationFanouts = "writes=1,2 cites=-1,2 prints=300,1"
		}},
		{"gat", data, 4, func(o *Options) { o.Sample, o.Depth = sample.Neighbours(-1, -1), 5 }},
		{"gatv2", bare, 4, func(o *Options) { o.Model.Learned, o.Learned.LR = 4, 0.05 }},
		{"rgcn", data, 2, func(o *Options) {
			o.Sample.Kind, o.RelationFanouts = sample.Poisson, "cites=-1,2"
		}},
		{"sage", bare, 4, func(o *Options) {
			o.Sample.Kind, o.Sample.Numbers = sample.Poisson,
				sample.Numbers{Shared: true, Dependency: 3}
			o.Model.Learned, o.Learned.LR, o.EvalFull = 4, 0.05, false
		}},
		{"gatv2", data, 4, func(o *Options) { o.Sample.Kind = sample.Labor }},
	} {
		s := shardtest.Cut(t, c.data, shardtest.Options{Parts: 4})
		o := typedOptions(c.kind)
		o.Epochs = 1
		c.change(&o)
		want := typedRun(t, s, c.ranks, o, false)
		o.Partitioned, o.Depth = true, 7-o.Depth
		got := typedRun(t, s, c.ranks, o, false)
		if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest ||
			got.LearnedDigest != want.LearnedDigest || *got.TestAccuracy != *want.TestAccuracy ||
			got.Remote != want.Remote || got.RemoteBytes != want.RemoteBytes ||
			got.EdgeRows != want.EdgeRows {
			t.Errorf("%s: %+v; replicated: %+v", c.kind, got, want)
		}
		sim := o.Spec
		sim.Ranks, sim.RanksPerNode = c.ranks, 1
		simulated, err := simulate.New(s,
			simulate.Options{Spec: sim, Workers: 2, Alphas: []float64{0},
				Policies: []string{policy.None}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := simulated.Run()
		if err != nil {
			t.Fatal(err)
		}
		if a := (simulate.Asked{Vertices: got.Asked, Neighbours: got.Drawn,
			Bytes: got.Sampling.Bytes}); a !=
			r.Asked || a.Vertices == 0 || c.data != edges && r.Rows[0][0] != got.Remote ||
			r.EdgeRows != got.EdgeRows || c.data == edges && got.EdgeRows == 0 {
			t.Errorf("%s: asked %+v for %d rows, simulated %+v for %d", c.kind, a, got.Remote,
				r.Asked, r.Rows[0][0])
		}
		simulated.Close()
	}
}

// oneType writes a graph of so many relations among vertices of one type.
func oneType(t *testing.T, relations int) string {
	t.Helper()
	dir, n := filepath.Join(t.TempDir(), "one"), int32(60)
	w, err := dataset.Create(dir, dataset.Meta{Name: "one", Task: task.Multiclass, Classes: 2,
		LabelType: "paper", Schema: graph.Schema{Types: []string{"paper"}}})
	if err != nil {
		t.Fatal(err)
	}
	edges := make([]dataset.TypedEdges, relations)
	for k := range edges {
		edges[k].Relation = graph.Relation{Source: "paper", Name: fmt.Sprintf("r%d", k),
			Target: "paper"}
	}
	var ids []graph.VertexID
	labels := make([]int32, n)
	for v := range n {
		labels[v], ids = v%2, append(ids, graph.VertexID(v))
		for k := range edges {
			edges[k].Sources = append(edges[k].Sources, v)
			edges[k].Targets = append(edges[k].Targets, (v*7+int32(k)*31+1)%n)
		}
	}
	if _, err := w.TypedTopology([]int64{int64(n)}, edges, graph.CleanOptions{}); err != nil {
		t.Fatal(err)
	}
	rows, err := w.TypeFeatures(0, 3, dataset.Float32)
	if err != nil {
		t.Fatal(err)
	}
	for v := range n {
		if err := rows.Write([]float32{float32(v % 2), float32(v % 3), 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(rows.Close(), w.Labels(mem.Bytes(labels)),
		w.Splits(graph.Split{Train: ids[:40], Valid: ids[40:50], Test: ids[50:]}),
		w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Bytes are counted as well where all vertices are of one type, with relations of their own.
func TestTypedTrainingOfOneType(t *testing.T) {
	s := shardtest.Cut(t, oneType(t, 2), shardtest.Options{Parts: 2})
	want, got := typedRun(t, s, 1, typedOptions("rgcn"), false),
		typedRun(t, s, 2, typedOptions("rgcn"), false)
	if d := got.TrainLoss - want.TrainLoss; !(d < 1e-5 && d > -1e-5) || got.RemoteRowsPerStep == 0 {
		t.Errorf("loss %v with %g remote rows a step; want %v", got.TrainLoss,
			got.RemoteRowsPerStep, want.TrainLoss)
	}
}

// The CPU trains as the plain reference does, for an epoch: later ones of attention multiply what
// rounding differs by, to 1e-4 after eight.
func TestTypedTrainingOnTheCPU(t *testing.T) {
	s := shardtest.Cut(t, typedData(t), shardtest.Options{Parts: 2})
	for _, kind := range []string{"rgcn", "sage", "gat", "gatv2"} {
		o := typedOptions(kind)
		o.Epochs = 1
		want, got := typedRun(t, s, 1, o, false), typedRun(t, s, 1, o, true)
		if d := got.TrainLoss - want.TrainLoss; !(d < 1e-5 && d > -1e-5) {
			t.Errorf("%s: loss %v, the reference's is %v", kind, got.TrainLoss, want.TrainLoss)
		}
		if nn.FindKind(kind).HasHeads {
			continue
		}
		rows := typedRun(t, s, 2, o, true)
		o.Sums = true
		if got := typedRun(t, s, 2, o, true); got.Sums == 0 ||
			got.WeightsDigest != rows.WeightsDigest {
			t.Errorf("%s: %d sums, weights %s; %s without", kind, got.Sums, got.WeightsDigest,
				rows.WeightsDigest)
		}
	}
}

// Vertices of the generated graph of papers without features are trained on those made of the
// graph.
func TestTypedGraphOfPapers(t *testing.T) {
	data := filepath.Join(t.TempDir(), "mag")
	if err := dataset.Generate(data, dataset.GenerateOptions{Kind: dataset.MAG, Vertices: 400,
		Classes: 4, Features: 8, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	o := typedOptions("rgcn")
	bare := shardtest.Cut(t, data, shardtest.Options{Parts: 2})
	err := comm.RunWorld(1, func(c comm.Comm) error {
		_, err := Run(context.Background(),
			Env{Env: session.Env{Comm: c, Shards: bare, Device: ref.New(), Host: ref.Host{},
				Workers: 1}, Dir: t.TempDir()}, o)
		return err
	})
	if want := "choose partition --features degree"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	s := shardtest.Cut(t, data, shardtest.Options{Parts: 2, Features: shard.FeaturesDegree})
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
	if of := s.Meta.Tables; of[0].Features != 8 || of[1].Features != 16 || of[3].Features != 16 {
		t.Fatalf("tables %+v", of)
	}
	if got := typedRun(t, s, 2, o, false); !(got.TestAccuracy.Value > 0.5) {
		t.Errorf("test accuracy %.3f of 4 classes", got.TestAccuracy.Value)
	}
}

// withoutRelation writes the typed graph in data again, of types without features but the first,
// without the relation of a name and its reverse.
func withoutRelation(t *testing.T, data, name string) string {
	t.Helper()
	d, err := dataset.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, starts := d.Meta, d.Meta.Starts()
	var counts []int64
	for _, table := range m.Tables {
		counts = append(counts, table.Vertices)
	}
	var edges []dataset.TypedEdges
	for r, relation := range m.Schema.Relations {
		if strings.TrimPrefix(relation.Name, "rev_") == name {
			continue
		}
		from, to := m.Schema.Ends(r)
		e := dataset.TypedEdges{Relation: relation}
		for v := starts[to]; v < starts[to+1]; v++ {
			_, first, _ := d.Columns.Of(graph.VertexID(v))
			c := int(first) + d.Columns.Place(r)
			for _, u := range d.Graph.Indices[d.Columns.Indptr[c]:d.Columns.Indptr[c+1]] {
				e.Sources = append(e.Sources, int32(int64(u)-starts[from]))
				e.Targets = append(e.Targets, int32(v-starts[to]))
			}
		}
		edges = append(edges, e)
	}
	dir := filepath.Join(t.TempDir(), "without")
	w, err := dataset.Create(dir, dataset.Meta{Name: "without", Task: m.Task, Classes: m.Classes,
		LabelType: m.LabelType, Schema: graph.Schema{Types: m.Schema.Types}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.TypedTopology(counts, edges, graph.CleanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := w.TypeFeatures(0, m.Tables[0].Features, dataset.Float32)
	if err == nil {
		err = errors.Join(rows.Write(npy.View[float32](d.FeatureRows(0, 0, counts[0]))),
			rows.Close(), w.Labels(d.Labels.Data), w.Splits(d.Split), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A paper's class is that of its authors and that of its fields: a graph without one of these
// relations tells half of it.
func TestTypedGraphOfPapersNeedsItsRelations(t *testing.T) {
	race.Alone(t)
	data := filepath.Join(t.TempDir(), "mag")
	if err := dataset.Generate(data, dataset.GenerateOptions{Kind: dataset.MAG, Vertices: 1000,
		Classes: 4, Features: 8, Homophily: 0.8, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	accuracy := func(data string) float64 {
		o := typedOptions("rgcn")
		o.Sample, o.Batch = sample.Neighbours(10, 10), 100
		s := shardtest.Cut(t, data, shardtest.Options{Parts: 2, Features: shard.FeaturesDegree})
		return typedRun(t, s, 2, o, false).TestAccuracy.Value
	}
	all := accuracy(data)
	for _, name := range []string{"writes", "has_topic"} {
		without := accuracy(withoutRelation(t, data, name))
		t.Logf("test accuracy %.3f without %s, %.3f with it", without, name, all)
		if !(without < all-0.05) {
			t.Error("the relation tells nothing")
		}
	}
}

// A relation may have fanouts of its own, by its name or, as another has the same, with its types.
func TestTypedFanoutsOfRelations(t *testing.T) {
	s := shardtest.Cut(t, typedData(t), shardtest.Options{Parts: 2})
	run := func(fanouts string) *record.Summary {
		o := typedOptions("sage")
		o.Epochs, o.RelationFanouts = 1, fanouts
		return typedRun(t, s, 2, o, false)
	}
	all := run("")
	for fanouts, same := range map[string]bool{"writes=4,3": true,
		"venue,prints,paper=4,3 cites=4,3": true,
		"writes=1,3":                       false, "cites=4,3 author,writes,paper=1,1": false} {
		if got := run(fanouts); (got.LossDigest == all.LossDigest) != same {
			t.Errorf("%s: digest %s; that of all is %s", fanouts, got.LossDigest, all.LossDigest)
		}
	}
}

func TestTypedRefusals(t *testing.T) {
	s := shardtest.Cut(t, typedData(t), shardtest.Options{Parts: 2})
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Model.Kind = "gcn" }, "model kind gcn does not tell apart; choose"},
		{func(o *Options) { o.Model.Aggregation = "max" },
			"aggregation max does not tell relations apart"},
		{func(o *Options) { o.Model.Kind, o.Sums = "gat", true }, "choose model.kind=rgcn or sage"},
		{func(o *Options) { o.Sample.Kind, o.Sums = sample.Poisson, true },
			"choose sample.kind=neighbour"},
		{func(o *Options) { o.Cache.Placement = policy.PlacementGroup },
			"choose cache.placement=own"},
		{func(o *Options) { o.RelationFanouts = "reads=4,3" },
			`"reads" names no relation; the graph has author,`},
		{func(o *Options) { o.RelationFanouts = "cites=4" },
			`"cites=4" has 1 fanouts, but 2 layers need one fanout each`},
		{func(o *Options) { o.RelationFanouts = "cites=5,3 paper,cites,paper=1,1" },
			`"paper,cites,paper" is given twice`},
		{func(o *Options) { o.RelationFanouts = "cites=all,3" }, "want NAME=FANOUT,FANOUT"},
		{func(o *Options) { o.RelationFanouts = "cites=0,3" },
			`"cites=0,3": fanout 0; it must be 1 to `},
		{func(o *Options) { o.Model.Kind, o.Sample.Kind = "gat", sample.Poisson }, "gin or rgcn"},
		{func(o *Options) { o.Sample.Kind, o.Locality.Favour = sample.Poisson, 2 },
			"choose sample.locality=1"},
		{func(o *Options) { o.Sample = sample.Spec{Kind: sample.LADIES, Vertices: []int{9, 9}} },
			"choose sample.kind=neighbour"},
	} {
		o := typedOptions("sage")
		c.change(&o)
		err := comm.RunWorld(1, func(c comm.Comm) error {
			_, err := Run(context.Background(),
				Env{Env: session.Env{Comm: c, Shards: s, Device: ref.New(), Host: ref.Host{},
					Workers: 1}, Dir: t.TempDir()}, o)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
