//go:build e2e

package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

var (
	losses     = flag.Int("losses", 10, "how many commands to kill, stop or give a full disk")
	lossesFrom = flag.Uint64("losses-from", 1, "the seed of the first; the others follow")
)

// victim is a command that is disturbed at a random moment.
type victim struct {
	name string
	// command returns the words that start the victim, with its output at out
	command func(t *testing.T, out string) []string
	// whole says what is wrong with the output of a victim that has ended; it runs it again if need
	// be
	whole func(t *testing.T, out string, code int)
	took  time.Duration // when it is not disturbed
}

// blow is a disturbance: a signal, or a disk that is full beyond some size.
type blow struct {
	signal syscall.Signal // 0: none
	to     string         // "process" (the launcher, if there is one), "rank", "group"
	disk   int            // KiB
	after  time.Duration
}

func (b blow) String() string {
	if b.signal == 0 {
		return fmt.Sprintf("a disk of %d KiB", b.disk)
	}
	return fmt.Sprintf("%v to the %s after %v", b.signal, b.to, b.after)
}

// Commands are killed, stopped and starved of disk space at random moments, many times by
//
//	go test ./tests -run TestNothingIsLost -args -losses 200
//
// Existing files stay as they were. What a command writes is complete or does not exist. The
// command can continue or start again, with the same result. A run loses no more than the steps
// after its last checkpoint, and those are in its history.
func TestNothingIsLost(t *testing.T) {
	unlessShort(t)
	met := map[string]int{} // how often each state was found, and how it ended
	victims := lossVictims(t, met)
	for _, v := range victims { // first without a blow
		out, begun := filepath.Join(t.TempDir(), "out"), time.Now()
		words := v.command(t, out)
		r := start(t, nil, words[0], words[1:]...).wait(t)
		if v.took = time.Since(begun); r.code != 0 {
			t.Fatalf("%s, undisturbed: %v", v.name, r)
		}
		v.whole(t, out, r.code)
	}
	clear(met)
	for n := range *losses {
		seed := *lossesFrom + uint64(n)
		random := rand.New(rand.NewPCG(seed, 26))
		v := victims[int(seed)%len(victims)]
		b := drawBlow(t, random, v)
		if !t.Run(fmt.Sprintf("%d %s, %v", seed, v.name, b),
			func(t *testing.T) { v.suffer(t, b) }) {
			t.Logf("again: go test ./tests -run TestNothingIsLost -args -losses 1 -losses-from %d",
				seed)
		}
		what := "full disk"
		if b.signal != 0 {
			what = b.signal.String()
		}
		met[v.name+": "+what]++
	}
	for _, name := range slices.Sorted(maps.Keys(met)) {
		t.Logf("%-60s %3d", name, met[name])
	}
}

// drawBlow draws a blow for a victim.
func drawBlow(t *testing.T, random *rand.Rand, v *victim) blow {
	b := blow{after: time.Duration(random.Float64() * 1.1 * float64(v.took))}
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT,
		syscall.SIGHUP, syscall.SIGUSR1, 0}
	b.signal = signals[random.IntN(len(signals))]
	b.to = []string{"process", "rank", "group"}[random.IntN(3)]
	b.disk = 20 + random.IntN(400)
	if b.signal == 0 {
		if text, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
			t.Logf("no full disk, as unshare fails (%s): a kill instead", text)
			b.signal = syscall.SIGKILL
		}
	}
	return b
}

// smallDisk runs "$@" with directory $1 on a disk of $2 KiB, and keeps the content of the
// directory.
const smallDisk = `dir=$1 size=$2; shift 2; cp -a "$dir" "$dir.kept"
mount -t tmpfs -o size="$size"k none "$dir" || exit 99
cp -a "$dir.kept"/. "$dir"; "$@"; code=$?; rm -rf "$dir.kept"; cp -a "$dir" "$dir.kept"; exit $code`

