//go:build e2e

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"halognn/src/model/task"
)

// launcher returns the mpirun of the MPI that the program was built with, or skips the test.
func launcher(t *testing.T) string {
	t.Helper()
	path := os.Getenv("HALOGNN_MPIRUN")
	if path == "" {
		t.Skip("HALOGNN_MPIRUN is not set: no MPI was found when env.sh was sourced, or it was not")
	}
	if !halognn(t).linked("mpi") {
		t.Skip("the program is built without MPI")
	}
	return path
}

// startMPI starts a program on ranks of MPI.
func startMPI(t *testing.T, ranks int, name string, args ...string) *job {
	t.Helper()
	return start(t, nil, launcher(t),
		append([]string{"-np", strconv.Itoa(ranks), name}, args...)...)
}

// trainedMPI is trained with ranks of MPI.
func trainedMPI(t *testing.T, parts string, ranks int, sets ...string) *outcome {
	t.Helper()
	p, dir := halognn(t), newRunDir(t)
	r := startMPI(t, ranks, p.path, trainArgs(t, parts, dir, sets...)...).wait(t)
	if r.code != 0 {
		t.Fatal(r)
	}
	return outcomeOf(t, dir, r)
}

// The transport changes no number: every MPI gives the same bits as ranks in one process.
func TestSameNumbersUnderAnyMPI(t *testing.T) {
	launcher(t)
	for _, c := range []struct {
		ranks int
		sets  []string
	}{
		{1, nil},
		{2, nil},
		{4, nil},
		{2, []string{"pipeline.depth=1", "compute.threads=2"}},
		{4, []string{"run.ranks_per_node=1", "pipeline.depth=10", "pipeline.workers=2"}},
		{4, []string{"run.ranks_per_node=1", "pipeline.depth=4", "pipeline.workers=8",
			"compute.threads=3"}},
		{4, []string{"run.ranks_per_node=2", "topology.load=copy", "pipeline.depth=0"}},
		{3, []string{"sample.streams=part", "sample.seeds=global", "train.eval_mode=full"}},
		{2, []string{"model.kind=gat", "model.norm=batch", "model.activation=elu",
			"model.residual=true"}},
		{2, []string{"model.kind=gatv2", "model.jumping=cat", "model.head_merge=mean",
			"run.ranks_per_node=1", "train.eval_mode=full"}},
		{4, []string{"model.kind=gcn", "model.gcn_norm=both", "sample.kind=poisson",
			"sample.locality=4",
			"run.ranks_per_node=2", "cache.policy=vip", "cache.placement=group",
			"cache.peer_cost=0.2"}},
		{2, []string{"model.kind=gin", "model.norm=layer", "sample.kind=ladies",
			"sample.layer_vertices=300", "sample.locality=8", "sample.locality_adapt=true",
			"run.ranks_per_node=1", "cache.policy=sim"}},
	} {
		parts, sets := smallParts.dir(t), c.sets
		if c.ranks == 3 {
			parts = partitioned(t, smallData.dir(t), 6, "ldg", "--allow-imbalance")
		}
		t.Run(fmt.Sprint(c.ranks, " ranks ", sets), func(t *testing.T) {
			got, want := trainedMPI(t, parts, c.ranks, sets...), trained(t, parts, c.ranks, sets...)
			sameNumbers(t, got, want)
			for i, e := range want.epochs {
				if moved(got.epochs[i].Rows) != moved(e.Rows) {
					t.Errorf("epoch %d: moved %+v, in process %+v", e.Epoch,
						moved(got.epochs[i].Rows), moved(e.Rows))
				}
			}
			if got.Transport == want.Transport || got.Ranks != c.ranks {
				t.Errorf("%d ranks on %q, in process on %q", got.Ranks, got.Transport,
					want.Transport)
			}
		})
	}
}

