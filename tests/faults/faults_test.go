//go:build faults

// Package faults kills, stops, starves and deceives ranks of a training job under mpirun, and holds
// every job to the same outcome: it ends soon, with one message, leaves no process and no half file
// behind, and the next start comes to the bits of a run in which nothing happened.
//
//	go test -tags "$HALOGNN_TAGS,faults" ./tests/faults -faults 50 -seed 1
//
// Every kind of fault comes once at each of its points, or of few faults once at any of them; the
// rest are drawn at random from the seed, which is printed.
package faults

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"halognn/src/base/fault"
	"halognn/src/runs/config"
	"halognn/src/step/parallel"
)

var (
	wanted = flag.Int("faults", 50, "how many faults to inject")
	seed   = flag.Uint64("seed", 1, "of the random ones")
	only   = flag.String("only", "", "of them, those whose description has this")
)

const (
	epochs     = 3
	everySteps = 3
	// Guards against jobs that hang: however busy a machine is, it ends a job sooner.
	death   = 3 * time.Minute
	healthy = death // for a job that is refused
)

const jobConfig = `
model: {layers: 2, hidden: 8}
sample: {fanouts: [4, 2], batch: 64}
train: {epochs: 3, lr: 0.01}
pipeline: {workers: 1}
exchange: {window: 4000}
compute: {threads: 1}
run: {progress: lines, ranks_per_node: 1, stall_seconds: 6}
checkpoint: {every_steps: 3}
`

// unhurried makes steps long enough for a checkpoint every few of them to be written in time, as in
// any run worth saving.
const unhurried = "forward=slow:60@-1:-1:-1"

// kind is one way for a job to go wrong.
type kind struct {
	name   string
	points []string // at which it can be injected; none for what is done from outside
	action string
	codes  []int         // with which the job may end
	says   string        // pattern of the one message; "" if the launcher alone knows
	within time.Duration // from the fault to the end of the job
	starts bool          // the run has begun: the next start resumes it. Otherwise it starts anew
	each   bool          // every rank may meet it, and say so
}

// A fault at a point of training happens in the step that it names; preparation is steps ahead.
var (
	// on a partitioned topology alone, or where ranks share minibatches
	asking    = []string{fault.Ask, fault.Reply}
	preparing = slices.Concat([]string{fault.Sample, fault.Exchange, fault.Share}, asking)
	training  = []string{fault.Forward, fault.Shuffle, fault.Allreduce}
	working   = slices.Concat(preparing, training)
)

// died is what another rank says of one that was killed.
const died = "rank R, on the node of rank .* was killed"

var kinds = []kind{
	{name: "kill -9", points: slices.Concat(working,
		[]string{fault.CheckpointWrite, fault.CheckpointRename, fault.Evaluate, fault.Metrics,
			fault.Finish, fault.Results}), action: "kill", codes: killed, says: died, within: death,
		starts: true},
	{name: "kill -9", points: []string{fault.Start, fault.Shard}, action: "kill", codes: killed,
		says: died, within: death},
	{name: "SIGSTOP", points: append([]string{fault.Evaluate, fault.Finish}, working...),
		action: "stop", codes: []int{5}, says: `no sign of life from rank R,`, within: death,
		starts: true},
	{name: "I/O error", points: working, action: "fail", codes: []int{1}, says: "injected at",
		within: death, starts: true},
	{name: "I/O error", points: []string{fault.Shard}, action: "fail", codes: []int{3},
		says: "rank R: injected at", within: death},
	{name: "full disk", points: []string{fault.CheckpointWrite, fault.CheckpointRename,
		fault.Metrics, fault.Results}, action: "full", codes: []int{1}, says: "no space left",
		within: death, starts: true},
	{name: "disk that fills up", action: "fill", codes: []int{1}, says: "no space left",
		within: death, starts: true},
	{name: "no memory", points: []string{fault.Alloc}, action: "memory", codes: []int{1},
		says: `rank R: .*needs \d+ bytes more .*cannot allocate memory`, within: death},
	{name: "no memory", points: []string{fault.Forward}, action: "memory", codes: []int{1},
		says: `rank R: .*needs \d+ bytes more .*cannot allocate memory`, within: death,
		starts: true},
	{name: "NaN", points: []string{fault.Loss}, action: "nan", codes: []int{4},
		says: "the first number that was not finite: .*rank R", within: death, starts: true},
	{name: "slow rank", points: []string{fault.Forward, fault.Allreduce}, action: "slow:60",
		codes: []int{0}, within: death, starts: true},
	{name: "truncated shard", action: "truncate", codes: []int{3}, says: `features.*npy`,
		within: healthy},
	{name: "altered shard", action: "alter", codes: []int{3}, says: `features.*npy`,
		within: healthy},
	{name: "file shrinks under a run", action: "shrink", codes: []int{1},
		says: `features.*npy.*shrank`, within: death, starts: true, each: true},
	{name: "file is overwritten under a run", action: "overwrite", codes: []int{3},
		says: `indices.npy: altered`, within: death, starts: true, each: true},
}

