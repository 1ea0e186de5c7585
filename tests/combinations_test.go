//go:build e2e

package tests

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/step/parallel"
)

var (
	combinations = flag.Int("combinations", 4,
		"how many random combinations of settings TestRandomCombinations tries")
	combinationsFrom = flag.Uint64("combinations-from", 1, "the seed of the first; the "+
		"others follow")
)

// choice is a key with the values from which it is drawn. The first value is that of a run that
// does not draw the key.
type choice struct {
	key    string
	values []string
}

// Settings on which the numbers of a run depend.
var ofNumbers = []choice{
	{"model.kind", []string{"sage", "gcn", "gin", "sage", "gcn", "gin", "gat", "gatv2", "mlp"}},
	{"model.hidden", []string{"8", "16", "6"}},
	{"model.dropout", []string{"0.5", "0"}},
	{"model.norm", []string{"layer", "none", "layer", "none", "layer", "batch"}},
	{"model.activation", []string{"relu", "elu"}},
	{"model.residual", []string{"false", "true"}},
	{"model.jumping", []string{"none", "none", "cat", "max"}},
	{"model.aggregation", []string{"mean", "mean", "mean", "mean", "mean", "max"}},
	{"model.gcn_norm", []string{"right", "both"}},
	{"model.edge_weights", []string{"true", "true", "false"}},
	{"sample.kind", []string{"neighbour", "neighbour", "labor", "labor", "poisson", "poisson",
		"ladies"}},
	{"sample.batch", []string{"900", "450", "5000", "300"}},
	{"sample.seeds", []string{"local", "global"}},
	{"sample.streams", []string{"rank", "rank", "rank", "rank", "part"}},
	{"train.eval_mode", []string{"sampled", "full"}},
	{"train.gradient_dtype", []string{"float32", "float32", "float32", "bf16"}},
	{"compute.precision", []string{"float32", "float32", "float32", "float32", "bf16"}},
}

// unfit are settings that a mode refuses. Most draws have none of them.
var unfit = map[string][]string{
	"split":     {"sample.streams=part"},
	"hybrid":    {"sample.streams=part"},
	"push-pull": {"model.kind=gat", "model.kind=gatv2", "model.aggregation=max"},
}

// Settings on which the numbers do not depend.
var ofPlumbing = []choice{
	{"pipeline.depth", []string{"2", "0", "1", "4", "9"}},
	{"pipeline.workers", []string{"1", "2", "3"}},
	{"compute.threads", []string{"1", "2"}},
	{"topology.kind", []string{"replicated", "replicated", "partitioned"}},
	{"exchange.sums", []string{"off", "off", "on", "auto"}},
}

// Caches, on which the numbers do not depend either, but most modes take no cache or few.
var ofCaches = []choice{
	{"cache.policy", []string{"none", "vip", "sim", "oracle", "sieve", "prefetch", "lookahead",
		"halo1"}},
	{"cache.alpha", []string{"0.1", "0.4", "3"}},
	{"cache.placement", []string{"own", "own", "own", "own", "own", "group"}},
	{"cache.source", []string{"owners", "owners", "owners", "owners", "owners", "files"}},
}

// draw draws a value of every key.
func draw(random *rand.Rand, all []choice) (sets []string) {
	for _, c := range all {
		sets = append(sets, c.key+"="+c.values[random.IntN(len(c.values))])
	}
	return sets
}

// plain gives each key its first value.
func plain(all []choice) (sets []string) {
	for _, c := range all {
		sets = append(sets, c.key+"="+c.values[0])
	}
	return sets
}

// Any combination of settings is either refused, with a message that names one of them, or gives
// the numbers that its mode promises: those of a plain run in every bit if only plumbing differs,
// and up to round-off those of data parallelism on as many ranks as a step has minibatches.
func TestRandomCombinations(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for n := range *combinations {
		seed := *combinationsFrom + uint64(n)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { tryCombination(t, seed) })
	}
}

