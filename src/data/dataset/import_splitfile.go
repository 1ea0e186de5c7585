package dataset

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// splitFile reads the split at p.path, which may be:
//
//	*.npz, or a directory of .npy   lists train, valid, test, also called train_idx, valid_idx,
//	                                val_idx, ...; or train_mask, val_mask, ...
//	*.npy                           [N] of 0 train, 1 valid, 2 test, anything else unused
//	a directory without such .npy   train.csv.gz, valid.csv.gz (val, dev), test.csv.gz, or .txt: one
//	                                vertex id a row
//	anything else                   a table with rows "vertex,part", the part 0, 1, 2 or train,
//	                                valid (val), test
//
// The ids in these files are those of the source.
func (s *source) splitFile(p *splitSource) error {
	info, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	switch ext := filepath.Ext(p.path); {
	case ext == ".pt" || ext == ".pth" || ext == ".json" || ext == ".pkl" || ext == ".pickle":
		return fmt.Errorf("%s: %w: this is no table; load it in Python and save its lists: "+
			"numpy.savez(\"split.npz\", train=..., valid=..., test=...)", p.path, ErrValue)
	case info.IsDir() || ext == ".npz":
		a, err := openArrays(p.path)
		if err != nil {
			return err
		}
		defer a.Close()
		found, err := s.splitArrays(arraySource{a, p.path}, p)
		if err == nil && !found && info.IsDir() {
			found, err = s.splitLists(p)
		}
		if err == nil && !found {
			names := a.Names()
			if info.IsDir() {
				names = filesIn(p.path, "")
			}
			err = fmt.Errorf("%s: there are no arrays train, valid and test (or *_idx, *_mask), "+
				"and no tables train.csv and so on; it holds %s", p.path, few(names))
		}
		return err
	case ext == ".npy":
		return s.splitCodes(p)
	}
	return s.splitTable(p)
}

// listNames are the names of the files with the lists of a split, without .csv or .txt.
var listNames = [3][]string{{"train"}, {"valid", "val", "dev"}, {"test"}}

// splitLists reads a directory that has a file for each list. The result found is false if it has
// no file for the training list.
func (s *source) splitLists(p *splitSource) (found bool, err error) {
	for _, ext := range []string{".csv", ".txt"} {
		if either(p.path, "train"+ext) == "" {
			continue
		}
		comments := s.comments()
		for i, names := range listNames {
			path := ""
			for _, name := range names {
				path = cmp.Or(path, either(p.path, name+ext))
			}
			if path == "" {
				return true, fmt.Errorf("%s must have one of %s%s, plain or as .gz, but has "+
					"none: %w", p.path,
					strings.Join(names, ext+", "), ext, os.ErrNotExist)
			}
			if err := s.idList(path, comments, p.Lists()[i]); err != nil {
				return true, err
			}
		}
		return true, nil
	}
	return false, nil
}

// idList reads one vertex id from each row. The first row may be the name of the column.
func (s *source) idList(path string, comments bool, list *[]graph.VertexID) error {
	r, err := table.OpenWords(path, table.Comma, false)
	if err != nil {
		return err
	}
	defer r.Close()
	for first := true; ; first = false {
		ok, err := r.Next()
		if err != nil || !ok {
			return err
		}
		row, err := r.Words()
		if err != nil {
			return err
		}
		if comments && strings.IndexAny(row[0], "#%") == 0 {
			continue
		}
		if len(row) != 1 {
			return r.Errorf("%w: %d columns; want the id of a vertex in each row", ErrValue,
				len(row))
		}
		v, err := s.vertexNamed(row[0])
		if _, part := wordOfPart(row[0]); err != nil && first && (part || s.usual(row[0])) {
			continue
		}
		if err != nil {
			return r.Errorf("%w", err)
		}
		*list = append(*list, v)
	}
}

// vertexOf returns the vertex that has the given integer as its id in the source.
func (s *source) vertexOf(id int64) (graph.VertexID, error) {
	if s.places != nil {
		return s.vertexNamed(strconv.FormatInt(id, 10))
	}
	v := id
	if s.originals != nil {
		i, ok := slices.BinarySearch(s.originals, id)
		if !ok {
			return 0, fmt.Errorf("vertex %d: %w: no edge names this id; remove it from the list",
				id, graph.ErrVertexRange)
		}
		v = int64(i)
	}
	if v < 0 || v >= int64(s.vertices) {
		return 0, fmt.Errorf("vertex %d: %w (the graph has %d vertices)", id, graph.ErrVertexRange,
			s.vertices)
	}
	return graph.VertexID(v), nil
}

