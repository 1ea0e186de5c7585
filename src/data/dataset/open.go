package dataset

import (
	"errors"
	"fmt"
	"path/filepath"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// Dataset is an open DATASET directory. Its slices are views of mapped files: they are valid until
// Close, and must not be written.
type Dataset struct {
	Dir     string
	Meta    Meta
	Graph   *graph.CSC
	Columns graph.Columns
	Weights []float32 // [M] edge weights in the order of Graph.Indices; nil if edges have none
	Scale   []float32 // [Features] scales of the columns of Int8 rows; otherwise nil
	// [N+1] if rows are sparse: row v has the entries RowEnds[v] to RowEnds[v+1]-1; otherwise nil
	RowEnds  []int64
	EdgeRows []float32   // [M, Meta.EdgeFeatures] in the order of Graph.Indices
	Labels   task.Labels // in the form that Meta.Task determines
	Split    graph.Split
	More     []graph.Split   // [MoreSplits] the other splits, which a run may choose
	Links    graph.LinkSplit // set only if the task predicts links
	// labels of the three lists of links, if links have labels
	LinkLabels [3]task.Labels
	tables     []*npy.File // [T] feature rows of each type
	identity   string
	closers    mem.Closers
}

// Open maps a dataset. It checks that all files exist and have the size, type and shape that
// meta.json gives, which costs little. Verify checks their content.
func Open(dir string) (*Dataset, error) {
	meta, identity, err := readMeta(dir)
	if err != nil {
		return nil, err
	}
	if err := meta.checkFiles(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, metaFile), err)
	}
	d := &Dataset{Dir: dir, Meta: *meta, Graph: new(graph.CSC), identity: identity}
	if err := d.mapFiles(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dataset) mapFiles() error {
	faults := []error{
		mapInto(d, "indptr.npy", &d.Graph.Indptr),
		mapInto(d, "indices.npy", &d.Graph.Indices),
		d.mapSplit(0, &d.Split), d.mapLinks(),
	}
	d.More = make([]graph.Split, d.Meta.MoreSplits)
	for k := range d.More {
		faults = append(faults, d.mapSplit(k+1, &d.More[k]))
	}
	labels, err := d.open("labels.npy")
	if err == nil {
		d.Labels, err = task.Stored(d.Meta.Task).ReadLabels(labels, d.Meta.Classes)
	}
	faults = append(faults, err)
	if d.Meta.Weighted {
		faults = append(faults, mapInto(d, WeightsFile, &d.Weights))
	}
	if d.Meta.EdgeFeatures > 0 {
		faults = append(faults, mapInto(d, EdgeRowsFile, &d.EdgeRows))
	}
	if d.Meta.FeatureType == Int8 {
		faults = append(faults, mapInto(d, ScaleFile, &d.Scale))
	}
	if d.Meta.Table(0).Type().IsSparse() {
		faults = append(faults, mapInto(d, RowEndsFile, &d.RowEnds))
		faults = append(faults, CheckRowEnds(d.RowEnds, d.Meta.Entries))
	}
	for t := range d.Meta.Schema.NumTypes() {
		f, err := d.open(TableFile(&d.Meta.Schema, t))
		d.tables, faults = append(d.tables, f), append(faults, err)
	}
	if d.Meta.Schema.Typed() {
		faults = append(faults, d.mapColumns())
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	if n := d.Meta.Vertices; d.Graph.Indptr[0] != 0 || d.Graph.Indptr[n] != d.Meta.Edges {
		return fmt.Errorf("%s: %w: indptr runs from %d to %d, but there are %d edges; make the "+
			"dataset again",
			filepath.Join(d.Dir, "indptr.npy"), ErrMismatch, d.Graph.Indptr[0], d.Graph.Indptr[n],
			d.Meta.Edges)
	}
	return nil
}

func (d *Dataset) mapSplit(k int, s *graph.Split) error {
	var faults []error
	for i, list := range s.Lists() {
		faults = append(faults, mapInto(d, SplitFile(k, graph.SplitNames[i]), list))
	}
	return errors.Join(faults...)
}

func (d *Dataset) mapColumns() error {
	var rows []int64
	if err := mapInto(d, ColumnsFile, &rows); err != nil {
		return err
	}
	var err error
	if d.Columns, err = graph.NewColumns(&d.Meta.Schema, d.Meta.Starts(), rows); err != nil {
		err = fmt.Errorf("%s: %w: %w", filepath.Join(d.Dir, ColumnsFile), ErrMismatch, err)
	}
	return err
}

// open maps a file and checks its type and shape against meta.json.
func (d *Dataset) open(name string) (*npy.File, error) {
	f, err := npy.Open(filepath.Join(d.Dir, name))
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, f.Close)
	want := d.Meta.Files[name]
	if err := f.Check(want.DType, want.Shape...); err != nil {
		return nil, fmt.Errorf("%s: %w; meta.json describes it differently: make the dataset "+
			"again", f.Path(), err)
	}
	return f, nil
}

func mapInto[T npy.Element](d *Dataset, name string, view *[]T) error {
	f, err := d.open(name)
	if err != nil {
		return err
	}
	*view, err = npy.Elements[T](f)
	return err
}

// FeatureRows returns the feature rows of the vertices first to end-1 of type t as they are stored,
// with little-endian elements.
func (d *Dataset) FeatureRows(t int, first, end int64) []byte {
	size := int64(d.Meta.Table(t).RowBytes())
	if len(d.RowEnds) > 0 {
		first, end, size = d.RowEnds[first], d.RowEnds[end], int64(d.Meta.Table(t).Type().Size())
	}
	return d.tables[t].Data[first*size : end*size]
}

// Identity returns a hash of meta.json, which has the hashes of all files: equal identities mean
// equal datasets.
func (d *Dataset) Identity() string { return d.identity }

// Close unmaps all files.
func (d *Dataset) Close() error { return d.closers.Close() }
