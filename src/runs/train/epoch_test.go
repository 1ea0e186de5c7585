package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/rundir"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/infer"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/step/residence"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// allToAlls is a communicator that counts the all-to-alls started on it and on its duplicates.
type allToAlls struct {
	comm.Comm
	n    int64
	asks *atomic.Int64 // with ids or neighbours behind counts, on all of them
}

func (c *allToAlls) StartAlltoallv(
	send, recv []byte, sendRows, recvRows []int, rowBytes int,
) comm.Request {
	c.n++ // no race: only the issuer starts all-to-alls while training runs
	return c.Comm.StartAlltoallv(send, recv, sendRows, recvRows, rowBytes)
}

func (c *allToAlls) StartAlltoallThen(
	send, recv []byte, sendRows, recvRows []int, rowBytes int, then comm.Then,
) comm.Request {
	c.n++
	c.asks.Add(1)
	return c.Comm.StartAlltoallThen(send, recv, sendRows, recvRows, rowBytes, then)
}

func (c *allToAlls) Dup() (comm.Comm, error) {
	d, err := c.Comm.Dup()
	return &allToAlls{Comm: d, asks: c.asks}, err
}

// rounds_per_step is the number of collectives started on the communicator of feature rows, divided
// by the steps of the run: two for each minibatch that a rank trains, for any cache, depth and
// number of nodes. Evaluation with all neighbours has communicators of its own.
func TestRoundsAreTheCollectivesStarted(t *testing.T) {
	shards := generated(t)
	for _, c := range []struct {
		name           string
		ranks, perNode int
		policy         string
		depth          int
		perPart        bool
		want           float64
		asNodes        bool // of two collectives more, which ranks of a node start for themselves
	}{
		{"two nodes", 2, 1, policy.None, 2, false, 2, false},
		{"one node", 2, 2, policy.None, 1, false, 2, false},
		{"one rank", 1, 1, policy.None, 2, false, 2, false},
		{"nothing ahead", 3, 1, policy.VIP, 0, false, 2, false},
		{"a cache that changes", 2, 1, policy.Lookahead, 2, false, 2, false},
		{"three parts a rank", 2, 1, policy.Prefetch, 3, true, 6, false},
		{"nodes that fetch as one", 3, 2, policy.VIP, 2, false, 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sageOptions()
			o.EvalFull, o.Depth, o.StreamPerPart, o.AsNodes = true, c.depth, c.perPart, c.asNodes
			o.Cache = policy.Settings{Policy: c.policy, Alpha: 0.3, Gamma: 0.9, Delta: 4,
				Evict: true, Initial: policy.Degree}
			dir := t.TempDir()
			err := comm.RunWorld(c.ranks, func(w comm.Comm) error {
				training, err := Open(
					Env{Env: session.Env{Comm: &allToAlls{Comm: w, asks: new(atomic.Int64)},
						RanksPerNode: c.perNode, Shards: shards,
						Device: ref.New(), Host: ref.Host{}, Workers: 2},
						Dir: dir}, o)
				if err != nil {
					return err
				}
				features := training.run.s.Features.Comm.(*allToAlls)
				s, err := training.Run(context.Background(), nil)
				if err != nil {
					return err
				}
				steps := s.StepsPerEpoch * s.Epochs
				got := float64(features.n) / float64(steps)
				if c.asNodes {
					got += 2
				}
				if got != c.want || s.CollectivesPerStep != got {
					return fmt.Errorf(
						"rank %d: %d collectives in %d steps, rounds_per_step %g, want %g",
						w.Rank(), features.n, steps, s.CollectivesPerStep, c.want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(filepath.Join(dir, rundir.MetricsFile))
			if err != nil {
				t.Fatal(err)
			}
			steps := 0 // of the epoch
			for line := range strings.Lines(string(log)) {
				var record struct {
					Kind   string
					Rounds float64
				}
				if err := json.Unmarshal([]byte(line), &record); err != nil {
					t.Fatal(err)
				}
				switch record.Kind {
				case "step":
					steps++
					if record.Rounds != c.want {
						t.Errorf("a step of %g rounds, want %g", record.Rounds, c.want)
					}
				case "epoch":
					if steps == 0 || record.Rounds != c.want*float64(steps) {
						t.Errorf("an epoch of %d steps and %g rounds", steps, record.Rounds)
					}
					steps = 0
				}
			}
		})
	}
}

// On a partitioned topology a minibatch of three hops takes 2L collectives, whatever draws: ids and
// neighbours for two hops, ids and rows. What the last evaluation takes two runs have alike.
func TestRoundsOnAPartitionedTopology(t *testing.T) {
	shards := generated(t)
	for _, kind := range []sample.Kind{sample.Neighbour, sample.Labor, sample.Poisson,
		sample.LADIES} {
		err := comm.RunWorld(2, func(w comm.Comm) error {
			var started, steps [2]int64
			for k := range started {
				o := drawnBy(kind)
				o.Partitioned, o.EvalEvery, o.Epochs = true, 0, 1+2*k
				o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.3,
					Initial: policy.Degree}
				asks := new(atomic.Int64)
				training, err := Open(Env{Env: session.Env{Comm: &allToAlls{Comm: w, asks: asks},
					RanksPerNode: 1, Shards: shards, Device: ref.New(), Host: ref.Host{},
					Workers: 2},
					Dir: t.TempDir()}, o)
				if err != nil {
					return err
				}
				features := training.run.s.Features.Comm.(*allToAlls)
				asks.Store(0)
				s, err := training.Run(context.Background(), nil)
				if err != nil {
					return err
				}
				// rows are the half of what the features' communicator has carried
				started[k], steps[k] = asks.Load()+features.n/2, int64(s.StepsPerEpoch*s.Epochs)
				if s.CollectivesPerStep != 6 {
					return fmt.Errorf("%s: rounds_per_step %g", kind, s.CollectivesPerStep)
				}
			}
			if n := steps[1] - steps[0]; n == 0 || started[1]-started[0] != 6*n {
				return fmt.Errorf("%s: %d collectives in %d steps", kind, started[1]-started[0], n)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The error about different numbers of collectives names the ranks.
func TestCollectivesMustBeEqual(t *testing.T) {
	all := shares{each: []share{{Collectives: 36}, {Collectives: 36}}}
	if err := all.sameCollectives(); err != nil {
		t.Error(err)
	}
	all.each = append(all.each, share{Collectives: 33})
	err := all.sameCollectives()
	if err == nil ||
		!strings.Contains(err.Error(), "rank 0 has started 36, but rank 2 has started 33") {
		t.Errorf("36, 36 and 33 collectives: %v", err)
	}
}

// Balanced weights follow from the counts of the training seeds and reach the loss: a run with the
// same weights in its config has the same losses, a run without weights has others.
func TestClassWeightsReachTheLoss(t *testing.T) {
	digest := func(ranks int, change func(o *Options)) (sum *record.Summary) {
		t.Helper()
		shards, o := generated(t), sageOptions()
		change(&o)
		err := comm.RunWorld(ranks, func(c comm.Comm) error {
			env := Env{Env: sessiontest.Env(c, shards),
				Dir: t.TempDir()}
			s, err := Run(context.Background(), env, o)
			if c.Rank() == 0 {
				sum = s
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	shards := generated(t)
	count, total := make([]float64, 4), 0.0
	for p := range shards.Meta.Parts {
		for _, v := range shards.Train(p) {
			count[npy.View[int32](shards.Labels().Data)[v]]++
			total++
		}
	}
	weights := make([]float64, 4)
	for c, n := range count {
		weights[c] = total / (4 * n)
	}
	plain := digest(2, func(*Options) {})
	balanced := digest(2, func(o *Options) { o.Loss.Balanced = true })
	spelled := digest(2, func(o *Options) { o.Loss.Weights = weights })
	smooth := digest(2, func(o *Options) { o.Loss.Smoothing = 0.1 })
	if balanced.LossDigest != spelled.LossDigest {
		t.Errorf("balanced %s, spelled out %s", balanced.LossDigest, spelled.LossDigest)
	}
	if balanced.LossDigest == plain.LossDigest || smooth.LossDigest == plain.LossDigest {
		t.Errorf("plain %s, balanced %s, smooth %s", plain.LossDigest, balanced.LossDigest,
			smooth.LossDigest)
	}
	// The confusion matrix is that of the test set, whose right predictions lie on its diagonal.
	tested, right := int64(0), int64(0)
	for i, row := range plain.Confusion {
		for j, n := range row {
			tested += n
			if i == j {
				right += n
			}
		}
	}
	want := 0
	for p := range shards.Meta.Parts {
		want += len(shards.Test(p))
	}
	if int(tested) != want || float64(right)/float64(tested) != plain.TestAccuracy.Value {
		t.Errorf("%d of %d right in the matrix; %d tested, accuracy %g", right, tested, want,
			plain.TestAccuracy.Value)
	}
}

// Numbers far from 0 are learned as well as others, predictions are in their unit, the digest is
// that of any number of ranks, and the run and an inference judge alike.
func TestNumbersAreLearnedInTheirUnit(t *testing.T) {
	labels, split := make([]float32, 2*90), graph.Split{}
	for v := range 90 {
		s := math.Sin(float64(v * 6))
		labels[2*v], labels[2*v+1] = float32(5000+100*s), float32(-0.02*s)
		list := []*[]graph.VertexID{&split.Train, &split.Train, &split.Valid, &split.Test}[v%4]
		*list = append(*list, graph.VertexID(v))
	}
	s := sessiontest.Handmade(t, 2, dataset.Meta{Task: task.Regression, Classes: 2},
		mem.Bytes(labels), split)
	for _, loss := range []string{task.LossAuto, task.LossHuber} {
		o := sageOptions()
		o.Model.Layers, o.Model.Dropout, o.Sample.Fanouts, o.Epochs = 2, 0, []int{3, 3}, 30
		o.Metric, o.Loss.Loss = "r2", loss
		digest := ""
		for _, ranks := range []int{1, 2} {
			o.StreamPerPart = true
			j := journey{shards: s, ranks: ranks, dir: t.TempDir()}
			sum := j.finished(t, o)
			if sum.TestMetric.Value < 0.8 || !sum.TestMetric.Known {
				t.Errorf("%s: r2 of the test vertices is %+v", loss, sum.TestMetric)
			}
			if n := sum.Numbers; sum.TestAccuracy != nil || sum.ValidAccuracy != nil ||
				len(n) != 3 || n["r2"] != sum.TestMetric.Value ||
				!(n["mae"] > 0 && n["mae"] <= n["rmse"]) {
				t.Errorf("%s: %v beside accuracies %v, %v", loss, n, sum.TestAccuracy,
					sum.ValidAccuracy)
			}
			if digest != "" && sum.LossDigest != digest {
				t.Errorf("%s: digest %s on %d ranks, %s on one", loss, sum.LossDigest, ranks,
					digest)
			}
			digest = sum.LossDigest
			m, err := infer.ReadModel(j.dir)
			if err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "numbers.npy")
			if err := comm.RunWorld(2, func(c comm.Comm) error {
				done, err := infer.Predict(context.Background(), sessiontest.Env(c, s), o.Spec, m,
					infer.Request{Full: true, Path: out, Metric: o.Metric})
				if err == nil && done.Judged[0].Metric != sum.TestMetric {
					t.Errorf("it judges %+v, the run %+v", done.Judged, sum.TestMetric)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			f, err := npy.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := f.Rows(4)
			if y := npy.View[float32](rows); err != nil || f.Shape[1] != 2 || y[0] < 4800 ||
				y[0] > 5200 {
				t.Errorf("%v, shape %v, first row %v", err, f.Shape, y[:2])
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Numbers that are the same for all training vertices end the run before the first step, on every
// rank.
func TestConstantNumbersAreRefused(t *testing.T) {
	labels := make([]float32, 90)
	labels[89] = 1
	s := sessiontest.Handmade(t, 2, dataset.Meta{Task: task.Regression, Classes: 1},
		mem.Bytes(labels), graph.Split{Train: []graph.VertexID{0, 1, 2, 3},
			Valid: []graph.VertexID{89}})
	o := sageOptions()
	o.Model.Layers, o.Sample.Fanouts = 1, []int{3}
	j := journey{shards: s, ranks: 2, dir: t.TempDir()}
	_, err := j.start(o, 0)
	if err == nil || !strings.Contains(err.Error(), "target 0 is 0 for all 4 training vertices") {
		t.Errorf("%v", err)
	}
}

// Every phase that a run goes through has a positive time, no time is negative, and the policy's
// phase equals the sum of the times in the records of rows.
func TestPhasesOfARun(t *testing.T) {
	shards := generatedIn(t, 12)
	for _, c := range []struct {
		policy string
		depth  int
	}{
		{policy.None, 0}, {policy.VIP, 2}, {policy.Prefetch, 0}, {policy.Prefetch, 2},
		{policy.Lookahead, 1},
	} {
		t.Run(c.policy, func(t *testing.T) {
			o := resumable()
			o.Depth, o.Checkpoint.EverySteps = c.depth, 6
			o.Cache = policy.Settings{
				Policy: c.policy, Alpha: 0.3, Gamma: 0.9, Delta: 4, Evict: true,
				Initial: policy.Degree,
			}
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			s := j.finished(t, o)
			for p := range trace.NumPhases {
				took := s.PhaseSeconds[p.String()]
				none := p == trace.Ask || p == trace.Shuffle ||
					p == trace.Score && policy.Find(c.policy).Static()
				if took < 0 || (took == 0) != none {
					t.Errorf("phase %s took %g s", p, took)
				}
			}
			got := s.PhaseSeconds["score"] * float64(s.Ranks)
			if math.Abs(got-s.ScoreSeconds) > 1e-9 {
				t.Errorf("the ranks scored for %g s, but score_seconds is %g", got, s.ScoreSeconds)
			}
			if len(s.PhaseSeconds) != int(trace.NumPhases) {
				t.Errorf("%d phases, want %d", len(s.PhaseSeconds), trace.NumPhases)
			}
		})
	}
}

// A run resumed in the middle of an epoch keeps the times of the phases before the restart, by
// name.
func TestPhasesGoOn(t *testing.T) {
	state := &checkpoint.State{
		Place:    checkpoint.Place{Epoch: 3, Step: 1},
		UnderWay: checkpoint.UnderWay{Phases: map[string]float64{"slice": 1.5, "save": 0.25}},
	}
	r := &run{env: Env{Resume: &checkpoint.Checkpoint{State: state}}, s: &session.Session{
		Env:   session.Env{Comm: comm.NewWorld(1).Rank(0)},
		Cache: &residence.Cache{Settings: policy.Settings{Policy: policy.None}},
	}}
	r.beginEpoch(3)
	for p, took := range r.clock.Seconds() {
		if name := trace.Phase(p).String(); took != state.Phases[name] {
			t.Errorf("phase %s begins at %g s, want %g", name, took, state.Phases[name])
		}
	}
}

// startups returns the start-up and waiting times of the epochs in metrics.jsonl, and rank 0's wait
// before the first minibatch of each, from the record of that step.
func (j *journey) startups(t *testing.T) (startup, wait, first []float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, rundir.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r struct {
			Kind    string
			Step    int
			Wait    float64            `json:"wait_seconds"`
			Startup float64            `json:"startup_seconds"`
			Phases  map[string]float64 `json:"phase_seconds"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Kind == "epoch":
			startup, wait = append(startup, r.Startup), append(wait, r.Phases["wait"])
		case r.Kind == "step" && r.Step == 0:
			first = append(first, r.Wait)
		}
	}
	return startup, wait, first
}

// Start-up is the wait before the first minibatch of an epoch: on one rank, the wait of the first
// step; with one step an epoch, the whole wait.
func TestStartupIsTheFirstWait(t *testing.T) {
	shards := generatedIn(t, 12)
	for _, c := range []struct {
		name         string
		ranks, batch int
		depth        int
	}{
		{"one rank", 1, 8, 2}, {"one rank, nothing ahead", 1, 8, 0}, {"one step", 2, 1000, 2},
		{"two ranks", 2, 8, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := resumable()
			o.Batch, o.Depth = c.batch, c.depth
			j := journey{shards: shards, ranks: c.ranks, dir: t.TempDir()}
			s := j.finished(t, o)
			startup, wait, first := j.startups(t)
			if len(startup) != o.Epochs || len(first) != o.Epochs {
				t.Fatalf("%d epochs with %d first steps, want %d", len(startup), len(first),
					o.Epochs)
			}
			mean := 0.0
			for i, got := range startup {
				mean += got / float64(o.Epochs)
				switch {
				case got <= 0 || got > wait[i]+1e-9:
					t.Errorf("epoch %d: %g s of start-up in %g s of waiting", i+1, got, wait[i])
				case c.ranks == 1 && math.Abs(got-first[i]) > 1e-9:
					t.Errorf("epoch %d: %g s of start-up, the first step waited for %g s", i+1, got,
						first[i])
				case s.StepsPerEpoch == 1 && math.Abs(got-wait[i]) > 1e-9:
					t.Errorf("epoch %d: %g s of start-up, one step waited for %g s", i+1, got,
						wait[i])
				}
			}
			if math.Abs(s.StartupSeconds-mean) > 1e-9 || s.StartupFraction <= 0 ||
				s.StartupFraction > s.WaitFraction+1e-9 {
				t.Errorf("summary: %g s of start-up, want %g; %g of an epoch of which %g is "+
					"waiting", s.StartupSeconds, mean, s.StartupFraction, s.WaitFraction)
			}
			if s.StepsPerEpoch == 1 && math.Abs(s.StartupFraction-s.WaitFraction) > 1e-9 {
				t.Errorf("start-up is %g of an epoch, waiting %g; there is one step",
					s.StartupFraction, s.WaitFraction)
			}
		})
	}
}

// An epoch that is cut in two by a restart has filled its pipeline twice.
func TestStartupOverARestart(t *testing.T) {
	o := resumable()
	o.Epochs = 1
	j := journey{shards: generatedIn(t, 12), ranks: 2, dir: t.TempDir()}
	j.stopped(t, o, 4)
	saved, err := rundir.NewestCheckpoint(j.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var state checkpoint.State
	if err := json.Unmarshal(saved.State, &state); err != nil {
		t.Fatal(err)
	}
	s := j.finished(t, o)
	if state.Startup <= 0 || len(state.Each) != 2 || s.StartupSeconds <= state.Startup {
		t.Errorf("%g s of start-up in all, %g before the restart (%+v)", s.StartupSeconds,
			state.Startup, state.Each)
	}
}

// The set-up before the first step is itemised: the items add up to the total, which is less than
// the time of the run, and ranking and filling appear if there is a cache.
func TestSetUpIsItemised(t *testing.T) {
	shards := generatedIn(t, 12)
	for _, c := range []struct {
		name, policy string
		node         int
		placement    string
		took         []string // items present, of those that a run may lack
	}{
		{"no cache", policy.None, 1, policy.PlacementOwn, nil},
		{"one node", policy.VIP, 2, policy.PlacementOwn, nil},
		{"a static cache", policy.VIP, 1, policy.PlacementOwn, []string{"rank", "predict", "fill"}},
		{"a cache of a node", policy.VIP, 2, policy.PlacementGroup,
			[]string{"rank", "predict", "fill"}},
		{"a buffer", policy.Prefetch, 1, policy.PlacementOwn, []string{"rank", "fill"}},
		{"looking ahead", policy.Lookahead, 1, policy.PlacementOwn,
			[]string{"rank", "predict", "fill"}},
		{"auto", policy.Auto, 1, policy.PlacementOwn, []string{"choose"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := resumable()
			o.Epochs = 1
			o.Cache = policy.Settings{
				Policy: c.policy, Alpha: 0.3, Gamma: 0.9, Delta: 4, Evict: true,
				Initial: policy.Degree, Placement: c.placement, PeerCost: 0.1,
			}
			begun := time.Now()
			j := journey{shards: shards, ranks: 2, node: c.node, dir: t.TempDir()}
			if c.placement == policy.PlacementGroup {
				j.ranks = 4
			}
			j.finished(t, o)
			whole := time.Since(begun).Seconds()
			var s struct {
				Total float64            `json:"setup_seconds"`
				Items map[string]float64 `json:"setup"`
			}
			text, err := os.ReadFile(filepath.Join(j.dir, rundir.SummaryFile))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for item, took := range s.Items {
				sum += took
				// The last three are measured by the caller.
				may := []string{"choose", "rank", "predict", "fill", "launch", "open", "verify"}
				if always := !slices.Contains(may, item); always && took <= 0 {
					t.Errorf("%s took %g s", item, took)
				}
				if want := slices.Contains(c.took, item); slices.Contains(may, item) &&
					c.policy != policy.Auto && (took > 0) != want {
					t.Errorf("%s took %g s", item, took)
				}
			}
			if c.policy == policy.Auto && s.Items["choose"] <= 0 {
				t.Error("nothing was chosen")
			}
			if math.Abs(sum-s.Total) > 1e-3 || s.Total <= 0 || s.Total >= whole {
				t.Errorf("items add up to %g s, setup_seconds is %g, the whole run took %g", sum,
					s.Total, whole)
			}
		})
	}
}
