package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset/table"
)

// readOGB reads the raw folder of an OGB node property data set:
//
//	raw/edge.csv.gz  num-node-list.csv.gz  num-edge-list.csv.gz     u,v    N    E
//	raw/node-feat.csv.gz  node-label.csv.gz                         one row a vertex
//	raw/edge-feat.csv.gz  edge_weight.csv.gz                        one row an edge
//	raw/data.npz  node-label.npz                                    instead of the above: edge_index
//	                                                                [2, E], node_feat, node_label
//	split/NAME/{train,valid,test}.csv.gz                            one vertex id a row
//
// The option In may also name the folder raw itself; then there is no split. Files may also be
// unpacked, as .csv.
func readOGB(e *edgeSource) error {
	s := e.from
	e.undirected = true
	raw := ogbRaw(s.options.In)
	binary := filepath.Join(raw, "data.npz")
	var err error
	switch {
	case exists(binary):
		err = readOGBBinary(e, raw, binary)
	case either(raw, "edge.csv") != "":
		err = readOGBText(e, raw)
	default:
		names := filesIn(raw, "")
		inside := "; it has " + few(names)
		if len(names) == 0 {
			inside = "; it is empty"
		}
		for _, name := range names {
			if isDir(filepath.Join(raw, name, "raw")) {
				inside = ", such as " + filepath.Join(raw, name)
			}
		}
		err = fmt.Errorf("%s: neither edge.csv.gz nor data.npz is there; want the raw folder of "+
			"an OGB node property data set, or the folder around it%s", raw, inside)
	}
	if err != nil {
		return err
	}
	s.readsOGB(raw)
	if s.options.Split != "" {
		return nil
	}
	return s.findSplit("split/*")
}

// readsOGB adds to the report what each file of a raw folder was read as.
func (s *source) readsOGB(raw string) {
	for _, of := range []struct{ name, as string }{
		{"data.npz", "edges, features"}, {"node-label.npz", asLabel}, {"edge.csv", asEdges},
		{"node-feat.csv", asFeature}, {"node-label.csv", asLabel}, {"edge-feat.csv", asEdgeFeature},
		{"edge_weight.csv", asWeight}, {"node_year.csv", asTime},
	} {
		if either(raw, of.name) == "" {
			continue
		}
		if of.as == asEdgeFeature && slices.Contains(s.options.Ignore, "edge_feat") ||
			of.as == asWeight && (exists(filepath.Join(raw, "data.npz")) ||
				slices.Contains(s.options.Ignore, "edge_weight")) {
			of.as = asIgnored
		}
		if s.reads(raw, of.name, of.as, ""); of.as == asTime {
			s.note("%s is ignored: it is %s", of.name, noTime)
		}
	}
	known := []string{"data", "node-label", "edge", "node-feat", "edge-feat", "node_year",
		"num-node-list", "num-edge-list"}
	if !exists(filepath.Join(raw, "data.npz")) {
		known = append(known, "edge_weight")
	}
	s.unreadOGB(raw, known)
}

// unreadOGB notes which files of a folder are not read, because their names are not in the list
// known.
func (in *importer) unreadOGB(dir string, known []string) {
	for _, ext := range []string{".csv.gz", ".csv", ".npz", ".npy"} {
		for _, name := range filesIn(dir, ext) {
			switch {
			case slices.Contains(known, name):
				continue
			case isTime(name):
				in.reads(dir, name+ext, asTime, "")
				in.note("%s is ignored: it is %s", name+ext, noTime)
			case ignoredWeights(name) != "":
				in.reads(dir, name+ext, asIgnored, "")
				in.note("%s is ignored: weights of edges are read from an array edge_weight by "+
					"--format npz", name+ext)
			default:
				in.reads(dir, name+ext, asIgnored, "")
				in.note("%s is not read", name+ext)
			}
		}
	}
}

