package dataset_test

// These tests import graphs with vertex types by the options that name types and relations.

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/topology/graph"
)

// in returns the in-neighbours of a vertex by a relation, and where they begin among all edges.
func in(
	d *dataset.Dataset, v graph.VertexID, relation string,
) (sources []graph.VertexID, first int64) {
	r := slices.IndexFunc(d.Meta.Schema.Relations, func(r graph.Relation) bool {
		return r.String() == relation
	})
	kind, column, _ := d.Columns.Of(v)
	c := int(column) + slices.Index(d.Columns.Into(kind), r)
	return d.Graph.Indices[d.Columns.Indptr[c]:d.Columns.Indptr[c+1]], d.Columns.Indptr[c]
}

// rowsOf returns the feature rows of a type.
func rowsOf(t *testing.T, d *dataset.Dataset, kind string) []float32 {
	return load[float32](t, d.Dir, "features."+kind+".npy")
}

// Of each type the columns have mean 0 and variance 1: of the one with labels over its training
// vertices, of others over all. Another graph takes the same shifts and scales, type by type.
func TestImportTypedStandardizes(t *testing.T) {
	files := map[string]string{
		"nodes.paper.csv": "id,label,split,a,b\n" +
			"p1,x,train,1,2\n" +
			"p2,y,train,3,2\n" +
			"p3,x,test,5,6\n",
		"nodes.author.csv":          "id,h\nann,1\nbob,5\n",
		"nodes.venue.csv":           "id\nv\n",
		"edges.author.by.paper.csv": "source,target\nann,p1\nbob,p3\n",
		"edges.paper.in.venue.csv":  "source,target\np1,v\n",
	}
	d, r := imported(t, dataset.ImportOptions{
		Format: "csv", In: written(t, files), Standardize: true,
	})
	// paper: a has mean 2 and deviation 1 over p1 and p2, b is constant there; author: mean 3,
	// deviation 2
	if got, want := rowsOf(t, d, "paper"), []float32{-1, 0, 1, 0, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("papers %v, want %v", got, want)
	}
	if got, want := rowsOf(t, d, "author"), []float32{-1, 1}; !slices.Equal(got, want) {
		t.Errorf("authors %v, want %v", got, want)
	}
	for _, want := range []string{
		"paper: features standardized: mean 0 and variance 1 over the 2 training vertices",
		"author: features standardized: mean 0 and variance 1 over all 2 vertices",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("no %q in\n%s", want, r)
		}
	}
	files["nodes.author.csv"] = "id,h\nann,7\n"
	files["nodes.paper.csv"] = "id,b,a\np1,6,5\np3,2,4\n"
	files["edges.author.by.paper.csv"] = "source,target\nann,p1\n"
	other, _ := imported(t, dataset.ImportOptions{
		Format: "csv", In: written(t, files), StandardizeAs: d.Dir,
	})
	if got, want := rowsOf(t, other, "paper"), []float32{3, 4, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("papers as there %v, want %v", got, want)
	}
	if got, want := rowsOf(t, other, "author"), []float32{2}; !slices.Equal(got, want) {
		t.Errorf("authors as there %v, want %v", got, want)
	}
	if d.Meta.Scaling() == "" || d.Meta.Scaling() != other.Meta.Scaling() {
		t.Errorf("scaling %q, and as there %q", d.Meta.Scaling(), other.Meta.Scaling())
	}
	plain, _ := imported(t, dataset.ImportOptions{Format: "csv", In: written(t, files)})
	if plain.Meta.Scaling() != "" {
		t.Errorf("scaling %q of rows that are as they were", plain.Meta.Scaling())
	}
	for dir, want := range map[string]string{plain.Dir: "was not standardized",
		d.Dir: "1 feature columns here of venue, but 0"} {
		files["nodes.venue.csv"] = "id,x\nv,1\n"
		_, err := dataset.Import(dataset.ImportOptions{
			Format: "csv", In: written(t, files), StandardizeAs: dir,
			Out: filepath.Join(t.TempDir(), "d"),
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A relation that joins a type to itself takes the reverses of its edges; one of two types has them
// as a relation, whether an option or a column of directions says so, and of all edges or of some.
func TestImportTypedUndirected(t *testing.T) {
	files := func(by, cites string) string {
		return written(t, map[string]string{
			"nodes.paper.csv":             "id\np1\np2\np3\n",
			"nodes.author.csv":            "id\nann\nbob\n",
			"edges.author.by.paper.csv":   by,
			"edges.paper.cites.paper.csv": cites,
		})
	}
	const (
		by    = "source,target,w\nann,p1,2\nbob,p1,3\nbob,p3,4\n"
		cites = "source,target\np1,p2\np2,p3\n"
	)
	undirected := files(
		"source,target,w,Type\n"+
			"ann,p1,2,Undirected\n"+
			"bob,p1,3,Undirected\n"+
			"bob,p3,4,Undirected\n",
		"source,target,Type\n"+
			"p1,p2,Undirected\n"+
			"p2,p3,undirected\n")
	mixed := files(
		"source,target,w,Type\n"+
			"ann,p1,2,Undirected\n"+
			"bob,p1,3,Directed\n"+
			"bob,p3,4,Undirected\n",
		"source,target,Type\n"+
			"p1,p2,Undirected\n"+
			"p2,p3,Directed\n")
	for name, c := range map[string]struct {
		in       string
		options  dataset.ImportOptions
		edges    int64
		backward string // the authors of p1 of the reverse relation, and its weights
	}{
		"by option": {
			files(by, cites), dataset.ImportOptions{Undirected: dataset.Yes}, 3 + 3 + 4, "both",
		},
		"by column":            {undirected, dataset.ImportOptions{}, 3 + 3 + 4, "both"},
		"some":                 {mixed, dataset.ImportOptions{}, 3 + 2 + 3, "ann"},
		"none, as is said":     {mixed, dataset.ImportOptions{Undirected: dataset.No}, 5, ""},
		"all reversed already": {mixed, dataset.ImportOptions{Reverse: true}, 10, "both"},
	} {
		c.options.Format, c.options.In = "csv", c.in
		c.options.Table.Weight = "by=w"
		d, r := imported(t, c.options)
		if d.Meta.Edges != c.edges || r.Cleaning.After != c.edges {
			t.Errorf("%s: %d edges, want %d; %s", name, d.Meta.Edges, c.edges, r.Cleaning)
		}
		// ann 0, bob 1, p1 2, p2 3, p3 4
		for author, want := range map[graph.VertexID][]graph.VertexID{0: {2}, 1: {2, 4}} {
			weights := map[graph.VertexID][]float32{0: {2}, 1: {3, 4}}[author]
			switch {
			case c.backward == "":
				if len(d.Meta.Schema.Relations) != 2 {
					t.Errorf("%s: relations %v", name, d.Meta.Schema.Relations)
				}
				continue
			case c.backward == "ann" && author == 1:
				want, weights = want[1:], weights[1:]
			}
			got, first := in(d, author, "paper,rev_by,author")
			if !slices.Equal(got, want) ||
				!slices.Equal(d.Weights[first:first+int64(len(got))], weights) {
				t.Errorf("%s: papers of author %d: %v, want %v, weights %v", name, author, got,
					want, weights)
			}
		}
		if got, _ := in(d, 3, "paper,cites,paper"); !c.options.Reverse && c.backward != "" &&
			(len(got) != map[string]int{"both": 2, "ann": 1}[c.backward] || got[0] != 2) {
			t.Errorf("%s: p2 is cited by %v", name, got)
		}
	}
	_, err := dataset.Import(dataset.ImportOptions{
		Format: "csv", In: files(by, cites), Reverse: true, Undirected: dataset.Yes, DryRun: true,
	})
	if err == nil || !strings.Contains(err.Error(), "exclude each other") {
		t.Error(err)
	}
}

// Weights and features of edges are those of the columns that tables have: without a weight an edge
// weighs 1, without a feature it has 0. An option may name the column of one relation alone.
func TestImportTypedEdgeColumns(t *testing.T) {
	dir := written(t, map[string]string{
		"nodes.paper.csv":  "id\np1\np2\n",
		"nodes.author.csv": "id\nann\nbob\n",
		"edges.author.by.paper.csv": "source,target,w,place,year\n" +
			"ann,p1,2,1,1999\n" +
			"bob,p1,3,2,2000\n" +
			"ann,p1,5,1,1999\n",
		"edges.paper.cites.paper.csv": "source,target,year,n\np1,p2,2001,7\n",
	})
	d, r := imported(t, dataset.ImportOptions{Format: "csv", In: dir,
		Table: dataset.TableOptions{Weight: "w", EdgeFeatures: []string{"place", "year"}}})
	// in-edges of p1 by ann and bob, then of p2 by p1
	if !slices.Equal(d.Weights, []float32{7, 3, 1}) ||
		!slices.Equal(d.EdgeRows, []float32{1, 1999, 2, 2000, 0, 2001}) ||
		d.Meta.EdgeFeatures != 2 {
		t.Errorf("weights %v, features %v of %d columns", d.Weights, d.EdgeRows,
			d.Meta.EdgeFeatures)
	}
	if !strings.Contains(r.String(),
		"1 edges of author,by,paper come several times with weights that differ") {
		t.Errorf("report:\n%s", r)
	}
	d, _ = imported(t, dataset.ImportOptions{
		Format: "csv", In: dir, Weights: graph.MergeMax,
		Table: dataset.TableOptions{
			Weight: "by=w,paper.cites.paper=n", EdgeFeatures: []string{"cites=year"},
		},
	})
	if !slices.Equal(d.Weights, []float32{5, 3, 7}) ||
		!slices.Equal(d.EdgeRows, []float32{0, 0, 2001}) {
		t.Errorf("weights %v, features %v", d.Weights, d.EdgeRows)
	}
	for want, table := range map[string]dataset.TableOptions{
		`no edge table has a column "v", which --weight names`: {Weight: "v"},
		`there is no column "place", which --weight names; the columns are s`: {
			Weight: "cites=place",
		},
		`no edge table has a column "z", which --edge-features names`: {
			EdgeFeatures: []string{"year", "z"},
		},
	} {
		_, err := dataset.Import(dataset.ImportOptions{
			Format: "csv", In: dir, Table: table, DryRun: true,
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// An option may name the columns, or the file, of one type.
func TestImportTypedNodeColumns(t *testing.T) {
	dir := typedTables(t)
	write(t, filepath.Join(dir, "nodes.author.csv"), []byte("key,born,h\nann,1950,3\nbob,1960,4\n"))
	write(t, filepath.Join(dir, "y.npy"), array(t, []int64{1, 0}, 2))
	write(t, filepath.Join(dir, "y.txt"), []byte("b\na\n"))
	write(t, filepath.Join(dir, "x.npy"), array(t, []float32{1, 2, 3, 4}, 2, 2))
	of := func(name string) string { return "author=" + filepath.Join(dir, name) }
	ignore := []string{"label", "split"}
	d, _ := imported(t, dataset.ImportOptions{
		Format: "csv", In: dir, Ignore: ignore,
		Table: dataset.TableOptions{
			ID: "author=key", Labels: []string{of("y.npy")}, Features: []string{of("x.npy")},
		},
	})
	if d.Meta.LabelType != "author" ||
		!slices.Equal(npy.View[int32](d.Labels.Data), []int32{1, 0, -1, -1, -1}) ||
		!slices.Equal(rowsOf(t, d, "author"), []float32{1, 2, 3, 4}) {
		t.Errorf("labels %v of %s, rows %v", npy.View[int32](d.Labels.Data), d.Meta.LabelType,
			rowsOf(t, d, "author"))
	}
	if got := rowsOf(t, d, "paper"); !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6}) {
		t.Errorf("papers %v", got)
	}
	d, _ = imported(t, dataset.ImportOptions{
		Format: "csv", In: dir, Ignore: ignore,
		Table: dataset.TableOptions{
			Labels: []string{of("y.txt")}, Features: []string{"author=h", "born"},
		},
	})
	if !slices.Equal(npy.View[int32](d.Labels.Data), []int32{1, 0, -1, -1, -1}) ||
		!slices.Equal(rowsOf(t, d, "author"), []float32{3, 1950, 4, 1960}) ||
		!slices.Equal(d.Meta.Tables[0].Names, []string{"h", "born"}) {
		t.Errorf("labels %v, rows %v", npy.View[int32](d.Labels.Data), rowsOf(t, d, "author"))
	}
	for want, table := range map[string]dataset.TableOptions{
		"y.npy: of which type are the rows? Say --label TYPE=": {
			Labels: []string{"y.npy"},
		},
		"x.npy: of which type are the rows? Say --features TYPE=": {
			Features: []string{"x.npy"},
		},
		"; --label NAME=COLUMN names a column of one type or relation only": {
			Labels: []string{"born"},
		},
		`there is no column "venue=born", which --label names`: {
			Labels: []string{"venue=born"},
		},
		`"venue" before = is not one of the names here, author, paper`: {
			Labels: []string{"venue=born"},
		},
		`--label venue=y.npy: "venue" before = is not one of the`: {
			Labels: []string{"venue=y.npy"},
		},
		`"wirtes" before = is not one of the names here, author.by.`: {Weight: "wirtes=w"},
	} {
		_, err := dataset.Import(dataset.ImportOptions{
			Format: "csv", In: dir, Table: table, DryRun: true,
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Keys say what the arrays of all types and relations are called; weights of edges are read by
// their usual name, and features, which no model of relations reads, where keys name them.
func TestImportTypedKeys(t *testing.T) {
	arrays := typedArrays(t)
	for old, name := range map[string]string{
		"x,paper":                      "rows,paper",
		"y,paper":                      "year,paper",
		"edge_index,author,by,paper":   "links,author,by,paper",
		"edge_index,paper,cites,paper": "links,paper,cites,paper",
	} {
		arrays[name] = arrays[old]
		delete(arrays, old)
	}
	arrays["edge_weight,author,by,paper"] = array(t, []float32{.5, 2, 4}, 3)
	arrays["edge_attr,paper,cites,paper"] = array(t, []float32{8}, 1, 1)
	path := filepath.Join(t.TempDir(), "g.npz")
	archive(t, path, arrays)
	o := dataset.ImportOptions{Format: "npz", In: path, Keys: map[string]string{
		"x":          "rows",
		"y":          "year",
		"edge_index": "links",
		"edge_attr":  "edge_attr",
	}}
	d, r := imported(t, o)
	if !slices.Equal(rowsOf(t, d, "paper"), []float32{1, 2, 3, 4}) || d.Meta.LabelType != "paper" ||
		d.Meta.Edges != 4 ||
		!slices.Equal(r.Notes, []string{
			"the edges of author,by,paper have no features, unlike those of other relations; " +
				"each gets zeros",
			"the edges of paper,cites,paper have no weights, unlike those of other relations; " +
				"each gets the weight 1",
		}) {
		t.Errorf("%+v, %s", d.Meta, r)
	}
	// authors 0 and 2 of paper 0, which cites nothing and is cited by paper 1
	if !slices.Equal(d.Weights, []float32{.5, 2, 1, 4}) ||
		!slices.Equal(d.EdgeRows, []float32{0, 0, 8, 0}) {
		t.Errorf("weights %v, features %v of %v", d.Weights, d.EdgeRows, d.Graph.Indices)
	}
	// by its usual name, beside rows of papers
	arrays["x,author"] = array(t, []float32{7, 8, 9}, 3, 1)
	o.In = filepath.Join(t.TempDir(), "g.npz")
	archive(t, o.In, arrays)
	if d, _ := imported(t, o); !slices.Equal(rowsOf(t, d, "author"), []float32{7, 8, 9}) {
		t.Errorf("authors %v", rowsOf(t, d, "author"))
	}
	o.Keys["x"], o.DryRun = "nothing", true
	_, err := dataset.Import(o)
	if err == nil ||
		!strings.Contains(err.Error(), `no array "nothing", which --keys names for x`) {
		t.Error(err)
	}
}

// Relations have features of one width, whichever is read first.
func TestImportTypedWidthsOfEdgeFeatures(t *testing.T) {
	dir := written(t, map[string]string{
		"nodes.paper.csv":             "id\np1\np2\n",
		"nodes.author.csv":            "id\nann\nbob\n",
		"edges.author.by.paper.csv":   "source,target,f,g\nann,p1,1,2\nbob,p1,3,4\n",
		"edges.paper.cites.paper.csv": "source,target,f,g\np1,p2,5,6\n",
	})
	for _, c := range []struct {
		features []string
		want     string
	}{
		{[]string{"by=f", "cites=f", "g"},
			"paper,cites,paper have 2 columns of features, but others have 1; name the same " +
				"number"},
		{[]string{"by=f", "g", "cites=f"},
			"paper,cites,paper have 1 columns of features, but others have 2; name the same " +
				"number"},
		{[]string{"by=", "cites=f"}, "--edge-features: the name of a column is empty"},
		{[]string{"f", ""}, "--edge-features: the name of a column is empty"},
	} {
		_, err := dataset.Import(dataset.ImportOptions{
			Format: "csv", In: dir, Out: filepath.Join(t.TempDir(), "d"),
			Table: dataset.TableOptions{EdgeFeatures: c.features},
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.features, err, c.want)
		}
	}
}

// An empty name of a column is an error, and an empty name of a type.
func TestImportEmptyNames(t *testing.T) {
	files := map[string]string{
		"nodes.paper.csv":             "id,y\np1,0\np2,1\n",
		"edges.paper.cites.paper.csv": "source,target\np1,p2\n",
	}
	plain := map[string]string{
		"nodes.csv": "id,y\np1,0\np2,1\n",
		"edges.csv": "source,target,w\np1,p2,1\n",
	}
	none := map[string]string{"nodes..csv": "id\na\nb\n", "edges..x..csv": "source,target\na,b\n",
		"edges..y..csv": "source,target\nb,a\n"}
	for _, c := range []struct {
		files map[string]string
		table dataset.TableOptions
		want  string
	}{
		{files, dataset.TableOptions{Labels: []string{"paper="}},
			"--label: the name of a column is empty"},
		{files, dataset.TableOptions{Features: []string{"paper="}},
			"--features: the name of a column is empty"},
		{plain, dataset.TableOptions{Labels: []string{"y", ""}},
			"--label: the name of a column is empty"},
		{plain, dataset.TableOptions{EdgeFeatures: []string{"w", ""}},
			"--edge-features: the name of a column is empty"},
		{none, dataset.TableOptions{}, `vertex type "": a name has letters`},
		{none, dataset.TableOptions{Weight: "x=w"}, `w`},
	} {
		_, err := dataset.Import(dataset.ImportOptions{
			Format: "csv", In: written(t, c.files), Table: c.table, DryRun: true,
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.table, err, c.want)
		}
	}
}

// A label that is named for one type settles whose labels are read: no column of a usual name is,
// of others.
func TestImportTypedLabelOfOneType(t *testing.T) {
	dir := written(t, map[string]string{
		"nodes.paper.csv":           "id,topic\np1,b\np2,a\n",
		"nodes.author.csv":          "id,label,h\nann,1,5\n",
		"edges.author.by.paper.csv": "source,target\nann,p1\n",
	})
	d, r := imported(t, dataset.ImportOptions{Format: "csv", In: dir, Table: dataset.TableOptions{
		Labels: []string{"paper=topic"}}})
	if got := rowsOf(t, d, "author"); d.Meta.LabelType != "paper" ||
		!slices.Equal(got, []float32{5}) ||
		!strings.Contains(r.String(),
			"nodes.author.csv: label: ignored (--label names the labels of another type)") {
		t.Errorf("labels of %s, rows %v\n%s", d.Meta.LabelType, got, r)
	}
}

// A graph is undirected if all its relations are, as a column says; reverses that are there are not
// added.
func TestImportTypedReversesThatAreThere(t *testing.T) {
	files := map[string]string{"nodes.paper.csv": "id\np1\np2\n", "nodes.author.csv": "id\nann\n",
		"edges.author.by.paper.csv": "source,target,Type\nann,p1,Undirected\n"}
	d, r := imported(t, dataset.ImportOptions{Format: "csv", In: written(t, files)})
	if !r.Undirected || d.Meta.Edges != 2 ||
		!slices.Contains(r.Notes,
			"the edges of author,by,paper are undirected, as column Type of "+
				"edges.author.by.paper.csv says: the reverse of each was added") {
		t.Errorf("undirected %t, %d edges, %q", r.Undirected, d.Meta.Edges, r.Notes)
	}
	files["edges.paper.cites.paper.csv"] = "source,target\np1,p2\n"
	_, r = imported(t, dataset.ImportOptions{Format: "csv", In: written(t, files)})
	if r.Undirected {
		t.Error("undirected, with a relation that is directed")
	}
	files["edges.paper.rev_by.author.csv"] = "source,target\np1,ann\n"
	dir := written(t, files)
	for want, o := range map[string]dataset.ImportOptions{
		"say --directed":         {},
		"leave --reverse out":    {Reverse: true},
		"leave --undirected out": {Undirected: dataset.Yes},
	} {
		o.Format, o.In, o.DryRun = "csv", dir, true
		_, err := dataset.Import(o)
		if err == nil ||
			!strings.Contains(err.Error(),
				"relation paper,rev_by,author would come twice, because the source already has") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A column that is named for all relations must be there, though each relation has one of its own.
func TestImportTypedColumnsOfNone(t *testing.T) {
	dir := written(t, map[string]string{"nodes.paper.csv": "id\np1\np2\n",
		"edges.paper.cites.paper.csv": "source,target,w\np1,p2,3\n"})
	for want, table := range map[string]dataset.TableOptions{
		`no edge table has a column "foo", which --weight names`: {Weight: "foo,cites=w"},
		`no edge table has a column "foo", which --edge-features names`: {
			EdgeFeatures: []string{"foo", "cites=w"},
		},
	} {
		_, err := dataset.Import(dataset.ImportOptions{
			Format: "csv", In: dir, Table: table, DryRun: true,
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
