// Package shard keeps a partitioned dataset on disk: it writes, opens, stages and verifies PARTS
// directories.
//
//	PARTS/  meta.json        parts, offsets, origin, partition report; size, shape and XXH64 of
//	                         every file
//	        indptr.npy       int64 [N+1]  in-edges of v are indices[indptr[v]:indptr[v+1]]
//	        indices.npy      int32 [M]    new ids of in-neighbours, in the order of the dataset
//	        original_id.npy  int32 [N]    id in the dataset of each vertex
//	        labels.npy       int32 [N], -1 = none; multi-label: uint8 [N, C]
//	        train.npy valid.npy test.npy  int32 new ids, by part and, inside a part, by original id
//	        split-0001/train.npy ...      further splits of the dataset
//	        links/train.npy valid.npy test.npy  only if links are the task: int32 [n, 2] of new
//	                         ids, sorted by the part of the target and, inside a part, by the
//	                         original ids of target and source
//	        source_id.npy    int64 [N], or source_name.npy: the id of each vertex in the source,
//	                         in the order of ids in the dataset; a copy of the dataset's file, if
//	                         it has one
//	        feature_scale.npy             float32 [F], only with int8 features
//	        feature_indptr.npy            int64 [N+1]  where the entries of each row begin; only
//	                                      with sparse features
//	        part-0000/features.npy        float32, float16 or int8 [offsets[1]-offsets[0], F], or
//	                                      the entries of sparse rows, as in the dataset
//	        part-0000/edge_features.npy   float32 [edges into the part, C], in the order of
//	                                      indices.npy; only where edges have features
//	        part-0001/features.npy        ...
//
// A typed graph (graph.Schema) has the vertices of a part type by type. In place of features.npy it
// has
//
//	columns.npy                     int64 [C+1]  where in-edges of a vertex and relation begin
//	part-0000/features.TYPE.npy     a file for each type
//
// Parts are contiguous: part k has the vertices offsets[k] to offsets[k+1]-1, first those that
// minibatches read most often. So the in-edges of a part are a range of rows of the two files that
// hold the whole topology, and a search in the offsets finds the owner of a vertex. The lists of a
// split are in the order of original ids, so that shuffling them does not depend on the new ids.
//
//	Write(dir, dataset, layout)          a temporary directory, renamed when whole
//	Open(dir) ─> Topology, Labels, ...   mapped; ranks of a node share one copy
//	          └> OpenPart(k)             the feature rows of one part
//
// P parts can be trained on K ranks if K divides P: see RankRange. The package starts no processes
// and sends no messages; ranks of one node share memory through the file system.
package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// Format is the version of the directory layout that this package writes and reads.
const Format = 1

const metaFile = "meta.json"

// Errors about a PARTS directory wrap one of the errors below, if one applies.
var (
	ErrExists   = dataset.ErrExists
	ErrMismatch = dataset.ErrMismatch
	ErrAltered  = dataset.ErrAltered
	ErrRanks    = errors.New("parts cannot be shared equally by the ranks")
)

// Meta is meta.json: what the parts hold and where they come from.
type Meta struct {
	Format int `json:"format"`
	Parts  int `json:"parts"`
	// [P+1] part k has vertices Offsets[k] to Offsets[k+1]-1
	Offsets      []int64      `json:"offsets"`
	Vertices     int64        `json:"vertices"`
	Edges        int64        `json:"edges"`
	Weighted     bool         `json:"weighted,omitempty"` // edges have weights
	Task         string       `json:"task"`               // as in dataset.Meta
	Classes      int          `json:"classes"`
	ClassNames   []string     `json:"class_names,omitempty"`   // where the source has them
	EdgeFeatures int          `json:"edge_features,omitempty"` // columns; 0: edges have none
	Features     int          `json:"features"`
	FeatureType  string       `json:"feature_type"`
	Entries      int64        `json:"entries,omitempty"`       // entries of sparse rows
	Names        []string     `json:"feature_names,omitempty"` // where the source has them
	Schema       graph.Schema `json:"schema,omitzero"`         // only of a typed graph
	// [P*T+1] in a typed graph: first vertex of each type in each part
	Starts     []int64             `json:"starts,omitempty"`
	Tables     []dataset.Table     `json:"tables,omitempty"` // [T] what vertices of a type have
	LabelType  string              `json:"label_type,omitempty"`
	Origin     Origin              `json:"origin"`
	Splits     []SplitSizes        `json:"splits"`                // [P], once UseSplit of another
	MoreSplits [][]SplitSizes      `json:"more_splits,omitempty"` // [splits - 1, P]
	Links      []SplitSizes        `json:"links,omitempty"`       // [P] if the task is links
	Report     partition.Report    `json:"report"`
	Files      map[string]npy.Info `json:"files"` // keys are paths inside the directory
}

