package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The sentences at the top of the page agree with the numbers of the fixtures.
func TestVerdict(t *testing.T) {
	majority := func(share float64) []*Run {
		runs := fixture(t, "base")
		runs[0].Summary["majority_accuracy"] = share
		return runs
	}
	other := fixture(t, "base", "wide")
	other[1].Summary["graph"] = map[string]any{"vertices": 7.0}
	other[1].Config["data.parts"] = "data/other"
	sweep := fixture(t, "base", "base", "vip")
	for i, r := range sweep {
		r.Config["train.seed"], r.Config["cache.policy"] = i, "none"
		r.Config["train.lr"] = 0.01 * float64(1+i/2)
		r.Summary["valid_metric"] = []float64{0.7, 0.8, 0.72}[i]
		r.Summary["test_metric"] = []float64{0.6, 0.64, 0.9}[i]
	}
	delete(sweep[2].Config, "cache.alpha")
	delete(sweep[0].Config, "cache.alpha")
	delete(sweep[1].Config, "cache.alpha")
	worse := fixture(t, "base", "vip")
	worse[1].Summary["test_metric"] = 0.5
	untested := func(names ...string) []*Run {
		runs := fixture(t, names...)
		last := runs[len(runs)-1].Summary
		last["test_metric"] = nil
		last["no_value"] = map[string]any{"test_metric": "no vertices"}
		return runs
	}
	neither, unjudged := untested("base", "vip"), fixture(t, "base", "vip")
	neither[0].Summary["test_metric"], unjudged[1].Summary["valid_metric"] = nil, nil
	const longest = "Rank 1 works longest, 80 % of its CPUs' time; of the 2.5 s of an epoch its " +
		"training thread spends forward 60 %, sync 20 %. What to do about a long phase: " +
		"docs/guide/reading-a-report.md, Long phases."
	for _, c := range []struct {
		name string
		runs []*Run
		want []string
	}{
		{"one run", majority(0.21), []string{
			"Test accuracy 71.00 % with the weights of epoch 2 of 2, 50.0 points above the " +
				"majority class.",
			"An epoch took 2.500 s, of which training waited 20.00 % for minibatches; " +
				"1 000 feature rows crossed between nodes.",
			longest,
		}},
		{"one that learnt nothing", majority(0.75), []string{
			"Test accuracy 71.00 % with the weights of epoch 2 of 2: no better than the " +
				"majority class, 75.00 %.",
			"An epoch took 2.500 s, of which training waited 20.00 % for minibatches; " +
				"1 000 feature rows crossed between nodes.",
			longest,
		}},
		{"equal runs", fixture(t, "base", "vip"), []string{
			"All runs have the same validation accuracy, 70.00 %; test 71.00 %.",
			"Fastest epochs: vip, 1.500 s, 1.7 times as fast as base.",
		}},
		{"unequal runs, one of which was killed", append(worse, fixture(t, "killed")...), []string{
			"Best by validation: base, accuracy 70.00 %; test 71.00 %. The last of 2, vip, has " +
				"70.00 %; test 50.00 %.",
			"Fastest epochs: vip, 1.500 s, 1.7 times as fast as base.",
			"1 of 3 runs have not finished.",
		}},
		{"one run without a test", untested("base"), []string{
			"The test split gives no accuracy: no vertices.",
			"An epoch took 2.500 s, of which training waited 20.00 % for minibatches; " +
				"1 000 feature rows crossed between nodes.",
			longest,
		}},
		{"two runs, one without a test", untested("base", "vip"), []string{
			"Best by validation: base, accuracy 70.00 %; test 71.00 %. The last of 2, vip, has " +
				"70.00 %; test –.",
			"Fastest epochs: vip, 1.500 s, 1.7 times as fast as base.",
		}},
		{"two runs, neither with a test", neither, []string{
			"All runs have the same validation accuracy, 70.00 %; test –.",
			"Fastest epochs: vip, 1.500 s, 1.7 times as fast as base.",
		}},
		{"two runs, one without a validation", unjudged, []string{
			"Best by validation: base, accuracy 70.00 %; test 71.00 %. 1 of 2 runs have no " +
				"validation.",
			"Fastest epochs: vip, 1.500 s, 1.7 times as fast as base.",
		}},
		{"two data sets, which are not compared", other, []string{
			"parts: Test accuracy 71.00 % with the weights of epoch 2 of 2.",
			"parts: An epoch took 2.500 s, of which training waited 20.00 % for minibatches; " +
				"1 000 feature rows crossed between nodes.",
			"other: Test accuracy 70.50 % with the weights of epoch 2 of 1.",
			"other: An epoch took 1.562 s, of which training waited 10.00 % for minibatches; " +
				"1 800 feature rows crossed between nodes.",
		}},
		{"a sweep, chosen by validation, not by test", sweep, []string{
			"Best by validation: train.lr 0.01, accuracy 75.00 ± 7.07 %; test 62.00 ± 2.83 % " +
				"(mean ± standard deviation of 2 runs). The last of 2, train.lr 0.02, " +
				"has 72.00 %; test 90.00 %.",
			"Fastest epochs: testdata/vip, 1.500 s, 1.7 times as fast as testdata/base.",
		}},
		{"nothing finished", fixture(t, "killed"), []string{"No run has finished."}},
	} {
		got := plainText([][]string{verdict(c.runs)})[0]
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: expected -, got +\n%s", c.name, d)
		}
	}
}

