package dataset

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// aliases lists the names that arrays have in known data sets. --keys uses the first name of each
// list.
var aliases = map[string][]string{
	"edge_index": {"edge_index", "edges", "edge_list"},
	"x": {"x", "features", "feats", "feat", "feature", "node_feat", "node_feats",
		"node_features"},
	"y":         {"y", "labels", "label", "node_label", "node_labels"},
	"ids":       {"ids"},
	"num_nodes": {"num_nodes", "num_vertices"},
	// an array of one number for each edge
	"edge_weight": weightNames,
	// an array of one row for each edge
	"edge_attr": {"edge_attr", "edge_attrs", "edge_feat", "edge_feats", "edge_features"},
	"train":     {"train", "train_idx", "train_index", "idx_train"},
	"valid": {"valid", "valid_idx", "valid_index", "idx_valid", "val", "val_idx",
		"val_index", "idx_val"},
	"test":       {"test", "test_idx", "test_index", "idx_test"},
	"train_mask": {"train_mask", "train_masks"},
	"valid_mask": {"valid_mask", "valid_masks", "val_mask", "val_masks"},
	"test_mask":  {"test_mask", "test_masks"},
}

// weightNames are usual names of edge weights.
var weightNames = []string{"edge_weight", "edge_weights", "weight", "weights"}

// timeNames are names of columns and arrays with times of edges.
var timeNames = []string{"time", "times", "timestamp", "timestamps", "edge_time", "edge_times",
	"ts", "unixtime", "unix_time", "datetime", "date", "year", "timeset"}

// noTime is the end of the note about a column of times that is not read.
const noTime = "a time, which is not used, so a vertex also reads edges from its future"

// isTime reports whether a column or an array holds times, to judge by its name. The name is one of
// timeNames, also after node_ or edge_ (node_year), or its last word means a point in time
// (creationDate, block_timestamp).
func isTime(name string) bool {
	words := wordsOf(name)
	n := len(words)
	if n == 0 {
		return false
	}
	whole := strings.ToLower(name)
	if words[0] == "node" || words[0] == "edge" {
		whole = strings.Join(words[1:], "_")
	}
	return slices.Contains(timeNames, whole) ||
		slices.Contains([]string{"timestamp", "timestamps", "datetime", "date"}, words[n-1])
}

// wordsOf returns the words of a name in lower case: fullName and full_name both give full and
// name.
func wordsOf(name string) (words []string) {
	begin := 0
	for i, r := range name + "_" {
		apart := strings.ContainsRune("_- .:/", r)
		if apart || i > 0 && unicode.IsUpper(r) && unicode.IsLower(rune(name[i-1])) {
			if i > begin {
				words = append(words, strings.ToLower(name[begin:i]))
			}
			if begin = i; apart {
				begin = i + 1
			}
		}
	}
	return words
}

// usedTime ends the note about a time that is read as something else.
const usedTime = "a time, which a model reads like any other number, to 7 digits; and a vertex " +
	"also reads edges from its future"

// timeOf returns "is" if a column is named like a time, "seems to be" if only its first values look
// like times, and otherwise "". It looks at both, because columns such as travel_time, full time
// and works_at hold no times. It returns "" for a column without values.
func timeOf(name string, values []string) string {
	values = slices.DeleteFunc(values, table.Missing)
	all := func(is func(string) bool) bool {
		return !slices.ContainsFunc(values, func(f string) bool { return !is(f) })
	}
	isYear := func(f string) bool {
		x, is := table.ParseInt([]byte(f))
		return is && x >= 1500 && x <= 2100
	}
	part := slices.ContainsFunc(wordsOf(name), func(w string) bool {
		return w == "at" || slices.Contains(timeNames, w)
	})
	switch {
	case len(values) == 0:
	case isTime(name):
		return "is"
	case all(isMoment) || part && all(isYear):
		return "seems to be"
	}
	return ""
}

// dated returns text to add to an error about a text that is not a number, if the text is a date.
func dated(text string) string {
	if !isDate(text) {
		return ""
	}
	return ": it seems to be a time; turn it into a number, such as days since a first day, or " +
		"leave it out"
}

// tellTime notes that a time is read as something else, and returns the words of the note. The verb
// of the note comes from timeOf.
func (in *importer) tellTime(what, as, verb string) string {
	if verb == "" {
		return ""
	}
	in.note("%s is read as %s, and %s %s", what, as, verb, usedTime)
	return "it " + verb + " a time"
}

