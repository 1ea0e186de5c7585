package dataset

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"

	"halognn/src/dataset/table"
	"halognn/src/graph"
)

// readEdgeList reads a SNAP edge list: rows "from to", separated by blanks, tabs or commas,
// comments with # or %, plain or gzip. Ids may be any integers; vertices are numbered in the order
// of their ids, and original_id.npy keeps the ids if they differ from the numbers. In is the file,
// or a directory with no other file.
//
// The file is read twice, first for the ids, so that memory is at most 8 bytes an edge and 16 an
// id, for any ids.
func readEdgeList(s *source) error {
	path, err := onlyFile(s.options.In)
	if err != nil {
		return err
	}
	var ids distinct
	if err := eachEdge(path, func(_ *table.Reader, u, v int64) error {
		ids.add(u)
		ids.add(v)
		return nil
	}); err != nil {
		return err
	}
	x := newIndex(slices.Clone(ids.sorted())) // without the room that the list grew into
	ids = distinct{}
	if err := s.setVertices(int64(len(x.ids)), path); err != nil {
		return err
	}
	if n := len(x.ids); n > 0 && (x.ids[0] != 0 || x.ids[n-1] != int64(n)-1) {
		s.originals = x.ids
		s.notes = append(s.notes, fmt.Sprintf("%d ids between %d and %d were renumbered in their "+
			"order; original_id.npy has them", n, x.ids[0], x.ids[n-1]))
	}
	return eachEdge(path, func(r *table.Reader, u, v int64) error {
		from, ok1 := x.find(u)
		to, ok2 := x.find(v)
		if !ok1 || !ok2 {
			return r.Errorf("the file changed while it was read; import it again")
		}
		s.edges.Add(graph.VertexID(from), graph.VertexID(to))
		return nil
	})
}

// onlyFile returns path, or the only file in it if it is a directory.
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
		if !e.IsDir() {
			files = append(files, e.Name())
		}
	}
	if len(files) != 1 {
		return "", fmt.Errorf("%s: the directory holds %d files; name the one to read", path,
			len(files))
	}
	return filepath.Join(path, files[0]), nil
}

func eachEdge(path string, visit func(r *table.Reader, u, v int64) error) error {
	var edge [2]int64
	return eachRow(path, table.Blank, func(r *table.Reader) error {
		if err := r.Ints(edge[:]); err != nil {
			switch {
			case isHeader(r):
				err = fmt.Errorf("%w; remove the header line, or begin it with #", err)
			case r.Columns() != 2:
				err = fmt.Errorf("%w: an edge is two vertex ids; cut other columns off, such as "+
					"weights, which are not kept", err)
			default:
				err = fmt.Errorf("%w of 64 bits; renumber the vertices", err)
			}
			return err
		}
		return visit(r, edge[0], edge[1])
	})
}

// distinct collects the distinct numbers of a long sequence in memory proportional to their count:
// whenever the list is twice as long as after the last time, it is sorted and repeats are removed.
type distinct struct {
	list  []int64
	limit int
}

func (d *distinct) add(x int64) {
	if n := len(d.list); n > 0 && d.list[n-1] == x { // most edge lists are sorted by source
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

// index finds numbers in an ascending list. The range of the numbers is cut into about as many
// equal buckets as there are numbers; bucket b begins at starts[b], so a search looks at one bucket
// only.
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
	// as unsigned, the difference of any two int64 fits
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
