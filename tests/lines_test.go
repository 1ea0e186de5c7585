package tests

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// mostColumns is how many columns a line of code may have, where a tab takes up to tabColumns.
const mostColumns, tabColumns = 100, 4

// longLines are the files that may have longer lines, each with the reason.
var longLines = map[string]string{}

// Lines of Go, C and CUDA fit beside each other on a screen.
func TestLinesAreShort(t *testing.T) {
	endings := []string{".go", ".c", ".h", ".cc", ".cu", ".cuh", ".def"}
	files := 0
	for _, root := range []string{"../kernels", "../profiling", "../src", "."} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains(endings, filepath.Ext(path)) {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			long := longLinesOf(string(content))
			if name := strings.TrimPrefix(path, "../"); longLines[name] != "" {
				if len(long) == 0 {
					t.Errorf("%s has no long line, so longLines need not name it", name)
				}
				return nil
			}
			for _, line := range long {
				t.Errorf("%s:%s", path, line)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were found", files)
	}
}

// longLinesOf returns the number and the width of every line that is too long. Directives of Go,
// such as //go:build, cannot be broken.
func longLinesOf(text string) (long []string) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		columns := 0
		for _, r := range line {
			if columns++; r == '\t' {
				columns += (tabColumns - columns%tabColumns) % tabColumns
			}
		}
		if columns > mostColumns && !strings.HasPrefix(line, "//go:") {
			long = append(long, fmt.Sprintf("%d: %d columns, and a line has at most %d: %s",
				number, columns, mostColumns, line))
		}
	}
	return long
}

// A line is as wide as an editor shows it.
func TestColumnsOfALine(t *testing.T) {
	wide := strings.Repeat("é", mostColumns)
	if utf8.RuneCountInString(wide) == len(wide) {
		t.Fatal("letters of one byte do not tell letters from bytes")
	}
	for line, long := range map[string]bool{
		wide:                                   false,
		wide + ".":                             true,
		strings.Repeat("\t", mostColumns/4):    false,
		strings.Repeat("\t", mostColumns/4+1):  true,
		strings.Repeat("abc\t", mostColumns/4): false,
		strings.Repeat("abcd\t", mostColumns/8) + ".....": true,
		"//go:build " + wide:                              false,
	} {
		if got := longLinesOf("short\n" + line + "\r\n"); (len(got) == 1) != long {
			t.Errorf("%q: long %q, want %t", line, got, long)
		}
	}
}
