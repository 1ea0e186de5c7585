// Command papers repeats figures of SALIENT++ and MassiveGNN. For each figure it runs the
// trainings, checks that their losses are equal, prints the figure as a table, draws it, and says
// for each claim of the paper whether it holds here.
//
//	go run ./profiling/lab/papers [flags] FIGURE...      from the repository root; all: every figure
//
//	DATASET ── halognn partition ──> PARTS ── halognn train, under LAUNCH ──> summary.json
//	figure  ── lines of settings ──────────────────┘                            │
//	OUT/FIGURE.md, OUT/FIGURE-GRAPH.svg  <── table, chart, verdicts <───────────┘
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// figure is a figure of a paper, with the function that repeats it on one graph.
type figure struct {
	name  string
	where string // the paper and its figure
	claim string // the claim of the paper, in a sentence
	run   func(*bench, *graph, *page) error
}

// figures are all figures, in the order of `all`.
func figures() []figure { return append(salientpp(), massivegnn()...) }

// graphs is the flag -data: datasets by name.
type graphs []*graph

func (g *graphs) String() string { return "" }

// Set takes NAME=DATASET:BATCH.
func (g *graphs) Set(s string) error {
	name, rest, ok := strings.Cut(s, "=")
	dir, batch, sized := strings.Cut(rest, ":")
	if !ok || !sized || name == "" || dir == "" {
		return errors.New("give NAME=DATASET:BATCH, as fb100=data/fb100:256")
	}
	one := &graph{name: name, dataset: dir}
	if _, err := fmt.Sscan(batch, &one.batch); err != nil || one.batch < 1 {
		return fmt.Errorf("%q is no size of a minibatch", batch)
	}
	*g = append(*g, one)
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "papers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	b := &bench{}
	var on graphs
	set := flag.NewFlagSet("papers", flag.ExitOnError)
	set.Usage = func() {
		fmt.Fprintf(set.Output(), "go run ./profiling/lab/papers [flags] FIGURE...|all\n\n")
		for _, f := range figures() {
			fmt.Fprintf(set.Output(), "  %-16s %s\n", f.name, f.where)
		}
		fmt.Fprintln(set.Output())
		set.PrintDefaults()
	}
	set.Var(&on, "data", "NAME=DATASET:BATCH, a graph and the seeds of a rank's minibatch; "+
		"repeatable\n"+
		"(default: the products preset at a tenth of its size, generated, 256)")
	set.StringVar(&b.program, "program", "bin/halognn", "the program")
	set.StringVar(&b.launch, "launch", "profiling/lab/hosts.sh -n %n -r %r --",
		"command that starts %n ranks, each behind a link of rate %r; on a cluster: srun -n %n")
	set.StringVar(&b.out, "out", "run/papers", "directory of tables, plots and runs")
	set.IntVar(&b.repeat, "repeat", 2, "runs of each setting; the fastest counts")
	set.IntVar(&b.epochs, "epochs", 3, "epochs of a run")
	set.BoolVar(&b.resume, "resume", false, "read runs that -out has of the same command, made by "+
		"any version\nof the program, instead of making them again")
	if err := set.Parse(args); err != nil {
		return err
	}
	wanted, err := chosen(set.Args())
	if err != nil {
		return err
	}
	if len(on) == 0 {
		one, err := b.generated()
		if err != nil {
			return err
		}
		on = graphs{one}
	}
	failed := 0
	for _, f := range wanted {
		if err := b.figure(f, on); err != nil {
			fmt.Fprintf(os.Stderr, "papers: %s: %v\n", f.name, err)
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d figures failed", failed, len(wanted))
	}
	return nil
}

// chosen returns the figures with the given names.
func chosen(names []string) (out []figure, err error) {
	if len(names) == 0 {
		return nil, errors.New("name a figure, or all; -help lists them")
	}
	for _, name := range names {
		before := len(out)
		for _, f := range figures() {
			if name == "all" || name == f.name {
				out = append(out, f)
			}
		}
		if len(out) == before {
			return nil, fmt.Errorf("there is no figure %q; -help lists them", name)
		}
	}
	return out, nil
}

// figure runs a figure on all graphs and writes its page. A failed run ends only its graph, and
// what was measured before is kept.
func (b *bench) figure(f figure, on graphs) error {
	p := &page{name: f.name, dir: b.out}
	p.printf("## %s\n\nClaim: %s\n", f.where, f.claim)
	var failed error
	for _, g := range on {
		p.graph = g.name
		if err := f.run(b, g, p); err != nil {
			failed = errors.Join(failed, fmt.Errorf("on %s: %w", g.name, err))
		}
		p.end()
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	text := p.text.String()
	fmt.Println(text)
	return errors.Join(failed,
		os.WriteFile(filepath.Join(b.out, f.name+".md"), []byte(text), 0o644))
}