// killed is what launchers make of a rank's death by SIGKILL.
var killed = []int{137, 9, 1}

// injection is one fault at one place.
type injection struct {
	kind
	point             string
	ranks             int
	rank, epoch, step int
	mode              string // parallel.mode
	model             string // of models
	device            string // compute.device; "" is the default
	plumbing          []string
}

func (i injection) String() string {
	where := fmt.Sprintf(", mode %s, %s, %v", i.mode, i.model, i.plumbing)
	if i.point == "" {
		return fmt.Sprintf("%s, %d ranks%s", i.name, i.ranks, where)
	}
	return fmt.Sprintf("%s at %s, rank %d of %d, epoch %d, step %d%s", i.name, i.point, i.rank,
		i.ranks, i.epoch, i.step, where)
}

// spec is the injection as HALOGNN_FAULTS has it. Some points know no epoch or step.
func (i injection) spec() string {
	epoch, step := -1, -1
	switch i.point {
	case "":
		return ""
	case fault.Evaluate:
		epoch = i.epoch
	case fault.Sample, fault.Ask, fault.Reply, fault.Exchange, fault.Share, fault.Forward,
		fault.Shuffle, fault.Allreduce, fault.Loss:
		epoch, step = i.epoch, i.step
	}
	return fmt.Sprintf("%s=%s@%d:%d:%d", i.point, i.action, i.rank, epoch, step)
}

// modes are those of the jobs; a run without faults has the same digest wherever its topology lies,
// whatever it caches, and whether or not owners add rows.
var modes = []string{parallel.ModeData, parallel.ModeSplit, parallel.ModeHybrid,
	parallel.ModePushPull}

// models are models with their samplers; what a mode refuses of them is not drawn.
var models = map[string][]string{
	plain:                   nil,
	"gat":                   {"model.kind=gat", "model.activation=elu", "model.norm=layer"},
	"gatv2 with batch norm": {"model.kind=gatv2", "model.norm=batch", "model.jumping=cat"},
	"gcn by labor":          {"model.kind=gcn", "sample.kind=labor", "sample.dependency=2"},
	"gcn by poisson":        {"model.kind=gcn", "sample.kind=poisson"},
	"gin by ladies":         {"model.kind=gin", "sample.kind=ladies", "sample.layer_vertices=200"},
	"gcn by poisson, near": {"model.kind=gcn", "model.gcn_norm=both", "sample.kind=poisson",
		"sample.locality=4", "cache.policy=vip"},
	"gin by ladies, adapting": {"model.kind=gin", "sample.kind=ladies",
		"sample.layer_vertices=200", "sample.locality=8", "sample.locality_adapt=true",
		"cache.policy=sim"},
}

// plain is the model of the config.
const plain = "sage"

// setting is what the numbers of a run depend on.
type setting struct {
	ranks       int
	mode, model string
	device      string
}

// args are the arguments of the job from its beginning; one that resumes takes them from its run.
func (i injection) args(l *lab, parts, run string) []string {
	args := append(l.args(parts, run), i.setting().args()...)
	for _, set := range i.plumbing {
		args = append(args, "--set", set)
	}
	return args
}

// args are those that make the setting. In hybrid two ranks are a node.
func (s setting) args() []string {
	args := []string{"--set", "parallel.mode=" + s.mode}
	if s.mode == parallel.ModeHybrid {
		args = append(args, "--set", "run.ranks_per_node=2")
	}
	for _, set := range models[s.model] {
		args = append(args, "--set", set)
	}
	if s.device != "" {
		args = append(args, "--set", "compute.device="+s.device)
	}
	return args
}

func (i injection) setting() setting { return setting{i.ranks, i.mode, i.model, i.device} }

// place draws where a fault of a kind happens.
func (l *lab) place(random *rand.Rand, k kind, point string) injection {
	i := injection{kind: k, point: point, ranks: 2}
	if random.IntN(4) == 0 || point == fault.Share {
		i.ranks = 4
	}
	i.rank, i.epoch = random.IntN(i.ranks), 1+random.IntN(epochs)
	if slices.Contains([]string{fault.CheckpointWrite, fault.CheckpointRename, fault.Metrics,
		fault.Results}, point) {
		i.rank = 0 // it alone writes
	}
	for accepted := false; !accepted; {
		i.draw(random)
		sets := append([]string{"parallel.mode=" + i.mode, "sample.fanouts=4,2", "model.layers=2"},
			slices.Concat(models[i.model], i.plumbing)...)
		_, err := config.WithDefaults(sets)
		accepted = err == nil
	}
	steps := l.spared(setting{ranks: i.ranks, mode: i.mode, model: plain}).steps
	i.step = random.IntN(steps) // as many in each model
	return i
}

