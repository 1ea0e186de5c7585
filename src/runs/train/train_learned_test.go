package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/config"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

func learnedOptions(kind string) Options {
	o := typedOptions(kind)
	o.Model.Learned, o.Learned.LR, o.Model.Dropout = 6, 0.05, 0.1
	return o
}

// Rows of vertices without features are learned to the same bits on ranks of one stream each and on
// one rank of all, in graphs with vertex types and without, and what is learned is of use.
func TestLearnedRowsOnAnyRanks(t *testing.T) {
	race.Alone(t)
	edges := shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true})
	bare, typed := shardtest.Bare(t, shardtest.BareOptions{}), typedData(t, 1, 2)
	for _, c := range []struct {
		name, data string
		change     func(*Options)
		least      float64
	}{
		{"sage", bare, func(*Options) {}, 0.6},
		{"sage", bare, func(o *Options) { o.Partitioned, o.EvalFull = true, false }, 0.6},
		{"sage", bare, func(o *Options) { o.Model.Aggregation = "max" }, 0.5},
		{"gcn", bare, func(o *Options) { o.Sample.Kind = sample.Poisson }, 0.6},
		{"gcn", bare, func(o *Options) { o.Model.GCNNorm, o.Model.Residual = "both", true }, 0.6},
		{"gin", bare, func(o *Options) { o.Sample.Kind = sample.Labor }, 0.5},
		{"gat", bare, func(*Options) {}, 0.6},
		{"gcn", bare, func(o *Options) {
			o.Eval, o.Sample = o.Sample, sample.Spec{Kind: sample.LADIES, Vertices: []int{60, 60}}
		}, 0.6},
		{"sage", bare, func(o *Options) {
			o.Model.Jumping, o.Sample.Fanouts = nn.JumpCat, []int{4, 3}
		}, 0.6},
		{"gatv2", edges, func(o *Options) { o.Model.EdgeFeatures = true }, 0.6},
		{"gine", edges, func(o *Options) { o.Model.EdgeFeatures, o.EvalFull = true, false }, 0.6},
		{"mlp", bare, func(o *Options) { o.Epochs = 2 }, 0},
		{"rgcn", typed, func(*Options) {}, 0.6},
		{"sage", typed, func(o *Options) { o.EvalFull = false }, 0.6},
		{"gatv2", typed, func(o *Options) { o.Epochs = 2 }, 0},
	} {
		o := learnedOptions(c.name)
		o.Epochs = 15
		c.change(&o)
		t.Run(c.name, func(t *testing.T) {
			s := shardtest.Cut(t, c.data, shardtest.Options{Parts: 4})
			want := typedRun(t, s, 1, o, false)
			if !(want.TestAccuracy.Value >= c.least) {
				t.Errorf("test accuracy %.3f", want.TestAccuracy.Value)
			}
			still := o
			if still.Learned.LR = 1e-9; c.least > 0 {
				got := typedRun(t, s, 1, still, false)
				if got.LearnedDigest == want.LearnedDigest ||
					!(got.TestAccuracy.Value < want.TestAccuracy.Value-0.1) {
					t.Errorf("accuracy %.3f, and %.3f if rows are not trained",
						want.TestAccuracy.Value, got.TestAccuracy.Value)
				}
			}
			short := o // later epochs multiply what kernels round differently
			short.Epochs = 2
			wantCPU := typedRun(t, s, 2, short, false).TrainLoss
			if got := typedRun(t, s, 2, short, true).TrainLoss; !(math.Abs(got-wantCPU) < 1e-4) {
				t.Errorf("CPU: loss %v, want %v", got, wantCPU)
			}
			o.Depth = 5
			for _, ranks := range []int{2, 4} {
				got := typedRun(t, s, ranks, o, false)
				if ranks == 4 && (got.LossDigest != want.LossDigest ||
					got.LearnedDigest != want.LearnedDigest) {
					t.Errorf("4 ranks: loss digest %s of rows %s, want %s and %s", got.LossDigest,
						got.LearnedDigest, want.LossDigest, want.LearnedDigest)
				}
				if d := got.TrainLoss - want.TrainLoss; !(math.Abs(d) < 1e-4) {
					t.Errorf("%d ranks: loss %v, want %v", ranks, got.TrainLoss, want.TrainLoss)
				}
				// Whose rows are the seeds'.
				if crossed := got.Shuffles.Rows > 0; crossed != (c.name != "mlp") {
					t.Errorf("%d ranks: learned rows have crossed: %v", ranks, crossed)
				}
			}
		})
	}
}

