//go:build cgo

package train

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/checkpoint"
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/cuda"
	"halognn/src/compute/ref"
	"halognn/src/config"
	"halognn/src/dataset"
	"halognn/src/nn"
	"halognn/src/record"
	"halognn/src/residence"
	"halognn/src/rundir"
	"halognn/src/session"
	"halognn/src/shard"
	"halognn/src/shard/shardtest"
)

// gpuRun is a run on a GPU for each rank, whose steps are queued or, if it waits, not: a Probe hears of
// kernels.
type gpuRun struct {
	shards  *shard.Shards
	library string
	ranks   int
	o       Options
	waits   bool
	wrap    func(rank int, d *cuda.Device) compute.Device // nil: the device itself
	stop    chan struct{}                                 // nil: never
	dir     string
}

// start returns rank 0's summary or, if the run ends early, its error.
func (g *gpuRun) start(t *testing.T) (sum *record.Summary, err error) {
	t.Helper()
	w := comm.NewWorld(g.ranks)
	w.Copy = cuda.CopyNow
	var first error
	err = w.Run(func(c comm.Comm) error {
		d, err := cuda.Open(cuda.Options{Device: c.Rank(), Memory: 2 << 20, Library: g.library})
		if err != nil {
			return err
		}
		env := Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: g.shards, Device: d,
			Host: ref.Host{}, Workers: 2, GPU: residence.GPU{Reads: residence.ReadsCopy}}, Dir: g.dir}
		if g.ranks > 1 {
			env.Gradients = "nccl"
		}
		if g.wrap != nil {
			env.Device = g.wrap(c.Rank(), d)
		}
		if g.waits {
			d.Watch(&compute.Probe{OnStart: func(compute.Call) {}, OnDone: func() {}, OnSync: func() {}})
		}
		if c.Rank() == g.ranks-1 {
			env.Stop = g.stop
		}
		if env.Resume, err = checkpoint.Open(c, g.dir); err != nil {
			return errors.Join(err, d.Close())
		}
		s, err := Run(context.Background(), env, g.o)
		if c.Rank() == 0 {
			first = err
		}
		if err != nil {
			return errors.Join(err, d.Close())
		}
		if c.Rank() == 0 {
			sum = s
		}
		return d.Close()
	})
	if first != nil {
		err = first
	}
	return sum, err
}

// steps returns the lines of metrics.jsonl about steps, without times.
func (g *gpuRun) steps(t *testing.T) (all []string) {
	t.Helper()
	f, err := os.Open(filepath.Join(g.dir, rundir.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line["kind"] != "step" {
			continue
		}
		delete(line, "time")
		delete(line, "wait_seconds")
		text, err := json.Marshal(line) // keys in order
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// queueing returns a run of so many ranks, or skips the test.
func queueing(t *testing.T, shards *shard.Shards, ranks int, o Options) *gpuRun {
	t.Helper()
	g := &gpuRun{shards: shards, library: cudaLibrary(t), ranks: ranks, o: o, dir: t.TempDir()}
	if strings.Contains(g.library, "emulated") {
		t.Setenv("HALOGNN_NCCL_LIB", g.library)
	}
	if n, err := cuda.Devices(); err != nil || n < ranks {
		t.Skipf("%d GPUs are needed, this machine has %d, %v", ranks, n, err)
	}
	return g
}

// Queued steps give the digests, and line by line the metrics, of steps for which the host waits.
func TestQueuedStepsAreThoseThatWait(t *testing.T) {
	shards := generated(t)
	for i, c := range []struct {
		name  string
		ranks int
		set   func(*Options)
	}{
		{"one rank", 1, func(*Options) {}},
		{"several minibatches a step, saves", 1, func(o *Options) {
			o.StreamPerPart, o.Checkpoint = true, config.Saves{EverySteps: 3, Keep: 2}
		}},
		{"two ranks, saves", 2, func(o *Options) { o.Checkpoint = config.Saves{EverySteps: 2, Keep: 2} }},
		{"sgd, jumping, two ranks, several minibatches", 2, func(o *Options) {
			o.Optimizer, o.Model.Jumping = nn.DefaultOptimizer("sgd"), nn.JumpMax
			o.StreamPerPart = true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 1 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			c.set(&o)
			run := func(waits bool) (*record.Summary, []string) {
				g := queueing(t, shards, c.ranks, o)
				g.waits = waits
				s, err := g.start(t)
				if err != nil {
					t.Fatal(err)
				}
				return s, g.steps(t)
			}
			want, lines := run(true)
			got, queued := run(false)
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest ||
				got.BlocksDigest != want.BlocksDigest || got.TrainLoss != want.TrainLoss {
				t.Errorf("queued steps give %s, %s, %s; others %s, %s, %s", got.LossDigest,
					got.WeightsDigest, got.BlocksDigest, want.LossDigest, want.WeightsDigest,
					want.BlocksDigest)
			}
			if !slices.Equal(queued, lines) {
				t.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(queued, "\n"),
					strings.Join(lines, "\n"))
			}
		})
	}
}

// spoiling is a device whose layers' output, or last gradient, has a NaN at some call.
type spoiling struct {
	*cuda.Device
	calls    int
	backward bool
}

func (s *spoiling) spoil(x compute.Matrix) {
	if s.calls--; s.calls == 0 && x.Rows > 0 {
		s.Device.Upload(x.Data[:1], []float32{float32(math.NaN())})
	}
}

func (s *spoiling) Dense(y compute.Matrix, d compute.Dense) {
	s.Device.Dense(y, d)
	if !s.backward {
		s.spoil(y)
	}
}

func (s *spoiling) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, d compute.Dense) {
	if s.backward {
		s.spoil(dy)
	}
	s.Device.DenseBackward(g, dy, y, d)
}

// A run that diverges ends with the error of one whose host waits, and with its metrics: the loss too
// large, not finite, by a layer's output on one rank, by a gradient in the step before.
func TestQueuedDivergence(t *testing.T) {
	shards := generated(t)
	for i, c := range []struct {
		name     string
		ranks    int
		lr       float64
		calls    int // of the last rank
		backward bool
		says     string
	}{
		{"an output", 1, 0.01, 3*5 + 2, false, "output of layer 1, at vertex"},
		{"a gradient", 1, 0.01, 3*4 + 1, true, "the gradient of layer"},
		{"a loss", 1, 1e4, 0, false, "the loss is"},
		{"an output of a rank", 2, 0.01, 3*3 + 1, false, "(rank 1)"},
		{"a loss beyond the bound", 2, 1e5, 0, false, "the loss is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 2 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			o.Optimizer, o.Schedule.Base = nn.DefaultOptimizer("sgd"), c.lr
			o.Checkpoint = config.Saves{EverySteps: 4, Keep: 9}
			run := func(waits bool) (string, []string) {
				g := queueing(t, shards, c.ranks, o)
				g.waits = waits
				g.wrap = func(rank int, d *cuda.Device) compute.Device {
					if rank < c.ranks-1 || c.calls == 0 {
						return d
					}
					return &spoiling{Device: d, calls: c.calls, backward: c.backward}
				}
				_, err := g.start(t)
				if !errors.Is(err, nn.ErrDiverged) {
					t.Fatalf("the run ended with %v", err)
				}
				return strings.ReplaceAll(err.Error(), g.dir, "DIR"), g.steps(t)
			}
			want, lines := run(true)
			got, queued := run(false)
			if got != want || !strings.Contains(got, c.says) {
				t.Errorf("the error is\n%s\nwant\n%s\nwith %q", got, want, c.says)
			}
			if !slices.Equal(queued, lines) {
				t.Errorf("the metrics are %v, want %v", queued, lines)
			}
		})
	}
}

