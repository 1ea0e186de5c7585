package shard

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// Layout holds the new id of every vertex, as partition.Order returns it, and how it was made.
type Layout struct {
	NewID   []graph.VertexID // [N] new id of each vertex of the dataset: a permutation
	Offsets []int64          // [P+1] first new id of each part
	Report  partition.Report
	Origin  Origin // Write fills in Dataset, Identity and Scaling
}

// Write writes the parts of ds to dir, which must not exist or must be an empty directory. It
// writes files under a temporary name beside dir, and renames that when all are complete. After an
// error in any process of the team nothing is left. Equal input gives equal bytes, whatever the
// team is.
//
// Each process writes some of the files, and one range of every array that has an entry for each
// edge.
//
// Besides the mapped dataset, it takes 4 bytes of memory for each vertex, and 2 MiB for each CPU.
// It reads features row by row in the new order. So if the dataset does not fit in memory, each row
// costs a random read.
func Write(dir string, ds *dataset.Dataset, l Layout, team Team) error {
	tmp, end, err := begin(team, dir)
	defer end()
	if err == nil {
		w := &writer{dir: tmp, ds: ds, l: l, team: team}
		err = team.Agree(mem.Guard(w.write))
		mem.Free(w.original)
		if err == nil {
			err = w.join()
		}
		if err == nil {
			err = team.Agree(w.finish(dir))
		}
	}
	if err != nil {
		if tmp != "" && team.Rank() == 0 {
			dataset.Discard(tmp)
		}
		return fmt.Errorf("writing the parts of %s to %s: %w", ds.Dir, dir, err)
	}
	return nil
}

type writer struct {
	dir      string
	ds       *dataset.Dataset
	l        Layout
	team     Team
	original []int32 // [N] id in the dataset for each new id
	mu       sync.Mutex
	meta     Meta                   // mu guards its Files
	shared   map[string]*npy.Shared // guarded by mu
}

