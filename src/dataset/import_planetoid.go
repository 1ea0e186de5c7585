package dataset

import (
	"fmt"
	"path/filepath"
	"strings"

	"halognn/src/dataset/pickle"
	"halognn/src/dataset/table"
	"halognn/src/graph"
	"halognn/src/mem"
)

// planetoid is the content of the files ind.NAME.*. Vertices 0 to len(allx)-1 have their row in
// allx and ally, vertex tests[i] has row i of tx and ty. An id between these that is in neither is
// a vertex with edges, but without features and label.
type planetoid struct {
	prefix        string // path up to the last dot
	allx, tx      *pickle.CSR
	ally, ty      *pickle.Array
	training      int // rows of y: the first vertices
	tests         []int64
	vertices      int
	unlisted      int // ids in neither
	validVertices int
}

// planetoidValid is the size of the validation set by convention: the ids after the training
// vertices.
const planetoidValid = 500

// readPlanetoid reads ind.NAME.{y,allx,ally,tx,ty,graph,test.index}. In is the directory, or the
// path up to the name (dir/ind.NAME) if it holds several.
func readPlanetoid(s *source) error {
	s.undirected = true
	prefix, err := planetoidPrefix(s.options.In)
	if err != nil {
		return err
	}
	if s.options.Name == "" {
		s.name = strings.TrimPrefix(filepath.Base(prefix), "ind.")
	}
	p := &planetoid{prefix: prefix}
	if err := p.load(); err != nil {
		return err
	}
	s.vertices = p.vertices
	if p.unlisted > 0 {
		s.notes = append(s.notes,
			fmt.Sprintf("%d vertices are not in test.index: they have no features and no label",
				p.unlisted))
	}
	if err := addLists(s, prefix+".graph"); err != nil {
		return err
	}
	if err := setOneHot(s, p); err != nil {
		return err
	}
	m, err := fillSparse(p.vertices, p.allx.Cols, p.entries)
	if err != nil {
		return fmt.Errorf("%s.allx, tx: %w", prefix, err)
	}
	if err := s.setSparse(prefix+".allx, tx", p.allx.Cols, m); err != nil {
		return err
	}
	s.given = p.split()
	return nil
}

func planetoidPrefix(in string) (string, error) {
	if exists(in + ".graph") {
		return in, nil
	}
	found, _ := filepath.Glob(filepath.Join(in, "ind.*.graph")) // the pattern is sound
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s: no file ind.NAME.graph is there; name the directory of a "+
			"Planetoid data set, or its files up to ind.NAME", in)
	case 1:
		return strings.TrimSuffix(found[0], ".graph"), nil
	}
	return "", fmt.Errorf("%s: %d data sets; choose one, such as --in %s", in, len(found),
		strings.TrimSuffix(found[0], ".graph"))
}

// unpickle reads one of the files and names it in errors.
func unpickle[T any](p *planetoid, part string, read func([]byte) (T, error)) (T, error) {
	path := p.prefix + "." + part
	data, err := mem.ReadFile(path)
	if err != nil {
		var none T
		return none, err
	}
	v, err := read(data)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return v, err
}

func (p *planetoid) load() (err error) {
	if p.allx, err = unpickle(p, "allx", pickle.ReadCSR); err != nil {
		return err
	}
	if p.tx, err = unpickle(p, "tx", pickle.ReadCSR); err != nil {
		return err
	}
	if p.ally, err = unpickle(p, "ally", pickle.ReadArray); err != nil {
		return err
	}
	if p.ty, err = unpickle(p, "ty", pickle.ReadArray); err != nil {
		return err
	}
	y, err := unpickle(p, "y", pickle.ReadArray)
	if err != nil {
		return err
	}
	p.training = y.Rows
	path := p.prefix + ".test.index"
	var id [1]int64
	if err := eachRow(path, table.Comma, func(r *table.Reader) error {
		if err := r.Ints(id[:]); err != nil {
			return err
		}
		if id[0] < int64(p.allx.Rows) || id[0] >= graph.MaxVertices {
			return r.Errorf("test vertex %d: %w: test ids begin at %d, the rows of allx", id[0],
				ErrValue, p.allx.Rows)
		}
		p.tests = append(p.tests, id[0])
		return nil
	}); err != nil {
		return err
	}
	return p.check(path)
}

