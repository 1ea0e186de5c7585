package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// readNPZ reads an .npz archive or a directory of .npy files, in one of three layouts:
//
//	attributed graph   adj_indptr, adj_indices, adj_shape (scipy CSR); attr_data, attr_indices,
//	                   attr_indptr, attr_shape or attr_matrix; labels [N]. Made undirected, as is
//	                   usual for these graphs.
//	plain              edge_index [2, E]; x [N, F] or attr_*; y [N] or [N, C]; train_idx, valid_idx,
//	                   test_idx or train_mask, ...
//	scipy              a sparse matrix by scipy.sparse.save_npz in place of edge_index
//
// Arrays of the last two layouts may have other names too: see aliases. If a directory holds
// several archives, exactly one must have the graph, and at most one the split (arrays train,
// valid, test). An archive beside .npy files may hold the scipy matrix.
func readNPZ(e *edgeSource) error {
	s := e.from
	if err := readOrigin(s, s.options.In); err != nil {
		return err
	}
	path, err := graphArchive(s)
	if err != nil {
		return err
	}
	set, err := openArrays(path)
	if err != nil {
		return err
	}
	// features are streamed later, so the archive stays open
	s.release = append(s.release, func() { _ = set.Close() })
	a := arraySource{set, path}
	// In a directory, the archive holds the matrix, and .npy files hold the other arrays.
	if in := s.options.In; path != in && isScipy(a) {
		a = arraySource{joined{set, npyDir(in)}, in}
	}
	if err := s.refuseKeys(a); err != nil {
		return err
	}
	if a.Has("adj_indptr") {
		err = readAttributed(e, a)
	} else {
		err = readPlain(e, a)
	}
	if err == nil {
		err = checkOrigin(s)
	}
	ids := s.find(a, "ids")
	var of *labelError
	if errors.As(err, &of) && ids != "" && readIDs(s, a, ids) == nil {
		return fmt.Errorf("%w; its id is %.60q", err, idOf(s, graph.VertexID(of.vertex)))
	}
	if err == nil {
		err = readWeights(e, a)
	}
	if names := s.options.edgeLabels(); err == nil && names != nil {
		err = readLabelArray(e, a, names[0])
	} else if key := s.find(a, "edge_attr"); err == nil && key != "" {
		err = readEdgeArray(e, a, key)
	}
	if err == nil {
		err = s.options.checkNames(a, a.Has)
	}
	if err == nil {
		err = s.noteUnread(a)
	}
	if err == nil && s.options.Split == "" && s.given == nil {
		p := &splitSource{from: filepath.Base(a.path), path: a.path, read: true}
		var found bool
		if found, err = s.splitArrays(a, p); found {
			p.from = cmp.Or(s.origin.Split, p.from)
			s.given = p
		}
	}
	if err == nil && ids != "" {
		err = readIDs(s, a, ids)
	}
	return err
}

// readCount reads the number of vertices, which must equal the number of rows of the features and
// of the labels.
func readCount(s *source, a arraySource, key string) error {
	r, err := a.open(key, 0, 1)
	if err != nil {
		return err
	}
	n, err := npy.ReadAll[int64](r)
	if err != nil {
		return err
	}
	if len(n) != 1 {
		return fmt.Errorf("%s: %d numbers, want one", a.name(key), len(n))
	}
	return s.setVertices(n[0], a.name(key))
}