// Learned rows are fetched early or late, whatever the depth of the pipeline, to the bits of depth
// 0, where each is fetched after the update before it; moments too. Which are late is counted a
// second time here, by drawing all minibatches.
func TestLateLearnedRows(t *testing.T) {
	for _, c := range []struct {
		name  string
		data  string
		ranks int
	}{
		{"bare", shardtest.Bare(t, shardtest.BareOptions{}), 4},
		{"typed", typedData(t, 1, 2), 4},
		{"typed, two minibatches a step", typedData(t, 1), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shardtest.Cut(t, c.data, shardtest.Options{Parts: 4})
			o := learnedOptions("sage")
			o.Epochs, o.Checkpoint.Keep = 2, 1
			var want, last *record.Summary
			var state []byte
			for _, o.Depth = range []int{0, 1, 2, 3, 4, 7} {
				reads := make([][]readOf, c.ranks)
				dir := t.TempDir()
				got := learnedRun(t, s, dir, o, reads)
				bits := []byte{}
				for p := range s.Parts {
					file, err := os.ReadFile(
						filepath.Join(rundir.CheckpointPath(dir, 2*got.StepsPerEpoch, true),
							rundir.LearnedFile(p)))
					if err != nil {
						t.Fatal(err)
					}
					bits = append(bits, file...)
				}
				if last = got; o.Depth == 0 {
					want, state = got, bits
				}
				if got.LossDigest != want.LossDigest || got.LearnedDigest != want.LearnedDigest ||
					got.WeightsDigest != want.WeightsDigest || !bytes.Equal(bits, state) {
					t.Errorf("depth %d changes numbers", o.Depth)
				}
				fetched, late := recount(reads, s, o.Depth)
				size := int64(4 * o.Model.Learned)
				if got.Late != late/2 || got.LateBytes != late*size/2 ||
					got.Shuffles.Rows != fetched || (late > 0) != (o.Depth > 0) || late == fetched {
					t.Errorf("depth %d: %d rows were late, of %d bytes, and %d moved; want %d, "+
						"%d and %d", o.Depth, got.Late, got.LateBytes, got.Shuffles.Rows, late/2,
						late*size/2, fetched)
				}
			}
			o.Partitioned, o.EvalFull = true, false
			if got := typedRun(t, s, c.ranks, o, false); got.LossDigest != want.LossDigest ||
				got.LearnedDigest != want.LearnedDigest || got.Late != last.Late {
				t.Errorf("on a partitioned topology numbers differ, and %d rows are late, %d else",
					got.Late, last.Late)
			}
		})
	}
}

// readOf are the vertices with learned rows that a minibatch reads.
type readOf struct {
	item, step int // of the run
	ids        []graph.VertexID
}

