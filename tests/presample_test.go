//go:build e2e

package tests

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/topology/partition"
)

// sampledReport is what meta.json of parts says about their weights and sampled minibatches.
type sampledReport struct {
	Origin struct{ Weights string }
	Report partition.Report
}

// meta.json of parts for shared minibatches says what sampling costs on them. They can be made
// again from saved counts, and train like any others.
func TestPartitionsByWhatIsSampled(t *testing.T) {
	data, counts := smallData.dir(t), filepath.Join(t.TempDir(), "counts")
	made := map[string]*sampledReport{}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"presample", []string{"--method", "ldg", "--weights", "presample", "--counts", counts}},
		{"kept", []string{"--method", "ldg", "--weights", "presample", "--counts", counts}},
		{"node", []string{"--method", "ldg", "--weights", "node", "--epochs", "2"}},
		{"edge", []string{"--method", "ldg", "--weights", "edge"}},
		{"rand", []string{"--weights", "rand"}},
	} {
		parts := filepath.Join(t.TempDir(), "parts")
		args := append([]string{"partition", "--data", data, "--parts", "4", "--fanouts", "5,3",
			"--batch", "96", "--out", parts}, c.args...)
		if !slices.Contains(args, "--epochs") && c.name != "edge" && c.name != "rand" {
			args = append(args, "--epochs", "2")
		}
		r := halognn(t).must(t, args...)
		if !strings.Contains(r.out, "of the sampled edges are between parts") {
			t.Errorf("%s: the report does not name the cross edges: %s", c.name, r.out)
		}
		if kept := strings.Contains(r.out, "written to "+counts); kept != (c.name == "presample") {
			t.Errorf("%s: counts were written: %v", c.name, kept)
		}
		made[c.name] = new(sampledReport)
		if err := json.Unmarshal(read(t, filepath.Join(parts, "meta.json")),
			made[c.name]); err != nil {
			t.Fatal(err)
		}
		halognn(t).must(t, "check", parts)
	}
	same := func(r *sampledReport) string {
		text, err := json.Marshal(r.Report)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if same(made["presample"]) != same(made["kept"]) {
		t.Error("counts that were kept give other parts")
	}
	for name, want := range map[string]string{"presample": "presample", "kept": "presample",
		"node": "node", "edge": "edge", "rand": "rand"} {
		if made[name].Origin.Weights != want {
			t.Errorf("%s: the origin has weights %q", name, made[name].Origin.Weights)
		}
	}
	cross := func(name string) float64 { return made[name].Report.Sampled.CrossEdges }
	if c := cross("rand"); c < 0.7 || c > 0.8 {
		t.Errorf("at random %.2f of the edges are between 4 parts, want about 3 of 4", c)
	}
	if cross("presample") > 0.8*cross("rand") {
		t.Errorf("presampled parts have %.3f of the edges between them, random ones %.3f",
			cross("presample"), cross("rand"))
	}
}

func TestBadWeights(t *testing.T) {
	args := func(more ...string) func(t *testing.T, dir string) []string {
		return func(t *testing.T, dir string) []string {
			return append([]string{"partition", "--data", smallData.dir(t), "--parts", "2",
				"--out", filepath.Join(dir, "out")}, more...)
		}
	}
	sampled := []string{"--method", "ldg", "--weights", "presample", "--fanouts", "5,3", "--batch",
		"96", "--epochs", "1"}
	kept := func(damage func(t *testing.T, counts string), more ...string) func(t *testing.T,
		dir string) []string {
		return func(t *testing.T, dir string) []string {
			counts := filepath.Join(dir, "counts")
			all := append(slices.Clone(sampled), "--counts", counts)
			first := args(append(all, "--out", filepath.Join(dir, "first"))...)
			halognn(t).must(t, first(t, dir)...)
			if damage != nil {
				damage(t, counts)
			}
			return args(append(all, more...)...)(t, dir)
		}
	}
	for _, b := range []badInput{
		{"unknown", args("--weights", "edges"), usage,
			[]string{`"edges"`, "presample, node, edge"}},
		{"nothing said of sampling", args("--weights", "presample"), usage,
			[]string{"--config", "--fanouts and --batch"}},
		{"half of it", args("--weights", "edge", "--fanouts", "5"), usage, []string{"--batch"}},
		{"a method without weights", args("--weights", "node", "--method", "contiguous",
			"--fanouts", "5", "--batch", "96"), usage, []string{"contiguous",
			"metis, kaminpar or ldg"}},
		{"another method than random", args("--weights", "rand", "--method", "ldg"), usage,
			[]string{"--weights rand", "--method ldg"}},
		{"an order of one part", args(append(slices.Clone(sampled), "--order", "vip")...), usage,
			[]string{"--order vip", "degree"}},
		{"counts of nothing", args("--weights", "edge", "--counts", "x", "--method", "ldg"), usage,
			[]string{"--counts", "presample or node"}},
		{"parts below the mean", args(append(slices.Clone(sampled), "--imbalance", "0.9")...),
			usage, []string{"--imbalance is 0.9"}},
		{"settings of what is not sampled", args("--sample-seed", "3"), usage,
			[]string{"--sample-seed", "no effect with --weights data"}},
		{"settings of no config", args("--weights", "edge", "--set", "sample.batch=3"), usage,
			[]string{"--set", "--config"}},
		{"counts of another sampling", kept(nil, "--batch", "95"), badData,
			[]string{"counts", "batch 96, not 95", "remove the counts"}},
		{"counts of another graph", kept(func(t *testing.T, counts string) {
			meta := filepath.Join(counts, "meta.json")
			write(t, meta, bytes.Replace(read(t, meta), []byte(`"identity": "`),
				[]byte(`"identity": "0`), 1))
		}), badData, []string{"of the graph", "remove the counts"}},
		{"altered counts", kept(func(t *testing.T, counts string) {
			alter(t, filepath.Join(counts, "edges.npy"), every[int32](7, 3))
		}), badData, []string{"edges.npy", "altered", "remove the counts"}},
		{"a directory of something else", func(t *testing.T, dir string) []string {
			return args(append(slices.Clone(sampled), "--counts", smallParts.dir(t))...)(t, dir)
		}, badData, []string{"of the graph", "remove the counts"}},
	} {
		t.Run(b.name, b.run)
	}
}
