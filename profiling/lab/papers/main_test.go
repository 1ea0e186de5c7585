package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGraphsAreNamed(t *testing.T) {
	var g graphs
	if err := g.Set("fb100=data/fb100:256"); err != nil {
		t.Fatal(err)
	}
	if one := g[0]; one.name != "fb100" || one.dataset != "data/fb100" || one.batch != 256 {
		t.Errorf("%+v", one)
	}
	for _, bad := range []string{"", "data/fb100", "fb100=data/fb100", "fb100=data/fb100:0",
		"=data:1", "fb100=:1", "fb100=data:many"} {
		if g.Set(bad) == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestFiguresAreChosen(t *testing.T) {
	all, err := chosen([]string{"all"})
	if err != nil || len(all) != len(figures()) {
		t.Fatal(len(all), err)
	}
	seen := map[string]bool{}
	for _, f := range all {
		if seen[f.name] {
			t.Errorf("two figures %s", f.name)
		}
		seen[f.name] = true
	}
	for _, bad := range [][]string{nil, {"salientpp-1"}, {"salientpp-4", "x"}} {
		if _, err := chosen(bad); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestVerdictsSayWhatDidNotHold(t *testing.T) {
	p := &page{graph: "g"}
	p.verdict(true, "a is %d", 1)
	p.verdict(false, "b is %d", 2)
	p.end()
	text := p.text.String()
	if !strings.Contains(text, "| a is 1 | held |\n") ||
		!strings.Contains(text, "| b is 2 | **did not hold** |\n") {
		t.Error(text)
	}
}

func TestAGraphThatFailsEndsNoOther(t *testing.T) {
	b := &bench{out: t.TempDir()}
	f := figure{name: "one", run: func(_ *bench, g *graph, p *page) error {
		p.table("4 ranks", "", "s")
		if g.name == "bad" {
			return errors.New("no such parts")
		}
		p.row(g.name, "1.0")
		return nil
	}}
	err := b.figure(f, graphs{{name: "bad"}, {name: "good"}})
	if err == nil || err.Error() != "on bad: no such parts" {
		t.Errorf("error %v", err)
	}
	text, err := os.ReadFile(filepath.Join(b.out, "one.md"))
	if err != nil || !strings.Contains(string(text), "bad: 4 ranks") ||
		!strings.Contains(string(text), "| good | 1.0 |\n") {
		t.Errorf("%s (%v)", text, err)
	}
}

// With -resume, a run of the same command is read again, and a run of another command is repeated.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program") // writes the files of a run, and how often it ran
	script := `#!/bin/sh
mkdir -p "` + dir + `/run" && echo >>"` + dir + `/made"
echo '{"loss_digest": "d"}' >"` + dir + `/run/summary.json"
echo '{"kind": "step"}' >"` + dir + `/run/metrics.jsonl"
`
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	made := 0
	b := &bench{program: program, launch: "env R=%n", epochs: 1, resume: true}
	for _, c := range []struct {
		ranks  int
		resume bool
		more   int // number of runs
	}{{2, true, 1}, {2, true, 0}, {4, true, 1}, {4, false, 1}} {
		b.resume = c.resume
		r, err := b.train(filepath.Join(dir, "run"), "parts", &graph{batch: 1},
			setting{ranks: c.ranks}, line{"one", []string{"a=b"}})
		if err != nil || r.LossDigest != "d" || len(r.steps) != 1 {
			t.Fatalf("%+v (%v)", r, err)
		}
		made += c.more
		if n, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || len(n) != made {
			t.Errorf("%+v: %d runs, want %d (%v)", c, len(n), made, err)
		}
	}
}
