package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// A rank of a partitioned topology reads its own rows where the whole file would have them, and
// nothing else: the other ranges of its files may hold anything, and touching their pages is an
// error.
func TestRankOpensItsOwnRows(t *testing.T) {
	for _, of := range []string{task.Multiclass, task.Multilabel} {
		ds := makeDataset(t, rand.New(rand.NewPCG(1, 4)), 20000, dataset.Meta{
			Name: "wide", Task: of, Features: 1, Classes: 3,
		})
		dir := write(t, ds, 4)
		whole := open(t, dir, Options{})
		for _, ranks := range []int{1, 2, 4} {
			for rank := range ranks {
				first, last := whole.Offsets[rank*4/ranks], whole.Offsets[(rank+1)*4/ranks]
				damaged := copyDir(t, dir)
				rowsOf := whole.topology.Graph.Indptr
				spoil(t, damaged, "indices.npy", 4, rowsOf[first], rowsOf[last])
				spoil(t, damaged, "indptr.npy", 8, first, last+1)
				spoil(t, damaged, "labels.npy",
					int64(whole.Files["labels.npy"].Bytes)/whole.Vertices, first, last)
				for _, o := range []Options{
					{Rank: rank, Ranks: ranks},
					{Rank: rank, Ranks: ranks, CopyTopology: true, SharedMemory: t.TempDir()},
					{Rank: rank, Ranks: ranks, Stage: t.TempDir()},
				} {
					s := open(t, damaged, o)
					g, w := &s.Topology().Graph, &whole.topology.Graph
					if s.Topology().First != graph.VertexID(first) ||
						g.NumVertices() != int(last-first) {
						t.Fatalf("rank %d of %d holds %d rows from %d", rank, ranks,
							g.NumVertices(), s.Topology().First)
					}
					for v := first; v < last; v++ {
						if !slices.Equal(g.InNeighbours(graph.VertexID(v-first)),
							w.InNeighbours(graph.VertexID(v))) {
							t.Fatalf("rank %d of %d: other neighbours of vertex %d", rank, ranks, v)
						}
						if !bytes.Equal(s.Labels().Row(int(v)), whole.Labels().Row(int(v))) {
							t.Fatalf("rank %d of %d: another label of vertex %d", rank, ranks, v)
						}
					}
					err := mem.Guard(func() error {
						sum := graph.VertexID(0)
						for _, u := range g.Indices {
							sum += u
						}
						if sum == 1 {
							return errors.New("the sum")
						}
						return nil
					})
					if (ranks > 1) != errors.Is(err, mem.ErrWindow) || ranks > 1 &&
						!strings.Contains(err.Error(), "indices.npy") {
						t.Errorf("rank %d of %d reads all neighbours: %v", rank, ranks, err)
					}
					rows, common := s.MappedBytes()
					allRows, allCommon := whole.MappedBytes()
					own := (last-first+1)*8 + (rowsOf[last]-rowsOf[first]+last-first)*4
					if of == task.Multilabel {
						own += (last - first) * (3 - 4)
					}
					if rows < own || rows > own+6*int64(os.Getpagesize()) || rows > allRows ||
						common != allCommon {
						t.Errorf("rank %d of %d maps %d and %d bytes of %d and %d; its rows are %d",
							rank, ranks, rows, common, allRows, allCommon, own)
					}
				}
			}
		}
	}
	ds := small(t)
	if _, err := Open(write(t, ds, 4), Options{Ranks: 3}); !errors.Is(err, ErrRanks) {
		t.Errorf("4 parts on 3 ranks: %v", err)
	}
}