// suffer starts the victim, deals the blow, and checks what is left.
func (v *victim) suffer(t *testing.T, b blow) {
	dir := filepath.Join(t.TempDir(), "place")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	words := v.command(t, out)
	if b.signal == 0 {
		words = append([]string{"unshare", "-rm", "sh", "-c", smallDisk, "sh", dir,
			fmt.Sprint(b.disk)}, words...)
	}
	j := start(t, nil, words[0], words[1:]...)
	if b.signal != 0 {
		time.Sleep(b.after)
		to := j.Process.Pid
		if ranks := left(t, out); b.to == "rank" && len(ranks) > 0 {
			to = ranks[len(ranks)-1]
		} else if b.to == "group" {
			to = -to
		}
		_ = syscall.Kill(to, b.signal) // the process may have ended
	}
	r := j.wait(t)
	if r.code == 99 {
		t.Skipf("a small disk needs the right to mount a tmpfs in a namespace: %v", r)
	}
	if b.signal == 0 {
		remove(t, dir)
		if err := os.Rename(dir+".kept", dir); err != nil {
			t.Fatal(err)
		}
	}
	// a killed process does not wait for its children
	eventually(t, "the end of all processes",
		func() bool { return len(left(t, out)) == 0 })
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	// when a rank ends, MPICH's launcher kills the others, and one may just have begun a directory
	killed := b.signal == syscall.SIGKILL || strings.HasSuffix(v.name, "under MPI") &&
		strings.Contains(os.Getenv("HALOGNN_MPIRUN"), "mpich")
	for _, e := range entries {
		if e.Name() != "out" && e.Name() != "out.npy" && !killed {
			t.Errorf("%s is left beside the output: %v", e.Name(), r)
		}
	}
	v.whole(t, out, r.code)
	if t.Failed() {
		t.Log(r)
	}
}

// stepRecords returns the records of steps in a log, as they were written; none without a log.
func stepRecords(t *testing.T, path string) (records []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), `{"kind":"step"`) && json.Valid(lines.Bytes()) {
			records = append(records, lines.Text())
		}
	}
	return records
}

