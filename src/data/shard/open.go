package shard

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Options choose how files are mapped. The zero value maps them where they lie.
type Options struct {
	// CopyTopology reads the topology once into memory that all ranks of the node share
	// (topology.load: copy). This helps on file systems where reading page by page is slow. Call
	// UnlinkShared when all ranks of the node have opened the shards.
	CopyTopology bool
	// Stage is a directory on the node's own disk. The first process of the node copies files to it
	// before they are mapped. The copies stay for later runs, unless Discard removes them. "" means
	// that files are not copied.
	Stage string
	// Verify checks the hashes of the copies that an earlier run left in Stage. A file with a
	// damaged copy is copied again.
	Verify bool
	// Waiting is called with true when this process begins to wait until another one has copied a
	// file, and with false when the wait ends. It may be nil.
	Waiting func(begins bool)
	// SharedMemory is the directory to which CopyTopology copies; "" means /dev/shm.
	SharedMemory string
	// Rank and Ranks are set for a partitioned topology, where a rank opens only the rows of its
	// own vertices in indptr.npy, columns.npy, indices.npy, labels.npy and the files of edge
	// weights. Reading other rows is an error. With CopyTopology or Stage, these rows are read into
	// the memory of the process. If Ranks is 0, all rows are opened.
	Rank, Ranks int
	Split       int // index of the split to open, among the splits that the parts keep
	// AllLabels opens the labels of all vertices even if Ranks is set, for seeds of other ranks.
	AllLabels bool
	// AllRows opens all of indptr.npy and of the sums of weights even if Ranks is set, for a model
	// that reads the degrees of any vertex.
	AllRows bool
}

// perVertex lists the files of which a rank needs only the rows of its own vertices.
var perVertex = []string{"indptr.npy", dataset.ColumnsFile, "indices.npy", "labels.npy",
	dataset.WeightsFile, sumsFile}

// windowed reports whether only a part of a file is opened: the rows of the vertices of
// Options.Rank.
func (s *Shards) windowed(name string) bool {
	o := &s.options
	whole := o.AllLabels && name == "labels.npy" || o.AllRows &&
		(name == "indptr.npy" || name == sumsFile)
	return o.Ranks > 0 && !whole && slices.Contains(perVertex, name)
}

// topologyFiles lists the files that CopyTopology copies.
func (m *Meta) topologyFiles() []string {
	files := []string{"indptr.npy", "indices.npy", "original_id.npy", dataset.ColumnsFile,
		dataset.WeightsFile, sumsFile}
	return slices.DeleteFunc(files, func(name string) bool { _, has := m.Files[name]; return !has })
}

// Shards is an open PARTS directory. Its slices are views of mapped files: they are valid until
// Close, and must not be written. All methods but Close may be called concurrently.
type Shards struct {
	Meta
	Dir      string
	identity string
	options  Options
	topology sample.Topology
	labels   task.Labels
	scale    []float32
	rowEnds  []int64
	// rows of the windowed files can be read for the vertices first to last-1 only
	first, last        int64
	split              [3]splitView // training, validation and test list
	links              [3]linkView
	mapped, mappedRows int64
	closers            mem.Closers

	// the mark that lists the copies in shared memory; nil without copies, or if the mark could not
	// be made
	use      *inUse
	unlinked bool // UnlinkShared was called

	copying sync.Mutex // guards copies
	copies  []string   // paths of the copies that this process made or began to make
	staged  []string   // names of the files of which this process has mapped copies
}

// splitView is one list of a split. Part k has the vertices ids[offsets[k]:offsets[k+1]].
type splitView struct {
	ids     []graph.VertexID
	offsets []int
}

func (s *splitView) of(part int) []graph.VertexID {
	return s.ids[s.offsets[part]:s.offsets[part+1]]
}

