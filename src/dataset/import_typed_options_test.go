package dataset_test

import (
	"slices"
	"testing"

	"halognn/src/dataset"
	"halognn/src/graph"
)

// in returns the in-neighbours of a vertex by a relation, and where they begin among all edges.
func in(d *dataset.Dataset, v graph.VertexID, relation string) (sources []graph.VertexID, first int64) {
	r := slices.IndexFunc(d.Meta.Schema.Relations, func(r graph.Relation) bool { return r.String() == relation })
	kind, column, _ := d.Columns.Of(v)
	c := int(column) + slices.Index(d.Columns.Into(kind), r)
	return d.Graph.Indices[d.Columns.Indptr[c]:d.Columns.Indptr[c+1]], d.Columns.Indptr[c]
}

// A relation that joins a type to itself takes the reverses of its edges; one of two types has them as
// a relation, if a column of directions says so, of all edges or of some.
func TestImportTypedUndirected(t *testing.T) {
	files := func(by, cites string) string {
		return written(t, map[string]string{"nodes.paper.csv": "id\np1\np2\np3\n", "nodes.author.csv": "id\nann\nbob\n",
			"edges.author.by.paper.csv": by, "edges.paper.cites.paper.csv": cites})
	}
	for name, c := range map[string]struct {
		in       string
		options  dataset.ImportOptions
		edges    int64
		backward string // the authors of p1 of the reverse relation, and its weights
	}{
		"by column": {files("source,target,weight,Type\nann,p1,2,Undirected\nbob,p1,3,Undirected\nbob,p3,4,Undirected\n",
			"source,target,Type\np1,p2,Undirected\np2,p3,undirected\n"), dataset.ImportOptions{}, 3 + 3 + 4, "both"},
		"some": {files("source,target,weight,Type\nann,p1,2,Undirected\nbob,p1,3,Directed\nbob,p3,4,Undirected\n",
			"source,target,Type\np1,p2,Undirected\np2,p3,Directed\n"), dataset.ImportOptions{}, 3 + 2 + 3, "ann"},
		"none, as is said": {files("source,target,weight,Type\nann,p1,2,Undirected\nbob,p1,3,Directed\nbob,p3,4,Undirected\n",
			"source,target,Type\np1,p2,Undirected\np2,p3,Directed\n"), dataset.ImportOptions{Undirected: dataset.No}, 5, ""},
		"all reversed already": {files("source,target,weight,Type\nann,p1,2,Undirected\nbob,p1,3,Directed\nbob,p3,4,Undirected\n",
			"source,target,Type\np1,p2,Undirected\np2,p3,Directed\n"), dataset.ImportOptions{Reverse: true}, 10, "both"},
	} {
		c.options.Format, c.options.In = "csv", c.in
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
			if !slices.Equal(got, want) || !slices.Equal(d.Weights[first:first+int64(len(got))], weights) {
				t.Errorf("%s: papers of author %d: %v, want %v, weights %v", name, author, got, want, weights)
			}
		}
		if got, _ := in(d, 3, "paper,cites,paper"); !c.options.Reverse && c.backward != "" &&
			(len(got) != map[string]int{"both": 2, "ann": 1}[c.backward] || got[0] != 2) {
			t.Errorf("%s: p2 is cited by %v", name, got)
		}
	}
}