// tellTimes notes that an array or file of weights or features of edges seems to hold times, as the
// first values of a column show.
func (e *edgeSource) tellTimes(array, as string, columns [][]string) {
	for _, values := range columns {
		if is := timeOf(array, values); is != "" {
			e.tellTime(array+e.nameSuffix(), as, is)
			return
		}
	}
}

// beginOf returns the first numbers of each column as texts. The slice rows holds rows of cols
// numbers, one row after the other.
func beginOf[T float32 | float64](rows []T, cols int) [][]string {
	columns := make([][]string, min(cols, len(rows)))
	for at, x := range rows[:min(len(rows), firstValues*cols)] {
		columns[at%cols] = append(columns[at%cols], strconv.FormatFloat(float64(x), 'f', -1, 64))
	}
	return columns
}

// firstValues is the number of values that show what an array holds.
const firstValues = 50

// isMoment reports whether a field is a date, or a number that, read as seconds, milliseconds,
// microseconds or nanoseconds since 1970, falls in the years 1990 to 2039.
func isMoment(field string) bool {
	x, is := table.ParseFloat([]byte(field))
	for range 3 {
		if x > 1e11 {
			x /= 1000
		}
	}
	return is && x >= 631152000 && x < 2208988800 || isDate(field)
}

// isDate reports whether a field is a date such as 2012-01-31, perhaps with a time after it, or a
// date of eight digits.
func isDate(field string) bool {
	end := min(len(field), 10)
	rest := field[end:]
	if rest != "" && (len(rest) == 1 || rest[0] != 'T' && rest[0] != ' ' || rest[1] < '0' ||
		rest[1] > '9') {
		return false // such as 10.10.2020.1
	}
	day := strings.NewReplacer("/", "-", ".", "-").Replace(field[:end])
	for _, form := range []string{time.DateOnly, "02-01-2006", "01-02-2006"} {
		if _, err := time.Parse(form, day); err == nil {
			return true
		}
	}
	_, err := time.Parse("20060102", field)
	return err == nil && (field[:2] == "19" || field[:2] == "20")
}

// weights are names of arrays and columns with weights or features of edges. Every importer calls
// ignoredWeights for each array or column that it does not read, so no importer needs a list of
// these names.
var weights = append([]string{
	"edge_attr", "edge_attrs", "edge_feat", "edge_feats", "edge_features"}, weightNames...)

// noWeights says why an array of weights or features of edges is ignored.
const noWeights = "features of edges are read from an array edge_attr or the columns of " +
	"--edge-features, and weights only from a column or array edge_weight"

// ignoredWeights returns a note for an array or column that is not read, if it is named like
// weights, and otherwise "".
func ignoredWeights(name string) string {
	if !slices.Contains(weights, strings.ToLower(name)) {
		return ""
	}
	return name + " is ignored: " + noWeights
}

const (
	edgeTypes = "edges of several types: give each type arrays or a table of its own " +
		"(docs/guide/typed.md); without types every edge would count alike"
	vertexTypes = "vertices of several types: give each type arrays or a table of its own " +
		"(docs/guide/typed.md); without types all would share one kind of feature row and label"
	linkTask = "links to predict: give them by --split-links, and their labels by --link-classes " +
		"or --link-numbers"
	manyTask = "many graphs with one label each: graph-level tasks are not supported, because a " +
		"model learns a label for each vertex of one graph"
	sparseTask = "sparse features are not supported under this name; save them dense, as " +
		"x.toarray(), or as attr_data, attr_indices, attr_indptr and attr_shape of the CSR matrix"
	temporal  = "a graph that changes with time is not supported; save the edges of one moment"
	hyperTask = "hyperedges are not supported; save an edge for each pair of vertices, or a " +
		"vertex for each hyperedge"
)

