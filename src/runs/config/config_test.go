package config

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"halognn/src/model/nn"
	"halognn/src/rows/policy"

	"github.com/google/go-cmp/cmp"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// policiesBut is the advice to choose a policy that a run can use, but for those that no says.
func policiesBut(no func(p *policy.Policy) bool) string {
	return "choose cache.policy=" + OrList(policy.Names(func(p *policy.Policy) bool {
		return policy.Trainable(p) && !no(p)
	}))
}

const minimal = "data: {parts: p}\nrun: {dir: d}\n"

func TestModelWithoutNeighboursNeedsNoFanouts(t *testing.T) {
	if _, err := Load(writeConfig(t, minimal+"model: {kind: mlp, layers: 2}\n"), nil); err != nil {
		t.Errorf("the default fanouts are refused: %v", err)
	}
}

func TestConfigFillsDefaultsAndOverrides(t *testing.T) {
	path := writeConfig(t, minimal+"sample:\n  fanouts: [10, 5]\nmodel:\n  layers: 2\n")
	c, err := Load(path, []string{"train.lr=0.01", "sample.fanouts=7,8"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Job.Schedule.Base != 0.01 || !reflect.DeepEqual(c.Drawn.Fanouts, []int{7, 8}) ||
		c.Job.Model.Layers != 2 || c.Job.Model.Hidden != 256 {
		t.Errorf("got %+v", c)
	}
}

// Blanks around a key, and what editors of Windows add to a file, do not matter.
func TestConfigReadsPastBlanksAndMarks(t *testing.T) {
	path := writeConfig(t, "\xef\xbb\xbf"+strings.ReplaceAll(minimal, "\n", "\r\n"))
	c, err := Load(path, []string{"train.lr = 0.25 "})
	if err != nil || c.Job.Schedule.Base != 0.25 || c.Data.Parts != "p" {
		t.Errorf("%v: %+v", err, c)
	}
}

func TestConfigFaultsAreReportedAtOnceWithLineAndCure(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		sets       []string
		want       []string
	}{
		{"unknown key", minimal + "train:\n  leraning_rate: 1\n", nil,
			[]string{"line 4: unknown key train.leraning_rate"}},
		{"near key", minimal + "train:\n  epoch: 1\n", nil,
			[]string{"line 4", "did you mean train.epochs?"}},
		{"right name, wrong section", minimal + "model:\n  lr: 1\n", nil,
			[]string{"did you mean train.lr?"}},
		{"unknown section", minimal + "modle:\n  hidden: 1\n", nil,
			[]string{"line 3: unknown key modle; did you mean model?"}},
		{"a list in braces", minimal + "sample: {batch: 9, fanouts: 15,10,5, seeds: local}\n", nil,
			[]string{
				`line 3: in braces a comma ends the value of fanouts; put the list in quotes: ` +
					`fanouts: "15,10,5"`,
			}},
		{"tabs", "data:\n\tparts: p\n", nil, []string{"not valid YAML", "by blanks, not by tabs"}},
		{"a list in braces at the end", minimal + "sample: {fanouts: 15, 10}\n", nil,
			[]string{`fanouts: "15,10"`}},
		{"wrong type", minimal + "train:\n  epochs: many\n", nil,
			[]string{`line 4: train.epochs is "many"; it must be a whole number`}},
		{"list for a number", minimal + "train:\n  epochs: [1, 2]\n", nil,
			[]string{"train.epochs is a list"}},
		{"two faults", minimal + "train:\n  epochs: x\n  lrr: 1\n", nil,
			[]string{"line 4", "line 5", "did you mean train.lr?"}},
		{"zero fanout", minimal + "sample:\n  fanouts: 15,0,5\n", nil,
			[]string{"sample.fanouts[1] is 0"}},
		{"fanouts against layers", minimal + "model:\n  layers: 2\n", nil,
			[]string{"sample.fanouts has 3 entries but model.layers is 2"}},
		{"evaluation's fanouts", minimal + "sample:\n  eval_fanouts: [20, 0, 2147483648, 20]\n",
			nil, []string{
				"sample.eval_fanouts[1] is 0; a fanout is at least 1 and at most 2147483647, or " +
					"-1 for all neighbours",
				"sample.eval_fanouts[2] is 2147483648",
				"sample.eval_fanouts has 4 entries but model.layers is 3",
			}},
		{"nothing given", "", nil, []string{"data.parts is missing", "run.dir is missing"}},
		{"what is near on a partitioned topology", minimal +
			"topology: {kind: partitioned}\nsample: {kind: poisson, locality: 2}\n", nil,
			[]string{"which cannot be combined with sample.locality",
				"choose sample.locality=1 or sample.kind=ladies, or topology.kind=replicated"}},
		{"a sampler that attention cannot use", minimal +
			"model: {kind: gat}\nsample: {kind: poisson}\n", nil,
			[]string{"sample.kind is poisson, which cannot be combined with model.kind gat",
				"by the probability that they were drawn", "or sample.kind=neighbour"}},
		{"a sampler that maxima cannot use", minimal +
			"model: {aggregation: max}\nsample: {kind: poisson}\n", nil,
			[]string{"which cannot be combined with model.kind sage with model.aggregation max"}},
		{"a formula of fanouts that there are not", minimal +
			"sample: {kind: ladies}\ncache: {policy: vip}\n", nil,
			[]string{"sample.kind is ladies, which cannot be combined with cache.policy vip",
				policiesBut(func(p *policy.Policy) bool { return p.Fanouts }) +
					", or sample.kind=neighbour"}},
		{"a first fill by fanouts that there are not", minimal +
			"sample: {kind: ladies}\ncache: {policy: prefetch, initial: vip}\n", nil,
			[]string{"cannot be combined with cache.initial vip"}},
		{"labor that would prefer near vertices", minimal + "sample: {kind: labor, locality: 2}\n",
			nil, []string{"sample.locality is 2, which cannot be combined with sample.kind labor",
				"choose sample.kind=poisson or ladies"}},
		{"labor by layers", minimal + "sample: {kind: labor, layer_vertices: 100}\n", nil,
			[]string{"sample.layer_vertices is 100, but sample.kind labor draws as many " +
				"neighbours"}},
		{"numbers that last no step", minimal + "sample: {kind: labor, dependency: 0}\n", nil,
			[]string{"sample.dependency is 0; it must be 1 to 1073741824"}},
		{"a layer of no vertices", minimal + "sample: {kind: ladies, layer_vertices: 0}\n", nil,
			[]string{"sample.layer_vertices is 0; it must be 1 to 2147483647"}},
		{"locality of a sampler that draws alike", minimal + "sample: {locality: 2}\n", nil,
			[]string{"sample.locality is 2, which cannot be combined with sample.kind neighbour",
				"choose sample.kind=poisson or ladies, or sample.locality=1"}},
		{"locality and what is known in advance", minimal +
			"sample: {locality: 2, kind: poisson}\ncache: {policy: lookahead}\n", nil,
			[]string{"cannot be combined with cache.policy lookahead",
				policiesBut(func(p *policy.Policy) bool {
					return p.Foresees
				}) + ", or sample.locality=1"}},
		{"locality and counts of the run", minimal +
			"sample: {locality: 2, kind: ladies}\ncache: {policy: oracle}\n", nil,
			[]string{"cannot be combined with cache.policy oracle",
				policiesBut(func(p *policy.Policy) bool {
					return p.Foresees || p.Fanouts
				}) + ", or sample.locality=1"}},
		{"locality and a measured cost", minimal +
			"sample: {locality: 2, kind: poisson}\ncache: {placement: group}\n", nil,
			[]string{"cannot be combined with cache.peer_cost auto, because it is measured",
				"choose cache.peer_cost=0.1, or sample.locality=1"}},
		{"locality and a choice", minimal +
			"sample: {locality: 2, kind: poisson}\ncache: {policy: auto}\n", nil,
			[]string{"cannot be combined with cache.policy auto"}},
		{"what ranks that share minibatches cannot draw", minimal +
			"sample: {locality: 2, kind: ladies}\nparallel: {mode: split}\n", nil,
			[]string{"parallel.mode is split, which cannot be combined with sample.locality"}},
		{"adapting with what a restart changes", minimal +
			"sample: {locality: 8, locality_adapt: true, kind: poisson}\ncache: {policy: " +
			"sieve}\n", nil,
			[]string{"cannot be combined with cache.policy sieve, because a run that goes on",
				policiesBut(func(p *policy.Policy) bool { return p.Foresees || !p.Static() }) +
					", or sample.locality=1"}},
		{"adapting up to nothing", minimal + "sample: {locality_adapt: true, kind: poisson}\n", nil,
			[]string{"up to sample.locality, which is 1; set sample.locality=8"}},
		{"bounds that are exchanged", minimal + "sample: {locality_lower: 0.3}\n", nil,
			[]string{"sample.locality_lower is 0.3, above sample.locality_upper, which is 0.2"}},
		{"no link", minimal + "sample: {locality_link: 0}\n", nil,
			[]string{"sample.locality_link is 0"}},
		{"less than as likely", minimal + "sample: {locality: 0.5}\n", nil,
			[]string{"sample.locality is 0.5; it must be in [1, 1e+06]"}},
		{"sums for a model that reads rows themselves", minimal +
			"model: {kind: gat}\nexchange: {sums: on}\n", nil,
			[]string{"exchange.sums is on, which cannot be combined with model.kind gat",
				"choose model.kind=sage, gcn or gin, or exchange.sums=off"}},
		{"sums where ranks share minibatches", minimal +
			"parallel: {mode: split}\nexchange: {sums: on}\n", nil,
			[]string{"exchange.sums is on, which cannot be combined with parallel.mode split"}},
		{"sums with even misses", minimal + "exchange: {sums: on}\n" +
			"cache: {policy: lookahead, level: true}\n", nil,
			[]string{"exchange.sums is on, which cannot be combined with cache.level",
				"choose cache.level=false, or exchange.sums=off"}},
		{"sums of rows from files", minimal + "exchange: {sums: on}\n" +
			"cache: {policy: vip, source: files}\n", nil,
			[]string{"exchange.sums is on, which cannot be combined with cache.source files"}},
		{"no such word", minimal + "model:\n  kind: transformer\n", nil,
			[]string{`model.kind is "transformer"; it must be ` + OrList(Words("model.kind"))}},
		{"set without value", minimal, []string{"train.lr"},
			[]string{"--set train.lr: it must be section.key=value"}},
		{"set of an unknown key", minimal, []string{"trian.lr=1"},
			[]string{"--set trian.lr=1: unknown key trian.lr; did you mean train.lr?"}},
		{"not YAML", "data: [", nil, []string{"not valid YAML"}},
		{"section with a value", "data: 5\n" + "run: {dir: d}\n", nil,
			[]string{"data is a section"}},
		{"key without value", minimal + "train:\n  lr:\n", nil, []string{"train.lr has no value"}},
		{"dropout out of range", minimal + "model:\n  dropout: 1\n", nil,
			[]string{"model.dropout is 1; it must be in [0, 1)"}},
		{"more than any graph or machine has", minimal + "sample: {batch: " +
			"9223372036854775807}\ntrain: {epochs: 2000000000}\npipeline: {workers: 100000, " +
			"depth: 70000}\nmodel: {hidden: 3000000000, layers: 2000000000}\n",
			[]string{"compute.threads=5000"},
			[]string{"sample.batch is 9223372036854775807; it must be 1 to 2147483647",
				"train.epochs is 2000000000", "pipeline.workers is 100000",
				"pipeline.depth is 70000", "compute.threads is 5000", "model.hidden is 3000000000",
				"model.layers is 2000000000"}},
		{"heads that do not divide", minimal, []string{"model.kind=gat", "model.heads=3"},
			[]string{"model.hidden is 256, which is not a multiple of model.heads, 3",
				"model.head_merge=mean"}},
		{"a slope that turns scores", minimal, []string{"model.kind=gat", "model.slope=-1"},
			[]string{"model.slope is -1; it must be in [0, 1]"}},
		{"a range with its meaning", minimal, []string{"cache.gamma=0", "run.stall_seconds=-1"},
			[]string{"cache.gamma is 0; it must be in (0, 1]: prefetch: decay of",
				"run.stall_seconds is -1; it must be in [0, 1e+06]: seconds without"}},
		{"group and a dynamic policy", minimal, []string{"cache.placement=group",
			"cache.policy=sieve"}, []string{"cache.placement is group", "cache.policy sieve",
			"choose exchange.nodes=on, or cache.policy=degree, ", "cache.placement=own"}},
		{"parts of owners", minimal, []string{"cache.placement=parts", "cache.peer_cost=2"},
			[]string{"cache.placement is parts", "choose cache.source=files",
				`cache.peer_cost is 2; it must be auto, or 0 to 1`}},
		{"files and a dynamic policy", minimal,
			[]string{"cache.source=files", "cache.policy=auto", "cache.halo_fraction=0.1"},
			[]string{"cache.source is files, which cannot be combined with cache.policy auto",
				"choose cache.policy=degree, ", "cache.source=owners",
				"which cannot be combined with cache.halo_fraction"}},
		{"no fanouts", minimal + "sample: {fanouts: []}\n", nil,
			[]string{"sample.fanouts has 0 entries"}},
		{"neither true nor false", minimal, []string{"cache.evict=maybe"},
			[]string{`--set cache.evict=maybe: cache.evict is "maybe"; it must be true or false`}},
		{"device rows", minimal, []string{"compute.gpu_rows=many"},
			[]string{`compute.gpu_rows is "many"; it must be auto`}},
		{"NaN learning rate", minimal + "train:\n  lr: .nan\n", nil, []string{"train.lr"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load(writeConfig(t, tc.text), tc.sets)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// The files of runs of earlier versions are read.
func TestKeysOfEarlierVersions(t *testing.T) {
	if _, err := Load(writeConfig(t, minimal+"sample: {kernel: coo, fanouts: [2, 2, 2]}\n"),
		nil); err != nil {
		t.Error(err)
	}
	c, err := Load(writeConfig(t, minimal), nil)
	if err != nil {
		t.Fatal(err)
	}
	ours := c.YAML()
	// of a run that had neither these keys nor another that came later
	was := regexp.MustCompile(
		`(?m)^  (learned_(scale|unread|decay)|shuffles): .*\n`).ReplaceAllString(ours, "")
	for text, want := range map[string]nn.LearnedOptions{
		was:     {LR: 0.01, Scale: 1, Unread: nn.UnreadKeep}, // as these runs began and were judged
		ours:    {LR: 0.01, Scale: 0.01, Unread: nn.UnreadZero},
		minimal: {LR: 0.01, Scale: 0.01, Unread: nn.UnreadZero},
	} {
		if c, err := Load(writeConfig(t, text), nil); err != nil || c.Job.Learned != want {
			t.Errorf("learned rows %+v (%v), want %+v", c.Job.Learned, err, want)
		}
	}
	if c, err := Load(writeConfig(t, was), []string{"model.learned_scale=0.5"}); err != nil ||
		c.Job.Learned.Scale != 0.5 {
		t.Errorf("--set does not come last: %v", err)
	}
	// such a run goes on
	run := writeConfig(t, was)
	for _, sets := range [][]string{nil, {"model.learned=4"}} {
		began, err := Load(run, sets)
		if err != nil {
			t.Fatal(err)
		}
		saved := began.Flat() // by its checkpoint
		for name := range before {
			delete(saved, name)
		}
		delete(saved, "train.learned_decay")
		if err := began.Changes(saved); err != nil {
			t.Error(err)
		}
		now, err := Load(writeConfig(t, minimal), sets)
		if err != nil {
			t.Fatal(err)
		}
		if err := now.Changes(saved); (err != nil) != (sets != nil) ||
			err != nil && !strings.Contains(err.Error(), "model.learned_scale is 0.01, but the "+
				"run began with 1") {
			t.Errorf("%v: %v", sets, err)
		}
	}
}

// Every field is a key of the table, once; every key has a meaning; defaults are right.
func TestTableIsWhole(t *testing.T) {
	c := Default()
	bound := map[any]string{}
	for _, k := range c.keys() {
		field := reflect.ValueOf(k.value).Elem().FieldByName("field").Pointer()
		if other, twice := bound[field]; twice {
			t.Errorf("%s and %s are one field", k.Name, other)
		}
		bound[field] = k.Name
		if k.Brief == "" || strings.HasSuffix(k.Brief, ".") || k.Note != "" &&
			!strings.HasSuffix(k.Note, ".") {
			t.Errorf("%s: %q is no phrase, or %q no sentence", k.Name, k.Brief, k.Note)
		}
		if fault := k.fault(k.Name, ""); fault != "" && !k.missing() {
			t.Errorf("the default is refused: %s", fault)
		}
		if k.Traits&NoResult != 0 && k.Traits&SameEpoch == 0 {
			t.Errorf("%s changes no result, but the work of an epoch", k.Name)
		}
	}
	sections := reflect.ValueOf(c).Elem()
	for i := range sections.NumField() {
		of := sections.Type().Field(i)
		if of.Name == "Job" || of.Type.Kind() != reflect.Struct { // a job has more than keys set
			continue
		}
		for k := range sections.Field(i).NumField() {
			if _, ok := bound[sections.Field(i).Field(k).Addr().Pointer()]; !ok {
				t.Errorf("%s.%s has no row in the table", of.Name, of.Type.Field(k).Name)
			}
		}
	}
}

// A printed config loads to the same config, for any names of paths.
func TestPrintedConfigLoadsToTheSame(t *testing.T) {
	hostile := []string{
		"p", "a b", "#x", "a: b", "null", "~x"[1:], "true", "12", "'q'", `"q"`, `back\slash`, "- x",
		"[1]", "{a}", "tab\there", "line\nbreak",
		"世界", "x\u202egnp", "a #b", "*x", "&x", "!x", "%x", "@x", "`x`", "|", ">", "?", "a,b", "x:",
		"0x10", "1e3", ".nan", "=",
	}
	for range 50 {
		r := make([]rune, 8)
		for i := range r {
			r[i] = rune(rand.IntN(0x250))
		}
		if s := strings.TrimSpace(string(r)); s != "" && !strings.HasPrefix(s, "~") &&
			utf8.ValidString(s) {
			hostile = append(hostile, s)
		}
	}
	for i, path := range hostile {
		want := Default()
		want.Data.Parts, want.Run.Dir = path, "d"
		want.Job.Cache.Evict, want.Job.Schedule.Base, want.Job.Seed = i%2 == 0, rand.Float64()+1e-9,
			rand.Uint64N(math.MaxInt)
		want.Job.Model.Layers, want.Drawn.Fanouts = 2, []int{-1, 1 + i}
		for _, text := range []string{want.YAML(), want.CommentedYAML()} {
			got, err := Load(writeConfig(t, text), nil)
			if err != nil {
				t.Fatalf("parts %q: %v in\n%s", path, err, text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("parts %q: %s", path, diff)
			}
		}
	}
}

// The printed defaults lack only the keys that must be given.
func TestPrintedDefaultsAreABeginning(t *testing.T) {
	want := Default()
	want.Data.Parts, want.Run.Dir = "p", "d"
	got, err := Load(writeConfig(t, Default().CommentedYAML()), []string{"data.parts=p",
		"run.dir=d"})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if c, err := WithDefaults([]string{"train.lr=1"}); err != nil || c.Job.Schedule.Base != 1 {
		t.Errorf("settings without a file: %v", err)
	}
	if _, err := WithDefaults([]string{"train.lr=0", "model.layers=0"}); err == nil ||
		strings.Contains(err.Error(), "is missing") ||
		!strings.Contains(err.Error(), "model.layers is 0") {
		t.Errorf("bad settings without a file: %v", err)
	}
	for _, page := range regexp.MustCompile(`docs/[^\s#),]*[a-z]`).FindAllString(
		Default().CommentedYAML(), -1) {
		if _, err := os.Stat(filepath.Join("../../..", page)); err != nil {
			t.Errorf("a comment refers to %s: %v", page, err)
		}
	}
	for i, line := range strings.Split(Default().CommentedYAML()+Markdown(), "\n") {
		if utf8.RuneCountInString(line) > lineWidth {
			t.Errorf("line %d is wide: %s", i+1, line)
		}
	}
}

func TestPageIsFresh(t *testing.T) {
	page, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Markdown(), string(page)); diff != "" {
		t.Errorf("docs/config.md is not what the table says; run `make docs`:\n%s", diff)
	}
}

func TestPoliciesAreThoseThatThereAre(t *testing.T) {
	want := append(policy.Names(policy.Trainable), "auto")
	got := Words("cache.policy")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("cache.policy takes %v; there are %v", got, want)
	}
}

// What a resumed run must keep is said before other faults, which advise to change other keys.
func TestKeeps(t *testing.T) {
	run := writeConfig(t, minimal+"cache: {policy: vip}\n")
	for _, c := range []struct {
		path string
		sets []string
		want string
	}{
		{run, []string{"cache.policy=none", "run.dir=elsewhere"}, ""},
		{run, []string{"parallel.mode=split"},
			"parallel.mode is split, but the run began with data"},
		{writeConfig(t, minimal+"model: {hidden: 8}\n"), nil, "model.hidden is 8, but the run " +
			"began with 256"},
		{run, []string{"train.lr=fast"}, ""}, // Load says what is wrong
		{run, []string{"cache.placement=group", "cache.policy=sieve"}, ""},
		{run + ".none", nil, ""},
	} {
		err := Keeps(run, c.path, c.sets)
		if c.want == "" && err != nil || c.want != "" && (err == nil ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: got %v, expected %q", c.sets, err, c.want)
		}
	}
}

// A resumed run may change keys that do not affect its numbers. Keys that it did not know had their
// defaults.
func TestChanges(t *testing.T) {
	began := Default().Flat()
	delete(began, "model.heads")
	now := Default()
	now.Job.Depth, now.Job.Epochs, now.Job.Cache.Policy, now.Run.Dir = 9, 99, "vip", "elsewhere"
	if err := now.Changes(began); err != nil {
		t.Errorf("refused: %v", err)
	}
	now.Job.Schedule.Base, now.Job.Model.Heads = 0.5, 3
	err := now.Changes(began)
	for _, want := range []string{
		"  train.lr is 0.5, but the run began with 0.003",
		"  model.heads is 3, but the run began with 2",
		"may change only data.parts, data.verify, sample.on, train.epochs, exchange.*, cache.*, " +
			"pipeline.*, topology.*, compute.threads,",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	// Checkpoints of earlier versions have values in this form.
	for key, want := range map[string]string{"sample.fanouts": "[15 10 5]", "train.lr": "0.003",
		"cache.evict": "true", "data.parts": ""} {
		if began[key] != want {
			t.Errorf("%s is %q in a checkpoint, was %q", key, began[key], want)
		}
	}
}

func TestTraits(t *testing.T) {
	for _, c := range []struct {
		key    string
		traits Traits
		want   bool
	}{
		{"run.dir", NoResult, true}, {"run.ranks_per_node", SameEpoch, false},
		{"cache.alpha", MayChange | SameEpoch, true},
		{"compute.simd", MayChange, false}, {"train.lr", SameEpoch, false}, {"no.key", SameEpoch,
			false},
	} {
		if got := Has(c.key, c.traits); got != c.want {
			t.Errorf("%s has traits %b: %t", c.key, c.traits, got)
		}
	}
	if words := Words("sample.streams"); fmt.Sprint(words) != "[rank part]" ||
		Words("train.lr") != nil || Words("no.key") != nil {
		t.Errorf("sample.streams takes %v", words)
	}
}

// Fanouts of evaluation are empty unless they are given, and the resolved config says so and is
// read again.
func TestEvalFanouts(t *testing.T) {
	for _, tc := range []struct {
		text string
		sets []string
		want []int
	}{
		{"", nil, nil},
		{"sample: {eval_fanouts: []}\n", nil, nil},
		{"sample: {eval_fanouts: [20, 20, -1]}\n", nil, []int{20, 20, -1}},
		{"sample: {eval_fanouts: [20, 20, -1]}\n", []string{"sample.eval_fanouts=9,8,7"},
			[]int{9, 8, 7}},
		{"sample: {eval_fanouts: [20, 20, -1]}\n", []string{"sample.eval_fanouts="}, nil},
		{"model: {kind: mlp}\nsample: {eval_fanouts: [20]}\n", nil,
			[]int{20}}, // reads no neighbours
	} {
		got, err := Load(writeConfig(t, minimal+tc.text), tc.sets)
		if err != nil {
			t.Errorf("%s %q: %v", tc.text, tc.sets, err)
			continue
		}
		text := string(got.YAML())
		again, err := Load(writeConfig(t, text), nil)
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%s %q: the resolved config is read as %+v (%v), not as %+v",
				tc.text, tc.sets, again, err, got)
		}
		if !slices.Equal(got.Drawn.EvalFanouts, tc.want) || !strings.Contains(text,
			"eval_fanouts:") {
			t.Errorf("%s %q: they are %v, want %v", tc.text, tc.sets, got.Drawn.EvalFanouts,
				tc.want)
		}
	}
}

// A resumed run must keep them: its validation would not be comparable.
func TestEvalFanoutsStay(t *testing.T) {
	c := Default()
	began := c.Flat()
	c.Drawn.EvalFanouts = []int{20, 20, 20}
	err := c.Changes(began)
	if err == nil || !strings.Contains(err.Error(),
		"sample.eval_fanouts is [20 20 20], but the run began with []") {
		t.Errorf("changed from none: %v", err)
	}
	delete(began, "sample.eval_fanouts") // a run that did not know the key
	c.Drawn.EvalFanouts = nil
	if err := c.Changes(began); err != nil {
		t.Error(err)
	}
}
