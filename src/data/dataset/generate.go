package dataset

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"halognn/src/base/mem"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// The kinds of generated graphs.
const (
	// degree-corrected stochastic block model: vertices form communities, each community has a
	// class, and the share Homophily of the edges joins vertices of one class
	SBM  = "sbm"
	RMAT = "rmat" // recursive matrix: skewed degrees; labels independent of the edges
	MAG  = "mag"  // papers, authors, institutions and fields: vertex types and relations
)

// GenerateOptions says which graph to make. A field that is zero takes the preset's value. Without
// a preset it takes the default, which the field's comment gives in square brackets.
type GenerateOptions struct {
	// SBM, RMAT or MAG [SBM]; with MAG, Vertices is the number of papers, and Degree must be 0
	Kind     string
	Preset   string  // sizes of a known graph, see Presets; other fields override it
	Scale    float64 // multiplies the vertices of the preset [1]
	Vertices int     // number of vertices [10000]
	// mean degree: stored directed edges (two for each drawn edge) per vertex [20]
	Degree   float64
	Features int // number of feature columns [64]
	Classes  int // number of classes [16]
	// share of edges that join vertices of one class; a negative value means a share of 0 [0.8]
	Homophily float64
	// the r-th largest class has a share in proportion to 1/r^Skew; a negative value means equal
	// sizes [0.5, but 0 for two classes]
	Skew     float64
	Labelled float64 // share of the vertices that have a label [1]
	// percentages of the labelled vertices in the training, validation and test list [60/20/20]
	Split       string
	FeatureType string // one of FeatureTypes [Float32]
	// percentages of the edges that become training, validation and test links; "" if the task
	// predicts vertices, not links
	SplitLinks  string
	LinkLabels  string // PlantClasses or PlantNumbers; "" if links have no labels
	EdgeWeights bool   // edges get weights, uniform in [0,1), equal in both directions
	Seed        uint64

	Stage func(line string) // called with the name of each stage; may be nil

	// Number of ranges into which the vertices are cut. The edges of one range are made at a time,
	// so that they fit in memory. If it is 0, Generate chooses the number.
	ranges int
}

// The kinds of labels of links. A link between vertices of classes a and b has the class (a + b)
// mod C, or the number a + b.
const (
	PlantClasses = "classes"
	PlantNumbers = "numbers"
)

// presets are the sizes of published graphs. A generated graph is symmetric and has their numbers
// of vertices, features and classes, their degree and their split, but not their edges.
var presets = map[string]GenerateOptions{
	"arxiv": {Vertices: 169343, Degree: 13.7, Features: 128, Classes: 40, Homophily: 0.65,
		Skew: 0.8, Split: "54/18/28"},
	"products": {Vertices: 2400000, Degree: 50, Features: 100, Classes: 47, Homophily: 0.8,
		Skew: 1, Split: "8/2/90"},
	"reddit": {Vertices: 232965, Degree: 492, Features: 602, Classes: 41, Homophily: 0.75,
		Skew: 0.8, Split: "66/10/24"},
	"papers100M": {Vertices: 111059956, Degree: 29.1, Features: 128, Classes: 172, Homophily: 0.65,
		Skew: 0.8, Labelled: 0.014, Split: "78/8/14"},
	"mag": {Kind: MAG, Vertices: 736389, Features: 128, Classes: 349, Homophily: 0.8, Skew: 0.8,
		Split: "85/9/6"},
	// the papers of MAG240M and the citations between them
	"mag240c": {Vertices: 121751666, Degree: 21.3, Features: 768, Classes: 153, Homophily: 0.65,
		Skew: 0.8, Labelled: 0.0115, Split: "80/10/10", FeatureType: Float16},
}

