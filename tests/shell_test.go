//go:build e2e

package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/forecast/simulate"
	"halognn/src/runs/config"
)

// The shell completes the formats, methods, policies and keys that exist.
func TestShellCompletion(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"import", "--format", ""}, dataset.Formats()},
		{[]string{"partition", "--method", ""}, []string{"auto", "contiguous", "file",
			"kaminpar", "ldg", "metis", "random"}},
		{[]string{"simulate", "--policies", ""}, simulate.Policies()},
		{[]string{"simulate", "--policies", "none,vi"}, []string{"none,vip"}},
		{[]string{"train", "--set", "train.l"}, []string{"train.lr="}},
		{[]string{"train", "--set", "cache.policy="},
			prefixed("cache.policy=", config.Words("cache.policy"))},
		{[]string{"infer", "--log-format", ""}, []string{"text", "json"}},
	} {
		r := halognn(t).must(t, append([]string{"__complete"}, c.args...)...)
		offered := strings.Split(r.out, "\n")
		for _, want := range c.want {
			if typed := c.args[len(c.args)-1]; strings.HasPrefix(want, typed) &&
				!slices.Contains(offered, want) {
				t.Errorf("%v offers no %q: %q", c.args, want, offered)
			}
		}
	}
	if r := halognn(t).must(t, "--help"); !strings.Contains(r.out, "completion") {
		t.Error("the help does not name the command completion")
	}
}

func prefixed(prefix string, words []string) (all []string) {
	for _, w := range words {
		all = append(all, prefix+w)
	}
	return all
}

// Each command has a man page.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	halognn(t).must(t, "man", dir)
	for _, command := range []string{"train", "infer", "import", "partition", "plan"} {
		text, err := os.ReadFile(filepath.Join(dir, "halognn-"+command+".1"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), ".SH OPTIONS") {
			t.Errorf("the page of %s has no options", command)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "halognn-man.1")); err == nil {
		t.Error("a hidden command has a page")
	}
}

// With --log-format json every line on standard error is a record, and --quiet leaves none.
func TestLogOfARun(t *testing.T) {
	unlessShort(t)
	parts := smallParts.dir(t)
	train := func(flags ...string) result {
		args := append(trainArgs(t, parts, newRunDir(t)), flags...)
		return halognn(t).must(t, append(args, "--ranks-in-process", "2")...)
	}
	epochs := 0
	for line := range strings.Lines(train("--log-format", "json").err) {
		var record struct {
			Level, Msg string
			Rank       *int
			Epoch      int
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if record.Level == "PROGRESS" && strings.Contains(record.Msg, "  valid ") {
			epochs++
			if record.Rank == nil || *record.Rank != 0 || record.Epoch != epochs {
				t.Errorf("%q: want rank 0, epoch %d", line, epochs)
			}
		}
	}
	if epochs == 0 {
		t.Error("no epoch was logged")
	}
	if r := train("--quiet"); r.err != "" || !strings.Contains(r.out, "written to") {
		t.Errorf("--quiet: %v", r)
	}
}
