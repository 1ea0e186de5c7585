package shard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/data/dataset/table"
)

// sourceFiles gives, for each file of a dataset that may hold the ids of the source, the name of
// its copy in parts.
var sourceFiles = map[string]string{
	"original_id.npy": sourceIDFile, "original_name.npy": sourceNameFile,
}

const (
	sourceIDFile   = "source_id.npy"
	sourceNameFile = "source_name.npy"
)

// ErrNoVertex is wrapped by errors about an id that no vertex has in the source.
var ErrNoVertex = errors.New("no such vertex")

// sourceIDs copies the file with the ids of the source, if the dataset has one.
func (w *writer) sourceIDs() error {
	for from, to := range sourceFiles {
		if _, ok := w.ds.Meta.Files[from]; !ok {
			continue
		}
		if err := w.copyFile(filepath.Join(w.ds.Dir, from), to); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) copyFile(from, name string) error {
	f, err := npy.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := npy.WriteRows(filepath.Join(w.dir, name), f.Data, f.DType, f.Shape...)
	if err == nil {
		w.note(name, info)
	}
	return err
}

// SourceIDs holds the id that each vertex has in the source. The index is the vertex's id in the
// dataset.
type SourceIDs struct {
	vertices int
	numbers  []int64 // nil if ids are words, or if they equal the ids in the dataset
	names    []byte  // one line for each id; nil if ids are numbers
	ends     []int   // [vertices] where the line of each id ends in names; the method Text makes it
	file     io.Closer
}

// OpenSourceIDs maps the file with the ids of the source. The caller closes it.
func (s *Shards) OpenSourceIDs() (*SourceIDs, error) {
	ids := &SourceIDs{vertices: int(s.Vertices)}
	for _, name := range sourceFiles {
		want, ok := s.Files[name]
		if !ok {
			continue
		}
		f, err := npy.Open(filepath.Join(s.Dir, name))
		if err != nil {
			return nil, err
		}
		ids.file = f
		if err = f.Check(want.DType, want.Shape...); err == nil && name == sourceIDFile {
			ids.numbers, err = npy.Elements[int64](f, ids.vertices)
		} else if err == nil {
			if ids.names, err = npy.Elements[uint8](f, -1); err == nil {
				if n := bytes.Count(ids.names, []byte("\n")); n != ids.vertices {
					err = fmt.Errorf("%s: %w: %d ids for %d vertices", f.Path(), ErrMismatch, n,
						ids.vertices)
				}
			}
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return ids, nil
}

// Close ends the mapping.
func (i *SourceIDs) Close() error {
	if i.file == nil {
		return nil
	}
	return i.file.Close()
}

// Text returns the id that vertex v of the dataset has in the source.
func (i *SourceIDs) Text(v int) string {
	switch {
	case i.numbers != nil:
		return strconv.FormatInt(i.numbers[v], 10)
	case i.names == nil:
		return strconv.Itoa(v)
	}
	if i.ends == nil {
		i.ends = make([]int, 0, i.vertices)
		for at, c := range i.names {
			if c == '\n' {
				i.ends = append(i.ends, at)
			}
		}
	}
	begin := 0
	if v > 0 {
		begin = i.ends[v-1] + 1
	}
	return string(i.names[begin:i.ends[v]])
}

// Find returns the vertices of the dataset that have these ids in the source, in the order of ids.
// It reads all ids once. It is an error if no vertex has an id, or if an id is given twice.
func (i *SourceIDs) Find(ids []string) ([]int32, error) {
	place := make(map[string]int, len(ids))
	for k, id := range ids {
		if first, twice := place[id]; twice {
			return nil, fmt.Errorf("vertex %q is given twice, in places %d and %d; remove one",
				id, first+1,
				k+1)
		}
		place[id] = k
	}
	found := make([]int32, len(ids))
	for k := range found {
		found[k] = -1
	}
	switch {
	case i.numbers != nil:
		var digits []byte
		for v, x := range i.numbers {
			digits = strconv.AppendInt(digits[:0], x, 10)
			if k, ok := place[string(digits)]; ok {
				found[k] = int32(v)
			}
		}
	case i.names != nil:
		v := 0
		for line := range bytes.Lines(i.names) {
			if k, ok := place[string(bytes.TrimSuffix(line, []byte("\n")))]; ok {
				found[k] = int32(v)
			}
			v++
		}
	default:
		for k, id := range ids {
			// The text must be as Text writes it. Otherwise 7 and 007 would be one vertex that is
			// given twice.
			v, err := strconv.Atoi(id)
			if err == nil && v >= 0 && v < i.vertices && strconv.Itoa(v) == id {
				found[k] = int32(v)
			}
		}
	}
	if k := slices.Index(found, -1); k >= 0 {
		return nil, fmt.Errorf("%w: %.60q; ids are those of the source, %s", ErrNoVertex, ids[k],
			i.example())
	}
	return found, nil
}

// example returns a text that shows what ids look like.
func (i *SourceIDs) example() string {
	if i.numbers == nil && i.names == nil {
		return fmt.Sprintf("0 to %d", i.vertices-1)
	}
	var first []string
	for v := range min(2, i.vertices) {
		first = append(first, i.Text(v))
	}
	return "such as " + strings.Join(first, " and ")
}

// has reports whether any vertex has this id.
func (i *SourceIDs) has(id string) bool {
	_, err := i.Find([]string{id})
	return err == nil
}

// mayBe reports whether a word may be meant as an id: some vertex has it as its id, or it is an
// integer and all ids are integers.
func (i *SourceIDs) mayBe(id string) bool {
	if i.names == nil {
		_, err := strconv.ParseInt(id, 10, 64)
		return err == nil
	}
	return i.has(id)
}

// noTable returns the error about a first row that may be either a list of ids or a row of a table.
func (i *SourceIDs) noTable(path, line string) error {
	return fmt.Errorf("%s: %w: the first row is %.60q; write one id on each line or, if this is "+
		"a table, put a row before it that names the column of ids id", path, ErrNoVertex, line)
}

// marked reports whether any id begins with # or %. If ids begin with a type and a slash, it looks
// at what follows the slash. If marked returns true, lines that begin with # or % are not comments.
func (i *SourceIDs) marked() bool {
	for _, at := range []string{"\n#", "\n%", "/#", "/%"} {
		if bytes.Contains(i.names, []byte(at)) {
			return true
		}
	}
	return len(i.names) > 0 && (i.names[0] == '#' || i.names[0] == '%')
}

// ReadIDs reads ids of vertices: one in each line, or a column of a table, or a .npy of integers or
// words. In a table it reads the column that has a usual name of ids or, if there is none, the
// first column. A first row "id" is always the name of the column. Lines that begin with # or % are
// comments, unless ids of the source begin like that.
func ReadIDs(path string, source *SourceIDs) (ids []string, err error) {
	if filepath.Ext(path) == ".npy" {
		return readIDArray(path)
	}
	var line, fields []string // the first row, once as one field and once as several
	first := func(row *[]string) func(*table.Reader, []string) error {
		return func(_ *table.Reader, words []string) error {
			*row = slices.Clone(words)
			return io.EOF
		}
	}
	err = source.eachRow(path, table.None, false, first(&line))
	if err == nil || errors.Is(err, io.EOF) {
		err = source.eachRow(path, table.Auto, false, first(&fields))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if line == nil || fields == nil {
		return nil, fmt.Errorf("%s: %w: the file has no ids; write one id on each line",
			path, ErrMismatch)
	}
	sep, column, heading, known := table.None, 0, false, source.has(line[0])
	if k := dataset.IDColumn(fields); k >= 0 && (!known || line[0] == "id") {
		column, heading = k, true
		if len(fields) > 1 {
			sep = table.Auto
		}
	} else if !known && len(fields) > 1 && source.has(fields[0]) {
		if !strings.ContainsAny(line[0], ",;\t|") || slices.ContainsFunc(fields[1:], source.mayBe) {
			return nil, source.noTable(path, line[0])
		}
		sep, known = table.Auto, true
	}
	skip := heading
	err = source.eachRow(path, sep, false, func(_ *table.Reader, row []string) error {
		if skip {
			skip = false
			return nil
		}
		ids = append(ids, strings.Clone(row[column]))
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(ids) == 0:
		return nil, fmt.Errorf("%s: %w: the file has no ids; write one id on each line",
			path, ErrMismatch)
	case len(ids) == 1 && sep != table.None && !heading: // the one row may be a list of all ids
		return nil, source.noTable(path, line[0])
	case !known && !heading && len(ids) > 1 && source.has(ids[1]):
		return nil, fmt.Errorf("%s: %w: the first row is %.60q, but ids are those of the source, "+
			"%s; if the row names the column, call it id, or remove the row", path, ErrNoVertex,
			ids[0], source.example())
	}
	return ids, nil
}

// eachRow calls the function `visit` with the rows of a text file, but not with comments. If ragged
// is set, rows may differ in their number of fields. The words are valid until visit returns.
func (i *SourceIDs) eachRow(path string, sep table.Separator, ragged bool,
	visit func(r *table.Reader, words []string) error) error {
	r, err := table.OpenWords(path, sep, ragged)
	if err != nil {
		return err
	}
	defer r.Close()
	comments := !i.marked()
	for {
		ok, err := r.Next()
		if err != nil || !ok {
			return err
		}
		if comments && bytes.IndexAny(r.Row(), "#%") == 0 {
			continue
		}
		words, err := r.Words()
		if err == nil {
			err = visit(r, words)
		}
		if err != nil {
			return err
		}
	}
}

// ReadLinks reads links from a file, one from each row. A row has the id of a source, the id of a
// target, and the ids of at least extra further vertices. The file is a text table or a .npy of
// integers, [n, 2+extra] or wider. If extra is 0, the .npy must be [n, 2], and in a text table
// ReadLinks ignores what follows the target in a row, such as a score.
//
// A first row of text such as "source,target" is a heading, unless both words are ids of vertices.
// To find out, ReadLinks passes each word to the function `full`, which completes an id in the file
// to the id in the source data. It also passes which end of a link the word is: 0 for a source, 1
// for a target. Lines are comments as in ReadIDs.
func ReadLinks(path string, extra int, source *SourceIDs,
	full func(end int, id string) string) (rows [][]string, err error) {
	want := "a source and a target"
	if extra > 0 {
		want = "a source, a target and candidates"
	}
	bad := func(has string) error {
		return fmt.Errorf("%s: %w: %s; want %s", path, dataset.ErrValue, has, want)
	}
	if filepath.Ext(path) == ".npy" {
		r, err := npy.OpenReader(path)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if len(r.Shape) != 2 || r.Shape[1] < 2+extra || extra == 0 && r.Shape[1] != 2 {
			return nil, bad("shape " + npy.ShapeString(r.Shape))
		}
		ids, err := npy.ReadAll[int64](r)
		for row := range slices.Chunk(ids, r.Shape[1]) {
			words := make([]string, len(row))
			for i, id := range row {
				words[i] = strconv.FormatInt(id, 10)
			}
			rows = append(rows, words)
		}
		return rows, err
	}
	first := true
	err = source.eachRow(path, table.Auto, true, func(r *table.Reader, words []string) error {
		heading := first && len(words) > 1 && dataset.AreEnds(words[0], words[1]) &&
			!(source.has(full(0, words[0])) && source.has(full(1, words[1])))
		first = false
		switch {
		case heading:
			return nil
		case len(words) < 2+extra:
			return bad(fmt.Sprintf("line %d has %d columns, %.60q", r.Line(), len(words), r.Row()))
		case extra == 0:
			words = words[:2]
		}
		rows = append(rows, slices.Clone(words))
		return nil
	})
	if err == nil && len(rows) == 0 {
		err = bad("it has no line")
	}
	return rows, err
}

func readIDArray(path string) ([]string, error) {
	r, err := npy.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if len(r.Shape) != 1 || r.Shape[0] == 0 {
		return nil, fmt.Errorf("%s: %w: shape %s; a list of ids must have one dimension, and at "+
			"least one id", path, ErrMismatch,
			npy.ShapeString(r.Shape))
	}
	if r.IsText() {
		return npy.ReadText(r)
	}
	numbers, err := npy.ReadAll[int64](r)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(numbers))
	for k, x := range numbers {
		ids[k] = strconv.FormatInt(x, 10)
	}
	return ids, nil
}
