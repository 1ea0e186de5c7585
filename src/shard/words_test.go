package shard

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func noIDs(string, string) (bool, error) { return false, nil }

// A first row of vertices that are called as ends are is a link, and a fault names its file, line and cure.
func TestReadLinksOfOddWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "links")
	for _, c := range []struct{ text, want string }{
		{"u,v\na,b\n", "[[u v] [a b]] <nil>"},
		{"a,b\n#c\n", "[[a b]] " + path + ": line 2: bad value: it does not have the 2 columns of the first line, but 1; " +
			"rows may begin with '#' here: if it is a comment, remove it"},
		{"a,b\nR\xe9,c\n", "[[a b]] " + path + ": line 2: bad value: column 1 is not UTF-8; convert the file: iconv " +
			"-f LATIN1 -t UTF-8"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		rows, err := ReadLinks(path, 0, func(u, v string) (bool, error) { return u+v == "uv", nil })
		if got := fmt.Sprint(rows, " ", err); got != c.want {
			t.Errorf("%q: %s", c.text, got)
		}
	}
}

// Ids and links are read in the ways in which people and the program write them.
func TestReadWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "words")
	read := func(text string, ids bool, more int) string {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if ids {
			words, err := ReadIDs(path)
			return fmt.Sprintf("%q %v", words, err)
		}
		rows, err := ReadLinks(path, more, noIDs)
		return fmt.Sprintf("%q %v", rows, err)
	}
	for _, text := range []string{"Ann Lee\n#b\n\"c, d\"\n", "Ann Lee\r#b\r\r\"c, d\"", "\xef\xbb\xbfAnn Lee\r\n#b\r\n\"c, d\"\r\n",
		"id\nAnn Lee\n#b\n\"c, d\"\n", "id,class\nAnn Lee,1\n#b,2\n\"c, d\",1\n"} {
		if got, want := read(text, true, 0), `["Ann Lee" "#b" "c, d"] <nil>`; got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	for _, text := range []string{"source,target,score\nAnn Lee,\"b, c\",0.5\n#d,e,1\n", "src;dst\nAnn Lee;b, c\n#d;e\n",
		"Ann Lee\tb, c\r#d\te\r", "\"Ann Lee\" \"b, c\"\n#d e\n"} {
		if got, want := read(text, false, 0), `[["Ann Lee" "b, c"] ["#d" "e"]] <nil>`; got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	for _, text := range []string{"source,target\na b,c,d\ne,f,g,h i\n", "a b,c,d\ne,f,g,h i\n"} {
		if got, want := read(text, false, 1), `[["a b" "c" "d"] ["e" "f" "g" "h i"]] <nil>`; got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}