func readOGBBinary(e *edgeSource, raw, path string) error {
	s := e.from
	z, err := npy.OpenZip(path)
	if err != nil {
		return err
	}
	// features are streamed later, so the archive stays open
	s.release = append(s.release, func() { _ = z.Close() })
	a := arraySource{z, path}
	nodes, err := all[int64](a, "num_nodes_list")
	if err != nil {
		return err
	}
	if len(nodes) != 1 {
		return fmt.Errorf("%s lists %d graphs, but an OGB data set must be of one graph to be "+
			"imported, as node property data sets are",
			a.name("num_nodes_list"), len(nodes))
	}
	if err := s.setVertices(nodes[0], a.name("num_nodes_list")); err != nil {
		return err
	}
	if a.Has("node_feat") {
		if err := setDenseFeatures(s, a, "node_feat"); err != nil {
			return err
		}
	}
	if err := addPairs(e, a, "edge_index"); err != nil {
		return err
	}
	if a.Has("num_edges_list") {
		edges, err := all[int64](a, "num_edges_list")
		if err != nil {
			return err
		}
		if len(edges) != 1 || edges[0] != e.edges.NumEdges() {
			return fmt.Errorf("%s says that there are %v edges, but edge_index has %d; fetch the "+
				"data again",
				a.name("num_edges_list"), edges, e.edges.NumEdges())
		}
	}
	if a.Has("edge_feat") && !slices.Contains(s.options.Ignore, "edge_feat") {
		if err := readEdgeArray(e, a, "edge_feat"); err != nil {
			return err
		}
	}
	labels := filepath.Join(raw, "node-label.npz")
	if !exists(labels) {
		return nil
	}
	l, err := npy.OpenZip(labels)
	if err != nil {
		return err
	}
	defer l.Close()
	return readLabels(s, arraySource{l, labels}, "node_label")
}

func readOGBText(e *edgeSource, raw string) error {
	s := e.from
	n, err := onlyNumber(raw, "num-node-list.csv")
	if err != nil {
		return err
	}
	for _, name := range []string{"node-feat.csv", "node-label.csv"} {
		if err := haveRows(either(raw, name), n); err != nil {
			return err
		}
	}
	if err := s.setVertices(n, either(raw, "num-node-list.csv")); err != nil {
		return err
	}
	if path := either(raw, "node-feat.csv"); path != "" {
		if err := setTableFeatures(s, path); err != nil {
			return err
		}
	}
	path := either(raw, "edge.csv")
	if err := readPairs(e, path); err != nil {
		return err
	}
	edges, err := onlyNumber(raw, "num-edge-list.csv")
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case edges != e.edges.NumEdges():
		return fmt.Errorf("%s has %d edges, but num-edge-list says %d; fetch the data again", path,
			e.edges.NumEdges(), edges)
	}
	if path := either(raw, "edge-feat.csv"); path != "" &&
		!slices.Contains(s.options.Ignore, "edge_feat") {
		if err := readEdgeRowTable(e, path); err != nil {
			return err
		}
	}
	if path := either(raw, "edge_weight.csv"); path != "" &&
		!slices.Contains(s.options.Ignore, "edge_weight") {
		if err := readWeightTable(e, path); err != nil {
			return err
		}
	}
	if path := either(raw, "node-label.csv"); path != "" {
		return readTableLabels(s, path)
	}
	return nil
}

// readWeightTable reads the weights of edges from a table with one row for each edge.
func readWeightTable(e *edgeSource, path string) error {
	var w [1]float64
	n := int64(0)
	err := eachRow(path, table.Comma, func(r *table.Reader) error {
		if n++; n > e.edges.NumEdges() {
			return r.Errorf("%w: there are more rows than the %d edges; fetch the data again",
				ErrMismatch, e.edges.NumEdges())
		}
		if err := r.Floats(w[:]); err != nil {
			return err
		}
		if err := e.addWeight(w[0]); err != nil {
			return r.Errorf("%w", err)
		}
		return nil
	})
	if err == nil && n != e.edges.NumEdges() {
		err = fmt.Errorf("%s: %w: the file has %d rows, but %d edges need one row each; fetch "+
			"the data again, or leave the weights out: --ignore edge_weight",
			path, ErrMismatch, n, e.edges.NumEdges())
	}
	e.tellTimes(filepath.Base(path), asWeight, beginOf(e.weights, 1))
	return err
}

// haveRows returns an error if a table file is so small that, even compressed, it cannot have a row
// for each of n vertices. An empty path is no error.
func haveRows(path string, n int64) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	// The shortest row is a digit and a line end. Deflate expands one byte to at most mostInflate
	// bytes.
	const leastRow, mostInflate = 2, 1032
	if most := info.Size() * mostInflate / leastRow; n > most+1 {
		return fmt.Errorf("%s has only %d bytes, too few for a row for each of the %d vertices "+
			"that num-node-list counts; fetch the data again", path, info.Size(), n)
	}
	return nil
}

