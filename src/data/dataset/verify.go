package dataset

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// Verify reads everything. It checks hashes, the rules of the CSC, ranges of labels, that features
// are finite, and that splits are disjoint and in range. It returns the first error of every file.
// If a file shrinks meanwhile, that is an error, not a crash.
func (d *Dataset) Verify() error {
	return mem.Guard(func() error {
		var faults []error
		for _, name := range slices.Sorted(maps.Keys(d.Meta.Files)) {
			path := filepath.Join(d.Dir, name)
			sum, err := npy.Hash(path)
			if err != nil {
				faults = append(faults, err)
			} else if want := d.Meta.Files[name].XXH64; sum != want {
				faults = append(faults, fmt.Errorf("%s: %w: its XXH64 is %s, meta.json has %s; "+
					"restore it or make the dataset again", path, ErrAltered, sum, want))
			}
		}
		return errors.Join(append(faults, d.verifyContent())...)
	})
}

func (d *Dataset) verifyContent() error {
	name := func(file string, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w; restore it or make the dataset again",
				filepath.Join(d.Dir, file), err)
		}
		return nil
	}
	file, layout := "indptr.npy, indices.npy", d.Graph.Validate()
	if bad := (*graph.LayoutError)(nil); errors.As(layout, &bad) {
		file = bad.Array + ".npy"
	}
	faults := []error{name(file, layout), name(WeightsFile, CheckWeights(d.Weights)),
		name(ScaleFile, CheckScales(d.Scale)), name(EdgeRowsFile, checkEdgeRows(d.EdgeRows,
			d.Meta.EdgeFeatures))}
	if layout == nil && d.Meta.Schema.Typed() {
		faults = append(faults, name(ColumnsFile, d.checkColumns()))
	}
	faults = append(faults, name("labels.npy", checkLabels(&d.Meta, d.Labels)))
	for k, s := range append([]graph.Split{d.Split}, d.More...) {
		err := s.Validate(int(d.Meta.Vertices))
		if err == nil {
			err = checkSplitLabels(d.Meta.Task, s, d.Labels)
		}
		faults = append(faults, name(splitFiles(k), err))
	}
	if layout == nil {
		faults = append(faults, name("links", d.Links.ValidateBy(d.Graph, d.hasLink)))
	}
	for k, list := range d.Links.Lists() {
		faults = append(faults, name(LinkLabelsFile(graph.SplitNames[k]),
			CheckLinkLabels(d.Meta.Task, d.Meta.Classes, k, *list, d.LinkLabels[k])))
	}
	for t := range d.tables {
		faults = append(faults, name(TableFile(&d.Meta.Schema, t), d.checkFeatures(t)))
	}
	return errors.Join(faults...)
}

// hasLink reports whether a link is also an edge of the graph.
func (d *Dataset) hasLink(l graph.Link) bool {
	if d.Columns.Plain() {
		return d.Graph.Has(l)
	}
	return d.Columns.HasLink(d.Graph, l)
}

// splitFiles returns the names of the files of the split with index k, for messages.
func splitFiles(k int) string {
	var names []string
	for _, list := range graph.SplitNames {
		names = append(names, SplitFile(k, list))
	}
	return strings.Join(names, ", ")
}

// checkColumns reports a column (graph.Columns) that begins before the preceding one, and an edge
// whose source is not of the relation's source type.
func (d *Dataset) checkColumns() error {
	if err := d.Columns.Check(d.Graph.Indptr); err != nil {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	starts := d.Meta.Starts()
	sources := make([]int, d.Meta.Schema.NumRelations())
	for r := range sources {
		sources[r], _ = d.Meta.Schema.Ends(r)
	}
	for v := range d.Graph.NumVertices() {
		kind, first, _ := d.Columns.Of(graph.VertexID(v))
		for k, r := range d.Columns.Into(kind) {
			source, c := sources[r], int(first)+k
			for _, u := range d.Graph.Indices[d.Columns.Indptr[c]:d.Columns.Indptr[c+1]] {
				if int64(u) < starts[source] || int64(u) >= starts[source+1] {
					return fmt.Errorf("%w: vertex %d has an edge of relation %s from vertex %d, "+
						"which is no %s", ErrMismatch, v, d.Meta.Schema.Relations[r], u,
						d.Meta.Schema.Types[source])
				}
			}
		}
	}
	return nil
}

// checkFeatures reports the first feature of a type's rows that is NaN or infinite.
func (d *Dataset) checkFeatures(t int) error {
	table := d.Meta.Table(t)
	switch table.FeatureType {
	case Sparse, SparseOnes:
		return CheckEntries(d.tables[t].Data, table, d.RowEnds)
	case Int8:
		q, err := npy.Elements[int8](d.tables[t], -1, -1)
		if err != nil {
			return err
		}
		if i := slices.Index(q, math.MinInt8); i >= 0 {
			return badFeature(i/table.Features, i%table.Features, math.MinInt8)
		}
		return nil
	case Float16:
		half, err := npy.Elements[npy.Float16](d.tables[t], -1, -1)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(half,
			func(h npy.Float16) bool { return h&0x7c00 == 0x7c00 }); i >= 0 {
			return badFeature(i/table.Features, i%table.Features, half[i].Float32())
		}
		return nil
	}
	rows, err := npy.Elements[float32](d.tables[t], -1, -1)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(rows,
		func(x float32) bool { return !(x <= math.MaxFloat32 && x >= -math.MaxFloat32) }); i >= 0 {
		return badFeature(i/table.Features, i%table.Features, rows[i])
	}
	return nil
}

// checkLabels reports the first label that the task does not allow.
func checkLabels(m *Meta, labels task.Labels) error {
	if err := task.Stored(m.Task).Check(labels, m.Classes); err != nil {
		return fmt.Errorf("%w: %w", err, ErrValue)
	}
	return nil
}

// checkSplitLabels reports the first vertex of a split that has no label. The argument of names the
// split in messages.
func checkSplitLabels(of string, s graph.Split, labels task.Labels) error {
	for _, list := range s.Lists() {
		for _, v := range *list {
			if !task.Labelled(of, labels, int(v)) {
				return fmt.Errorf("vertex %d is in a split but has no label: %w", v, ErrValue)
			}
		}
	}
	return nil
}
