// Package dataset keeps graphs with features, labels and splits on disk: it writes, opens and
// verifies DATASET directories, imports foreign formats into them and generates synthetic ones.
//
//	DATASET/  meta.json      task, sizes, provenance, and size, shape and XXH64 of every file
//	          indptr.npy     int64 [N+1]   in-edges of v are indices[indptr[v]:indptr[v+1]]
//	          indices.npy    int32 [M]     source vertex of each in-edge, ascending within a vertex
//	          edge_weights.npy   float32 [M], of each in-edge; only where edges have weights
//	          edge_features.npy   float32 [M, C], of each in-edge; only where edges have features
//	          features.npy   float32, float16 or int8 [N, F], or the entries of sparse rows, in the
//	                         order of their columns: int32 [entries, 2], a column and the
//	                         bits of a float32, or [entries, 1] where all values are 1
//	          feature_indptr.npy  int64 [N+1]  where the entries of each sparse row begin
//	          feature_scale.npy   float32 [F], scales of the columns; only with int8 features
//	          labels.npy     int32 [N], -1 = none; with several labels a vertex, uint8 [N, C] of 0
//	                         and 1
//	          train.npy valid.npy test.npy   int32 vertex ids, ascending, no vertex twice
//	          split-0001/train.npy ...       further splits; a run chooses one
//	          links/train.npy valid.npy test.npy   only if links are the task, int32 [n, 2]: source
//	                         and target; validation and test links are no edges of the graph
//
// A graph of several vertex types and relations (graph.Schema) numbers its vertices type by type.
// In a row of in-edges, one relation comes after the other. In place of features.npy it has
//
//	          columns.npy        int64 [C+1]  where the in-edges of a vertex and relation begin
//	                             (graph.Columns)
//	          features.TYPE.npy  [N_t, F_t]   a file for each type; [N_t, 0] if it has none
//
//	Create ─> Topology, Features, Labels, Splits ─> Close      a temporary directory, renamed when
//	                                                           whole
//	Open   ─> mapped views ─> Verify
//
// Every file exists even if it is empty (no features: [N, 0]; no labels: all -1), so a reader needs
// no special cases. The package knows nothing of parts and ranks.
package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset/table"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// Format is the version of the directory layout that this package writes and reads.
const Format = 1

// The element types of feature rows.
const (
	Float32 = "float32"
	Float16 = "float16"
	Int8    = "int8" // integers, each multiplied by the scale of its column
	Sparse  = "sparse"
	// SparseOnes is stored in place of Sparse if all values are 1.
	SparseOnes = "sparse-ones"
)

// FeatureTypes lists the values that Meta.FeatureType may have.
const FeatureTypes = Float32 + ", " + Float16 + ", " + Int8 + " or " + Sparse

const metaFile = "meta.json"

// ScaleFile holds the scales of int8 columns, in a dataset and in parts.
const ScaleFile = "feature_scale.npy"

// RowEndsFile holds the row pointers of sparse rows, in a dataset and in parts.
const RowEndsFile = "feature_indptr.npy"

// WeightsFile holds the weights of edges, in a dataset and in parts.
const WeightsFile = "edge_weights.npy"

// EdgeRowsFile holds the feature rows of edges, in a dataset and in each part.
const EdgeRowsFile = "edge_features.npy"

// Errors about a dataset directory wrap one of these errors, so that callers can tell the kinds of
// errors apart by errors.Is.
var (
	ErrExists   = errors.New("the target exists")
	ErrMismatch = errors.New("files do not fit together")
	ErrAltered  = errors.New("altered since it was written")
	ErrValue    = table.ErrValue
)