// onlyNumber reads a table that holds a single number.
func onlyNumber(dir, name string) (int64, error) {
	path := either(dir, name)
	if path == "" {
		return 0, fmt.Errorf("%s has neither %s.gz nor %s: %w", dir, name, name,
			os.ErrNotExist)
	}
	var x [1]int64
	rows := 0
	err := eachRow(path, table.Comma, func(r *table.Reader) error {
		if rows++; rows > 1 {
			return r.Errorf("this row is a second graph, but a node property data set is one " +
				"graph; import such a data set")
		}
		return r.Ints(x[:])
	})
	if err == nil && rows == 0 {
		err = fmt.Errorf("%s: empty, want one number", path)
	}
	return x[0], err
}

// setTableFeatures registers the features in a table with one row for each vertex, which are
// written later.
func setTableFeatures(s *source, path string) error {
	r, err := table.Open(path, table.Comma)
	if err != nil {
		return err
	}
	ok, err := r.Next()
	cols := 0
	if ok {
		cols = r.Columns()
	}
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	return s.setFeatures(path, cols, Float32, -1, func(w *RowWriter) error {
		wide, row, n := make([]float64, cols), make([]float32, cols), 0
		err := eachRow(path, table.Comma, func(r *table.Reader) error {
			if err := r.Floats(wide); err != nil {
				return err
			}
			for i, x := range wide {
				row[i] = float32(x)
			}
			if n++; n > s.vertices {
				return r.Errorf("there are more rows than the %d vertices; fetch the data again",
					s.vertices)
			}
			if err := w.Check(n-1, row); err != nil {
				return r.Errorf("%w", err)
			}
			return w.WriteChecked(row)
		})
		if err == nil && n != s.vertices {
			err = fmt.Errorf("there are %d rows, but %d vertices need one row each; fetch the "+
				"data again", n, s.vertices)
		}
		return err
	})
}

// readTableLabels reads labels from a table with one row for each vertex: one column with a class
// or nan, or several columns of 0 and 1.
func readTableLabels(s *source, path string) error {
	var row []float64
	var classes numberedClasses
	n := 0
	err := eachRow(path, table.Comma, func(r *table.Reader) error {
		if n == 0 {
			row = make([]float64, r.Columns())
			var err error
			switch {
			case regression(s):
				err = makeTargets(s, len(row), path)
			case len(row) > 1:
				err = s.makeMarks(len(row), path)
			default:
				classes.labels = mem.Make[int32](s.vertices)
				s.labels = classes.labels
			}
			if err != nil {
				return err
			}
		}
		if n++; n > s.vertices {
			return r.Errorf("there are more rows than the %d vertices; fetch the data again",
				s.vertices)
		}
		if err := r.Floats(row); err != nil {
			return err
		}
		for c, y := range row {
			var err error
			switch {
			case regression(s):
				err = setTarget(s, n-1, c, y)
			case len(row) == 1:
				err = classes.set(s, n-1, y)
			default:
				err = s.setMark(n-1, c, y)
			}
			if err != nil {
				return r.Errorf("%w", err)
			}
		}
		return nil
	})
	if err == nil && n != s.vertices {
		err = fmt.Errorf("%s has %d rows, but %d vertices need one row each; fetch the data again",
			path, n, s.vertices)
	}
	if err == nil && s.marks != nil {
		if err = s.finishMarks(); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if err == nil && classes.labels != nil {
		if err = s.takeClasses(&classes); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return err
}

// findSplit registers the split folder if exactly one folder of the input matches the pattern
// folders.
func (s *source) findSplit(folders string) error {
	found, _ := fs.Glob(os.DirFS(s.options.In), folders+"/train.csv*") // the pattern is sound
	switch len(found) {
	case 0:
		if other, _ := fs.Glob(os.DirFS(s.options.In), folders+"/train.*"); len(other) > 0 {
			s.note("the split %s is not read, because its files are no tables such as "+
				"train.csv.gz; --split also reads .npy files", filepath.Dir(other[0]))
		}
		return nil
	case 1:
		dir := filepath.Join(s.options.In, filepath.Dir(found[0]))
		s.given = &splitSource{path: dir, from: "split/" + filepath.Base(dir)}
		return nil
	}
	return fmt.Errorf("%s: %d splits; choose one by its folder, such as --split %s",
		filepath.Join(s.options.In, "split"), len(found),
		filepath.Join(s.options.In, filepath.Dir(found[0])))
}
