package table_test

import (
	"os"
	"path/filepath"
	"testing"

	"halognn/src/base/mem/memtest"
	"halognn/src/data/dataset/table"
)

// For any bytes, every row is read or an error ends the reading.
func FuzzTable(f *testing.F) {
	path := filepath.Join(f.TempDir(), "rows.csv")
	f.Add([]byte("\xef\xbb\xbf# a comment\r\n1,2\n -3 , 4e5\n\nnan,inf"), false)
	f.Add([]byte("0 1\n7\t9223372036854775807,\n"), true)
	f.Add(zipped("1,2\n3,4\n"), false)
	f.Fuzz(func(t *testing.T, content []byte, blank bool) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		sep := table.Comma
		if blank {
			sep = table.Blank
		}
		memtest.Bounded(t, 64<<20, func() {
			r, err := table.Open(path, sep)
			if err != nil {
				return
			}
			defer r.Close()
			for line := 0; ; {
				ok, err := r.Next()
				if err != nil || !ok {
					return
				}
				if r.Line() <= line || len(r.Row()) == 0 {
					t.Fatalf("line %d after line %d: %q", r.Line(), line, r.Row())
				}
				line = r.Line()
				n := r.Columns()
				if fields := r.Fields(nil); len(fields) != n {
					t.Fatalf("%d fields, %d columns in %q", len(fields), n, r.Row())
				}
				n = min(n, 1000)
				_, _ = r.Ints(make([]int64, n)), r.Floats(make([]float64, n))
			}
		})
	})
}

// For any bytes, every row of words has as many fields as the first, is as OpenNamed gives it, or
// an error ends the reading.
func FuzzWords(f *testing.F) {
	path := filepath.Join(f.TempDir(), "rows.csv")
	f.Add([]byte("\xef\xbb\xbf# a comment\r\nid,f\r\"a, \"\"b\",1\n\nc,2"))
	f.Add([]byte("id\tf\n\t\n\"x\ny\"\t7\n"))
	f.Add(zipped("a b\n\"c d\" e\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		memtest.Bounded(t, 64<<20, func() {
			for _, sep := range []table.Separator{table.Auto, table.None, table.Blank} {
				for _, ragged := range []bool{false, true} {
					r, err := table.OpenWords(path, sep, ragged)
					if err != nil {
						continue
					}
					width := 0
					for ok, err := r.Next(); ok && err == nil; ok, err = r.Next() {
						row, err := r.Words()
						if err != nil {
							break
						}
						if width == 0 {
							width = len(row)
						}
						if len(row) == 0 || !ragged && len(row) != width {
							t.Fatalf("%q has %d fields, the first row %d", r.Row(), len(row), width)
						}
					}
					_ = r.Close()
				}
			}
			n, err := table.OpenNamed(path, table.Names{})
			if err != nil {
				return
			}
			defer n.Close()
			for row, err := n.Next(); row != nil && err == nil; row, err = n.Next() {
				if len(row) != len(n.Header) {
					t.Fatalf("%q has %d fields of %d columns", n.Row(), len(row), len(n.Header))
				}
			}
		})
	})
}
