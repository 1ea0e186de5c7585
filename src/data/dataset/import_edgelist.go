package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// readEdgeList reads a SNAP edge list: rows "from to", separated by blanks, tabs, commas or
// semicolons, with comments that begin with # or %, plain or gzip. Ids may be any integers.
// Vertices are numbered in ascending order of their ids; original_id.npy keeps the ids if they
// differ from the numbers. The option In names the file, or a directory that holds only this file.
//
// The file is read twice, first for the ids. So memory is at most 8 bytes for each edge and 16 for
// each id, whatever the ids are.
func readEdgeList(e *edgeSource) error {
	s := e.from
	path, err := onlyFile(s.options.In)
	if err != nil {
		return err
	}
	if err := refuseBipartite(path); err != nil {
		return err
	}
	var ids distinct
	rows, loop := int64(0), false
	if err := eachEdge(path, func(r *table.Reader, u, v int64) error {
		if padded(r.Row()) {
			return r.Errorf("%w: %.40q: an id begins with 0, which a number would lose; --format "+
				"csv --no-header reads ids as they are written", ErrValue, r.Row())
		}
		loop = loop || rows == 0 && u == v
		rows++
		ids.add(u)
		ids.add(v)
		return nil
	}); err != nil {
		return err
	}
	if loop && isMETIS(path) { // each row of a METIS file of a ring has two numbers, like an edge
		return fmt.Errorf("%s: %w: %s", path, ErrValue, cureMETIS)
	}
	// the clone is only as large as needed; the list grew with spare room
	x := newIndex(slices.Clone(ids.sorted()))
	ids = distinct{}
	if err := s.setVertices(int64(len(x.ids)), path); err != nil {
		return err
	}
	if n := len(x.ids); n > 0 && (x.ids[0] != 0 || x.ids[n-1] != int64(n)-1) {
		s.originals = x.ids
		s.notes = append(s.notes, fmt.Sprintf("%d ids between %d and %d were renumbered in "+
			"ascending order; original_id.npy has the ids", n, x.ids[0], x.ids[n-1]))
	}
	s.reads(path, "columns 1 and 2", "source and target", "")
	return eachEdge(path, func(r *table.Reader, u, v int64) error {
		from, ok1 := x.find(u)
		to, ok2 := x.find(v)
		if !ok1 || !ok2 {
			return r.Errorf("the file changed while it was read; import it again")
		}
		e.edges.Add(graph.VertexID(from), graph.VertexID(to))
		return nil
	})
}

// onlyFile returns the path itself if it is a file. If it is a directory, it returns the only file
// in it.
func onlyFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, e.Name())
		}
	}
	switch {
	case len(entries) == 0:
		return "", fmt.Errorf("%s: the directory is empty; name the file to read", path)
	case len(files) == 0:
		return "", fmt.Errorf("%s: the directory holds no file to read, only %s; name the file",
			path, few(filesIn(path, "")))
	case len(files) > 1:
		return "", fmt.Errorf("%s: the directory holds %d files, %s; name the one to read, as %s",
			path, len(files), few(files), filepath.Join(path, files[0]))
	}
	return filepath.Join(path, files[0]), nil
}

// padded reports whether a number in a row has a leading 0, such as 01.
func padded(row []byte) bool {
	digit := func(i int) bool { return i >= 0 && i < len(row) && row[i]-'0' <= 9 }
	for i, c := range row {
		if c == '0' && digit(i+1) && !digit(i-1) {
			return true
		}
	}
	return false
}

// refuseBipartite returns an error for a KONECT file whose first line says that edges join two sets
// of vertices: both sets are numbered from 1, so equal ids are different vertices.
func refuseBipartite(path string) error {
	if !beginsWith(path, "% bip ") && !beginsWith(path, "%bip ") {
		return nil
	}
	return fmt.Errorf("%s: %w: its first line says that the graph is bipartite (bip), so an id "+
		"on one side and the same id on the other are two vertices. Give both sides ids of their "+
		"own: awk '!/^%%/ {print \"a\" $1 \",b\" $2}' FILE > edges.csv, which --format csv "+
		"--no-header --undirected imports; or give the sides types (docs/guide/typed.md)",
		path, ErrValue)
}

const cureMETIS = "a METIS graph: its first line counts vertices and edges, and each other one " +
	"lists the neighbours of a vertex; if it has no weights, awk '!/^%/ && n++ {for (i = 1; i " +
	"<= NF; i++) print n - 1, $i}' FILE > edges.txt writes its edges"

var errNotMETIS = errors.New("no METIS graph")

// isMETIS reports whether a file is in the format of METIS. In that format, the first row has the
// number of vertices and the number of edges. A row for each vertex follows, which lists the
// vertex's neighbours, perhaps with weights. So each edge comes twice.
func isMETIS(path string) bool {
	var head []int64
	first, last, numbers := 0, 0, int64(0)
	err := eachRow(path, table.Blank, func(r *table.Reader) error {
		last = r.Line()
		if head != nil {
			if numbers += int64(r.Columns()); int64(last-first) > head[0] || numbers/4 > head[1] {
				return errNotMETIS // stops early, so that a large edge list is not read to its end
			}
			return nil
		}
		if first, head = last, make([]int64, r.Columns()); len(head) < 2 || len(head) > 4 {
			return errNotMETIS
		}
		return r.Ints(head)
	})
	return err == nil && len(head) > 0 && int64(last-first) == head[0] &&
		(numbers == 2*head[1] || len(head) > 2 && numbers == 4*head[1])
}

func eachEdge(path string, visit func(r *table.Reader, u, v int64) error) error {
	var edge [2]int64
	return eachRow(path, table.Blank, func(r *table.Reader) error {
		if err := r.Ints(edge[:]); err != nil {
			return fmt.Errorf("%w: %s", err, cureEdge(path, r))
		}
		return visit(r, edge[0], edge[1])
	})
}

