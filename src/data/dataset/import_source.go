package dataset

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"halognn/src/base/mem"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// unknown stands for the number of vertices of a source as long as no file has said that number.
// After all edges are read, the number is the largest id plus 1.
const unknown = -1

// importer reads tables and arrays. There is one importer for each vertex type and each relation.
// It has the options that apply to that type or relation, and collects what the report says about
// its files.
type importer struct {
	options ImportOptions
	read    map[string]string // meaning of each array that was read, by the array's name
	// the flags with a value for this type or relation alone; only in a graph with types
	own        map[string]bool
	known      []string // names of types or relations that flags may use before =
	unlabelled bool     // --label names labels of another type, and none of this type
	*findings
}

// findings are what the report says about files. In a graph without types, the importers of the
// vertices and of the edges share one findings.
type findings struct {
	notes   []string
	reading []Reading
	// for each column of edge tables that flags name: whether some edge table has it
	columns map[string]bool
}

// source holds the vertices of one type as they were read from foreign files. Everything except the
// features is in memory, large arrays outside the Go heap.
type source struct {
	*importer
	kind       string // name of the type; "" in a graph without types
	name       string // name of the dataset
	vertices   int
	labels     []int32
	marks      []uint8   // [vertices, classes] labels of 0 and 1, if vertices have several
	targets    []float32 // [vertices, classes] numbers to predict; NaN if a vertex has none
	classes    int
	classNames []string
	features   *features
	scaling    *scaling     // scaling of the features; nil if they are stored as they are
	given      *splitSource // split that comes with the data; nil if there is none
	origin     origin
	originals  []int64                   // ids in the source; nil if they are 0 to vertices-1
	names      []string                  // ids in the source, if some are not integers
	places     map[string]graph.VertexID // vertex of each id of a table; nil without a table
	parts      []graphPart               // vertex ranges of several joined graphs
	// words that were taken to mean that there is no label, and how often they were seen
	none map[string]int
	// [vertices] number of label columns that have no value for a vertex; nil if every value is
	// there
	unmarked []int32
	idColumn string // the column of ids in the node table
	otherIDs string // other columns that could hold the ids
	noID     string // advice for a table in which no column holds ids
	// columns that could each be the label, the chosen one first
	rivals  []string
	header  []string // names of the columns of the node table
	unnamed bool     // columns have no names, only numbers
	// rows of the node table that FirstRows left out
	repeated []int
	release  []func()
}

// edgeSource holds the edges of one relation. They join vertices of two types, or of one.
type edgeSource struct {
	*importer
	graph.Relation // without names in a graph without types
	from, to       *source
	edges          graph.Builder
	// weights of the edges, in the order in which addEdge added the edges; nil if edges have no
	// weights
	weights []float32
	// feature rows or labels of the edges, in the order in which addEdge added the edges; the rows
	// have no columns if edges have neither
	rows       edgeRows
	undirected bool // the files say that each edge stands for both directions
	// only if the relation joins two types: numbers of those edges that stand for both directions
	both    []int64
	largest int64 // the largest vertex number in an edge
	// relation that gets the reverse edges of this relation, or nil if none does. If the list both
	// is set, it gets the reverses of only the edges in that list.
	reverse    *edgeSource
	reverses   bool      // the edges are the reversed edges of another relation
	placed     []float32 // labels of links, in the order of the rows
	linkLabels [3][]byte // labels of the training, validation and test links
	// number of classes, or of numbers to predict, of a link; 0 if links have no labels
	linkOutputs int
}

// graphPart is one of several graphs that were joined. It has the vertices First to First+Count-1.
type graphPart struct {
	Name  string `json:"name"`
	First int    `json:"first"`
	Count int    `json:"count"`
}

// features are feature rows that are still to be written.
type features struct {
	file    string // file that errors name
	cols    int
	stored  string // one of FeatureTypes
	entries int64  // number of stored entries; -1 if the rows are dense
	write   func(*RowWriter) error
	names   []string // names of the columns; may be nil
	// columns of a node table, in the order in which the function `write` writes them; may be nil
	columns []int
}

// fault adds the file to an error of the function `write`, or of the RowWriter, about these rows.
func (f *features) fault(err error) error {
	// an error of a table names file and line already
	if err == nil || strings.HasPrefix(err.Error(), f.file) {
		return err
	}
	return fmt.Errorf("%s: %w", f.file, err)
}

func (e *edgeSource) free() {
	e.edges.Free()
	mem.Free(e.weights)
	mem.Free(e.rows.data)
	mem.Free(e.placed)
}

func (s *source) free() {
	mem.Free(s.labels)
	mem.Free(s.marks)
	mem.Free(s.targets)
	for _, f := range s.release {
		f()
	}
}

func (s *source) task() string {
	switch {
	case s.options.SplitLinks != "":
		return cmp.Or(s.options.linkTask(), task.Links)
	case s.targets != nil:
		return task.Regression
	case s.marks != nil:
		return task.Multilabel
	case s.classes > 0:
		return task.Multiclass
	}
	return task.None
}