// Meta is meta.json: the description of a dataset.
type Meta struct {
	Format       int                 `json:"format"`
	Name         string              `json:"name"`
	Task         string              `json:"task"` // name in package task's table, or task.None
	Vertices     int64               `json:"vertices"`
	Edges        int64               `json:"edges"`                   // stored directed edges
	Weighted     bool                `json:"weighted,omitempty"`      // edges have weights
	EdgeFeatures int                 `json:"edge_features,omitempty"` // columns; 0: edges have none
	Features     int                 `json:"features"`
	Classes      int                 `json:"classes"`
	FeatureType  string              `json:"feature_type"`            // FeatureTypes, or SparseOnes
	Entries      int64               `json:"entries,omitempty"`       // entries of sparse rows
	FeatureNames []string            `json:"feature_names,omitempty"` // if the source has them
	Provenance   Provenance          `json:"provenance"`
	Schema       graph.Schema        `json:"schema,omitzero"`  // only of a typed graph
	Tables       []Table             `json:"tables,omitempty"` // [T] what vertices of a type have
	LabelType    string              `json:"label_type,omitempty"`
	MoreSplits   int                 `json:"more_splits,omitempty"` // splits besides the first
	Files        map[string]npy.Info `json:"files"`                 // keys are file names
}

// Table describes the feature rows of the vertices of one type.
type Table struct {
	Vertices    int64    `json:"vertices"`
	Features    int      `json:"features"` // 0: none
	FeatureType string   `json:"feature_type"`
	Entries     int64    `json:"entries,omitempty"` // entries of sparse rows
	Names       []string `json:"names,omitempty"`   // column names, where the source has them
}

// Type returns the element type of the rows.
func (t Table) Type() compute.DType {
	of, _ := compute.TypeNamed(t.FeatureType)
	return of
}

// RowBytes returns the bytes of a row. Sparse rows differ in size, so for these it returns the
// mean, rounded up.
func (t Table) RowBytes() int {
	size := t.Type().Size()
	if t.Type().IsSparse() {
		return int((t.Entries*int64(size) + t.Vertices - 1) / max(1, t.Vertices))
	}
	return t.Features * size
}

// Bytes returns the bytes of all rows.
func (t Table) Bytes() int64 {
	if t.Type().IsSparse() {
		return t.Entries * int64(t.Type().Size())
	}
	return t.Vertices * int64(t.RowBytes())
}

// File returns the element type and shape of a file that holds n of the table's rows. For sparse
// rows, the number of entries is known only if n is the number of all rows; otherwise File returns
// -1 for it.
func (t Table) File(n int64) npy.Info {
	info := npy.Info{DType: RowFile(t.Type()), Shape: []int{int(n), t.Features}}
	if t.Type().IsSparse() {
		info.Shape = []int{-1, t.Type().Size() / 4}
		if n == t.Vertices {
			info.Shape[0] = int(t.Entries)
		}
	}
	return info
}

// Table returns the description of the feature rows of vertex type t, 0 <= t < NumTypes.
func (m *Meta) Table(t int) Table {
	if m.Schema.Typed() {
		return m.Tables[t]
	}
	return Table{m.Vertices, m.Features, m.FeatureType, m.Entries, m.FeatureNames}
}

// Featureless returns the names of the vertex types without features.
func (m *Meta) Featureless() (names []string) {
	for t := range m.Schema.NumTypes() {
		if m.Table(t).Features == 0 {
			names = append(names, m.Schema.TypeName(t))
		}
	}
	return names
}

// Starts returns the number of the first vertex of each type and, as the last entry, the number of
// all vertices, [T+1].
func (m *Meta) Starts() []int64 {
	starts := make([]int64, 1, m.Schema.NumTypes()+1)
	for t := range m.Schema.NumTypes() {
		starts = append(starts, starts[t]+m.Table(t).Vertices)
	}
	return starts
}

// TableFile returns the name of the file with the feature rows of the vertices of type t.
func TableFile(s *graph.Schema, t int) string {
	if s.Typed() {
		return "features." + s.Types[t] + ".npy"
	}
	return "features.npy"
}

// MaxSplits is the largest number of splits that a dataset may have.
const MaxSplits = 1000

// SplitFile returns the name of a file of vertex ids: those of the list "train", "valid" or "test"
// (graph.SplitNames) in the split with index k.
func SplitFile(k int, list string) string {
	if k == 0 {
		return list + ".npy"
	}
	return fmt.Sprintf("split-%04d/%s.npy", k, list)
}

