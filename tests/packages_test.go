// Package tests holds the tests that span packages: the architecture, whole runs of the program
// under several MPIs, and bad input. Scripts beside it run the program as its users do.
package tests

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// packages is the architecture: each package of src with its level and its purpose. A package
// imports only packages of lower levels; a nested one (comm/mpi) has the level of the outer one
// (comm). docs/design/01-packages.md shows the table.
var packages = []struct {
	level         int
	name, purpose string
}{
	{-3, "fault", "points at which tests make things go wrong; empty in the product"},
	{-2, "interrupt", "signals that stop the process: the first asks, the second ends it"},
	{-2, "mem", "arrays outside the Go heap, mapped files"},
	{-2, "flock", "processes of a node take turns at a place"},
	{-1, "random", "random words that are pure functions of a key"},
	{0, "timing", "a thread's CPU time, medians, the machine's rate of random reads"},
	{0, "energy", "joules of a node's processors, memory and GPUs, by their own counters"},
	{0, "nvtx", "what a process does when, for the profilers of NVIDIA"},
	{-1, "npy", "NumPy files: map, stream, write"},
	{1, "graph", "CSC, blocks, vertex ids, splits: build, clean, transpose"},
	{1, "comm", "the contract between ranks, ranks as goroutines, the reproducible sum; " +
		"`comm/mpi` is the MPI binding"},
	{0, "compute", "what a device can do; `compute/ref` in plain Go, `compute/cpu` with BLAS and " +
		"C kernels, `compute/cuda` on a GPU; `compute/meter` watches any of them"},
	{1, "task", "the table of what models are trained for: labels, losses, metrics, predictions"},
	{1, "pipeline", "items prepared wide and finished in order; knows no graphs"},
	{1, "trace", "time per phase, the time model of a step, the items of memory, spans, tables"},
	{1, "chart", "curves and bars on self-contained HTML pages"},
	{1, "rundir", "the run directory on disk: names, lock, heartbeat file, checkpoint files, the " +
		"log of steps"},
	{2, "dataset", "foreign formats in, generators, the DATASET directory"},
	{2, "partition", "vertex to part; `partition/metis` and `partition/kaminpar` are bindings, " +
		"`partition/assignment` reads what another program cut"},
	{2, "sample", "seeds to blocks, the seed order of an epoch"},
	{2, "nn", "layers, parameters, optimisers, schedules"},
	{2, "cache", "which remote rows are at hand: static sets, prefetch buffer, SIEVE, " +
		"look-ahead, placement"},
	{2, "watch", "ends a run in which no rank is at work"},
	{3, "shard", "the PARTS directory; `shard/shardtest` makes one for tests"},
	{3, "access", "how often each vertex will be read: VIP and the other rankings"},
	{3, "presample", "what sampling draws before anything is trained: weights for partitions, " +
		"and how parts share a minibatch"},
	{4, "policy", "the table of cache policies, and the one player that drives them over " +
		"minibatches"},
	{4, "exchange", "where the rows of a frontier lie, and fetching the rest"},
	{5, "job", "what is trained on what: streams, keys, workloads, capacities; train, plan, " +
		"simulate and blocks hold one"},
	{6, "parallel", "how ranks share one step: the table of modes, the strategies that they " +
		"make, what cannot be combined, and the pipe that prepares minibatches"},
	{8, "config", "the table of settings: YAML in, a checked job and the documentation out"},
	{6, "ranking", "what static caches hold, ranked once and written: for runs of which no rank " +
		"sees the whole graph"},
	{7, "residence", "where feature rows are at hand: mapped parts, caches and filling them, " +
		"device rows, the choice of `cache.policy: auto`"},
	{8, "record", "what a run writes of itself: summary.json, the lines of metrics.jsonl, the " +
		"table at its end"},
	{9, "report", "run directories to tables, plots and one page"},
	{7, "simulate", "what every cache policy would fetch, counted without training"},
	{7, "plan", "what a job will cost: memory, traffic, time; predicted before it runs"},
	{9, "session", "one rank's job, model, rows at hand and pipe: what training and " +
		"inference share"},
	{9, "checkpoint", "the state of a run between two steps: how it is kept and comes back"},
	{10, "blocks", "the minibatches of a run as files, for other programs"},
	{10, "infer", "passes over given vertices or over all, scores, predictions"},
	{11, "train", "the loop: epochs, steps, evaluation, and the records of a run"},
	{9, "doctor", "what a job can expect of its ranks, nodes and filesystem, and what is wrong " +
		"with them"},
	{12, "cmd", "command line, wiring, exit codes"},
}

