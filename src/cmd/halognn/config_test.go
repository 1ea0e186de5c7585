package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

const minimal = "data: {parts: p}\nrun: {dir: d}\n"

func TestModelWithoutNeighboursNeedsNoFanouts(t *testing.T) {
	if _, err := loadConfig(writeConfig(t, minimal+"model: {kind: mlp, layers: 2}\n"), nil); err != nil {
		t.Errorf("the default fanouts are refused: %v", err)
	}
}

func TestConfigFillsDefaultsAndOverrides(t *testing.T) {
	path := writeConfig(t, minimal+"sample:\n  fanouts: [10, 5]\nmodel:\n  layers: 2\n")
	c, err := loadConfig(path, []string{"train.lr=0.01", "sample.fanouts=7,8"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Train.LR != 0.01 || !reflect.DeepEqual(c.Sample.Fanouts, []int{7, 8}) || c.Model.Layers != 2 || c.Model.Hidden != 256 {
		t.Errorf("got %+v", c)
	}
}

// Fanouts of evaluation are empty unless they are given, and the resolved config says so and is read again.
func TestEvalFanouts(t *testing.T) {
	for _, c := range []struct {
		text string
		sets []string
		want []int
	}{
		{"", nil, nil},
		{"sample: {eval_fanouts: []}\n", nil, nil},
		{"sample: {eval_fanouts: [20, 20, -1]}\n", nil, []int{20, 20, -1}},
		{"sample: {eval_fanouts: [20, 20, -1]}\n", []string{"sample.eval_fanouts=9,8,7"}, []int{9, 8, 7}},
		{"sample: {eval_fanouts: [20, 20, -1]}\n", []string{"sample.eval_fanouts="}, nil},
		{"model: {kind: mlp}\nsample: {eval_fanouts: [20]}\n", nil, []int{20}}, // which reads no neighbours
	} {
		got, err := loadConfig(writeConfig(t, minimal+c.text), c.sets)
		if err != nil {
			t.Errorf("%s %q: %v", c.text, c.sets, err)
			continue
		}
		text, err := got.yaml()
		if err != nil {
			t.Fatal(err)
		}
		again, err := loadConfig(writeConfig(t, string(text)), nil)
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%s %q: the resolved config is read as %+v (%v), not as %+v", c.text, c.sets, again, err, got)
		}
		if o := got.trainOptions(); !slices.Equal(o.EvalFanouts, c.want) || !strings.Contains(string(text), "eval_fanouts:") {
			t.Errorf("%s %q: fanouts of evaluation are %v, want %v", c.text, c.sets, o.EvalFanouts, c.want)
		}
	}
}

// A run that goes on keeps them: what it validates by would be another measure.
func TestEvalFanoutsStay(t *testing.T) {
	c := defaultConfig()
	began := c.flat()
	c.Sample.EvalFanouts = []int{20, 20, 20}
	if err := c.changes(began); err == nil || !strings.Contains(err.Error(), "sample.eval_fanouts is [20 20 20], the run began with []") {
		t.Errorf("changed from none: %v", err)
	}
	delete(began, "sample.eval_fanouts") // a run that did not know the key
	c.Sample.EvalFanouts = nil
	if err := c.changes(began); err != nil {
		t.Error(err)
	}
}

func TestCoresOfARank(t *testing.T) {
	for _, c := range []struct {
		device                          string
		cpus, set, wantCompute, workers int
	}{{"cpu", 8, 0, 6, 2}, {"cpu", 1, 0, 1, 1}, {"cuda", 8, 0, 1, 6}, {"cuda", 2, 0, 1, 1}, {"cuda", 8, 3, 1, 3}} {
		config := &Config{}
		config.Compute.Device, config.Pipeline.Workers = c.device, c.set
		if compute, workers := config.threads(c.cpus); compute != c.wantCompute || workers != c.workers {
			t.Errorf("%+v: %d threads compute, %d goroutines prepare", c, compute, workers)
		}
	}
}

func TestConfigFaultsAreReportedAtOnceWithLineAndCure(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		sets       []string
		want       []string
	}{
		{"unknown key", minimal + "train:\n  leraning_rate: 1\n", nil, []string{"line 4: unknown key train.leraning_rate"}},
		{"near key", minimal + "train:\n  epoch: 1\n", nil, []string{"line 4", "did you mean train.epochs?"}},
		{"right name, wrong section", minimal + "model:\n  lr: 1\n", nil, []string{"did you mean train.lr?"}},
		{"unknown section", minimal + "modle:\n  hidden: 1\n", nil, []string{"line 3: unknown key modle"}},
		{"wrong type", minimal + "train:\n  epochs: many\n", nil, []string{`line 4: train.epochs is "many"; it must be a whole number`}},
		{"list for a number", minimal + "train:\n  epochs: [1, 2]\n", nil, []string{"train.epochs is a list"}},
		{"two faults", minimal + "train:\n  epochs: x\n  lrr: 1\n", nil, []string{"line 4", "line 5", "did you mean train.lr?"}},
		{"zero fanout", minimal + "sample:\n  fanouts: 15,0,5\n", nil, []string{"sample.fanouts[1] is 0"}},
		{"fanouts against layers", minimal + "model:\n  layers: 2\n", nil, []string{"sample.fanouts has 3 entries but model.layers is 2"}},
		{"evaluation's fanouts", minimal + "sample:\n  eval_fanouts: [20, 0, 2147483648, 20]\n", nil, []string{
			"sample.eval_fanouts[1] is 0; a fanout is at least 1 and at most 2147483647, or -1 for all neighbours",
			"sample.eval_fanouts[2] is 2147483648", "sample.eval_fanouts has 4 entries but model.layers is 3",
		}},
		{"no fanouts", minimal + "sample:\n  fanouts: []\n", nil, []string{"sample.fanouts has 0 entries but model.layers is 3"}},
		{"nothing given", "", nil, []string{"data.parts is missing", "run.dir is missing"}},
		{"not in this version", minimal + "parallel:\n  mode: split\n", nil, []string{`parallel.mode: "split" is not in this version; use data`}},
		{"no such word", minimal + "model:\n  kind: transformer\n", nil, []string{`model.kind is "transformer"; it must be sage or mlp`}},
		{"set without value", minimal, []string{"train.lr"}, []string{"--set train.lr: it must be key.path=value"}},
		{"set of an unknown key", minimal, []string{"trian.lr=1"}, []string{"--set trian.lr=1: unknown key trian.lr; did you mean train.lr?"}},
		{"not YAML", "data: [", nil, []string{"not valid YAML"}},
		{"section with a value", "data: 5\n" + "run: {dir: d}\n", nil, []string{"data is a section"}},
		{"key without value", minimal + "train:\n  lr:\n", nil, []string{"train.lr has no value"}},
		{"dropout out of range", minimal + "model:\n  dropout: 1\n", nil, []string{"model.dropout is 1; it must be in [0, 1)"}},
		{"more than any graph or machine has", minimal + "sample: {batch: 9223372036854775807}\ntrain: {epochs: 2000000000}\npipeline: {workers: 100000, depth: 70000}\nmodel: {hidden: 3000000000, layers: 2000000000}\n", []string{"compute.threads=5000"},
			[]string{"sample.batch is 9223372036854775807; it must be 1 to 2147483647", "train.epochs is 2000000000", "pipeline.workers is 100000", "pipeline.depth is 70000", "compute.threads is 5000", "model.hidden is 3000000000", "model.layers is 2000000000"}},
		{"NaN learning rate", minimal + "train:\n  lr: .nan\n", nil, []string{"train.lr"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadConfig(writeConfig(t, tc.text), tc.sets)
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

// The page and the struct must not drift apart.
func TestEveryKeyIsDocumentedWithItsDefault(t *testing.T) {
	page, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = strings.TrimSpace(m[2])
	}
	b := binder{fields: map[string]reflect.Value{}}
	b.index("", reflect.ValueOf(defaultConfig()).Elem())
	for _, key := range b.keys {
		want := strings.Trim(strings.ReplaceAll(fmt.Sprint(b.fields[key]), " ", ","), "[]")
		got, ok := documented[key]
		if !ok {
			t.Errorf("%s is not in docs/config.md", key)
		} else if got != want && !(want == "" && (got == "-" || got == `""`)) {
			t.Errorf("%s: docs/config.md says %q, the default is %q", key, got, want)
		}
		delete(documented, key)
	}
	for key := range documented {
		t.Errorf("docs/config.md explains %s, which is no key", key)
	}
}
