// Command grid holds two builds of halognn to the same numbers: it runs both over a grid of
// policies, streams, depths, ranks, nodes, models, transports and resumptions of small graphs of
// every kind, and prints every case whose digests or row counts differ. It is how a change of
// structure shows that it changed no number.
//
//	go run ./tests/grid PROGRAM            prints the numbers of one build, a line a case
//	go run ./tests/grid BEFORE AFTER       prints what differs; exit code 1 if anything does, or if
//	                                       a case has no numbers
//	go run ./tests/grid -random 2000 BEFORE AFTER
//	                                       the same for random settings, half of them refused
//
// With -mpirun the grid has runs under that launcher too. Numbers are only comparable on one
// machine: digests depend on the kernels that its processor takes.
package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

var (
	mpirun = flag.String("mpirun", "", "the launcher of the builds' MPI; empty leaves its runs out")
	match  = flag.String("match", "", "only cases whose name has this word")
	jobs   = flag.Int("jobs", runtime.NumCPU(), "cases that run at a time")
	drawn  = flag.Int("random", 0, "that many random settings instead of the grid")
	from   = flag.Uint64("from", 1, "the seed of the first; the others follow")
)

func main() {
	flag.Parse()
	if n := flag.NArg(); n < 1 || n > 2 {
		fmt.Fprintln(os.Stderr,
			"usage: grid [-mpirun LAUNCHER] [-match WORD] [-jobs N] [-random N] [-from SEED] "+
				"PROGRAM [PROGRAM]")
		os.Exit(2)
	}
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "grid:", err)
		os.Exit(1)
	}
}