// refused has the names of arrays and columns that the import cannot read, but that change the
// meaning of a graph. Each name maps to the text of an error. If a source has an array or column of
// such a name, the import fails with this error, because without the array the result would be
// another graph. If --ignore names the array or column, the import leaves it out and goes on.
var refused = map[string]string{
	"edge_type": edgeTypes, "edge_types": edgeTypes, "etype": edgeTypes, "etypes": edgeTypes,
	"edge_reltype": edgeTypes, "relation": edgeTypes, "relations": edgeTypes, "rel": edgeTypes,
	"rel_type": edgeTypes, "edge_index_dict": edgeTypes,
	"node_type": vertexTypes, "node_types": vertexTypes, "ntype": vertexTypes,
	"ntypes": vertexTypes,
	"x_dict": vertexTypes, "num_nodes_dict": vertexTypes, "node_species": vertexTypes,
	"edge_label": linkTask, "edge_labels": linkTask, "edge_label_index": linkTask,
	"neg_edge_index":       linkTask,
	"neg_edge_label_index": linkTask, "pos_edge_label_index": linkTask,
	"train_edge_index":     linkTask,
	"train_pos_edge_index": linkTask, "train_edges": linkTask,
	"graph_label": manyTask, "graph_labels": manyTask, "graph_indicator": manyTask,
	"batch":    manyTask,
	"graph_id": manyTask, "graph_ids": manyTask, "ptr": manyTask, "num_graphs": manyTask,
	"x_indptr": sparseTask, "x_data": sparseTask, "feat_indptr": sparseTask,
	"features_indptr": sparseTask, "feature_indptr": sparseTask, "node_feat_indptr": sparseTask,
	"node_features_indptr": sparseTask,
	"snapshots":            temporal, "hyperedge_index": hyperTask,
}

// refusal returns an error if an array or column is one of those refused, and otherwise nil.
func (in *importer) refusal(where, name string) error {
	why := refused[strings.ToLower(name)]
	if why == "" || slices.Contains(in.options.Ignore, name) ||
		slices.Contains(in.options.LinkLabels, name) {
		return nil
	}
	return fmt.Errorf("%s: %w: %s; --ignore %s imports the rest", where, ErrValue, why, name)
}

func (in *importer) refuseKeys(a arraySource) error {
	for _, name := range a.Names() {
		if err := in.refusal(a.name(name), name); err != nil {
			return err
		}
	}
	return nil
}

// find returns the name of the array in a that has the given meaning, or "" if there is none. A
// name from the options takes precedence over the usual names.
func (in *importer) find(a arraySource, meaning string) string {
	if key, ok := in.options.Keys[meaning]; ok {
		switch {
		case a.Has(key):
			return in.used(key, meaning)
		// without types there is no such array; with types, another type may have it, and this
		// type may have an array of a usual name
		case in.own == nil:
			return ""
		}
	}
	for _, key := range aliases[meaning] {
		if a.Has(key) && !slices.Contains(in.options.Ignore, key) {
			return in.used(key, meaning)
		}
	}
	if key := in.otherMask(a, meaning); key != "" {
		return in.used(key, meaning)
	}
	return ""
}

// otherMask looks for a mask whose name is not among the usual ones, such as is_train. The meaning
// says which mask: that of the training, validation or test list. otherMask returns the name of the
// array, or "" if there is none, or if a has no array for the training list.
func (in *importer) otherMask(a arraySource, meaning string) string {
	key, trains := "", slices.ContainsFunc(slices.Concat(aliases["train"], aliases["train_mask"]),
		a.Has)
	for _, name := range a.Names() {
		part, plain := maskPart(name)
		if part < 0 || plain || slices.Contains(in.options.Ignore, name) {
			continue
		}
		trains = trains || part == 0
		if key == "" && meaning == graph.SplitNames[part]+"_mask" {
			key = name
		}
	}
	if !trains {
		return ""
	}
	return key
}

// used records that an array was read with a meaning, and returns its name.
func (in *importer) used(key, meaning string) string {
	if in.read == nil {
		in.read = map[string]string{}
	}
	in.read[key] = meaning
	return key
}

// meanings gives, for each meaning of an array, the words with which the report says what the array
// was read as.
var meanings = map[string]string{"edge_index": asEdges, "x": asFeature, "y": asLabel, "ids": asID,
	"num_nodes": asCount, "edge_weight": asWeight, "edge_attr": asEdgeFeature,
	asLinkLabel: asLinkLabel}