// learnedRun trains on a rank for each of reads, which it fills with what their minibatches read.
func learnedRun(t *testing.T, s *shard.Shards, dir string, o Options,
	reads [][]readOf) (sum *record.Summary) {
	t.Helper()
	err := comm.RunWorld(len(reads), func(c comm.Comm) error {
		tr, err := Open(Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: s, Device: ref.New(),
			Host: ref.Host{}, Workers: 2}, Dir: dir}, o)
		if err != nil {
			return err
		}
		r := tr.run
		sampler, err := sample.New(r.s.Topology, sample.Options{Spec: r.s.Job.Sample, Workers: 1,
			MaxSeeds: r.s.Job.MaxSeeds()})
		if err != nil {
			return err
		}
		of, types := graph.NewPartIndex(s.Ranges()), s.Schema.NumTypes()
		for epoch := 1; epoch <= o.Epochs; epoch++ {
			r.epoch = epoch
			for i := range r.steps() * r.minibatches() {
				var m parallel.Minibatch
				r.admit(i, &m)
				if err := sampler.Sample(&m.Sampled, m.Seeds, m.Key); err != nil {
					return err
				}
				before := (epoch - 1) * r.steps()
				read := readOf{item: before*r.minibatches() + i, step: before + i/r.minibatches()}
				for _, v := range m.Sampled.Frontier {
					if r.s.Job.Model.Learns[of.Find(uint32(v))%types] {
						read.ids = append(read.ids, v)
					}
				}
				reads[c.Rank()] = append(reads[c.Rank()], read)
				m.Free()
			}
		}
		r.epoch = 0
		got, err := tr.Run(context.Background(), nil)
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

// recount returns how many rows the ranks fetch, and how many of these a step changes that may be
// under way meanwhile: that of one of the depth minibatches before.
func recount(reads [][]readOf, s *shard.Shards, depth int) (fetched, late int64) {
	type change struct {
		step int
		id   graph.VertexID
	}
	changed, ranks := map[change]bool{}, len(reads)
	for _, of := range reads {
		for _, m := range of {
			for _, v := range m.ids {
				changed[change{m.step, v}] = true
			}
		}
	}
	for rank, of := range reads {
		lo, hi := s.Offsets[rank*s.Parts/ranks], s.Offsets[(rank+1)*s.Parts/ranks]
		for _, m := range of {
			for _, v := range m.ids {
				if int64(v) >= lo && int64(v) < hi {
					continue
				}
				fetched++
				for step := of[max(0, m.item-depth)].step; step < m.step; step++ {
					if changed[change{step, v}] {
						late++
						break
					}
				}
			}
		}
	}
	return fetched, late
}

// Ends of links learn rows, too.
func TestLearnedRowsOfLinks(t *testing.T) {
	race.Alone(t)
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{Links: true}),
		shardtest.Options{Parts: 4})
	o := linkOptions(2)
	o.Cache.Policy, o.Epochs, o.Batch = policy.None, 30, 40
	o.Model.Learned, o.Learned = 16, nn.LearnedOptions{LR: 0.05, Scale: 0.01, Unread: nn.UnreadZero}
	want, _ := trainLinks(t, s, 1, o)
	got, _ := trainLinks(t, s, 4, o)
	if got.LossDigest != want.LossDigest || got.LearnedDigest != want.LearnedDigest {
		t.Errorf("4 ranks: loss digest %s of rows %s, want %s and %s", got.LossDigest,
			got.LearnedDigest, want.LossDigest, want.LearnedDigest)
	}
	o.Learned.LR = 1e-9
	if still, _ := trainLinks(t, s, 1, o); !(want.TestMetric.Value > still.TestMetric.Value+0.1) {
		t.Errorf("test metric %v, and %v if rows are not trained", want.TestMetric,
			still.TestMetric)
	}
}

// A run that is stopped in the middle of an epoch goes on to the same bits, on other ranks too; the
// rows of a part are written by its owner, and no damage to them goes unseen.
func TestResumeOfLearnedRows(t *testing.T) {
	race.Alone(t)
	for name, data := range map[string]string{"bare": shardtest.Bare(t, shardtest.BareOptions{}),
		"typed": typedData(t, 2)} {
		t.Run(name, func(t *testing.T) {
			o := learnedOptions("sage")
			o.Epochs, o.Checkpoint.Keep, o.Checkpoint.EverySteps = 3, 3, 2
			s := shardtest.Cut(t, data, shardtest.Options{Parts: 4})
			whole := journey{shards: s, ranks: 4, dir: t.TempDir()}
			want := whole.finished(t, o)
			for _, ranks := range []int{4, 1} {
				j := journey{shards: s, ranks: 4, dir: t.TempDir()}
				j.stopped(t, o, 3)
				j.ranks = ranks
				got := j.finished(t, o)
				got.Local = want.Local // which depends on the ranks
				sameRun(t, got, want)
				if got.LearnedDigest != want.LearnedDigest || got.LearnedDigest == "" {
					t.Errorf("digest of rows %q, want %q", got.LearnedDigest, want.LearnedDigest)
				}
			}
			j := journey{shards: s, ranks: 4, dir: t.TempDir()}
			j.stopped(t, o, 3)
			paths := j.checkpoints(t)
			file := filepath.Join(j.dir, rundir.CheckpointsDir, paths[len(paths)-1],
				rundir.LearnedFile(2))
			if err := patched(file, func(b []byte) []byte {
				b[len(b)-1] ^= 1
				return b
			}); err != nil {
				t.Fatal(err)
			}
			got := j.finished(t, o)
			sameRun(t, got, want)
			if notes := strings.Join(j.notes, "\n"); !strings.Contains(notes,
				rundir.LearnedFile(2)) {
				t.Errorf("the damage is not told: %s", notes)
			}
		})
	}
}

