package dataset_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"

	"halognn/src/data/dataset"
	"halognn/src/model/task"
)

// Tables give the bytes that version 0.2.0 gave before it read all text by one reader: the sums
// were made by that program, of the lines "FILE XXH64" of a dataset's files but meta.json.
func TestTablesGiveTheBytesOfBefore(t *testing.T) {
	type options = dataset.ImportOptions
	for _, c := range []struct {
		name   string
		files  []string
		change func(o *options)
		want   string
	}{
		{"numbers", []string{"edges.csv", "source,target\n0,1\n1,2\n2,0\n"},
			nil, "d48d477431d37175"},
		{"tabs and weights", []string{"edges.tsv", "src\tdst\tweight\nA\tB\t3\nB\tC\t2\nA\tB\t1\n"},
			func(o *options) { o.Undirected = dataset.Yes }, "3dacc428ed0eeda2"},
		{"semicolons", []string{"edges.csv", "u;v;kind\nann;bob;x\nbob;cy;y\n"},
			nil, "62a923823b72eb3b"},
		{"features of edges", []string{"edges.csv", "source,target,a,b\n1,2,.5,1\n2,5,.25,2\n"},
			func(o *options) { o.Table.EdgeFeatures = []string{"a", "b"} }, "e2f6e31b96e37276"},
		{"no names of columns", []string{"edges.csv", "0,1\n1,2\n5,2\n"},
			nil, "e61a97fab18e3a33"},
		{"quotes", []string{"edges.csv", "source,target\n\"x, y\",z\nz,\"q \"\"r\"\"\"\n"},
			nil, "5a5d7a63606567c1"},
		{"a byte order mark",
			[]string{"edges.csv", "\ufeffSource,Target,Weight\r\na,b,2\r\nb,c,1\r\n"}, nil,
			"6d8587b619fe3794"},
		{"nodes",
			[]string{
				"edges.csv", "from,to\n0,1\n1,2\n3,4\n4,0\n",
				"nodes.csv", "id,f0,f1,label,split\n" +
					"0,1,.5,a,train\n" +
					"1,2,.5,b,valid\n" +
					"2,3,1e-3,a,test\n" +
					"3,-1,0,b,train\n" +
					"4,0,0,a,\n",
			},
			func(o *options) { o.Standardize = true }, "09fabcdea05ffd84"},
		{"several labels",
			[]string{
				"edges.csv", "from,to\n0,1\n1,2\n3,4\n4,0\n",
				"nodes.csv", "id,f0,f1,l0,l1\n" +
					"0,1,.5,0,1\n" +
					"1,2,.5,1,0\n" +
					"2,3,1e-3,1,1\n" +
					"3,-1,0,0,0\n" +
					"4,0,0,1,1\n",
			},
			func(o *options) { o.Table.Labels = []string{"l0", "l1"} }, "5d57b09ecda5a424"},
		{"numbers to predict", []string{"edges.csv", "from,to\n0,1\n1,2\n3,4\n4,0\n",
			"nodes.csv", "id,f0,y\n0,1,.5\n1,2,1.5\n2,3,2.5\n3,-1,\n4,0,3\n"},
			func(o *options) { o.Task = task.Regression }, "3bef0054f9b90635"},
		{"classes that are renumbered", []string{"edges.csv", "from,to\n0,1\n1,2\n3,4\n4,0\n",
			"nodes.csv", "id,f0,label\n0,1,5\n1,2,7\n2,3,5\n3,-1,-1\n4,0,nan\n"},
			nil, "70330638dcc91b3e"},
		{"a table of the split", []string{"edges.csv", "from,to\n0,1\n1,2\n3,4\n4,0\n",
			"nodes.csv", "id,f0,label\n0,1,5\n1,2,7\n2,3,5\n3,-1,6\n4,0,6\n",
			"s.csv", "vertex,part\n0,0\n# c\n1,1\n2,2\n3,train\n"},
			func(o *options) { o.Split = filepath.Join(o.In, "s.csv") }, "c7cadbc49c580d4b"},
		{"links", []string{"edges.csv", "from,to\n0,1\n1,2\n3,4\n4,0\n"},
			func(o *options) { o.Task, o.SplitLinks = task.Links, "60/20/20" }, "49de60bc28fe1003"},
		{"types", []string{"nodes.paper.csv", "id,label,f0\np1,a,1\np2,b,2\np3,a,3\n",
			"nodes.author.csv", "id,g0,g1\na1,1,2\na2,3,4\n",
			"edges.author.writes.paper.csv", "source,target\na1,p1\na2,p2\na2,p3\n",
			"edges.paper.cites.paper.csv", "source,target\np1,p2\np3,p1\n"},
			func(o *options) { o.Reverse = true }, "b2c2e5523f1437d6"},
	} {
		dir := t.TempDir()
		var o options
		inFiles(c.files...)(t, dir, &o)
		if c.change != nil {
			c.change(&o)
		}
		d, _ := imported(t, o)
		lines := ""
		for _, name := range slices.Sorted(maps.Keys(d.Meta.Files)) {
			lines += fmt.Sprintf("%s %s\n", name, d.Meta.Files[name].XXH64)
		}
		if got := fmt.Sprintf("%016x", xxhash.Sum64String(lines)); got != c.want {
			t.Errorf("%s: %s, want %s:\n%s", c.name, got, c.want, lines)
		}
	}
}
