package tests

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false,
	"write the generated sections of docs anew, as `make docs` does")

// sameAsGenerated compares a section of a page with the text generated from a table in the code or,
// with -update, writes it. The section is between the lines "<!-- generated: NAME -->" and "<!--
// end -->".
func sameAsGenerated(t *testing.T, page, name, want string) {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->\n"
	text := string(read(t, page))
	before, rest, opened := strings.Cut(text, begin)
	got, after, closed := strings.Cut(rest, end)
	switch {
	case !opened || !closed:
		t.Errorf("%s has no section %q that ends in %q", page, begin, end)
	case got == want:
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: the section %s is not what the code says; `make docs` writes it", page, name)
	}
}
