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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pkg is a package, src/WING/NAME, with those inside it.
type pkg struct{ name, purpose string }

// wings is the architecture: src/WING/PACKAGE, lowest first. A package and its tests import those
// of wings that are listed before its own, and of its own wing those that are listed before it. A
// nested one (comm/mpi) stands where the outer one (comm) does. docs/design/01-packages.md shows
// the table.
var wings = []struct {
	name, purpose string
	packages      []pkg
}{
	{"base", "memory, files, random words, time; what tests make go wrong", []pkg{
		{"fault", "points at which tests make things go wrong; empty in the product"},
		{"invariant", "checks that cost as much as the work, for tests; empty in the product"},
		{"flock", "processes of a node take turns at a place"},
		{"interrupt", "signals that stop the process: the first asks, the second ends it"},
		{"mem", "arrays outside the Go heap, mapped files"},
		{"random", "random words that are pure functions of a key"},
		{"npy", "NumPy files: map, stream, write"},
		{"timing", "a thread's CPU time, medians, the machine's rate of random reads"},
		{"trace", "time per phase, the time model of a step, the items of memory, spans, " +
			"tables"},
		{"chart", "curves and bars on self-contained HTML pages"},
	}},
	{"devices", "kernels on CPUs and GPUs, and the energy that these take", []pkg{
		{"energy", "joules of a node's processors, memory and GPUs, by their own counters"},
		{"nvtx", "what a process does when, for the profilers of NVIDIA"},
		{"compute", "what a device can do; `compute/ref` in plain Go, `compute/cpu` with BLAS " +
			"and C kernels, `compute/cuda` on a GPU; `compute/meter` watches any of them"},
	}},
	{"ranks", "collectives between ranks, and the stages that start them in one order", []pkg{
		{"comm", "the contract between ranks, ranks as goroutines, the reproducible sum; " +
			"`comm/mpi` is the MPI binding"},
		{"pipeline", "items prepared wide and finished in order; knows no graphs"},
	}},
	{"topology", "the graph without its features: CSC, blocks, parts, samplers", []pkg{
		{"graph", "CSC, blocks, vertex ids, splits: build, clean, transpose"},
		{"partition", "vertex to part; `partition/metis` and `partition/kaminpar` are " +
			"bindings, `partition/assignment` reads what another program cut"},
		{"sample", "seeds to blocks, the seed order of an epoch"},
	}},
	{"model", "labels, losses, layers, optimisers", []pkg{
		{"task", "the table of what models are trained for: labels, losses, metrics, " +
			"predictions"},
		{"nn", "layers, parameters, optimisers, schedules"},
	}},
	{"data", "directories on disk: datasets, parts, runs; importers", []pkg{
		{"rundir", "the run directory on disk: names, lock, heartbeat file, checkpoint files, " +
			"the log of steps"},
		{"dataset", "foreign formats in, generators, the DATASET directory"},
		{"presample", "what sampling draws before anything is trained: weights for " +
			"partitions, and how parts share a minibatch"},
		{"shard", "the PARTS directory; `shard/shardtest` makes one for tests"},
	}},
	{"rows", "which feature rows a rank lacks, keeps and fetches", []pkg{
		{"cache", "which remote rows are at hand: static sets, prefetch buffer, SIEVE, " +
			"look-ahead, placement"},
		{"access", "how often each vertex will be read: VIP and the other rankings"},
		{"policy", "the table of cache policies, and the one player that drives them over " +
			"minibatches"},
		{"exchange", "where the rows of a frontier lie, and fetching the rest"},
	}},
	{"step", "what is trained on what, and how ranks share one step of it", []pkg{
		{"job", "what is trained on what: streams, keys, workloads, capacities; train, plan, " +
			"simulate and blocks hold one"},
		{"ranking", "what static caches hold, ranked once and written: for runs of which no " +
			"rank sees the whole graph"},
		{"parallel", "how ranks share one step: the table of modes, the strategies that they " +
			"make, what cannot be combined, and the pipe that prepares minibatches"},
		{"residence", "where feature rows are at hand: mapped parts, caches and filling them, " +
			"device rows, the choice of `cache.policy: auto`"},
	}},
	{"forecast", "what a job would fetch and cost; what the machine can give", []pkg{
		{"simulate", "what every cache policy would fetch, counted without training"},
		{"plan", "what a job will cost: memory, traffic, time; predicted before it runs"},
		{"doctor", "what a job can expect of its ranks, nodes and filesystem, and what is " +
			"wrong with them"},
	}},
	{"runs", "settings; the loop, inference, checkpoints; records and reports", []pkg{
		{"config", "the table of settings: YAML in, a checked job and the documentation out"},
		{"record", "what a run writes of itself: summary.json, the lines of metrics.jsonl, " +
			"the table at its end"},
		{"watch", "ends a run in which no rank is at work"},
		{"report", "run directories to tables, plots and one page"},
		{"checkpoint", "the state of a run between two steps: how it is kept and comes back"},
		{"session", "one rank's job, model, rows at hand and pipe: what training and " +
			"inference share"},
		{"blocks", "the minibatches of a run as files, for other programs"},
		{"infer", "passes over given vertices or over all, scores, predictions"},
		{"train", "the loop: epochs, steps, evaluation, and the records of a run"},
	}},
	{"cmd", "flags, wiring, exit codes", []pkg{
		{"halognn", "command line, wiring, exit codes"},
	}},
}

