package dataset_test

// These tests import public graphs, each in its own format, and skip those that are not there.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
	"halognn/tests/race"
)

// realData returns the directory of a real data set, or skips the test with the reason.
func realData(t *testing.T, name string) string {
	t.Helper()
	root := os.Getenv("HALOGNN_DATA")
	if root == "" {
		root = filepath.Join("..", "..", "..", "..", "shared", "data")
	}
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("real data set %s is not at %s: set HALOGNN_DATA to the directory that holds it",
			name, dir)
	}
	return dir
}

// skipLarge skips data sets that take minutes under the race detector; small and synthetic ones
// cover the same code.
func skipLarge(t *testing.T, large bool) {
	t.Helper()
	if race.Detector && large {
		t.Skip("large real data set: skipped under the race detector, where it takes minutes; " +
			"run go test without -race")
	}
}

// imported runs an import, opens and verifies the result.
func imported(t *testing.T, o dataset.ImportOptions) (*dataset.Dataset, dataset.ImportReport) {
	t.Helper()
	if o.Out == "" {
		o.Out = filepath.Join(t.TempDir(), "out")
	}
	r, err := dataset.Import(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", r)
	d, err := dataset.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Verify(); err != nil {
		t.Fatal(err)
	}
	return d, r
}

func load[T npy.Element](t *testing.T, dir, name string) []T {
	t.Helper()
	r, err := npy.OpenReader(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	data, err := npy.ReadAll[T](r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The import of a public format equals the independently made copy of the same graph in plain
// arrays.
func TestImportEqualsNeutralCopy(t *testing.T) {
	for _, c := range []struct {
		name string
		o    dataset.ImportOptions
	}{
		{"amazon-computers", dataset.ImportOptions{Format: "npz"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			skipLarge(t, true)
			dir := realData(t, c.name)
			c.o.In = filepath.Join(dir, c.o.In)
			d, _ := imported(t, c.o)
			compareNeutral(t, d, filepath.Join(dir, "neutral"))
		})
	}
}

func compareNeutral(t *testing.T, d *dataset.Dataset, dir string) {
	t.Helper()
	var meta struct {
		Nodes      int      `json:"num_nodes"`
		Edges      int64    `json:"num_edges"`
		Classes    int      `json:"num_classes"`
		Storage    string   `json:"feature_storage"`
		Dim        int      `json:"feature_dim"`
		ClassNames []string `json:"class_names"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		t.Fatal(err)
	}
	m := d.Meta
	if int(m.Vertices) != meta.Nodes || m.Edges != 2*meta.Edges || m.Classes != meta.Classes ||
		m.Features != meta.Dim {
		t.Fatalf("got %d vertices, %d edges, %d classes, %d features; want %+v", m.Vertices,
			m.Edges, m.Classes, m.Features, meta)
	}
	if !slices.Equal(m.Provenance.Classes, meta.ClassNames) {
		t.Errorf("class names %q", m.Provenance.Classes)
	}
	edges := load[graph.VertexID](t, dir, "edges.npy")
	src, dst := make([]graph.VertexID, 0, len(edges)), make([]graph.VertexID, 0, len(edges))
	for i := 0; i < len(edges); i += 2 {
		src, dst = append(src, edges[i], edges[i+1]), append(dst, edges[i+1], edges[i])
	}
	raw, err := graph.FromEdges(meta.Nodes, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	compareGraphs(t, d.Graph, raw)
	if m.Task == task.Multilabel {
		if !slices.Equal(d.Labels.Data, load[uint8](t, dir, "labels.npy")) {
			t.Error("labels differ")
		}
	} else if !slices.Equal(npy.View[int32](d.Labels.Data), load[int32](t, dir, "labels.npy")) {
		t.Error("labels differ")
	}
	compareSplit(t, d.Split, load[int8](t, dir, "split.npy"))
	if meta.Storage == "csr" {
		compareSparse(t, d, dir)
	}
}

// compareGraphs compares g, whose neighbour lists are sorted, with want, whose lists are in any
// order.
func compareGraphs(t *testing.T, g, want *graph.CSC) {
	t.Helper()
	sorted, _ := graph.Clean(want, graph.CleanOptions{KeepLoops: true, KeepDuplicates: true})
	if !slices.Equal(g.Indptr, sorted.Indptr) || !slices.Equal(g.Indices, sorted.Indices) {
		t.Errorf("edges differ: %d, want %d", g.NumEdges(), want.NumEdges())
	}
}

func compareSplit(t *testing.T, s graph.Split, codes []int8) {
	t.Helper()
	var want [3][]graph.VertexID
	for v, c := range codes {
		if c >= 0 {
			want[c] = append(want[c], graph.VertexID(v))
		}
	}
	for i, got := range [][]graph.VertexID{s.Train, s.Valid, s.Test} {
		if !slices.Equal(got, want[i]) {
			t.Errorf("split %d has %d vertices, want %d, or other ones", i, len(got), len(want[i]))
		}
	}
}

func compareSparse(t *testing.T, d *dataset.Dataset, dir string) {
	t.Helper()
	ends, columns := load[int64](t, dir, "feat_indptr.npy"), load[int32](t, dir, "feat_indices.npy")
	var values []float32
	if _, err := os.Stat(filepath.Join(dir, "feat_values.npy")); err == nil {
		values = load[float32](t, dir, "feat_values.npy")
	}
	rows := load[float32](t, d.Dir, "features.npy")
	want := make([]float32, d.Meta.Features)
	for v := range int(d.Meta.Vertices) {
		clear(want)
		for k := ends[v]; k < ends[v+1]; k++ {
			want[columns[k]] = 1
			if values != nil {
				want[columns[k]] = values[k]
			}
		}
		if !slices.Equal(rows[v*len(want):(v+1)*len(want)], want) {
			t.Fatalf("features of vertex %d differ", v)
		}
	}
}

// The five Facebook networks in the OGB layout.
func TestImportFacebook(t *testing.T) {
	skipLarge(t, true)
	dir := realData(t, "fb100-5")
	a, r := imported(t, dataset.ImportOptions{Format: "ogb", In: filepath.Join(dir, "ogb")})
	if a.Meta.Vertices != 113505 || a.Meta.Edges != 2*3936326 || r.Cleaning.Reversed != 3936326 ||
		r.Labelled != 113505-19970 {
		t.Errorf("ogb: %+v", r)
	}
	if len(a.Split.Train) != 56121 || len(a.Split.Valid) != 18707 || len(a.Split.Test) != 18707 {
		t.Errorf("ogb: splits of %d, %d, %d", len(a.Split.Train), len(a.Split.Valid),
			len(a.Split.Test))
	}
}

func TestImportCondMat(t *testing.T) {
	dir := realData(t, "snap-ca-condmat")
	d, r := imported(t, dataset.ImportOptions{Format: "edgelist",
		In: filepath.Join(dir, "CA-CondMat.txt")})
	if d.Meta.Vertices != 23133 || d.Meta.Edges != 2*93439 || d.Meta.Task != task.None ||
		r.Cleaning.Before != 186936 || r.Cleaning.Loops != 58 {
		t.Errorf("%+v", r)
	}
	ids := load[int64](t, d.Dir, "original_id.npy")
	if len(ids) != 23133 || ids[0] != 1 || ids[len(ids)-1] != 108299 || !slices.IsSorted(ids) {
		t.Errorf("original ids %d ... %d", ids[0], ids[len(ids)-1])
	}
}

// The split may also come from a file or be drawn anew.
func TestImportAmazonWithSplitFile(t *testing.T) {
	skipLarge(t, true)
	dir := realData(t, "amazon-computers")
	in := filepath.Join(dir, "amazon_electronics_computers.npz")
	for _, file := range []string{filepath.Join(dir, "amazon-computer_split.npz"),
		filepath.Join(dir, "neutral", "split.npy")} {
		d, _ := imported(t, dataset.ImportOptions{Format: "npz", In: in, Split: file,
			FeatureType: dataset.Float16})
		compareSplit(t, d.Split, load[int8](t, filepath.Join(dir, "neutral"), "split.npy"))
		if d.Meta.FeatureType != dataset.Float16 {
			t.Errorf("features are %s", d.Meta.FeatureType)
		}
	}
}
