package report

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"halognn/src/base/chart"
	"halognn/src/base/trace"
)

// For any name, the text shown is one line without control characters.
func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"run é 世界": "run é 世界", "a\x1b[31mb": `a\x1b[31mb`, "a\nb\tc\r": `a\nb\tc\r`,
		"\xff\x00": `\xff\x00`, "x\u202egnp": `x\u202egnp`, "'\"\\": "'\"\\",
		"\ufffe": `\ufffe`,
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) is %q, expected %q", in, got, want)
		}
	}
	for range 1000 {
		b := make([]byte, 12)
		for i := range b {
			b[i] = byte(rand.IntN(256))
		}
		got := visible(string(b))
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Fatalf("visible(%q) is %q", b, got)
		}
	}
}

func TestMarkdownShowsTextAsItIs(t *testing.T) {
	for in, want := range map[string]string{
		"a_b 1": "a_b 1", "_a_": `\_a\_`, "a|b": "a&#124;b", `a\|b`: `a\\&#124;b`,
		"<b>&amp;": "&#60;b&#62;&#38;amp;", "*x* `y` [z](u)": "\\*x\\* \\`y\\` \\[z\\](u)",
	} {
		if got := markdown(in); got != want {
			t.Errorf("markdown(%q) is %q, expected %q", in, got, want)
		}
	}
}

// Names of directories, settings and values of records appear as plain text on the page, in tables,
// in plots and on a terminal, and break none of them.
func TestHostileNames(t *testing.T) {
	hostile := filepath.Join(t.TempDir(), "a|b\n\x1b[2J\x01<img src=x>\u202e`_*"+strings.Repeat("世",
		40))
	if err := os.CopyFS(hostile, os.DirFS("testdata/vip")); err != nil {
		t.Fatal(err)
	}
	summary, err := os.ReadFile(filepath.Join(hostile, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	for old, evil := range map[string]string{`"accuracy"`: `"acc\u001b[2J|\n"`,
		`"heap"`: `"he\u0007ap\n"`, `"0123456789abcdef"`: `"\u001b]0;x\u0007"`} {
		if !strings.Contains(string(summary), old) {
			t.Fatalf("no %s in the summary", old)
		}
		summary = []byte(strings.ReplaceAll(string(summary), old, evil))
	}
	for name, text := range map[string]string{
		"summary.json": string(summary), "config.yaml": "cache:\n  policy: " +
			"\"vip\\e[2J|\\n\"\n\"x\\e[2J|\": 1\n",
		"metrics.jsonl": "{\"kind\":\"\u001b[2J\"}\n{\"kind\":\"wea\\u001bther\"}\n",
	} {
		if name == "metrics.jsonl" {
			good, err := os.ReadFile(filepath.Join(hostile, name))
			if err != nil {
				t.Fatal(err)
			}
			text = string(good) + text
		}
		if err := os.WriteFile(filepath.Join(hostile, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Load([]string{hostile, "testdata/base", "testdata/wide"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Write(runs, dir); err != nil {
		t.Fatal(err)
	}
	var terminal strings.Builder
	if err := Print(&terminal, runs); err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"the terminal": terminal.String()}
	for _, pattern := range []string{PageFile, MarkdownFile} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.Base(path)] = string(text)
		}
	}
	for name, text := range texts {
		if at := strings.IndexFunc(text,
			func(r rune) bool {
				return r != '\n' && unicode.IsControl(r) || r == '\u202e' ||
					r == utf8.RuneError
			}); at >= 0 {
			t.Errorf("%s holds a control character: %q", name,
				text[max(0, at-20):min(len(text), at+20)])
		}
		if strings.HasSuffix(name, ".html") {
			parse(t, text)
		}
	}
	columns := 0
	for _, line := range strings.Split(texts[MarkdownFile], "\n") {
		if strings.Contains(line, "<img") {
			t.Errorf("Markdown holds HTML: %q", line)
		}
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		if n := strings.Count(line, "|"); columns > 0 && n != columns {
			t.Errorf("Markdown has a row of %d cells in a table of %d: %q", n-1, columns-1, line)
		} else {
			columns = n
		}
	}
}

// Numbers that no run can have count as absent, and no plot has NaN or infinite coordinates.
func TestAbsurdNumbers(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	for i, x := range []string{"1e308", "-1e308", "1e-320", "0", "-5", "1e99"} {
		fmt.Fprintf(&log, `{"kind":"step","epoch":%d,"step":0,"loss":%s,"cache_hits":%[2]s,`+
			`"fetched_rows":%[2]s,"evictions":%[2]s}`+"\n", i, x)
		fmt.Fprintf(&log, `{"kind":"epoch","epoch":%[2]s,"seconds":%[2]s,"loss":%[2]s,`+
			`"wait_fraction":%[2]s,"remote_rows":%[2]s,"phase_seconds":{"wait":%[2]s},`+
			`"ranks":[{"remote_rows":%[2]s},{"remote_rows":%[2]s}]}`+"\n", i, x)
		fmt.Fprintf(&log, `{"kind":"eval","epoch":%d,"valid_metric":%s}`+"\n", i, x)
	}
	for name, text := range map[string]string{
		"config.yaml":   "cache:\n  policy: vip\n",
		"metrics.jsonl": log.String(),
		"summary.json": `{"ranks":1e300,"peak_rss_bytes":1e308,"memory":{"a":1e308,"b":-1},` +
			`"remote_rows_per_step":3,"expected_remote_rows_per_step":0,"hit_rate":-1e308,` +
			`"time_model":{"step":1e99,"depth":-5,"t_base":1e308,"t_prefetch":-3,` +
			`"first_step":"soon"}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Load([]string{dir, "testdata/base"})
	if err != nil {
		t.Fatal(err)
	}
	for _, some := range [][]*Run{runs, runs[:1]} {
		for _, c := range chartsOf(some) {
			text := c.HTML()
			parse(t, text)
			for _, word := range []string{"NaN", "Inf"} {
				if strings.Contains(text, word) {
					t.Errorf("%s draws %s", c.ID, word)
				}
			}
		}
		if err := Write(some, t.TempDir()); err != nil {
			t.Error(err)
		}
	}
}

// Pieces of a bar differ by colour or by stripes.
func TestPiecesAreToldApart(t *testing.T) {
	runs := fixture(t, "base", "vip")
	memory := map[string]any{}
	for i := range trace.NumPhases { // about as many as runs have
		memory[fmt.Sprintf("item %d", i)] = float64(1e6 * (i + 5))
	}
	runs[0].Summary["memory"] = memory
	for _, e := range runs[0].Epochs {
		for _, p := range phaseNames {
			e["phase_seconds"].(map[string]any)[p] = 0.1
		}
	}
	for _, c := range []*chart.Chart{memoryBars(runs[:1]), phaseBars(runs)} {
		looks := map[string]bool{}
		for _, e := range parse(t, c.HTML()).find("legend")[0].Children {
			look := e.Children[0].attr("class")
			if looks[look] {
				t.Errorf("%s: two pieces are %s", c.ID, look)
			}
			looks[look] = true
		}
		if len(looks) < len(phaseNames) {
			t.Errorf("%s: %d pieces", c.ID, len(looks))
		}
	}
}
