package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// heard is a Progress that records its calls.
type heard struct{ lines []string }

func (h *heard) Epoch(epoch, first, steps int) {
	h.lines = append(h.lines, fmt.Sprint("epoch ", epoch, " of ", steps-first))
}
func (h *heard) Begin(string) {}
func (h *heard) End(string)   {}
func (h *heard) Step(float64) { h.lines = append(h.lines, "step") }
func (h *heard) Evaluated(epoch int, line string, _ ...any) {
	metric, _, _ := strings.Cut(line[strings.Index(line, "valid"):], " %")
	h.lines = append(h.lines, fmt.Sprint("evaluated ", epoch, " ", strings.Fields(metric)[1]))
}
func (h *heard) Note(_ context.Context, line string) {
	h.lines = append(h.lines, "note "+strings.Fields(line)[0])
}

func TestProgressHearsOfEveryStep(t *testing.T) {
	shards := generated(t)
	o := sageOptions()
	o.Batch, o.GlobalBatch = 100, true // 180 training seeds: 2 steps
	var h heard
	err := comm.RunWorld(2, func(c comm.Comm) error {
		env := Env{Env: session.Env{Comm: c, Shards: shards,
			Device: ref.New(), Host: ref.Host{}, Workers: 1},
			Dir: t.TempDir()}
		if c.Rank() == 0 {
			env.Progress = &h
		}
		_, err := Run(context.Background(), env, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "epoch 1 of 2, step, step, evaluated 1 accuracy, epoch 2 of 2, step, step, evaluated " +
		"2 accuracy"
	if got := strings.Join(h.lines, ", "); got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
}

// Open writes nothing, whatever error it finds; nor does a Training that is ended before Run.
func TestOpenWritesNothing(t *testing.T) {
	shards, refused := generated(t), errors.New("refused")
	for _, c := range []struct {
		name   string
		bad    func(*Options)
		opened bool
	}{
		{"nothing wrong", func(*Options) {}, true},
		{"a model that cannot be", func(o *Options) { o.Model.Kind = "tree" }, false},
		{"no batch", func(o *Options) { o.Batch = 0 }, false},
	} {
		dir := t.TempDir()
		err := comm.RunWorld(1, func(w comm.Comm) error {
			o := sageOptions()
			c.bad(&o)
			training, err := Open(Env{Env: session.Env{Comm: w, Shards: shards,
				Device: ref.New(), Host: ref.Host{}, Workers: 1},
				Dir: dir}, o)
			if opened := err == nil; opened != c.opened {
				t.Errorf("%s: %v", c.name, err)
			}
			if err != nil {
				return nil
			}
			if err := training.End(comm.AgreedOn(w, refused)); !errors.Is(err, refused) {
				t.Errorf("%s: it ended with %v", c.name, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("%s: the run left %v (%v)", c.name, files, err)
		}
	}
}

// A run that diverges ends with the same error on all ranks, and its log has the steps before.
func TestDivergenceIsAgreedOnAndLogged(t *testing.T) {
	shards := generated(t)
	for _, c := range []struct {
		name    string
		lr      float64
		batch   int
		message string
		logged  string
	}{
		{"in an epoch", 1e30, 20, "the loss is", `{"kind":"step","epoch":1,"step":0,`},
		{"at the last step of all", 1e38, 1000, "predictions", `{"kind":"epoch","epoch":1,`},
	} {
		dir := t.TempDir()
		err := comm.RunWorld(2, func(w comm.Comm) error {
			o := sageOptions()
			o.Optimizer, o.Schedule.Base, o.Batch, o.Epochs = nn.DefaultOptimizer("sgd"), c.lr,
				c.batch, 1
			_, err := Run(context.Background(),
				Env{Env: session.Env{Comm: w, Shards: shards,
					Device: ref.New(), Host: ref.Host{}, Workers: 1},
					Dir: dir}, o)
			if !comm.IsAgreed(err) || !errors.Is(err, nn.ErrDiverged) ||
				!strings.Contains(err.Error(), c.message) {
				return fmt.Errorf("%s: ended with %v", c.name, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if log, err := os.ReadFile(filepath.Join(dir, rundir.MetricsFile)); err != nil ||
			!strings.Contains(string(log), c.logged) {
			t.Errorf("%s: the log is %q (%v)", c.name, log, err)
		}
	}
}

// A run that has chosen its cache keeps the choice over a restart. A run that had not chosen yet,
// or whose cache has changed its size, chooses within the remaining epochs. The summary names the
// policy of the chosen cache and predicts its traffic.
func TestAutoKeepsItsChoiceOverARestart(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	// 3 trials of an epoch each
	o.Epochs, o.Patience, o.Cache.Policy, o.Cache.Alpha = 9, 0, policy.Auto, 0.3
	chooses := func(j *journey) bool {
		return slices.ContainsFunc(j.notes,
			func(line string) bool { return strings.HasPrefix(line, "cache.policy auto chooses ") })
	}
	none := o
	none.Cache.Policy = policy.None
	whole := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := whole.finished(t, none)
	for _, c := range []struct {
		name  string
		steps int
		alpha float64
		again bool
	}{
		{"chosen", 4*want.StepsPerEpoch + 2, 0.3, false},
		{"in a trial", want.StepsPerEpoch + 2, 0.3, true},
		{"chosen for another size", 4*want.StepsPerEpoch + 2, 0.2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			j.stopped(t, o, c.steps)
			if got := chooses(&j); got != (c.steps > 3*want.StepsPerEpoch) {
				t.Errorf("has it chosen before the restart? %v", got)
			}
			second := o
			second.Cache.Alpha = c.alpha
			got := j.finished(t, second)
			if chooses(&j) != c.again {
				t.Errorf("does it choose after the restart? %v, want %v: %q", chooses(&j), c.again,
					j.notes)
			}
			sameRun(t, got, want)
			if got.Cache == nil || !strings.HasPrefix(got.Cache.Chosen, got.Cache.Policy) ||
				got.Cache.Policy != got.CachePolicy {
				t.Errorf("%s: %+v", got.CachePolicy, got.Cache)
			}
			if predicts := got.CachePolicy == policy.VIP ||
				got.CachePolicy == policy.Lookahead; predicts != (got.ExpectedRowsPerStep > 0) {
				t.Errorf("%s: predicts %g rows a step", got.CachePolicy, got.ExpectedRowsPerStep)
			}
		})
	}
}

// Of a sampler without fanouts what is tried follows from none, whatever the topology, and the
// choice holds over a restart.
func TestAutoWithoutFanouts(t *testing.T) {
	shards := generatedIn(t, 12)
	o := drawnBy(sample.LADIES)
	o.Epochs, o.Patience, o.Cache = 12, 0, policy.Settings{Policy: policy.None}
	want := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).finished(t, o)
	o.Cache = policy.Settings{Policy: policy.Auto, Alpha: 0.3, Initial: policy.VIP}
	for _, o.Partitioned = range []bool{false, true} {
		j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
		j.stopped(t, o, 5*want.StepsPerEpoch)
		got := j.finished(t, o)
		sameRun(t, got, want)
		if got.CachePolicy == policy.VIP || got.Cache == nil ||
			!strings.HasPrefix(got.Cache.Chosen, got.CachePolicy) {
			t.Errorf("partitioned %t: %s, %+v", o.Partitioned, got.CachePolicy, got.Cache)
		}
	}
}

// A choice holds for one number of nodes: on a single node nothing is chosen, and on another number
// the run chooses again.
func TestAutoChoosesAgainOnOtherNodes(t *testing.T) {
	o := resumable()
	o.Epochs, o.Patience, o.Cache.Policy, o.Cache.Alpha, o.Cache.Placement = 9, 0,
		policy.Auto, 0.3, policy.PlacementOwn
	j := journey{shards: generatedIn(t, 12), ranks: 2, dir: t.TempDir(), node: 2}
	j.stopped(t, o, 2)
	j.node = 1
	if got := j.finished(t, o); got.Cache == nil ||
		!strings.Contains(got.Cache.Chosen, "rows a step, counted") || got.Nodes != 2 {
		t.Errorf("on two nodes after one: %+v", got.Cache)
	}
}

// Trials of several epochs with a window longer than an epoch: the window ends with the trial.
func TestAutoTriesWindowsOfManyEpochs(t *testing.T) {
	race.Alone(t)
	o := resumable()
	o.Epochs, o.Patience = 36, 0
	shards := generatedIn(t, 12)
	none := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := none.finished(t, o)
	for _, window := range []int{0, 3 * want.StepsPerEpoch} {
		for _, alpha := range []float64{0.1, 0.25} {
			a := o
			a.Cache.Policy, a.Cache.Alpha, a.Cache.Window = policy.Auto, alpha, window
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			j.stopped(t, a, want.StepsPerEpoch+2)
			got := j.finished(t, a)
			sameRun(t, got, want)
			if got.Cache == nil || !strings.Contains(got.Cache.Chosen, "lookahead") {
				t.Errorf("window %d, alpha %g: look-ahead was not tried: %+v", window, alpha,
					got.Cache)
			}
		}
	}
}

// spread is a world whose ranks lie on nodes in turn.
type spread struct {
	comm.Comm
	nodes int
}

func (s spread) Node() (comm.Comm, error) { return s.Split(s.Rank()%s.nodes, s.Rank()) }

// Ranks that share the minibatches of a node are as many on every node, and consecutive: otherwise
// all ranks refuse alike, before a step.
func TestNodesThatCannotShare(t *testing.T) {
	shards := generated(t)
	for _, c := range []struct {
		ranks, perNode, nodes int
		want                  string
	}{
		{3, 2, 1, "rank 2 is one of 1 ranks on a node that begins with rank 2"},
		{6, 4, 1, "rank 4 is one of 2 ranks on a node that begins with rank 4"},
		{6, 0, 2, "rank 1 is one of 3 ranks on a node that begins with rank 1"},
		{6, 3, 2, "run.ranks_per_node is 3, but ranks 0 and 2 are on different nodes"},
	} {
		o := sageOptions()
		o.Mode = job.Mode{Name: parallel.ModeHybrid, Sharing: sample.InNodes}
		err := comm.RunWorld(c.ranks, func(world comm.Comm) error {
			env := Env{Env: session.Env{Comm: spread{world, c.nodes}, RanksPerNode: c.perNode,
				Shards: shards,
				Device: ref.New(), Host: ref.Host{}}}
			_, err := Open(env, o)
			if !comm.IsAgreed(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: rank %d: %v, want %q", c, world.Rank(), err, c.want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