// ColumnsFile is the file of a typed graph that says where the in-edges of each vertex and relation
// begin (graph.Columns).
const ColumnsFile = "columns.npy"

// Provenance is the origin of a dataset. It has no times and no machine names, so equal input gives
// equal files.
type Provenance struct {
	Source string `json:"source"` // the format imported, or the generator
	// options that shaped the result, as given
	Settings map[string]string  `json:"settings"`
	Cleaning *graph.CleanReport `json:"cleaning"` // what was done to the edges
	// names of classes, where the source has them
	Classes []string `json:"classes,omitempty"`
	Notes   []string `json:"notes,omitempty"` // what else a reader should know
	// what the columns and arrays of the source were taken as
	Reading []Reading `json:"reading,omitempty"`
}

// RowFile returns the NumPy element type of a file with feature rows of type t.
func RowFile(t compute.DType) string {
	return map[compute.DType]string{compute.Float32: npy.DType[float32](),
		compute.Float16: npy.DType[npy.Float16](), compute.Int8: npy.DType[int8](),
		compute.Sparse: npy.DType[int32](), compute.SparseOnes: npy.DType[int32]()}[t]
}

// CheckFeatureType returns an error for a name that is not one of FeatureTypes.
func CheckFeatureType(name string) error {
	if _, ok := compute.TypeNamed(name); !ok {
		return fmt.Errorf("feature type %q is not %s", name, FeatureTypes)
	}
	return nil
}

// checkChoice returns an error for a feature type that a user cannot choose, because it is chosen
// automatically.
func checkChoice(name string) error {
	if name == SparseOnes {
		return fmt.Errorf("feature type %s cannot be chosen; ask for %s, which is stored as "+
			"%[1]s if all values are 1", name, Sparse)
	}
	return CheckFeatureType(name)
}

// check returns an error if the values of meta.json are impossible or contradict each other.
func (m *Meta) check() error {
	var faults []error
	if m.Format != Format {
		faults = append(faults,
			fmt.Errorf("meta.json has format version %d, but this program reads version %d",
				m.Format, Format))
	}
	switch known := task.Find(m.Task) != nil; {
	case known && m.Classes < 1 && !task.Find(m.Task).Ranks:
		faults = append(faults,
			fmt.Errorf("task %s has %d classes; it needs at least 1", m.Task, m.Classes))
	case !known && m.Task != task.None:
		faults = append(faults,
			fmt.Errorf("task %q is not one of %s, %s", m.Task, task.Names(), task.None))
	}
	if err := m.Schema.Check(); err != nil {
		faults = append(faults, err)
	} else if t := m.Schema.NumTypes(); m.Schema.Typed() &&
		(len(m.Tables) != t || m.Starts()[t] != m.Vertices) {
		faults = append(faults,
			fmt.Errorf("the %d vertex tables in meta.json do not add up to the %d vertices of "+
				"the types %q", len(m.Tables),
				m.Vertices, m.Schema.Types))
	} else {
		for t := range m.Schema.NumTypes() {
			faults = append(faults, m.checkTable(t))
		}
	}
	if m.LabelType != "" {
		if _, err := m.Schema.Type(m.LabelType); err != nil {
			faults = append(faults, err)
		}
	}
	if m.EdgeFeatures < 0 || m.EdgeFeatures > graph.MaxVertices || m.Vertices < 0 ||
		m.Vertices > graph.MaxVertices || m.Edges < 0 {
		faults = append(faults,
			fmt.Errorf("meta.json has impossible counts: %d vertices and %d edges",
				m.Vertices, m.Edges))
	}
	faults = append(faults, task.CheckClasses(m.Task, m.Classes, m.Vertices))
	if m.MoreSplits < 0 || m.MoreSplits >= MaxSplits {
		faults = append(faults, fmt.Errorf("the dataset has %d splits, but at most %d are "+
			"supported", m.MoreSplits+1,
			MaxSplits))
	}
	return errors.Join(faults...)
}

