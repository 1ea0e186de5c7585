//go:build e2e

package tests

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"halognn/src/forecast/plan"
	"halognn/tests/race"
)

// plannedJob holds the values of plan.json that are compared with runs.
type plannedJob struct {
	Collectives int            `json:"rounds_per_step"`
	Gradients   int64          `json:"gradient_bytes"`
	Sampling    *plan.Sampling `json:"rounds"`

	Shuffles *plan.Shuffles `json:"shuffles"`

	MemoryRank int64 `json:"memory_per_rank"`
	Memory     []struct {
		Name  string `json:"name"`
		Bytes int64  `json:"bytes"`
	} `json:"memory"`
	Traffic struct {
		Rows     float64 `json:"remote_rows"`
		Sums     float64 `json:"sum_vectors"`
		EdgeRows float64 `json:"edge_rows"`
	} `json:"traffic"`
}

// planned runs plan.
func planned(t *testing.T, parts string, args ...string) *plannedJob {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plan")
	halognn(t).must(t, append([]string{"plan", "--parts", parts, "--config", baseFile.dir(t),
		"--rows", "1e6", "--flops", "1e9", "--out", dir}, args...)...)
	p := new(plannedJob)
	decode(t, read(t, filepath.Join(dir, "plan.json")), p)
	return p
}

// On ranks that are nodes of their own, or with two ranks a node, planned memory is between what is
// resident without huge pages and what is allocated, and planned remote rows equal those of a step.
// Both within 5 %: MPI's buffers vary, and the plan samples only a few minibatches. Arrays are
// allocated with a quarter of slack; with huge pages it depends on the kernel how much of that
// becomes resident. The graph is large enough for its data to outweigh the libraries.
func TestRunsTakeWhatWasPlanned(t *testing.T) {
	launcher(t)
	unlessShort(t)
	if race.Detector {
		t.Skip("the race detector takes memory of its own")
	}
	withoutHugePages(t)
	g := plannedGraphs(t, 1)
	parts, papers, learning, linked := g["plain"], g["typed"], g["learning"], g["edges"]
	typed := []string{"model.kind=rgcn", "model.layers=2", "sample.fanouts=10,8",
		"sample.batch=512"}
	for _, c := range []struct {
		name, parts string
		sets        []string
	}{
		{"types", papers, append(typed, "cache.policy=vip", "cache.alpha=0.2")},
		{"types, sums", papers, append(typed, "cache.policy=none", "exchange.sums=on",
			"model.kind=sage")},
		{"types, split", papers, append(typed, "parallel.mode=split")},
		{"learned rows", learning, append(typed, "model.learned=64", "cache.policy=none")},
		{"rows of edges", linked, []string{"model.kind=gatv2", "model.layers=2",
			"sample.fanouts=10,8", "cache.policy=none"}},
		{"no cache", parts, []string{"cache.policy=none"}},
		{"vip, wide", parts, []string{"cache.policy=vip", "cache.alpha=0.2", "model.hidden=96"}},
		{"look-ahead", parts, []string{"cache.policy=lookahead", "cache.alpha=0.2"}},
		{"partitioned", parts, []string{"cache.policy=none", "topology.kind=partitioned"}},
		{"split", parts, []string{"parallel.mode=split"}},
		{"hybrid", parts, []string{"parallel.mode=hybrid", "run.ranks_per_node=2",
			"cache.policy=vip", "cache.alpha=0.2"}},
		{"sums", parts, []string{"cache.policy=none", "exchange.sums=on"}},
		{"sums beside a look-ahead", parts,
			[]string{"cache.policy=lookahead", "cache.alpha=0.2", "exchange.sums=on"}},
		{"nodes that fetch as one", parts, []string{"exchange.nodes=on", "run.ranks_per_node=2",
			"cache.policy=none"}},
		{"nodes that fetch as one, look-ahead", parts, []string{"exchange.nodes=on",
			"run.ranks_per_node=2", "cache.policy=lookahead", "cache.alpha=0.2"}},
		{"nodes that fetch as one, types", papers, append(typed, "exchange.nodes=on",
			"run.ranks_per_node=2", "cache.policy=vip", "cache.alpha=0.2")},
		{"push-pull", parts, []string{"parallel.mode=push-pull"}},
		{"push-pull, gin", parts, []string{"parallel.mode=push-pull", "model.kind=gin",
			"model.hidden=96"}},
		{"bf16, wide", parts, []string{bf16, "cache.policy=none", "model.hidden=256"}},
		{"bf16, wide gin, norms", parts, []string{bf16, "cache.policy=none", "model.hidden=256",
			"model.kind=gin", "model.norm=layer", "model.residual=true"}},
		{"bf16, split", parts, []string{bf16, "parallel.mode=split", "model.hidden=256"}},
		{"bf16, types", papers, append(typed, bf16, "cache.policy=none", "model.hidden=128")},
		{"evaluation with more neighbours", parts,
			[]string{"cache.policy=none", "sample.batch=256", "sample.eval_fanouts=20,20,20"}},
		{"that beside a look-ahead", parts,
			[]string{"cache.policy=lookahead", "cache.alpha=0.2", "sample.batch=256",
				"sample.eval_fanouts=20,20,20"}},
	} {
		sets := append([]string{
			"run.ranks_per_node=1", "model.layers=3", "model.hidden=64", "sample.fanouts=10,8,5",
			"sample.batch=1024", "train.epochs=1", "pipeline.workers=1",
			"compute.threads=1", "pipeline.depth=2",
		}, c.sets...)
		ranks := 2
		if slices.Contains(sets, "run.ranks_per_node=2") {
			ranks = 4
		}
		t.Run(c.name, func(t *testing.T) { takesWhatWasPlanned(t, c.parts, ranks, 0.05, sets) })
	}
}

