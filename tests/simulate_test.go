//go:build e2e

package tests

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// simulated runs simulate and returns the rows of all epochs by policy and alpha.
func simulated(t *testing.T, args ...string) map[string]int64 {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	r := halognn(t).must(t, append([]string{"simulate", "--out", dir}, args...)...)
	lines, err := csv.NewReader(bytes.NewReader(read(t,
		filepath.Join(dir, "simulate.csv")))).ReadAll()
	if err != nil || len(lines) < 2 {
		t.Fatalf("simulate.csv has %d lines (%v): %v", len(lines), err, r)
	}
	column := func(line []string, name string) string { return line[slices.Index(lines[0], name)] }
	rows := map[string]int64{}
	for _, l := range lines[1:] {
		n, err := strconv.ParseInt(column(l, "rows"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		rows[column(l, "policy")+" "+column(l, "alpha")] = n
	}
	if page := read(t, filepath.Join(dir, "simulate.html")); !bytes.Contains(page,
		[]byte("curves")) {
		t.Errorf("simulate.html is %q ...", page[:min(len(page), 40)])
	}
	return rows
}

// simulate counts the rows that the ranks of a training run fetch, row for row.
func TestSimulatedTrafficIsThatOfTraining(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts, policies := smallParts.dir(t),
		[]string{"none", "degree", "halo1", "wpr", "paths", "sim", "vip", "inclusion", "oracle"}
	for _, ranks := range []int{2, 4, 8} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			got := simulated(t, "--parts", parts, "--ranks", strconv.Itoa(ranks), "--set",
				"sample.fanouts=5,3", "--set", "model.layers=2", "--set", "sample.batch=96",
				"--epochs",
				"2", "--set", "train.seed=7", "--policies", strings.Join(policies,
					","), "--alphas", "0.05,0.3")
			for _, policy := range policies {
				for _, alpha := range []string{"0.05", "0.3"} {
					// only one number of ranks is tried with all caches
					if ranks != 4 && policy != "none" && (policy != "vip" || alpha != "0.3") {
						continue
					}
					run := trained(t, parts, ranks, "run.ranks_per_node=1", "train.seed=7",
						"train.eval_every=0",
						"cache.policy="+policy, "cache.alpha="+alpha)
					var want int64
					for _, e := range run.epochs {
						want += e.Remote
					}
					if rows, there := got[policy+" "+alpha]; !there || rows != want || want == 0 {
						t.Errorf("%s, alpha %s: %d rows simulated, %d fetched by training", policy,
							alpha, rows, want)
					}
				}
			}
		})
	}
}

// simulate modes writes what ranks do in each mode, and the numbers show that ranks share work.
func TestModesAreSimulated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	r := halognn(t).must(t, "simulate", "modes", "--parts", smallParts.dir(t), "--set",
		"sample.fanouts=5,3", "--set", "model.layers=2", "--set", "sample.batch=96", "--set",
		"sample.batch_scope=global", "--ranks", "1,4", "--out", dir)
	lines, err := csv.NewReader(bytes.NewReader(read(t, filepath.Join(dir, "modes.csv")))).ReadAll()
	if err != nil || len(lines) != 7 {
		t.Fatalf("modes.csv has %d lines (%v): %v", len(lines), err, r)
	}
	number := func(line []string, name string) int {
		n, err := strconv.Atoi(line[slices.Index(lines[0], name)])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	alone, data, split, pushed := lines[2], lines[4], lines[5], lines[6]
	if number(data, "loaded_rows") <= number(alone, "loaded_rows") ||
		number(split, "loaded_rows") != number(alone, "loaded_rows") ||
		number(split, "received_hidden_rows") == 0 || number(alone, "received_bytes") != 0 ||
		number(pushed, "loaded_rows") != number(data, "loaded_rows") ||
		number(pushed, "received_feature_rows") != 0 ||
		number(pushed, "received_hidden_rows") == 0 {
		t.Errorf("%q", lines)
	}
	if !strings.Contains(r.out, "hidden rows or sums received") {
		t.Errorf("no table is printed: %s", r.out)
	}
}