// truths returns the labels of all vertices.
func (s *source) truths() task.Labels {
	switch {
	case s.targets != nil:
		return task.Labels{Data: mem.Bytes(s.targets), Width: 4 * s.classes}
	case s.marks != nil:
		return task.Labels{Data: s.marks, Width: s.classes}
	}
	return task.Labels{Data: mem.Bytes(s.labels), Width: 4}
}

func (s *source) labelled() (n int64) {
	if s.options.SplitLinks != "" {
		return 0
	}
	name, labels := s.task(), s.truths()
	for v := range s.vertices {
		if name != task.None && s.hasLabel(name, labels, v) {
			n++
		}
	}
	return n
}

// hasLabel reports whether vertex v has a label. The task with this name says which value means
// that there is none. A vertex that lacks the value of a label column has no label.
func (s *source) hasLabel(name string, labels task.Labels, v int) bool {
	return task.Labelled(name, labels, v) && (s.unmarked == nil || s.unmarked[v] == 0)
}

// vertexBytes is the most memory that an import needs for each vertex besides the edges: row
// pointers twice, label, split.
const vertexBytes = 24

// setVertices sets the number of vertices, which comes from the given file.
func (s *source) setVertices(n int64, file string) error {
	if n < 0 || n > graph.MaxVertices {
		return fmt.Errorf("%s has %d vertices, but at most %d are supported",
			file, n, graph.MaxVertices)
	}
	s.vertices = int(n)
	return fits(file, fmt.Sprintf("%d vertices", n), vertexBytes*n)
}

// available returns how much memory an import or a generated graph may use. Tests replace it.
var available = mem.Available

// fits returns an error if the data that a file announces takes more memory than the machine has
// free. The data takes the given bytes of memory. Callers call fits before they allocate this
// memory, so that a wrong count in a file cannot exhaust the memory.
func fits(file, what string, bytes int64) error {
	have, err := available()
	if err != nil {
		return err
	}
	if bytes > have {
		return fmt.Errorf("%s: %w: %s take about %s of memory, and %s is available; import on a "+
			"larger machine or, if the number is wrong, fetch the file again",
			file, ErrTooLarge, what, size(float64(bytes)), size(float64(have)))
	}
	return nil
}

// addEdge adds an edge from u to v, after a check that both vertices exist.
func (e *edgeSource) addEdge(u, v int64) error {
	if u < 0 || u >= e.from.limit() {
		return e.from.vertexRange(u)
	}
	if v < 0 || v >= e.to.limit() {
		return e.to.vertexRange(v)
	}
	e.largest = max(e.largest, u, v)
	e.edges.Add(graph.VertexID(u), graph.VertexID(v))
	return nil
}

// limit returns a bound for the numbers of vertices. Edges may only name vertices whose number is
// below it.
func (s *source) limit() int64 {
	if s.vertices == unknown {
		return graph.MaxVertices
	}
	return int64(s.vertices)
}

func (s *source) vertexRange(v int64) error {
	if v < 0 {
		return fmt.Errorf("an edge names vertex %d: %w: ids must be 0 or more; a negative id may "+
			"come from a type, such as int32, that cannot hold it", v, graph.ErrVertexRange)
	}
	if s.kind != "" {
		return fmt.Errorf("an edge names vertex %d: %w: there are %d vertices of type %s, and "+
			"ids count within a type, from 0 to %d",
			v, graph.ErrVertexRange, s.vertices, s.kind, s.vertices-1)
	}
	cure := "; if ids have gaps, renumber them, and the rows of features, labels and masks alike"
	if s.vertices == unknown {
		cure = "; or they have gaps: numpy.unique(edge_index, return_inverse=True)[1].reshape(" +
			"edge_index.shape) renumbers them"
	}
	return fmt.Errorf("an edge names vertex %d: %w: ids must be 0 to %d. Perhaps files of two "+
		"versions are mixed, or ids begin at 1%s", v, graph.ErrVertexRange, s.limit()-1, cure)
}

// addWeight adds the weight of the edge that was added last.
func (e *edgeSource) addWeight(w float64) error {
	x := float32(w)
	if CheckWeights([]float32{x}) != nil {
		return fmt.Errorf("an edge has weight %v: %w: a weight must be a number from 0 to "+
			"3.4e+38; leave the weights out, by --ignore or without --weight", w, ErrValue)
	}
	e.weights = appended(e.weights, x)
	return nil
}

// putLabel gives vertex v the class y; -1 means that the vertex has none.
func (s *source) putLabel(v, y int) {
	if s.labels == nil {
		s.labels = mem.Make[int32](s.vertices)
		for i := range s.labels {
			s.labels[i] = -1
		}
	}
	s.labels[v] = int32(y)
}