// Presets lists the names of the presets.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Resolve fills in the values of the preset and the defaults, and returns all errors, joined.
func (o GenerateOptions) Resolve() (GenerateOptions, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	preset, known := presets[o.Preset]
	if o.Preset != "" && !known {
		fault("preset %q is unknown; use one of %s", o.Preset, strings.Join(Presets(), ", "))
	}
	o.Scale = cmp.Or(o.Scale, 1)
	if known {
		preset.Vertices = max(1, int(math.Round(float64(preset.Vertices)*o.Scale)))
	}
	o.Kind = cmp.Or(o.Kind, preset.Kind, SBM)
	o.Vertices = cmp.Or(o.Vertices, preset.Vertices, 10000)
	if o.Kind != MAG {
		o.Degree = cmp.Or(o.Degree, preset.Degree, 20)
	}
	o.Features = cmp.Or(o.Features, preset.Features, 64)
	o.Classes = cmp.Or(o.Classes, preset.Classes, 16)
	o.Homophily = max(cmp.Or(o.Homophily, preset.Homophily, 0.8), 0)
	// With two classes of unequal size, always guessing the larger one would score nearly as well
	// as a model.
	if o.Classes > 2 {
		o.Skew = cmp.Or(o.Skew, preset.Skew, 0.5)
	}
	o.Skew = max(o.Skew, 0)
	o.Labelled = cmp.Or(o.Labelled, preset.Labelled, 1)
	o.Split = cmp.Or(o.Split, preset.Split, "60/20/20")
	o.FeatureType = cmp.Or(o.FeatureType, preset.FeatureType, Float32)
	if err := checkChoice(o.FeatureType); err != nil {
		faults = append(faults, err)
	} else if o.FeatureType == Sparse {
		fault("generated features have no zeros, so they cannot be sparse; choose a feature type "+
			"other than %s", Sparse)
	}
	if o.Kind != SBM && o.Kind != RMAT && o.Kind != MAG {
		fault("kind %q is neither %s, %s nor %s", o.Kind, SBM, RMAT, MAG)
	}
	if o.Kind == MAG {
		faults = append(faults, o.magFaults())
	}
	if o.Scale < 0 || math.IsNaN(o.Scale) {
		fault("scale is %g; it must be positive", o.Scale)
	}
	if o.Vertices < 2 || o.Vertices > graph.MaxVertices {
		fault("the number of vertices is %d; it must be 2 to %d", o.Vertices, graph.MaxVertices)
	}
	if o.Classes < 1 || o.Classes > o.Vertices {
		fault("the number of classes is %d; it must be 1 to %d, the number of vertices",
			o.Classes, o.Vertices)
	}
	if o.Features < 1 {
		fault("the number of features is %d; it must be at least 1", o.Features)
	}
	if o.Kind != MAG && !(o.Degree > 0 && o.Degree <= float64(o.Vertices)/4) {
		fault("the degree is %g; it must be positive and at most a quarter of the %d vertices",
			o.Degree,
			o.Vertices)
	}
	if !(o.Homophily <= 1) {
		fault("homophily is %g, but as a share of edges it must be at most 1", o.Homophily)
	}
	if !(o.Labelled > 0 && o.Labelled <= 1) {
		fault("the labelled share is %g; it must be above 0 and at most 1", o.Labelled)
	}
	if _, err := ParseFractions(o.Split); err != nil {
		faults = append(faults, err)
	}
	if o.LinkLabels != "" && (o.SplitLinks == "" || o.LinkLabels != PlantClasses &&
		o.LinkLabels != PlantNumbers) {
		fault("--link-labels is %s; it must be %s or %s, and needs --split-links", o.LinkLabels,
			PlantClasses, PlantNumbers)
	}
	if o.SplitLinks != "" {
		shares, err := ParseFractions(o.SplitLinks)
		if err != nil {
			faults = append(faults, err)
		} else if shares[0] == 0 {
			faults = append(faults,
				fmt.Errorf("--split-links %s: there are no training links; give them a share, "+
					"such as 85/5/10",
					o.SplitLinks))
		}
	}
	return o, errors.Join(faults...)
}

// Generate writes a synthetic dataset to dir. The result depends only on the options, not on the
// number of CPUs, all of which it uses. While the graph is built, it takes about 8 bytes of memory
// for each stored edge and 32 for each vertex; features are streamed. If there is not enough
// memory, the graph is made one range of vertices after the other, and all edges are drawn again
// for each range: see memory. The products preset, with 2.4 million vertices and 120 million stored
// edges, takes 1 GiB and about 40 CPU seconds.
func Generate(dir string, o GenerateOptions) error {
	o, err := o.Resolve()
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if err := o.fits(dir); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	w, err := Create(dir, o.meta())
	if err != nil {
		return err
	}
	classes := mem.Make[int32](o.Vertices)
	defer mem.Free(classes)
	if err := o.write(w, classes); err != nil {
		w.Abort()
		return fmt.Errorf("generate: %w", err)
	}
	return w.Close()
}

