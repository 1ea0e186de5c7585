package shardtest

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// BareOptions say what the graph that Bare writes has besides edges and labels.
type BareOptions struct{ Links, EdgeFeatures, Sparse bool }

// Bare writes a graph of one type, without features, or with sparse rows of different lengths. Most
// in-edges of a vertex come from its own class.
func Bare(t testing.TB, o BareOptions) string {
	t.Helper()
	const n, classes = 240, 3
	dir := filepath.Join(t.TempDir(), "bare")
	r := rand.New(rand.NewPCG(3, 4))
	var source, target, ids []graph.VertexID
	labels := make([]int32, n)
	for v := range n {
		labels[v], ids = int32(v%classes), append(ids, graph.VertexID(v))
		for range 3 + r.IntN(4) {
			u := r.IntN(n/classes)*classes + v%classes
			if r.IntN(8) == 0 {
				u = r.IntN(n)
			}
			source, target = append(source, graph.VertexID(u)), append(target, graph.VertexID(v))
		}
	}
	w, err := dataset.Create(dir, dataset.Meta{Name: "bare", Task: task.Multiclass,
		Classes: classes})
	must(t, err)
	g, err := graph.FromEdges(n, source, target)
	must(t, err)
	g, _ = graph.Clean(g, graph.CleanOptions{Undirected: true})
	var links graph.LinkSplit
	if o.Links {
		w.Meta.Task, w.Meta.Classes = task.Links, 0
		links = dataset.SplitLinks(g, dataset.Fractions{0.6, 0.2, 0.2}, 1, true)
		g.DropEdges(nil, dataset.Judged(&links))
	}
	must(t, w.Topology(g))
	if o.EdgeFeatures {
		rows := make([]float32, g.NumEdges()*2)
		for i := range rows {
			rows[i] = r.Float32()
		}
		must(t, w.EdgeFeatures(rows, 2))
	}
	cols := 0
	if o.Sparse {
		cols = 24
	}
	row := make([]float32, cols)
	must(t, w.WriteFeatures(cols, dataset.Sparse, nil, func(rows *dataset.RowWriter) error {
		r := rand.New(rand.NewPCG(5, 6))
		for range n {
			clear(row)
			for range r.IntN(cols+1) / 3 { // some rows have no entries
				row[r.IntN(cols)] = r.Float32()
			}
			if err := rows.Write(row); err != nil {
				return err
			}
		}
		return nil
	}))
	if o.Links {
		must(t, w.Links(links))
		must(t, w.Close())
		return dir
	}
	must(t, w.Labels(mem.Bytes(labels)))
	r.Shuffle(n, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	must(t, w.Splits(graph.Split{Train: ids[:120], Valid: ids[120:180], Test: ids[180:]}))
	must(t, w.Close())
	return dir
}
