package report

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"halognn/src/base/chart"
)

// The runs of testdata are small enough to compute the expected values by hand: base
// without a cache, vip with one, killed in its second epoch with damaged records, old of a version
// without caches, wide as base on twice the ranks.
func fixture(t *testing.T, names ...string) []*Run {
	t.Helper()
	var dirs []string
	for _, name := range names {
		dirs = append(dirs, filepath.Join("testdata", name))
	}
	runs, err := Load(dirs)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// plainText undoes the narrow blanks of figures.
func plainText(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			row[i] = strings.ReplaceAll(row[i], "\u202f", " ")
		}
	}
	return rows
}

func TestTablesHoldWhatWasComputedByHand(t *testing.T) {
	four := []string{"base", "vip", "killed", "old"}
	for _, c := range []struct {
		name string
		runs []string
		of   func([]*Run) table
		want [][]string
	}{
		{"outcomes", four, outcomes, [][]string{
			{"base", "2", "71.00 %", "70.00 %", "2", "2.500", "2 to 3", "20.00 %", "120",
				"0123456789abcdef"},
			{"vip", "2", "71.00 %", "70.00 %", "2", "1.500", "1 to 2", "20.00 %", "123",
				"0123456789abcdef"},
			{"killed", "2", "–", "–", "1", "1.500", "–", "25.00 %", "–", "–"},
			{"old", "–", "–", "–", "1", "2.500", "–", "50.00 %", "–", "–"},
		}},
		{"traffic, with what old runs do not have", four, traffic, [][]string{
			{"base", "4 000", "150", "50", "0", "–", "–", "1 000", "0", "0", "1 000", "0.4000",
				"3"},
			{"vip", "4 000", "150", "50", "350", "–", "–", "600", "0", "0", "600", "0.2400", "9"},
			{"killed", "4 000", "150", "50", "400", "–", "–", "600", "50", "0", "650", "0.2600",
				"–"},
			{"old", "4 000", "0", "–", "–", "–", "–", "–", "–", "–", "1 200", "0.4800", "–"},
		}},
		{"caches", four, caches, [][]string{
			{"vip", "vip", "100", "0.04200", "40.00 %", "40.00 %", "0", "0.5000", "300", "321"},
			// 1 - 650 / (400 + 50 + 600)
			{"killed", "prefetch", "–", "–", "38.10 %", "–", "100", "0.5000", "–", "–"},
		}},
		{"against a run without a cache", four, baselines, [][]string{
			{"vip", "600", "1 000", "60.00 %", "base"},
			{"killed", "650", "1 000", "65.00 %", "base"},
		}},
		{"against own accesses", []string{"killed"}, baselines,
			[][]string{{"killed", "650", "1 050", "61.90 %", "its own remote accesses"}}},
		{"other ranks are no baseline", []string{"vip", "wide"}, baselines,
			[][]string{{"vip", "600", "1 000", "60.00 %", "its own remote accesses"}}},
		{"scaling", []string{"wide", "vip", "base"}, scaling, [][]string{
			{"base", "2", "2.500", "1.00", "100.00 %", "128"},
			{"wide", "4", "1.562", "1.60", "80.00 %", "128"},
		}},
		{"no scaling", four, scaling, nil},
		{"no weak scaling", []string{"wide", "base"}, weakScaling, nil},
		{"efficiency", []string{"wide", "vip", "base"}, efficiencies, [][]string{
			{"wide", "4", "60.00 %", "75.00 %", "80.00 %", "–", "–", "10", "80.00 %"},
			{"base", "2", "72.00 %", "90.00 %", "80.00 %", "–", "–", "8", "100.00 %"},
		}},
		{"efficiency of one run", []string{"base"}, efficiencies,
			[][]string{{"base", "2", "72.00 %", "90.00 %", "80.00 %", "–", "–", "8", "–"}}},
		{"differences", []string{"base", "vip", "old"}, differences, [][]string{
			{"base", "0.1", "none", "2", "2.500", "1 000", "0.00 %", "70.00 %", "71.00 %"},
			{"vip", "0.2", "vip", "2", "1.500", "600", "40.00 %", "70.00 %", "71.00 %"},
			{"old", "–", "–", "–", "2.500", "1 200", "–", "–", "–"},
		}},
		{"balance", []string{"base", "old"}, balance,
			[][]string{{"base", "2", "400", "500", "600", "0", "10.00 %", "20.00 %", "30.00 %",
				"0"}}},
		{"what is not training", four, overheads, [][]string{
			{"base", "20.00 %", "0.1250", "5.00 %", "0.3750", "15.00 %", "–"},
			{"vip", "20.00 %", "–", "–", "0", "0.00 %", "1.250"},
		}},
		{"before the first step", four, setUp, [][]string{
			{"launch", "0.2500"},
			{"open", "0.06250"},
			{"verify", "0.1250"},
			{"device", "0.06250"},
			{"seeds", "0.06250"},
			{"model", "0.06250"},
			{"tables", "0.06250"},
			{"choose", "0"},
			{"rank", "0.2500"},
			{"predict", "0.06250"},
			{"fill", "0.1250"},
			{"pipeline", "0.06250"},
			{"run", "0.06250"},
			{"together", "1.250"},
			{"cache, of all epochs", "14.58 %"}, // 0.4375 of 2 times 1.5
		}},
		{"a model beside its measurement", four, timeModel, [][]string{
			{"pipeline depth", "0", "2"},
			{"t_sample", "0.1250", "0.1250"},
			{"t_lookup", "0.06250", "0.06250"},
			{"t_score", "0", "0.5000"},
			{"t_remote", "0.2500", "0.2500"},
			{"t_copy", "0.06250", "0.06250"},
			{"t_train", "0.4375", "0.4375"},
			{"t_shuffle", "–", "–"},
			{"t_sync", "0.06250", "0.06250"},
			{"T_prepare (eq. 3)", "0.4375", "0.6875"},
			{"T_base (eq. 2), depth 0", "0.8750", "0.8750"},
			{"T_prefetch (eq. 5), depth 1", "0.5000", "0.6875"},
			{"a step, measured", "1", "0.7500"},
			{"T_prefetch of the first step (eq. 4)", "0.9375", "1.375"},
			{"the first step, measured", "1.500", "–"},
			{"T_base / t_DDP (eq. 6)", "1.750", "1.750"},
		}},
		{"phases", []string{"old"}, phases, [][]string{
			{"epoch", "2.500"}, {"sample", "0.2500"}, {"ask", "–"}, {"plan", "–"}, {"score", "–"},
			{"exchange", "0.5000"}, {"slice", "–"}, {"gather", "–"}, {"forward", "0.2500"},
			{"backward", "0.5000"}, {"shuffle", "–"}, {"sync", "–"}, {"update", "–"},
			{"wait", "1.250"}, {"save", "–"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.of(fixture(t, c.runs...))
			if d := cmp.Diff(c.want, plainText(got.rows)); d != "" {
				t.Errorf("%s: expected -, got +\n%s", c.name, d)
			}
			for _, row := range got.rows {
				if len(row) != len(got.columns) {
					t.Errorf("%d cells below %d columns", len(row), len(got.columns))
				}
			}
		})
	}
}

func TestFactorsOfLocality(t *testing.T) {
	runs := []*Run{
		{Name: "near", Epochs: []values{
			{"locality_factor": 1.0, "loading_share": 0.5}, {"locality_factor": 2.0,
				"loading_share": 0.25},
			{"locality_factor": 2.0},
		}},
		{Name: "plain", Epochs: []values{{"loss": 1.0}}},
	}
	want := [][]string{{"near", "1, 2", "50.00 %", "0.00 %"}}
	if d := cmp.Diff(want, plainText(locality(runs).rows)); d != "" {
		t.Error(d)
	}
}

func TestDamagedRecordsAreNamedAndLeftOut(t *testing.T) {
	r := fixture(t, "killed")[0]
	path := filepath.Join("testdata", "killed", "metrics.jsonl")
	var at []string
	for _, fault := range r.Damaged {
		where, _, _ := strings.Cut(fault, ": ")
		at = append(at, where)
	}
	want := []string{path + ", line 3", path + ", line 4", path + ", line 5", path + ", line 8"}
	if !slices.Equal(at, want) {
		t.Errorf("damaged: %q, expected %q", at, want)
	}
	for _, words := range []string{`has no number "loss"`, `the unknown kind "weather"`,
		"cut short"} {
		if !strings.Contains(strings.Join(r.Damaged, "\n"), words) {
			t.Errorf("nothing says %q: %q", words, r.Damaged)
		}
	}
	if r.Steps.n != 3 || len(r.Epochs) != 1 || r.state() != "not finished: epoch 2, step 0" {
		t.Errorf("%d steps, %d epochs, %s; expected 3, 1 and epoch 2, step 0", r.Steps.n,
			len(r.Epochs), r.state())
	}
}

func TestLoadWhatIsHardlyThere(t *testing.T) {
	write := func(t *testing.T, files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	for _, c := range []struct {
		name    string
		files   map[string]string
		err     string // of Load
		damaged string
	}{
		{"no run", nil, "holds no run", ""},
		{"a config that is none", map[string]string{"config.yaml": "a: [b"}, "config.yaml", ""},
		{"killed before the first step", map[string]string{"config.yaml": "train:\n  lr: 1\n"}, "",
			"metrics.jsonl: the file is missing"},
		{"an empty log", map[string]string{"config.yaml": "", "metrics.jsonl": ""}, "", ""},
		{"half a summary", map[string]string{"config.yaml": "", "metrics.jsonl": "",
			"summary.json": `{"ranks": 4, "test`}, "", "summary.json: "},
		{"a summary that is a list",
			map[string]string{"config.yaml": "", "metrics.jsonl": "", "summary.json": `[1]`}, "",
			"summary.json: "},
		{"no text", map[string]string{"config.yaml": "", "metrics.jsonl": "\x00\xff\n" +
			strings.Repeat("x", longestLine+9)}, "", "line 1: "},
		{"numbers as text", map[string]string{"config.yaml": "",
			"metrics.jsonl": `{"kind":"epoch","epoch":"1","seconds":1}` + "\n"}, "",
			`has no number "epoch"`},
		{"an epoch and no step",
			map[string]string{
				"config.yaml": "",
				"metrics.jsonl": `{"kind":"epoch","epoch":1,"seconds":1,"ranks":[null,3],` +
					`"phase_seconds":7}` + "\n",
			},
			"", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs, err := Load([]string{write(t, c.files)})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, expected one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(runs[0].Damaged, "\n"); !strings.Contains(got, c.damaged) ||
				c.damaged == "" && got != "" {
				t.Errorf("damaged: %q, expected %q", got, c.damaged)
			}
			if err := Write(append(runs, fixture(t, "vip", "old")...), t.TempDir()); err != nil {
				t.Error(err)
			}
			if err := Write(runs, t.TempDir()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNamesAreAsLongAsTellsRunsApart(t *testing.T) {
	for _, c := range []struct{ dirs, want []string }{
		{[]string{"/a/b/run"}, []string{"run"}},
		{[]string{"/a/b/run", "/a/c/run/", "d"}, []string{"b/run", "c/run", "d"}},
		{[]string{"x/y/run", "x/y/run"}, []string{"x/y/run", "x/y/run"}},
	} {
		var runs []*Run
		for _, dir := range c.dirs {
			runs = append(runs, &Run{Dir: dir})
		}
		name(runs)
		var got []string
		for _, r := range runs {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q are named %q, expected %q", c.dirs, got, c.want)
		}
	}
}

// A run given as "." or ".." gets the name of that directory.
func TestTheDirectoryThatOneIsInHasAName(t *testing.T) {
	t.Chdir("testdata/vip")
	runs, err := Load([]string{".", "../base"})
	if err != nil {
		t.Fatal(err)
	}
	if runs[0].Name != "vip" || runs[1].Name != "base" {
		t.Errorf("runs are named %q and %q", runs[0].Name, runs[1].Name)
	}
}

// Every number of the records is in the CSV files, and cells of absent values are empty.
func TestCSVHoldsTheRecords(t *testing.T) {
	runs := fixture(t, "vip", "killed", "old")
	dir := t.TempDir()
	if err := Write(runs, dir); err != nil {
		t.Fatal(err)
	}
	read := func(name string) (header []string, rows []map[string]string) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, line := range all[1:] {
			row := map[string]string{}
			for i, v := range line {
				row[all[0][i]] = v
			}
			rows = append(rows, row)
		}
		return all[0], rows
	}
	_, steps := read(StepsFile)
	if len(steps) != 4+3+1 {
		t.Errorf("%d steps, expected 8", len(steps))
	}
	if got := steps[5]; got["run"] != "killed" || got["loss"] != "1.5" ||
		got["replacement_rows"] != "10" {
		t.Errorf("the second step of killed is %v", got)
	}
	if got, ok := steps[7]["cache_hits"]; !ok || got != "" {
		t.Errorf("old has cache_hits %q, expected nothing", got)
	}
	_, epochs := read(EpochsFile)
	if len(epochs) != 2+1+1 || epochs[1]["phase_seconds.exchange"] != "0.5" ||
		epochs[1]["eval.valid_metric"] != "0.7" || epochs[2]["eval.valid_metric"] != "" {
		t.Errorf("epochs are %v", epochs)
	}
	_, all := read(RunsFile)
	if len(all) != 3 || all[0]["cache.capacity_rows"] != "100" || all[0]["cache.policy"] != "vip" ||
		all[1]["state"] != "not finished: epoch 2, step 0" || all[2]["test_metric"] != "" {
		t.Errorf("runs are %v", all)
	}
}

// The numbers of a run's tables and plots are on the page, and in the text file beside it.
func TestPageAndTextHoldTheSameNumbers(t *testing.T) {
	dir := t.TempDir()
	if err := Write(fixture(t, "base", "vip"), dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, PageFile))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, MarkdownFile))
	if err != nil {
		t.Fatal(err)
	}
	var terminal bytes.Buffer
	if err := Print(&terminal, fixture(t, "base", "vip")); err != nil {
		t.Fatal(err)
	}
	for _, row := range [][]string{
		{"base", "20.00\u202f%", "0.1250", "5.00\u202f%", "0.3750", "15.00\u202f%", chart.Absent},
		{"cache, of all epochs", "14.58\u202f%"},
		{"T_base (eq. 2), depth 0", "0.8750", "0.8750"},
		{"T_prefetch (eq. 5), depth 1", "0.5000", "0.6875"},
		{"a step, measured", "1", "0.7500"},
		{"the first step, measured", "1.500", chart.Absent},
	} {
		if cells := "<td>" + strings.Join(row, "</td><td>") +
			"</td>"; !strings.Contains(string(page), cells) {
			t.Errorf("the page lacks %s", cells)
		}
		if cells := "| " + strings.Join(row, " | ") + " |"; !strings.Contains(string(text), cells) {
			t.Errorf("the text lacks %s", cells)
		}
		if row[0] == "cache, of all epochs" {
			continue // Print leaves that table out
		}
		words := strings.Fields(strings.Join(row, " "))
		if !slices.ContainsFunc(strings.Split(terminal.String(), "\n"), func(line string) bool {
			return slices.Equal(strings.Fields(line), words)
		}) {
			t.Errorf("the terminal lacks %q", words)
		}
	}
}
