package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/config"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// stopAfter is a Progress that asks a run to stop after some steps. The run stops one or two steps
// later: the rank may have voted for the next step already.
type stopAfter struct {
	heard
	left int
	stop chan struct{}
}

func (s *stopAfter) Step(float64) {
	if s.left--; s.left == 0 {
		close(s.stop)
	}
}

func (s *stopAfter) Note(_ context.Context, line string) { s.lines = append(s.lines, line) }

// journey is a run in several starts.
type journey struct {
	shards  *shard.Shards
	ranks   int
	dir     string
	node    int      // ranks of a node; 0: one
	workers int      // pool goroutines of a rank; 0: two
	older   bool     // the checkpoint is of a program without a digest of edges
	notes   []string // of the last start
}

// start begins or resumes the run, and stops it soon after step stopAt, or lets it finish if that
// is 0. It returns rank 0's summary.
func (j *journey) start(o Options, stopAt int) (sum *record.Summary, err error) {
	p := &stopAfter{left: stopAt, stop: make(chan struct{})}
	err = comm.RunWorld(j.ranks, func(c comm.Comm) error {
		env := Env{Env: session.Env{Comm: c, RanksPerNode: max(1, j.node), Shards: j.shards,
			Device: ref.New(), Host: ref.Host{}, Workers: cmp.Or(j.workers, 2)},
			Dir: j.dir}
		var err error
		if env.Resume, err = checkpoint.Open(c, j.dir); err != nil {
			return err
		}
		if j.older {
			env.Resume.State.EdgesDigest = ""
		}
		if c.Rank() == 0 {
			env.Progress = p
		}
		if c.Rank() == j.ranks-1 { // one rank suffices, and it need not be rank 0
			env.Stop = p.stop
		}
		s, err := Run(context.Background(), env, o)
		if c.Rank() == 0 {
			sum = s
		}
		return err
	})
	j.notes = p.lines
	return sum, err
}

// stopped starts a run that must stop before its end.
func (j *journey) stopped(t *testing.T, o Options, stopAt int) {
	t.Helper()
	if _, err := j.start(o, stopAt); !errors.Is(err, ErrStopped) {
		t.Fatalf("the run ended with %v, want %v", err, ErrStopped)
	}
}