// Origin describes the dataset and the method of a partition.
type Origin struct {
	Dataset  string `json:"dataset"`  // name of the dataset
	Identity string `json:"identity"` // dataset.Identity
	Method   string `json:"method"`
	Seed     uint64 `json:"seed"`
	Order    string `json:"order"` // order of the vertices inside a part: OrderDegree or OrderVIP

	// dataset.Meta.Scaling, the XXH64 of the dataset's scaling.npy; absent for features that were
	// not standardized
	Scaling string `json:"scaling,omitempty"`

	// what parts balance and cutting an edge costs, as `partition --weights` has it; absent for
	// data parallelism
	Weights string `json:"weights,omitempty"`

	// how features were made from the graph, FeaturesDegree or FeaturesOnes; absent if the features
	// are the dataset's own
	Features string `json:"features,omitempty"`

	Fanouts []int `json:"fanouts,omitempty"` // fanouts for OrderVIP
	Batch   int   `json:"batch,omitempty"`   // batch for OrderVIP
}

// The orders that vertices may have inside a part.
const (
	OrderDegree = "in-degree, highest first"
	OrderVIP    = "access probability in a minibatch of the part, highest first"
)

// HotFirst reports whether the parts were ordered for a run with these settings, so that the run
// reads their first rows most often. A run with other settings ranks its hot rows itself.
func (o *Origin) HotFirst(fanouts []int, batch int) bool {
	return o.Order == OrderVIP && o.Batch == batch && slices.Equal(o.Fanouts, fanouts)
}

// SplitSizes counts the split vertices of one part.
type SplitSizes struct {
	Train int `json:"train"`
	Valid int `json:"valid"`
	Test  int `json:"test"`
}

// splitsOf returns the sizes of all splits. It must be called before UseSplit.
func splitsOf(m *Meta) [][]SplitSizes { return append([][]SplitSizes{m.Splits}, m.MoreSplits...) }

// UseSplit sets m.Splits to the sizes of the split with index k, which data.split chooses.
func UseSplit(m *Meta, k int) error {
	switch n := len(m.MoreSplits); {
	case k == 0:
	case k > 0 && k <= n:
		m.Splits = m.MoreSplits[k-1]
	case n == 0:
		return fmt.Errorf("data.split is %d, and the parts hold one split, 0; `halognn import "+
			"--split-index all` keeps all splits that the data come with", k)
	default:
		return fmt.Errorf("data.split is %d, but the parts have only splits 0 to %d; choose one "+
			"of these", k, n)
	}
	return nil
}

// Type returns the element type of the feature rows.
func (m *Meta) Type() compute.DType { return m.Table(0).Type() }

// RowBytes returns the bytes of one feature row. For sparse rows, which differ in size, it returns
// the mean, rounded up.
func (m *Meta) RowBytes() int { return m.Table(0).RowBytes() }

// Table describes the feature rows of the vertices of type t, 0 <= t < NumTypes.
func (m *Meta) Table(t int) dataset.Table {
	if m.Schema.Typed() {
		return m.Tables[t]
	}
	return dataset.Table{Vertices: m.Vertices, Features: m.Features, FeatureType: m.FeatureType,
		Entries: m.Entries, Names: m.Names}
}

// FeatureNames returns the names of the feature columns of each vertex type that has names. A graph
// without types has one type, "".
func (m *Meta) FeatureNames() map[string][]string {
	all := map[string][]string{}
	for t := range m.Schema.NumTypes() {
		if names := m.Table(t).Names; len(names) > 0 {
			all[m.Schema.TypeName(t)] = names
		}
	}
	return all
}

// Ranges returns the first vertex of each part and type, part by part, and as the last entry the
// number of vertices, [P*T+1]. In a graph without types these are the Offsets.
func (m *Meta) Ranges() []int64 {
	if m.Schema.Typed() {
		return m.Starts
	}
	return m.Offsets
}

// RankCounts returns the numbers of ranks on which the given number of parts can be trained: the
// divisors of that number.
func RankCounts(parts int) (fit []int) {
	for k := 1; k <= parts; k++ {
		if parts%k == 0 {
			fit = append(fit, k)
		}
	}
	return fit
}

