//go:build e2e

package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"halognn/src/base/trace"
)

// The tables of docs/metrics.md are the comments of the fields that a run writes. A field without a
// comment fails here, and a field that is no longer written disappears from the page.
func TestMetricsAreDocumented(t *testing.T) {
	s := &commented{structs: map[string]*ast.StructType{}, constants: map[string][]member{}}
	for _, pkg := range []string{"record", "residence", "trace"} {
		s.read(t, pkg)
	}
	const page = "../docs/metrics.md"
	for _, section := range []struct {
		name, of string
		without  string // an embedded struct with a section of its own
		prefixes bool   // whether the fields of a struct within a field get rows too
	}{
		{"summary", "record.Summary", "", true},
		{"time model", "record.TimeModel", "", false},
		{"efficiency", "record.Efficiency", "", true},
		{"energy", "record.Energy", "", true},
		{"step", "record.Step", "record.Rows", false},
		{"epoch", "record.Epoch", "record.Rows", true},
		{"eval", "record.Eval", "", false},
	} {
		rows := s.members(t, section.of, section.without, section.prefixes)
		sameAsGenerated(t, page, section.name, table("key", rows))
	}
	named := func(name string, count int, nameOf func(i int) string) []member {
		all := s.constants[name]
		if len(all) != count {
			t.Fatalf("%d of %d constants of %s have comments", len(all), count, name)
		}
		for i := range all {
			all[i].key = nameOf(i)
		}
		return all
	}
	sameAsGenerated(t, page, "phases", table("phase", named("trace.Phase", int(trace.NumPhases),
		func(i int) string { return trace.Phase(i).String() })))
	sameAsGenerated(t, page, "set-up", table("item", named("trace.SetUpItem",
		int(trace.NumSetUpItems), func(i int) string { return trace.SetUpItem(i).String() })))
	sameAsGenerated(t, "../docs/guide/size-a-job.md", "memory", table("item", named("trace.Mem",
		len(trace.MemoryItems), func(i int) string { return trace.MemoryItems[i] })))
}

// The page that the end of a run names has a row for each phase.
func TestLongPhasesHaveACure(t *testing.T) {
	_, section, found := strings.Cut(string(read(t, "../docs/guide/reading-a-report.md")),
		"## Long phases\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("there is no section on long phases, which record.WhatToDo names")
	}
	var rows strings.Builder // the first cell of each row
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			rows.WriteString(cells[1])
		}
	}
	for p := range trace.NumPhases {
		if !strings.Contains(rows.String(), "`"+p.String()+"`") {
			t.Errorf("no row of %s", p)
		}
	}
}

// member is a field or a constant: the name under which it is reported, and its comment.
type member struct{ key, meaning string }

// table prints members as rows.
func table(head string, rows []member) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | meaning |\n|---|---|\n", head)
	for _, r := range rows {
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.key, r.meaning)
	}
	return b.String()
}

// commented holds the declarations of some packages: structs by package and name, and the commented
// constants, in order, of a type or of names with a common beginning ("trace.Mem").
type commented struct {
	structs   map[string]*ast.StructType
	constants map[string][]member
}

func (s *commented) read(t *testing.T, pkg string) {
	t.Helper()
	paths, err := filepath.Glob("../src/*/" + pkg + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			block, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			of := "" // the type of the constants: only the first of a block names it
			for _, spec := range block.Specs {
				switch x := spec.(type) {
				case *ast.TypeSpec:
					if body, ok := x.Type.(*ast.StructType); ok {
						s.structs[pkg+"."+x.Name.Name] = body
					}
				case *ast.ValueSpec:
					if typed, ok := x.Type.(*ast.Ident); ok {
						of = typed.Name
					} else if strings.HasPrefix(x.Names[0].Name, "Mem") {
						of = "Mem"
					}
					if m := meaning(x.Doc, x.Comment); block.Tok == token.CONST && m != "" {
						name := pkg + "." + of
						s.constants[name] = append(s.constants[name], member{meaning: m})
					}
				}
			}
		}
	}
}

// members lists the fields of a struct by their JSON names, with those of embedded structs except
// without. With prefixes, the fields of a struct within a field follow the first such field, unless
// the struct has a section of its own.
func (s *commented) members(t *testing.T, name, without string, prefixes bool) []member {
	t.Helper()
	pkg, _, _ := strings.Cut(name, ".")
	body := s.structs[name]
	if body == nil {
		t.Fatalf("there is no struct %s", name)
	}
	var all []member
	listed := map[string]bool{} // structs whose fields have rows, by an earlier field
	for _, f := range body.Fields.List {
		held := structName(f.Type, pkg)
		if len(f.Names) == 0 {
			if held != without {
				all = append(all, s.members(t, held, without, prefixes)...)
			}
			continue
		}
		if f.Tag == nil {
			continue
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			t.Fatal(err)
		}
		key, option, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if key == "-" || option == "omitzero" { // only in checkpoints: see trace.Counters
			continue
		}
		m := meaning(f.Doc, f.Comment)
		if m == "" {
			t.Errorf("%s: %s has no comment, which docs/metrics.md would print", name, key)
		}
		all = append(all, member{key, m})
		if s.structs[held] != nil && prefixes && !listed[held] && !strings.HasPrefix(m, "[below]") {
			listed[held] = true
			for _, inner := range s.members(t, held, without, false) {
				all = append(all, member{key + "." + inner.key, inner.meaning})
			}
		}
	}
	return all
}

// structName returns the package and name of the struct that a field in pkg is, points to or lists;
// "" if there is none.
func structName(of ast.Expr, pkg string) string {
	switch x := of.(type) {
	case *ast.StarExpr:
		return structName(x.X, pkg)
	case *ast.ArrayType:
		return structName(x.Elt, pkg)
	case *ast.SelectorExpr:
		return structName(x.X, "") + x.Sel.Name
	case *ast.Ident:
		if pkg == "" {
			return x.Name + "."
		}
		return pkg + "." + x.Name
	}
	return ""
}

// meaning returns the text of a comment, above or beside, as one line.
func meaning(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if c != nil {
			return strings.Join(strings.Fields(c.Text()), " ")
		}
	}
	return ""
}
