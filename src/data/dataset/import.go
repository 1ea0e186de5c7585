package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// Choice is an option with three values: yes, no, or whatever suits the format.
type Choice int8

// The values of a Choice.
const (
	AsFormat Choice = iota
	Yes
	No
)

// ImportOptions says what to import and how. Format, In and Out have no default.
type ImportOptions struct {
	Format string // one of Formats
	In     string // the file or directory to read
	Out    string // the DATASET directory to write; must be absent or empty
	Name   string // name of the dataset; "" means the base name of In
	// Undirected adds the reverse of every edge. The reverses of a relation between two types form
	// a relation of their own. AsFormat adds reverses for the formats that store each edge once
	// (ogb, and npz in the attributed-graph layout), and for edges that a column of the table calls
	// undirected.
	Undirected Choice
	// Reverse adds, in a graph with vertex types, the reverse of every relation as a new relation.
	Reverse        bool
	KeepLoops      bool
	KeepDuplicates bool
	// Split is a file or directory (see splitFile), percentages such as "60/20/20" or, where the
	// format joins several graphs, the names of the graphs: "DE,FR/RU/ES". "" means the split that
	// comes with the data or, if there is none, 60/20/20 of the labelled vertices.
	Split string
	// SplitLinks makes links the task. It is either shares of the edges, or a directory with
	// train.npy, valid.npy and test.npy. Labels of vertices are then left out. "" means that
	// vertices are the task.
	SplitLinks string
	// LinkLabels names the labels of links, if Task is a task that predicts them (task.Labelling).
	// The names are those of columns of the edge table, or of one array. If SplitLinks is a
	// directory, that directory may have the labels in files train_NAME.npy, valid_NAME.npy and
	// test_NAME.npy instead; LinkLabels then holds only that NAME.
	LinkLabels []string
	// LinksOf is the relation whose edges are the links, in a graph with vertex types.
	LinksOf string
	// Seed is the seed of the shuffle behind percentages. The split is the one that
	// numpy.random.RandomState(Seed).permutation makes.
	Seed uint64
	// FeatureType is one of FeatureTypes; "" keeps float16 and makes everything else float32.
	FeatureType string
	// SplitIndex chooses one of several splits that are columns of one array. AllSplits keeps all,
	// and a run chooses one. If neither is set, the source must have only one split.
	SplitIndex *int
	AllSplits  bool
	// Keys maps the usual name of an array to the name that the array has in the source: {"x":
	// "embedding"}. It applies to all vertex types. Ignore lists arrays and columns to skip, such
	// as edge_type, which would otherwise be rejected.
	Keys   map[string]string
	Ignore []string
	// Standardize shifts and scales every feature column to mean 0 and variance 1 over the training
	// vertices or, if there are none, over all vertices.
	Standardize bool
	// StandardizeAs is a standardized dataset. Its shifts and scales are applied here too, so that
	// a model trained on it can predict this graph.
	StandardizeAs string
	// Task is task.Regression if labels are numbers to predict, one of task.Labelling if LinkLabels
	// names labels of links, or "" if the labels show the task.
	Task string
	// NoLabel lists the words and numbers that mean "no label"; nil means the usual ones.
	NoLabel []string
	// KeepLeaks keeps edges from which a model could read validation and test links.
	KeepLeaks bool
	// Weights says how to merge the weights of an edge that the source lists several times; it is
	// one of graph.Merges. "" adds the weights up.
	Weights graph.Merge
	// DryRun reads everything but writes nothing, and ignores Out.
	DryRun bool
	Table  TableOptions // options of the format csv
	// MaxFeatureBytes limits features.npy; 0 means four fifths of the free disk space at Out.
	// Sparse features become dense, so a small source may need much space.
	MaxFeatureBytes int64
}

// ImportReport describes an import.
type ImportReport struct {
	Name, Format string
	Vertices     int64
	Edges        int64 // stored directed edges
	Undirected   bool
	Cleaning     graph.CleanReport
	Weighted     bool // edges have weights
	merge        graph.Merge
	EdgeFeatures int // number of feature columns of edges
	// edges whose reverse exists too; counted only if the import adds no reverses
	Reciprocal    int64
	Features      int
	FeatureType   string
	SparseEntries int64 // stored entries of a sparse source; -1 if the source is dense
	featureBytes  int64 // bytes of sparse rows, row pointers included
	Task          string
	Classes       int
	Labelled      int64
	Types         []string // a line for each vertex type and relation
	Split         string   // where the split comes from
	Train         int
	Valid         int
	Test          int
	Unlabelled    int    // vertices of the split that were left out because they have no label
	Links         string // the number of links, as text; "" unless links are the task
	Reading       []Reading
	Notes         []string
	DryRun        bool // nothing was written
}