// RankRange returns the parts that a rank owns: first to last-1. If the number of ranks does not
// divide the parts, the error lists the numbers that do.
func (m *Meta) RankRange(rank, ranks int) (first, last int, err error) {
	if ranks < 1 || m.Parts%ranks != 0 {
		fit := strings.ReplaceAll(strings.Trim(fmt.Sprint(RankCounts(m.Parts)), "[]"), " ", ", ")
		return 0, 0, fmt.Errorf("%w: the graph has %d parts, but the job has %d ranks; run on %s "+
			"ranks, or partition again with --parts %d",
			ErrRanks, m.Parts, ranks, fit, max(ranks, 1))
	}
	each := m.Parts / ranks
	return rank * each, (rank + 1) * each, nil
}

// sumsFile holds, for each vertex, the sum of the weights of its in-edges.
const sumsFile = "weight_sums.npy"

func edgeRowsFile(part int) string {
	return fmt.Sprintf("part-%04d/%s", part, dataset.EdgeRowsFile)
}

func featuresFile(m *Meta, i int) string {
	part, t := i/m.Schema.NumTypes(), i%m.Schema.NumTypes()
	return fmt.Sprintf("part-%04d/%s", part, dataset.TableFile(&m.Schema, t))
}

func tableInfo(m *Meta, i int) npy.Info {
	t, ranges := m.Table(i%m.Schema.NumTypes()), m.Ranges()
	return t.File(ranges[i+1] - ranges[i])
}

// layout returns the element type and shape that each file must have.
func (m *Meta) layout() map[string]npy.Info {
	n := int(m.Vertices)
	ints := func(n int) npy.Info { return npy.Info{DType: "<i4", Shape: []int{n}} }
	files := map[string]npy.Info{
		"indptr.npy": {DType: "<i8", Shape: []int{n + 1}}, "indices.npy": ints(int(m.Edges)),
		"original_id.npy": ints(n),
		"labels.npy":      task.Stored(m.Task).Layout(n, m.Classes),
	}
	for k, sizes := range splitsOf(m) {
		for i, name := range graph.SplitNames {
			n := 0
			for _, s := range sizes {
				n += *s.listSize(i)
			}
			files[dataset.SplitFile(k, name)] = ints(n)
		}
	}
	if m.Weighted {
		files[dataset.WeightsFile] = npy.Info{DType: "<f4", Shape: []int{int(m.Edges)}}
		files[sumsFile] = npy.Info{DType: "<f4", Shape: []int{n}}
	}
	m.linkLayout(files)
	if m.Type() == compute.Int8 {
		files[dataset.ScaleFile] = npy.Info{DType: "<f4", Shape: []int{m.Features}}
	}
	if m.Type().IsSparse() {
		files[dataset.RowEndsFile] = npy.Info{DType: "<i8", Shape: []int{n + 1}}
	}
	if m.Schema.Typed() {
		files[dataset.ColumnsFile] = npy.Info{DType: "<i8", Shape: []int{-1}}
	}
	for k := 0; k < m.Parts && m.EdgeFeatures > 0; k++ {
		files[edgeRowsFile(k)] = npy.Info{DType: "<f4", Shape: []int{-1, m.EdgeFeatures}}
	}
	for i := range m.Parts * m.Schema.NumTypes() {
		files[featuresFile(m, i)] = tableInfo(m, i)
	}
	return files
}