// finished starts a run that must reach its end.
func (j *journey) finished(t *testing.T, o Options) *record.Summary {
	t.Helper()
	s, err := j.start(o, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// records returns the lines of metrics.jsonl as KIND EPOCH STEP LOSS.
func (j *journey) records(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, rundir.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	var records []string
	for line := range strings.Lines(string(text)) {
		var r struct {
			Kind        string
			Epoch, Step int
			Loss        float64
			LocalRows   int64   `json:"local_rows"`
			Factor      float64 `json:"locality_factor"`
			ValidMetric float64 `json:"valid_metric"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		records = append(records, fmt.Sprint(r))
	}
	return records
}

// sameRun checks that an interrupted run gave the results of an uninterrupted one.
func sameRun(t *testing.T, got, want *record.Summary) {
	t.Helper()
	for _, d := range [][3]any{
		{"loss_digest", got.LossDigest, want.LossDigest},
		{"weights_digest", got.WeightsDigest, want.WeightsDigest},
		{"blocks_digest", got.BlocksDigest, want.BlocksDigest},
		{"edges_digest", got.EdgesDigest, want.EdgesDigest},
		{"best epoch", got.BestEpoch, want.BestEpoch},
		{"valid metric", got.ValidMetric, want.ValidMetric},
		{"test metric", got.TestMetric, want.TestMetric},
		{"train loss", got.TrainLoss, want.TrainLoss}, {"epochs", got.Epochs, want.Epochs},
		{"local rows", got.Local, want.Local},
	} {
		if d[1] != d[2] {
			t.Errorf("%s is %v, without interruption %v", d[0], d[1], d[2])
		}
	}
}

// resumable is a run of 3 epochs of 12 steps on 2 ranks, with dropout, momentum, warm-up and
// patience.
func resumable() Options {
	o := sageOptions()
	o.Epochs, o.Batch, o.Patience = 3, 8, 5
	o.Schedule.Kind, o.Schedule.Warmup = "cosine", 5
	o.Checkpoint.Keep = 3
	return o
}

// A run that is stopped at a random step, once or twice, and resumed with another pipeline and
// another cache, ends with the same bits as an uninterrupted run.
func TestResumeChangesNoBit(t *testing.T) {
	shards := generatedIn(t, 12)
	points := 20
	if testing.Short() {
		points = 4
	}
	for _, ranks := range []int{2, 4} {
		o := resumable()
		whole := journey{shards: shards, ranks: ranks, dir: t.TempDir()}
		want := whole.finished(t, o)
		steps := want.StepsPerEpoch * o.Epochs
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		for point := range points {
			at := 1 + random.IntN(steps-3)
			first, second := o, o
			policies := []string{policy.None, policy.VIP, policy.Prefetch, policy.Sieve,
				policy.Lookahead}
			for _, half := range []*Options{&first, &second} {
				half.Cache.Gamma, half.Cache.Delta, half.Cache.Evict, half.Cache.Initial = 0.9, 4,
					true, policy.Degree
				half.Depth, half.Cache.Policy, half.Cache.Alpha = random.IntN(5),
					policies[random.IntN(len(policies))], 0.3
			}
			t.Run(fmt.Sprintf("%d ranks, seed %d, point %d: step %d, depth %d and %d, cache %s "+
				"and %s", ranks, seed, point, at, first.Depth, second.Depth, first.Cache.Policy,
				second.Cache.Policy), func(t *testing.T) {
				j := journey{shards: shards, ranks: ranks, dir: t.TempDir()}
				j.stopped(t, first, at)
				if point%3 == 0 && at < steps/2 { // again
					j.stopped(t, second, 1+random.IntN(3))
				}
				sameRun(t, j.finished(t, second), want)
				if got, want := j.records(t), whole.records(t); !slices.Equal(got, want) {
					t.Errorf("metrics.jsonl holds\n%s\nwithout interruption\n%s",
						strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// So does a run of each kind of state that a model has: running statistics, a linear map of all
// layers, weights of edges, heads.
func TestResumeOfModelsChangesNoBit(t *testing.T) {
	race.Alone(t)
	shards := shardtest.Open(t,
		dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6, Classes: 4, Seed: 1,
			EdgeWeights: true},
		shardtest.Options{Parts: 4})
	for _, model := range []nn.Config{
		{Kind: "sage", Norm: nn.NormBatch, EdgeWeights: true},
		{Kind: "gcn", Norm: nn.NormBatch, Jumping: nn.JumpCat},
		{Kind: "sage", Norm: nn.NormLayer, Aggregation: nn.AggregateMax, Jumping: nn.JumpMax},
		{Kind: "gat", Norm: nn.NormBatch, Heads: 2, HeadMerge: nn.HeadsMean, Slope: 0.2},
		{Kind: "gatv2", Norm: nn.NormLayer, Heads: 5, HeadMerge: nn.HeadsConcat, Slope: 0.2},
	} {
		t.Run(fmt.Sprintf("%s %s %s %s", model.Kind, model.Norm, model.Aggregation, model.Jumping),
			func(t *testing.T) {
				o := resumable()
				o.Model = model
				o.Model.Layers, o.Model.Hidden, o.Model.Dropout = 3, 5, 0.3
				o.StreamPerPart = true
				whole := journey{shards: shards, ranks: 2, dir: t.TempDir()}
				want := whole.finished(t, o)
				j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
				j.stopped(t, o, 5)
				sameRun(t, j.finished(t, o), want)
			})
	}
}

// A run that goes on in the middle of an epoch tells each rank's rows of the whole epoch, as if
// there had been no interruption, or two.
func TestResumeKeepsTheRowsOfEachRank(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Epochs = 1
	whole := journey{shards: shards, ranks: 4, dir: t.TempDir()}
	whole.finished(t, o)
	want := whole.rowsOfRanks(t)
	j := journey{shards: shards, ranks: 4, dir: t.TempDir()}
	j.stopped(t, o, 1)
	j.stopped(t, o, 1)
	j.finished(t, o)
	if got := j.rowsOfRanks(t); len(want) != 4 || want[3] == 0 || !slices.Equal(got, want) {
		t.Errorf("remote rows of the ranks are %v, without interruption %v", got, want)
	}
	share := func(remote int64, waiting, startup float64) checkpoint.Share {
		return checkpoint.Share{Remote: remote, Waiting: waiting, Startup: startup}
	}
	rows := trace.Counters{Remote: 100}
	s := checkpoint.State{UnderWay: checkpoint.UnderWay{
		Counters: rows, Each: []checkpoint.Share{share(30, 1, 0.5), share(70, 3, 1.5)}, Waiting: 2,
		Startup: 1,
	}}
	for _, c := range []struct {
		rank, ranks int
		want        checkpoint.Share
	}{
		{0, 2, share(30, 1, 0.5)}, {1, 2, share(70, 3, 1.5)},
		{0, 3, share(33, 2, 1)}, {1, 3, share(33, 2, 1)}, {2, 3, share(34, 2, 1)},
	} {
		if got := s.Earlier(c.rank, c.ranks); got != c.want {
			t.Errorf("rank %d of %d has %v, want %v", c.rank, c.ranks, got, c.want)
		}
	}
}

// rowsOfRanks returns remote_rows of every rank in the last epoch.
func (j *journey) rowsOfRanks(t *testing.T) (rows []int64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, rundir.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r record.Epoch
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind == "epoch" {
			rows = rows[:0]
			for _, one := range r.Ranks {
				rows = append(rows, one.Remote)
			}
		}
	}
	return rows
}

// A run that stops by agreement of its ranks releases everything: its goroutines, the heartbeat,
// and the checkpoint that it read.
func TestAStoppedRunGivesEverythingBack(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	dir := t.TempDir()
	before := runtime.NumGoroutine()
	for range 2 {
		p := &stopAfter{left: 2, stop: make(chan struct{})}
		err := comm.RunWorld(2, func(c comm.Comm) error {
			env := Env{Env: session.Env{Comm: c, Shards: shards,
				Device: ref.New(), Host: ref.Host{}, Workers: 2},
				Dir: dir, Stop: p.stop, Stall: time.Minute, OnStall: func(error) {}}
			var err error
			if env.Resume, err = checkpoint.Open(c, dir); err != nil {
				return err
			}
			if c.Rank() == 0 {
				env.Progress = p
			}
			_, err = Run(context.Background(), env, o)
			if env.Resume != nil && env.Resume.Files != nil {
				t.Errorf("rank %d holds the files of the checkpoint", c.Rank())
			}
			return err
		})
		if !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.HeartbeatFile)); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("the heartbeat is left: %v", err)
	}
	for tries := 0; runtime.NumGoroutine() > before; tries++ { // some are ending at this moment
		if tries == 200 {
			t.Fatalf("%d goroutines instead of %d", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// checkpoints lists what is in the directory of checkpoints.
func (j *journey) checkpoints(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(j.dir, rundir.CheckpointsDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// With one stream a part, the run may go on with another number of ranks: the minibatches stay.
func TestResumeOnOtherRanks(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.StreamPerPart = true
	want := (&journey{shards: shards, ranks: 4, dir: t.TempDir()}).finished(t, o)
	j := journey{shards: shards, ranks: 4, dir: t.TempDir()}
	j.stopped(t, o, 2)
	j.ranks = 2
	got := j.finished(t, o)
	if got.EdgesDigest != want.EdgesDigest || len(got.EdgesDigest) != 16 {
		t.Errorf("edges %q, without interruption %q", got.EdgesDigest, want.EdgesDigest)
	}
	if got.BlocksDigest != want.BlocksDigest ||
		got.Local+got.Cached+got.Peer+got.Remote != want.Local+want.Cached+want.Peer+want.Remote {
		t.Errorf("minibatches %s of %d rows, without interruption %s of %d", got.BlocksDigest,
			got.Local+got.Remote, want.BlocksDigest, want.Local+want.Remote)
	}
	if d := got.TrainLoss - want.TrainLoss; d*d > 1e-6 {
		t.Errorf("loss %g, without interruption %g", got.TrainLoss, want.TrainLoss)
	}
	if !slices.ContainsFunc(j.notes,
		func(n string) bool { return strings.HasPrefix(n, "the checkpoint was made by 4 ranks") }) {
		t.Errorf("not told: %q", j.notes)
	}

	o.StreamPerPart = false
	k := journey{shards: shards, ranks: 4, dir: t.TempDir()}
	k.stopped(t, o, 2)
	k.ranks = 2
	if _, err := k.start(o, 0); err == nil || !strings.Contains(err.Error(), "start 4 ranks") {
		t.Errorf("a run of 4 ranks goes on with 2: %v", err)
	}
}

// Where ranks of a node draw by the same numbers, a run goes on where nodes train as many streams
// as before, on any number of nodes, with the same edges, and nowhere else.
func TestResumeOfNumbersOfNodes(t *testing.T) {
	shards := generatedIn(t, 4)
	o := resumable()
	o.StreamPerPart = true
	o.Sample.Kind = sample.Labor
	o.Sample.Numbers = sample.Numbers{Share: sample.InNodes, Dependency: 3}
	want := (&journey{shards: shards, ranks: 4, node: 2, dir: t.TempDir()}).finished(t, o)
	for _, c := range []struct {
		ranks, node int
		refused     string
	}{{4, 2, ""}, {2, 1, ""}, {4, 1, "2 streams, but these nodes have 1"},
		{2, 2, "2 streams, but these nodes have 4"}} {
		j := journey{shards: shards, ranks: 4, node: 2, dir: t.TempDir()}
		j.stopped(t, o, 2)
		j.ranks, j.node = c.ranks, c.node
		got, err := j.start(o, 0)
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%d ranks, %d a node: %v, want %q", c.ranks, c.node, err, c.refused)
			}
		case err != nil:
			t.Fatal(err)
		case got.EdgesDigest != want.EdgesDigest || got.BlocksDigest != want.BlocksDigest:
			t.Errorf("%d ranks, %d a node draw %s, %s, without interruption %s, %s", c.ranks,
				c.node, got.BlocksDigest, got.EdgesDigest, want.BlocksDigest, want.EdgesDigest)
		}
	}
}

// A run keeps the newest checkpoints saved during training, besides the one at its end. Steps take
// a millisecond, less than a write, so the number of checkpoints written varies.
func TestCheckpointsOnTheWay(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Checkpoint = config.Saves{EverySteps: 5, Keep: 3}
	j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := j.finished(t, o)
	names := j.checkpoints(t)
	n := len(names)
	if n < 2 || n > 3 || names[n-1] != filepath.Base(rundir.CheckpointPath(j.dir,
		want.StepsPerEpoch*o.Epochs, true)) {
		t.Fatalf("left are %v", names)
	}
	if want.PhaseSeconds["save"] <= 0 {
		t.Error("nothing says for how long training stood still to save")
	}
	if err := rundir.VerifyCheckpoints(j.dir, checkpoint.Sound); err != nil {
		t.Error(err)
	}
	// A run can go on from a checkpoint saved during training as from one saved at a stop.
	if err := os.RemoveAll(filepath.Join(j.dir, rundir.CheckpointsDir, names[n-1])); err != nil {
		t.Fatal(err)
	}
	sameRun(t, j.finished(t, o), want)
}

// damage holds ways in which a checkpoint on disk may be damaged.
var damage = map[string]func(path string) error{
	"an altered weight": func(path string) error {
		return patched(filepath.Join(path, rundir.ModelFile),
			func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	},
	"a truncated file": func(path string) error {
		return patched(filepath.Join(path, rundir.OptimizerFile),
			func(b []byte) []byte { return b[:len(b)/2] })
	},
	"an altered state": func(path string) error {
		return patched(filepath.Join(path, rundir.StateFile), func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"optimizer_steps": `, `"optimizer_steps": 1`,
				1))
		})
	},
	"an empty state": func(path string) error {
		return patched(filepath.Join(path, rundir.StateFile), func([]byte) []byte { return nil })
	},
	"a file is missing": func(path string) error {
		return os.Remove(filepath.Join(path,
			rundir.ModelFile))
	},
}