// Where a checkpoint of learned rows cannot be written, which all ranks agree on, none ends the job
// for the others: the one that tells why may not have done so.
func TestFailedWriteOfLearnedRows(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{}), shardtest.Options{Parts: 2})
	o := learnedOptions("sage")
	// None is being written before.
	o.Epochs, o.Checkpoint = 100, config.Saves{EverySteps: 8, Keep: 2}
	v, dir := &vandal{left: 7}, t.TempDir()
	v.dir = filepath.Join(dir, rundir.CheckpointsDir)
	err := comm.RunWorld(2, func(c comm.Comm) error {
		env := Env{Env: session.Env{Comm: c, Shards: s, Device: ref.New(), Host: ref.Host{},
			Workers: 1},
			Dir: dir}
		if c.Rank() == 0 {
			env.Progress = v
		}
		_, err := Run(t.Context(), env, o)
		if !comm.IsAgreed(err) || !errors.Is(err, ErrUnsaved) ||
			!strings.Contains(err.Error(), v.dir) {
			t.Errorf("rank %d ended with %v", c.Rank(), err)
		}
		return comm.Agree(c, nil)
	})
	if err := errors.Join(err, v.err); err != nil {
		t.Error(err)
	}
}

// Evaluation changes no row: however often a run is evaluated, and wherever it goes on, it comes to
// the same rows and losses, though most rows are not read in some epochs, and some never.
func TestEvaluationLeavesLearnedRows(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{}), shardtest.Options{Parts: 4})
	var digests []string
	for _, unread := range []nn.Unread{nn.UnreadZero, nn.UnreadKeep} {
		for _, every := range []int{0, 1} {
			for _, ranks := range []int{1, 4} {
				o := learnedOptions("sage")
				o.Sample, o.Epochs, o.EvalEvery, o.Depth = sample.Neighbours(1, 1), 4, every, 3
				o.Learned.Unread, o.Learned.Decay = unread, 0.1
				got := typedRun(t, s, ranks, o, false)
				digests = append(digests, got.LossDigest+" of "+got.LearnedDigest)
			}
		}
	}
	if slices.Sort(digests); len(slices.Compact(digests)) > 1 {
		t.Errorf("losses and rows: %v", digests)
	}
}

// Rows and their moments are in no file and no memory of one rank alone.
func TestLearnedRowsAreOfTheirOwners(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{}), shardtest.Options{Parts: 4})
	o := learnedOptions("sage")
	o.Epochs = 1
	dir, own := t.TempDir(), make([]int64, 4)
	err := comm.RunWorld(4, func(c comm.Comm) error {
		tr, err := Open(Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: s, Device: ref.New(),
			Host: ref.Host{}, Workers: 1}, Dir: dir}, o)
		if err != nil {
			return err
		}
		for _, r := range tr.run.s.Learned.Ranges {
			own[c.Rank()] += int64(r.End - r.First)
		}
		_, err = tr.Run(context.Background(), nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for p, n := range own {
		if want := s.Offsets[p+1] - s.Offsets[p]; n != want {
			t.Errorf("rank %d has %d rows of its %d vertices", p, n, want)
		}
		info, err := os.Stat(filepath.Join(dir, rundir.LearnedFile(p)))
		if err != nil || info.Size() < n*6*4 || info.Size() > n*6*4+1024 {
			t.Errorf("part %d: %v, %v", p, info, err)
		}
	}
}

