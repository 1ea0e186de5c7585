package table_test

// These tests read tables as words, in all the ways in which programs write them.

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"halognn/src/data/dataset/table"
)

// words reads all rows, as "a|b c|d".
func words(t testing.TB, content []byte, sep table.Separator, ragged bool) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "words.csv")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := table.OpenWords(path, sep, ragged)
	if err != nil {
		return "", err
	}
	defer r.Close()
	var rows []string
	for {
		ok, err := r.Next()
		if err != nil || !ok {
			return strings.Join(rows, " "), err
		}
		row, err := r.Words()
		if err != nil {
			return strings.Join(rows, " "), err
		}
		rows = append(rows, strings.ReplaceAll(strings.Join(row, "|"), " ", "_"))
	}
}

// The rows of one table are the same in all the ways in which programs write it.
func TestWords(t *testing.T) {
	const want = "id|f Ann_Lee|1 #b|2 c|3"
	for name, text := range map[string]string{
		"commas":                  "id,f\nAnn Lee,1\n#b,2\nc,3\n",
		"no end of the last line": "id,f\nAnn Lee,1\n#b,2\nc,3",
		"semicolons":              "id;f\nAnn Lee;1\n#b;2\nc;3\n",
		"bars":                    "id|f\nAnn Lee|1\n#b|2\nc|3\n",
		"sep=;":                   "sep=;\r\nid;f\r\nAnn Lee;1\r\n#b;2\r\nc;3\r\n",
		"sep=, in quotes":         "\xef\xbb\xbf\"sep=,\"\nid,f\nAnn Lee,1\n#b,2\nc,3\n",
		"a mark in the middle":    "id,f\nAnn Lee,1\n\xef\xbb\xbf#b,2\nc,3\n",
		"tabs":                    "id\tf\nAnn Lee\t1\n#b\t2\nc\t3\n",
		"blanks and quotes":       "id f\n\"Ann Lee\" 1\n#b  2\nc\t3\n",
		"blanks round fields":     " id , f \n Ann Lee ,1\n#b, 2\nc ,3 \n",
		"CR LF":                   "id,f\r\nAnn Lee,1\r\n#b,2\r\nc,3\r\n",
		"CR":                      "id,f\rAnn Lee,1\r#b,2\rc,3\r",
		"CR and no last one":      "id,f\rAnn Lee,1\r#b,2\rc,3",
		"CR and LF mixed":         "id,f\rAnn Lee,1\n#b,2\r\nc,3\n",
		"quotes":                  "\"id\",\"f\"\n\"Ann Lee\",1\n\"#b\",\"2\"\nc,\"3\"\n",
		"a byte order mark":       "\xef\xbb\xbfid,f\nAnn Lee,1\n#b,2\nc,3\n",
		"gzip":                    string(zipped("id,f\nAnn Lee,1\n#b,2\nc,3\n")),
		"comments of other widths": "# a tool, in May, 2020\n" +
			"id,f\n" +
			"Ann Lee,1\n" +
			"% half\n" +
			"#b,2\n" +
			"\n" +
			"c,3\n",
		"empty lines": "\n\nid,f\n  \nAnn Lee,1\n#b,2\nc,3\n\n",
	} {
		if got, err := words(t, []byte(text), table.Auto, false); got != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestWordsOfFields(t *testing.T) {
	for _, c := range []struct {
		text   string
		sep    table.Separator
		ragged bool
		want   string
	}{
		{"a,\"b, \"\"c\"\"\"\nd,\"e\nf\"\n", table.Auto, false, "a|b,_\"c\" d|e\nf"},
		{"a\t\t\nb\tc\td\n", table.Auto, false, "a|| b|c|d"},
		{",id\n0,a\n", table.Auto, false, "|id 0|a"},
		{"id;x\na;0,5\nb;1,5\n", table.Auto, false, "id|x a|0,5 b|1,5"},
		{"a;0,5\nb;1,5\n", table.Auto, false, "a|0,5 b|1,5"},
		{"chr1;10,chr2;20\nchr2;5,chrX;7\n", table.Auto, false, "chr1;10|chr2;20 chr2;5|chrX;7"},
		{"id,note\na,x;y\nb,z\n", table.Auto, false, "id|note a|x;y b|z"},
		{"a b\nc d e\n", table.Auto, true, "a|b c|d|e"},
		{"# note\na,b\n#c,d,e\n", table.Auto, true, "a|b #c|d|e"},
		{"a,b\nc,d,e\n", table.Auto, true, "a|b c|d|e"},
		{"full name\nAnn\n", table.Auto, false, "full_name Ann"},
		{"a|b c\nd|e\n", table.Auto, false, "a|b_c d|e"},
		{"a|b c|d\ne|f g|h\n", table.Auto, false, "a|b|c|d e|f|g|h"},
		{"id\na|b\n", table.Auto, false, "id a|b"},
		{"sep\na\n", table.Auto, false, "sep a"},
		{"Lee, Ann\n\"x, y\"\n#c\n\"d\" e\n", table.None, false, "Lee,_Ann x,_y #c \"d\"_e"},
		{"#a,1\n#b,2\n", table.Auto, false, "#a|1 #b|2"},
		{"# a\tb\n0\t1\n", table.Auto, false, "0|1"},
		{"# a \"b, c\n# d\na,b\n#c,d\n", table.Auto, false, "a|b #c|d"},
		{"# a,b\nc,d\n# e,f\n", table.Auto, false, "#_a|b c|d #_e|f"},
		{"id,x\n1,a\n# half, way\n#3,c\n2,b\n", table.Auto, false, "id|x 1|a #3|c 2|b"},
		{"#id,label,f\n1,0,0.5\n2,1,0.7\n3,1,0.9\n", table.Auto, false,
			"#id|label|f 1|0|0.5 2|1|0.7 3|1|0.9"},
		{"id,label\n#go,0\n#rust,1\n7,0\n", table.Auto, false, "id|label #go|0 #rust|1 7|0"},
		{"source,target\n#go,7\n#rust,7\n7,8\n", table.Auto, false,
			"source|target #go|7 #rust|7 7|8"},
		{"1,2\n2,3\n#go,7\n%rust,7\n", table.Auto, false, "1|2 2|3 #go|7 %rust|7"},
		{"1 2\n2 3\n#half\n# half way\n3 4\n", table.Auto, false, "1|2 2|3 3|4"},
		{"1,2\n2,3\n# go,7\n", table.Auto, true, "1|2 2|3 #_go|7"},
		{"# made by hand\nid,x\na,b\n# half, way\n#c,d\n", table.Auto, false, "id|x a|b #c|d"},
		{"# one, two\nid,x\na,b\n# half, way\n", table.Auto, false,
			"#_one|two id|x a|b #_half|way"},
		{"a b\n# \"c d\ne f\n", table.Auto, false, "a|b e|f"},
		{"a,b\n#c,\"d\n\"\"e\n\"\n\"f\n\n\", g\n", table.Auto, false, "a|b #c|d\n\"e f|g"},
	} {
		if got, err := words(t, []byte(c.text), c.sep, c.ragged); got != c.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

// Comments that have the fields of a row are counted, and are none of the rows by which columns are
// judged.
func TestCommentsOfFullWidth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.csv")
	text := "id,index,x\n5,0,0.1\n# half, way, there\n7,1,0.2\n#half\n9,2,0.3\n# so, many, more\n"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := table.OpenNamed(path, table.Names{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !r.HasNames || !r.Counts(1) || r.Counts(0) || !r.Number(0) {
		t.Errorf("names %t, index counts %t", r.HasNames, r.Counts(1))
	}
	rows := 0
	for row, err := r.Next(); row != nil || err != nil; row, err = r.Next() {
		if rows++; err != nil {
			t.Fatal(err)
		}
	}
	if rows != 3 || r.Skipped != 2 || r.SkippedAt != 3 || r.Noted != 0 {
		t.Errorf("%d rows, %d comments from line %d, %d marked rows", rows, r.Skipped, r.SkippedAt,
			r.Noted)
	}
}

func TestWordsFaults(t *testing.T) {
	wide := func(little bool) (b []byte) {
		for _, c := range utf16.Encode([]rune("\ufeffid,f\n")) {
			if little {
				b = append(b, byte(c), byte(c>>8))
			} else {
				b = append(b, byte(c>>8), byte(c))
			}
		}
		return b
	}
	for _, c := range []struct{ text, want string }{
		{"a,b\nc\n", "line 2: bad value: it does not have the 2 columns of the first line, but 1"},
		{"a,b\n\n\"c\nd\",e\nf\n", "line 5: bad value: it does not have the 2 columns"},
		{"a,f\nb,0,5\n", "decimal commas"},
		{"a,f\nb,c,d\n", "quote fields that hold ','"},
		{"a,b\n\"c,d\n", "line 2: bad value: a field begins with a quote, and no quote ends it"},
		{"a,b\nc\"d,e\n", "line 2: bad value: a quote inside a field"},
		{"a,b\n\"c\"d,e\n", "a quote inside a field"},
		{"a,b\n\xff,e\n", "column 1 is not UTF-8"},
		{string(wide(true)), "UTF-16 text; convert it: iconv"},
		{string(wide(false)), "UTF-16 text; convert it: iconv"},
		{"a,\x00\n", "it holds zero bytes"},
		{"a\x00,\x00b\x00\n\x00", "iconv -f UTF-16LE"},
		{"\x00a\x00,\x00b\x00\n", "iconv -f UTF-16BE"},
		{"BZh91AY&SY\x01", "bzip2"},
		{"PK\x03\x04\x14\x00", "spreadsheet"},
		{"<?xml version=\"1.0\"?>\n<graphml>\n", "read_graphml"},
		{"\n <!DOCTYPE html>", "a web page"},
		{"<!DOCTYPE html>\n<html>\n", "a web page"},
		{"version https://git-lfs.github.com/spec/v1\noid sha256:07\nsize 4\n", "git lfs pull"},
		{"PAR1\x15\x04", "Parquet"},
		{"\x80\x04\x95\x01", "pickle"},
		{"a,b\nc,d,\n", "it ends with ',', and the first line does not"},
		{"a title\nc,d\n", "if the first line is a title, remove it"},
		{"source,target\n#a,#b\n#c,a,b\n", "line 3: bad value: it does not have the 2 columns"},
		{"a,b\n\"0,1\n" + strings.Repeat("3,\"\"4\n", 1<<18),
			"line 2: bad value: a field begins with a quote"},
	} {
		if got, err := words(t, []byte(c.text), table.Auto, false); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

// A quote in a comment joins no lines of numbers.
func TestQuotesInComments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.txt")
	text := "# graph \"A\n0 1\n1 2\n# end of \"A\" part\n2 3\n"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := table.Open(path, table.Blank)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got [][2]int64
	for {
		ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		var edge [2]int64
		if err := r.Ints(edge[:]); err != nil {
			t.Fatal(err)
		}
		got = append(got, edge)
	}
	if fmt.Sprint(got) != "[[0 1] [1 2] [2 3]]" {
		t.Errorf("edges %v", got)
	}
}

// A first row of any length is whole, with commas and line ends in quotes, too.
func TestLongHeaders(t *testing.T) {
	for _, columns := range []int{2, 20000} {
		head := "id,\"a,\nb" + strings.Repeat("c", 100000) + "\""
		for k := 2; k < columns; k++ {
			head += ",f" + strconv.Itoa(k)
		}
		text := head + "\n7" + strings.Repeat(",1", columns-1) + "\n"
		for name, text := range map[string]string{"plain": text, "gzip": string(zipped(text))} {
			got, err := words(t, []byte(text), table.Auto, false)
			if n := strings.Count(got, "|"); err != nil || n != 2*(columns-1) {
				t.Errorf("%s, %d columns: %d, %v", name, columns, n, err)
			}
		}
	}
}

// A row that the buffer cuts, at any byte, is whole.
func TestRowsAcrossTheBuffer(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for shift := range 5 {
			var text strings.Builder
			text.WriteString("id,f" + strings.Repeat("x", shift) + end)
			n := 0
			for ; text.Len() < 600000; n++ {
				fmt.Fprintf(&text, "\"v, %d\",%d%s", n, n, end)
			}
			got, err := words(t, []byte(text.String()), table.Auto, false)
			if rows := strings.Split(got, " "); err != nil || len(rows) != n+1 ||
				rows[n] != fmt.Sprintf("v,_%d|%d", n-1, n-1) {
				t.Fatalf("%q, shift %d: %d of %d rows, %v", end, shift, len(rows)-1, n, err)
			}
		}
	}
}

func TestNamesOfColumns(t *testing.T) {
	known := func(name string) bool { return name == "id" || name == "label" }
	for _, c := range []struct {
		text  string
		named bool
		fault string
	}{
		{"id,f\na,1\n", true, ""},
		{"id,0,1\na,1,2\n", true, ""},
		{"name,f\na,1\n", true, ""},
		{"0,1\n1,2\n", false, ""},
		{"0.5\n1\n", false, ""},
		{"u1,0.1,1.0\nu2,.2,2\n", false, ""},
		{"u1,7\nu2,8\n", false, ""},
		{"u1,a\nu2,a\nu3,b\n", false, ""},
		{"ann,.34,7\nbob,1,2\n", false, ""},
		{"ann,7,7\nbob,1,2\n", false, ""},
		{"ann,bob,3\nbob,cy,4\n", false, ""},
		{"ann,bob,3\nbob,ann,4\n", false, ""},
		{"ann,bob,NA\nann,cy,3\n", false, ""},
		{"0,?,5,1\n1,2,6,0\n", false, ""},
		{"word,next\nthe,word\n", false, "names of the columns, or data"},
		{"ann,34,7\nbob,1,2\n", false, "names of the columns, or data"},
		{"u1,a\nu2,b\n", false, "--header reads it as the names, and --no-header as data"},
		{"gene1,gene2\ngene5,gene7\n", false, "names of the columns, or data"},
		{"gene1,gene2\ngene5,gene1\n", false, ""},
		{"paper,2018,2020\np1,3,4\np2,5,6\n", true, ""},
		{"paper,2018,2020\n1,3,4\n2,5,6\n", true, ""},
		{"who,0,1\nann,.5,.25\n", true, ""},
		{"ann,0\nbob,1\n", false, "names of the columns, or data"},
		{",f\n0,1\n", true, ""},
		{"year,1990,1991\nx,0.5,1\n", true, ""},
	} {
		path := filepath.Join(t.TempDir(), "t.csv")
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := table.OpenNamed(path, table.Names{Known: known})
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%q: %v", c.text, err)
			}
			continue
		}
		if err != nil || r.HasNames != c.named {
			t.Errorf("%q: %v, names %t", c.text, err, err == nil && r.HasNames)
			continue
		}
		rows := 0
		for row, err := r.Next(); row != nil || err != nil; row, err = r.Next() {
			if rows++; err != nil {
				t.Fatal(err)
			}
		}
		if want := strings.Count(c.text, "\n"); c.named && rows != want-1 ||
			!c.named && rows != want {
			t.Errorf("%q: %d rows", c.text, rows)
		}
		_ = r.Close()
	}
}

func BenchmarkWords(b *testing.B) {
	var text strings.Builder
	text.WriteString("source,target\n")
	for i := range 1 << 18 {
		fmt.Fprintf(&text, "user%d,item%d\n", i*7919%100003, i*104729%50021)
	}
	path := filepath.Join(b.TempDir(), "e.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o666); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		r, err := table.OpenNamed(path, table.Names{})
		if err != nil {
			b.Fatal(err)
		}
		for row, err := r.Next(); row != nil; row, err = r.Next() {
			if err != nil {
				b.Fatal(err)
			}
		}
		_ = r.Close()
	}
}