// Validation chooses among seeds of which none, or not all, have a test.
func TestSeedsWithoutATest(t *testing.T) {
	runs := fixture(t, "base", "base")
	runs[1].Config["train.seed"] = 2
	for i, want := range []string{"71.00 %", "–"} {
		runs[i].Summary["test_metric"] = nil
		got := plainText(repetitions(runs).rows)[0]
		if d := cmp.Diff([]string{"2", "70.00 ± 0.00 %", want}, got[1:4]); d != "" {
			t.Error(d)
		}
	}
}

// A metric without a value is a dash with its reason in tables, an empty cell in runs.csv, and no
// point of a curve.
func TestNoValue(t *testing.T) {
	runs := fixture(t, "base", "vip")
	r := runs[1]
	r.Summary["test_metric"], r.Summary["valid_metric"] = nil, nil
	r.Summary["no_value"] = map[string]any{"test_metric": "only class 1",
		"valid_metric": "no labels"}
	for _, e := range r.Evals {
		e["valid_metric"] = nil
	}
	rows := plainText(outcomes(runs).rows)
	if got := rows[1][2:4]; got[0] != "– (only class 1)" || got[1] != "– (no labels)" {
		t.Errorf("test and valid are %q", got)
	}
	if got := plainText(differences(runs).rows)[1]; got[len(got)-1] != "– (only class 1)" {
		t.Errorf("what differs is %q", got)
	}
	var csv strings.Builder
	if err := writeRuns(&csv, runs); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(csv.String(), "\n")
	_, vip, _ := strings.Cut(rest, "\n")
	at := map[string]string{}
	for i, key := range strings.Split(head, ",") {
		at[key] = strings.Split(vip, ",")[i]
	}
	if at["test_metric"] != "" || at["valid_metric"] != "" ||
		at["no_value.test_metric"] != "only class 1" {
		t.Errorf("runs.csv has %v", at)
	}
	if !validation(runs[1:], "roc_auc").Empty() {
		t.Error("a curve of validations that have no value")
	}
}

// An area under a curve is a number from 0 to 1, not a share in per cent.
func TestAnAreaIsANumber(t *testing.T) {
	runs := fixture(t, "base")
	s := runs[0].Summary
	s["metric_name"], s["valid_metric"], s["test_metric"] = "roc_auc", 0.75, 0.912345
	if got := verdict(runs)[0]; !strings.HasPrefix(got, "Test roc_auc 0.9123 ") {
		t.Errorf("the verdict begins %q", got)
	}
	if got := outcomes(runs).rows[0][2:4]; !slices.Contains(got, "0.7500") ||
		!slices.Contains(got, "0.9123") {
		t.Errorf("test and valid are %q", got)
	}
	if drawn := validation(runs, "roc_auc").HTML(); strings.Contains(drawn, "roc_auc, %") ||
		!strings.Contains(drawn, "test 0.912") {
		t.Error("the curve has per cents")
	}
}