// graphArchive finds the archive with the graph. If there is an archive with the split beside it,
// graphArchive registers that too.
func graphArchive(s *source) (string, error) {
	in := s.options.In
	info, err := os.Stat(in)
	if err != nil || !info.IsDir() {
		return in, err
	}
	here := arraySource{undotted(npyDir(in)), in}
	if s.find(here, "edge_index") != "" || here.Has("adj_indptr") || here.Has("indptr") {
		return in, nil
	}
	var graphs, splits, rows []string
	archives := filesIn(in, ".npz")
	for _, name := range archives {
		path := filepath.Join(in, name+".npz")
		set, err := openArrays(path)
		if err != nil {
			return "", err
		}
		a := arraySource{set, path}
		switch {
		case a.Has("adj_indptr") || s.find(a, "edge_index") != "" || isScipy(a):
			graphs = append(graphs, path)
		case a.Has("train") && a.Has("test"):
			splits = append(splits, path)
		case s.find(a, "x") != "" || s.find(a, "y") != "":
			rows = append(rows, fmt.Sprintf("%s (%s)", name+".npz", strings.Join(a.Names(), ", ")))
		}
		if err := set.Close(); err != nil {
			return "", err
		}
	}
	if len(graphs) != 1 || len(splits) > 1 {
		return "", fmt.Errorf("%s: %d archives have a graph (edge_index, adj_indptr or a scipy "+
			"matrix) and %d have a split (train, test), but only one of each is read; name the "+
			"file with --in, and the split with --split", in,
			len(graphs), len(splits))
	}
	if len(rows) > 0 {
		return "", fmt.Errorf("%s: %w: %s would not be read, because the graph is in %s; put "+
			"the arrays into one archive by numpy.savez(NEW, **numpy.load(ONE), "+
			"**numpy.load(OTHER)), or save them as .npy files beside it; --in %s reads that "+
			"archive alone", in,
			ErrValue, strings.Join(rows, "; "), filepath.Base(graphs[0]), graphs[0])
	}
	if len(splits) == 1 {
		s.given = &splitSource{from: filepath.Base(splits[0]), path: splits[0]}
	}
	if s.options.Name == "" && s.origin.Name == "" && len(archives) > 1 {
		s.name = baseName(in)
	}
	return graphs[0], nil
}

func readAttributed(e *edgeSource, a arraySource) error {
	s := e.from
	e.undirected = true
	shape, err := all[int64](a, "adj_shape")
	if err != nil {
		return err
	}
	if len(shape) != 2 || shape[0] != shape[1] {
		return fmt.Errorf("%s: the shape is %v, but the matrix must be square",
			a.name("adj_shape"), shape)
	}
	if err := s.setVertices(shape[0], a.name("adj_shape")); err != nil {
		return err
	}
	switch {
	case a.Has("attr_indptr"):
		err = setCSRFeatures(s, a, "attr")
	case a.Has("attr_matrix"):
		err = setDenseFeatures(s, a, "attr_matrix")
	}
	if err != nil {
		return err
	}
	if err := addCompressed(e, a, "adj_indptr", "adj_indices", false); err != nil {
		return err
	}
	if a.Has("labels") && !slices.Contains(s.options.Ignore, "labels") {
		return readLabels(s, a, "labels")
	}
	return nil
}

func readPlain(e *edgeSource, a arraySource) error {
	s := e.from
	edges := s.find(a, "edge_index")
	if edges == "" && !isScipy(a) {
		return noEdges(a)
	}
	if err := readVertices(s, a); err != nil {
		return err
	}
	if edges != "" {
		return addPairs(e, a, edges)
	}
	return addScipy(e, a)
}

// readVertices reads the number of vertices, their features and their labels.
func readVertices(s *source, a arraySource) error {
	if n := s.find(a, "num_nodes"); n != "" {
		if err := readCount(s, a, n); err != nil {
			return err
		}
	}
	x, y := s.find(a, "x"), s.find(a, "y")
	for _, key := range []string{x, y} { // the first one that exists gives the number of vertices
		if key == "" || s.vertices != unknown {
			continue
		}
		r, err := a.open(key, 1, 2)
		if err != nil {
			return err
		}
		if err := errors.Join(s.setVertices(int64(r.Shape[0]), a.name(key)),
			r.Close()); err != nil {
			return err
		}
	}
	var err error
	switch {
	case x != "" && a.Has("attr_indptr"):
		err = fmt.Errorf("%s: both %s and attr_indptr hold features; leave one out", a.path, x)
	case x != "":
		err = setDenseFeatures(s, a, x)
	case a.Has("attr_indptr"):
		err = setCSRFeatures(s, a, "attr")
	}
	if err == nil && y != "" {
		err = readLabels(s, a, y)
	}
	return err
}