func (p *planetoid) check(index string) error {
	if p.allx.Rows != p.ally.Rows || p.tx.Rows != p.ty.Rows || p.tx.Rows != len(p.tests) ||
		p.training > p.allx.Rows {
		return fmt.Errorf("%s.*: the files do not fit together: allx has %d rows and ally %d, tx "+
			"%d and ty %d, test.index %d, y %d; take all from one data set",
			p.prefix, p.allx.Rows, p.ally.Rows, p.tx.Rows, p.ty.Rows, len(p.tests), p.training)
	}
	if p.allx.Cols != p.tx.Cols || p.ally.Cols != p.ty.Cols {
		return fmt.Errorf("%s.*: the files do not fit together: allx has %d columns and tx %d, "+
			"ally %d and ty %d; take all from one data set",
			p.prefix, p.allx.Cols, p.tx.Cols, p.ally.Cols, p.ty.Cols)
	}
	seen := make(map[int64]bool, len(p.tests))
	last := int64(p.allx.Rows) - 1
	for i, v := range p.tests {
		if seen[v] {
			return fmt.Errorf("%s: line %d: test vertex %d is listed twice", index, i+1, v)
		}
		seen[v] = true
		last = max(last, v)
	}
	// Each id up to the last takes memory, so an implausible one is rejected: citeseer lacks 15 of
	// 1015.
	p.vertices = int(last) + 1
	p.unlisted = p.vertices - p.allx.Rows - len(p.tests)
	if p.unlisted > p.allx.Rows+len(p.tests) {
		return fmt.Errorf("%s: the largest id is %d, but only %d vertices have features: %w", index,
			last, p.allx.Rows+len(p.tests), ErrValue)
	}
	p.validVertices = min(planetoidValid, p.allx.Rows-p.training)
	return nil
}

// addLists adds the neighbour lists of the graph file.
func addLists(s *source, path string) error {
	p := &planetoid{prefix: strings.TrimSuffix(path, ".graph")}
	lists, err := unpickle(p, "graph", pickle.ReadLists)
	if err != nil {
		return err
	}
	for i, u := range lists.Keys {
		for _, v := range lists.Values[lists.Offsets[i]:lists.Offsets[i+1]] {
			if err := s.addEdge(u, v); err != nil {
				return fmt.Errorf("%s: list of vertex %d: %w", path, u, err)
			}
		}
	}
	return nil
}

// setOneHot takes the labels from ally and ty; a row of zeros means no label.
func setOneHot(s *source, p *planetoid) error {
	for _, m := range []struct {
		name  string
		array *pickle.Array
	}{{"ally", p.ally}, {"ty", p.ty}} {
		for r := range m.array.Rows {
			class := -1
			for c, y := range m.array.Values[r*m.array.Cols : (r+1)*m.array.Cols] {
				if y == 0 {
					continue
				}
				if y != 1 || class >= 0 {
					return fmt.Errorf("%s.%s: row %d: %w: want at most one 1 among zeros", p.prefix,
						m.name, r, ErrValue)
				}
				class = c
			}
			v := r
			if m.name == "ty" {
				v = int(p.tests[r])
			}
			if err := s.setLabel(v, float64(class)); err != nil {
				return fmt.Errorf("%s.%s: row %d: %w", p.prefix, m.name, r, err)
			}
		}
	}
	s.classes = p.ally.Cols // a class may have no vertex
	return nil
}

// entries yields the features of all vertices.
func (p *planetoid) entries(yield func(row, col int, value float64) error) error {
	for r := range p.allx.Rows {
		for k := p.allx.Indptr[r]; k < p.allx.Indptr[r+1]; k++ {
			if err := yield(r, int(p.allx.Indices[k]), p.allx.Values[k]); err != nil {
				return err
			}
		}
	}
	for r, v := range p.tests {
		for k := p.tx.Indptr[r]; k < p.tx.Indptr[r+1]; k++ {
			if err := yield(int(v), int(p.tx.Indices[k]), p.tx.Values[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *planetoid) split() *splitSource {
	split := &splitSource{from: "the rows of x, the 500 ids after them, test.index",
		path: p.prefix + ".test.index", read: true}
	for v := range p.training + p.validVertices {
		if v < p.training {
			split.Train = append(split.Train, graph.VertexID(v))
		} else {
			split.Valid = append(split.Valid, graph.VertexID(v))
		}
	}
	for _, v := range p.tests {
		split.Test = append(split.Test, graph.VertexID(v))
	}
	return split
}