// simulate counts for each mode what the ranks of a training run count.
func TestSimulatedModesAreThoseOfTraining(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts, dir := smallParts.dir(t), filepath.Join(t.TempDir(), "out")
	halognn(t).must(t, "simulate", "modes", "--parts", parts, "--set", "sample.fanouts=5,3",
		"--set", "model.layers=2", "--set", "sample.batch=24", "--ranks", "4,8", "--ranks-per-node",
		"2", "--epochs", "2", "--set", "train.seed=7", "--set", "model.hidden=16", "--out", dir)
	lines, err := csv.NewReader(bytes.NewReader(read(t, filepath.Join(dir, "modes.csv")))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1+2*4 {
		t.Fatalf("modes.csv has %d lines", len(lines))
	}
	for _, line := range lines[1:] {
		column := func(name string) (n int64) {
			n, err := strconv.ParseInt(line[slices.Index(lines[0], name)], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		ranks, mode := int(column("ranks")), line[1]
		run := trained(t, parts, ranks, "parallel.mode="+mode, "cache.policy=none",
			"run.ranks_per_node=2", "sample.batch=24", "train.seed=7", "train.epochs=2",
			"train.eval_every=0")
		var edges, loaded, rows, sent, far int64
		for _, e := range run.epochs {
			edges, loaded = edges+e.Edges, loaded+e.Loaded
			rows, sent = rows+e.Remote+e.Shuffles.Rows, sent+e.RemoteBytes+e.Shuffles.Bytes
			far += e.RemoteBytes
		}
		if want := column("received_feature_rows") + 2*column("received_hidden_rows"); edges !=
			column("edges") || loaded != column("loaded_rows") || rows != want ||
			sent != column("received_bytes") || rows == 0 ||
			(mode == "data" || mode == "hybrid") && far != column("network_bytes") {
			t.Errorf("%s on %d ranks: training counts %d edges, %d rows loaded, %d received in %d "+
				"bytes; simulated %q", mode, ranks, edges, loaded, rows, sent, line)
		}
	}
}

func TestBadSimulations(t *testing.T) {
	unlessShort(t)
	args := func(more ...string) func(t *testing.T, dir string) []string {
		return func(t *testing.T, dir string) []string {
			return append([]string{"simulate", "--parts", smallParts.dir(t), "--out",
				filepath.Join(dir, "out")}, more...)
		}
	}
	modes := func(more ...string) func(t *testing.T, dir string) []string {
		return func(t *testing.T, dir string) []string {
			return slices.Insert(args(more...)(t, dir), 1, "modes")
		}
	}
	for _, b := range []badInput{
		{"nothing", func(*testing.T, string) []string { return []string{"simulate"} }, usage,
			[]string{"--out"}},
		{"no parts named", func(_ *testing.T, dir string) []string {
			return []string{"simulate", "--out", filepath.Join(dir, "out")}
		}, usage, []string{"data.parts is missing"}},
		{"policy", args("--policies", "none,lru"), usage, []string{`"lru"`, "vip"}},
		{"alphas", args("--alphas", "0.2,-1"), usage, []string{"-1", "0 or more"}},
		{"fanouts", args("--set", "sample.fanouts=5,x"), usage, []string{"sample.fanouts"}},
		{"no way to sample", args("--set", "sample.kind=layer"), usage,
			[]string{`sample.kind is "layer"`}},
		{"a key as a flag", args("--batch", "96"), usage, []string{"unknown flag: --batch"}},
		{"epochs", args("--epochs", "0"), usage, []string{"epochs is 0"}},
		{"no ranks", args("--ranks", "0"), usage, []string{"--ranks is 0"}},
		{"more than can be", args("--epochs", "9223372036854775807", "--workers",
			"9223372036854775807"), usage, []string{"epochs is 9223372036854775807", "workers is"}},
		{"locality and what is known in advance", args("--set", "sample.kind=poisson", "--set",
			"sample.locality=4", "--policies", "vip,oracle"), usage,
			[]string{"sample.locality is 4, which cannot be combined with cache.policy oracle"}},
		{"a mode", args("--set", "parallel.mode=split"), usage, []string{"simulate modes"}},
		{"ranks", args("--ranks", "3"), badData, []string{"but the job has 3 ranks"}},
		{"modes on ranks", modes("--ranks", "3"), badData, []string{"but the job has 3 ranks"}},
		{"a flag that modes have not", modes("--alphas", "0.1"), usage,
			[]string{"unknown flag: --alphas", "halognn simulate modes --help"}},
		{"modes by a word", modes("--set", "sample.seeds=mine"), usage,
			[]string{`"mine"`, "local"}},
		{"no parts", func(_ *testing.T, dir string) []string {
			return []string{"simulate", "--parts", filepath.Join(dir, "none"), "--out",
				filepath.Join(dir, "out")}
		}, badData, []string{"none"}},
	} {
		t.Run(b.name, b.run)
	}
	t.Run("taken target", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "mine"), []byte("x"))
		r := halognn(t).run(t, "simulate", "--parts", smallParts.dir(t), "--out", dir)
		if message := r.message(t); r.code != badData || !strings.Contains(message, "not empty") {
			t.Errorf("%v", r)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("the target has %v (%v)", files, err)
		}
	})
}