// accelerated is a device that says it has memory of its own.
type accelerated struct{ compute.Device }

func (d accelerated) Capabilities() compute.Capabilities {
	c := d.Device.Capabilities()
	c.Accelerator = struct{ compute.Accelerator }{}
	return c
}

func TestLearnedRefusals(t *testing.T) {
	bare := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{}),
		shardtest.Options{Parts: 2})
	typed := shardtest.Cut(t, typedData(t, 1), shardtest.Options{Parts: 2})
	features := shardtest.Cut(t, typedData(t), shardtest.Options{Parts: 2})
	for _, c := range []struct {
		shards *shard.Shards
		change func(*Options)
		want   string
	}{
		{bare, func(o *Options) { o.Model.Learned = 0 }, "set model.learned=64"},
		{typed, func(o *Options) { o.Model.Learned = 0 }, "model.learned=64, which learns them"},
		{features, func(*Options) {}, "all vertices have features"},
		{bare, func(o *Options) { o.Cache.Policy = policy.VIP }, "choose cache.policy=none"},
		{bare, func(o *Options) { o.Sums = true }, "choose exchange.sums=off"},
		{bare, func(o *Options) { o.Cache.Source = policy.SourceFiles },
			"choose cache.source=owners"},
		{bare, func(o *Options) { o.Mode.Name = "split" }, "choose parallel.mode=data"},
		{bare, func(o *Options) { o.Mode.Name = "hybrid" }, "choose parallel.mode=data"},
		{bare, func(o *Options) { o.Mode.Name = "push-pull" }, "choose parallel.mode=data"},
		{typed, func(o *Options) { o.Mode.Name = "split" }, "choose parallel.mode=data"},
		{bare, nil, "set compute.device=cpu"},
	} {
		o, device := learnedOptions("sage"), compute.Device(ref.New())
		if c.change == nil {
			device = accelerated{device}
		} else {
			c.change(&o)
		}
		err := comm.RunWorld(1, func(w comm.Comm) error {
			_, err := Run(context.Background(), Env{Env: session.Env{Comm: w, Shards: c.shards,
				Device: device, Host: ref.Host{}, Workers: 1}, Dir: t.TempDir()}, o)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// Products of layers with weights of relations are as rounded as all others: the kernels train to
// the losses of the reference, which are not those of float32. The loss of one run may be, by
// chance.
func TestRelationsInBF16(t *testing.T) {
	s := shardtest.Cut(t, typedData(t, 1), shardtest.Options{Parts: 1})
	for _, kind := range []string{"rgcn", "sage", "gat", "gatv2"} {
		o := learnedOptions(kind)
		o.Epochs, o.EvalEvery = 1, 1
		loss := func(open func() (compute.Device, error)) (loss float64) {
			err := comm.RunWorld(1, func(c comm.Comm) error {
				dev, err := open()
				if err != nil {
					return err
				}
				got, err := Run(context.Background(),
					Env{Env: session.Env{Comm: c, Shards: s, Device: dev, Host: ref.Host{},
						Workers: 2}, Dir: t.TempDir()}, o)
				if err == nil {
					loss = got.TrainLoss
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return loss
		}
		rounded, off := 0.0, 0.0
		for o.Seed = range uint64(4) {
			want := loss(func() (compute.Device, error) {
				return ref.WithPrecision(compute.PrecisionBF16), nil
			})
			exact := loss(func() (compute.Device, error) { return ref.New(), nil })
			got := loss(func() (compute.Device, error) {
				return cpu.New(cpu.Options{Threads: 2, Precision: compute.PrecisionBF16})
			})
			t.Logf("%s: loss %v, reference %v, in float32 %v", kind, got, want, exact)
			rounded, off = rounded+math.Abs(want-exact), off+math.Abs(got-want)
		}
		if !(off < rounded/2) {
			t.Errorf("%s: losses differ by %v from the reference's; rounding changes these by %v",
				kind, off, rounded)
		}
	}
}