// stopping is a device that closes a channel in some forward pass.
type stopping struct {
	*cuda.Device
	calls int
	stop  chan struct{}
}

func (s *stopping) Dense(y compute.Matrix, d compute.Dense) {
	s.Device.Dense(y, d)
	if s.calls--; s.calls == 0 {
		close(s.stop)
	}
}

// A run that is stopped among queued steps goes on to the digests of one that is not; one rank alone
// stops where a host that waits does.
func TestQueuedStops(t *testing.T) {
	shards := generated(t)
	o := sageOptions()
	o.Checkpoint = config.Saves{EveryMinutes: 1e6, Keep: 2}
	for _, ranks := range []int{1, 2} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			if ranks > 1 && testing.Short() {
				t.Skip("-short")
			}
			whole := queueing(t, shards, ranks, o)
			want, err := whole.start(t)
			if err != nil {
				t.Fatal(err)
			}
			stopped := func(waits bool) (g *gpuRun, said string) {
				g = queueing(t, shards, ranks, o)
				g.waits, g.stop = waits, make(chan struct{})
				g.wrap = func(rank int, d *cuda.Device) compute.Device {
					if rank < ranks-1 {
						return d
					}
					return &stopping{d, 3*2 + 1, g.stop}
				}
				_, err := g.start(t)
				if !errors.Is(err, ErrStopped) {
					t.Fatalf("the run ended with %v", err)
				}
				said, _, _ = strings.Cut(err.Error(), ";")
				return g, said
			}
			g, said := stopped(false)
			if _, waited := stopped(true); ranks == 1 && said != waited {
				t.Errorf("%s; where the host waits: %s", said, waited)
			}
			g.wrap, g.stop = nil, nil
			got, err := g.start(t)
			if err != nil {
				t.Fatal(err)
			}
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest ||
				got.BlocksDigest != want.BlocksDigest {
				t.Error("the run that was stopped has other digests")
			}
			if all, some := whole.steps(t), g.steps(t); !slices.Equal(all, some) {
				t.Errorf("the metrics are %v, want %v", some, all)
			}
		})
	}
}

// In a steady step the host waits once for kernels, and once, while it prepares a minibatch, for the
// copy of an earlier one; nothing is allocated, nothing copied but the minibatch and the result. An
// epoch reads the weights besides.
func TestOneWaitAStep(t *testing.T) {
	library := cudaLibrary(t)
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 600, Degree: 6, Features: 4,
		Classes: 3, Seed: 1, Split: "60/20/20"}, shardtest.Options{Parts: 1})
	o := sageOptions()
	o.Model.Hidden, o.EvalEvery, o.Batch, o.Patience = 4, 0, 60, 0
	before, steps := launchesOf(t, library, shards, o, 3)
	after, _ := launchesOf(t, library, shards, o, 4)
	if before == nil {
		t.Skip("the library counts nothing: it is not emulated")
	}
	if steps < 4 {
		t.Fatalf("%d steps an epoch", steps)
	}
	for name, most := range map[string]int{
		"wait for kernels": steps + 1, "wait for copies": steps, "copy up": steps, "copy down": steps,
		"pageable copy": 1, "spin": 1, "allocation": 0,
	} {
		if got := after[name] - before[name]; got > most {
			t.Errorf("an epoch of %d steps has %d of %q, want %d", steps, got, name, most)
		}
	}
	if got := after["wait for kernels"] - before["wait for kernels"]; got < steps {
		t.Errorf("the host waits %d times in %d steps", got, steps)
	}
}
