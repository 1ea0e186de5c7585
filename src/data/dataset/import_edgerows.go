package dataset

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// edgeRows holds a feature row for each edge of a source, in the order in which addEdge added the
// edges.
type edgeRows struct {
	cols int
	data []float32 // [edges, cols]
}

// appended works like append, but keeps the data outside the Go heap.
func appended(data []float32, x ...float32) []float32 {
	if n := len(data) + len(x); n > cap(data) {
		more := mem.Make[float32](max(1<<12, 2*n))[:len(data)]
		copy(more, data)
		mem.Free(data)
		data = more
	}
	return append(data, x...)
}

// readEdgeArray reads features of edges from an array [E, C] or [E].
func readEdgeArray(e *edgeSource, a arraySource, key string) error {
	r, err := a.open(key, 1, 2)
	if err != nil {
		return err
	}
	defer r.Close()
	e.rows.cols = 1
	if len(r.Shape) == 2 {
		e.rows.cols = r.Shape[1]
	}
	if int64(r.Shape[0]) != e.edges.NumEdges() || e.rows.cols < 1 {
		return fmt.Errorf("%s: %w: shape %s for %d edges; give one row of features for each edge",
			a.name(key), ErrMismatch, npy.ShapeString(r.Shape), e.edges.NumEdges())
	}
	if r.Fortran && e.rows.cols > 1 && r.Shape[0] > 1 {
		return fmt.Errorf("%s: it is stored by columns; save it again with numpy.ascontiguousarray",
			a.name(key))
	}
	err = eachChunk(r, r.Left(), func(part []float32) error {
		e.rows.data = appended(e.rows.data, part...)
		return nil
	})
	if err == nil {
		err = checkEdgeRows(e.rows.data, e.rows.cols)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.name(key), err)
	}
	as := asEdgeFeature
	if e.options.linkTask() != "" {
		as = asLinkLabel
	}
	e.tellTimes("array "+key, as, a.begin(key))
	return nil
}

// readEdgeRowTable reads features of edges from a table with one row for each edge.
func readEdgeRowTable(e *edgeSource, path string) error {
	var row []float64
	n := int64(0)
	err := eachRow(path, table.Comma, func(r *table.Reader) error {
		if n == 0 {
			e.rows.cols = r.Columns()
			row = make([]float64, e.rows.cols)
		}
		if n++; n > e.edges.NumEdges() {
			return r.Errorf("%w: there are more rows than the %d edges; give one row for each "+
				"edge", ErrMismatch, e.edges.NumEdges())
		}
		if err := r.Floats(row); err != nil {
			return err
		}
		for _, x := range row {
			if !finite(float32(x)) {
				return r.Errorf("%w: a feature of an edge is %g; it must be a finite float32",
					ErrValue, x)
			}
			e.rows.data = appended(e.rows.data, float32(x))
		}
		return nil
	})
	if err == nil && n != e.edges.NumEdges() {
		err = fmt.Errorf("%s: %w: the file has %d rows, but %d edges need one row each; fetch "+
			"the data again", path, ErrMismatch, n,
			e.edges.NumEdges())
	}
	e.tellTimes(filepath.Base(path), asEdgeFeature, beginOf(e.rows.data, max(1, e.rows.cols)))
	return err
}

func finite(x float32) bool { return x <= math.MaxFloat32 && x >= -math.MaxFloat32 }

// checkEdgeRows reports the first feature that is NaN or infinite.
func checkEdgeRows(rows []float32, cols int) error {
	if i := slices.IndexFunc(rows, func(x float32) bool { return !finite(x) }); i >= 0 {
		return fmt.Errorf("edge %d, column %d is %g: %w; repair or remove it in the source", i/cols,
			i%cols, rows[i], ErrValue)
	}
	return nil
}

// placeEdgeRows brings the feature rows of the source's edges into the order of the edges of g. An
// edge that was added only as a reverse gets the row of the original edge. An edge that comes
// several times gets the mean of its rows.
func (e *edgeSource) placeEdgeRows(g *graph.CSC) ([]float32, error) {
	cols := e.rows.cols
	if cols == 0 {
		return nil, nil
	}
	var why string
	switch {
	case e.options.KeepDuplicates:
		why = "repeated edges cannot be kept (--keep-duplicates)"
	case e.options.SplitLinks != "":
		why = "links cannot be the task (--split-links)"
	}
	if why != "" {
		return nil, fmt.Errorf("%s: %w: %s if edges have features; leave out that option, or "+
			"leave out the features by --ignore", e.options.In, ErrMismatch, why)
	}
	all := mem.Make[float32](len(g.Indices) * cols)
	times := mem.Make[int32](len(g.Indices))
	defer mem.Free(times)
	row := func(at int64) []float32 { return all[at*int64(cols) : (at+1)*int64(cols)] }
	several := 0
	e.edges.Carry(g, func(i int, at int64) {
		if times[at]++; times[at] == 2 {
			several++
		}
		for c, x := range row(at) { // the mean of the rows so far
			row(at)[c] = x + (e.rows.data[i*cols+c]-x)/float32(times[at])
		}
	}, func(at, reverse int64) { copy(row(at), row(reverse)) })
	if several > 0 && !e.reverses {
		e.note("%d edges%s come several times; each gets the mean of its feature rows",
			several, e.nameSuffix())
	}
	return all, nil
}
