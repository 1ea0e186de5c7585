//go:build e2e

package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/shard"
)

// A run can be repeated from the config in its directory, which has all defaults and settings: the
// numbers are the same.
func TestConfigOfARunRepeatsIt(t *testing.T) {
	t.Parallel()
	want, again := trained(t, smallParts.dir(t), 2, "train.lr=0.02", "sample.fanouts=4,-1"),
		newRunDir(t)
	config := filepath.Join(want.dir, "config.yaml")
	r := halognn(t).must(t, "train", "--config", config, "--set", "run.dir="+again,
		"--ranks-in-process", "2")
	sameNumbers(t, outcomeOf(t, again, r), want)
	if a, b := read(t, config),
		read(t, filepath.Join(again, "config.yaml")); !bytes.Equal(bytes.ReplaceAll(b,
		[]byte(again), []byte(want.dir)), a) {
		t.Errorf("the config changed on its way through a run:\n%s", b)
	}
}

// Equal seeds give equal files, with equal hashes in meta.json; other seeds do not.
func TestFilesRepeat(t *testing.T) {
	t.Parallel()
	dir, methods := t.TempDir(), []string{"ldg", "random"}
	if halognn(t).linked("metis") {
		methods = append(methods, "metis")
	}
	meta := func(name string, args ...string) string {
		out := filepath.Join(dir, name)
		halognn(t).must(t, append(args, "--out", out)...)
		return string(read(t, filepath.Join(out, "meta.json")))
	}
	generate := []string{"generate", "--vertices", "500", "--degree", "6", "--features", "4",
		"--seed"}
	first := meta("a", append(generate, "1")...)
	if again := meta("b", append(generate, "1")...); again != first {
		t.Error("a dataset generated again differs")
	}
	if other := meta("c", append(generate, "2")...); other == first {
		t.Error("another seed gives the same dataset")
	}
	for _, method := range methods {
		cut := []string{"partition", "--data", filepath.Join(dir, "a"), "--parts", "4", "--method",
			method, "--allow-imbalance", "--seed"}
		first := meta(method+"-a", append(cut, "1")...)
		if again := meta(method+"-b", append(cut, "1")...); again != first {
			t.Errorf("%s: parts made again differ", method)
		}
		if method == "ldg" { // ldg takes the vertices in their order
			continue
		}
		if other := meta(method+"-c", append(cut, "2")...); strings.Split(other,
			`"files"`)[1] == strings.Split(first, `"files"`)[1] {
			t.Errorf("%s: another seed gives the same parts", method)
		}
	}
}

func TestCheckKnowsWhatIsWhole(t *testing.T) {
	t.Parallel()
	run := trained(t, smallParts.dir(t), 2).dir
	for path, what := range map[string]string{smallData.dir(t): "dataset of 3000 vertices",
		smallParts.dir(t): "8 parts of 3000 vertices", run: "run"} {
		if r := halognn(t).must(t, "check", path); !strings.Contains(r.out, what) ||
			!strings.Contains(r.out, "ok") {
			t.Errorf("check of %s says %q, want %q", path, r.out, what)
		}
	}
}

// Files that are staged, or copied to shared memory, give the same numbers. The stage is used
// again; shared memory is released.
func TestStagedFiles(t *testing.T) {
	t.Parallel()
	// parts with an identity of their own
	parts := partitioned(t, smallData.dir(t), 4, "random", "--seed", "9")
	s, err := shard.Open(parts, shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	copies := fmt.Sprintf("halognn-%d-%s", os.Getuid(), s.Identity())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	stage, want := t.TempDir(), trained(t, parts, 2)
	for range 2 {
		sameNumbers(t, trained(t, parts, 2, "run.stage_dir="+stage), want)
	}
	staged, err := filepath.Glob(filepath.Join(stage, copies, "part-000[0-3]", "features.npy"))
	if err != nil || len(staged) != 4 {
		t.Errorf("staged parts: %v (%v)", staged, err)
	}
	sameNumbers(t, trained(t, parts, 4, "topology.load=copy", "run.stage_dir="+stage),
		trained(t, parts, 4))
	if _, err := os.Stat(filepath.Join("/dev/shm", copies)); !os.IsNotExist(err) {
		t.Errorf("the topology is still in shared memory (%v)", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Join("/dev/shm", copies)) })
	dir := t.TempDir()
	altered := copyOf(t, parts, dir, "altered")
	patch(t, filepath.Join(altered, "indices.npy"), 0xff, 0xff, 0xff, 0x7f)
	badInput{code: badData, want: []string{"indices.npy", "altered"}}.check(t, dir,
		// copying verifies the files
		halognn(t).run(t, training(t, altered, dir, "topology.load=copy", "data.verify=sizes")...))
	write(t, filepath.Join(stage, "file"), nil)
	r := halognn(t).run(t,
		training(t, parts, dir, "run.stage_dir="+filepath.Join(stage, "file"))...)
	badInput{code: badData,
		want: []string{filepath.Join(stage, "file"), "not a directory"}}.check(t, dir, r)
	// files staged for a job are removed if the job is refused later: here there is no device
	other := t.TempDir()
	r = start(t, []string{"HALOGNN_CUDA_LIB=" + filepath.Join(dir, "none.so")}, halognn(t).path,
		training(t, parts, dir, "run.stage_dir="+other, "compute.device=cuda")...).wait(t)
	badInput{code: usage, want: []string{"none.so"}}.check(t, dir, r)
	if left, _ := filepath.Glob(filepath.Join(other, "*")); len(left) > 0 {
		t.Errorf("left of a job that was refused: %v", left)
	}
}
