package train

// These tests train models of links: on any ranks, in every mode, with and without types.

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute/ref"
	"halognn/src/forecast/plan"
	"halognn/src/forecast/simulate"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// linkOptions train a small model of links, a stream for every part.
func linkOptions(k int) Options {
	o := sageOptions()
	o.StreamPerPart, o.Epochs = true, 1
	o.Model.Layers, o.Sample = 2, sample.Neighbours(4, 3)
	o.Links.LinkOptions = sample.LinkOptions{Corrupt: sample.CorruptTarget, Exclude: true,
		Negatives: sample.Negatives{Kind: sample.NegativesUniform, Count: k}}
	o.Links.Score, o.Links.Loss, o.Links.Judged = task.Dot, task.Contrastive, 20
	return o
}

func trainLinks(t *testing.T, shards *shard.Shards, ranks int, o Options) (s *record.Summary,
	dir string) {
	t.Helper()
	return trainLinksOn(t, shards, ranks, 1, o)
}

// trainLinksOn trains on nodes of so many ranks.
func trainLinksOn(t *testing.T, shards *shard.Shards, ranks, perNode int,
	o Options) (s *record.Summary,
	dir string) {
	t.Helper()
	dir = t.TempDir()
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		one, err := Run(t.Context(), Env{
			Env: session.Env{Comm: c, Shards: shards, Device: ref.New(), Host: ref.Host{},
				Workers: 2, RanksPerNode: perNode}, Dir: dir}, o)
		if c.Rank() == 0 {
			s = one
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// With a stream for each part blocks are those of any number of ranks, and losses, weights and
// every metric of a rank for each part are those of one rank, caches included, for every choice of
// negatives, score, loss and sampler; and a model tells planted links from others.
func TestLinksOnAnyNumberOfRanks(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 300, Degree: 12, Features: 8,
		Classes: 6, SplitLinks: "80/10/10", Seed: 5}, shardtest.Options{Parts: 4})
	if err := shards.Verify(); err != nil {
		t.Fatal(err)
	}
	cachePolicy := map[int]string{2: policy.VIP, 4: policy.Lookahead}
	for name, change := range map[string]func(o *Options){
		"uniform": func(o *Options) { o.Epochs, o.Model.Hidden, o.Model.Dropout = 6, 12, 0 },
		"joint": func(o *Options) {
			o.Links.Negatives.Kind, o.Links.Corrupt = sample.NegativesJoint, sample.CorruptBoth
		},
		"batch, cosine": func(o *Options) {
			o.Links.Negatives, o.Links.Score, o.Links.Scale = sample.Negatives{
				Kind: sample.NegativesBatch}, task.Cosine, 8
		},
		"local, filter": func(o *Options) {
			o.Links.Negatives.Kind, o.Links.Filter, o.Links.Loss = sample.NegativesLocal, true,
				task.CrossEntropy
		},
		"valid links as messages": func(o *Options) { o.Links.Graph = job.TrainValidGraph },
		"distmult, steps without links": func(o *Options) {
			o.Links.Score, o.Links.Width, o.Batch = task.DistMult, 7, 1
		},
		"mlp": func(o *Options) {
			o.Links.Score, o.Links.Loss, o.Epochs = task.MLP, task.CrossEntropy, 2
		},
		"labor": func(o *Options) { o.Sample.Kind, o.Links.Judged = sample.Labor, 0 },
		"poisson": func(o *Options) {
			o.Sample.Kind, o.Links.Corrupt = sample.Poisson, sample.CorruptPair
		},
	} {
		o := linkOptions(4)
		change(&o)
		want, _ := trainLinks(t, shards, 1, o)
		for _, ranks := range []int{2, 4} {
			o.Partitioned = ranks == 4 && !o.Links.Filter && o.Links.Graph != job.TrainValidGraph
			o.Cache = policy.Settings{Policy: cachePolicy[ranks], Alpha: 0.2}
			got, _ := trainLinks(t, shards, ranks, o)
			if got.BlocksDigest != want.BlocksDigest {
				t.Errorf("%s: blocks of %d ranks are others", name, ranks)
			}
			if ranks == 2 { // which add gradients of four parts in another order
				continue
			}
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest {
				t.Errorf("%s: losses and weights of %d ranks are others", name, ranks)
			}
			for metric, x := range want.Links {
				if got.Links[metric] != x {
					t.Errorf("%s: %s of %d ranks is %v, of one %v", name, metric, ranks,
						got.Links[metric], x)
				}
			}
		}
		if auc := want.Links[task.AUC]; name == "uniform" && auc < 0.7 {
			t.Errorf("the AUC of planted links is %.3f", auc)
		}
	}
}

