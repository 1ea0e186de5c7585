package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// saysZero finds where a text says what 0 does, and neither the 0 of 0.25 nor that of [0, 1).
const saysZero = `(^|[^.])\b0(:|\s(is|means|refuses|spreads|if|for)\b)|` +
	`\b([Ww]ith|[Ii]f|are|is)\s0\b`

// The texts of keys say what 0 does where it is a value, and what an empty text or list. Of some
// keys 0 is a number like any other.
func TestZerosAreExplained(t *testing.T) {
	ordinary := map[string]bool{
		"data.split": true, "train.seed": true,
		"sample.locality_lower": true, "sample.locality_upper": true,
	}
	zero, empty := regexp.MustCompile(saysZero), regexp.MustCompile(`\b[Ee]mpty:`)
	for _, k := range Default().keys() {
		said := k.Brief + ". " + k.Note
		if flat := k.flat(); (flat == "" || flat == "[]") && !k.missing() &&
			!empty.MatchString(said) {
			t.Errorf("%s does not say what an empty value does: %s", k.Name, said)
		}
		switch k.value.(type) {
		case *flag, worded, *pathName, *weightList:
			continue
		}
		if !ordinary[k.Name] && k.parse("0") && k.fault(k.Name, "") == "" &&
			!zero.MatchString(said) {
			t.Errorf("%s does not say what 0 does: %s", k.Name, said)
		}
	}
}

// Fields of Config, and of the structs in it, have a comment, which says for a number what 0 means
// or that it is not allowed. Embedded fields and those of a named type may do without, because the
// type has a comment.
func TestFieldsAreExplained(t *testing.T) {
	seen := map[reflect.Type]bool{}
	fields := 0
	var visit func(reflect.Type)
	visit = func(of reflect.Type) {
		if of.Kind() != reflect.Struct || seen[of] || made[of.String()] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			visit(of.Field(i).Type)
		}
		if dir, ours := strings.CutPrefix(of.PkgPath(), "halognn/src/"); ours {
			fields += checkFields(t, filepath.Join("../..", dir), of)
		}
	}
	visit(reflect.TypeFor[Config]())
	if fields < 100 {
		t.Errorf("%d fields were found; the test does not see them any more", fields)
	}
}

// checkFields checks the comments of a struct that a package in dir declares, and returns the
// number of its fields.
func checkFields(t *testing.T, dir string, of reflect.Type) (fields int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", dir, err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.TypeSpec)
			if !ok || s.Name.Name != of.Name() {
				return true
			}
			if body, ok := s.Type.(*ast.StructType); ok {
				fields += explained(t, of.String(), body)
			}
			return false
		})
	}
	if fields == 0 {
		t.Errorf("%s: no fields of %s", dir, of)
	}
	return fields
}

func explained(t *testing.T, of string, body *ast.StructType) (fields int) {
	t.Helper()
	limits := regexp.MustCompile(saysZero + `|>= 1|> 0|\(0, `)
	for _, f := range body.Fields.List {
		fields += max(1, len(f.Names))
		switch inner := f.Type.(type) {
		case *ast.StructType:
			fields += explained(t, of, inner)
			continue
		case *ast.SelectorExpr: // a named type of another package
			continue
		case *ast.Ident: // perhaps a named type of the same package
			if len(f.Names) == 0 || !numeric[inner.Name] && !basic[inner.Name] {
				continue
			}
		}
		comment := f.Doc.Text() + f.Comment.Text()
		name, isName := f.Type.(*ast.Ident)
		switch {
		case comment == "":
			t.Errorf("%s: field %v has no comment", of, f.Names)
		case isName && numeric[name.Name] && !limits.MatchString(comment):
			t.Errorf("%s: the comment of %v does not say what 0 means: %s", of, f.Names, comment)
		}
	}
	return fields
}

var (
	// made by the program, not set by a user
	made    = map[string]bool{"graph.Schema": true, "task.Scale": true, "task.Scorer": true}
	numeric = map[string]bool{"int": true, "uint64": true, "float32": true, "float64": true}
	basic   = map[string]bool{"string": true, "bool": true}
)
