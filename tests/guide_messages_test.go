package tests

import (
	"go/ast"
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

// guide is where the pages of the user guide are.
const guide = "../docs/guide"

// The page on troubleshooting explains messages that the program has: the pieces of every heading
// in backticks, split at `...`, occur in this order in the strings of one function.
func TestGuideMessages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(guide, "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := literals(t)
	messages := regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(string(text), -1)
	if len(messages) < 20 {
		t.Errorf("%d messages are explained; the page has its headings changed", len(messages))
	}
	for _, m := range messages {
		if !slices.ContainsFunc(sources,
			func(text string) bool { return inOrder(text, strings.Split(m[1], "...")) }) {
			t.Errorf("the program has no message like %q", m[1])
		}
	}
}

// Every Err... value of the sources can end a run, so the page on troubleshooting quotes its text.
func TestGuideHasErrors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(guide, "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(text)), " ") // lines may end anywhere
	// These errors never reach a user: no config key chooses a sampler without fanouts yet, and a
	// missing ranking is made.
	internal := []string{"pipeline.ErrStop", "sample.ErrFanouts", "ranking.ErrMissing"}
	found := 0
	eachSource(t, func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != len(spec.Names) {
				return true
			}
			for i, name := range spec.Names {
				call, ok := spec.Values[i].(*ast.CallExpr)
				if !ok || !strings.HasPrefix(name.Name, "Err") || len(call.Args) == 0 {
					continue
				}
				found++
				message, _ := joined(call.Args[0])
				if qualified := file.Name.Name + "." +
					name.Name; !strings.Contains(page, message) &&
					!slices.Contains(internal, qualified) {
					t.Errorf("the page does not explain %q (%s)", message, qualified)
				}
			}
			return false
		})
	})
	if found < 25 {
		t.Errorf("%d errors were found in the sources; the test does not see them any more", found)
	}
}

// inOrder reports whether text has all pieces, one after the other.
func inOrder(text string, pieces []string) bool {
	for _, piece := range pieces {
		_, after, found := strings.Cut(text, strings.TrimSpace(piece))
		if !found {
			return false
		}
		text = after
	}
	return true
}

// literals returns the strings in the program's sources: one text for each declaration, with a
// string a line. Strings joined by + count as one.
func literals(t *testing.T) []string {
	t.Helper()
	var all []string
	eachSource(t, func(file *ast.File) {
		for _, declaration := range file.Decls {
			var texts strings.Builder
			ast.Inspect(declaration, func(n ast.Node) bool {
				text, whole := joined(n)
				if text != "" {
					texts.WriteString(text + "\n")
				}
				return !whole
			})
			all = append(all, texts.String())
		}
	})
	return all
}

// eachSource calls f with every source file of the program.
func eachSource(t *testing.T, f func(*ast.File)) {
	t.Helper()
	err := filepath.WalkDir("../src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			f(file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// joined returns the text of a string literal, or of a sum of strings without its variables. whole
// says that n contains no other strings.
func joined(n ast.Node) (text string, whole bool) {
	switch e := n.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ = strconv.Unquote(e.Value)
		}
		return text, true
	case *ast.BinaryExpr:
		a, wholeA := joined(e.X)
		b, wholeB := joined(e.Y)
		return a + b, wholeA && wholeB
	}
	return "", false
}