// checkNames returns an error if the options name an array that a does not have.
func (o *ImportOptions) checkNames(a arraySource, has func(key string) bool) error {
	for _, meaning := range slices.Sorted(maps.Keys(o.Keys)) {
		if key := o.Keys[meaning]; !has(key) {
			return fmt.Errorf("%s: there is no array %q, which --keys names for %s; the arrays "+
				"are %s",
				a.path, key, meaning, strings.Join(a.Names(), ", "))
		}
	}
	return nil
}

// noteUnread notes the arrays that were not read.
func (in *importer) noteUnread(a arraySource) error {
	if a.Has("adj_indptr") || isScipy(a) {
		for _, key := range []string{"adj_data", "data"} {
			if a.Has(key) && in.read[key] == "" {
				if err := in.noteWeights(a, key); err != nil {
					return err
				}
			}
		}
	}
	for _, name := range a.Names() {
		as := cmp.Or(meanings[in.read[name]], matrixPart(name))
		switch {
		case as != "":
			in.reads(a.path, name, as, in.rival(a, name))
			continue
		case in.isSplitKey(a, name):
			in.reads(a.path, name, asSplit, "")
			continue
		case isTime(name):
			in.reads(a.path, name, asTime, "")
			in.note("array %s is ignored: it is %s", name, noTime)
			continue
		case timeOf(name, a.beginOfOne(name)) != "":
			in.reads(a.path, name, asTime, "as its numbers show")
			in.note("array %s is ignored: it seems to be %s", name, noTime)
			continue
		}
		in.reads(a.path, name, asIgnored, "")
		sure, _ := likeSplit(name)
		switch note := ignoredWeights(name); {
		case note != "":
			in.notes = append(in.notes, note)
		case sure && a.hasCodes(name):
			in.note("array %s is not read; if it has 0, 1 and 2 for training, validation and "+
				"test vertices, save it as a .npy file and give that to --split", name)
		case sure:
			in.note("array %s is not read; if it marks the vertices to train, call it train_mask",
				name)
		default:
			in.note("array %s is not read", name)
		}
	}
	return nil
}

// noteWeights notes that the values of an adjacency matrix are ignored, if any of them is not 1.
func (in *importer) noteWeights(a arraySource, key string) error {
	r, err := a.open(key, 1)
	if err != nil {
		return err
	}
	defer r.Close()
	differ := false
	err = eachChunk(r, r.Left(), func(part []float64) error {
		for _, x := range part {
			differ = differ || x != 1
		}
		return nil
	})
	if err == nil && differ {
		in.notes = append(in.notes, "the values of "+key+" are ignored: "+noWeights)
	}
	return err
}

// rival returns a text that names another array that could have the same meaning as the array that
// was read, and the option that chooses between them. It returns "" if there is no other.
func (in *importer) rival(a arraySource, name string) string {
	meaning := in.read[name]
	for _, other := range aliases[meaning] {
		if other != name && a.Has(other) {
			return "rather than " + other + "; --keys " + meaning + "=NAME says which"
		}
	}
	return ""
}

// matrixPart returns what an array is read as, if its name belongs to a sparse matrix, and
// otherwise "".
func matrixPart(name string) string {
	rest, of := strings.CutPrefix(name, "attr_")
	switch strings.TrimPrefix(rest, "adj_") {
	case "indptr", "indices", "data", "shape", "format", "row", "col", "matrix", "_is_array":
		if of {
			return asFeature
		}
		return asEdges
	case "labels":
		return asLabel
	}
	return ""
}

var splitMeanings = []string{"train", "valid", "test", "train_mask", "valid_mask", "test_mask"}

// isSplitKey reports whether an array with this name belongs to the split, which is read later or
// replaced by --split.
func (in *importer) isSplitKey(a arraySource, name string) bool {
	return slices.ContainsFunc(splitMeanings, func(meaning string) bool {
		return slices.Contains(aliases[meaning], name) || in.options.Keys[meaning] == name ||
			name == in.otherMask(a, meaning) && !slices.ContainsFunc(aliases[meaning], a.Has)
	})
}

// checkKeys returns an error if --keys is given for a format without arrays, or names an array that
// no importer reads (aliases).
func (o *ImportOptions) checkKeys() error {
	if len(o.Keys) > 0 && o.Format != "npz" {
		return badOption("--keys names arrays of format npz; leave it out with format %s", o.Format)
	}
	for _, meaning := range slices.Sorted(maps.Keys(o.Keys)) {
		if aliases[meaning] == nil {
			return badOption("--keys: %q is not an array that is read; use one of %s",
				meaning, strings.Join(slices.Sorted(maps.Keys(aliases)), ", "))
		}
	}
	return nil
}