func (o GenerateOptions) meta() Meta {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	settings := map[string]string{
		"vertices": strconv.Itoa(o.Vertices), "skew": number(o.Skew),
		"labelled": number(o.Labelled),
		"split":    o.Split, "seed": strconv.FormatUint(o.Seed, 10),
	}
	if o.Kind != MAG {
		settings["degree"] = number(o.Degree)
	}
	if o.Kind != RMAT {
		settings["homophily"] = number(o.Homophily)
	}
	if o.EdgeWeights {
		settings["edge_weights"] = "uniform in [0,1)"
	}
	if o.Preset != "" {
		settings["preset"], settings["scale"] = o.Preset, number(o.Scale)
	}
	m := Meta{Name: cmp.Or(o.Preset, o.Kind), Task: task.Multiclass, Features: o.Features,
		Classes: o.Classes, FeatureType: o.FeatureType,
		Provenance: Provenance{Source: "generated " + o.Kind, Settings: settings}}
	if o.SplitLinks != "" {
		settings["split_links"] = o.SplitLinks
		m.Task, m.Classes = task.Links, 0
		switch o.LinkLabels {
		case PlantClasses:
			m.Task, m.Classes, settings["link_labels"] = task.LinkClasses, o.Classes, o.LinkLabels
		case PlantNumbers:
			m.Task, m.Classes, settings["link_labels"] = task.LinkNumbers, 1, o.LinkLabels
		}
	}
	return m
}

// write writes all files. It fills classes [Vertices] with the labels, which the caller must keep
// until w is closed.
func (o GenerateOptions) write(w *Writer, classes []int32) error {
	stage := func(format string, args ...any) {
		if o.Stage != nil {
			o.Stage(fmt.Sprintf(format, args...))
		}
	}
	if o.Kind == MAG {
		stage("drawing the relations of %d papers", o.Vertices)
		return o.writeMAG(w, classes)
	}
	draw, free := o.drawer(classes)
	defer free()
	t, err := w.BeginTopology(o.Vertices, o.EdgeWeights)
	if err != nil {
		return err
	}
	defer t.abort()
	var links graph.LinkSplit
	for _, of := range o.spans() {
		part := ""
		if !of.all && o.SplitLinks != "" {
			return errors.New("links can be drawn only from a graph that fits in memory, and " +
				"this one does not; lower --vertices or --scale, or choose a larger machine")
		}
		if !of.all {
			part = fmt.Sprintf(" of vertices %d to %d of %d", of.first, of.end-1, o.Vertices)
		}
		stage("drawing %.0f edges%s", float64(o.Vertices)*o.Degree/2, part)
		var edges graph.Builder
		draw(&edges, of)
		stage("sorting the edges and dropping repeats")
		rows, report, err := edges.BuildRows(o.Vertices, of.first, of.end,
			graph.CleanOptions{Undirected: true})
		if err != nil {
			return err
		}
		t.report.Add(report)
		var weights []float32
		if o.EdgeWeights {
			weights = o.edgeWeights(rows, of.first)
		}
		weights = o.takeLinks(rows, weights, &links)
		stage("writing %d edges", rows.NumEdges())
		err = t.Append(rows, weights)
		mem.Free(weights)
		rows.Free()
		if err != nil {
			return err
		}
	}
	free()
	if err := t.Close(); err != nil {
		return err
	}
	w.Meta.Provenance.Cleaning = &t.report
	stage("writing the features, %s", size(float64(w.Meta.Table(0).RowBytes())*float64(o.Vertices)))
	if err := o.writeFeatures(w, classes); err != nil {
		return err
	}
	if o.SplitLinks != "" {
		return w.Links(links, o.labelLinks(&links, classes)...)
	}
	return o.writeLabels(w, classes)
}

// writeLabels writes the split and the classes. If vertices have types, only vertices of the first
// type have classes.
func (o GenerateOptions) writeLabels(w *Writer, classes []int32) error {
	o.hideLabels(classes)
	labels := classes
	if others := int(w.Meta.Vertices) - len(classes); others > 0 {
		labels = slices.Concat(classes, slices.Repeat([]int32{-1}, others))
	}
	if err := w.Labels(mem.Bytes(labels)); err != nil {
		return err
	}
	shares, err := ParseFractions(o.Split)
	if err != nil {
		return err
	}
	return w.Splits(shares.Split(Labelled(classes), o.Seed))
}