// String writes the report as a few lines.
func (r ImportReport) String() string {
	var b strings.Builder
	direction := "as stored"
	if r.Undirected {
		direction = "made undirected"
	}
	fmt.Fprintf(&b, "%s (%s): %d vertices, %d directed edges, %s\n", r.Name, r.Format, r.Vertices,
		r.Edges, direction)
	if r.DryRun {
		b.WriteString("  dry run   nothing is written\n")
	}
	for _, read := range r.Reading {
		fmt.Fprintf(&b, "  read      %s\n", read)
	}
	fmt.Fprintf(&b, "  edges     %s\n", r.Cleaning)
	if r.Weighted {
		fmt.Fprintf(&b, "  weights   one for each edge; an edge given several times gets their "+
			"%s\n", cmp.Or(r.merge, graph.MergeSum))
	}
	if r.EdgeFeatures > 0 {
		readers := "gatv2 and gine read"
		if len(r.Types) > 0 {
			readers = "no model of relations reads"
		}
		fmt.Fprintf(&b, "  edge rows %d columns of float32 for each edge, which %s\n",
			r.EdgeFeatures, readers)
	}
	if !r.Undirected && r.Edges > 0 && len(r.Types) == 0 {
		b.WriteString("  reverse   " + r.reciprocal() + "\n")
	}
	for _, line := range r.Types {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	switch {
	case len(r.Types) > 0:
	case r.Features == 0:
		b.WriteString("  features  none; `halognn partition --features degree` (or ones) makes " +
			"some\n")
	case r.FeatureType == Sparse || r.FeatureType == SparseOnes:
		fmt.Fprintf(&b, "  features  %d columns, %s, %d entries: %s instead of %s as float32\n",
			r.Features, r.FeatureType, r.SparseEntries, size(float64(r.featureBytes)),
			size(4*float64(r.Features)*float64(r.Vertices)))
	case r.SparseEntries >= 0:
		fmt.Fprintf(&b, "  features  %d columns of %s, dense from %d sparse entries%s\n",
			r.Features, r.FeatureType, r.SparseEntries, r.sparser())
	default:
		fmt.Fprintf(&b, "  features  %d columns of %s\n", r.Features, r.FeatureType)
	}
	if r.Links != "" {
		fmt.Fprintf(&b, "  links     %s\n", r.Links)
	} else if r.Task == task.None {
		b.WriteString("  labels    none\n")
	} else {
		fmt.Fprintf(&b, "  labels    %s, %d %s, %d vertices labelled\n", r.Task, r.Classes,
			task.Find(r.Task).Outputs(), r.Labelled)
	}
	if r.Links == "" {
		fmt.Fprintf(&b, "  split     %d train, %d valid, %d test: %s\n", r.Train, r.Valid, r.Test,
			r.Split)
	}
	if r.Unlabelled > 0 {
		fmt.Fprintf(&b, "  split     %d vertices left out because they have no label\n",
			r.Unlabelled)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "  note      %s\n", n)
	}
	return b.String()
}

// sparser says how much smaller the features would be as sparse rows. It returns "" if they would
// not be smaller.
func (r ImportReport) sparser() string {
	of, _ := compute.TypeNamed(r.FeatureType)
	dense := float64(of.Size()) * float64(r.Features) * float64(r.Vertices)
	sparse := 8 * float64(r.SparseEntries+r.Vertices)
	if 2*sparse > dense || len(r.Types) > 0 {
		return ""
	}
	return fmt.Sprintf(": %s; --feature-type sparse keeps them in %s", size(dense), size(sparse))
}

// reciprocal says what share of the edges have a reverse, in a graph to which the import added
// none.
func (r ImportReport) reciprocal() string {
	if r.Reciprocal == r.Edges {
		return "every edge has its reverse"
	}
	share := fmt.Sprintf("%.1f %%", 100*float64(r.Reciprocal)/float64(r.Edges))
	return share +
		" of the edges have their reverse. Messages pass along an edge only from source to " +
		"destination; --undirected adds the missing reverses"
}