// Links with classes and numbers: blocks, losses, weights and predictions are those of any number
// of ranks, topologies and caches, and the model tells what was planted where the likeliest class,
// or the mean, does not. A score of one number gives no classes.
func TestLabelledLinksOnAnyNumberOfRanks(t *testing.T) {
	race.Alone(t)
	for _, labels := range []string{dataset.PlantClasses, dataset.PlantNumbers} {
		shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 240, Degree: 12, Features: 8,
			Classes: 3, Homophily: 0.3, SplitLinks: "80/10/10", LinkLabels: labels, Seed: 5},
			shardtest.Options{Parts: 4})
		must(t, shards.Verify())
		o := linkOptions(4)
		o.Epochs, o.Batch, o.Model.Hidden, o.Model.Dropout, o.Links.Score = 8, 16, 12, 0,
			task.ScoreAuto
		if labels == dataset.PlantNumbers {
			o.Loss.Loss = task.LossHuber
		}
		want, _ := trainLinks(t, shards, 1, o)
		for _, c := range []struct {
			ranks       int
			partitioned bool
			policy      string
		}{{2, false, policy.VIP}, {4, false, policy.Lookahead}, {4, true, policy.Sieve}} {
			o.Partitioned, o.Cache = c.partitioned, policy.Settings{Policy: c.policy, Alpha: 0.2}
			got, _ := trainLinks(t, shards, c.ranks, o)
			same := got.LossDigest == want.LossDigest && got.WeightsDigest == want.WeightsDigest &&
				reflect.DeepEqual(got.Confusion, want.Confusion)
			// two ranks add gradients of four parts in another order
			if got.BlocksDigest != want.BlocksDigest || c.ranks == 4 && !same {
				t.Errorf("%s, %+v: blocks, losses, weights or predictions are others", labels, c)
			}
		}
		if labels == dataset.PlantNumbers {
			if r2 := want.Numbers["r2"]; r2 < 0.4 || len(want.Numbers) != 3 ||
				want.TestAccuracy != nil {
				t.Errorf("numbers of test links: %v", want.Numbers)
			}
		} else if x := want.TestAccuracy.Value; x < want.MajorityAccuracy.Value+0.15 {
			t.Errorf("accuracy %.3f of test links, of the likeliest class %.3f", x,
				want.MajorityAccuracy.Value)
		}
		ranked := want.Links != nil
		for _, score := range []string{task.DistMult, task.Dot} {
			o := linkOptions(4)
			o.Links.Score = score
			err := comm.RunWorld(1, func(c comm.Comm) error {
				_, err := Run(t.Context(),
					Env{Env: session.Env{Comm: c, Shards: shards, Device: ref.New(),
						Host: ref.Host{}, Workers: 1}, Dir: t.TempDir()}, o)
				return err
			})
			refuses := score == task.Dot && labels == dataset.PlantClasses
			if ranked || refuses != (err != nil) ||
				refuses && !strings.Contains(err.Error(), "choose auto, mlp") {
				t.Errorf("%s, %s: %v", labels, score, err)
			}
		}
	}
}

// lossesOf returns the losses of a run's steps.
func lossesOf(t *testing.T, dir string) (all []float64) {
	t.Helper()
	text, err := mem.ReadFile(filepath.Join(dir, rundir.MetricsFile))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		var step record.Step
		must(t, json.Unmarshal([]byte(line), &step))
		if step.Kind == "step" {
			all = append(all, step.Loss)
		}
	}
	return all
}