func TestInferUnderAnyMPI(t *testing.T) {
	launcher(t)
	o := trained(t, smallParts.dir(t), 4)
	for _, mode := range []string{"full", "sampled"} {
		path := filepath.Join(t.TempDir(), "predictions.npy")
		if r := startMPI(t, 4, halognn(t).path, "infer", "--run", o.dir, "--mode", mode, "--out",
			path).wait(t); r.code != 0 {
			t.Fatal(r)
		}
		if !slices.Equal(ids(t, path), predicted(t, o.dir, 4, "--mode", mode)) {
			t.Errorf("%s: predictions differ from those in process", mode)
		}
	}
}

// Ranks without training seeds do not hang the others.
func TestRanksWithoutSeedsUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	data := handmade{split: func(v int) [3]bool {
		return [3]bool{v < 50, v%2 == 0 && v >= 50,
			v%2 == 1 && v >= 50}
	}}.write(t, filepath.Join(t.TempDir(), "data"))
	parts := partitioned(t, data, 4, "contiguous", "--allow-imbalance")
	sameNumbers(t, trainedMPI(t, parts, 4, "sample.batch=20"),
		trained(t, parts, 4, "sample.batch=20"))
}

// checkEnd checks that a job under MPI ends as the bad input must, and that no rank is left.
func (b badInput) checkEnd(t *testing.T, dir string, r result) {
	t.Helper()
	b.check(t, dir, r)
	eventually(t, "the end of all ranks",
		func() bool { return len(left(t, dir)) == 0 })
}

// An error that all ranks share is printed once, and all exit with its code.
func TestBadInputUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	mpi := func(sets ...string) func(*testing.T, string) []string {
		return func(t *testing.T, dir string) []string {
			return trainArgs(t, smallParts.dir(t), filepath.Join(dir, "out"), sets...)
		}
	}
	for _, c := range []struct {
		ranks int
		badInput
	}{
		{4, badInput{"an unknown key", mpi("train.speed=1"), usage,
			[]string{"unknown key train.speed"}}},
		{2, badInput{"an unknown flag",
			func(t *testing.T, dir string) []string {
				return append(mpi()(t, dir), "--restart",
					dir)
			},
			usage, []string{"--restart"}}},
		{2, badInput{"ranks in every process of a launcher",
			func(t *testing.T, dir string) []string {
				return append(mpi()(t, dir), "--ranks-in-process", "2")
			}, usage, []string{"--ranks-in-process 2", "leave out one"}}},
		{4, badInput{"no parts", mpi("data.parts=/none"), badData,
			[]string{"/none", "halognn partition"}}},
		{3, badInput{"parts not a multiple of ranks", mpi(), badData,
			[]string{"8 parts", "3 ranks"}}},
		{4, badInput{"an altered part", func(t *testing.T, dir string) []string {
			parts := copyOf(t, smallParts.dir(t), dir, "parts")
			patch(t, filepath.Join(parts, "part-0005", "features.npy"), 1, 2, 3)
			return mpi("data.parts="+parts)(t, dir)
		}, badData, []string{"rank 2", "part-0005/features.npy", "altered"}}},
		{2, badInput{"no labels", func(t *testing.T, dir string) []string {
			write(t, filepath.Join(dir, "edges.txt"), []byte("1 2\n2 3\n3 4\n4 1\n"))
			data := filepath.Join(dir, "data")
			halognn(t).must(t, "import", "--format", "edgelist", "--in",
				filepath.Join(dir, "edges.txt"), "--out", data)
			return mpi("data.parts="+partitioned(t, data, 2, "random"))(t, dir)
		}, badData, []string{"no labels"}}},
		{3, badInput{"a run directory below a file", func(t *testing.T, dir string) []string {
			write(t, filepath.Join(dir, "file"), nil)
			data := handmade{}.write(t, filepath.Join(dir, "data"))
			return mpi("data.parts="+partitioned(t, data, 3, "random", "--allow-imbalance"),
				"run.dir="+filepath.Join(dir, "file", "run"))(t, dir)
		}, usage, []string{"run directory", "not a directory"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.checkEnd(t, dir, startMPI(t, c.ranks, halognn(t).path, c.args(t, dir)...).wait(t))
		})
	}
}