// vertexNamed returns the vertex that has the given text as its id in the source.
func (s *source) vertexNamed(id string) (graph.VertexID, error) {
	if s.places != nil {
		v, ok := s.places[id]
		if !ok {
			return 0, fmt.Errorf("vertex %.60q: %w: no row of the tables has this id; remove it "+
				"from the list", id,
				graph.ErrVertexRange)
		}
		return v, nil
	}
	x, ok := table.ParseInt([]byte(id))
	if !ok {
		return 0, fmt.Errorf("vertex %.60q: %w: the id of a vertex must be an integer",
			id, ErrValue)
	}
	return s.vertexOf(x)
}

// splitArrays fills in the lists of the split from arrays of a, which may have any of the known
// names. The result found is false if there are no such arrays.
func (s *source) splitArrays(a arraySource, p *splitSource) (found bool, err error) {
	r := splitReader{s: s, a: a, splits: 1}
	if s.options.SplitIndex != nil {
		r.k = *s.options.SplitIndex
	}
	if found, err = r.read(&p.Split); err != nil || !found {
		return found, err
	}
	if r.k >= r.splits {
		return found, r.none(a.path, r.splits)
	}
	for r.k++; s.options.AllSplits && r.k < r.splits; r.k++ {
		var other graph.Split
		if _, err := r.read(&other); err != nil {
			return found, err
		}
		p.more = append(p.more, other)
	}
	return found, nil
}

// splitReader reads the split with index k. An array may hold several splits, as rows or as
// columns; an array with only one split gives the same list for every k.
type splitReader struct {
	s *source
	a arraySource
	// k is the index of the split; splits is the largest number of splits in any array
	k, splits int
}

