package dataset_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// written writes the files in a directory of the test.
func written(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), []byte(text))
	}
	return dir
}

// refuses imports files of which one has another text, and wants an error and nothing written.
func refuses(t *testing.T, format, dir, file, text, want string) {
	t.Helper()
	write(t, filepath.Join(dir, file), []byte(text))
	out := filepath.Join(t.TempDir(), "d")
	_, err := dataset.Import(dataset.ImportOptions{Format: format, In: dir, Out: out})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", file, err, want)
	}
	if _, err := os.Stat(out); err == nil {
		t.Errorf("%s: something is written", file)
	}
}

// typedTables writes two node tables and two edge tables.
func typedTables(t *testing.T) string {
	return written(t, map[string]string{
		"nodes.paper.csv": "id,label,split,a,b\n" +
			"p1,x,train,1,2\n" +
			"p2,y,valid,3,4\n" +
			"p3,x,test,5,6\n",
		"nodes.author.csv":            "id\nann\nbob\n",
		"edges.author.by.paper.csv":   "source,target\nann,p1\nbob,p1\nbob,p3\nbob,p3\n",
		"edges.paper.cites.paper.tsv": "source\ttarget\np1\tp2\np2\tp2\n",
	})
}

func TestImportTypedTables(t *testing.T) {
	d, r := imported(t, dataset.ImportOptions{Format: "csv", In: typedTables(t), Reverse: true})
	once, _ := imported(t, dataset.ImportOptions{Format: "csv", In: typedTables(t)})
	if r.Cleaning.Before != once.Meta.Provenance.Cleaning.Before ||
		r.Cleaning.Reversed != once.Meta.Edges || r.Cleaning.After != 2*once.Meta.Edges {
		t.Errorf("edges %+v, without reverses %+v", r.Cleaning, once.Meta.Provenance.Cleaning)
	}
	if !strings.Contains(r.String(), "relation  paper,rev_by,author") {
		t.Errorf("report:\n%s", r)
	}
	m := d.Meta
	if !slices.Equal(m.Schema.Types, []string{"author", "paper"}) || m.LabelType != "paper" ||
		m.Classes != 2 || m.Tables[0].Features != 0 || m.Tables[1].Features != 2 ||
		len(m.Schema.Relations) != 4 {
		t.Fatalf("%+v", m)
	}
	in := func(v graph.VertexID, r int) []graph.VertexID {
		kind, first, _ := d.Columns.Of(v)
		c := int(first) + slices.Index(d.Columns.Into(kind), r)
		return d.Graph.Indices[d.Columns.Indptr[c]:d.Columns.Indptr[c+1]]
	}
	// ann 0, bob 1, p1 2, p2 3, p3 4; by 0, cites 1, and their reverses
	for _, c := range []struct {
		v    graph.VertexID
		r    int
		want []graph.VertexID
	}{{2, 0, []graph.VertexID{0, 1}}, {4, 0, []graph.VertexID{1}}, {3, 1, []graph.VertexID{2}},
		{1, 2, []graph.VertexID{2, 4}}, {2, 3, []graph.VertexID{3}}, {0, 2, []graph.VertexID{2}}} {
		if got := in(c.v, c.r); !slices.Equal(got, c.want) {
			t.Errorf("vertex %d, relation %s: %v, want %v", c.v, m.Schema.Relations[c.r], got,
				c.want)
		}
	}
	if !slices.Equal(d.Split.Train, []graph.VertexID{2}) ||
		!slices.Equal(d.Split.Test, []graph.VertexID{4}) {
		t.Errorf("split %+v", d.Split)
	}
	ids, err := npy.Map[uint8](filepath.Join(d.Dir, "original_name.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer ids.Close()
	if names := string(ids.Data); names !=
		"author/ann\nauthor/bob\npaper/p1\npaper/p2\npaper/p3\n" {
		t.Errorf("names %q", names)
	}
}

// typedOGB writes the graph of a data set of OGB: two papers, three authors.
func typedOGB(t *testing.T) string {
	return written(t, map[string]string{
		"raw/num-node-dict.csv": "author,paper\n3,2\n",
		"raw/triplet-type-list.csv": "author,writes,paper\n" +
			"paper,cites,paper\n",
		"raw/relations/author___writes___paper/edge.csv":          "0,0\n2,0\n1,1\n",
		"raw/relations/paper___cites___paper/edge.csv":            "1,0\n",
		"raw/node-feat/paper/node-feat.csv":                       "1,2\n3,4\n",
		"raw/node-label/paper/node-label.csv":                     "1\n0\n",
		"split/time/paper/train.csv":                              "1\n",
		"split/time/paper/valid.csv":                              "",
		"split/time/paper/test.csv":                               "0\n",
		"split/time/nodetype-has-split.csv":                       "author,paper\nFalse,True\n",
		"raw/relations/author___writes___paper/num-edge-list.csv": "3\n",
	})
}

func TestImportTypedOGB(t *testing.T) {
	in := typedOGB(t)
	write(t, filepath.Join(in, "raw", "node-feat", "paper", "node_year.csv.gz"),
		zipped("2010\n2011\n"))
	write(t, filepath.Join(in, "raw", "relations", "author___writes___paper", "edge_weight.csv.gz"),
		zipped("1\n"))
	d, r := imported(t, dataset.ImportOptions{Format: "ogb", In: in, Reverse: true})
	for _, want := range []string{
		"paper: node_year.csv.gz: time, not used",
		"author___writes___paper: edge_weight.csv.gz: ignored",
		"node_year.csv.gz is ignored: it is a time",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, r)
		}
	}
	m := d.Meta
	if r.Edges != 8 || m.Vertices != 5 || m.LabelType != "paper" || m.Tables[1].Features != 2 ||
		string(d.Labels.Row(2)) != "\xff\xff\xff\xff" ||
		string(d.Labels.Row(3)) != "\x01\x00\x00\x00" ||
		!slices.Equal(d.Split.Train, []graph.VertexID{4}) ||
		!slices.Equal(d.Split.Test, []graph.VertexID{3}) {
		t.Errorf("%+v, split %+v", m, d.Split)
	}
	if got := d.Graph.InNeighbours(3); !slices.Equal(got, []graph.VertexID{0, 2, 4}) {
		t.Errorf("in-neighbours of paper 0: %v", got)
	}
	for _, c := range []struct{ file, text, want string }{
		{"relations/paper___cites___paper/edge.csv", "1,2\n", "line 1: an edge names vertex 2: "},
		{"relations/author___writes___paper/edge.csv", "3,0\n",
			"there are 3 vertices of type author"},
		{"triplet-type-list.csv", "author,by,venue\n", "joins a type that has no vertices here"},
		{"triplet-type-list.csv", "author,meets,author\n", "edge.csv.gz is missing"},
		{"num-node-dict.csv", "author,paper\n", "must have two rows, the names of the types"},
		{"node-feat/paper/node-feat.csv", "1,2\n", "1 rows, but 2 vertices"},
	} {
		refuses(t, "ogb", typedOGB(t), filepath.Join("raw", c.file), c.text, c.want)
	}
}