// cureEdge says what to do about a row that is not an edge. It recognises files of several
// programs, which look alike.
func cureEdge(path string, r *table.Reader) string {
	fields := r.Fields(nil)
	_, number := table.ParseFloat(fields[len(fields)-1])
	whole := func(f []byte) bool { return wholeNumber(string(f)) != "" }
	decimal := ""
	if n := len(fields); n == 4 && bytes.Contains(r.Row(), []byte{','}) {
		decimal = " (in weights, write a decimal point instead of a comma)"
	}
	switch n := len(fields); {
	case isMETIS(path):
		return cureMETIS
	case beginsWith(path, "%%MatrixMarket"):
		return "a MatrixMarket file, which begins with its size: in Python, " +
			"halognn.write_dataset(DIR, scipy.io.mmread(FILE)) imports it"
	case bytes.HasPrefix(r.Row(), []byte("*")):
		return "a Pajek file: in Python, halognn.write_dataset(DIR, networkx.read_pajek(FILE)) " +
			"imports it"
	case n > 2 && bytes.ContainsAny(r.Row(), "{}"):
		return "an edge with attributes in braces, as networkx.write_edgelist writes: write the " +
			"file with data=False or by networkx.write_weighted_edgelist, or import the graph " +
			"in Python by halognn.write_dataset(DIR, graph)"
	case n > 1 && whole(fields[0]) && whole(fields[1]):
		others := ""
		if n > 2 {
			others = ", without the other columns"
		}
		return "ids are integers, without a point: numpy.savetxt(FILE, edges, fmt=\"%d\") writes " +
			"them so, as does awk '{printf \"%d %d\\n\", $1, $2}' FILE" + others
	case isHeader(r):
		return "remove the header line, or begin it with #; or use --format csv, which reads " +
			"names of columns"
	case n == 1 && number && r.Line() == 1:
		return "an edge is two vertex ids; if the first line is a count, remove it: tail -n +2 " +
			"FILE > NEW; if this is an adjacency list, import it in Python by " +
			"halognn.write_dataset(DIR, networkx.read_adjlist(FILE))"
	case n == 1:
		return "an edge is two vertex ids; if this is an adjacency list, import it in Python by " +
			"halognn.write_dataset(DIR, networkx.read_adjlist(FILE))"
	case n > 2 && n < 5 && number && isMoment(string(fields[n-1])):
		return "an edge is two vertex ids; --format csv --no-header --source 0 --target 1 reads " +
			"them; the last column seems to be a time, which is not used"
	case n == 3 && number:
		return "an edge is two vertex ids; if the third column is a weight, --format csv " +
			"--no-header --source 0 --target 1 --weight 2 imports it; else cut other columns off"
	case n != 2:
		return "an edge is two vertex ids" + decimal +
			"; --format csv --no-header --source 0 --target 1 reads tables with more columns; " +
			"import an adjacency list in Python by halognn.write_dataset(DIR, " +
			"networkx.read_adjlist(FILE))"
	}
	return "an id is an integer of 64 bits; renumber the vertices, or use --format csv " +
		"--no-header --source 0 --target 1, which reads words as ids"
}

// beginsWith reports whether a file, after inflating if it is gzip, begins with the text.
func beginsWith(path, text string) bool {
	r, err := table.OpenWords(path, table.None, false)
	if err != nil {
		return false
	}
	defer r.Close()
	ok, err := r.Next()
	return err == nil && ok && bytes.HasPrefix(r.Row(), []byte(text))
}

// distinct collects the distinct numbers of a long sequence, in memory proportional to the number
// of distinct ones. Whenever the list has doubled since the last clean-up, it is sorted and repeats
// are removed.
type distinct struct {
	list  []int64
	limit int
}

func (d *distinct) add(x int64) {
	// most edge lists are sorted by source, so an id often repeats the last one
	if n := len(d.list); n > 0 && d.list[n-1] == x {
		return
	}
	if len(d.list) >= max(d.limit, 1<<16) {
		d.limit = 2 * len(d.sorted())
	}
	d.list = append(d.list, x)
}

func (d *distinct) sorted() []int64 {
	slices.Sort(d.list)
	d.list = slices.Compact(d.list)
	return d.list
}

// index finds the position of a number in an ascending list. The range of the numbers is cut into
// equal buckets, about as many as there are numbers. Bucket b begins at starts[b], so a search
// looks at one bucket only.
type index struct {
	ids    []int64
	starts []int32
	shift  uint
}

func newIndex(ids []int64) *index {
	x := &index{ids: ids}
	if len(ids) == 0 {
		return x
	}
	// an unsigned number holds the difference of any two int64
	span := uint64(ids[len(ids)-1]) - uint64(ids[0])
	if n := bits.Len64(span) - bits.Len64(uint64(len(ids))); n > 0 {
		x.shift = uint(n)
	}
	x.starts = make([]int32, span>>x.shift+2)
	for _, id := range ids {
		x.starts[x.bucket(id)+1]++
	}
	for b := 1; b < len(x.starts); b++ {
		x.starts[b] += x.starts[b-1]
	}
	return x
}

func (x *index) bucket(id int64) uint64 { return (uint64(id) - uint64(x.ids[0])) >> x.shift }

func (x *index) find(id int64) (int, bool) {
	if len(x.ids) == 0 || id < x.ids[0] || id > x.ids[len(x.ids)-1] {
		return 0, false
	}
	b := x.bucket(id)
	from := int(x.starts[b])
	i, ok := slices.BinarySearch(x.ids[from:x.starts[b+1]], id)
	return from + i, ok
}