// readWeights reads a weight for each edge, in the order of the edges. An array with several
// columns holds features of edges, so it is not read here.
func readWeights(e *edgeSource, a arraySource) error {
	key := e.find(a, "edge_weight")
	if key == "" || slices.Contains(e.options.LinkLabels, key) {
		return nil
	}
	r, err := a.open(key, 1, 2)
	if err != nil {
		return err
	}
	defer r.Close()
	if n := e.edges.NumEdges(); int64(r.Elems()) != n {
		return fmt.Errorf("%s has shape %s, but %d edges need one weight each: %w; give these "+
			"weights, or leave them out with --ignore %s",
			a.name(key), npy.ShapeString(r.Shape), n, ErrValue, key)
	}
	at := 0
	err = eachChunk(r, r.Left(), func(part []float64) error {
		for _, w := range part {
			if err := e.addWeight(w); err != nil {
				return fmt.Errorf("%s: edge %d: %w", a.name(key), at, err)
			}
			at++
		}
		return nil
	})
	e.tellTimes("array "+key, asWeight, a.begin(key))
	return err
}

// readIDs keeps the ids that vertices have in the source, which are integers or words. The edges
// and the split in the archive nevertheless name vertices by their rows; only --split names them by
// these ids.
func readIDs(s *source, a arraySource, key string) error {
	r, err := a.open(key, 1)
	if err != nil {
		return err
	}
	var ids []string
	if r.IsText() {
		ids, err = npy.ReadText(r)
	} else {
		digits, float := map[string]int{"f2": 11, "f4": 24, "f8": 53}[r.DType[1:]]
		var numbers []int64
		if numbers, err = npy.ReadAll[int64](r); err == nil {
			for v, x := range numbers {
				if float && (x >= 1<<digits || x <= -1<<digits) {
					return fmt.Errorf("%s: vertex %d is %d: %w: numbers of type %s hold whole "+
						"numbers below 2^%d only, so digits are lost; save the ids as int64 or "+
						"as words", a.name(key), v, x, ErrValue, r.DType[1:], digits)
				}
				ids = append(ids, strconv.FormatInt(x, 10))
			}
		}
	}
	if err != nil {
		return err
	}
	if len(ids) != s.vertices {
		return fmt.Errorf("%s has %d ids, but %d vertices need one id each",
			a.name(key), len(ids), s.vertices)
	}
	s.places = make(map[string]graph.VertexID, len(ids))
	for v, id := range ids {
		if _, twice := s.places[id]; twice || strings.ContainsRune(id, '\n') {
			return fmt.Errorf(
				"%s: the id of vertex %d is %.60q: %w: an id must be one line of text that no "+
					"other vertex has",
				a.name(key), v, id, ErrValue)
		}
		s.places[id] = graph.VertexID(v)
	}
	keepIDs(s, ids)
	return nil
}

// noEdges returns the error that the edges are missing. It lists the arrays that are there, and
// says what to do.
func noEdges(a arraySource) error {
	has := func(part string) bool {
		return slices.ContainsFunc(a.Names(), func(n string) bool {
			return strings.Contains(n, part)
		})
	}
	holds := "it holds " + strings.Join(a.Names(), ", ")
	switch {
	case has("edge_index") || has("__"):
		return fmt.Errorf(
			"%s: %w: the edges have several types; give each type arrays or a table of its own, "+
				"called edge_index,SOURCE,NAME,TARGET and x,TYPE; %s",
			a.path, ErrValue, holds)
	case a.first("adj", "A", "adjacency") != "":
		return fmt.Errorf("%s: %w: the array is a dense adjacency matrix; save its edges "+
			"instead: edge_index=numpy.argwhere(adj).T; %s", a.path, ErrValue, holds)
	case a.first("row", "col", "src", "dst", "source", "target") != "":
		return fmt.Errorf("%s: %w: the ends of the edges are in two arrays; save them as one: "+
			"edge_index=numpy.stack([src, dst]); %s", a.path, ErrValue, holds)
	}
	return fmt.Errorf("%s: there is neither edge_index nor adj_indptr; %s; name the array of the "+
		"edges by --keys edge_index=NAME", a.path, holds)
}