// spoil overwrites the rows of a file outside [first, last).
func spoil(t *testing.T, dir, name string, rowBytes, first, last int64) {
	t.Helper()
	path := filepath.Join(dir, name)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_, begin, err := npy.ReadHeader(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for i := int64(begin); i < int64(len(content)); i++ {
		if i < int64(begin)+first*rowBytes || i >= int64(begin)+last*rowBytes {
			content[i] = 0xFE
		}
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}

// copyDir copies a directory with its parts.
func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "parts")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// Row pointers or labels of all vertices are opened for those that ask for them; edges of others
// are not there all the same.
func TestRankOpensWhatItsModelReads(t *testing.T) {
	ds := makeDataset(t, rand.New(rand.NewPCG(1, 5)), 20000, dataset.Meta{
		Name: "wide", Task: task.Multiclass, Features: 1, Classes: 3,
	})
	dir := write(t, ds, 2)
	whole := open(t, dir, Options{})
	allRows, allCommon := whole.MappedBytes()
	for _, o := range []Options{{AllRows: true}, {AllLabels: true}} {
		o.Rank, o.Ranks = 1, 2
		s := open(t, dir, o)
		first := whole.Offsets[1]
		topology := s.Topology()
		err := mem.Guard(func() error {
			if o.AllLabels && !bytes.Equal(s.Labels().Data, whole.Labels().Data) {
				return errors.New("other labels")
			}
			for v := graph.VertexID(0); o.AllRows && int64(v) < whole.Vertices; v++ {
				if topology.Degree(v) != whole.Topology().Degree(v) {
					return errors.New("another degree")
				}
			}
			return nil
		})
		if err != nil || (topology.Rows != nil) != o.AllRows {
			t.Errorf("%+v: %v", o, err)
		}
		if v := graph.VertexID(first); topology.Degree(v) != whole.Topology().Degree(v) {
			t.Errorf("%+v: another degree of the first own vertex", o)
		}
		err = mem.Guard(func() error {
			if topology.Graph.Indices[0] == -1 {
				return errors.New("an edge")
			}
			return nil
		})
		if !errors.Is(err, mem.ErrWindow) {
			t.Errorf("%+v: an edge of another rank: %v", o, err)
		}
		if rows, common := s.MappedBytes(); rows > allRows*2/3 || common <= allCommon {
			t.Errorf("%+v: %d and %d bytes of %d and %d", o, rows, common, allRows, allCommon)
		}
	}
}

// Of a typed graph a rank opens the columns of its own vertices, beside their edges.
func TestRankOpensItsOwnColumns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mag")
	o := dataset.GenerateOptions{
		Kind: dataset.MAG, Vertices: 5000, Classes: 4, Features: 1, Seed: 3,
	}
	if err := dataset.Generate(dir, o); err != nil {
		t.Fatal(err)
	}
	ds, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	parts := write(t, ds, 4)
	whole := open(t, parts, Options{})
	allRows, _ := whole.MappedBytes()
	for rank := range 4 {
		s := open(t, parts, Options{Rank: rank, Ranks: 4})
		c, of := &s.Topology().Columns, &whole.Topology().Columns
		lo, hi := c.First(s.Offsets[rank]), c.First(s.Offsets[rank+1])
		if !slices.Equal(c.Indptr[lo:hi+1], of.Indptr[lo:hi+1]) {
			t.Errorf("rank %d: other columns", rank)
		}
		err := mem.Guard(func() error {
			other := (lo + int64(of.Len())/2) % int64(of.Len())
			if c.Indptr[other] == of.Indptr[other] {
				return errors.New("a column of another rank is there")
			}
			return nil
		})
		if rows, _ := s.MappedBytes(); !errors.Is(err, mem.ErrWindow) || rows > allRows/2 {
			t.Errorf("rank %d: %v, %d bytes of %d", rank, err, rows, allRows)
		}
	}
}

// A rank reads its rows from the parts and not from a staged copy, so they are what is verified.
func TestWindowsAreVerifiedWhereTheyAreRead(t *testing.T) {
	dir, stage := write(t, small(t), 2), t.TempDir()
	open(t, dir, Options{Stage: stage}) // an earlier run with all rows has staged the files
	s := open(t, dir, Options{Stage: stage, Rank: 1, Ranks: 2})
	if err := s.VerifyHashes(1, 2, true); err != nil {
		t.Fatal(err)
	}
	spoil(t, dir, "indices.npy", 4, 0, 0)
	if err := s.VerifyHashes(1, 2, true); !errors.Is(err, ErrAltered) ||
		!strings.Contains(err.Error(), filepath.Join(dir, "indices.npy")) {
		t.Errorf("the edges that are read are damaged: %v", err)
	}
}

// A row pointer that leads to the edges of another rank is damage of the file, and called so.
func TestRowPointersOutOfTheWindowAreDamage(t *testing.T) {
	ds := makeDataset(t, rand.New(rand.NewPCG(1, 6)), 20000, dataset.Meta{
		Name: "wide", Task: task.Multiclass, Features: 1, Classes: 3,
	})
	dir := write(t, ds, 4)
	s := open(t, dir, Options{Rank: 2, Ranks: 4})
	first := s.Offsets[2]
	setPointer(t, dir, first+1, 0)
	r, err := sample.NewRemote(s.Topology(), sample.Options{Spec: sample.Neighbours(3)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Free()
	var answer sample.Answer
	defer answer.Free()
	err = r.Answer(&answer, []graph.VertexID{graph.VertexID(first + 1)}, []int{1}, []uint64{5},
		&sample.Asking{Fanout: 3, Reply: sample.Neighbours(3).Reply(1, sample.Carried{})})
	var bad *graph.LayoutError
	if !errors.As(err, &bad) || bad.Array != graph.Indptr {
		t.Fatalf("a row that begins among the edges of rank 0: %v", err)
	}
	if damage := s.Damage(err); !errors.Is(damage, ErrAltered) ||
		!strings.Contains(damage.Error(), "indptr.npy") ||
		strings.Contains(damage.Error(), "bug in halognn") {
		t.Errorf("explained as %v", damage)
	}
	err = r.Answer(&answer, []graph.VertexID{graph.VertexID(first + 2)}, []int{1}, []uint64{5},
		&sample.Asking{Fanout: 3, Reply: sample.Neighbours(3).Reply(1, sample.Carried{})})
	if err != nil || answer.Edges[0] > 3 {
		t.Errorf("a sound row after that: %v, %d edges", err, answer.Edges)
	}
}

// setPointer overwrites a row pointer of the parts.
func setPointer(t *testing.T, dir string, v, to int64) {
	t.Helper()
	path := filepath.Join(dir, "indptr.npy")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, begin, err := npy.ReadHeader(f)
	if err == nil {
		_, err = f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(to)), int64(begin)+8*v)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