// levels returns the level of each package.
func levels() map[string]int {
	all := map[string]int{}
	for _, p := range packages {
		all[p.name] = p.level
	}
	return all
}

func TestPackagesAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| level | package | purpose |\n|---|---|---|\n")
	for _, p := range packages {
		fmt.Fprintf(&table, "| %d | `%s` | %s |\n", p.level, p.name, p.purpose)
	}
	sameAsGenerated(t, "../docs/design/01-packages.md", "packages", table.String())
}

// floors says what the packages of a level, or of this level and the next ones, have in common.
var floors = map[int]string{
	12: "flags, wiring, exit codes",
	11: "the loop: epochs, steps, evaluation, records",
	10: "passes over vertices, scores, predictions; minibatches as files",
	9:  "what training and inference share; what a run goes on from; the machine; reports",
	8:  "the table of settings; what a run writes of itself",
	7:  "what would be fetched; what a job costs; rows at hand",
	6:  "how ranks share a step: modes, strategies, the pipe, gradients",
	5:  "what is trained on what",
	4:  "where rows lie, fetching the rest; the table of cache policies",
	3:  "the PARTS directory; how often each vertex will be read",
	2:  "pure parts: seeds to blocks, layers, decisions about rows, parts, importers",
	1:  "CSC, ranks, labels, stages, time, the run on disk",
	0:  "devices; measured time and energy",
	-1: "files, keyed bits",
	-2: "arrays outside the heap, signals, turns",
	-3: "what tests make go wrong",
}

func TestFloorsAreDocumented(t *testing.T) {
	var drawn strings.Builder
	for level := 12; level >= -3; level-- {
		var names []string
		for _, p := range packages {
			if p.level == level {
				names = append(names, p.name)
			}
		}
		fmt.Fprintf(&drawn, "    %3d  %s\n", level, strings.Join(names, "   "))
		fmt.Fprintf(&drawn, "         %s\n", floors[level])
		if len(names) == 0 || floors[level] == "" {
			t.Errorf("level %d: packages %v, %q", level, names, floors[level])
		}
	}
	sameAsGenerated(t, "../docs/architecture.md", "floors", drawn.String())
}

// knowsRanks are the packages that may know that other ranks exist.
var knowsRanks = []string{"comm", "exchange", "job", "parallel", "residence", "simulate", "plan",
	"session", "checkpoint", "infer", "train", "doctor", "cmd"}

// usesC are the packages that may use cgo. With CGO_ENABLED=0 the others must build, and mem too,
// without the C library.
var usesC = []string{"mem", "interrupt", "comm/mpi", "compute/cpu", "compute/cuda",
	"energy", "nvtx", "partition/metis"}

func TestImportsGoDown(t *testing.T) {
	level := levels()
	for _, f := range goFiles(t) {
		for _, imported := range f.imports {
			from, to := outer(f.pkg), outer(imported)
			switch {
			case from == to: // the compiler forbids cycles within one package
			case level[to] >= level[from]:
				t.Errorf("%s: %s (level %d) imports %s (level %d); imports go down", f.path, from,
					level[from], to, level[to])
			case to == "comm" && !slices.Contains(knowsRanks, from):
				t.Errorf("%s: %s must not know that other ranks exist", f.path, from)
			}
			for _, r := range []string{from, to} {
				if _, known := level[r]; !known {
					t.Errorf("%s: package %s is not in the table", f.path, r)
				}
			}
		}
		if f.cgo && !slices.Contains(usesC, f.pkg) {
			t.Errorf("%s: package %s uses cgo", f.path, f.pkg)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range goFiles(t) {
		if !f.test {
			documented[f.pkg] = documented[f.pkg] || f.doc != ""
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", pkg)
		}
	}
}

type goFile struct {
	path, pkg, doc string // pkg below src
	imports        []string
	cgo, test      bool
}

// outer returns the package of the table that is pkg or contains it.
func outer(pkg string) string { first, _, _ := strings.Cut(pkg, "/"); return first }

func goFiles(t *testing.T) []goFile {
	t.Helper()
	const src = "../src"
	var files []goFile
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil,
			parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(src, filepath.Dir(path))
		if err != nil {
			return err
		}
		f := goFile{path: path, pkg: filepath.ToSlash(pkg), doc: parsed.Doc.Text(),
			test: strings.HasSuffix(path, "_test.go")}
		for _, i := range parsed.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			if name == "C" {
				f.cgo = true
			}
			if inner, ours := strings.CutPrefix(name, "halognn/src/"); ours {
				f.imports = append(f.imports, inner)
			}
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		wd, _ := os.Getwd()
		t.Fatalf("no Go files below %s from %s", src, wd)
	}
	return files
}
