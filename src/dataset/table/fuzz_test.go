package table_test

import (
	"os"
	"path/filepath"
	"testing"

	"halognn/src/dataset/table"
	"halognn/src/mem/memtest"
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