// formats are the formats that Import reads. In a graph with vertex types, the tables and arrays of
// one type look like those of a graph without types.
var formats = map[string]struct {
	read func(*edgeSource) error // a graph without types
	// These three fields are for graphs with types. The function typed reports whether the input is
	// such a graph. The text files describes, for error messages, what files or arrays such an
	// input has. The function readTyped reads it. A format without such graphs has nil and "".
	typed     func(*ImportOptions) bool
	files     string
	readTyped func(*graphSource) error
}{
	"csv": {readTables, hasTypedTables, typedTables,
		(*graphSource).readTables},
	"npz": {readNPZ, hasTypedArrays, "arrays num_nodes,TYPE or x,TYPE and " +
		"edge_index,SOURCE,NAME,TARGET", (*graphSource).readArrays},
	"ogb": {readOGB, hasTypedOGB,
		"raw/num-node-dict.csv.gz and raw/relations/SOURCE___NAME___TARGET",
		(*graphSource).readOGB},
	"edgelist": {read: readEdgeList},
}

// readByPython lists the formats that python/halognn/formats.py reads.
var readByPython = []string{"gemsec", "mat", "musae", "planetoid", "saint"}

// Formats lists the formats that Import reads.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// OptionError is an error in the options of an import, not in its data.
type OptionError struct{ error }

func (e OptionError) Unwrap() error { return e.error }

func badOption(format string, args ...any) error {
	return OptionError{fmt.Errorf(format, args...)}
}

func (o *ImportOptions) check() error {
	var faults []error
	switch {
	case slices.Contains(readByPython, o.Format):
		faults = append(faults, badOption("format %s is read by the Python package, which `pip "+
			"install ./python` installs; run python3 -m halognn %[1]s IN OUT", o.Format))
	case formats[o.Format].read == nil:
		faults = append(faults, badOption("format %q is unknown; choose one of %s", o.Format,
			strings.Join(Formats(), ", ")))
	}
	if o.In == "" {
		faults = append(faults, badOption("no input is named; give --in"))
	} else if _, err := os.Stat(o.In); err != nil {
		faults = append(faults, noInput("--in", o.In, err))
	}
	if nodes := o.Table.Nodes; nodes != "" {
		if _, err := os.Stat(nodes); err != nil {
			faults = append(faults, noInput("--nodes", nodes, err))
		}
	}
	switch {
	case o.DryRun:
	case o.Out == "":
		faults = append(faults, badOption("no output directory is named; give --out"))
	default:
		faults = append(faults, Target(o.Out))
	}
	if o.FeatureType != "" {
		if err := checkChoice(o.FeatureType); err != nil {
			faults = append(faults, OptionError{err})
		}
	}
	if o.In != "" && formats[o.Format].read != nil {
		faults = append(faults, foreign(o.In, o.Format))
	}
	for _, split := range []string{o.Split, o.SplitLinks} {
		if _, _, err := sharesOf(split); err != nil {
			faults = append(faults, OptionError{err})
		}
	}
	faults = append(faults, o.checkTables(), o.checkKeys(), o.checkLinkLabels())
	if o.FeatureType == Sparse && (o.Standardize || o.StandardizeAs != "") {
		faults = append(faults,
			badOption("--standardize shifts every column, so that no entry of sparse features "+
				"stays 0; leave it out, or choose another --feature-type"))
	}
	if o.AllSplits && o.Standardize {
		faults = append(faults,
			badOption("--standardize uses the training vertices of one split, but all splits are "+
				"kept; choose one split with --split-index, or leave --standardize out"))
	}
	if o.Task == task.Regression && o.SplitLinks != "" {
		faults = append(faults, badOption("regression and links are two tasks; choose one"))
	}
	if o.Weights != "" && !slices.Contains(graph.Merges, o.Weights) {
		faults = append(faults, badOption("--merge-weights %s is unknown; use one of %v", o.Weights,
			graph.Merges))
	}
	if o.MaxFeatureBytes < 0 {
		faults = append(faults, badOption("--max-feature-bytes is %d; it must be positive",
			o.MaxFeatureBytes))
	}
	return errors.Join(faults...)
}

// noInput returns an error which says that the path that the user gave for a flag cannot be read.
func noInput(flag, path string, err error) error {
	if abs, bad := filepath.Abs(path); bad == nil && abs != path {
		return fmt.Errorf("%s %s: %w; correct the path, which resolves to %s", flag, path,
			errors.Unwrap(err), abs)
	}
	return fmt.Errorf("%s %s: %w; correct the path", flag, path, errors.Unwrap(err))
}