// Open maps the files that all ranks read: topology, labels and splits. It checks that all files
// exist and have the size, type and shape that meta.json gives. Verify checks their content.
func Open(dir string, o Options) (*Shards, error) {
	meta, identity, err := readMeta(dir)
	if err != nil {
		return nil, err
	}
	if o.SharedMemory == "" {
		o.SharedMemory = "/dev/shm"
	}
	if err := UseSplit(meta, o.Split); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	s := &Shards{Meta: *meta, Dir: dir, identity: identity, options: o, last: meta.Vertices}
	if o.Ranks > 0 {
		first, last, err := s.RankRange(o.Rank, o.Ranks)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		s.first, s.last = s.Offsets[first], s.Offsets[last]
	}
	if o.CopyTopology {
		s.use = useShared(s.within(o.SharedMemory))
	}
	if err := errors.Join(s.checkSizes(), s.mapFiles()); err != nil {
		return nil, errors.Join(err, s.Close(), s.Discard())
	}
	return s, nil
}

// checkSizes reports missing and shortened files, before they are mapped.
func (s *Shards) checkSizes() error {
	var errs []error
	for name, want := range s.Files {
		path := filepath.Join(s.Dir, name)
		info, err := os.Stat(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w; restore the file or partition again", err))
		} else if info.Size() != want.Bytes {
			errs = append(errs, fmt.Errorf("%s: %w: the file has %d bytes, but meta.json says "+
				"%d; restore the file or partition again",
				path, ErrAltered, info.Size(), want.Bytes))
		}
	}
	return errors.Join(errs...)
}

func (s *Shards) mapFiles() error {
	errs := []error{
		s.mapTopology(), mapInto(s, "original_id.npy", &s.topology.Original),
		s.mapLabels(), mapLinks(s),
	}
	for i := range s.split {
		view := &s.split[i]
		errs = append(errs, mapInto(s, dataset.SplitFile(s.options.Split, graph.SplitNames[i]),
			&view.ids))
		view.offsets = []int{0}
		for k := range s.Splits {
			view.offsets = append(view.offsets, view.offsets[k]+*s.Splits[k].listSize(i))
		}
	}
	if s.Type() == compute.Int8 {
		errs = append(errs, mapInto(s, dataset.ScaleFile, &s.scale))
		errs = append(errs, dataset.CheckScales(s.scale))
	}
	if s.Type().IsSparse() {
		errs = append(errs, mapInto(s, dataset.RowEndsFile, &s.rowEnds))
		errs = append(errs, dataset.CheckRowEnds(s.rowEnds, s.Entries))
	}
	if s.Schema.Typed() {
		errs = append(errs, mapColumns(s))
	}
	for _, err := range errs {
		// if the copy of one file finds no room, copies of other files find none either
		if errors.Is(err, errCopying) {
			return err
		}
	}
	return errors.Join(errs...)
}

// mapTopology maps the row pointers and the in-neighbours of the vertices s.first to s.last-1.
func (s *Shards) mapTopology() error {
	var rows []int64
	if err := mapRows(s, "indptr.npy", &rows, s.first, s.last+1); err != nil {
		return err
	}
	if s.options.AllRows {
		s.topology.Rows = rows
	}
	rows = rows[s.first : s.last+1]
	begin, end := rows[0], rows[len(rows)-1]
	if begin < 0 || end < begin || end > s.Edges ||
		s.first == 0 && begin != 0 || s.last == s.Vertices && end != s.Edges {
		return fmt.Errorf("%s: %w: indptr runs from %d to %d for vertices %d to %d of %d, but "+
			"there are %d edges; partition again",
			filepath.Join(s.Dir, "indptr.npy"), ErrMismatch, begin, end, s.first, s.last-1,
			s.Vertices, s.Edges)
	}
	s.topology.Graph.Indptr, s.topology.First = rows, graph.VertexID(s.first)
	errs := []error{mapRows(s, "indices.npy", &s.topology.Graph.Indices, begin, end)}
	if s.Weighted {
		errs = append(errs, mapRows(s, dataset.WeightsFile, &s.topology.Weights, begin, end),
			mapRows(s, sumsFile, &s.topology.WeightSums, s.first, s.last))
	}
	return errors.Join(errs...)
}

