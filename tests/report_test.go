//go:build e2e

package tests

import (
	"bytes"
	"encoding/csv"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A report of real runs draws the records of this version, finds the run without a cache as the
// baseline, and repeats the summaries in its CSV files.
func TestReportOfRealRuns(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	var runs []*outcome
	var dirs []string
	for _, policy := range []string{"none", "prefetch"} {
		run := trained(t, parts, 2, "run.ranks_per_node=1", "cache.policy="+policy,
			"cache.alpha=0.2", "cache.delta=2")
		runs, dirs = append(runs, run), append(dirs, run.dir)
	}
	out := filepath.Join(t.TempDir(), "report")
	r := halognn(t).must(t, append([]string{"report", "--out", out}, dirs...)...)
	if !strings.Contains(r.out, filepath.Join(out, "report.html")) {
		t.Errorf("nothing says where the page is:\n%s", r.out)
	}
	page := string(read(t, filepath.Join(out, "report.html")))
	for _, plot := range []string{"loss", "accuracy", "policies", "phases", "model", "overlap",
		"hits", "transferred", "tiers", "ranks", "memory"} {
		if !strings.Contains(page, `id="plot-`+plot+`"`) {
			t.Errorf("the plot %s is not there: the records have other keys than the report "+
				"looks for", plot)
		}
	}
	if strings.Contains(page,
		"kind not recorded") || !strings.Contains(page, "evictions/epoch") {
		t.Error("the page does not know the keys of this version")
	}
	lines, err := csv.NewReader(bytes.NewReader(read(t, filepath.Join(out, "runs.csv")))).ReadAll()
	if err != nil || len(lines) != 3 {
		t.Fatalf("runs.csv has %d lines: %v", len(lines), err)
	}
	for i, run := range runs {
		for k, key := range lines[0] {
			want, held := map[string]string{
				"remote_rows": strconv.FormatInt(run.Remote, 10), "loss_digest": run.LossDigest,
				"ranks": "2", "state": "finished",
			}[key]
			if got := lines[i+1][k]; held && got != want {
				t.Errorf("runs.csv: %s of run %d is %s, expected %s", key, i, got, want)
			}
		}
	}
	left := regexp.MustCompile(`([0-9.]+)\x{202f}% \| [^|]*/run \|`).FindStringSubmatch(
		string(read(t, filepath.Join(out, "report.md"))))
	if left == nil {
		t.Fatal("the report has not found the run without a cache as the baseline")
	}
	got, err := strconv.ParseFloat(left[1], 64)
	if want := 100 * float64(runs[1].Remote) / float64(runs[0].Remote); err != nil ||
		math.Abs(got-want) > 0.1 {
		t.Errorf("the report says that %s %% of the rows of the run without a cache are left, "+
			"expected %.2f", left[1], want)
	}
}

func TestReportRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"report", "--out", "x"}, 2, "no runs"},
		{[]string{"report", "nowhere"}, 2, "--out"},
		{[]string{"report", "nowhere", "elsewhere", "--out", "x"}, 3, "elsewhere holds no run"},
	} {
		r := halognn(t).run(t, c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("expected exit code %d and %q:\n%s", c.code, c.says, r)
		}
	}
}