// plannedGraphs makes parts of graphs of each kind. Their sizes are divided by divisor.
func plannedGraphs(t *testing.T, divisor int) map[string]string {
	t.Helper()
	of := func(name string, more ...string) string {
		data := filepath.Join(t.TempDir(), name)
		halognn(t).must(t, append([]string{"generate", "--features", "128", "--seed", "1", "--out",
			data}, more...)...)
		return data
	}
	plain := of("plain", "--kind", "sbm", "--vertices", strconv.Itoa(60000/divisor), "--degree",
		"24", "--classes", "10", "--split", "15/5/5")
	mag := of("mag", "--kind", "mag", "--vertices", strconv.Itoa(20000/divisor))
	linked := filepath.Join(t.TempDir(), "edges-4")
	withEdgeRows(t, linked, 30000/divisor, 12, 32)
	return map[string]string{
		"plain":    partitioned(t, plain, 4, "metis", "--allow-imbalance"),
		"typed":    partitioned(t, mag, 4, "ldg", "--allow-imbalance", "--features", "degree"),
		"learning": partitioned(t, mag, 4, "ldg", "--allow-imbalance"),
		"edges":    linked,
	}
}

// Jobs drawn from the settings, without those that no run can have, take what is planned for them:
// rows within 5 %, and memory within a tenth. With -short there are few jobs, on small graphs.
func TestDrawnJobsTakeWhatWasPlanned(t *testing.T) {
	launcher(t)
	if race.Detector {
		t.Skip("the race detector takes memory of its own")
	}
	withoutHugePages(t)
	jobs, divisor := 20, 1
	if testing.Short() {
		jobs, divisor = 3, 10
	}
	graphs, random := plannedGraphs(t, divisor), rand.New(rand.NewPCG(11, 12))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for draws := 0; jobs > 0 && draws < 1000; draws++ {
		graph := pick("plain", "plain", "typed", "learning", "edges")
		kind := pick(map[string][]string{"plain": {"sage", "gcn", "gin", "gat"},
			"typed": {"rgcn", "sage", "gat"}, "learning": {"rgcn", "sage"},
			"edges": {"gatv2", "gine"}}[graph]...)
		layers := 2 + random.IntN(2)
		sets := []string{"train.epochs=1", "compute.threads=1", "model.kind=" + kind,
			"run.ranks_per_node=" + pick("1", "1", "2"),
			"parallel.mode=" + pick("data", "data", "split", "hybrid", "push-pull"),
			"cache.policy=" + pick("none", "none", "vip", "degree", "lookahead", "sieve"),
			"cache.alpha=0.2", "exchange.sums=" + pick("off", "off", "on"),
			"topology.kind=" + pick("replicated", "replicated", "partitioned"),
			"pipeline.workers=" + pick("1", "2"), "pipeline.depth=" + pick("0", "1", "2", "4"),
			"model.layers=" + strconv.Itoa(layers), "model.hidden=" + pick("32", "64", "96"),
			"sample.batch=" + pick("256", "512"),
			"sample.fanouts=" + strings.Join([]string{"10", "8", "5"}[:layers], ",")}
		if graph == "learning" {
			sets = append(sets, "model.learned=32")
		}
		if random.IntN(4) == 0 {
			sets = append(sets, "sample.eval_fanouts="+strings.Join([]string{"15", "15",
				"15"}[:layers], ","))
		}
		if slices.Contains(sets, "exchange.sums=on") && slices.Contains(sets,
			"parallel.mode=hybrid") {
			continue // the plan says that it predicts rows without sums
		}
		ranks := 2 + 2*random.IntN(2)
		args := []string{"plan", "--parts", graphs[graph], "--config", baseFile.dir(t), "--rows",
			"1e6", "--flops", "1e9", "--ranks", strconv.Itoa(ranks)}
		for _, set := range sets {
			args = append(args, "--set", set)
		}
		if r := halognn(t).run(t, args...); r.code == usage && strings.Contains(r.message(t),
			"cannot be combined") {
			continue
		} else if r.code != 0 {
			t.Errorf("%s, %v: %v", graph, sets, r)
			continue
		}
		jobs--
		t.Run(fmt.Sprintf("%s, %d ranks, %v", graph, ranks, sets), func(t *testing.T) {
			takesWhatWasPlanned(t, graphs[graph], ranks, 0.1, sets)
		})
	}
	if jobs > 0 {
		t.Errorf("%d jobs are not drawn", jobs)
	}
}