// mapColumns maps columns.npy for the vertices s.first to s.last-1. That file says where the
// in-edges of each vertex and relation begin.
func mapColumns(s *Shards) error {
	var rows []int64
	c, err := graph.NewColumns(&s.Schema, s.Starts, nil)
	if err == nil {
		err = mapRows(s, dataset.ColumnsFile, &rows, c.First(s.first), c.First(s.last)+1)
		if err != nil {
			return err
		}
		s.topology.Columns, err = graph.NewColumns(&s.Schema, s.Starts, rows)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %w; partition again", filepath.Join(s.Dir, dataset.ColumnsFile),
			ErrMismatch, err)
	}
	return err
}

func (s *Shards) mapLabels() error {
	f, err := s.mapFile("labels.npy", s.first, s.last)
	if err != nil {
		return err
	}
	s.labels, err = task.Stored(s.Task).ReadLabels(f, s.Classes)
	return err
}

func mapInto[T npy.Element](s *Shards, name string, view *[]T) error {
	return mapRows(s, name, view, 0, int64(s.Files[name].Shape[0]))
}

// mapRows maps the file with the given name. Only its rows first to last-1 will be read.
func mapRows[T npy.Element](s *Shards, name string, view *[]T, first, last int64) error {
	f, err := s.mapFile(name, first, last)
	if err == nil {
		*view, err = npy.Elements[T](f)
	}
	return err
}

func (s *Shards) mapFile(name string, first, last int64) (*npy.File, error) {
	f, err := s.open(name, first, last)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, f.Close)
	s.mapped += f.Mapped()
	if s.options.Ranks == 0 && slices.Contains(perVertex, name) || s.windowed(name) {
		s.mappedRows += f.Mapped()
	}
	return f, nil
}

// open maps rows of one file, or of its copy if the options ask for copies. It compares the file
// with meta.json.
func (s *Shards) open(name string, first, last int64) (*npy.File, error) {
	var f *npy.File
	var err error
	switch root := s.stageRoot(name); {
	case s.windowed(name):
		copied := s.options.CopyTopology || s.options.Stage != ""
		f, err = npy.OpenWindow(filepath.Join(s.Dir, name), int(first), int(last), copied)
	case root != "":
		f, err = s.stage(root, name)
	default:
		f, err = npy.Open(filepath.Join(s.Dir, name))
	}
	if err != nil {
		return nil, err
	}
	want := s.Files[name]
	if err := f.Check(want.DType, want.Shape...); err != nil {
		return nil,
			errors.Join(fmt.Errorf("%s: %w; meta.json describes it differently: partition again",
				f.Path(), err), f.Close())
	}
	return f, nil
}

// Topology returns the CSC with the new ids, and the original ids, for the sampler. With
// Options.Ranks only the rows of the rank's own vertices can be read.
func (s *Shards) Topology() *sample.Topology { return &s.topology }

// Labels returns the label of each vertex, in the form that Meta.Task determines. With
// Options.Ranks only the labels of the rank's own vertices can be read.
func (s *Shards) Labels() task.Labels { return s.labels }

// Rows describes the layout of the feature rows. The result lacks the tables, which OpenPart opens,
// and the references to rows.
func (s *Shards) Rows() compute.Rows {
	return compute.Rows{Cols: s.Features, Type: s.Type(), Scale: s.scale, Ends: s.rowEnds}
}

// Train returns the training seeds of a part, in the order of original ids.
func (s *Shards) Train(part int) []graph.VertexID { return s.split[0].of(part) }

// Valid returns the validation vertices of a part, in the order of original ids.
func (s *Shards) Valid(part int) []graph.VertexID { return s.split[1].of(part) }

// Test returns the test vertices of a part, in the order of original ids.
func (s *Shards) Test(part int) []graph.VertexID { return s.split[2].of(part) }

// Whole opens the same parts once more, with the rows of all vertices.
func Whole(s *Shards) (*Shards, error) { return Open(s.Dir, Options{Split: s.options.Split}) }