func patched(path string, f func([]byte) []byte) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, f(b), 0o666)
}

// A damaged newest checkpoint is reported and set aside, and the one before it used; if none is
// left, the run does not start.
func TestDamagedCheckpoints(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Checkpoint = config.Saves{EverySteps: 5, Keep: 2}
	want := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).finished(t, o)
	for name, strike := range damage {
		t.Run(name, func(t *testing.T) {
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			j.stopped(t, o, 11)
			names := j.checkpoints(t)
			if len(names) != 2 {
				t.Fatalf("there are %v", names)
			}
			if err := strike(filepath.Join(j.dir, rundir.CheckpointsDir, names[1])); err != nil {
				t.Fatal(err)
			}
			if err := rundir.VerifyCheckpoints(j.dir, checkpoint.Sound); err == nil ||
				!strings.Contains(err.Error(), names[1]) {
				t.Errorf("check says %v", err)
			}
			sameRun(t, j.finished(t, o), want)
			if !slices.ContainsFunc(j.notes, func(n string) bool {
				return strings.HasPrefix(n, "a damaged checkpoint") && strings.Contains(n, names[1])
			}) {
				t.Errorf("not told: %q", j.notes)
			}
			if !slices.Contains(j.checkpoints(t), "damaged-"+names[1]) {
				t.Errorf("left are %v", j.checkpoints(t))
			}
		})
		t.Run(name+" everywhere", func(t *testing.T) {
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			j.stopped(t, o, 11)
			for _, n := range j.checkpoints(t) {
				if err := strike(filepath.Join(j.dir, rundir.CheckpointsDir, n)); err != nil {
					t.Fatal(err)
				}
			}
			_, err := j.start(o, 0)
			if !comm.IsAgreed(err) || !strings.Contains(err.Error(), "no checkpoint") ||
				strings.Count(err.Error(), "step-") < 2 {
				t.Errorf("the run ended with %v", err)
			}
		})
	}
}

