package dataset

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// Writer writes a DATASET directory under a temporary name beside its target. Call Topology first,
// then Features, Labels and Splits in any order, each at most once, and then Close. Arrays that
// were not written become empty. A Writer is not for concurrent use.
type Writer struct {
	// Topology sets Vertices and Edges; the other fields may be changed until Features or Labels
	// uses them
	Meta    Meta
	dir     string
	tmp     string
	labels  task.Labels // kept until Close, which checks the splits against them
	splits  []graph.Split
	rows    *RowWriter
	bytes   *quantizer // for Int8 features
	entries *entries   // for sparse features
	notes   []string   // what is unusual in the features, noticed while they were written
}

// Create begins a dataset at dir, which must be an empty directory or not exist. It uses the fields
// Name, Task, Features, Classes, FeatureType (default Float32) and Provenance of m, and ignores all
// others.
func Create(dir string, m Meta) (*Writer, error) {
	tmp, err := Begin(dir)
	if err != nil {
		return nil, err
	}
	m.Format, m.Files = Format, make(map[string]npy.Info)
	m.FeatureType = cmp.Or(m.FeatureType, Float32)
	return &Writer{Meta: m, dir: dir, tmp: tmp}, nil
}

// Vacant returns an error if dir cannot be read. It returns an error that wraps ErrExists if dir
// exists and is not an empty directory.
func Vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %w and is not a directory; choose another one", dir, ErrExists)
	case err != nil:
		return fmt.Errorf("%w; choose another directory", err)
	case len(entries) > 0:
		return fmt.Errorf("%s: %w and is not empty; remove it or choose another one", dir,
			ErrExists)
	}
	return nil
}

// put writes one whole array, and records it in Meta.
func put[T npy.Element](w *Writer, name string, data []T, shape ...int) error {
	return w.put(name, mem.Bytes(data), npy.DType[T](), shape...)
}

func (w *Writer) put(name string, rows []byte, dtype string, shape ...int) error {
	if _, done := w.Meta.Files[name]; done {
		return fmt.Errorf("dataset: %s is written twice", name)
	}
	info, err := npy.WriteRows(filepath.Join(w.tmp, name), rows, dtype, shape...)
	if err != nil {
		return err
	}
	w.Meta.Files[name] = info
	return nil
}

// Topology writes the graph. That sets the numbers of vertices and edges, to which all other arrays
// must correspond.
func (w *Writer) Topology(g *graph.CSC) error {
	w.Meta.Vertices, w.Meta.Edges = int64(g.NumVertices()), g.NumEdges()
	if err := put(w, "indptr.npy", g.Indptr, len(g.Indptr)); err != nil {
		return err
	}
	return put(w, "indices.npy", g.Indices, len(g.Indices))
}

// EdgeWeights writes a weight for each edge, in the order of the graph's Indices.
func (w *Writer) EdgeWeights(weights []float32) error {
	if int64(len(weights)) != w.Meta.Edges {
		return fmt.Errorf("%w: %d weights for %d edges", ErrMismatch, len(weights), w.Meta.Edges)
	}
	if err := CheckWeights(weights); err != nil {
		return err
	}
	w.Meta.Weighted = true
	return put(w, WeightsFile, weights, len(weights))
}

// EdgeFeatures writes a row of cols columns for each edge, in the order of the graph's Indices.
func (w *Writer) EdgeFeatures(rows []float32, cols int) error {
	if cols < 1 || int64(len(rows)) != w.Meta.Edges*int64(cols) {
		return fmt.Errorf("%w: there are %d numbers, but %d edges need %d numbers each",
			ErrMismatch, len(rows),
			w.Meta.Edges, cols)
	}
	if err := checkEdgeRows(rows, cols); err != nil {
		return err
	}
	w.Meta.EdgeFeatures = cols
	return put(w, EdgeRowsFile, rows, int(w.Meta.Edges), cols)
}