// Identity returns a hash of meta.json, which has the hashes of all files. Ranks compare it before
// the first step.
func (s *Shards) Identity() string { return s.identity }

// MappedBytes returns how many bytes Open mapped. The result rows is the bytes of row pointers,
// neighbours and labels, of all vertices or only of those of Options.Rank. The result common is the
// bytes of original ids, splits and all other files that every rank maps as a whole.
func (s *Shards) MappedBytes() (rows, common int64) { return s.mappedRows, s.mapped - s.mappedRows }

// Part holds the mapped feature rows of one vertex type in one part.
type Part struct {
	First    graph.VertexID // vertex that row 0 belongs to
	Rows     int
	Features []byte // [Rows*RowBytes] of Meta.Table, little-endian elements; not to be written
	file     *npy.File
}

// OpenPart maps the feature table with the index i. It belongs to part i / T and to vertex type i %
// T, where T is the number of vertex types. The caller closes it.
func (s *Shards) OpenPart(i int) (*Part, error) {
	if i < 0 || i >= s.Parts*s.Schema.NumTypes() {
		return nil, fmt.Errorf("%s has no part %d; it has %d parts", s.Dir, i/s.Schema.NumTypes(),
			s.Parts)
	}
	f, err := s.open(featuresFile(&s.Meta, i), 0, 0)
	if err != nil {
		return nil, err
	}
	first, end := s.Ranges()[i], s.Ranges()[i+1]
	if e := s.rowEnds; len(e) > 0 && int64(f.Shape[0]) != e[end]-e[first] {
		return nil, errors.Join(fmt.Errorf("%s: %w: the file has %d entries, but %s has %d; "+
			"partition again",
			f.Path(), ErrMismatch, f.Shape[0], dataset.RowEndsFile, e[end]-e[first]), f.Close())
	}
	return &Part{First: graph.VertexID(first), Rows: int(end - first), Features: f.Data, file: f},
		nil
}

// EdgeOffsets returns the position in indices.npy of the first edge into each part and, as the last
// entry, the number of edges, [P+1].
func EdgeOffsets(s *Shards) []int64 {
	offsets := []int64{0}
	// a part has a row of edge features for each edge into it; OpenEdgeRows checks that
	for part := range s.Parts {
		offsets = append(offsets, offsets[part]+int64(s.Files[edgeRowsFile(part)].Shape[0]))
	}
	return offsets
}

// CheckEdgeRows returns an error if the graph has so many edges that features of edges cannot be
// fetched, because the positions of edges would not fit in 32 bits.
func CheckEdgeRows(s *Shards) error {
	if s.Edges > math.MaxInt32 {
		return fmt.Errorf("%s: the graph has %d edges, but features of edges can be fetched for "+
			"at most %d; set model.edge_features=false to leave the features out", s.Dir, s.Edges,
			math.MaxInt32)
	}
	return nil
}

// OpenEdgeRows maps the feature rows of the edges into a part, float32 [edges, EdgeFeatures]. The
// caller closes the file.
func OpenEdgeRows(s *Shards, part int) (*npy.File, error) {
	f, err := s.open(edgeRowsFile(part), 0, 0)
	if err != nil {
		return nil, err
	}
	rows, first := s.topology.Graph.Indptr, int64(s.topology.First)
	lo, hi := s.Offsets[part]-first, s.Offsets[part+1]-first
	// this rank did not open the row pointers of the part, so it cannot check the number of rows
	if lo < 0 || hi >= int64(len(rows)) {
		return f, nil
	}
	if want := rows[hi] - rows[lo]; int64(f.Shape[0]) != want {
		return nil, errors.Join(fmt.Errorf("%s: %w: the file has %d rows, but %d edges need one "+
			"row each; partition again",
			f.Path(), ErrMismatch, f.Shape[0], want), f.Close())
	}
	return f, nil
}

// Close ends the mapping of the rows.
func (p *Part) Close() error {
	p.Features = nil
	return p.file.Close()
}

// Close ends all mappings, except those of OpenPart.
func (s *Shards) Close() error { return s.closers.Close() }