// If one rank refuses to run, all ranks end with its code, in every command that ranks share.
func TestRefusalsHaveOneCodeUnderAnyMPI(t *testing.T) {
	launcher(t)
	dir := t.TempDir()
	limited := filepath.Join(dir, "limited.sh")
	script := "#!/bin/sh\nulimit -d 262145\nexec '" + halognn(t).path + "' \"$@\"\n"
	if err := os.WriteFile(limited, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	run := trained(t, smallParts.dir(t), 2).dir
	train := trainArgs(t, smallParts.dir(t), filepath.Join(dir, "out"))
	for _, c := range []struct {
		program string
		args    []string
		want    string
	}{
		{limited, train, "ulimit -d"}, {limited, append(slices.Clone(train), "--dry-run"),
			"ulimit -d"},
		{limited, []string{"infer", "--run", run, "--out", filepath.Join(dir, "p.npy")},
			"ulimit -d"},
		{halognn(t).path, append(partitioning(smallData.dir(t), filepath.Join(dir, "p")),
			"--features", "degree"), "--features degree"},
	} {
		r := startMPI(t, 2, c.program, c.args...).wait(t)
		badInput{code: usage, want: []string{c.want}}.checkEnd(t, dir, r)
	}
}

// odd writes a script that starts the program with extra arguments on one rank.
func odd(t *testing.T, dir string, rank int, more ...string) string {
	t.Helper()
	path := filepath.Join(dir, "odd.sh")
	script := fmt.Sprintf("#!/bin/sh\nrank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n[ -n \"$rank\" ] "+
		"|| exit 99\n"+
		"if [ \"$rank\" = %d ]; then set -- \"$@\" %s; fi\nexec '%s' \"$@\"\n", rank,
		strings.Join(more, " "), halognn(t).path)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// An error on one rank, or a difference between ranks, names the rank and hangs nobody.
func TestRanksThatDisagreeUnderMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	for _, c := range []struct {
		name  string
		ranks int
		more  func(t *testing.T, dir string) []string // flags of rank 1
		code  int
		want  []string
	}{
		{"other parts of the same graph", 2, func(t *testing.T, dir string) []string {
			return []string{"--set", "data.parts=" +
				partitioned(t, smallData.dir(t), 8, "random", "--seed", "5")}
		}, badData, []string{"rank 1", "rank 0", "disagree"}},
		{"other parts under the same name", 2,
			func(t *testing.T, dir string) []string { return nil }, badData,
			[]string{"rank 1", "identity of the parts"}},
		{"another learning rate", 4,
			func(*testing.T, string) []string { return []string{"--set", "train.lr=0.5"} },
			badData, []string{"rank 1", "rank 0", "disagree", "lr: 0.5"}},
		{"a bad config", 3, func(*testing.T,
			string) []string {
			return []string{"--set", "train.lr=-2"}
		},
			usage, []string{"rank 1", "train.lr is -2"}},
		{"no parts", 4, func(*testing.T,
			string) []string {
			return []string{"--set", "data.parts=/none"}
		},
			badData, []string{"rank 1", "/none", "halognn partition"}},
		{"a damaged copy", 2, func(t *testing.T, dir string) []string {
			parts := copyOf(t, smallParts.dir(t), dir, "parts")
			truncate(t, filepath.Join(parts, "train.npy"), 200)
			return []string{"--set", "data.parts=" + parts}
		}, badData, []string{"rank 1", "train.npy", "200"}},
		{"a device that is not there", 2,
			func(*testing.T, string) []string { return []string{"--set", "compute.device=tpu"} },
			usage, []string{"rank 1", "compute.device", "tpu"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			parts := smallParts.dir(t)
			script := odd(t, dir, 1, c.more(t, dir)...)
			// the path is relative, and rank 1 has another working directory
			if c.name == "other parts under the same name" {
				parts = filepath.Base(parts)
				elsewhere := filepath.Join(dir, "elsewhere")
				other := handmade{}.write(t, filepath.Join(dir, "data"))
				if err := os.Mkdir(elsewhere, 0o777); err != nil {
					t.Fatal(err)
				}
				halognn(t).must(t, "partition", "--data", other, "--parts", "8", "--method",
					"random", "--allow-imbalance", "--out", filepath.Join(elsewhere, parts))
				replace(t, script, "exec ",
					fmt.Sprintf("cd '%s'; [ \"$rank\" = 1 ] && cd '%s'\nexec ",
						filepath.Dir(smallParts.dir(t)), elsewhere))
			}
			args := trainArgs(t, parts, filepath.Join(dir, "out"))
			r := startMPI(t, c.ranks, script, args...).wait(t)
			badInput{code: c.code, want: c.want}.checkEnd(t, dir, r)
		})
	}
}

// sets returns the command line of a run on the small parts under MPI.
func sets(sets ...string) func(*testing.T, string) []string {
	return func(t *testing.T, dir string) []string {
		return trainArgs(t, smallParts.dir(t), filepath.Join(dir, "out"), sets...)
	}
}

// An error during the steps ends the whole job with the exit code of the rank that has it.
func TestFailureWhileTrainingUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	for name, c := range map[string]badInput{
		"divergence": {want: []string{"step", "train.lr"},
			args: sets("train.optimizer=sgd", "train.lr=1e30", "train.epochs=5")},
		"a loss that explodes": {want: []string{"epoch 1: step 1", "more than 1e+06 times",
			"train.lr"}, args: sets("train.lr=1e9")},
		"predictions that explode": {want: []string{"evaluation after epoch 1",
			"mean loss of the predictions"},
			args: sets("train.lr=1e9", "train.epochs=1", "sample.batch=10000")},
		"weights that explode": {want: []string{"epoch 1: the weights are not finite"},
			args: sets("train.optimizer=sgd", "train.lr=1e300", "train.epochs=1",
				"sample.batch=10000")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := startMPI(t, 4, halognn(t).path, c.args(t, dir)...).wait(t)
			remove(t, filepath.Join(dir, "out"))
			c.code = diverged
			c.checkEnd(t, dir, r)
		})
	}
	for _, file := range []string{"part-0005/features.npy", "indices.npy"} {
		t.Run(file+" shrinks", func(t *testing.T) {
			dir := t.TempDir()
			parts := copyOf(t, smallParts.dir(t), dir, "parts")
			j := startMPI(t, 4, halognn(t).path,
				trainArgs(t, parts, filepath.Join(dir, "out"),
					append(long, "run.ranks_per_node=1")...)...)
			underWay(t, filepath.Join(dir, "out"))
			truncate(t, filepath.Join(parts, file), 4096)
			r := j.wait(t)
			remove(t, filepath.Join(dir, "out"))
			// all ranks read the topology, and several may see the damage first
			if n := strings.Count("\n"+r.err, "\nhalognn: "); n > 1 {
				first, _, _ := strings.Cut(r.err[strings.Index(r.err, "halognn: ")+1:],
					"\nhalognn: ")
				r.err = "h" + first
			}
			badInput{code: failed, want: []string{"rank", file, "shrank"}}.checkEnd(t, dir, r)
		})
	}
}

// A rank that dies ends the job.
func TestKilledRankUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	if runtime.GOOS != "linux" {
		t.Skip("finding the ranks needs Linux's /proc")
	}
	dir := t.TempDir()
	data := handmade{task: task.Multiclass}.write(t, filepath.Join(dir, "data"))
	parts := partitioned(t, data, 4, "random", "--allow-imbalance")
	p := halognn(t)
	j := startMPI(t, 4, p.path, trainArgs(t, parts, filepath.Join(dir, "out"), long...)...)
	underWay(t, filepath.Join(dir, "out"))
	ranks := slices.DeleteFunc(left(t, dir), func(pid int) bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err != nil || filepath.Base(exe) != filepath.Base(p.path)
	})
	if len(ranks) != 4 {
		t.Fatalf("processes %v, want 4 ranks", ranks)
	}
	if err := syscall.Kill(ranks[2], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := j.wait(t); r.code == 0 {
		t.Errorf("a job that lost a rank ended well: %v", r)
	}
	eventually(t, "the end of all ranks",
		func() bool { return len(left(t, dir)) == 0 })
}