const (
	networkX   = "a format that NetworkX reads; in Python, halognn.write_dataset(DIR, networkx."
	attributes = "from_networkx(graph, features, label) takes attributes"
)

// foreignKinds maps extensions of files of other programs to advice.
var foreignKinds = map[string]string{
	".pt":  "a PyTorch file; in Python, halognn.write_dataset(DIR, data) writes a dataset",
	".pth": "a PyTorch file; in Python, halognn.write_dataset(DIR, data) writes a dataset",
	".bin": "a DGL or other binary file; in Python, halognn.write_dataset(DIR, g) writes a " +
		"dataset",
	".dgl":     "a DGL file; in Python, halognn.write_dataset(DIR, g) writes a dataset",
	".mat":     "a MATLAB file; python3 -m halognn mat IN OUT reads it",
	".gml":     networkX + "read_gml(FILE)) writes a dataset; " + attributes,
	".graphml": networkX + "read_graphml(FILE)) writes a dataset; " + attributes,
	".gexf":    networkX + "read_gexf(FILE)) writes a dataset; " + attributes,
	".mtx": "a MatrixMarket file; in Python, halognn.write_dataset(DIR, scipy.io.mmread(FILE)) " +
		"writes a dataset",
	".net": networkX + "read_pajek(FILE)) writes a dataset",
	".lgl": "an LGL file of igraph; in Python, halognn.write_dataset(DIR, " +
		"igraph.Graph.Read_Lgl(FILE).to_networkx()) writes a dataset",
	".tgf": "a TGF file; cut it at the line #, and import the part after that line as a table",
	".json": "JSON; if it has nodes and links, halognn.write_dataset(DIR, " +
		"networkx.node_link_graph(json.load(open(FILE)))) in Python writes a dataset; otherwise " +
		"write the edges as a table",
	".jsonl": "JSON, an object a line; write the edges as a table, as with " +
		"pandas.read_json(FILE, lines=True)",
	".ndjson": "JSON, an object a line; write the edges as a table, as with " +
		"pandas.read_json(FILE, lines=True)",
	".gdf": "a GDF file of GUESS and Gephi; cut it before the line edgedef> into a node table " +
		"and an edge table, whose first lines name the columns",
	".nt": "RDF triples, whose edges have types: give each type arrays or a table of its own " +
		"(docs/guide/typed.md)",
	".ttl": "RDF triples, whose edges have types: give each type arrays or a table of its own " +
		"(docs/guide/typed.md)",
}

var planetoidFiles = []string{".x", ".tx", ".allx", ".y", ".ty", ".ally", ".graph", ".index"}

// foreign returns an error if the extension of an input shows that no importer reads it, or that
// another one does.
func foreign(path, format string) error {
	base := strings.TrimSuffix(strings.ToLower(path), ".gz")
	ext := filepath.Ext(base)
	if isDir(path) {
		return nil
	}
	if name := filepath.Base(base); strings.HasPrefix(name, "ind.") &&
		slices.Contains(planetoidFiles, ext) {
		return fmt.Errorf("%s: %w: a file of Planetoid; python3 -m halognn planetoid IN OUT "+
			"reads these", path, ErrValue)
	}
	if what := cmp.Or(foreignKinds[ext], table.Kinds[ext]); what != "" {
		return fmt.Errorf("%s: %w: %s", path, ErrValue, what)
	}
	if ext == ".npz" && format != "npz" {
		return fmt.Errorf("%s: %w: format %s does not read .npz files; use --format npz", path,
			ErrValue, format)
	}
	if (ext == ".csv" || ext == ".tsv") && format == "npz" {
		return fmt.Errorf("%s: %w: a text table; use --format csv", path, ErrValue)
	}
	if ext == ".npy" && format != "npz" {
		return fmt.Errorf("%s: %w: one array; name the directory that holds edge_index.npy and "+
			"the others, with --format npz", path, ErrValue)
	}
	if ext == ".npy" {
		return fmt.Errorf("%s: %w: one array; name the directory that holds edge_index.npy and "+
			"the others", path, ErrValue)
	}
	return nil
}
