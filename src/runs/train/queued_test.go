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
	"sync"
	"testing"
	"time"

	"halognn/src/data/dataset"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cuda"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/config"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
)

// gpuRun is a run on a GPU for each rank, whose steps are queued or, if it waits, not: a Probe
// hears of kernels.
type gpuRun struct {
	shards  *shard.Shards
	library string
	ranks   int
	o       Options
	rounds  compute.Precision // of the GPU; "" is float32
	waits   bool
	trace   string
	wrap    func(rank int, d *cuda.Device) compute.Device // nil: the device itself
	stop    chan struct{}                                 // nil: never
	opened  func(*Training)                               // on rank 0; may be nil
	told    Progress                                      // on rank 0; may be nil
	dir     string
}

// start returns rank 0's summary or, if the run ends early, its error: that of the job, with the
// rank that has failed, unless all ranks agree on it.
func (g *gpuRun) start(t *testing.T) (sum *record.Summary, err error) {
	t.Helper()
	w := comm.NewWorld(g.ranks)
	w.Copy = cuda.CopyNow
	var first, agreed error
	var mu sync.Mutex // guards agreed
	err = w.Run(func(c comm.Comm) error {
		d, err := cuda.Open(cuda.Options{Device: c.Rank(), Memory: 2 << 20, Library: g.library,
			Precision: g.rounds})
		if err != nil {
			return err
		}
		env := Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: g.shards, Device: d,
			Host: ref.Host{}, Workers: 2, GPU: residence.GPU{Reads: residence.ReadsCopy}},
			Dir: g.dir, Trace: g.trace}
		if g.ranks > 1 {
			env.Gradients = "nccl"
		}
		if g.wrap != nil {
			env.Device = g.wrap(c.Rank(), d)
		}
		if g.waits {
			d.Watch(&compute.Probe{OnStart: func(compute.Call) {}, OnDone: func() {},
				OnSync: func() {}})
		}
		if c.Rank() == g.ranks-1 {
			env.Stop = g.stop
		}
		if env.Resume, err = checkpoint.Open(c, g.dir); err != nil {
			return errors.Join(err, d.Close())
		}
		if c.Rank() == 0 {
			env.Progress = g.told
		}
		tr, err := Open(env, g.o)
		var s *record.Summary
		if err == nil {
			if c.Rank() == 0 && g.opened != nil {
				g.opened(tr)
			}
			s, err = tr.Run(context.Background(), nil)
		}
		if c.Rank() == 0 {
			first = err
		}
		if err != nil && comm.IsAgreed(err) {
			// Every rank ends in order, as in the program: none is to end its peers.
			mu.Lock()
			agreed = err
			mu.Unlock()
			return d.Close()
		}
		if err != nil {
			return errors.Join(err, d.Close())
		}
		if c.Rank() == 0 {
			sum = s
		}
		return d.Close()
	})
	if comm.IsAgreed(first) {
		err = first
	}
	if err == nil && first == nil && agreed != nil {
		err = fmt.Errorf("rank 0 ended well, but another rank says that all agree on: %w", agreed)
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

// Queued steps give the digests, and line by line the metrics, of steps for which the host waits;
// the emulated device counts that it waits less often.
func TestQueuedStepsAreThoseThatWait(t *testing.T) {
	shards := generated(t)
	for i, c := range []struct {
		name   string
		ranks  int
		rounds compute.Precision
		set    func(*Options)
	}{
		{"one rank", 1, "", func(*Options) {}},
		{"several minibatches a step, saves", 1, "", func(o *Options) {
			o.StreamPerPart, o.Checkpoint = true, config.Saves{EverySteps: 3, Keep: 2}
		}},
		{"bf16, of even width, saves", 1, compute.PrecisionBF16, func(o *Options) {
			o.Model.Hidden = 6
			o.Checkpoint = config.Saves{EverySteps: 3, Keep: 2}
		}},
		{"two ranks, saves", 2, "", func(o *Options) {
			o.Checkpoint = config.Saves{EverySteps: 2, Keep: 2}
		}},
		{"sgd, jumping, two ranks, several minibatches", 2, "", func(o *Options) {
			o.Optimizer, o.Model.Jumping = nn.DefaultOptimizer("sgd"), nn.JumpMax
			o.StreamPerPart = true
		}},
		{"gcn in bf16, two ranks", 2, compute.PrecisionBF16,
			func(o *Options) { o.Model.Kind = "gcn" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 1 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			c.set(&o)
			run := func(waits bool) (*record.Summary, []string, int) {
				g := queueing(t, shards, c.ranks, o)
				g.waits, g.rounds = waits, c.rounds
				cuda.Launches()
				s, err := g.start(t)
				if err != nil {
					t.Fatal(err)
				}
				return s, g.steps(t), cuda.Launches()["wait for kernels"]
			}
			want, lines, often := run(true)
			got, queued, seldom := run(false)
			if fewer := often - seldom; often > 0 && fewer <= c.ranks*len(lines) {
				t.Errorf("the host waits %d times less often in %d steps on %d ranks", fewer,
					len(lines), c.ranks)
			}
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

// A minibatch's spans are in the trace under its number, that of the wait for its result too.
func TestQueuedStepsAreTraced(t *testing.T) {
	g := queueing(t, generated(t), 1, sageOptions())
	g.trace = "trace"
	sum, err := g.start(t)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(g.dir, g.trace, "rank-0000.json"))
	if err != nil {
		t.Fatal(err)
	}
	var events []struct {
		Name, Cat string
		Args      struct{ Epoch, Step int }
	}
	if err := json.Unmarshal(text, &events); err != nil {
		t.Fatal(err)
	}
	spans := map[[2]int]int{}
	for _, e := range events {
		if e.Cat == "train" && e.Name == "backward" {
			spans[[2]int{e.Args.Epoch, e.Args.Step}]++
		}
	}
	for epoch := 1; epoch <= sum.Epochs; epoch++ {
		for step := range sum.StepsPerEpoch {
			want := 2 // to queue it, and to wait for it
			if epoch == 1 && step == 0 {
				want = 1
			}
			if got := spans[[2]int{epoch, step}]; got != want {
				t.Errorf("epoch %d, step %d has %d spans of backward, want %d", epoch, step, got,
					want)
			}
		}
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

// A run that diverges ends with the error of one whose host waits, and with its metrics: the loss
// too large, not finite, by a layer's output on one rank, by a gradient in the step before; also
// where a rank whose loss was finite finds another place in the step that was queued meanwhile.
func TestQueuedDivergence(t *testing.T) {
	shards := generated(t)
	for i, c := range []struct {
		name     string
		ranks    int
		lr       float64
		calls    [2]int // of the first and the last rank
		backward bool
		says     string
	}{
		{"an output", 1, 0.01, [2]int{0, 3*5 + 2}, false, "output of layer 1, at vertex"},
		{"a gradient", 1, 0.01, [2]int{0, 3*4 + 1}, true, "the gradient of layer"},
		{"a loss", 1, 1e4, [2]int{}, false, "the loss is"},
		{"an output of a rank, then of another", 2, 0.01, [2]int{3*2 + 1, 3*1 + 2}, false,
			"output of layer 1, at vertex"},
		{"an output of a rank", 2, 0.01, [2]int{0, 3*2 + 1}, false, "(rank 1)"},
		{"a loss beyond the bound", 2, 1e5, [2]int{}, false, "the loss is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 3 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			o.Optimizer, o.Schedule.Base = nn.DefaultOptimizer("sgd"), c.lr
			o.Checkpoint = config.Saves{EverySteps: 4, Keep: 9}
			run := func(waits bool, on string) (string, []string) {
				o := o
				o.DrawOn = on
				g := queueing(t, shards, c.ranks, o)
				g.waits = waits
				g.wrap = func(rank int, d *cuda.Device) compute.Device {
					calls := c.calls[0]
					if rank == c.ranks-1 {
						calls = c.calls[1]
					}
					return &spoiling{Device: d, calls: calls, backward: c.backward}
				}
				_, err := g.start(t)
				if !errors.Is(err, nn.ErrDiverged) {
					t.Fatalf("the run ended with %v", err)
				}
				return strings.ReplaceAll(err.Error(), g.dir, "DIR"), g.steps(t)
			}
			want, lines := run(true, parallel.DrawHost)
			got, queued := run(false, parallel.DrawHost)
			if got != want || !strings.Contains(got, c.says) {
				t.Errorf("the error is\n%s\nwant\n%s\nwith %q", got, want, c.says)
			}
			// The vertex is named that the device has drawn.
			for _, waits := range []bool{true, false} {
				if got, _ := run(waits, parallel.DrawDevice); got != want {
					t.Errorf("drawn on the device the error is\n%s\nwant\n%s", got, want)
				}
			}
			if !slices.Equal(queued, lines) {
				t.Errorf("the metrics are %v, want %v", queued, lines)
			}
		})
	}
}

// calling is a device that calls a function in some forward pass, when all earlier work is done.
type calling struct {
	*cuda.Device
	calls int
	f     func()
}

func (c *calling) Dense(y compute.Matrix, d compute.Dense) {
	if c.calls--; c.calls == 0 {
		if err := c.Sync(); err != nil {
			panic(err)
		}
		c.f()
	}
	c.Device.Dense(y, d)
}

func fail() { panic(errOutOfOrder) }

var errOutOfOrder = errors.New("out of order")

// A step that is finished when the next one fails is in the metrics.
func TestFinishedStepIsRecorded(t *testing.T) {
	shards := generated(t)
	run := func(waits bool) []string {
		g := queueing(t, shards, 1, sageOptions())
		g.waits = waits
		g.wrap = func(_ int, d *cuda.Device) compute.Device { return &calling{d, 3*5 + 2, fail} }
		if _, err := g.start(t); !errors.Is(err, errOutOfOrder) {
			t.Fatalf("the run ended with %v", err)
		}
		return g.steps(t)
	}
	want := run(true)
	if got := run(false); len(want) != 5 || !slices.Equal(got, want) {
		t.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// recording is a Progress that calls a function when some step is recorded.
type recording struct {
	heard
	steps int
	f     func()
}

func (r *recording) Step(float64) {
	if r.steps--; r.steps == 0 {
		r.f()
	}
}

// Where another goroutine's failure takes the step that is unsettled, or none as the one before is
// being settled, the run ends before it saves a state without that step, and lines stay in order.
func TestQueuedStepIsTaken(t *testing.T) {
	shards := generated(t)
	o := sageOptions()
	o.Checkpoint = config.Saves{EverySteps: 4, Keep: 9}
	whole := queueing(t, shards, 1, o)
	want, err := whole.start(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		dense, steps int // the call of Dense, or the step that is recorded, where it fails
		lines        int
	}{
		{"in the queue, before a save", 3*3 + 2, 0, 3},
		{"in the queue, after a save", 3*5 + 2, 0, 5},
		{"being settled", 0, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := queueing(t, shards, 1, o)
			var run *run
			take := func() {
				if err := run.s.Device.Sync(); err != nil {
					t.Error(err)
				}
				for range 2 { // several goroutines may fail
					if write := run.s.BeforeAbort(); write != nil {
						write()
					}
				}
			}
			g.opened = func(tr *Training) { run = tr.run }
			g.wrap = func(_ int, d *cuda.Device) compute.Device {
				return &calling{d, c.dense, take}
			}
			g.told = &recording{steps: c.steps, f: take}
			if _, err := g.start(t); !errors.Is(err, errFailed) {
				t.Errorf("the run ended with %v", err)
			}
			// with the process, a write of a checkpoint would have ended too
			if err := run.saver.Wait(); err != nil {
				t.Error(err)
			}
			if got, all := g.steps(t), whole.steps(t); !slices.Equal(got, all[:c.lines]) {
				t.Errorf("the metrics are\n%s", strings.Join(got, "\n"))
			}
			g.opened, g.wrap, g.told = nil, nil, nil
			got, err := g.start(t)
			if err != nil {
				t.Fatal(err)
			}
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest {
				t.Error("the run that has failed has other digests")
			}
		})
	}
}

// A rank that fails frees a peer that has queued steps which need it; the steps that both have done
// are in the metrics, as where the hosts wait, and the error names the rank.
func TestPeerOfQueuedStepsFails(t *testing.T) {
	shards := generated(t)
	run := func(waits bool) []string {
		g := queueing(t, shards, 2, sageOptions())
		g.waits = waits
		recorded := make(chan struct{})
		g.told = &recording{steps: 3, f: func() { close(recorded) }}
		g.wrap = func(rank int, d *cuda.Device) compute.Device {
			if rank == 0 {
				return d
			}
			return &calling{d, 3*3 + 2, func() { <-recorded; fail() }}
		}
		_, err := g.start(t)
		if err == nil || !strings.Contains(err.Error(), errOutOfOrder.Error()) ||
			!strings.Contains(err.Error(), "rank 1") {
			t.Errorf("rank 0 ended with %v", err)
		}
		return g.steps(t)
	}
	want := run(true)
	if got := run(false); len(want) != 3 || !slices.Equal(got, want) {
		t.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// lacking is a device for which no memory can be pinned for the results of queued steps.
type lacking struct{ *cuda.Device }

func (l lacking) Capabilities() compute.Capabilities {
	c := l.Device.Capabilities()
	c.Accelerator = l
	return c
}

func (l lacking) AllocHost(n int) ([]float32, error) {
	if n == 2*nn.HeaderLen {
		return nil, errOutOfOrder
	}
	return l.Device.AllocHost(n)
}

// A rank that lacks memory for queued steps ends the run on all ranks, in order.
func TestQueuedStepsLackMemory(t *testing.T) {
	g := queueing(t, generated(t), 2, sageOptions())
	g.wrap = func(rank int, d *cuda.Device) compute.Device {
		if rank == 0 {
			return d
		}
		return lacking{d}
	}
	if _, err := g.start(t); !comm.IsAgreed(err) ||
		!strings.Contains(err.Error(), errOutOfOrder.Error()) {
		t.Errorf("rank 0 ends with %v", err)
	}
}

// late is a device whose host learns of the end of queued steps some time after it waits for it.
type late struct {
	*cuda.Device
	by time.Duration
}

type lateEvent struct {
	compute.Event
	by time.Duration
}

func (l late) Capabilities() compute.Capabilities {
	c := l.Device.Capabilities()
	c.Accelerator = l
	return c
}

func (l late) NewEvent() (compute.Event, error) {
	e, err := l.Device.NewEvent()
	return lateEvent{e, l.by}, err
}

func (l late) QueueDownload(dst, src []float32, e compute.Event) {
	l.Device.QueueDownload(dst, src, e.(lateEvent).Event)
}

func (e lateEvent) Wait() error {
	time.Sleep(e.by)
	return e.Event.Wait()
}

// The first step of an epoch ends when its result is there, not when it has been queued.
func TestFirstStepIsSettled(t *testing.T) {
	const by = 100 * time.Millisecond
	o := sageOptions()
	o.Epochs, o.EvalEvery = 3, 0
	g := queueing(t, generated(t), 1, o)
	g.wrap = func(_ int, d *cuda.Device) compute.Device { return late{d, by} }
	if _, err := g.start(t); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(g.dir, rundir.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	epochs := 0
	for line := range strings.Lines(string(text)) {
		var r record.Epoch
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind != "epoch" {
			continue
		}
		epochs++
		if r.FirstStep >= r.Seconds || r.Epoch > 1 && r.FirstStep < by.Seconds() {
			t.Errorf("epoch %d takes %g s, its first step %g s", r.Epoch, r.Seconds, r.FirstStep)
		}
	}
	if epochs != o.Epochs {
		t.Errorf("%d epochs are recorded, want %d", epochs, o.Epochs)
	}
}

// A run that is stopped among queued steps goes on to the digests of one that is not; one rank
// alone stops where a host that waits does.
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
					return &calling{d, 3*2 + 1, func() { close(g.stop) }}
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

// In a steady step the host waits once for kernels, and once, while it prepares a minibatch, for
// the copy of an earlier one; nothing is allocated, nothing copied but the minibatch and the
// result. An epoch reads the weights besides.
func TestOneWaitAStep(t *testing.T) {
	library := cudaLibrary(t)
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 600, Degree: 6, Features: 4,
		Classes: 3, Seed: 1, Split: "60/20/20"}, shardtest.Options{Parts: 1})
	o := sageOptions()
	o.Model.Hidden, o.EvalEvery, o.Batch, o.Patience = 4, 0, 60, 0
	// A minibatch that the device draws has one more copy up, of the seeds, and one more down, of
	// the sizes of what was drawn, for which a preparing goroutine waits. Nothing more is uploaded
	// in a step.
	for on, each := range map[string]int{parallel.DrawHost: 1, parallel.DrawDevice: 2} {
		o.DrawOn = on
		before, steps := launchesOf(t, library, "", shards, o, 3)
		after, _ := launchesOf(t, library, "", shards, o, 4)
		if before == nil {
			t.Skip("the library counts nothing: it is not emulated")
		}
		if steps < 4 {
			t.Fatalf("%d steps an epoch", steps)
		}
		if drawn := after["draw/begin"] > 0; drawn != (on == parallel.DrawDevice) {
			t.Errorf("sample.on %s: the device draws: %v", on, drawn)
		}
		for name, want := range map[string]int{
			"wait for kernels": each*steps + 1, "wait for copies": steps, "copy up": each * steps,
			"copy down": each * steps, "pageable copy": 1, "spin": 1, "allocation": 0,
		} {
			if name == "allocation" && on == parallel.DrawDevice {
				// Buffers grow in the first epochs, which minibatch fills which differs by run.
				continue
			}
			if got := after[name] - before[name]; got != want {
				t.Errorf("sample.on %s: an epoch of %d steps has %d of %q, want %d", on, steps, got,
					name, want)
			}
		}
	}
}