// Labels writes the label of each vertex, in the form that the task determines. The array must stay
// as it is until Close, which reads it once more.
func (w *Writer) Labels(labels []byte) error {
	t, n := task.Stored(w.Meta.Task), int(w.Meta.Vertices)
	w.labels = task.Labels{Data: labels, Width: t.LabelBytes(w.Meta.Classes)}
	if want := n * w.labels.Width; len(labels) != want {
		return fmt.Errorf("%w: there are %d bytes of labels, but %d vertices need %d bytes",
			ErrMismatch,
			len(labels), n, want)
	}
	if err := checkLabels(&w.Meta, w.labels); err != nil {
		return err
	}
	layout := t.Layout(n, w.Meta.Classes)
	return w.put("labels.npy", labels, layout.DType, layout.Shape...)
}

// Splits writes the training, validation and test vertices of the first split, and of further
// splits, which a run may choose. Each list must be in ascending order.
func (w *Writer) Splits(first graph.Split, more ...graph.Split) error {
	w.splits, w.Meta.MoreSplits = append([]graph.Split{first}, more...), len(more)
	for k, s := range w.splits {
		if err := s.Validate(int(w.Meta.Vertices)); err != nil {
			return err
		}
		for i, list := range s.Lists() {
			name := SplitFile(k, graph.SplitNames[i])
			if k > 0 && i == 0 {
				if err := os.Mkdir(filepath.Join(w.tmp, filepath.Dir(name)), 0o777); err != nil {
					return err
				}
			}
			if err := put(w, name, slices.Sorted(slices.Values(*list)), len(*list)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close writes empty arrays for those that are missing, then meta.json, and gives the directory its
// final name. After an error it leaves no files.
func (w *Writer) Close() error {
	err := w.finish()
	if err != nil {
		w.Abort()
		return fmt.Errorf("writing %s: %w", w.dir, err)
	}
	return nil
}

func (w *Writer) finish() error {
	if w.rows != nil && !w.rows.closed {
		return errors.New("features: the rows were not closed")
	}
	if err := w.fillIn(); err != nil {
		return err
	}
	w.Meta.Provenance.Notes = slices.Concat(w.Meta.Provenance.Notes, w.notes)
	if err := errors.Join(w.Meta.check(), w.Meta.checkFiles()); err != nil {
		return err
	}
	for _, s := range w.splits {
		if err := checkSplitLabels(w.Meta.Task, s, w.labels); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(&w.Meta, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.tmp, metaFile), append(text, '\n'), 0o666); err != nil {
		return err
	}
	return Finish(w.tmp, w.dir)
}

// fillIn writes an empty array for each file that was not written.
func (w *Writer) fillIn() error {
	n := int(w.Meta.Vertices)
	has := func(name string) bool { _, ok := w.Meta.Files[name]; return ok }
	if !has("indptr.npy") {
		return errors.New("there is no topology")
	}
	for t := range w.Meta.Schema.NumTypes() {
		if has(TableFile(&w.Meta.Schema, t)) {
			continue
		}
		if err := w.noRows(t); err != nil {
			return err
		}
	}
	if !has("labels.npy") && !task.Stored(w.Meta.Task).Wide {
		if err := w.Labels(mem.Bytes(slices.Repeat([]int32{-1}, n))); err != nil {
			return err
		}
	}
	if !has("train.npy") {
		return w.Splits(graph.Split{})
	}
	return nil
}

// noRows writes the feature table of a type that has no features.
func (w *Writer) noRows(t int) error {
	if !w.Meta.Schema.Typed() {
		return w.WriteFeatures(0, w.Meta.FeatureType, nil, func(*RowWriter) error { return nil })
	}
	rows, err := w.table(t)
	if err != nil {
		return err
	}
	return rows.Close()
}

// checkFiles returns an error for files whose element type or shape contradicts the rest of
// meta.json.
func (m *Meta) checkFiles() error {
	var faults []error
	for name, want := range m.layout() {
		got, ok := m.Files[name]
		if !ok {
			faults = append(faults, fmt.Errorf("%w: %s is missing", ErrMismatch, name))
			continue
		}
		if err := (npy.Header{DType: got.DType, Shape: got.Shape}).Check(want.DType,
			want.Shape...); err != nil {
			faults = append(faults, fmt.Errorf("%w: %s: %w", ErrMismatch, name, err))
		}
	}
	return errors.Join(faults...)
}

// Abort removes what was written. After Close it does nothing.
func (w *Writer) Abort() {
	if w.rows != nil {
		w.rows.abort()
	}
	Discard(w.tmp)
}