// labelLinks returns the labels of the training, validation and test links of s. It computes the
// label of a link from the classes of the two vertices that the link joins.
func (o GenerateOptions) labelLinks(s *graph.LinkSplit, classes []int32) (labels [][]byte) {
	for _, list := range s.Lists() {
		var of []byte
		for _, l := range *list {
			sum := classes[l.Source] + classes[l.Target]
			word := uint32(sum) % uint32(o.Classes)
			if o.LinkLabels == PlantNumbers {
				word = math.Float32bits(float32(sum))
			}
			of = binary.LittleEndian.AppendUint32(of, word)
		}
		labels = append(labels, of)
	}
	return labels
}

// If links are the task, takeLinks takes edges out of g and makes them the links of s. It returns
// the weights of the edges that remain in g.
func (o GenerateOptions) takeLinks(g *graph.CSC, weights []float32, s *graph.LinkSplit) []float32 {
	if o.SplitLinks != "" {
		shares, _ := ParseFractions(o.SplitLinks) // Resolve has checked them
		*s = SplitLinks(g, shares, o.Seed, true)
		weights = g.DropEdges(weights, Judged(s))
	}
	return weights
}

// drawer fills in the class of every vertex. It returns a function that draws the edges, and one
// that frees the memory; the latter may be called twice.
func (o GenerateOptions) drawer(classes []int32) (draw func(*graph.Builder, span), free func()) {
	if o.Kind == RMAT {
		o.drawClasses(classes)
		return o.drawRMAT, func() {}
	}
	m := newBlockModel(o)
	m.fillClasses(classes)
	return m.drawEdges, sync.OnceFunc(m.free)
}

// span is a range of vertices, first to end-1, whose edges are made together.
type span struct {
	first, end int
	all        bool // the range holds all vertices
}

func (s span) has(v graph.VertexID) bool { return s.all || int(v) >= s.first && int(v) < s.end }

// spans cuts the vertices into o.ranges ranges, so that the edges of each range fit in memory. All
// edges are drawn again for each range.
func (o GenerateOptions) spans() []span {
	ranges := max(1, o.ranges)
	spans := make([]span, ranges)
	for i := range spans {
		spans[i] = span{i * o.Vertices / ranges, (i + 1) * o.Vertices / ranges, ranges == 1}
	}
	return spans
}

// edgeWeights returns the weights of the edges in rows. Each pair of vertices has a random stream
// of its own, from which its weight is drawn. The argument `rows` has the in-edges of consecutive
// vertices, and first is the first of these vertices.
func (o GenerateOptions) edgeWeights(rows *graph.CSC, first int) []float32 {
	weights := mem.Make[float32](len(rows.Indices))
	for row := range rows.NumVertices() {
		v := graph.VertexID(first + row)
		for e := rows.Indptr[row]; e < rows.Indptr[row+1]; e++ {
			u := rows.Indices[e]
			s := newStream(o.Seed, keyWeight, uint64(min(u, v)), uint64(max(u, v)))
			weights[e] = float32(s.next()>>40) * 0x1p-24
		}
	}
	return weights
}

// classShares returns the share of the vertices that each class gets. The share of the class of
// rank r (1 is the largest class) is proportional to 1/r^Skew.
func (o GenerateOptions) classShares() []float64 {
	share, total := make([]float64, o.Classes), 0.0
	for c := range share {
		share[c] = math.Pow(float64(c+1), -o.Skew)
		total += share[c]
	}
	for c := range share {
		share[c] /= total
	}
	return share
}

// hideLabels keeps the labels of a random share of the vertices (Labelled), and removes all others.
func (o GenerateOptions) hideLabels(classes []int32) {
	if o.Labelled == 1 {
		return
	}
	mem.Pieces(len(classes), 2048, func(_, lo, hi int) {
		for v := lo; v < hi; v++ {
			s := newStream(o.Seed, keyLabelled, uint64(v))
			if s.float() >= o.Labelled {
				classes[v] = -1
			}
		}
	})
}