// write writes the share of this process.
func (w *writer) write() error {
	m := &w.ds.Meta
	if err := CheckFeatures(w.l.Origin.Features, m); err != nil {
		return err
	}
	w.meta = Meta{
		Format: Format, Parts: len(w.l.Offsets) - 1, Offsets: w.l.Offsets, Vertices: m.Vertices,
		Edges: m.Edges, Weighted: m.Weighted, Task: m.Task, Classes: m.Classes,
		EdgeFeatures: m.EdgeFeatures, Features: m.Features, FeatureType: m.FeatureType,
		Entries: m.Entries, Names: m.FeatureNames, Origin: w.l.Origin, Report: w.l.Report,
		Files: make(map[string]npy.Info),
	}
	w.shared = make(map[string]*npy.Shared)
	if cols := structuralCols(w.l.Origin.Features); cols > 0 && !m.Schema.Typed() {
		w.meta.Features, w.meta.FeatureType = cols, dataset.Float32
	}
	if len(m.Provenance.Classes) == m.Classes {
		w.meta.ClassNames = m.Provenance.Classes
	}
	w.meta.Origin.Dataset, w.meta.Origin.Identity = m.Name, w.ds.Identity()
	w.meta.Origin.Scaling = m.Scaling()
	if err := w.invert(); err != nil {
		return err
	}
	w.meta.Splits = make([]SplitSizes, w.meta.Parts)
	for range w.ds.More {
		w.meta.MoreSplits = append(w.meta.MoreSplits, make([]SplitSizes, w.meta.Parts))
	}
	if task.Stored(m.Task).Embeds {
		w.meta.Links = make([]SplitSizes, w.meta.Parts)
	}
	if m.Schema.Typed() {
		if err := w.types(); err != nil {
			return err
		}
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, task := range w.tasks() {
		group.Go(func() error { return mem.Guard(task) })
	}
	return group.Wait()
}

// tasks returns functions that write the share of this process. Every process writes ranges of the
// arrays over edges. The other files are given to processes one by one, the largest file first,
// each to the process that has the fewest bytes to write so far.
func (w *writer) tasks() (own []func() error) {
	m := &w.ds.Meta
	own = append(own, w.indices)
	if m.Weighted {
		own = append(own, w.weights)
	}
	if w.team.Rank() == 0 { // rank 0 writes meta.json, which has the sizes of the splits
		own = append(own, w.splits, w.links)
	}
	type file struct {
		bytes int64
		write func() error
	}
	n := m.Vertices
	files := []file{
		{8 * n, func() error { return w.pointers("indptr.npy", w.ds.Graph.Indptr) }},
		{4 * n, w.labels},
		{4 * n, w.sourceIDs},
		{4 * n, func() error { return put(w, "original_id.npy", w.original, len(w.original)) }},
	}
	if m.Weighted {
		files = append(files, file{4 * n, w.sums})
	}
	if w.meta.Type() == compute.Int8 {
		files = append(files, file{0, func() error {
			return put(w, dataset.ScaleFile, w.ds.Scale, len(w.ds.Scale))
		}})
	}
	if w.meta.Type().IsSparse() {
		files = append(files, file{8 * n, func() error {
			return w.pointers(dataset.RowEndsFile, w.ds.RowEnds)
		}})
	}
	if m.Schema.Typed() {
		files = append(files, file{8 * int64(len(w.ds.Columns.Indptr)), w.columns})
	}
	for k := 0; k < w.meta.Parts && m.EdgeFeatures > 0; k++ {
		bytes := 4 * int64(m.EdgeFeatures) * m.Edges / int64(w.meta.Parts)
		files = append(files, file{bytes, func() error { return w.edgeRows(k) }})
	}
	ranges := w.meta.Ranges()
	for i := range w.meta.Parts * w.meta.Schema.NumTypes() {
		row := w.meta.Table(i % w.meta.Schema.NumTypes()).RowBytes()
		files = append(files, file{(ranges[i+1] - ranges[i]) * int64(row),
			func() error { return w.features(i) }})
	}
	slices.SortStableFunc(files, func(a, b file) int { return cmp.Compare(b.bytes, a.bytes) })
	load := make([]int64, w.team.Size())
	for _, f := range files {
		least := slices.Index(load, slices.Min(load))
		load[least] += f.bytes
		if least == w.team.Rank() {
			own = append(own, f.write)
		}
	}
	return own
}

// join finishes the files that all processes write. It then gives each process the descriptions of
// all files.
func (w *writer) join() (err error) {
	for _, name := range slices.Sorted(maps.Keys(w.shared)) {
		var sum []byte
		for rank := range w.team.Size() {
			var mine []byte
			if rank == w.team.Rank() {
				var fail error
				mine, fail = w.shared[name].Sum(sum)
				err = cmp.Or(err, fail)
			}
			sums, fail := w.team.Gather(mine)
			if fail != nil {
				return fail
			}
			sum = sums[rank]
		}
		if w.team.Rank() == 0 && err == nil {
			var info npy.Info
			info, err = w.shared[name].Finish(sum)
			w.note(name, info)
		}
	}
	text, fail := json.Marshal(w.meta.Files)
	if err = w.team.Agree(cmp.Or(err, fail)); err != nil {
		return err
	}
	all, err := w.team.Gather(text)
	for _, text := range all {
		err = cmp.Or(err, json.Unmarshal(text, &w.meta.Files))
	}
	return w.team.Agree(err)
}

// finish writes meta.json, and gives the directory its final name.
func (w *writer) finish(dir string) error {
	if w.team.Rank() > 0 {
		return nil
	}
	if err := w.meta.check(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(&w.meta, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, metaFile), append(text, '\n'), 0o666); err != nil {
		return err
	}
	return dataset.Finish(w.dir, dir)
}

// types sets how the parts describe vertex types. It returns an error if the vertices of a type do
// not lie together in every part.
func (w *writer) types() error {
	m, of := &w.meta, &w.ds.Meta
	m.Schema, m.Tables, m.LabelType = of.Schema, slices.Clone(of.Tables), of.LabelType
	if cols := structuralCols(w.l.Origin.Features); cols > 0 {
		for t, table := range m.Tables {
			if table.Features == 0 {
				m.Tables[t].Features, m.Tables[t].FeatureType = cols, dataset.Float32
			}
		}
	}
	t := m.Schema.NumTypes()
	m.Starts = make([]int64, m.Parts*t+1)
	last := -1
	for id, v := range w.original {
		kind, _, _ := w.ds.Columns.Of(graph.VertexID(v))
		at := w.partOf(graph.VertexID(id))*t + kind
		if at < last {
			return fmt.Errorf("%w: vertex %d of type %s comes after a vertex of a later type in "+
				"its part", ErrMismatch, v, m.Schema.Types[kind])
		}
		last = at
		m.Starts[at+1]++
	}
	for i := range m.Parts * t {
		m.Starts[i+1] += m.Starts[i]
	}
	return nil
}

// columns writes where the in-edges of each vertex and relation begin.
func (w *writer) columns() error {
	rows := w.ds.Columns.Indptr
	out, err := newStream[int64](w, dataset.ColumnsFile, len(rows))
	if err != nil {
		return err
	}
	end := int64(0)
	out.add(end)
	for _, v := range w.original {
		_, first, n := w.ds.Columns.Of(graph.VertexID(v))
		for c := first; c < first+graph.VertexID(n); c++ {
			end += rows[c+1] - rows[c]
			out.add(end)
		}
	}
	return out.close()
}

// invert checks the layout and fills in w.original, the inverse of NewID.
func (w *writer) invert() error {
	n := w.meta.Vertices
	if w.meta.Parts < 1 || int64(len(w.l.NewID)) != n {
		return fmt.Errorf("%w: the layout has %d parts and %d vertices, but the dataset has %d",
			ErrMismatch, w.meta.Parts, len(w.l.NewID), n)
	}
	if err := checkOffsets(w.l.Offsets, n); err != nil {
		return err
	}
	w.original = mem.Make[int32](int(n))
	for i := range w.original {
		w.original[i] = -1
	}
	for v, id := range w.l.NewID {
		if id < 0 || int64(id) >= n || w.original[id] >= 0 {
			return fmt.Errorf("%w: new id %d of vertex %d is out of range or given twice",
				ErrMismatch, id, v)
		}
		w.original[id] = int32(v)
	}
	return nil
}

func (w *writer) note(name string, info npy.Info) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meta.Files[name] = info
}