// cut splits a path below src into its wing, the package of the table, and the path below the wing:
// "ranks/comm/mpi" into "ranks", "comm" and "comm/mpi". Of a wing itself the last two are empty.
func cut(path string) (wing, outer, inner string) {
	wing, inner, _ = strings.Cut(path, "/")
	outer, _, _ = strings.Cut(inner, "/")
	return wing, outer, inner
}

// places returns the place of every package, "WING/PACKAGE", in the order of imports.
func places() map[string]int {
	all := map[string]int{}
	for _, w := range wings {
		for _, p := range w.packages {
			all[w.name+"/"+p.name] = len(all)
		}
	}
	return all
}

func TestPackagesAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| wing | package | purpose |\n|---|---|---|\n")
	for _, w := range wings {
		fmt.Fprintf(&table, "| `%s` | | %s |\n", w.name, w.purpose)
		for _, p := range w.packages {
			fmt.Fprintf(&table, "| | `%s` | %s |\n", p.name, p.purpose)
		}
	}
	sameAsGenerated(t, "../docs/design/01-packages.md", "packages", table.String())
}

func TestWingsAreDocumented(t *testing.T) {
	var drawn strings.Builder
	for _, w := range slices.Backward(wings) {
		var names []string
		for _, p := range w.packages {
			names = append(names, p.name)
		}
		fmt.Fprintf(&drawn, "    %-9s %s\n", w.name, strings.Join(names, "  "))
		fmt.Fprintf(&drawn, "    %-9s %s\n", "", w.purpose)
	}
	sameAsGenerated(t, "../docs/architecture.md", "wings", drawn.String())
}

// knowsRanks are the packages that may know that other ranks exist.
var knowsRanks = []string{"comm", "exchange", "job", "parallel", "residence", "simulate", "plan",
	"session", "checkpoint", "infer", "train", "doctor", "halognn"}

// usesC are the packages that may use cgo; with CGO_ENABLED=0 the rest must build, and mem without
// the C library.
var usesC = []string{"mem", "interrupt", "comm/mpi", "compute/cpu", "compute/cuda",
	"energy", "nvtx", "partition/metis"}

// refusal says why a package must not import another, both below src. It is empty if it may.
func refusal(from, to string) string {
	place := places()
	fromWing, fromPackage, _ := cut(from)
	toWing, toPackage, _ := cut(to)
	above, known := place[fromWing+"/"+fromPackage]
	below, listed := place[toWing+"/"+toPackage]
	switch {
	case toPackage == "":
		return fmt.Sprintf("%s documents a wing, and is not to be imported", to)
	case !known:
		return fmt.Sprintf("package %s is not in the table", from)
	case !listed:
		return fmt.Sprintf("package %s is not in the table", to)
	case below == above: // inside one package the compiler's ban on cycles is enough
		return ""
	case below > above && fromWing == toWing:
		return fmt.Sprintf("in wing %s %s stands below %s; imports go down", toWing, fromPackage,
			toPackage)
	case below > above:
		return fmt.Sprintf("wing %s stands below wing %s; imports go down", fromWing, toWing)
	case toPackage == "comm" && !slices.Contains(knowsRanks, fromPackage):
		return fmt.Sprintf("%s must not know that other ranks exist", fromPackage)
	}
	return ""
}

