package shard

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// A vertex has one id: other spellings of the number name none, so that no row of the output stays
// empty because its vertex was given twice.
func TestIDsAreSpelledOneWay(t *testing.T) {
	ids := &SourceIDs{vertices: 40}
	if found, err := ids.Find([]string{"7", "0", "39"}); err != nil ||
		!slices.Equal(found, []int32{7, 0, 39}) {
		t.Errorf("found %d, %v", found, err)
	}
	for _, other := range []string{"007", "+7", "-0", "40", "x", ""} {
		if found, err := ids.Find([]string{"7", other}); !errors.Is(err, ErrNoVertex) {
			t.Errorf("%q is found: %d, %v", other, found, err)
		}
	}
	if _, err := ids.Find([]string{"7", "7"}); err == nil {
		t.Error("a vertex is given twice")
	}
}

// A table of links and scores, as --top writes it, is one of links; candidates follow where they
// are asked for.
func TestReadLinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "partners.csv")
	text := "source,target,score\n1,2,0.5\n3,4,-1e-3\n"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for more, want := range map[int]string{0: "[[1 2] [3 4]]", 1: "[[1 2 0.5] [3 4 -1e-3]]"} {
		if rows, err := ReadLinks(path, more, &SourceIDs{}, plain); err != nil ||
			fmt.Sprint(rows) != want {
			t.Errorf("%d more: %v, %v", more, rows, err)
		}
	}
	const want = `line 2 has 3 columns, "1,2,0.5"; want a source, a target and candidates`
	if rows, err := ReadLinks(path, 2, &SourceIDs{}, plain); !errors.Is(err, dataset.ErrValue) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("2 more: %v, %v", rows, err)
	}
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

// named are vertices that are called so in the source.
func named(names ...string) *SourceIDs {
	return &SourceIDs{vertices: len(names), names: []byte(strings.Join(names, "\n") + "\n")}
}

// plain are ids that are whole.
func plain(_ int, id string) string { return id }

// A first row of vertices that are called as ends are is a link, and a fault names its file, line
// and cure.
func TestReadLinksOfOddWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "links")
	for _, c := range []struct{ text, want string }{
		{"u,v\na,b\n", "[[u v] [a b]] <nil>"},
		{"a,b\n#c,d\n# by me\n%e\n", "[[a b]] <nil>"},
		{"a,b\nR\xe9,c\n",
			"[[a b]] " + path +
				": line 2: bad value: column 1 is not UTF-8; convert the file: iconv " +
				"-f LATIN1 -t UTF-8"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		rows, err := ReadLinks(path, 0, named("u", "v", "a", "b"), plain)
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
			words, err := ReadIDs(path, named("Ann Lee", "#b", "c, d"))
			return fmt.Sprintf("%q %v", words, err)
		}
		known := named("a", "#d")
		if more > 0 { // lines that begin with # are comments
			known = named("a")
		}
		rows, err := ReadLinks(path, more, known, plain)
		return fmt.Sprintf("%q %v", rows, err)
	}
	for _, text := range []string{
		"Ann Lee\n#b\n\"c, d\"\n",
		"Ann Lee\r#b\r\r\"c, d\"",
		"\xef\xbb\xbfAnn Lee\r\n#b\r\n\"c, d\"\r\n",
		"id\nAnn Lee\n#b\n\"c, d\"\n",
		"id,class\nAnn Lee,1\n#b,2\n\"c, d\",1\n",
	} {
		if got, want := read(text, true, 0), `["Ann Lee" "#b" "c, d"] <nil>`; got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	for _, text := range []string{
		"source,target,score\nAnn Lee,\"b, c\",0.5\n#d,e,1\n",
		"src;dst\nAnn Lee;b, c\n#d;e\n",
		"Ann Lee\tb, c\r#d\te\r",
		"\"Ann Lee\" \"b, c\"\n#d e\n",
	} {
		if got, want := read(text, false, 0), `[["Ann Lee" "b, c"] ["#d" "e"]] <nil>`; got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	for _, text := range []string{
		"source,target\na b,c,d\ne,f,g,h i\n",
		"a b,c,d\ne,f,g,h i\n",
		"\xef\xbb\xbf# mine\r\nhead,tail,no1,no2\r\na b,c,d\r\n% half\r\ne,f,g,h i\r\n",
		gzipped("from;to\n\"a b\";c;d\ne;f;g;h i\n"),
	} {
		want := `[["a b" "c" "d"] ["e" "f" "g" "h i"]] <nil>`
		if got := read(text, false, 1); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// The first row of a list of ids may name its column, or those of a table, and comments are none of
// it unless ids of the source begin so.
func TestReadIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids")
	for _, c := range []struct{ text, want string }{
		{"# mine\r\na\r\nLee, B\r\n", `["a" "Lee, B"] <nil>`},
		{"# mine\nname\na\n% half way\nLee, B\n", `["a" "Lee, B"] <nil>`},
		{"Node\nLee, B\n", `["Lee, B"] <nil>`},
		{"name\tage\na\t7\nLee, B\t8\n", `["a" "Lee, B"] <nil>`},
		{"age;vertex_id\n7;a\n8;Lee, B\n", `["a" "Lee, B"] <nil>`},
		{"a,0.5\n\"Lee, B\",0.7\n", `["a" "Lee, B"] <nil>`},
		{"% mine\nage|name\n7|a\n8|Lee, B\n", `["a" "Lee, B"] <nil>`},
		{"a,a\n",
			`[] ` + path +
				`: no such vertex: the first row is "a,a"; write one id on each line or, if this ` +
				`is a table, put a row before it that names the column of ids id`},
		{"a 0.5\n",
			`[] ` + path +
				`: no such vertex: the first row is "a 0.5"; write one id on each line or, if ` +
				`this is a table, put a row before it that names the column of ids id`},
		{"Lee, B\na\n", `["Lee, B" "a"] <nil>`},
		{"node\na\n", `["a"] <nil>`},
		{"nosuch\na\n",
			`[] ` + path +
				`: no such vertex: the first row is "nosuch", but ids are those of the source, ` +
				`such as a and Lee, B; if the row names the column, call it id, or remove the row`},
		{"# mine\n", `[] ` + path + `: files do not fit together: the file has no ids; write one ` +
			`id on each line`},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		ids, err := ReadIDs(path, named("a", "Lee, B"))
		if got := fmt.Sprintf("%q %v", ids, err); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
	if err := os.WriteFile(path, []byte("name\n#b\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	ids, err := ReadIDs(path, named("name", "#b"))
	if got := fmt.Sprintf("%q %v", ids, err); got != `["name" "#b"] <nil>` {
		t.Errorf("vertices that are called as columns and comments are: %s", got)
	}
	for text, want := range map[string]string{
		"5,9999\n":          "the first row",
		"5,2024\n6,2024\n":  "the first row",
		"5,0.5\n":           "the first row",
		"5,0.5\n4,0.7\n":    `["5" "4"] <nil>`,
		"id,year\n5,2024\n": `["5"] <nil>`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		ids, err := ReadIDs(path, &SourceIDs{vertices: 6})
		if got := fmt.Sprintf("%q %v", ids, err); !strings.Contains(got, want) {
			t.Errorf("%q, of vertices 0 to 5: %s", text, got)
		}
	}
}