// put writes one whole array.
func put[T npy.Element](w *writer, name string, data []T, shape ...int) error {
	info, err := npy.WriteFile(filepath.Join(w.dir, name), data, shape...)
	if err == nil {
		w.note(name, info)
	}
	return err
}

// writeFile writes an array by calling the function `write`. It leaves nothing if that fails.
func (w *writer) writeFile(name, dtype string, shape []int, write func(*npy.Writer) error) error {
	out, err := npy.Create(filepath.Join(w.dir, name), dtype, shape...)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := write(out); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	w.note(name, out.Info())
	return nil
}

// stream writes an array element by element. It keeps the first error for the method close.
type stream[T npy.Element] struct {
	w      *writer
	name   string
	out    *npy.Writer
	buffer []T
	err    error
}

func newStream[T npy.Element](w *writer, name string, shape ...int) (*stream[T], error) {
	out, err := npy.Create(filepath.Join(w.dir, name), npy.DType[T](), shape...)
	return &stream[T]{w: w, name: name, out: out, buffer: make([]T, 0, 1<<16)}, err
}

func (s *stream[T]) add(x T) {
	if len(s.buffer) == cap(s.buffer) {
		s.flush()
	}
	s.buffer = append(s.buffer, x)
}

func (s *stream[T]) flush() {
	if s.err == nil {
		_, s.err = s.out.Write(mem.Bytes(s.buffer))
	}
	s.buffer = s.buffer[:0]
}

