package dataset_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// A split table has ids that begin with # or % where vertices are called so, and comments where
// none is.
func TestSplitTables(t *testing.T) {
	for _, c := range []struct{ a, split string }{
		{"#ai", "#ai,train\n%x,valid\nok,test\n"},
		{"#ai", "id;part\n\"#ai\";train\n%x;valid\nok;test\n"},
		{"a, b", "id,part\n\"a, b\",train\r\n%x,valid\r\nok,test\r\n"},
		{"a, b", "\"a, b\"\ttrain\r%x\tval\rok\ttest\r"},
		{"a", "# made by hand\na,train\n# another, of two fields\nok,test\n"},
		{"a", "part,vertex\n0,a\n2,ok\n"},
		{"a", "# part,vertex\n0,a\n2,ok\n"},
		{"a", "use,id\n0,a\n2,ok\n"},
	} {
		dir := t.TempDir()
		var o dataset.ImportOptions
		x := map[bool]string{true: "%x", false: "x"}[strings.Contains(c.split, "%x")]
		inFiles("edges.csv", fmt.Sprintf("source,target\n%q,%s\n%[2]s,ok\n", c.a, x),
			"nodes.csv", fmt.Sprintf("id,y\n%q,p\n%s,q\nok,p\n", c.a, x))(t, dir, &o)
		o.Split = filepath.Join(dir, "s.txt")
		write(t, o.Split, []byte(c.split))
		d, _ := imported(t, o)
		if len(d.Split.Train) != 1 || len(d.Split.Test) != 1 ||
			(x == "%x") != (len(d.Split.Valid) == 1) {
			t.Errorf("%q: split %v", c.split, d.Split)
		}
	}
}
