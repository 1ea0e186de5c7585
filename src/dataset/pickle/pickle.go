// Package pickle reads the three kinds of object that the pickles of Planetoid data sets
// (ind.cora.x, ind.cora.graph, ...) hold, and nothing else. It executes nothing: the few classes it
// knows are plain Go structs, and any other name in the file is an error.
//
//	ind.NAME.{x,tx,allx}   scipy.sparse.csr_matrix          ──> ReadCSR    CSR
//	ind.NAME.{y,ty,ally}   two-dimensional numpy.ndarray    ──> ReadArray  Array
//	ind.NAME.graph         defaultdict(list), id -> ids     ──> ReadLists  Lists
//
// The files are protocol 2, as Python 2 wrote them. The reader allocates memory in proportion to
// the bytes of its input, not to sizes in the input.
package pickle

import "fmt"

// CSR is a sparse matrix by rows: row r has Values[k] at column Indices[k] for k in
// Indptr[r]:Indptr[r+1]. Its columns lie in [0, Cols), in the order of the file.
type CSR struct {
	Rows, Cols int
	Indptr     []int64   // [Rows+1]
	Indices    []int64   // [stored entries]
	Values     []float64 // [stored entries]
}

// Array is a dense matrix, Values[r*Cols+c], row-major.
type Array struct {
	Rows, Cols int
	Values     []float64
}

// Lists maps Keys[i], in the order of the file, to the list Values[Offsets[i]:Offsets[i+1]].
type Lists struct {
	Keys    []int64
	Offsets []int64 // [keys+1]
	Values  []int64
}

// ReadCSR reads a pickled scipy.sparse.csr_matrix of numbers. Errors name the byte, or the field of
// the matrix, at fault.
func ReadCSR(data []byte) (*CSR, error) {
	v, err := load(data)
	if err != nil {
		return nil, err
	}
	s, ok := v.(*sparse)
	if !ok {
		return nil, fmt.Errorf("holds %s, want a scipy.sparse csr_matrix", kind(v))
	}
	return s.csr()
}

// ReadArray reads a pickled two-dimensional numpy.ndarray of numbers.
func ReadArray(data []byte) (*Array, error) {
	v, err := load(data)
	if err != nil {
		return nil, err
	}
	a, ok := v.(*array)
	if !ok {
		return nil, fmt.Errorf("holds %s, want a numpy ndarray", kind(v))
	}
	if len(a.shape) != 2 {
		return nil, fmt.Errorf("holds an ndarray of %d dimensions, want 2", len(a.shape))
	}
	values, err := a.floats()
	if err != nil {
		return nil, err
	}
	return &Array{Rows: a.shape[0], Cols: a.shape[1], Values: values}, nil
}

// ReadLists reads a pickled dict, or collections.defaultdict(list), from integers to lists of
// integers.
func ReadLists(data []byte) (*Lists, error) {
	v, err := load(data)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*dict)
	if !ok {
		return nil, fmt.Errorf("holds %s, want a dict of lists", kind(v))
	}
	out := &Lists{Keys: make([]int64, 0, len(d.keys)), Offsets: make([]int64, 1, len(d.keys)+1)}
	for i, k := range d.keys {
		key, ok := k.(int64)
		if !ok {
			return nil, fmt.Errorf("entry %d of the dict has %s as its key, want an integer", i,
				kind(k))
		}
		l, ok := d.values[i].(*list)
		if !ok {
			return nil, fmt.Errorf("key %d of the dict has %s as its value, want a list", key,
				kind(d.values[i]))
		}
		// Every list item takes at least a byte of the file, unless many keys share a list, by
		// which a small hostile file could grow without bound.
		if len(out.Values)+len(l.items) > len(data) {
			return nil, fmt.Errorf("key %d: the lists have more items than the file has bytes, "+
				"so lists are shared between keys; want a list of its own for each key", key)
		}
		for j, item := range l.items {
			x, ok := item.(int64)
			if !ok {
				return nil, fmt.Errorf("item %d of the list of key %d is %s, want an integer", j,
					key, kind(item))
			}
			out.Values = append(out.Values, x)
		}
		out.Keys = append(out.Keys, key)
		out.Offsets = append(out.Offsets, int64(len(out.Values)))
	}
	return out, nil
}