func TestImportsGoDown(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, imported := range f.imports {
			if why := refusal(f.pkg, imported); why != "" {
				t.Errorf("%s imports %s: %s", f.path, imported, why)
			}
		}
		if _, _, inner := cut(f.pkg); f.cgo && !slices.Contains(usesC, inner) {
			t.Errorf("%s: package %s uses cgo", f.path, f.pkg)
		}
	}
}

// Imports that would break the order, and some that do not.
func TestImportsUpAreRefused(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"topology/sample", "topology/graph", ""},
		{"ranks/comm/mpi", "ranks/comm", ""},
		{"ranks/comm", "ranks/comm/commtest", ""},
		{"rows/exchange", "ranks/comm", ""},
		{"base/mem", "rows/cache", "wing base stands below wing rows"},
		{"model/nn", "step/parallel", "wing model stands below wing step"},
		{"topology/graph", "topology/sample", "graph stands below sample"},
		{"runs/infer", "runs/train", "infer stands below train"},
		{"model/nn", "ranks/comm", "nn must not know that other ranks exist"},
		{"runs/train", "runs", "runs documents a wing"},
		{"runs/train", "runs/new", "package runs/new is not in the table"},
		{"rows/new", "base/mem", "package rows/new is not in the table"},
	} {
		got := refusal(c.from, c.to)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}

// The directory of a wing has its packages and a comment, doc.go, which lists them in their order.
func TestWingsSayWhatTheyHold(t *testing.T) {
	for _, w := range wings {
		dir := filepath.Join("../src", w.name)
		var want, listed []string
		inside := map[string]bool{"doc.go": true}
		for _, p := range w.packages {
			want = append(want, p.name)
			inside[p.name] = true
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !inside[e.Name()] {
				t.Errorf("%s has %s, which is not in the table", dir, e.Name())
			}
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "doc.go"), nil,
			parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Name.Name != w.name || len(parsed.Decls) > 0 {
			t.Errorf("%s/doc.go is package %s with %d declarations; want %s with none", dir,
				parsed.Name.Name, len(parsed.Decls), w.name)
		}
		for line := range strings.Lines(parsed.Doc.Text()) {
			item, indented := strings.CutPrefix(line, "\t")
			if name, _, _ := strings.Cut(item, " "); indented && slices.Contains(want, name) {
				listed = append(listed, name)
			}
		}
		if !slices.Equal(listed, want) {
			t.Errorf("%s/doc.go lists %v, want %v", dir, listed, want)
		}
	}
	dirs, err := os.ReadDir("../src")
	if err != nil || len(dirs) != len(wings) {
		t.Errorf("src has %d entries and %d wings: %v", len(dirs), len(wings), err)
	}
}

// The reading path of docs/architecture.md names files that are there, has about as many lines as
// it says, and fits into a week.
func TestAWeeksReading(t *testing.T) {
	page := string(read(t, "../docs/architecture.md"))
	_, section, _ := strings.Cut(page, "## A week's reading\n")
	section, _, _ = strings.Cut(section, "\n## ")
	files := regexp.MustCompile("`(src/[a-z/]+/)(?:\\{([a-z_,]+)\\}|([a-z_]+))\\.go`")
	days, total := 0, 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		said, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(cells[4]), ",", ""))
		if err != nil { // the head of the table
			continue
		}
		lines := 0
		for _, m := range files.FindAllStringSubmatch(cells[3], -1) {
			for name := range strings.SplitSeq(m[2]+m[3], ",") {
				lines += strings.Count(string(read(t, "../"+m[1]+name+".go")), "\n")
			}
		}
		if 10*lines > 11*said || 10*lines < 9*said {
			t.Errorf("day%sof a week's reading has %d lines, not %d", cells[1], lines, said)
		}
		days, total = days+1, total+lines
	}
	if days == 0 || days > 7 || total > 12500 {
		t.Errorf("a week's reading has %d days and %d lines; want 12,500 at the most", days, total)
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