// takesWhatWasPlanned plans and trains a job, and compares the rows and, unless within is 0, the
// memory, which may differ by that share.
func takesWhatWasPlanned(t *testing.T, parts string, ranks int, within float64, sets []string) {
	t.Helper()
	args := []string{"--ranks", strconv.Itoa(ranks)}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	plan, run := planned(t, parts, args...), trainedMPI(t, parts, ranks, sets...)
	var summary struct {
		Peak   int64            `json:"peak_rss_bytes"`
		Memory map[string]int64 `json:"memory"`
		Rows   float64          `json:"remote_rows_per_step"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(run.dir, "summary.json")),
		&summary); err != nil {
		t.Fatal(err)
	}
	allocated := int64(0)
	for _, bytes := range summary.Memory {
		allocated += bytes
	}
	least := float64(plan.MemoryRank) / float64(summary.Peak)
	most := float64(plan.MemoryRank) / float64(max(allocated, summary.Peak))
	t.Logf("planned / resident %.3f, planned / allocated %.3f", least, most)
	if within > 0 && (least < 1-within || most > 1+within || least > 1.25*most) {
		t.Errorf("%d bytes are planned, %d resident, %d allocated; planned %v, counted %v",
			plan.MemoryRank, summary.Peak, allocated, plan.Memory, summary.Memory)
	}
	steps := float64(run.StepsPerEpoch)
	for _, of := range []struct {
		what             string
		planned, fetched float64
	}{
		{"rows", plan.Traffic.Rows, summary.Rows},
		{"sums", plan.Traffic.Sums, float64(run.Sums) / steps},
		{"rows of edges", plan.Traffic.EdgeRows, float64(run.EdgeRows) / steps},
	} {
		if math.Abs(of.planned-of.fetched) > 0.05*of.fetched {
			t.Errorf("%.1f %s a step are planned, %.1f fetched", of.planned, of.what, of.fetched)
		}
	}
	for _, item := range plan.Memory {
		if _, counted := summary.Memory[item.Name]; !counted {
			t.Errorf("%s is planned, and not counted by the run", item.Name)
		}
	}
}

// withoutHugePages turns huge pages off for the commands that the test starts.
func withoutHugePages(t *testing.T) {
	t.Helper()
	set := func(off uintptr) {
		if err := unix.Prctl(unix.PR_SET_THP_DISABLE, off, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	t.Cleanup(func() { set(0) })
}

// The work of ranks that share minibatches or hold columns is planned from minibatches of the run:
// if the plan samples each minibatch equally often, it equals what the ranks count.
func TestSharedMinibatchesAreCountedAsPlanned(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	for _, on := range []struct {
		ranks int
		sets  []string
	}{
		{1, []string{"parallel.mode=split"}}, {4, []string{"parallel.mode=split",
			"model.norm=batch"}},
		{4, []string{"parallel.mode=hybrid", "run.ranks_per_node=2", "cache.policy=none"}},
		{4, []string{"parallel.mode=split", "sample.kind=ladies", "sample.layer_vertices=900"}},
		{4, []string{"parallel.mode=hybrid", "run.ranks_per_node=2", "cache.policy=none",
			"sample.kind=ladies", "sample.layer_vertices=900", "topology.kind=partitioned"}},
		{1, []string{"parallel.mode=push-pull"}}, {4, []string{"parallel.mode=push-pull"}},
		{4, []string{"parallel.mode=push-pull", "model.kind=gcn", "model.gcn_norm=both"}},
	} {
		ranks := on.ranks
		sets := append(on.sets, "sample.batch_scope=global", "sample.batch=450", "train.epochs=1",
			"train.eval_every=0")
		args := []string{"--ranks", strconv.Itoa(ranks)}
		for _, s := range sets {
			args = append(args, "--set", s)
		}
		plan, run := planned(t, parts, args...), trained(t, parts, ranks, sets...)
		steps := len(run.steps)
		if 32%steps != 0 || plan.Shuffles == nil {
			t.Fatalf("%d steps, of which the plan samples 32 minibatches: %+v", steps,
				plan.Shuffles)
		}
		p := plan.Shuffles
		if plan.Sampling != nil { // asked of other nodes
			p.Sampling += plan.Sampling.Bytes
		}
		for _, c := range []struct {
			name    string
			planned float64
			counted int64
		}{
			{"edges", p.Edges, run.Edges}, {"rows loaded", p.Loaded, run.Loaded},
			{"rows shuffled", p.Features + 2*p.Hidden, run.Shuffles.Rows},
			{"bytes shuffled", p.Bytes, run.Shuffles.Bytes},
			{"bytes of sampling", p.Sampling, run.Sampling.Bytes},
			{"collectives", float64(plan.Collectives),
				int64(run.CollectivesPerStep) * int64(steps)},
			{"rows fetched", plan.Traffic.Rows, run.Remote},
		} {
			if d := c.planned*float64(steps) - float64(c.counted); math.Abs(d) > 1e-3 {
				t.Errorf("%v: %s: %.1f a step are planned, %.1f counted", on, c.name,
					c.planned, float64(c.counted)/float64(steps))
			}
		}
	}
}

func TestPlansOfMoreRanksThanParts(t *testing.T) {
	unlessShort(t)
	few := planned(t, smallParts.dir(t), "--ranks", "8")
	many := planned(t, smallParts.dir(t), "--ranks", "64", "--ranks-per-node", "4")
	if few.Traffic.Rows <= 0 || many.Traffic.Rows <= few.Traffic.Rows {
		t.Errorf("64 ranks fetch %.0f rows a step, 8 ranks %.0f", many.Traffic.Rows,
			few.Traffic.Rows)
	}
}

func TestBadPlansAreRefused(t *testing.T) {
	unlessShort(t)
	parts, config := smallParts.dir(t), baseFile.dir(t)
	for _, c := range []struct {
		name, message string
		code          int
		args          []string
	}{
		{"no parts named", "data.parts is missing", 2,
			[]string{"--config", config, "--set", "data.parts="}},
		{"no config named", "--config is missing", 2, []string{"--parts", parts}},
		{"no such parts", "holds no parts", 3,
			[]string{"--parts", filepath.Join(t.TempDir(), "none"), "--config", config}},
		{"ranks that do not fit", "12 ranks cannot share 8 parts", 3,
			[]string{"--parts", parts, "--config", config, "--ranks", "12"}},
		{"no ranks", "--ranks is 0", 2,
			[]string{"--parts", parts, "--config", config, "--ranks", "0"}},
		{"a rate below zero", "--network is -1", 2,
			[]string{"--parts", parts, "--config", config, "--network", "-1"}},
		{"an endless network", "--network is +Inf", 2,
			[]string{"--parts", parts, "--config", config, "--network", "inf"}},
		{"no network", "--network is NaN", 2,
			[]string{"--parts", parts, "--config", config, "--network", "nan"}},
		{"more memory than a number says", "--memory is 1e+12", 2,
			[]string{"--parts", parts, "--config", config, "--memory", "1e12"}},
		{"more ranks than vertices", "the job has 4611686018427387904 ranks, but may have at most",
			2, []string{"--parts", parts, "--config", config, "--ranks", "4611686018427387904"}},
		{"a model to measure which no machine holds", "give --flops", 2,
			[]string{"--parts", parts, "--config", config, "--set", "model.hidden=65536", "--set",
				"model.layers=64", "--set", "sample.fanouts=" + strings.Repeat("1,", 63) + "1"}},
		{"an unknown key", "cache.alfa", 2,
			[]string{"--parts", parts, "--config", config, "--set", "cache.alfa=1"}},
		{"a directory in use", "not empty", 3,
			[]string{"--parts", parts, "--config", config, "--out", smallData.dir(t)}},
		{"leaf switches of no trace", "--leaf is for traces; give --trace too", 2,
			[]string{"--parts", parts, "--config", config, "--leaf", "2"}},
	} {
		r := halognn(t).run(t, append([]string{"plan"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.message(t), c.message) {
			t.Errorf("%s: it should end with code %d and speak of %q: %v", c.name, c.code,
				c.message, r)
		}
	}
}

// A graph of which only the sizes are known is planned at once, from a preset or from numbers.
func TestPlanSizes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	r := halognn(t).must(t, "plan", "--preset", "papers100M", "--ranks", "16", "--out", dir)
	for _, want := range []string{"papers100M: 16 ranks", "features (one copy a node)", "remote MB",
		"t_remote", "only the sizes of the graph", "the cut is assumed",
		"with --method metis"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not say %q: %v", want, r)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "plan.json")); err != nil ||
		!strings.Contains(string(text), `"sizes_alone": true`) {
		t.Errorf("plan.json: %v\n%s", err, text)
	}
	numbers := []string{"plan", "--vertices", "100000", "--edges", "1000000", "--features", "20",
		"--classes", "5", "--cut", "0.1", "--ranks", "4"}
	if r := halognn(t).must(t, numbers...); strings.Contains(r.out, "assumed: 0.2") {
		t.Errorf("the cut was given: %v", r)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"plan", "--preset", "papers100M"}, "--ranks is missing"},
		{[]string{"plan", "--preset", "papers100M", "--ranks", "100000000"}, "1 to 16384"},
		{[]string{"plan", "--preset", "mag", "--ranks", "4"}, "--preset mag has vertex types"},
		{[]string{"plan", "--preset", "papers", "--ranks", "4"}, `preset "papers" is unknown`},
		{[]string{"plan", "--vertices", "1000", "--ranks", "4"}, "--edges"},
		{append(slices.Clone(numbers), "--cut", "2"), "--cut is 2"},
		{append(slices.Clone(numbers), "--parts", smallParts.dir(t)), "exclude each other"},
		{append(slices.Clone(numbers), "--set", "parallel.mode=split"),
			"without parts a plan needs parallel.mode=data"},
		{append(slices.Clone(numbers), "--set", "model.hiden=1"), "unknown key"},
	} {
		if r := halognn(t).run(t, c.args...); r.code != usage || !strings.Contains(r.err, c.want) {
			t.Errorf("want %q: %v", c.want, r)
		}
	}
}