// draw draws the job that meets a fault, of the cells of docs/combinations.md and some more; not
// all can be trained. A fault where ranks ask others takes a topology on which they do.
func (i *injection) draw(random *rand.Rand) {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	switch i.mode = one(modes...); {
	case i.point == fault.Shuffle && i.mode == parallel.ModeData:
		i.mode = parallel.ModeSplit
	case i.point == fault.Reply:
		i.mode = one(parallel.ModeData, parallel.ModePushPull)
	case i.point == fault.Share:
		i.mode = parallel.ModeData
	}
	i.model = one(slices.Sorted(maps.Keys(models))...)
	topology := one("replicated", "partitioned")
	if i.mode == parallel.ModeData && slices.Contains(asking, i.point) || i.point == fault.Reply {
		topology = "partitioned"
	}
	i.plumbing = []string{"topology.kind=" + topology, "exchange.sums=" + one("off", "on"),
		"cache.initial=degree"}
	if i.point == fault.Share {
		i.plumbing = append(i.plumbing, "exchange.nodes=on", "run.ranks_per_node=2")
	}
	if !slices.ContainsFunc(models[i.model],
		func(set string) bool { return strings.HasPrefix(set, "cache.") }) {
		i.plumbing = append(i.plumbing, "cache.policy="+one("none", "vip", "sim", "prefetch",
			"lookahead", "lookahead"), "cache.alpha=0.3")
	}
}

// injections returns every kind at every point of it, and then random ones; of fewer than that,
// every kind once and some of the rest.
func (l *lab) injections() (all []injection) {
	random := rand.New(rand.NewPCG(*seed, 99))
	type at struct {
		kind
		point string
	}
	var first, rest []at
	for _, k := range kinds {
		if k.action == "fill" && l.disk == "" {
			continue
		}
		points := k.points
		if points == nil {
			points = []string{""}
		}
		chosen := random.IntN(len(points))
		for n, p := range points {
			if n == chosen {
				first = append(first, at{k, p})
			} else {
				rest = append(rest, at{k, p})
			}
		}
	}
	random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	every := slices.Concat(first, rest)
	for n := range max(*wanted, len(first)) {
		if n >= len(every) {
			every = append(every, every[random.IntN(len(first)+len(rest))])
		}
		all = append(all, l.place(random, every[n].kind, every[n].point))
	}
	return slices.DeleteFunc(all,
		func(i injection) bool { return !strings.Contains(i.String(), *only) })
}

func TestFaults(t *testing.T) {
	l := newLab(t)
	fmt.Printf("seed %d\n", *seed)
	good, mostLost := 0, 0
	all := l.injections()
	injected, required := map[string]int{}, map[string]int{}
	for n, i := range all {
		where, name := l.dir, fmt.Sprintf("run-%04d", n)
		if i.action == "fill" {
			where = l.disk
		}
		run := filepath.Join(where, name)
		o := l.inject(i, run)
		mostLost = max(mostLost, o.lost)
		injected[i.name]++
		word := "as required"
		if len(o.faults) == 0 {
			good++
			required[i.name]++
		} else {
			word = "NOT as required"
			t.Errorf("%v:\n  %s\n%s", i, strings.Join(o.faults, "\n  "), o.text)
		}
		fmt.Printf("%3d  code %3d  %5.1f s after it  %-15s  %v\n", n+1, o.code, o.took.Seconds(),
			word, i)
		if err := errors.Join(os.RemoveAll(run),
			os.RemoveAll(filepath.Join(l.dir, name+"-parts"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(injected)) {
		fmt.Printf("%-34s %3d of %3d as required\n", name, required[name], injected[name])
	}
	fmt.Printf("%d faults injected, %d with the required outcome; at most %d steps lost\n",
		len(all), good, mostLost)
}

// Faults in the steps that a GPU queues, of which one more is under way when the host hears of it.
func TestFaultsOfQueuedSteps(t *testing.T) {
	if *wanted < 50 {
		t.Skip("of fewer than 50 faults none is on a GPU")
	}
	library, err := filepath.Abs("../../build/libhalognn_cuda_emulated.so")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); err != nil {
		t.Skipf("%v: `make emulated` builds the emulated CUDA library", err)
	}
	t.Setenv("HALOGNN_CUDA_LIB", library)
	l := newLab(t)
	for n, k := range kinds {
		for _, p := range k.points {
			if !slices.Contains([]string{fault.Forward, fault.Allreduce, fault.Loss}, p) ||
				!slices.Contains([]string{"kill", "fail", "memory", "nan"}, k.action) {
				continue
			}
			if k.action == "kill" {
				k.says = "" // there is no other rank to say it
			}
			i := injection{kind: k, point: p, ranks: 1, epoch: 2, step: 4, mode: parallel.ModeData,
				model: plain, device: "cuda"}
			o := l.inject(i, filepath.Join(l.dir, fmt.Sprintf("queued-%d-%s", n, p)))
			if len(o.faults) > 0 {
				t.Errorf("%v:\n  %s\n%s", i, strings.Join(o.faults, "\n  "), o.text)
			}
		}
	}
}