// Import reads a graph in a foreign format and writes it as a DATASET directory, with features,
// labels and split. It drops self-loops and repeated edges, and adds reverse edges if Undirected
// says so. After an error Out stays absent or empty.
//
// Memory: the result takes 4 bytes for each edge and 8 for each vertex. During the import, each
// edge that was read takes at most 16 bytes more. Half of these 16 bytes are needed only while
// graph.Builder adds reverse edges and drops repeats. If edges have weights, each edge of the
// result takes another 8 bytes while the weights are merged. Features are streamed, or held as
// sparse rows.
//
// Errors name file and line, byte or array. They wrap graph.ErrVertexRange if an edge names a
// vertex that does not exist, ErrValue for labels and features out of range, ErrExists if Out is
// not empty, ErrTooLarge for counts too large for the memory, and OptionError for faults of the
// options alone.
func Import(o ImportOptions) (ImportReport, error) {
	if err := o.check(); err != nil {
		return ImportReport{}, err
	}
	g := graphSource{options: o, findings: new(findings)}
	defer g.free()
	if err := g.read(); err != nil {
		return ImportReport{}, err
	}
	return g.write()
}

// baseName returns the last element of a path, without its extensions.
func baseName(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	return name
}

// settle checks the labels of the vertices and makes the split. It describes the labels and the
// split in the report r.
func (s *source) settle(r *ImportReport) (*splitSource, error) {
	if regression(s) {
		if err := checkTargets(s); err != nil {
			return nil, err
		}
	}
	split, err := s.chooseSplit()
	if err != nil {
		return nil, err
	}
	r.Task, r.Classes, r.Labelled = s.task(), s.classes, s.labelled()
	r.Split, r.Unlabelled = split.from, split.unlabelled
	r.Train, r.Valid, r.Test = len(split.Train), len(split.Valid), len(split.Test)
	if r.Task != task.None && r.Train == 0 {
		s.note("no vertex will be trained on: the training list of the split (%s) has no vertex "+
			"with a label; --split 60/20/20 splits the labelled vertices", split.from)
	}
	return split, nil
}

// checkSums reports the first vertex whose in-edges have a sum of weights above what a float32
// holds. Layers divide by that sum.
func (e *edgeSource) checkSums(g *graph.CSC, weights []float32) error {
	for v := range g.NumVertices() {
		sum := 0.0
		for _, w := range weights[g.Indptr[v]:g.Indptr[v+1]] {
			sum += float64(w)
		}
		if sum > math.MaxFloat32 {
			return fmt.Errorf("the weights of the edges%s into vertex %s add up to %.4g: %w: a "+
				"float32 holds up to 3.4e+38; scale all weights down, or leave them out with "+
				"--ignore", e.nameSuffix(), idOf(e.to, graph.VertexID(v)), sum, ErrValue)
		}
	}
	return nil
}

// checkFeatures reads all features without writing them, to find errors in a dry run.
func (s *source) checkFeatures() error {
	if s.features == nil {
		return nil
	}
	look := func(int, int, []float32) {}
	return s.features.fault(s.features.write(&RowWriter{table: Table{FeatureType: Float32},
		cols: s.features.cols, look: look}))
}

// provenance describes the import. The argument `labels` holds the vertices of the type that has
// labels.
func (g *graphSource) provenance(r *ImportReport, labels *source) Provenance {
	notes := slices.Clone(r.Notes)
	if r.Unlabelled > 0 {
		notes = append(notes,
			fmt.Sprintf("%d split vertices left out because they have no label", r.Unlabelled))
	}
	settings := map[string]string{
		"in":              cmp.Or(labels.origin.In, filepath.Base(g.options.In)),
		"undirected":      strconv.FormatBool(r.Undirected),
		"keep_loops":      strconv.FormatBool(g.options.KeepLoops),
		"keep_duplicates": strconv.FormatBool(g.options.KeepDuplicates),
		"split":           r.Split,
	}
	if len(g.options.LinkLabels) > 0 {
		settings["link_labels"] = strings.Join(g.options.LinkLabels, ",")
	}
	if g.options.Standardize {
		settings["standardize"] = "true"
	}
	if g.options.StandardizeAs != "" {
		settings["standardize"] = "as another dataset"
	}
	p := Provenance{
		Source:   "import " + r.Format,
		Settings: settings,
		Cleaning: &r.Cleaning,
		Notes:    notes,
		Reading:  r.Reading,
	}
	if g.options.SplitLinks == "" { // if links are the task, the class names belong to links
		p.Classes = labels.classNames
	}
	return p
}