func tryCombination(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 16))
	nodes, perNode := 1<<random.IntN(3), 1<<random.IntN(3)
	ranks := min(8, nodes*perNode)
	nodes = ranks / perNode
	modes := parallel.Modes()
	shares := modes[random.IntN(len(modes))]
	mode := shares.Name
	parts := smallParts
	if random.IntN(4) == 0 {
		parts = weightedParts
	}
	numbers := draw(random, ofNumbers)
	for range 2 {
		if slices.ContainsFunc(unfit[mode],
			func(s string) bool { return slices.Contains(numbers, s) }) {
			numbers = draw(random, ofNumbers)
		}
	}
	// only for this sampler: others refuse the key
	if slices.Contains(numbers, "sample.kind=ladies") {
		numbers = append(numbers, "sample.layer_vertices=700")
	}
	if slices.Contains(numbers, "sample.kind=labor") {
		numbers = append(numbers, fmt.Sprint("sample.dependency=", 1+random.IntN(3)),
			fmt.Sprint("sample.layer_dependency=", random.IntN(2) == 0))
	}
	numbers = append(numbers, "sample.batch_scope=global", "train.optimizer=sgd", rate(numbers),
		fmt.Sprint("train.seed=", random.IntN(1e6)))
	layers := 1 + random.IntN(3)
	numbers = append(numbers, fmt.Sprint("model.layers=", layers),
		"sample.fanouts="+strings.Join([]string{"4", "3", "2"}[:layers], ","))
	node := fmt.Sprint("run.ranks_per_node=", perNode)
	none := append(plain(slices.Concat(ofPlumbing, ofCaches)), node)
	plumbing := append(draw(random, ofPlumbing), node)
	if random.IntN(2) == 0 {
		plumbing = append(plumbing, draw(random, ofCaches)...)
	}
	if mode == parallel.ModeData && random.IntN(2) == 0 {
		plumbing = append(plumbing, "exchange.nodes="+[]string{"on", "auto"}[random.IntN(2)])
	}
	under := ""
	if random.IntN(4) == 0 {
		under = os.Getenv("HALOGNN_MPIRUN")
	}
	drawn := slices.Concat(numbers, plumbing)
	what := fmt.Sprintf("%s on %d nodes of %d, %s, %v, %s", mode, nodes, perNode, parts.name, drawn,
		under)

	// run returns nil for a run that is refused.
	run := func(mode string, ranks int, under string, sets ...string) *outcome {
		t.Helper()
		sets = append(slices.Concat(numbers, sets), "parallel.mode="+mode, "run.stall_seconds=200")
		p, dir := halognn(t), newRunDir(t)
		args := trainArgs(t, parts.dir(t), dir, sets...)
		var r result
		if under == "" {
			r = p.run(t, append(args, "--ranks-in-process", strconv.Itoa(ranks))...)
		} else {
			r = startMPI(t, ranks, p.path, args...).wait(t)
		}
		if r.code == 0 {
			return outcomeOf(t, dir, r)
		}
		refused := r.code == usage || r.code == badData // badData: the parts may have edge weights
		if message := r.message(t); !refused || !speaksOf(message, drawn) {
			t.Fatalf("%s: this is neither a run nor a refusal: %v", what, r)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: a run that is refused left its directory", what)
		}
		t.Logf("refused: %s", strings.TrimSpace(r.err))
		return nil
	}
	got, simple := run(mode, ranks, under, plumbing...), run(mode, ranks, "", none...)
	if simple == nil {
		if got != nil {
			t.Errorf("%s: it is refused with plain plumbing alone", what)
		}
		return
	}
	if got != nil {
		sameNumbers(t, got, simple)
	}
	streams := ranks / shares.Sharing.GroupSize(ranks, perNode)
	want := run("data", streams, "", append(none, "run.ranks_per_node=1")...)
	switch {
	case want == nil:
		t.Errorf("%s: data parallelism refuses it alone", what)
	case streams == ranks && !shares.Columns:
		sameNumbers(t, simple, want)
	default:
		nearly(t, simple, want,
			slices.Contains(numbers, bf16) || slices.Contains(numbers, halfGradient))
	}
	if t.Failed() {
		t.Log(what)
	}
}

// rate returns a learning rate at which a run does not diverge. Without normalisation GIN adds
// whole neighbourhoods in every layer: the first loss is 40, and at a rate of 0.05 losses end
// beyond 1e14.
func rate(numbers []string) string {
	if slices.Contains(numbers, "model.kind=gin") && slices.Contains(numbers, "model.norm=none") {
		return "train.lr=0.00005"
	}
	return "train.lr=0.05"
}

// speaksOf reports whether a message names the key of one of the settings.
func speaksOf(message string, sets []string) bool {
	return slices.ContainsFunc(sets, func(s string) bool {
		key, _, _ := strings.Cut(s, "=")
		return strings.Contains(message, key)
	})
}

// nearly fails the test unless two runs trained on the same edges and their losses differ only by
// round-off. Where the loss has kinks, round-off doubles about every step; a wrong gradient shows
// in the second step.
func nearly(t *testing.T, got, want *outcome, rounded bool) {
	t.Helper()
	if got.EdgesDigest != want.EdgesDigest || len(got.steps) != len(want.steps) ||
		got.Edges != want.Edges || got.Loaded != want.Loaded {
		t.Errorf("edges %s in %d steps, %d, and %d rows, want %s in %d, %d and %d", got.EdgesDigest,
			len(got.steps), got.Edges, got.Loaded, want.EdgesDigest, len(want.steps), want.Edges,
			want.Loaded)
		return
	}
	tolerance := 2e-5
	if rounded { // factors, or gradients, may round to the next number of 8 bits
		tolerance = 5e-3
	}
	for i, w := range want.steps {
		if g := got.steps[i]; !(math.Abs(g.Loss-w.Loss) <= tolerance*math.Abs(w.Loss)) {
			t.Errorf("epoch %d, step %d: the loss is %v, want %v", w.Epoch, w.Step, g.Loss, w.Loss)
			return
		}
		tolerance = min(0.05, 2*tolerance)
	}
}