// check returns an error if meta.json has values that no parts can have.
func (m *Meta) check() error {
	if m.Format != Format {
		return fmt.Errorf("meta.json has format version %d, but this program reads version %d",
			m.Format, Format)
	}
	if m.Parts < 1 || len(m.Offsets) != m.Parts+1 {
		return fmt.Errorf("%w: %d parts, but %d offsets", ErrMismatch, m.Parts, len(m.Offsets))
	}
	if err := dataset.CheckFeatureType(m.FeatureType); err != nil {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if m.Features < 0 || m.Features > graph.MaxVertices || m.Edges < 0 || m.EdgeFeatures < 0 ||
		m.EdgeFeatures > graph.MaxVertices || m.Entries < 0 ||
		m.Entries > 0 && !m.Type().IsSparse() {
		return fmt.Errorf("%w: %d features and %d edges are impossible counts", ErrMismatch,
			m.Features, m.Edges)
	}
	if err := task.CheckClasses(m.Task, m.Classes, m.Vertices); err != nil {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if err := checkOffsets(m.Offsets, m.Vertices); err != nil {
		return err
	}
	if m.Vertices > graph.MaxVertices {
		return fmt.Errorf("%w: %d vertices; at most %d are supported", ErrMismatch, m.Vertices,
			graph.MaxVertices)
	}
	if err := checkTypes(m); err != nil {
		return err
	}
	for _, sizes := range splitsOf(m) {
		if len(sizes) != m.Parts {
			return fmt.Errorf("%w: there are %d parts, but sizes of splits are listed for %d parts",
				ErrMismatch, m.Parts, len(sizes))
		}
		for k, s := range sizes {
			n := int(m.Offsets[k+1] - m.Offsets[k])
			if min(s.Train, s.Valid, s.Test) < 0 || max(s.Train, s.Valid, s.Test) > n ||
				s.Train+s.Valid+s.Test > n {
				return fmt.Errorf("%w: part %d has %d training, %d validation and %d test "+
					"vertices, but only %d vertices", ErrMismatch, k, s.Train, s.Valid, s.Test, n)
			}
		}
	}
	if names := len(m.Names); names > 0 && names != m.Features {
		return fmt.Errorf("%w: there are %d names, but %d feature columns need one name each",
			ErrMismatch, names, m.Features)
	}
	if names := len(m.ClassNames); names > 0 && names != m.Classes {
		return fmt.Errorf("%w: %d names for %d classes", ErrMismatch, names, m.Classes)
	}
	var errs []error
	for name, want := range m.layout() {
		got, ok := m.Files[name]
		if !ok {
			errs = append(errs, fmt.Errorf("%w: %s is missing", ErrMismatch, name))
		} else if err := (npy.Header{DType: got.DType, Shape: got.Shape}).Check(want.DType,
			want.Shape...); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrMismatch, name, err))
		}
	}
	return errors.Join(errs...)
}

// checkTypes returns an error if the types in meta.json do not describe the vertices.
func checkTypes(m *Meta) error {
	t := m.Schema.NumTypes()
	if err := m.Schema.Check(); err != nil || !m.Schema.Typed() {
		return err
	}
	if len(m.Tables) != t || len(m.Starts) != m.Parts*t+1 {
		return fmt.Errorf("%w: %d tables and %d starts do not fit %d types in %d parts",
			ErrMismatch, len(m.Tables), len(m.Starts), t, m.Parts)
	}
	for k := range m.Parts {
		if m.Starts[k*t] != m.Offsets[k] {
			return fmt.Errorf("%w: part %d begins at vertex %d, but its first type begins at "+
				"vertex %d",
				ErrMismatch, k, m.Offsets[k], m.Starts[k*t])
		}
	}
	return checkOffsets(m.Starts, m.Vertices)
}

func checkOffsets(offsets []int64, n int64) error {
	parts := len(offsets) - 1
	if offsets[0] != 0 || offsets[parts] != n {
		return fmt.Errorf("%w: offsets run from %d to %d, but there are %d vertices",
			ErrMismatch, offsets[0],
			offsets[parts], n)
	}
	for k := range parts {
		if offsets[k+1] < offsets[k] {
			return fmt.Errorf("%w: offsets fall from %d to %d at part %d", ErrMismatch, offsets[k],
				offsets[k+1], k)
		}
	}
	return nil
}

// ReadMeta reads the meta.json of a PARTS directory, without opening its data.
func ReadMeta(dir string) (*Meta, error) {
	m, _, err := readMeta(dir)
	return m, err
}

// readMeta returns the content of meta.json and its hash.
func readMeta(dir string) (*Meta, string, error) {
	path := filepath.Join(dir, metaFile)
	text, err := mem.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		or := ""
		if here, err := os.Getwd(); err == nil && !filepath.IsAbs(dir) {
			or = ", or give a path that begins in " + here
		}
		return nil, "", fmt.Errorf("%s holds no parts: %w; make them with `halognn partition`%s",
			dir, err, or)
	} else if err != nil {
		return nil, "", err
	}
	m := new(Meta)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, "", fmt.Errorf("%s: %w; partition again", path, err)
	}
	if m.Parts == 0 && m.Offsets == nil {
		return nil, "", fmt.Errorf("%s describes a dataset, not parts; make parts of it with "+
			"`halognn partition --data %s`", path, dir)
	}
	if err := m.check(); err != nil {
		return nil, "", fmt.Errorf("%s: %w; partition again", path, err)
	}
	return m, fmt.Sprintf("%016x", xxhash.Sum64(text)), nil
}