func TestConfusionTables(t *testing.T) {
	runs := fixture(t, "base")
	if confusions(runs) != nil {
		t.Error("a table without a matrix")
	}
	runs[0].Summary["confusion"] = []any{[]any{3.0, 1.0}, []any{0.0, 0.0}}
	got := confusions(runs)
	want := [][]string{
		{"0", "4", "75.00 %", "100.00 %", "3", "1"}, {"1", "0", "–", "0.00 %", "0", "0"},
	}
	if d := cmp.Diff(want, plainText(got[0].rows)); d != "" {
		t.Error(d)
	}
	var wide []any
	for i := range 13 {
		row := slices.Repeat([]any{0.0}, 13)
		row[i] = 3.0
		wide = append(wide, row)
	}
	wide[4].([]any)[7] = 1.0
	runs[0].Summary["confusion"] = wide
	rows := plainText(confusions(runs)[0].rows)
	if d := cmp.Diff([]string{"4", "4", "75.00 %", "100.00 %", "7 (25.00 %)"}, rows[4]); d != "" {
		t.Error(d)
	}
	for _, damaged := range []any{"x", []any{[]any{1.0}, []any{2.0}}, []any{[]any{-1.0}},
		[]any{1.0}} {
		if runs[0].Summary["confusion"] = damaged; confusions(runs) != nil {
			t.Errorf("a table of %v", damaged)
		}
	}
}

// The table of what was run shows values of the config and the summary, and omits absent ones.
func TestSettings(t *testing.T) {
	runs := fixture(t, "base")
	runs[0].Summary["host"], runs[0].Summary["job"] = "n<1>", "77"
	runs[0].Summary["finished"] = "2026-01-02T03:04:05Z"
	runs[0].Config["sample.batch_scope"] = "global"
	if got := minibatchOf(runs[0]); got != "64 seeds of all ranks together, fanouts 10, 5" {
		t.Errorf("minibatches of all ranks: %q", got)
	}
	delete(runs[0].Config, "sample.batch_scope")
	s := settings(runs)
	text := ""
	for _, row := range s.rows {
		text += strings.Join(row, ": ") + "\n"
	}
	want := "data: parts\ngraph: 1\u202f000 vertices, 9\u202f000 edges, 100 features, 10 " +
		"classes\nminibatch: 64 seeds a rank, fanouts 10, 5\noptimiser: lr 0.01\ncache: none\n" +
		"ranks: 2 on 2 nodes, n<1>, job 77\nfinished: 2026-01-02 03:04:05 UTC\nversion: v1\n"
	if d := cmp.Diff(want, text); d != "" {
		t.Error(d)
	}
}

// Columns of zeros are dropped; runs and rows of words are not.
func TestZerosAreDropped(t *testing.T) {
	one := table{columns: []string{"run", "a", "b", "c"},
		rows: [][]string{{"x", "0", "1", "–"}, {"y", "0.00\u202f%", "0", "–"}}}
	one.dropZeros()
	if d := cmp.Diff([][]string{{"run", "b"}, {"x", "1"}, {"y", "0"}},
		append([][]string{one.columns}, one.rows...)); d != "" {
		t.Error(d)
	}
}

// Classes have the names of the dataset.
func TestClassNames(t *testing.T) {
	r := fixture(t, "base")[0]
	r.Summary["confusion"] = []any{[]any{3.0, 1.0}, []any{0.0, 2.0}}
	r.Summary["class_names"] = []any{"cat", "<dog>"}
	got := confusions([]*Run{r})[0]
	if d := cmp.Diff([]string{"as cat", "as <dog>"}, got.columns[4:]); d != "" ||
		got.rows[1][0] != "<dog>" {
		t.Error(d, got.rows)
	}
}

// What goes on beside the epoch is not more than all of it.
func TestSharesAreBelowOneHundred(t *testing.T) {
	if a, b := share(0.5, true), share(1.0254, true); a != "50.00\u202f%" ||
		b != "1.03\u202ftimes" {
		t.Error(a, b)
	}
}

func TestFoldedTables(t *testing.T) {
	for _, c := range []struct {
		rows [][]string
		want bool
	}{
		{[][]string{{"run1", "0", "0.00 %", "–", "none"}}, true},
		{[][]string{{"run", "0"}, {"run", "0.001"}}, false},
	} {
		if got := (&table{rows: c.rows}).allZero(); got != c.want {
			t.Errorf("%v: %v", c.rows, got)
		}
	}
}