func TestImportTypedRefusals(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"edges.author.by.venue.csv", "source,target\n", "joins a type that has no vertices here"},
		{"edges.author.csv", "source,target\n", "edges.SOURCE.NAME.TARGET.csv"},
		{"edges.author.by.paper.csv", "source,target\nann,p9\n", "has no row for it"},
		{"edges.author.by.paper.csv", "source,target\np1,p1\n", "has no row for it"},
		{"edges.author.by.paper.csv", "source,target,edge_weight\nann,p1,-2\n",
			"line 2: an edge has weight -2"},
		{"nodes.author.csv", "id,label\nann,1\nbob,0\n",
			"have labels, but a model is trained on the labels of one type"},
		{"nodes.paper.csv", "id,a\np1,1\np2,nan\np3,2\n",
			"nodes.paper.csv: line 3: bad value: column a holds \"nan\""},
		{"nodes.a b.csv", "id\nx\n", "a name has letters"},
	} {
		refuses(t, "csv", typedTables(t), c.file, c.text, c.want)
	}
}

// Numbers to predict are those of one type; the vertices of the others have none, which is not 0.
func TestImportTypedNumbers(t *testing.T) {
	dir := typedTables(t)
	write(t, filepath.Join(dir, "nodes.paper.csv"), []byte("id,label\np1,0.5\np2,\np3,-2\n"))
	d, _ := imported(t, dataset.ImportOptions{Format: "csv", In: dir, Task: task.Regression})
	got := npy.View[float32](d.Labels.Data)
	if len(got) != 5 || got[2] != 0.5 || got[4] != -2 {
		t.Fatalf("labels %v", got)
	}
	for _, v := range []int{0, 1, 3} { // two authors, and a paper without
		if got[v] == got[v] || task.Labelled(task.Regression, d.Labels, v) {
			t.Errorf("vertex %d has the label %g, want none", v, got[v])
		}
	}
	for text, want := range map[string]string{
		"id,a\np1,1\np2,2\np3,3\n":     "there are no labels; --task regression needs a number",
		"id,label\np1,1\np2,1\np3,1\n": "there is nothing to learn",
	} {
		write(t, filepath.Join(dir, "nodes.paper.csv"), []byte(text))
		_, err := dataset.Import(dataset.ImportOptions{
			Format: "csv", In: dir, Task: task.Regression, Out: filepath.Join(t.TempDir(), "d"),
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The report names the columns of typed edges that are not read, as it does without types.
func TestImportTypedNotesColumns(t *testing.T) {
	dir := typedTables(t)
	write(t, filepath.Join(dir, "edges.author.by.paper.csv"),
		[]byte("source,target,year,weight\nann,p1,1999,2\n"))
	_, r := imported(t, dataset.ImportOptions{Format: "csv", In: dir, Ignore: []string{"weight"}})
	for _, want := range []string{
		"column year of edges.author.by.paper.csv is ignored: it is a time",
		"weight is ignored",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("no %q in\n%s", want, r)
		}
	}
}

// typedArrays returns the arrays of two papers and three authors.
func typedArrays(t *testing.T) map[string][]byte {
	return map[string][]byte{
		"x,paper":                      array(t, []float32{1, 2, 3, 4}, 2, 2),
		"y,paper":                      array(t, []int64{1, 0}, 2),
		"train_mask,paper":             array(t, []uint8{1, 0}, 2),
		"valid_mask,paper":             array(t, []uint8{0, 0}, 2),
		"test_mask,paper":              array(t, []uint8{0, 1}, 2),
		"num_nodes,author":             array(t, []int64{3}, 1),
		"edge_index,author,by,paper":   array(t, []int64{0, 2, 1, 0, 0, 1}, 2, 3),
		"edge_index,paper,cites,paper": array(t, []int64{1, 0}, 2, 1),
	}
}

// Arrays named by type and relation are imported from an archive and from a directory.
func TestImportTypedArrays(t *testing.T) {
	dir := t.TempDir()
	archive(t, filepath.Join(dir, "g.npz"), typedArrays(t))
	for name, content := range typedArrays(t) {
		write(t, filepath.Join(dir, "all", name+".npy"), content)
	}
	for _, in := range []string{"g.npz", "all"} {
		d, r := imported(t, dataset.ImportOptions{Format: "npz", In: filepath.Join(dir, in),
			Reverse: true})
		m := d.Meta
		if m.Vertices != 5 || m.Edges != 8 || m.LabelType != "paper" || m.Classes != 2 ||
			len(r.Notes) > 0 || !slices.Equal(m.Schema.Types, []string{"author", "paper"}) ||
			m.Tables[1].Features != 2 ||
			!slices.Equal(npy.View[int32](d.Labels.Data), []int32{-1, -1, -1, 1, 0}) ||
			!slices.Equal(d.Split.Train, []graph.VertexID{3}) ||
			!slices.Equal(d.Split.Test, []graph.VertexID{4}) {
			t.Errorf("%s: %+v, labels %v, split %+v, %s", in, m, d.Labels.Data, d.Split, r)
		}
		if got := d.Graph.InNeighbours(3); !slices.Equal(got, []graph.VertexID{0, 2, 4}) {
			t.Errorf("%s: in-neighbours of paper 0: %v", in, got)
		}
	}
}

// The report names the arrays that are not read, and those that change what a graph means are
// refused.
func TestImportTypedNotesArrays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.npz")
	arrays := typedArrays(t)
	for _, name := range []string{"junk,paper", "edge_attr,author,by,paper", "more"} {
		arrays[name] = array(t, make([]float32, 3), 3)
	}
	archive(t, path, arrays)
	_, r := imported(t, dataset.ImportOptions{Format: "npz", In: path})
	slices.Sort(r.Notes)
	if want := []string{"array edge_attr,author,by,paper is not read", "array more is not read",
		"paper: array junk is not read"}; !slices.Equal(r.Notes, want) {
		t.Errorf("notes %q, want %q", r.Notes, want)
	}
	delete(arrays, "num_nodes,author")
	arrays["x,author"] = array(t, []float32{0, float32(math.NaN()), 0}, 3, 1)
	archive(t, path, arrays)
	_, err := dataset.Import(dataset.ImportOptions{Format: "npz", In: path, Out: path + ".out"})
	if err == nil || !strings.Contains(err.Error(), "g.npz (author): x: features: vertex 1") ||
		strings.Count(err.Error(), "g.npz") != 1 {
		t.Error(err)
	}
	arrays["x_indptr,author"] = arrays["more"]
	archive(t, path, arrays)
	_, err = dataset.Import(dataset.ImportOptions{Format: "npz", In: path, Out: path + ".out"})
	if err == nil || !strings.Contains(err.Error(), "(author): x_indptr: ") {
		t.Error(err)
	}
}

// An archive with relations alone is refused, and closed.
func TestImportTypedArraysCloses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.npz")
	archive(t, path, map[string][]byte{"edge_index,a,by,b": array(t, []int64{0, 0}, 2, 1)})
	_, err := dataset.Import(dataset.ImportOptions{Format: "npz", In: path, Out: path + ".out"})
	if err == nil || !strings.Contains(err.Error(), "joins a type that has no vertices here") {
		t.Error(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); to == path {
			t.Error("the archive is still open")
		}
	}
}

// A table beside nodes.csv is of no type, and a directory may have any name.
func TestImportTypedTablesAreFound(t *testing.T) {
	plain := written(t, map[string]string{"nodes.csv": "id,f\na,1\nb,2\n",
		"edges.csv": "source,target\na,b\n", "nodes.backup.csv": "id,f\na,1\n"})
	d, _ := imported(t, dataset.ImportOptions{Format: "csv", In: plain})
	if d.Meta.Schema.Typed() || d.Meta.Vertices != 2 {
		t.Errorf("beside a backup: %+v", d.Meta)
	}
	if err := os.Remove(filepath.Join(plain, "nodes.csv")); err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(plain, "nodes.backup.csv")
	write(t, named, []byte("id,f\na,1\nb,2\n"))
	d, _ = imported(t, dataset.ImportOptions{Format: "csv", In: plain,
		Table: dataset.TableOptions{Nodes: named}})
	if d.Meta.Schema.Typed() || d.Meta.Vertices != 2 {
		t.Errorf("with a node table named: %+v", d.Meta)
	}
	odd := filepath.Join(t.TempDir(), "br[1]")
	if err := os.Rename(typedTables(t), odd); err != nil {
		t.Fatal(err)
	}
	d, _ = imported(t, dataset.ImportOptions{Format: "csv", In: odd})
	if len(d.Meta.Schema.Types) != 2 {
		t.Errorf("in br[1]: %+v", d.Meta)
	}
	if err := os.Rename(typedOGB(t), filepath.Join(odd, "ogb")); err != nil {
		t.Fatal(err)
	}
	_, r := imported(t, dataset.ImportOptions{Format: "ogb", In: filepath.Join(odd, "ogb")})
	if r.Split != "split/paper" {
		t.Errorf("OGB in br[1]: split %s", r.Split)
	}
	for name, content := range typedArrays(t) {
		write(t, filepath.Join(odd, "arrays", name+".npy"), content)
	}
	d, _ = imported(t, dataset.ImportOptions{Format: "npz", In: filepath.Join(odd, "arrays")})
	if len(d.Meta.Schema.Types) != 2 {
		t.Errorf("arrays in br[1]: %+v", d.Meta)
	}
}

// Links of one relation are split, and leave it and those that hold them reversed, whatever these
// are called, but none that has other pairs, too; files of links have ids of both types.
func TestImportTypedLinks(t *testing.T) {
	dir := written(t, map[string]string{
		"nodes.paper.csv":              "id,a\n7,1\n8,2\n9,3\n",
		"nodes.author.csv":             "id,label\n1,x\n2,y\n",
		"edges.author.by.paper.csv":    "source,target\n1,7\n2,7\n2,9\n1,8\n",
		"edges.paper.of.author.csv":    "source,target\n7,1\n7,2\n9,2\n8,1\n",
		"edges.paper.seen.author.csv":  "source,target\n7,1\n7,2\n8,2\n9,1\n",
		"edges.author.reads.paper.csv": "source,target\n2,9\n1,9\n",
	})
	split := t.TempDir()
	for name, pairs := range map[string][]int32{"valid": {2, 9}, "test": {1, 7}} {
		if _, err := npy.WriteFile(filepath.Join(split, name+".npy"), pairs, 1, 2); err != nil {
			t.Fatal(err)
		}
	}
	o := dataset.ImportOptions{
		Format: "csv", In: dir, Task: task.Links, LinksOf: "by", SplitLinks: split,
	}
	d, r := imported(t, o)
	if err := d.Verify(); err != nil {
		t.Error(err)
	}
	// 1 and 2 are 0 and 1, papers 2, 3, 4
	want := graph.LinkSplit{
		Train: []graph.Link{{Source: 1, Target: 2}, {Source: 0, Target: 3}},
		Valid: []graph.Link{{Source: 1, Target: 4}}, Test: []graph.Link{{Source: 0, Target: 2}},
	}
	if !reflect.DeepEqual(d.Links, want) {
		t.Errorf("links %v, want %v", d.Links, want)
	}
	if got := d.Meta.Schema.Links; len(got) != 2 || !strings.Contains(r.Links, "paper,of,author") {
		t.Errorf("links are of the relations %v: %s", got, r.Links)
	}
	if d.Meta.Edges != 2+2+4+2 || d.Meta.Task != task.Links || d.Meta.Classes != 0 {
		t.Errorf("%d edges, task %s of %d classes", d.Meta.Edges, d.Meta.Task, d.Meta.Classes)
	}
	for want, change := range map[string]func(o *dataset.ImportOptions){
		"name the one whose edges": func(o *dataset.ImportOptions) { o.LinksOf = "" },
		"names no relation":        func(o *dataset.ImportOptions) { o.LinksOf = "wrote" },
		"no training links":        func(o *dataset.ImportOptions) { o.SplitLinks = "0/50/50" },
		"has no relations": func(o *dataset.ImportOptions) {
			o.In = filepath.Join(dir, "edges.author.by.paper.csv")
		},
	} {
		bad := o
		bad.Out = filepath.Join(t.TempDir(), "d")
		change(&bad)
		if _, err := dataset.Import(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Validation and test links are edges of no relation that tells them: not of a reverse with an edge
// more or less, of a relation that has most of the pairs the same way, nor of reverses of these.
// Ranked by whether an edge of another relation joins the ends, a held-out link is among the
// others, and with the leak it is the first.
func TestHeldOutLinksLeaveTheGraph(t *testing.T) {
	const users, movies = 20, 15
	var pairs [][2]int
	for u := range users {
		for m := range movies {
			if (u*7+m*3)%5 < 2 {
				pairs = append(pairs, [2]int{u, m})
			}
		}
	}
	rows := func(pairs [][2]int, reverse bool) string {
		text := "source,target\n"
		for _, p := range pairs {
			if reverse {
				text += fmt.Sprintf("m%d,u%d\n", p[1], p[0])
			} else {
				text += fmt.Sprintf("u%d,m%d\n", p[0], p[1])
			}
		}
		return text
	}
	nodes := func(letter string, n int) string {
		text := "id,f\n"
		for v := range n {
			text += fmt.Sprintf("%s%d,%d\n", letter, v, v)
		}
		return text
	}
	for name, c := range map[string]struct {
		file, text string
		reverse    bool
	}{
		"a reverse": {"edges.movie.ratedby.user.csv", rows(pairs, true), false},
		"a reverse, an edge less": {"edges.movie.ratedby.user.csv", rows(pairs[1:], true),
			false},
		"a reverse, an edge more": {"edges.movie.ratedby.user.csv",
			rows(append(pairs[:len(pairs):len(pairs)], [2]int{0, 14}), true), false},
		"the reverse of a reverse": {"edges.movie.ratedby.user.csv", rows(pairs[1:], true), true},
		"the same way, an edge more": {"edges.user.likes.movie.csv",
			rows(append(pairs[:len(pairs):len(pairs)], [2]int{0, 14}), false), true},
		"some of the pairs": {"edges.user.likes.movie.csv", rows(pairs[:len(pairs)/2], false),
			false},
	} {
		dir := written(t, map[string]string{
			"nodes.user.csv":             nodes("u", users),
			"nodes.movie.csv":            nodes("m", movies),
			"edges.user.rates.movie.csv": rows(pairs, false),
			c.file:                       c.text,
		})
		o := dataset.ImportOptions{
			Format: "csv", In: dir, Task: task.Links, LinksOf: "user,rates,movie",
			SplitLinks: "70/10/20", Reverse: c.reverse,
		}
		d, _ := imported(t, o)
		if err := d.Verify(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		o.KeepLeaks = true
		kept, r := imported(t, o)
		if got := reciprocalRank(d); got > 0.5 {
			t.Errorf("%s: an edge of another relation ranks links at %.2f", name, got)
		}
		if got := reciprocalRank(kept); got < 0.5 && name != "some of the pairs" {
			t.Errorf("%s: kept, an edge of another relation ranks links at %.2f", name, got)
		}
		if !strings.Contains(strings.Join(r.Notes, "\n"), "stay in the graph") ||
			!strings.Contains(r.String(), "stay in the graph") {
			t.Errorf("%s: nothing says that links stay: %s", name, r)
		}
	}
}

// reciprocalRank is the mean reciprocal rank of the test links among the movies, vertices 0 to 14,
// that the user has no link to, by whether an edge joins the ends.
func reciprocalRank(d *dataset.Dataset) (mean float64) {
	joined := func(u, m graph.VertexID) bool {
		return slices.Contains(d.Graph.InNeighbours(m), u) ||
			slices.Contains(d.Graph.InNeighbours(u), m)
	}
	links := slices.Concat(d.Links.Train, d.Links.Valid, d.Links.Test)
	for _, l := range d.Links.Test {
		above, same := 0, 0
		for m := range graph.VertexID(15) {
			if slices.Contains(links, graph.Link{Source: l.Source, Target: m}) {
				continue
			}
			if of := joined(l.Source, m); of && !joined(l.Source, l.Target) {
				above++
			} else if of == joined(l.Source, l.Target) {
				same++
			}
		}
		mean += 1 / (1 + float64(above) + float64(same)/2) / float64(len(d.Links.Test))
	}
	return mean
}