func (r *splitReader) read(p *graph.Split) (found bool, err error) {
	for i, part := range graph.SplitNames {
		if key := r.s.find(r.a, part); key != "" {
			found = true
			err = r.ids(key, p.Lists()[i])
		} else if key := r.s.find(r.a, part+"_mask"); key != "" {
			found = true
			err = r.mask(key, p.Lists()[i])
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

func (r *splitReader) none(name string, splits int) error {
	return fmt.Errorf("%s has no split %d; the number of splits is %d, and they are counted from "+
		"0; change --split-index",
		name, r.k, splits)
}

func (r *splitReader) ids(key string, list *[]graph.VertexID) error {
	ids, err := r.one(key, nil)
	if err != nil {
		return err
	}
	// a list with a number for each vertex, all of them 0 or 1, is a mask
	other := func(x int64) bool { return x != 0 && x != 1 }
	if n := r.s.vertices; n > 2 && len(ids) == n && !slices.ContainsFunc(ids, other) {
		return r.mask(key, list)
	}
	for _, id := range ids {
		v, err := r.s.vertexOf(id)
		if err != nil {
			return fmt.Errorf("%s: %w", r.a.name(key), err)
		}
		*list = append(*list, v)
	}
	return nil
}

func (r *splitReader) mask(key string, list *[]graph.VertexID) error {
	n := r.s.vertices
	mask, err := r.one(key, &n)
	if err != nil {
		return err
	}
	if len(mask) != n {
		return fmt.Errorf("%s has %d marks, but %d vertices need one mark each; if the array "+
			"lists vertices, give it a name without _mask, or declare it with --keys, as in "+
			"--keys train=%s", r.a.name(key), len(mask), n, key)
	}
	for v, m := range mask {
		if m != 0 {
			*list = append(*list, graph.VertexID(v))
		}
	}
	return nil
}

// one reads, from the array key, the list or mask of the split with index k. If extent is not nil,
// a list or mask has *extent numbers. That shows whether the rows or the columns of an array with
// two dimensions are the splits.
func (r *splitReader) one(key string, extent *int) ([]int64, error) {
	file, err := r.a.open(key, 1, 2)
	if err != nil {
		return nil, err
	}
	shape := file.Shape
	values, err := npy.ReadAll[int64](file)
	if err != nil {
		return nil, err
	}
	splits, step, length := 1, 1, len(values)
	if len(shape) == 2 && shape[0] != 1 && shape[1] != 1 {
		splits, length = shape[0], shape[1]
		if extent != nil && shape[0] == *extent && shape[1] != *extent {
			// [vertices, splits] is the layout of PyTorch Geometric
			splits, length, step = shape[1], shape[0], shape[1]
		}
	}
	if splits == 1 {
		return values, nil
	}
	if o := r.s.options; o.SplitIndex == nil && !o.AllSplits {
		return nil, fmt.Errorf("%s has shape %s, which is %d splits; choose one with "+
			"--split-index 0 to %d, or keep all with --split-index all",
			r.a.name(key), npy.ShapeString(shape), splits, splits-1)
	}
	if r.splits = max(r.splits, splits); r.k >= splits {
		return nil, r.none(r.a.name(key), splits)
	}
	begin := r.k * length
	if step > 1 {
		begin = r.k
	}
	one := make([]int64, length)
	for i := range one {
		one[i] = values[begin+i*step]
	}
	return one, nil
}

// splitCodes reads an array with one code for each vertex.
func (s *source) splitCodes(p *splitSource) error {
	r, err := npy.OpenReader(p.path)
	if err != nil {
		return err
	}
	codes, err := npy.ReadAll[int64](r)
	if err != nil {
		return err
	}
	if len(codes) != s.vertices {
		return fmt.Errorf("%s has %d codes, but %d vertices need one code each: 0 for train, 1 "+
			"for valid, 2 for test, -1 for none", p.path, len(codes), s.vertices)
	}
	for v, c := range codes {
		if c >= 0 && c < 3 {
			*p.Lists()[c] = append(*p.Lists()[c], graph.VertexID(v))
		}
	}
	return nil
}

var partNames = map[string]int{"0": 0, "train": 0, "training": 0, "tr": 0,
	"1": 1, "valid": 1, "val": 1, "validation": 1, "validate": 1, "va": 1, "dev": 1,
	"development": 1, "2": 2, "test": 2, "testing": 2, "te": 2}

// splitTable reads a table of vertices and their lists. The first row, or a comment before it, may
// be the names of the columns.
func (s *source) splitTable(p *splitSource) error {
	t, err := table.OpenNamed(p.path, table.Names{Known: s.usual, Remark: true,
		Data: func(row []string, _ [][]string) bool {
			if k := IDColumn(row); k >= 0 {
				if _, err := s.vertexNamed(row[k]); err != nil { // such as id,train,valid,test
					return false
				}
			}
			_, _, is := partOf(row[len(row)-1])
			return is
		}, Either: asData})
	if err != nil {
		return err
	}
	defer t.Close()
	id, part := s.splitColumns(t)
	masks := s.splitMasks(t)
	switch {
	// this comes before splitColumns, which would take a 1 as valid
	case masks != nil && len(t.Header) == 2:
		id, part = 1-masks.first(), -1
	case len(t.Header) > 2 && t.HasNames: // the table has other columns too
		id = IDColumn(t.Header)
		if part, _ = s.column(t, "", "", splitNames...); part >= 0 {
			masks = nil
		}
		if id < 0 || part < 0 && masks == nil {
			return t.Errorf("%w: there are %d columns, but none has the name of an id, or none "+
				"has the name of a split; give 2 columns, a vertex and train, valid or test, or "+
				"name the columns id and split, or id, train_mask, val_mask and test_mask",
				ErrValue, len(t.Header))
		}
	}
	if err := askProse(t, "", id == 0); err != nil {
		return err
	}
	comments := s.comments()
	for {
		row, err := t.Next()
		if err != nil {
			return err
		}
		if row == nil {
			s.tellComments(t)
			if masks != nil {
				p.Split = masks.lists
			}
			return nil
		}
		if len(row) != 2 && !t.HasNames {
			return t.Errorf("%d columns, but there must be 2: a vertex, and train, valid or test",
				len(row))
		}
		if comments && strings.IndexAny(row[0], "#%") == 0 {
			continue
		}
		v, err := s.vertexNamed(row[id])
		if masks != nil && err == nil {
			if err := masks.read(v, row); err != nil {
				return err
			}
			continue
		}
		k, is := 0, false
		if masks == nil {
			k, _, is = partOf(row[part])
		}
		switch {
		case masks == nil && !is && !noPart(row[part]):
			return t.Errorf("%.60q: %w: a row must have a vertex, and train, valid, test or an "+
				"empty field",
				t.Row(), ErrValue)
		case err != nil:
			return t.Errorf("%w", err)
		case is:
			*p.Lists()[k] = append(*p.Lists()[k], v)
		}
	}
}

// splitMasks returns the masks in the columns of a table, or nil if there are none.
func (s *source) splitMasks(t *table.Named) *maskReader {
	if !t.HasNames {
		return nil
	}
	m := findMasks(s, t, []int{IDColumn(t.Header)})
	if n := m.count(); n == 0 || n == len(t.Header) { // no column is left for the ids
		return nil
	}
	// from here on, any value that is not a mark is an error
	m.given, m.plain, m.alone = false, [3]bool{}, true
	return &m
}

// asData answers, for a first row that could be the names of columns, that it is data.
func asData([]string, [][]string) (named, known bool) { return false, true }

// splitColumns finds the columns of the vertex and of the list, in a table of two columns. If the
// name of one column shows which of the two it is, the remaining column is the other. If no name
// does, the vertex comes first.
func (s *source) splitColumns(t *table.Named) (id, part int) {
	if id, _ = s.column(t, "", "", idNames...); t.HasNames && id >= 0 {
		return id, 1 - min(id, 1)
	}
	if part, _ = s.column(t, "", "", splitNames...); t.HasNames && part == 0 {
		return 1, 0
	}
	return 0, 1
}

// comments reports whether rows that begin with # or % are comments. They are not if some vertex id
// begins with # or %.
func (s *source) comments() bool {
	for id := range s.places {
		if strings.IndexAny(id, "#%") == 0 {
			return false
		}
	}
	return true
}
