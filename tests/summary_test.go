package tests

import (
	"encoding/json"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/metrics.md explains every key of summary.json, and no others.
func TestSummaryIsDocumented(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	_, text, found := strings.Cut(string(read(t, "../docs/metrics.md")), "## `summary.json`")
	section, phases, both := strings.Cut(text, "### Phases")
	phases, model, three := strings.Cut(phases, "### Time model")
	model, setUp, four := strings.Cut(model, "### Set-up")
	setUp, _, lines := strings.Cut(setUp, "## `metrics.jsonl`")
	if !found || !both || !three || !four || !lines {
		t.Fatal("docs/metrics.md has other sections than this test looks for")
	}
	var summary map[string]any
	if err := json.Unmarshal(read(t,
		filepath.Join(trained(t, smallParts.dir(t), 2).dir, "summary.json")),
		&summary); err != nil {
		t.Fatal(err)
	}
	sameKeys(t, "summary.json", summary, section)
	sameKeys(t, "phase_seconds", summary["phase_seconds"].(map[string]any), phases)
	sameKeys(t, "time_model", summary["time_model"].(map[string]any), model)
	items := summary["setup"].(map[string]any)
	sameKeys(t, "setup", items, setUp)
	sum := 0.0
	// of the command, the others are the run's
	for _, item := range []string{"launch", "open", "verify", "device"} {
		if items[item].(float64) <= 0 {
			t.Errorf("setup: %s took %v s", item, items[item])
		}
	}
	for _, seconds := range items {
		sum += seconds.(float64)
	}
	if total := summary["setup_seconds"].(float64); math.Abs(sum-total) > 1e-3 {
		t.Errorf("setup adds up to %g s, setup_seconds is %g", sum, total)
	}
}

// sameKeys holds the keys of a JSON object to those in the first column of a table.
func sameKeys(t *testing.T, what string, object map[string]any, table string) {
	t.Helper()
	documented, optional := map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\|([^|]*)\|(.*)$`).FindAllStringSubmatch(table,
		-1) {
		for _, key := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(row[1], -1) {
			documented[key[1]] = true
			optional[key[1]] = strings.Contains(row[2], "only with")
		}
	}
	for key := range object {
		if !documented[key] {
			t.Errorf("%s: %q is not in docs/metrics.md", what, key)
		}
	}
	for key := range documented {
		if _, there := object[key]; !there && !optional[key] {
			t.Errorf("%s has no %q, but docs/metrics.md explains it", what, key)
		}
	}
}