func (s *stream[T]) close() error {
	s.flush()
	if s.err != nil {
		s.out.Abort()
		return s.err
	}
	if err := s.out.Close(); err != nil {
		return err
	}
	s.w.note(s.name, s.out.Info())
	return nil
}

// pointers writes the row pointers of the parts. The argument `indptr` has the row pointers of the
// dataset.
func (w *writer) pointers(name string, indptr []int64) error {
	out, err := newStream[int64](w, name, len(indptr))
	if err != nil {
		return err
	}
	end := int64(0)
	out.add(end)
	for _, v := range w.original {
		end += indptr[v+1] - indptr[v]
		out.add(end)
	}
	return out.close()
}

// edges writes this process's range of an array that has an entry for each edge. For each vertex v
// of the dataset, it calls the function `values`, which appends the entries of some in-edges of v
// to a slice, and returns the slice. These in-edges are those at the positions first to last-1 in
// the dataset.
func edges[T npy.Element](w *writer, name string,
	values func(to []T, v int32, first, last int64) ([]T, error)) error {
	out, err := npy.CreateShared(filepath.Join(w.dir, name), w.team.Rank(), w.team.Size(),
		npy.DType[T](), int(w.meta.Edges))
	if err != nil {
		return err
	}
	size := int64(unsafe.Sizeof(*new(T)))
	from, to := out.Range()
	from, to = from/size, to/size
	buffer := make([]T, 0, 1<<17)
	indptr, at := w.ds.Graph.Indptr, int64(0)
	for _, v := range w.original {
		first, last := indptr[v], indptr[v+1]
		begin := at
		if at += last - first; at <= from {
			continue
		}
		first, last = first+max(from-begin, 0), last-max(at-to, 0)
		for err == nil && first < last {
			some := min(last, first+1<<16)
			if buffer, err = values(buffer, v, first, some); err == nil && len(buffer) >= 1<<16 {
				_, err = out.Write(mem.Bytes(buffer))
				buffer = buffer[:0]
			}
			first = some
		}
		if err != nil || at >= to {
			break
		}
	}
	if err == nil {
		_, err = out.Write(mem.Bytes(buffer))
	}
	if fail := out.Close(); err != nil || fail != nil {
		return cmp.Or(err, fail)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shared[name] = out
	return nil
}

func (w *writer) indices() error {
	g, n := w.ds.Graph, uint32(w.meta.Vertices)
	return edges(w, "indices.npy",
		func(to []graph.VertexID, v int32, first, last int64) ([]graph.VertexID, error) {
			for _, u := range g.Indices[first:last] {
				if uint32(u) >= n {
					return nil, fmt.Errorf("%w: vertex %d of the dataset has the in-neighbour "+
						"%d, but there are %d vertices; run `halognn check` on it",
						graph.ErrVertexRange, v, u, n)
				}
				to = append(to, w.l.NewID[u])
			}
			return to, nil
		})
}

// weights writes the weights of the edges, in the order of the edges.
func (w *writer) weights() error {
	return edges(w, dataset.WeightsFile,
		func(to []float32, _ int32, first, last int64) ([]float32, error) {
			return append(to, w.ds.Weights[first:last]...), nil
		})
}

// sums writes the sum of the weights of each vertex's in-edges.
func (w *writer) sums() error {
	out, err := newStream[float32](w, sumsFile, int(w.meta.Vertices))
	if err != nil {
		return err
	}
	for _, v := range w.original {
		out.add(weightSum(w.ds.Weights[w.ds.Graph.Indptr[v]:w.ds.Graph.Indptr[v+1]]))
	}
	return out.close()
}

// weightSum adds the weights in float64, in the order of the edges.
func weightSum(weights []float32) float32 {
	sum := 0.0
	for _, x := range weights {
		sum += float64(x)
	}
	return float32(sum)
}

func (w *writer) labels() error {
	layout := task.Stored(w.meta.Task).Layout(int(w.meta.Vertices), w.meta.Classes)
	return w.writeFile("labels.npy", layout.DType, layout.Shape, func(out *npy.Writer) error {
		for _, v := range w.original {
			if _, err := out.Write(w.ds.Labels.Row(int(v))); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *writer) splits() error {
	for k, sizes := range splitsOf(&w.meta) {
		split := w.ds.Split
		if k > 0 {
			split = w.ds.More[k-1]
			if err := w.makePart(dataset.SplitFile(k, "")); err != nil {
				return err
			}
		}
		if err := w.split(k, split, sizes); err != nil {
			return err
		}
	}
	return nil
}

// split writes the split with index k, and counts in sizes how many of its vertices each part has.
func (w *writer) split(k int, s graph.Split, sizes []SplitSizes) error {
	for i, list := range s.Lists() {
		name, ids := dataset.SplitFile(k, graph.SplitNames[i]), make([]graph.VertexID, len(*list))
		for n, v := range *list {
			if v < 0 || int(v) >= len(w.l.NewID) {
				return fmt.Errorf("%s: vertex %d: %w; run `halognn check` on the dataset",
					name, v, graph.ErrVertexRange)
			}
			ids[n] = w.l.NewID[v]
			*sizes[w.partOf(ids[n])].listSize(i)++
		}
		slices.SortFunc(ids, func(a, b graph.VertexID) int {
			return cmp.Or(cmp.Compare(w.partOf(a), w.partOf(b)),
				cmp.Compare(w.original[a], w.original[b]))
		})
		if err := put(w, name, ids, len(ids)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) partOf(id graph.VertexID) int {
	return sort.Search(w.meta.Parts-1, func(k int) bool { return int64(id) < w.meta.Offsets[k+1] })
}

// makePart makes the directory for a file of a part or of a split.
func (w *writer) makePart(name string) error {
	// MkdirAll would make w.dir again, which a signal may have removed.
	err := os.Mkdir(filepath.Join(w.dir, filepath.Dir(name)), 0o777)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// edgeRows writes the feature rows of the edges into one part.
func (w *writer) edgeRows(part int) error {
	name, cols, indptr := edgeRowsFile(part), w.meta.EdgeFeatures, w.ds.Graph.Indptr
	if err := w.makePart(name); err != nil {
		return err
	}
	edges := 0
	here := w.original[w.meta.Offsets[part]:w.meta.Offsets[part+1]]
	for _, v := range here {
		edges += int(indptr[v+1] - indptr[v])
	}
	return w.writeFile(name, npy.DType[float32](), []int{edges, cols}, func(out *npy.Writer) error {
		for _, v := range here {
			if err := npy.Write(out,
				w.ds.EdgeRows[int(indptr[v])*cols:int(indptr[v+1])*cols]); err != nil {
				return err
			}
		}
		return nil
	})
}

// features writes the feature table with the index i: the table of part i / T and vertex type i %
// T, where T is the number of vertex types.
func (w *writer) features(i int) error {
	name, t := featuresFile(&w.meta, i), i%w.meta.Schema.NumTypes()
	if err := w.makePart(name); err != nil {
		return err
	}
	first, last, of := w.meta.Ranges()[i], w.meta.Ranges()[i+1], tableInfo(&w.meta, i)
	if of.Shape[0] < 0 { // the rows are sparse
		of.Shape[0] = 0
		for _, v := range w.original[first:last] {
			of.Shape[0] += int(w.ds.RowEnds[v+1] - w.ds.RowEnds[v])
		}
	}
	begin := w.ds.Meta.Starts()[t]
	var made []float32
	if w.ds.Meta.Table(t).Features == 0 {
		made = make([]float32, structuralCols(w.l.Origin.Features))
	}
	return w.writeFile(name, of.DType, of.Shape, func(out *npy.Writer) (err error) {
		for _, v := range w.original[first:last] {
			if len(made) > 0 {
				structuralRow(made, w.ds.Graph.Indptr[v+1]-w.ds.Graph.Indptr[v])
				err = npy.Write(out, made)
			} else {
				row := int64(v) - begin
				_, err = out.Write(w.ds.FeatureRows(t, row, row+1))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
