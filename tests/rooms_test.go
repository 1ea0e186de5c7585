// Package tests holds what crosses packages: the architecture itself, whole runs of the program under several MPIs,
// and bad input. Scripts beside it run the program as its users do.
package tests

import (
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

// level is the architecture (docs/design/01-rooms.md): a room imports only rooms of lower levels. Rooms inside a room
// (comm/mpi in comm) stand on its level.
var level = map[string]int{
	"fault": -2, "interrupt": -2, "mem": -1, "random": -1, "npy": 0,
	"graph": 1, "comm": 1, "compute": 1, "pipeline": 1, "trace": 1, "chart": 1, "rundir": 1,
	"dataset": 2, "partition": 2, "shard": 3, "sample": 2, "cache": 2, "access": 3, "nn": 2,
	"watch": 2, "policy": 4, "exchange": 4, "job": 5, "config": 5, "parallel": 5,
	"report": 6, "simulate": 6, "ranking": 6, "plan": 6, "train": 7, "doctor": 7, "cmd": 8,
}

// knowsRanks are the rooms that may know that other ranks exist.
var knowsRanks = []string{"comm", "exchange", "parallel", "simulate", "plan", "train", "doctor", "cmd"}

// usesC are the packages that may use cgo; with CGO_ENABLED=0 the rest must build, and mem without the C library.
var usesC = []string{"mem", "interrupt", "comm/mpi", "compute/cpu", "compute/cuda", "partition/metis"}

func TestImportsGoDown(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, imported := range f.imports {
			from, to := room(f.pkg), room(imported)
			switch {
			case from == to: // inside one room the compiler's ban on cycles is enough
			case level[to] >= level[from]:
				t.Errorf("%s: %s (level %d) imports %s (level %d); imports go down", f.path, from, level[from], to, level[to])
			case to == "comm" && !slices.Contains(knowsRanks, from):
				t.Errorf("%s: %s must not know that other ranks exist", f.path, from)
			}
			for _, r := range []string{from, to} {
				if _, known := level[r]; !known {
					t.Errorf("%s: room %s is not in the table", f.path, r)
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

func room(pkg string) string { first, _, _ := strings.Cut(pkg, "/"); return first }

func goFiles(t *testing.T) []goFile {
	t.Helper()
	const src = "../src"
	var files []goFile
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(src, filepath.Dir(path))
		if err != nil {
			return err
		}
		f := goFile{path: path, pkg: filepath.ToSlash(pkg), doc: parsed.Doc.Text(), test: strings.HasSuffix(path, "_test.go")}
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
