package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Files, directories and tests that a page of docs names exist, so that checklists stay up to date.
// NAME stands for a name that the reader chooses.
func TestDocsNameWhatIsThere(t *testing.T) {
	file := regexp.MustCompile(
		"`((?:src|tests|kernels|jobs|inputs|profiling|docs)/[A-Za-z0-9_./-]+)`")
	test := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`")
	tests := testNames(t)
	named := 0
	for _, page := range documents(t) {
		text := string(read(t, page))
		for _, m := range file.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "NAME") {
				continue
			}
			named++
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				t.Errorf("%s: there is no %s", page, m[1])
			}
		}
		for _, m := range test.FindAllStringSubmatch(text, -1) {
			named++
			if !tests[m[1]] {
				t.Errorf("%s: there is no test %s", page, m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("%d names were found; the test does not see them any more", named)
	}
}

// Lines that a diff in docs shows as added or unchanged are in the file that the diff names.
func TestDiffsInDocsAreTheCode(t *testing.T) {
	diff := regexp.MustCompile("(?s)```diff\n.*?\n\\+\\+\\+ b/(\\S+)\n(.*?)```")
	shown := 0
	for _, page := range documents(t) {
		for _, m := range diff.FindAllStringSubmatch(string(read(t, page)), -1) {
			var lines []string
			for line := range strings.Lines(m[2]) {
				if line[0] == '+' || line[0] == ' ' {
					lines = append(lines, line[1:])
				}
			}
			shown += len(lines)
			if code := strings.Join(lines, ""); !strings.Contains(string(read(t,
				filepath.Join("..", m[1]))), code) {
				t.Errorf("%s: %s has not got\n%s", page, m[1], code)
			}
		}
	}
	if shown == 0 {
		t.Error("no diffs were found; the test does not see them any more")
	}
}

// documents lists the pages in docs and in the root.
func documents(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// testNames returns the names of all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	names := map[string]bool{}
	for _, root := range []string{"../src", "../tests"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				for _, m := range function.FindAllStringSubmatch(string(read(t, path)), -1) {
					names[m[1]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
