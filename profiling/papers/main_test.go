package main

import (
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
	if !strings.Contains(text, "- a is 1: held\n") ||
		!strings.Contains(text, "- b is 2: **did not hold**\n") {
		t.Error(text)
	}
}
