//go:build e2e

package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// below lists the files below a directory with their sizes and times.
func below(t *testing.T, dir string) (all string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all += path + " " + info.ModTime().String() + "\n"
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// A dry run says what would run and how much memory it takes: on any number of ranks, for a resumed
// run, and with a partitioned topology. It leaves every file as it was.
func TestDryRun(t *testing.T) {
	t.Parallel()
	done := trained(t, smallParts.dir(t), 2)
	dir := t.TempDir()
	new := slices.Clip(trainArgs(t, smallParts.dir(t), filepath.Join(dir, "out"),
		"run.stage_dir="+dir))
	before := below(t, done.dir)
	for _, args := range [][]string{
		append(new, "--ranks-in-process", "1"),
		append(new, "--ranks-in-process", "4"),
		append(new, "--ranks-in-process", "4", "--set", "topology.kind=partitioned"),
		append(new, "--ranks-in-process", "4", "--set", "topology.kind=partitioned",
			"--set", "run.ranks_per_node=1", "--set", "cache.policy=sieve"),
		append(new, "--ranks-in-process", "2", "--set", "topology.kind=partitioned", "--set",
			"parallel.mode=split", "--set", "sample.batch_scope=global"),
		append(new, "--ranks-in-process", "4", "--set", "topology.kind=partitioned", "--set",
			"parallel.mode=push-pull"),
		{"train", "--resume", done.dir, "--set", "train.epochs=4", "--ranks-in-process", "2"},
	} {
		r := halognn(t).must(t, append(args, "--dry-run")...)
		for _, want := range []string{"3000 vertices", "model  sage, 2 layers", "memory of a rank",
			"nothing was written"} {
			if !strings.Contains(r.out, want) {
				t.Errorf("it does not say %q: %v", want, r)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
	if after := below(t, done.dir); after != before {
		t.Errorf("the run it would go on from was\n%s and is\n%s", before, after)
	}
}

// What a run would refuse, a dry run refuses too.
func TestBadDryRuns(t *testing.T) {
	unlessShort(t)
	done := trained(t, smallParts.dir(t), 2)
	dry := func(sets ...string) func(*testing.T, string) []string {
		return func(t *testing.T, dir string) []string {
			return append(training(t, smallParts.dir(t), dir, sets...), "--dry-run")
		}
	}
	with := func(flag ...string) func(*testing.T, string) []string {
		return func(t *testing.T, dir string) []string { return append(dry()(t, dir), flag...) }
	}
	t.Run("group", func(t *testing.T) {
		for _, c := range []badInput{
			{"a value out of range", dry("train.lr=-1"), usage, []string{"train.lr", "must be"}},
			{"an unknown key", dry("train.rl=1"), usage, []string{"train.rl", "unknown key"}},
			{"no parts", dry("data.parts=none"), badData, []string{"none holds no parts"}},
			{"a dataset", dry("data.parts=" + smallData.dir(t)), badData,
				[]string{"describes a dataset", "halognn partition"}},
			{"ranks that do not divide the parts", with("--ranks-in-process", "3"), badData,
				[]string{"but the job has 3 ranks", "run on 1, 2, 4, 8 ranks"}},
			{"fanouts of other layers", dry("sample.fanouts=5"), usage, []string{"sample.fanouts"}},
			{"a metric of another task", dry("train.metric=micro_f1"), badData,
				[]string{"train.metric micro_f1 does not judge"}},
			{"class weights of other classes", dry("train.class_weights=1,2"), badData,
				[]string{"class"}},
			{"a run that is there", dry("run.dir=" + done.dir), usage,
				[]string{"already holds a run", "choose another run.dir", "--resume"}},
			{"a directory that holds something", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "file"), nil)
				return dry("run.dir="+dir)(t, dir)
			}, usage, []string{"run directory", "not empty"}},
			{"a directory below a file", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "file"), nil)
				return dry("run.dir="+filepath.Join(dir, "file", "run"))(t, dir)
			}, usage, []string{"run directory", "file", "not a directory"}},
			{"a profile", with("--profile", "cpu"), usage, []string{"--dry-run", "--profile"}},
			{"a trace", with("--trace"), usage, []string{"--dry-run", "--trace"}},
			{"kernels", with("--kernels"), usage, []string{"--dry-run", "--kernels"}},
			{"no run to go on from", func(t *testing.T, dir string) []string {
				return []string{"train", "--resume", filepath.Join(dir, "none"), "--dry-run",
					"--ranks-in-process", "2"}
			}, badData, []string{"none holds no run"}},
			{"another model to go on with", func(t *testing.T, dir string) []string {
				return []string{"train", "--resume", done.dir, "--dry-run", "--set",
					"model.hidden=8", "--ranks-in-process", "2"}
			}, usage, []string{"model.hidden", "a resumed run may change only"}},
		} {
			t.Run(c.name, c.run)
		}
	})
}
