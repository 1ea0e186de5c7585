package dataset

import (
	"fmt"

	"halognn/src/base/npy"
)

// isScipy reports whether a holds a sparse matrix as scipy.sparse.save_npz writes it.
func isScipy(a arraySource) bool {
	return a.Has("shape") && a.Has("data") &&
		(a.Has("indptr") && a.Has("indices") || a.Has("row") && a.Has("col"))
}

// addScipy adds, for every stored entry of a square scipy matrix (CSR, CSC or COO), an edge from
// the entry's row to its column.
func addScipy(e *edgeSource, a arraySource) error {
	format := "csr"
	if a.Has("format") {
		r, err := a.open("format", 0, 1)
		if err != nil {
			return err
		}
		words, err := npy.ReadText(r)
		if err != nil {
			return err
		}
		if len(words) != 1 {
			return fmt.Errorf("%s: %d words, want one", a.name("format"), len(words))
		}
		format = words[0]
	}
	shape, err := all[int64](a, "shape")
	if err != nil {
		return err
	}
	if len(shape) != 2 || shape[0] != shape[1] {
		return fmt.Errorf("%s: the shape is %v, but the matrix must be square: a row and a "+
			"column for each vertex",
			a.name("shape"), shape)
	}
	if e.from.vertices == unknown {
		err = e.from.setVertices(shape[0], a.name("shape"))
	} else if shape[0] != int64(e.from.vertices) {
		err = fmt.Errorf("%s: the shape is %v, but the other arrays have %d vertices; save all "+
			"arrays of one graph",
			a.name("shape"), shape, e.from.vertices)
	}
	if err != nil {
		return err
	}
	switch format {
	case "csr", "csc":
		return addCompressed(e, a, "indptr", "indices", format == "csc")
	case "coo":
		return addCOO(e, a, "row", "col")
	}
	return fmt.Errorf("%s is %q, but must be csr, csc or coo; save it again with "+
		"scipy.sparse.save_npz(file, a.tocsr())", a.name("format"), format)
}

// addCOO adds the edges whose sources and destinations are in two arrays of equal length.
func addCOO(e *edgeSource, a arraySource, from, to string) error {
	rows, err := all[int64](a, from)
	if err != nil {
		return err
	}
	cols, err := all[int64](a, to)
	if err != nil {
		return err
	}
	if len(rows) != len(cols) {
		return fmt.Errorf("%s has %d entries, but %s has %d; save the matrix again",
			a.name(from), len(rows), to, len(cols))
	}
	for at, u := range rows {
		if err := e.addEdge(u, cols[at]); err != nil {
			return fmt.Errorf("%s: entry %d: %w", a.name(from), at, err)
		}
	}
	return nil
}
