package table_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/data/dataset/table"
)

func open(t testing.TB, content []byte, sep table.Separator) *table.Reader {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := table.Open(path, sep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

func readInts(r *table.Reader) (rows [][2]int64, err error) {
	for {
		ok, err := r.Next()
		if err != nil || !ok {
			return rows, err
		}
		var row [2]int64
		if err := r.Ints(row[:]); err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
}

func TestRows(t *testing.T) {
	want := [][2]int64{{1, 2}, {-3, 123456789012345678}}
	for _, c := range []struct {
		name    string
		content []byte
		sep     table.Separator
	}{
		{"plain", []byte("1,2\n-3,123456789012345678\n"), table.Comma},
		{"no end of the last line", []byte("1,2\n-3,123456789012345678"), table.Comma},
		{"CRLF", []byte("1,2\r\n-3,123456789012345678\r\n"), table.Comma},
		{"blanks and empty lines", []byte(" 1 , 2 \n\n  \n-3,\t123456789012345678\n\n"),
			table.Comma},
		{"byte order mark", []byte("\xef\xbb\xbf1,2\n-3,123456789012345678\n"), table.Comma},
		{"gzip", zipped("1,2\n-3,123456789012345678\n"), table.Comma},
		{"gzip in two members", append(zipped("1,2\n-3,1234567"), zipped("89012345678\n")...),
			table.Comma},
		{"edge list", []byte("# a comment\n1\t2\r\n% another\n-3   \t123456789012345678"),
			table.Blank},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readInts(open(t, c.content, c.sep))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, %v; want %v", got, err, want)
			}
		})
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	whole := zipped(strings.Repeat("1,2\n", 100000))
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-5] ^= 1
	for _, c := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"too few columns", []byte("1,2\n\n3\n"), "rows.csv: line 3: 1 columns, want 2"},
		{"too many columns", []byte("1,2,3\n"), "line 1: 3 columns, want 2"},
		{"a word", []byte("1,2\n3,four\n"), `line 2: column 2: "four" is not an integer`},
		{"an empty field", []byte("1,\n"), `line 1: column 2: "" is not an integer`},
		{"a fraction", []byte("1,2.5\n"), `"2.5" is not an integer`},
		{"overflow", []byte("1,99999999999999999999\n"), "is not an integer"},
		{"truncated gzip", whole[:len(whole)/2], "rows.csv: truncated after line"},
		{"checksum of gzip", damaged, "rows.csv: damaged after line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readInts(open(t, c.content, table.Comma))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// A row longer than the buffer makes it grow.
func TestLongRow(t *testing.T) {
	const n = 200000
	r := open(t, []byte(strings.Repeat("0.5,", n-1)+"0.25\n7\n"), table.Comma)
	if ok, err := r.Next(); !ok || err != nil || r.Columns() != n {
		t.Fatalf("got %v, %v, %d columns", ok, err, r.Columns())
	}
	row := make([]float64, n)
	if err := r.Floats(row); err != nil || row[0] != 0.5 || row[n-1] != 0.25 {
		t.Fatalf("got %v", err)
	}
	if ok, err := r.Next(); !ok || err != nil || string(r.Row()) != "7" || r.Line() != 2 {
		t.Errorf("got %q at line %d, %v", r.Row(), r.Line(), err)
	}
}

func TestFields(t *testing.T) {
	r := open(t, []byte("a, b ,,d\n"), table.Comma)
	if ok, err := r.Next(); !ok || err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%q", r.Fields(nil)); got != `["a" "b" "" "d"]` {
		t.Errorf("got %s", got)
	}
}

// ParseFloat and ParseInt agree with strconv bit for bit.
func TestNumbersAgreeWithStrconv(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	texts := []string{"0", "-0", "1", ".5", "5.", "-.25", "1e5", "1E-5", "1e+22", "1e23",
		"123456789012345678901", "9007199254740993",
		"0.1", "1e-400", "nan", "NaN", "-inf", "3.4028235e38", "0.000000000000000000000000001"}
	for range 20000 {
		x := math.Float64frombits(rng.Uint64())
		texts = append(texts, strconv.FormatFloat(x, "efg"[rng.IntN(3)], rng.IntN(20)-1, 64),
			strconv.FormatFloat(rng.NormFloat64(), 'g', rng.IntN(12), 64))
	}
	for _, s := range texts {
		want, err := strconv.ParseFloat(s, 64)
		got, ok := table.ParseFloat([]byte(s))
		if ok != (err == nil) || ok && math.Float64bits(got) != math.Float64bits(want) &&
			!(math.IsNaN(got) && math.IsNaN(want)) {
			t.Fatalf("%s: got %v, %t; strconv says %v, %v", s, got, ok, want, err)
		}
	}
	for range 20000 {
		s := strconv.FormatInt(int64(rng.Uint64())>>rng.IntN(64), 10)
		want, _ := strconv.ParseInt(s, 10, 64)
		if got, ok := table.ParseInt([]byte(s)); !ok || got != want {
			t.Fatalf("%s: got %d, %t", s, got, ok)
		}
	}
	for _, s := range []string{"", "-", "+", "1x", "0x10", "1_000", "e5", ".", "--1", "1e", "1e5.5",
		"٣"} {
		if x, ok := table.ParseFloat([]byte(s)); ok {
			t.Errorf("ParseFloat(%q) is %v, want a refusal", s, x)
		}
		if x, ok := table.ParseInt([]byte(s)); ok {
			t.Errorf("ParseInt(%q) is %v, want a refusal", s, x)
		}
	}
}

func TestReadingAllocatesNothingPerRow(t *testing.T) {
	r := open(t, []byte(strings.Repeat("12345,0.25\n", 50000)), table.Comma)
	row := make([]float64, 2)
	if a := testing.AllocsPerRun(10000, func() {
		if ok, err := r.Next(); !ok || err != nil || r.Floats(row) != nil {
			t.Fatal("the file ended early")
		}
	}); a != 0 {
		t.Errorf("%v allocations a row", a)
	}
}

func BenchmarkInts(b *testing.B) {
	var text strings.Builder
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1 << 20 {
		fmt.Fprintf(&text, "%d,%d\n", rng.IntN(1<<24), rng.IntN(1<<24))
	}
	for _, c := range []struct {
		name    string
		content []byte
	}{{"plain", []byte(text.String())}, {"gzip", zipped(text.String())}} {
		path := filepath.Join(b.TempDir(), "e.csv")
		if err := os.WriteFile(path, c.content, 0o644); err != nil {
			b.Fatal(err)
		}
		b.Run("file="+c.name, func(b *testing.B) {
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				r, err := table.Open(path, table.Comma)
				if err != nil {
					b.Fatal(err)
				}
				rows, err := readAll(r)
				if err != nil || rows != 1<<20 {
					b.Fatal(rows, err)
				}
				_ = r.Close()
			}
			b.ReportMetric(float64(b.N)*(1<<20)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func readAll(r *table.Reader) (n int, err error) {
	var row [2]int64
	for {
		ok, err := r.Next()
		if err != nil || !ok {
			return n, err
		}
		if err := r.Ints(row[:]); err != nil {
			return n, err
		}
		n++
	}
}