// Ranks that train minibatches of links together, or hold columns of all rows, come to the losses
// and metrics of ranks that train the same minibatches alone, but for rounding, and draw the same
// edges.
func TestLinksInOtherModes(t *testing.T) {
	race.Alone(t)
	graphs := map[string]*shard.Shards{}
	for _, labels := range []string{"", dataset.PlantClasses, dataset.PlantNumbers} {
		graphs[labels] = shardtest.Open(t,
			dataset.GenerateOptions{Vertices: 300, Degree: 12, Features: 8, Classes: 6,
				SplitLinks: "80/10/10", LinkLabels: labels, Seed: 5}, shardtest.Options{Parts: 4})
	}
	for name, change := range map[string]func(o *Options){
		dataset.PlantClasses: func(o *Options) { o.Links.Score = task.ScoreAuto },
		dataset.PlantNumbers: func(o *Options) { o.Batch = 1 },
		"uniform":            func(o *Options) { o.Links.Corrupt = sample.CorruptPair },
		"batch, distmult, jumping": func(o *Options) {
			o.Links.Negatives, o.Links.Score = sample.Negatives{Kind: sample.NegativesBatch},
				task.DistMult
			o.Model.Jumping = nn.JumpCat
		},
		"labor, local, mlp": func(o *Options) {
			o.Sample.Kind, o.Links.Score, o.Links.Negatives.Kind = sample.Labor, task.MLP,
				sample.NegativesLocal
		},
		"ladies, gin": func(o *Options) {
			o.Sample, o.Model.Kind = sample.Spec{Kind: sample.LADIES, Vertices: []int{40, 60}},
				"gin"
		},
		"no neighbours, steps without links": func(o *Options) { o.Model.Kind, o.Batch = "mlp", 1 },
	} {
		o, shards := linkOptions(4), graphs[""]
		if of := graphs[name]; of != nil {
			shards = of
		}
		o.StreamPerPart, o.Model.Dropout = false, 0
		change(&o)
		for _, mode := range []string{parallel.ModeSplit, parallel.ModeHybrid,
			parallel.ModePushPull} {
			alone, ranks := o, 4
			m, err := parallel.ModeOf(mode)
			must(t, err)
			shared := o
			shared.Mode = m.Mode
			nodes := map[string]int{parallel.ModeSplit: 1, parallel.ModeHybrid: 2,
				parallel.ModePushPull: 4}[mode]
			alone.Batch = o.Batch * 4 / nodes
			want, at := trainLinks(t, shards, nodes, alone)
			for _, shared.Partitioned = range []bool{false, true} {
				got, dir := trainLinksOn(t, shards, ranks, ranks/nodes, shared)
				if got.EdgesDigest != want.EdgesDigest {
					t.Errorf("%s, %s: other edges are drawn", mode, name)
				}
				rounds := m.Collectives(
					parallel.Messages{Hops: o.Sample.Hops(), Group: ranks / nodes,
						Layers: o.Sample.Layers(), Rated: true})
				if o.Model.Kind == "mlp" {
					rounds = m.Collectives(parallel.Messages{Group: ranks / nodes, Rated: true})
				}
				if !shared.Partitioned && got.CollectivesPerStep != float64(rounds) {
					t.Errorf("%s, %s: %v collectives a step, predicted %d", mode, name,
						got.CollectivesPerStep, rounds)
				}
				if o.Model.Kind != "mlp" && !shared.Partitioned && mode != parallel.ModePushPull {
					holdCrossing(t, mode+", "+name, shards, shared, ranks/nodes, got)
				}
				losses := lossesOf(t, dir)
				for i, x := range lossesOf(t, at) {
					if math.Abs(losses[i]-x) > 1e-4*math.Abs(x) {
						t.Errorf("%s, %s: step %d: loss %v, alone %v", mode, name, i, losses[i], x)
					}
				}
				for metric, x := range want.Links {
					if math.Abs(got.Links[metric]-x) > 0.02 {
						t.Errorf("%s, %s: %s is %v, alone %v", mode, name, metric,
							got.Links[metric], x)
					}
				}
			}
		}
	}
}