// lossVictims returns the victims. They count in met in which state they find the output.
func lossVictims(t *testing.T, met map[string]int) (all []*victim) {
	p := halognn(t)
	data, parts := smallData.dir(t), smallParts.dir(t)
	sets := []string{"train.epochs=12", "checkpoint.every_steps=9", "checkpoint.keep=2"}
	reference := trained(t, parts, 2, sets...)
	before := treeOf(t, data) + treeOf(t, parts)
	inputsStay := func(t *testing.T) {
		t.Helper()
		if treeOf(t, data)+treeOf(t, parts) != before {
			t.Error("the inputs have changed")
		}
	}
	// run continues a run that has ended in any way, and compares it with the reference
	run := func(t *testing.T, out string, code int) {
		t.Helper()
		inputsStay(t)
		seen := stepRecords(t, filepath.Join(out, "metrics.jsonl"))
		old := checkpoints(t, out)
		args := append(trainArgs(t, parts, "elsewhere", sets...), "--resume", out,
			"--ranks-in-process", "2")
		p.must(t, args...)
		after := stepRecords(t, filepath.Join(out, "metrics.jsonl"))
		history := stepRecords(t, filepath.Join(out, "metrics.history.jsonl"))
		kept := map[string]bool{}
		for _, record := range append(slices.Clone(after), history...) {
			kept[record] = true
		}
		for _, record := range seen {
			if !kept[record] {
				t.Fatalf("the record of a step is lost: %s", record)
			}
		}
		switch {
		case len(old) > 0 && strings.HasSuffix(old[len(old)-1], "-end"):
			met["= a run was at its end"]++
		case len(old) > 0:
			met["= a run went on from a checkpoint"]++
			met["= steps trained again after a checkpoint"] += len(history)
		case len(seen) > 0:
			met["= a run began again, before its first checkpoint"]++
		default:
			met["= a run had not begun"]++
		}
		if code == requeue {
			met["= a run said that it has saved"]++
		}
		if code == requeue && len(history) > 0 {
			t.Errorf("the run said that its state is saved, and trained %d steps again",
				len(history))
		}
		if len(old) > 0 && len(history) > 0 {
			var first stepLine
			decode(t, []byte(history[0]), &first)
			var updates int
			if _, err := fmt.Sscanf(filepath.Base(old[len(old)-1]), "step-%d",
				&updates); err != nil {
				t.Fatal(err)
			}
			if n := (first.Epoch-1)*reference.StepsPerEpoch + first.Step; n < updates {
				t.Errorf("step %d was trained again, and %s was there", n, old[len(old)-1])
			}
		}
		if got := outcomeOf(t, out, result{}); got.LossDigest != reference.LossDigest ||
			got.WeightsDigest != reference.WeightsDigest || len(after) != len(reference.steps) {
			t.Errorf("the run came to digest %s after %d steps, want %s after %d", got.LossDigest,
				len(after), reference.LossDigest, len(reference.steps))
		}
		p.must(t, "check", out)
	}
	// the output of a single command is as without the blow, or does not exist
	written := func(name, suffix string, command func(t *testing.T, out string) []string) *victim {
		var want string
		return &victim{name: name, command: command,
			whole: func(t *testing.T, out string, code int) {
				t.Helper()
				inputsStay(t)
				path := out + suffix
				_, err := os.Lstat(path)
				met[fmt.Sprintf("= %s had written all: %t", name, err == nil)]++
				if err != nil {
					if code == 0 {
						t.Fatalf("it ended well, and there is no %s", path)
					}
					words := command(t, out)
					if r := start(t, nil, words[0], words[1:]...).wait(t); r.code != 0 {
						t.Fatalf("another try: %v", r)
					}
				}
				got := treeOf(t, path)
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%s is not what was written without a blow", path)
				}
			}}
	}
	partition := func(out string) []string {
		return []string{p.path, "partition", "--data", data, "--parts", "8", "--method", "ldg",
			"--out", out}
	}
	train := func(out string) []string {
		return append([]string{p.path}, trainArgs(t, parts, out, sets...)...)
	}
	all = append(all, &victim{name: "train", whole: run,
		command: func(t *testing.T, out string) []string {
			return append(train(out), "--ranks-in-process", "2")
		}})
	if mpirun := os.Getenv("HALOGNN_MPIRUN"); mpirun != "" && p.linked("mpi") {
		all = append(all, &victim{name: "train under MPI", whole: run,
			command: func(t *testing.T, out string) []string {
				return append([]string{mpirun, "-np", "2"}, train(out)...)
			}}, written("partition under MPI", "", func(t *testing.T, out string) []string {
			return append([]string{mpirun, "-np", "3"}, partition(out)...)
		}))
	}
	all = append(all, pythonVictims(t, parts, sets, run)...)
	in := filepath.Join(t.TempDir(), "arrays")
	random := rand.New(rand.NewPCG(1, 26))
	edges := make([]int64, 2*200000)
	for i := range edges {
		edges[i] = random.Int64N(20000)
	}
	save(t, filepath.Join(in, "edge_index.npy"), edges, 2, len(edges)/2)
	save(t, filepath.Join(in, "x.npy"), make([]float32, 8*20000), 20000, 8)
	labels := make([]int64, 20000)
	for v := range labels {
		labels[v] = int64(v % 3)
	}
	save(t, filepath.Join(in, "y.npy"), labels, 20000)
	all = append(all,
		written("import", "", func(t *testing.T, out string) []string {
			return []string{p.path, "import", "--format", "npz", "--in", in, "--out", out,
				"--directed"}
		}),
		written("partition", "", func(t *testing.T, out string) []string {
			return partition(out)
		}),
		written("infer", ".npy", func(t *testing.T, out string) []string {
			return []string{p.path, "infer", "--run", reference.dir, "--out", out + ".npy",
				"--logits", "--ranks-in-process", "2"}
		}))
	return all
}

// pythonVictims returns training by the Python package, if a suitable Python is installed.
func pythonVictims(t *testing.T, parts string, sets []string,
	whole func(t *testing.T, out string, code int)) []*victim {
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	if text, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		t.Logf("left out: the Python package, as %s cannot import numpy; set PYTHON to one "+
			"that can: %s",
			python, text)
		return nil
	}
	path, err := filepath.Abs("../python")
	if err != nil {
		t.Fatal(err)
	}
	script := `import sys, halognn
halognn.train(sys.argv[1], sys.argv[2], config=sys.argv[3], launcher=[],
    **dict(word.split("=", 1) for word in sys.argv[4:]))`
	return []*victim{{name: "train from Python",
		whole: whole,
		command: func(t *testing.T, out string) []string {
			words := []string{"env", "PYTHONPATH=" + path, "HALOGNN=" + twoRanks(t), python, "-B",
				"-c", script, parts, out, baseFile.dir(t), "cache.policy=none"}
			return append(words, sets...)
		}}}
}

// twoRanks returns a program that runs halognn with two ranks in process, like the other victims.
func twoRanks(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "halognn-2")
	script := fmt.Sprintf("#!/bin/sh\nexec %q \"$@\" --ranks-in-process 2\n", halognn(t).path)
	if err := os.WriteFile(path, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

// treeOf returns a digest of a file, or of the names and contents of all files below a directory.
func treeOf(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		fmt.Fprintf(&all, "%s %x\n", name, xxhash.Sum64(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