// setLabel gives vertex v the class y. It returns an error unless y is an integer from 0 on, or a
// number that means that there is no label.
func (s *source) setLabel(v int, y float64) error {
	s.putLabel(v, -1)
	if s.noClass(y) {
		return nil
	}
	if y != math.Trunc(y) && !math.IsInf(y, 0) {
		return badLabel(v, ofOne, "has label %g: %w: want a class number; "+cureNumbers, y,
			ErrValue)
	}
	if most := max(s.vertices, s.classes); y != math.Trunc(y) || y < 0 || y >= float64(most) {
		return badLabel(v, ofOne, "has label %g: %w: a label must be a class number from 0 to at "+
			"most %d, for %d vertices, or nan for none", y, ErrValue, most-1, s.vertices)
	}
	s.labels[v] = int32(y)
	s.classes = max(s.classes, int(y)+1)
	return nil
}

// makeMarks allocates the matrix for several labels a vertex.
func (s *source) makeMarks(classes int, file string) error {
	if classes < 1 || int64(classes)*int64(s.vertices) > 1<<40 {
		return fmt.Errorf("%s: %d label columns for %d vertices: %w: there must be at least one "+
			"column, and at most 2^40 labels", file, classes, s.vertices,
			ErrValue)
	}
	marks := int64(s.vertices) * int64(classes)
	if err := fits(file, fmt.Sprintf("%d label columns for %d vertices", classes, s.vertices),
		marks); err != nil {
		return err
	}
	s.classes, s.marks = classes, mem.Make[uint8](int(marks))
	return nil
}

// setMark sets label column c of vertex v to y: 0, 1, or a number that means that there is no
// label.
func (s *source) setMark(v, c int, y float64) error {
	if s.noClass(y) {
		if s.unmarked == nil {
			s.unmarked = make([]int32, s.vertices)
		}
		s.unmarked[v]++
		return nil
	}
	if y != 0 && y != 1 {
		return badLabel(v, c,
			"has label %g: %w: with several label columns each must be 0 or 1; "+cureNumbers, y,
			ErrValue)
	}
	s.marks[v*s.classes+c] = uint8(y)
	return nil
}

// setFeatures registers the features to write. It returns an error if they are too large. The
// argument `entries` is the number of stored entries of sparse features, or -1 if they are dense.
func (s *source) setFeatures(file string, cols int, stored string, entries int64,
	write func(*RowWriter) error) error {
	if s.options.FeatureType != "" {
		stored = s.options.FeatureType
	}
	f := &features{file: file, cols: cols, stored: stored, entries: entries, write: write}
	scaled := s.options.Standardize || s.options.StandardizeAs != ""
	if (entries < 0 || s.kind != "") && cols > 0 && s.options.FeatureType == "" && !scaled {
		f.write = s.watched(f, write)
	}
	if cols > graph.MaxVertices { // a row must fit in memory, even if no vertex has one
		return fmt.Errorf("%s has %d feature columns, but at most %d are supported", file, cols,
			graph.MaxVertices)
	}
	m := Meta{FeatureType: stored, Features: cols}
	bytes := float64(m.Table(0).RowBytes()) * float64(s.vertices) // may exceed an int64
	if stored == Sparse {                                         // entries are counted later
		bytes = 0
	}
	if small := 8 * float64(entries+int64(s.vertices)); entries >= 0 &&
		s.options.FeatureType == "" && s.options.MaxFeatureBytes == 0 &&
		bytes > float64(largeFeatures) && bytes > muchLarger*small {
		z := zeros{f: f, typed: s.kind != "", values: int64(cols) * int64(s.vertices),
			entries: entries}
		return fmt.Errorf("%s: %w: %d sparse entries of the shape [%d, %d] would take %s as %s; "+
			"%s, and --feature-type %[7]s stores the zeros too",
			file, ErrTooLarge, entries, s.vertices, cols, size(bytes),
			stored, z.smaller("stores"))
	}
	limit, origin, err := s.featureLimit()
	if err != nil {
		return err
	}
	if bytes > float64(limit) {
		from := ""
		if entries >= 0 {
			from = fmt.Sprintf(" (%d sparse entries stored dense)", entries)
		}
		return fmt.Errorf("%s: the features would take %s as %s, [%d, %d]%s, above the limit of "+
			"%s (%s); use float16, int8 or sparse rows (--feature-type), raise the limit "+
			"(--max-feature-bytes), choose another disk, or reduce the columns first",
			file, size(bytes), stored, s.vertices, cols, from, size(float64(limit)), origin)
	}
	s.features = f
	return nil
}

func (s *source) featureLimit() (limit int64, origin string, err error) {
	if s.options.MaxFeatureBytes > 0 {
		return s.options.MaxFeatureBytes, "as given", nil
	}
	free, dir, err := freeDisk(s.options.Out)
	if err != nil {
		return 0, "", err
	}
	return free / 5 * 4, "four fifths of the free space at " + dir, nil
}

// size formats a number of bytes.
func size(bytes float64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; bytes >= 1024 && i < len(units)-1; i++ {
		bytes /= 1024
	}
	return fmt.Sprintf("%.4g %s", bytes, units[i])
}