// On a graph with vertex types links of one relation are trained and judged alike on any number of
// ranks and topology, by every kind of model, and planted ones are told from others.
func TestTypedLinksOnAnyNumberOfRanks(t *testing.T) {
	race.Alone(t)
	shards := shardtest.TypedLinks(t, 80, 200, 6, false)
	must(t, shards.Verify())
	for _, kind := range []string{"sage", "gat", "gatv2", "rgcn"} {
		o := linkOptions(4)
		o.Model.Kind, o.Model.Hidden, o.Model.Dropout = kind, 12, 0
		switch kind {
		case "sage":
			o.Epochs, o.Links.Corrupt = 8, sample.CorruptBoth
		case "gat":
			o.Model.Heads, o.Links.Filter = 2, true
		case "gatv2":
			o.Model.Heads, o.Links.Judged = 2, 0
		case "rgcn":
			o.Links.Negatives.Kind, o.Links.Score = sample.NegativesLocal, task.DistMult
		}
		want, _ := trainLinks(t, shards, 1, o)
		for _, ranks := range []int{2, 4} {
			o.Cache = policy.Settings{
				Policy: map[int]string{2: policy.VIP, 4: policy.Lookahead}[ranks], Alpha: 0.2}
			o.Partitioned = ranks == 4 && !o.Links.Filter
			got, _ := trainLinks(t, shards, ranks, o)
			if got.BlocksDigest != want.BlocksDigest {
				t.Errorf("%s: blocks of %d ranks are others", kind, ranks)
			}
			if ranks == 4 && (got.LossDigest != want.LossDigest ||
				got.WeightsDigest != want.WeightsDigest ||
				!reflect.DeepEqual(got.Links, want.Links)) {
				t.Errorf("%s: losses, weights or metrics of %d ranks are others: %v and %v", kind,
					ranks, got.Links, want.Links)
			}
		}
		if auc := want.Links[task.AUC]; kind == "sage" && auc < 0.7 {
			t.Errorf("the AUC of planted links is %.3f", auc)
		}
	}
}

// holdCrossing holds the rows that simulate modes and plan count, embeddings of links among them,
// to what a run has sent.
func holdCrossing(t *testing.T, name string, shards *shard.Shards, o Options, perNode int,
	run *record.Summary) {
	t.Helper()
	spec := o.Spec
	spec.RanksPerNode = perNode
	counted, err := simulate.CompareModes(shards,
		simulate.ModeOptions{Spec: spec, RankCounts: []int{4}, Workers: 1})
	must(t, err)
	at := slices.IndexFunc(counted.Counts,
		func(c simulate.ModeCounts) bool { return c.Mode == o.Mode.Name })
	if at < 0 {
		t.Fatalf("%s: the mode is not simulated: %v", name, counted)
	}
	c := counted.Counts[at]
	if rows := c.Features + 2*c.Hidden; rows != run.Shuffles.Rows+run.Remote {
		t.Errorf("%s: %d rows cross ranks, simulated %d", name, run.Shuffles.Rows+run.Remote, rows)
	}
	if c.Bytes != run.Shuffles.Bytes+run.RemoteBytes {
		t.Errorf("%s: %d bytes cross ranks, simulated %d", name, run.Shuffles.Bytes+run.RemoteBytes,
			c.Bytes)
	}
	if run.ShuffledBy != string(parallel.ShuffleHost) {
		t.Errorf("%s: rows went by %q", name, run.ShuffledBy)
	}
	if shards.Schema.Typed() {
		return
	}
	j := plan.Job{Spec: o.Spec}
	j.Ranks, j.RanksPerNode = 4, perNode
	p, err := plan.New(shards, j, plan.Options{
		Rates: plan.Rates{Sample: 1e7, Lookups: 1e8, Rows: 1e7, Flops: 1e10, Network: 1e9}})
	must(t, err)
	rows := (p.Shuffles.Features + 2*p.Shuffles.Hidden) * float64(p.Steps)
	if d := rows - float64(run.Shuffles.Rows); math.Abs(d) > 0.05*rows {
		t.Errorf("%s: %d rows cross ranks, planned %.0f", name, run.Shuffles.Rows, rows)
	}
}

// Validation links that pass messages change how test links are judged, and nothing else: no bit of
// any validation metric of any epoch.
func TestValidLinksAsMessagesOfTestLinks(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 200, Degree: 12, Features: 8,
		Classes: 4, SplitLinks: "60/20/20", Seed: 5}, shardtest.Options{Parts: 2})
	run := func(graph string) (*record.Summary, []map[string]float64) {
		o := linkOptions(4)
		o.Epochs, o.Links.Graph = 3, graph
		s, dir := trainLinks(t, shards, 2, o)
		text, err := mem.ReadFile(filepath.Join(dir, rundir.MetricsFile))
		must(t, err)
		var valid []map[string]float64
		for line := range strings.Lines(string(text)) {
			var eval record.Eval
			must(t, json.Unmarshal([]byte(line), &eval))
			if eval.Kind == "eval" {
				valid = append(valid, eval.Links)
			}
		}
		return s, valid
	}
	one, valid := run(job.TrainGraph)
	other, same := run(job.TrainValidGraph)
	if len(valid) != 3 || len(valid[0]) == 0 || !reflect.DeepEqual(valid, same) {
		t.Errorf("validation metrics %v, with validation links as messages %v", valid, same)
	}
	if one.LossDigest != other.LossDigest || one.Links[task.AUC] == other.Links[task.AUC] {
		t.Errorf("digests %s and %s, test AUC %v and %v", one.LossDigest, other.LossDigest,
			one.Links[task.AUC], other.Links[task.AUC])
	}
}