// The remains of an interrupted write are deleted, and a run killed before its first checkpoint
// begins again.
func TestResumeTidies(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := j.finished(t, o)
	dir := filepath.Join(j.dir, rundir.CheckpointsDir)
	scrap := filepath.Join(dir, ".step-00000002")
	for _, err := range []error{os.RemoveAll(dir), os.MkdirAll(scrap, 0o777),
		os.Remove(filepath.Join(j.dir, rundir.SummaryFile)),
		os.WriteFile(filepath.Join(j.dir, rundir.MetricsFile),
			[]byte(`{"kind":"step","epoch":1,"step":0,"lo`), 0o666)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	sameRun(t, j.finished(t, o), want)
	if names := j.checkpoints(t); len(names) != 1 {
		t.Errorf("left are %v", names)
	}
	if n := len(j.records(t)); n != o.Epochs*(want.StepsPerEpoch+2) {
		t.Errorf("%d records", n)
	}
}

// A finished run is recognised as finished; with more epochs it goes on from its end as if they had
// been configured from the start.
func TestResumeOfAFinishedRun(t *testing.T) {
	shards := generatedIn(t, 12)
	long := resumable()
	long.Schedule.Kind = "constant"
	want := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).finished(t, long)
	short := long
	short.Epochs = 2
	j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	j.finished(t, short)
	err := comm.RunWorld(2, func(c comm.Comm) error {
		ck, err := checkpoint.Open(c, j.dir)
		if err != nil {
			return err
		}
		if !ck.Finished(2, 0) || ck.Finished(3, 0) || ck.Begun() != 2 {
			return fmt.Errorf("finished: %t, with another epoch %t; %d epochs begun",
				ck.Finished(2, 0), ck.Finished(3, 0), ck.Begun())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	sameRun(t, j.finished(t, long), want)
	if got := j.records(t); len(got) != 3*(want.StepsPerEpoch+2) {
		t.Errorf("%d records", len(got))
	}
}

// Patience that has run out stays exhausted after a restart.
func TestResumeKeepsPatience(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Epochs, o.Patience, o.Schedule.Base = 30, 1, 0.3
	j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := j.finished(t, o)
	if want.Epochs == o.Epochs {
		t.Fatalf("patience did not run out in %d epochs", o.Epochs)
	}
	sameRun(t, j.finished(t, o), want)
}

// A run can go on from a checkpoint without a digest of edges; its summary then has none, because
// the digest would lack the edges before the restart.
func TestResumeWithoutDigestOfEdges(t *testing.T) {
	o := resumable()
	j := journey{shards: generatedIn(t, 12), ranks: 2, dir: t.TempDir()}
	j.stopped(t, o, 2)
	j.older = true
	j.stopped(t, o, 3)
	j.older = false
	if got := j.finished(t, o); got.EdgesDigest != "" || got.BlocksDigest == "" {
		t.Errorf("edges %q, blocks %q", got.EdgesDigest, got.BlocksDigest)
	}
}

// oldRun was stopped in its second epoch, by a version whose checkpoints held a whole summary, and
// phases as a list. It has the options of TestOldCheckpointGoesOn.
const oldRun = "testdata/checkpoint-1"

// copyOldRun makes run a copy of oldRun on these parts, with their identity in place of the old
// one, which depends on the format of parts.
func copyOldRun(t *testing.T, run, parts string) {
	t.Helper()
	if err := os.CopyFS(run, os.DirFS(oldRun)); err != nil {
		t.Fatal(err)
	}
	c, err := rundir.NewestCheckpoint(run, nil)
	if err != nil {
		t.Fatal(err)
	}
	var state map[string]json.RawMessage
	if err := json.Unmarshal(c.State, &state); err != nil {
		t.Fatal(err)
	}
	state["parts"] = json.RawMessage(strconv.Quote(parts))
	var files []rundir.File
	for name, data := range c.Files {
		write := func(w io.Writer) error { _, err := w.Write(data); return err }
		files = append(files, rundir.File{Name: name, Write: write})
	}
	if err := os.RemoveAll(c.Path); err != nil {
		t.Fatal(err)
	}
	err = rundir.WriteCheckpoint(c.Path, files, func(rundir.FileSums) any { return state })
	if err != nil {
		t.Fatal(err)
	}
}

// A run resumed from an old checkpoint ends with the numbers and sums of an uninterrupted run.
func TestOldCheckpointGoesOn(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Cache = policy.Settings{Policy: policy.VIP, Alpha: 0.3}
	whole := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := whole.finished(t, o)
	j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	copyOldRun(t, j.dir, shards.Identity())
	err := comm.RunWorld(1, func(c comm.Comm) error {
		ck, err := checkpoint.Open(c, oldRun)
		if err != nil {
			return err
		}
		s := ck.State
		sum := s.Sums
		if s.Epoch != 2 || s.Step != 5 {
			t.Errorf("it stands at epoch %d, step %d", s.Epoch, s.Step)
		}
		if sum.Epochs != 1 || sum.Local != 2174 ||
			sum.PhaseSeconds["sync"] != 0.0017084740000000002 {
			t.Errorf("sums of the first epoch: %+v", s.Sums)
		}
		if rows := s.Counters; rows.Frontier != 1395 || rows.IDBytes != 960 || rows.Evictions != 0 {
			t.Errorf("rows of the epoch under way: %+v", rows)
		}
		if p := s.Phases; len(p) != 10 || p["sample"] != 0.00008463 || p["wait"] != 0.000282073 {
			t.Errorf("phases of the epoch under way: %v", p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := j.finished(t, o)
	if got.EdgesDigest != "" {
		t.Errorf("edges_digest is %s, but the checkpoint has none of its steps", got.EdgesDigest)
	}
	got.EdgesDigest = want.EdgesDigest // the old version had none
	// The checkpoint was made on amd64; other processors may round differently.
	if runtime.GOARCH == "amd64" {
		sameRun(t, got, want)
	}
	got.Edges, got.Loaded = want.Edges, want.Loaded // nor these
	if got.Rows != want.Rows {
		t.Errorf("rows %+v, without interruption %+v", got.Rows, want.Rows)
	}
	if got, want := len(j.records(t)), len(whole.records(t)); got != want {
		t.Errorf("metrics.jsonl holds %d records, without interruption %d", got, want)
	}
}