// checkTable reports impossible values in the table of a type.
func (m *Meta) checkTable(i int) error {
	t := m.Table(i)
	switch {
	case m.Schema.Typed() && (t.FeatureType == Int8 || t.Type().IsSparse()):
		return fmt.Errorf("%w: %s features of graphs with vertex types are not supported; use %s "+
			"or %s", ErrValue, t.FeatureType, Float32, Float16)
	case t.Entries < 0 || t.Entries > 0 && !t.Type().IsSparse():
		return fmt.Errorf("meta.json gives %d as the number of feature entries of type %s; it "+
			"must not be negative, and must be 0 unless the type is sparse",
			t.Entries, t.FeatureType)
	case len(t.Names) > 0 && len(t.Names) != t.Features:
		return fmt.Errorf("%w: meta.json has %d names, but %d feature columns need one name each",
			ErrMismatch, len(t.Names),
			t.Features)
	case t.Features < 0 || t.Features > graph.MaxVertices || t.Vertices < 0:
		return fmt.Errorf("meta.json has impossible counts: %d features of %d vertices", t.Features,
			t.Vertices)
	}
	return CheckFeatureType(t.FeatureType)
}

// layout returns the element type and shape that each file must have. A dimension of -1 may have
// any size.
func (m *Meta) layout() map[string]npy.Info {
	n := int(m.Vertices)
	ids := npy.Info{DType: "<i4", Shape: []int{-1}}
	files := map[string]npy.Info{
		"indptr.npy":  {DType: "<i8", Shape: []int{n + 1}},
		"indices.npy": {DType: "<i4", Shape: []int{int(m.Edges)}},
		"labels.npy":  task.Stored(m.Task).Layout(n, m.Classes),
	}
	for k := range 1 + m.MoreSplits {
		for _, name := range graph.SplitNames {
			files[SplitFile(k, name)] = ids
		}
	}
	for t := range m.Schema.NumTypes() {
		of := m.Table(t)
		files[TableFile(&m.Schema, t)] = of.File(of.Vertices)
	}
	if m.Table(0).Type().IsSparse() {
		files[RowEndsFile] = npy.Info{DType: "<i8", Shape: []int{n + 1}}
	}
	if m.Schema.Typed() {
		files[ColumnsFile] = npy.Info{DType: "<i8", Shape: []int{-1}}
	}
	if m.Weighted {
		files[WeightsFile] = npy.Info{DType: "<f4", Shape: []int{int(m.Edges)}}
	}
	if m.EdgeFeatures > 0 {
		files[EdgeRowsFile] = npy.Info{DType: "<f4", Shape: []int{int(m.Edges), m.EdgeFeatures}}
	}
	if m.FeatureType == Int8 {
		files[ScaleFile] = npy.Info{DType: "<f4", Shape: []int{m.Features}}
	}
	m.linkLayout(files)
	return files
}

// CheckWeights reports the first weight of an edge that is negative, infinite or not a number.
func CheckWeights(weights []float32) error {
	for e, w := range weights {
		if !(w >= 0 && w <= math.MaxFloat32) {
			return fmt.Errorf("the weight of edge %d is %v: %w: a weight must be a number from 0 "+
				"to 3.4e+38", e, w, ErrValue)
		}
	}
	return nil
}

func readMeta(dir string) (*Meta, string, error) {
	path := filepath.Join(dir, metaFile)
	text, err := mem.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("%s is not a dataset: %w; make one with `halognn generate` or "+
			"`halognn import`", dir, err)
	} else if err != nil {
		return nil, "", err
	}
	m := new(Meta)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, "", fmt.Errorf("%s: %w; import or generate the dataset again", path, err)
	}
	if err := m.check(); err != nil {
		return nil, "", fmt.Errorf("%s: %w; import or generate the dataset again", path, err)
	}
	return m, fmt.Sprintf("%016x", xxhash.Sum64(text)), nil
}
