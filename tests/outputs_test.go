//go:build e2e

package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A command destroys nothing that it did not make. It refuses outputs that would replace, contain
// or be inside an input, and existing files stay as they were.
func TestOutputsReplaceNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := copyOf(t, smallData.dir(t), dir, "data")
	parts := copyOf(t, smallParts.dir(t), dir, "parts")
	run := copyOf(t, trained(t, parts, 1).dir, dir, "run")
	noted := copyOf(t, data, dir, "noted")
	other := copyOf(t, data, dir, "other")
	write(t, filepath.Join(noted, "NOTES.txt"), []byte("mine"))
	link := filepath.Join(dir, "link")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "run.yaml")
	write(t, config, []byte(baseConfig+"data: {parts: "+parts+"}\n"))
	table := filepath.Join(dir, "edges.csv")
	write(t, table, []byte("source,target\n1,2\n"))
	mine := filepath.Join(dir, "mine")
	if err := os.Mkdir(mine, 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mine, "report.md"), []byte("mine"))
	was := below(t, dir)
	partition := []string{"partition", "--data", data, "--parts", "2", "--method", "random",
		"--force", "--out"}
	generate := []string{"generate", "--kind", "sbm", "--vertices", "300", "--force", "--out"}
	unforced := []string{"generate", "--kind", "sbm", "--out"}
	infer := []string{"infer", "--run", run, "--out"}
	resume := []string{"train", "--config", config, "--resume"}
	for _, c := range []struct {
		args []string
		out  string
		want string
	}{
		{partition, data, "the input"},
		{partition, link, "the input"},
		{partition, dir, "holds it"},
		{partition, filepath.Join(data, "parts"), "inside"},
		{partition, filepath.Join(link, "parts"), "inside"},
		{generate, link, "symbolic link"},
		{generate, noted, "NOTES.txt"},
		{generate, run, "no dataset and no parts"},
		{generate, parts, "holds parts, not a dataset"},
		{partition, other, "holds a dataset, not parts"},
		{unforced, "", "names no new directory"},
		{unforced, strings.Repeat("n", 300), "too long"},
		{infer, filepath.Join(mine, "new") + "/", "names a directory"},
		{generate, filepath.Join(parts, "part-0000", "new"), "inside"},
		{[]string{"import", "--format", "csv", "--in", table, "--force", "--out"}, dir, "holds it"},
		{[]string{"report", run, "--out"}, run, "the input"},
		{[]string{"report", run, "--out"}, dir, "holds it"},
		{[]string{"report", run, "--out"}, data, "inside"},
		{[]string{"report", run, "--out"}, mine, "report.md, which the report would replace"},
		{infer, filepath.Join(parts, "out.npy"), "inside"},
		{append(slices.Clip(infer), "out.npy", "--embeddings"), filepath.Join(parts, "out.npy"),
			"inside"},
		{[]string{"simulate", "--parts", parts, "--out"}, filepath.Join(parts, "new"), "inside"},
		{[]string{"simulate", "modes", "--parts", parts, "--out"}, filepath.Join(parts, "new"),
			"inside"},
		{[]string{"plan", "--config", config, "--out"}, filepath.Join(parts, "new"), "inside"},
		{[]string{"blocks", "--config", config, "--out"}, filepath.Join(parts, "new"), "inside"},
		{resume, data, "inside"},
		{resume, dir, "holds it"},
		{resume, filepath.Join(parts, "new"), "inside"},
		{[]string{"train", "--config", config, "--dry-run", "--resume"}, parts, "the input"},
	} {
		r := halognn(t).run(t, append(slices.Clip(c.args), c.out)...)
		if message := r.message(t); r.code == 0 || !strings.Contains(message, c.want) {
			t.Errorf("want %q: %v", c.want, r)
		}
	}
	if now := below(t, dir); now != was {
		t.Errorf("the refused commands changed\n%s\nto\n%s", was, now)
	}

	halognn(t).must(t, append(infer, filepath.Join(run, "new.npy"))...)
	halognn(t).must(t, "report", run, "--out", filepath.Join(run, "report"))
	analysis := filepath.Join(parts, "analysis")
	halognn(t).must(t, "analyze", parts, "--config", config)
	halognn(t).must(t, append(partition, parts)...)
	if _, err := os.Stat(analysis); err == nil {
		t.Errorf("%s is still there, of parts that are not", analysis)
	}
}

// If standard output has no room for a result, every command ends with an error.
func TestFullStandardOutput(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	config := filepath.Join(t.TempDir(), "run.yaml")
	write(t, config, []byte(strings.Replace(baseConfig, "run: {", "run: {dir: none, ", 1)+
		"data: {parts: "+smallParts.dir(t)+"}\n"))
	for _, args := range [][]string{
		{"config"}, {"config", "--config", config}, {"version"}, {"check",
			smallParts.dir(t)}, {"plan", "--help"},
		{"sweep", "--config", config, "--grid", "train.lr=1,2", "--seeds", "2", "--list"},
		{"completion", "bash"}, {"train", "--config", config, "--dry-run", "--ranks-in-process",
			"1"},
	} {
		r := start(t, nil, "sh", append([]string{"-c", `exec "$@" >/dev/full`, "sh",
			halognn(t).path}, args...)...).wait(t)
		if r.code != failed || !strings.Contains(r.err, "no space left on device") {
			t.Errorf("%v: %v", args, r)
		}
	}
}

// Too few open files give one message, not stacks of the Go runtime.
func TestTooFewOpenFiles(t *testing.T) {
	t.Parallel()
	if !halognn(t).cgo {
		t.Skip("built without cgo")
	}
	for _, n := range []string{"5", "20"} {
		r := start(t, nil, "sh", "-c", "ulimit -n "+n+`; exec "$0" version`,
			halognn(t).path).wait(t)
		if r.code != usage || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err,
			"ulimit -n 1024") {
			t.Error(r)
		}
	}
}

// Too few threads give one message, whether the Go runtime, MPI or the job runs out of them.
func TestTooFewThreads(t *testing.T) {
	t.Parallel()
	if !halognn(t).cgo {
		t.Skip("built without cgo")
	}
	if os.Geteuid() != 0 {
		t.Skip("ulimit -u counts all processes of this user; root can be a user without any")
	}
	if r := start(t, nil, "setpriv", "--reuid", "70000", "--clear-groups",
		"true").wait(t); r.code != 0 {
		t.Skip("root cannot be another user here: ", r)
	}
	dir, err := os.MkdirTemp("", "threads") // another user may read it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "halognn")
	write(t, program, read(t, halognn(t).path))
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(program, 0o755)); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		user, limit := fmt.Sprint(70_000+5*os.Getpid()+n), fmt.Sprint(4+3*n)
		r := start(t, nil, "setpriv", "--reuid", user, "--clear-groups", "bash", "-c",
			"ulimit -u "+limit+`; exec "$0" train --config none.yaml`, program).wait(t)
		enough := n > 0 && strings.Contains(r.err, "none.yaml") // a program without MPI
		if r.code != usage || strings.Count(r.err, "\n") != 1 ||
			!enough && !strings.Contains(r.err, "ulimit -u") {
			t.Errorf("ulimit -u %s: %v", limit, r)
		}
	}
}