func run(programs []string) error {
	dir, err := os.MkdirTemp("", "halognn-grid-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var builds []*build
	for i, p := range programs {
		b := &build{program: p, dir: filepath.Join(dir, fmt.Sprint(i))}
		if err := b.prepare(); err != nil {
			return err
		}
		builds = append(builds, b)
	}
	before, after := builds[0], builds[len(builds)-1]
	cases := grid()
	switch {
	case *drawn > 0:
		cases = random(*drawn, *from)
	case len(builds) == 2:
		cases = append(cases, crossing(before)...)
	}
	cases = slices.DeleteFunc(cases,
		func(c gridCase) bool { return !strings.Contains(c.name, *match) })
	differ, wants := make([]bool, len(cases)), make([]string, len(cases))
	text := make([]string, len(cases))
	each(len(cases), func(i int) {
		c := cases[i]
		want := c.result(before)
		wants[i] = want
		if len(builds) == 1 {
			text[i] = fmt.Sprintf("%-58s %s\n", c.name, want)
			return
		}
		if got := c.result(after); got != want {
			differ[i] = true
			text[i] = fmt.Sprintf("%s\n  before %s\n  after  %s\n", c.name, want, got)
		}
	})
	for _, t := range text {
		fmt.Print(t)
	}
	if len(builds) == 1 {
		return nil
	}
	n, refusals, empty := 0, 0, 0
	for i, want := range wants {
		if differ[i] {
			n++
		}
		if want == refused {
			refusals++
		}
		// random settings may be refused
		if strings.HasPrefix(want, failed) || want == refused && *drawn == 0 {
			fmt.Printf("%s\n  has no numbers: %s\n", cases[i].name, want)
			empty++
		}
	}
	fmt.Printf("%d cases, %d refused, %d differ\n", len(cases), refusals, n)
	if n+empty > 0 {
		return fmt.Errorf("of %d cases %d differ, and %d compare nothing", len(cases), n, empty)
	}
	return nil
}

// each calls f for 0 to n-1, as many at a time as -jobs says.
func each(n int, f func(i int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range *jobs {
		wait.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}

// build is a program with the data that it made.
type build struct{ program, dir string }

// config has every key whose default a release may change.
const config = `data: {verify: sizes}
model: {layers: 2, hidden: 16}
sample: {fanouts: "5,5", batch: 50}
train: {epochs: 2, lr: 0.01, eval_every: 1, eval_mode: sampled}
cache: {policy: none, alpha: 0.2, gamma: 0.9, delta: 4}
checkpoint: {every_steps: 0, every_minutes: 0}
compute: {threads: 1}
`

// prepare makes the graph and its parts.
func (b *build) prepare() error {
	if err := os.MkdirAll(b.dir, 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(b.path("config.yaml"), []byte(config), 0o666); err != nil {
		return err
	}
	return b.prepareGraphs()
}

func (b *build) path(name string) string { return filepath.Join(b.dir, name) }

func (b *build) run(args ...string) (string, error) {
	out, err := exec.Command(b.program, args...).CombinedOutput()
	return string(out), err
}

// fresh returns the name of a new directory.
func (b *build) fresh() (string, error) {
	dir, err := os.MkdirTemp(b.dir, "run-")
	return filepath.Join(dir, "out"), err
}

// gridCase is one line of the grid. result returns its numbers, or what went wrong.
type gridCase struct {
	name   string
	result func(b *build) string
}

// policies are those of cache.policy with the settings they are tried with.
var policies = []string{
	"none", "degree", "halo1", "wpr", "paths", "sim", "vip", "oracle", "prefetch", "sieve",
	"lookahead",
}

func grid() []gridCase {
	var all []gridCase
	add := func(ranks int, mpi bool, sets ...string) {
		transport := "in process"
		if mpi {
			transport = "mpi"
		}
		name := fmt.Sprintf("train %d ranks %s %s", ranks, transport, strings.Join(sets, " "))
		all = append(all, gridCase{name,
			func(b *build) string { return b.train(ranks, mpi, sets) }})
	}
	apart := "run.ranks_per_node=1"
	for _, p := range policies {
		policy := "cache.policy=" + p
		for _, ranks := range []int{2, 4} {
			for _, streams := range []string{"rank", "part"} {
				add(ranks, false, policy, "sample.streams="+streams, apart)
			}
		}
		add(4, false, policy, "run.ranks_per_node=2")
		add(4, false, policy, "sample.seeds=global", "sample.batch_scope=global", apart)
		add(1, false, policy)
		all = append(all, gridCase{"resume " + p, func(b *build) string { return b.resume(b, p) }})
	}
	for _, depth := range []string{"0", "1", "5"} {
		for _, p := range []string{"none", "vip", "prefetch", "sieve", "lookahead"} {
			add(2, false, "cache.policy="+p, "pipeline.depth="+depth, "sample.streams=part", apart)
		}
	}
	for _, sets := range [][]string{
		{"model.kind=mlp"}, {"model.norm=layer", "train.optimizer=adamw",
			"train.weight_decay=0.01"},
		{"train.optimizer=sgd", "train.schedule=cosine", "train.warmup_steps=3"},
		{"train.schedule=step", "train.step_epochs=1"},
		{"train.eval_mode=full", "train.patience=1"},
		{"train.eval_every=0"}, {"compute.device=ref"}, {"compute.threads=2", "pipeline.workers=3"},
		{"topology.load=copy"}, {"sample.fanouts=-1,3"}, {"model.layers=3", "sample.fanouts=4,3,2"},
		{"cache.policy=vip", "cache.placement=group", "run.ranks_per_node=2"},
		{"cache.policy=degree", "cache.placement=group", "cache.peer_cost=0.5",
			"run.ranks_per_node=2"},
		{"cache.policy=prefetch", "cache.initial=vip", "cache.scores=compact", apart},
		{"cache.policy=prefetch", "cache.evict=false", apart},
		{"cache.policy=prefetch", "cache.halo_hops=1", "cache.halo_fraction=0.3", apart},
		{"cache.policy=degree", "cache.halo_hops=1", apart},
		{"cache.policy=lookahead", "cache.window=3", apart},
		{"cache.policy=lookahead", "cache.level=true", apart},
		{"cache.policy=vip", "train.seed=7", apart},
	} {
		add(4, false, sets...)
	}
	for _, ranks := range []int{1, 2, 4} {
		for _, mode := range []string{"full", "sampled"} {
			name := fmt.Sprintf("infer %s %d ranks", mode, ranks)
			all = append(all, gridCase{name, func(b *build) string { return b.infer(ranks, mode) }})
		}
	}
	for _, g := range graphs {
		for _, sets := range slices.Concat(g.cases, g.trained) {
			sets = append(sets, "run.ranks_per_node=2")
			name := fmt.Sprintf("train %s 4 ranks in process %s", g.name, strings.Join(sets, " "))
			all = append(all, gridCase{name, func(b *build) string {
				return b.train(4, false, append(sets, "data.parts="+b.path(g.name)))
			}})
		}
		for i, sets := range g.cases {
			name := fmt.Sprintf("plan %s %s", g.name, strings.Join(sets, " "))
			all = append(all, gridCase{name, func(b *build) string {
				return b.plan(append(sets, "data.parts="+b.path(g.name)))
			}})
			if i == 0 {
				name := fmt.Sprintf("simulate %s", g.name)
				all = append(all, gridCase{name, func(b *build) string {
					args := []string{"--parts", b.path(g.name)}
					for _, s := range sets {
						args = append(args, "--set", s)
					}
					return b.simulate(cmp.Or(g.policies, "none,degree,vip,prefetch,lookahead"),
						args)
				}})
			}
		}
	}
	for _, args := range [][]string{
		{}, {"--set", "sample.streams=part", "--ranks", "2"}, {"--set", "sample.seeds=global"},
		{"--ranks-per-node", "2"}, {"--set", "cache.halo_hops=1", "--set", "cache.initial=vip"},
		{"--last-short"}, {"--set", "sample.batch_scope=global"},
	} {
		name := "simulate " + strings.Join(args, " ")
		of := strings.Join(policies, ",") + ",optimum"
		if slices.Contains(args, "--last-short") {
			of = "none,degree,vip,oracle"
		}
		all = append(all, gridCase{name, func(b *build) string { return b.simulate(of, args) }})
	}
	for _, args := range [][]string{
		{}, {"--ranks-per-node", "2"}, {"--set", "sample.seeds=global"},
		{"--set", "sample.kind=ladies", "--set", "sample.layer_vertices=200"},
	} {
		name := strings.Join(append([]string{"simulate modes"}, args...), " ")
		all = append(all, gridCase{name, func(b *build) string { return b.modes(args) }})
	}
	for _, p := range policies {
		all = append(all, gridCase{"plan " + p, func(b *build) string {
			return b.plan([]string{"cache.policy=" + p})
		}})
	}
	all = append(all, gridCase{"blocks", (*build).blocks})
	if *mpirun != "" {
		for _, p := range []string{"none", "vip", "prefetch", "sieve", "lookahead"} {
			add(2, true, "cache.policy="+p, apart, "sample.streams=part")
			add(4, true, "cache.policy="+p, apart)
		}
		for _, mode := range []string{"split", "hybrid", "push-pull"} {
			add(4, true, "parallel.mode="+mode, "run.ranks_per_node=2")
		}
		add(4, true, "parallel.mode=split", "sample.kind=ladies", "sample.layer_vertices=200")
	}
	return all
}

// choices are what random settings are drawn from: half of the time the first.
var choices = []struct {
	key    string
	values []string
}{
	{"parallel.mode", []string{"data", "split", "hybrid", "push-pull"}},
	{"topology.kind", []string{"replicated", "partitioned"}},
	{"model.kind", []string{"sage", "gcn", "gin", "gat", "gatv2", "mlp"}},
	{"model.aggregation", []string{"mean", "max"}},
	{"model.norm", []string{"none", "layer", "batch"}},
	{"model.jumping", []string{"none", "cat", "max"}},
	{"sample.kind", []string{"neighbour", "labor", "poisson", "ladies"}},
	{"sample.layer_vertices", []string{"200"}},
	{"sample.seeds", []string{"local", "global"}},
	{"sample.streams", []string{"rank", "part"}},
	{"sample.locality", []string{"1", "1", "1", "4"}},
	{"cache.policy", []string{"none", "vip", "sim", "degree", "prefetch", "sieve", "lookahead"}},
	{"exchange.sums", []string{"off", "on"}},
	{"pipeline.depth", []string{"2", "0", "4"}},
	{"train.eval_mode", []string{"sampled", "full"}},
	{"run.ranks_per_node", []string{"1", "2"}},
}

// drawFrom draws the first of the values half of the time.
func drawFrom(r *rand.Rand, values []string) string {
	return values[r.IntN(2)*r.IntN(len(values))]
}

// random are n training runs on 1, 2 or 4 ranks, each third one of the plain graph. Settings that
// both builds refuse are equal, in whatever words.
func random(n int, from uint64) (all []gridCase) {
	for seed := from; seed < from+uint64(n); seed++ {
		r := rand.New(rand.NewPCG(seed, 27))
		ranks, sets := 1<<r.IntN(3), []string{fmt.Sprint("train.seed=", seed)}
		g := graphs[r.IntN(len(graphs))*min(1, r.IntN(3))]
		own := maps.Clone(g.choices)
		for _, c := range choices {
			values := c.values
			if of, ok := own[c.key]; ok {
				values = of
				delete(own, c.key)
			}
			sets = append(sets, c.key+"="+drawFrom(r, values))
		}
		for _, key := range slices.Sorted(maps.Keys(own)) {
			sets = append(sets, key+"="+drawFrom(r, own[key]))
		}
		all = append(all, gridCase{
			fmt.Sprintf("%s %d ranks %s", g.name, ranks, strings.Join(sets, " ")),
			func(b *build) string {
				return b.train(ranks, false, append(sets, "data.parts="+b.path(g.name)))
			},
		})
	}
	return all
}

// crossing are runs that one build begins and the other resumes.
func crossing(before *build) []gridCase {
	var all []gridCase
	for _, p := range policies {
		all = append(all, gridCase{"resume of the other build's run " + p, func(b *build) string {
			return b.resume(before, p)
		}})
	}
	return all
}

// sum is what summary.json must not change.
type sum struct {
	Loss    string   `json:"loss_digest"`
	Weights string   `json:"weights_digest"`
	Learned string   `json:"learned_digest"`
	Blocks  string   `json:"blocks_digest"`
	Edges   string   `json:"edges_digest"`
	Valid   *float64 `json:"valid_metric"`
	Test    *float64 `json:"test_metric"`

	Local        int64 `json:"local_rows"`
	Hits         int64 `json:"cache_hits"`
	Peer         int64 `json:"peer_rows"`
	PeerCached   int64 `json:"peer_cache_rows"`
	Stored       int64 `json:"stored_rows"`
	Fetched      int64 `json:"fetched_rows"`
	Replacement  int64 `json:"replacement_rows"`
	Early        int64 `json:"early_rows"`
	Remote       int64 `json:"remote_rows"`
	Summed       int64 `json:"summed_rows"`
	Sums         int64 `json:"sum_vectors"`
	IDs          int64 `json:"id_bytes"`
	EdgeRows     int64 `json:"edge_rows"`
	Bytes        int64 `json:"remote_bytes"`
	Evictions    int64 `json:"evictions"`
	Replacements int64 `json:"replacements"`
	Asked        int64 `json:"asked_vertices"`
	Drawn        int64 `json:"drawn_neighbours"`
	Sampling     int64 `json:"sampling_bytes"`
	Computed     int64 `json:"computed_edges"`
	Loaded       int64 `json:"loaded_rows"`
	Shuffled     int64 `json:"shuffled_rows"`
	ShuffleBytes int64 `json:"shuffle_bytes"`
}

func (b *build) args(command, dir string, sets []string) []string {
	args := []string{command, "--config", b.path("config.yaml"), "--set", "data.parts=" +
		b.path("plain")}
	if dir != "" {
		args = append(args, "--set", "run.dir="+dir)
	}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	return args
}

func (b *build) train(ranks int, mpi bool, sets []string) string {
	dir, err := b.fresh()
	if err != nil {
		return failure("", err)
	}
	out, err := b.launch(ranks, mpi, b.args("train", dir, sets))
	if err != nil {
		return failure(out, err)
	}
	return numbers(dir)
}

// The results of cases without numbers: a build refuses their settings or data, or fails.
const (
	refused = "refused"
	failed  = "failed: " // and why
)

// failure is the result of a command that ended with an error.
func failure(out string, err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && !crashed(out) {
		switch exit.ExitCode() {
		case 2, 3: // settings, data
			return refused
		}
	}
	return fmt.Sprintf("%s%v: %s", failed, err, out)
}

// crashed reports whether the program panicked, or Go ended it: with exit code 2 as well.
func crashed(out string) bool {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, "panic: ") {
			return true
		}
	}
	return false
}

func (b *build) launch(ranks int, mpi bool, args []string) (string, error) {
	if !mpi {
		return b.run(append(args, "--ranks-in-process", fmt.Sprint(ranks))...)
	}
	args = append([]string{"-n", fmt.Sprint(ranks), b.program}, args...)
	out, err := exec.Command(*mpirun, args...).CombinedOutput()
	return string(out), err
}

// numbers reads a run's summary and the bits of every loss.
func numbers(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		return failure("", err)
	}
	var s sum
	if err := json.Unmarshal(text, &s); err != nil {
		return failure("", err)
	}
	steps, err := stepRows(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		return failure("", err)
	}
	line, err := json.Marshal(s)
	if err != nil {
		return failure("", err)
	}
	return fmt.Sprintf("%s steps %s", line, steps)
}

// stepRows is a hash of the loss and the remote rows of every step.
func stepRows(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for line := range strings.Lines(string(text)) {
		var step struct {
			Kind        string
			Epoch, Step int
			Bits        string `json:"loss_bits"`
			Remote      int64  `json:"remote_rows"`
			Hits        int64  `json:"cache_hits"`
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			return "", err
		}
		if step.Kind == "step" {
			fmt.Fprintln(h, step)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// resume lets first begin a run, takes it back to a checkpoint in the middle of the first epoch,
// and goes on from there with b.
func (b *build) resume(first *build, policy string) string {
	dir, err := first.fresh()
	if err != nil {
		return failure("", err)
	}
	sets := []string{"cache.policy=" + policy, "checkpoint.every_steps=3", "checkpoint.keep=1000",
		"sample.streams=part", "run.ranks_per_node=1"}
	if out, err := first.launch(2, false, first.args("train", dir, sets)); err != nil {
		return failure(out, err)
	}
	saved, err := filepath.Glob(filepath.Join(dir, "checkpoints", "step-*"))
	if err != nil || len(saved) < 2 {
		return fmt.Sprintf("%s%d checkpoints, %v", failed, len(saved), err)
	}
	slices.Sort(saved)
	for _, path := range saved[1:] {
		if err := os.RemoveAll(path); err != nil {
			return failure("", err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "summary.json")); err != nil {
		return failure("", err)
	}
	if out, err := b.launch(2, false, []string{"train", "--resume", dir}); err != nil {
		return failure(out, err)
	}
	return numbers(dir)
}

func (b *build) infer(ranks int, mode string) string {
	dir, err := b.fresh()
	if err != nil {
		return failure("", err)
	}
	sets := []string{"sample.streams=part", "train.epochs=1"}
	if out, err := b.launch(2, false, b.args("train", dir, sets)); err != nil {
		return failure(out, err)
	}
	path := filepath.Join(filepath.Dir(dir), "logits.npy")
	args := []string{"infer", "--run", dir, "--mode", mode, "--logits", "--out", path}
	if out, err := b.launch(ranks, false, args); err != nil {
		return failure(out, err)
	}
	return fileHash(path)
}

func fileHash(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return failure("", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// simulate returns the counted columns of simulate.csv.
func (b *build) simulate(policies string, args []string) string {
	dir, err := b.fresh()
	if err != nil {
		return failure("", err)
	}
	all := append([]string{"simulate", "--parts", b.path("plain"), "--set",
		"sample.fanouts=5,5", "--set", "model.layers=2", "--set", "sample.batch=50", "--set",
		"cache.delta=4", "--set", "cache.gamma=0.9", "--alphas", "0.1,0.3", "--epochs", "2",
		"--policies", policies, "--out", dir}, args...)
	if out, err := b.run(all...); err != nil {
		return failure(out, err)
	}
	f, err := os.Open(filepath.Join(dir, "simulate.csv"))
	if err != nil {
		return failure("", err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return failure("", err)
	}
	return fmt.Sprint(records) + fileHash(filepath.Join(dir, "steps.csv"))
}

// modes returns modes.csv.
func (b *build) modes(args []string) string {
	dir, err := b.fresh()
	if err != nil {
		return failure("", err)
	}
	all := append([]string{"simulate", "modes", "--parts", b.path("plain"), "--set",
		"sample.fanouts=5,5", "--set", "model.layers=2", "--set", "model.hidden=16", "--set",
		"sample.batch=50", "--epochs", "2", "--out", dir}, args...)
	if out, err := b.run(all...); err != nil {
		return failure(out, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "modes.csv"))
	if err != nil {
		return failure("", err)
	}
	return string(text)
}

// plan returns what follows from the graph and the settings, and not from the machine's speed.
func (b *build) plan(sets []string) string {
	dir, err := b.fresh()
	if err != nil {
		return failure("", err)
	}
	args := append(b.args("plan", "", append(sets, "pipeline.workers=1")),
		"--ranks-per-node", "1", "--cores", "1", "--flops", "1e9", "--rows", "1e6", "--network",
		"1",
		"--memory", "4", "--out", dir)
	if out, err := b.run(args...); err != nil {
		return failure(out, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "plan.json"))
	if err != nil {
		return failure("", err)
	}
	var p struct {
		Steps       int             `json:"steps_per_epoch"`
		Minibatches int             `json:"minibatches_per_step"`
		Minibatch   json.RawMessage `json:"minibatch"`
		Traffic     json.RawMessage `json:"traffic"`
		Memory      int64           `json:"memory_per_rank"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return failure("", err)
	}
	squeeze := func(r json.RawMessage) string { return strings.Join(strings.Fields(string(r)), "") }
	return fmt.Sprint(p.Steps, p.Minibatches, squeeze(p.Minibatch), squeeze(p.Traffic), p.Memory)
}

func (b *build) blocks() string {
	dir, err := b.fresh()
	if err != nil {
		return failure("", err)
	}
	if out, err := b.run(append(b.args("blocks", "", nil), "--out", dir, "--steps",
		"5")...); err != nil {
		return failure(out, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "blocks.json"))
	if err != nil {
		return failure("", err)
	}
	var blocks struct {
		Digest      string `json:"blocks_digest"`
		Minibatches json.RawMessage
	}
	if err := json.Unmarshal(text, &blocks); err != nil {
		return failure("", err)
	}
	return blocks.Digest + fmt.Sprintf(" %x ", sha256.Sum256(blocks.Minibatches)) +
		fileHash(filepath.Join(dir, "initial.safetensors"))
}