// Links of a random graph are predicted by nothing. In the first epoch, in which each link is new,
// the AUC of training minibatches is then that of guessing, within four standard errors; where a
// link is drawn among the neighbours of its ends it is not, so the test can fail.
func TestLinksDoNotLeak(t *testing.T) {
	race.Alone(t)
	const vertices, degree, features = 2000, 8, 16
	r := rand.New(rand.NewPCG(1, 2))
	var edges graph.Builder
	for range vertices * degree / 2 {
		edges.Add(graph.VertexID(r.IntN(vertices)), graph.VertexID(r.IntN(vertices)))
	}
	g, _, err := edges.Build(vertices, graph.CleanOptions{Undirected: true})
	if err != nil {
		t.Fatal(err)
	}
	links := dataset.SplitLinks(g, dataset.Fractions{0.9, 0.05, 0.05}, 1, true)
	g.DropEdges(nil, dataset.Judged(&links))
	dir := t.TempDir()
	w, err := dataset.Create(filepath.Join(dir, "data"),
		dataset.Meta{Name: "random", Task: task.Links, Features: features})
	must(t, err)
	must(t, w.Topology(g))
	rows, err := w.Features(vertices, features, dataset.Float32)
	must(t, err)
	row := make([]float32, features)
	for range vertices {
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
		must(t, rows.Write(row))
	}
	must(t, rows.Close())
	must(t, w.Links(links))
	must(t, w.Close())
	g.Free()
	d, err := dataset.Open(filepath.Join(dir, "data"))
	must(t, err)
	must(t, d.Verify())
	newID, offsets := partition.Order(make([]int32, vertices), 1,
		partition.InDegrees(d.Graph, &d.Columns))
	must(t, shard.Write(filepath.Join(dir, "parts"), d,
		shard.Layout{NewID: newID, Offsets: offsets}, shard.Alone{}))
	shards, err := shard.Open(filepath.Join(dir, "parts"), shard.Options{})
	must(t, err)
	defer func() { must(t, shards.Close()); must(t, d.Close()) }()

	guesses(t, shards)
}

// guesses fails if links that nothing predicts are predicted in the first epoch, or if they are not
// where they may be drawn.
func guesses(t *testing.T, shards *shard.Shards) {
	t.Helper()
	auc := func(exclude bool) float64 {
		o := linkOptions(1) // of one negative, rank 1 or 2: MRR = (1 + AUC) / 2
		o.Epochs, o.Batch, o.Links.Exclude = 1, 64, exclude
		o.Model.Hidden, o.Model.Dropout = 16, 0
		_, run := trainLinks(t, shards, 1, o)
		text, err := mem.ReadFile(filepath.Join(run, rundir.MetricsFile))
		must(t, err)
		sum, n := 0.0, 0.0
		for line := range strings.Lines(string(text)) {
			var step record.Step
			must(t, json.Unmarshal([]byte(line), &step))
			if step.Kind == "step" {
				sum += step.MRR.Value * float64(step.Seeds)
				n += float64(step.Seeds)
			}
		}
		return 2*sum/n - 1
	}
	without, with := auc(true), auc(false)
	t.Logf("AUC of training in the first epoch: %.4f without a minibatch's links, %.4f with them",
		without, with)
	links, _ := shards.LinksOf(0)
	if n := float64(len(links)); (without-0.5)*(without-0.5)*4*n > 16 {
		t.Errorf("it is %.4f without them, so they leak", without)
	}
	if with < 0.6 {
		t.Errorf("it is %.4f with them, so the test shows nothing", with)
	}
}

// Nor does the relation that --reverse has added for their reverses.
func TestTypedLinksDoNotLeak(t *testing.T) {
	race.Alone(t)
	guesses(t, shardtest.TypedLinks(t, 1000, 1000, 8, true))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
