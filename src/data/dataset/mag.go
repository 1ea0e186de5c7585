package dataset

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/topology/graph"
)

// The graph of papers, authors, institutions and fields of study has the proportions of OGB-MAG (Hu
// et al., Open Graph Benchmark, NeurIPS 2020). Every relation has a reverse. A paper's class is a
// pair: the group of its authors and the group of its fields. So the neighbours along one relation
// show only half of that pair. As in other generated graphs, the features of a paper are often
// those of another class (decoys).
const (
	magAuthors      = 1134649.0 / 736389 // authors per paper
	magInstitutions = 8740.0 / 736389
	magFields       = 59965.0 / 736389
	magWrites       = 7145660.0 / 736389 // (paper, author) edges per paper
	magTopics       = 7505078.0 / 736389
	magCites        = 5416271.0 / 736389
)

// Sizes of the graph per paper. magEdges is the number of edges, with their reverses, before
// repeats are dropped. magColumns is the number of graph.Columns, one for each vertex and each
// relation that leads to its type: four for the paper itself, two for each of its authors, and one
// for each institution and field.
const (
	magEdges   = 2 * (magAuthors + magWrites + magTopics + magCites)
	magColumns = 4 + 2*magAuthors + magInstitutions + magFields
)

// The probability that a citation stays within the class of the citing paper is magCitesOwn times
// Homophily.
const magCitesOwn = 0.3

// magGroups returns the number of groups of fields. The number of groups of authors is the same or
// smaller.
func (o GenerateOptions) magGroups() int {
	return int(math.Ceil(math.Sqrt(float64(max(0, o.Classes)))))
}

// magCounts returns the numbers of papers, authors, institutions and fields.
func (o GenerateOptions) magCounts() []int64 {
	papers, groups := o.Vertices, o.magGroups()
	atLeast := func(share float64, least int) int64 {
		return int64(max(least, int(share*float64(papers))))
	}
	return []int64{int64(papers), atLeast(magAuthors, groups), atLeast(magInstitutions, 1),
		atLeast(magFields, groups)}
}

// magFaults returns the errors in the options of a graph of papers, before anything is drawn.
func (o GenerateOptions) magFaults() error {
	var faults []error
	for _, f := range []struct {
		bad bool
		why string
	}{
		{o.Degree != 0, "the degree is fixed, at about 55 edges a paper: leave --degree out"},
		{o.EdgeWeights, "its edges have no weights: leave --edge-weights out"},
		{o.SplitLinks != "", "links cannot be its task: leave out --split-links, which is for " +
			"graphs without vertex types"},
		{o.FeatureType == Int8,
			fmt.Sprintf("%s features of graphs with vertex types are not supported; use %s or %s",
				Int8, Float32, Float16)},
		{magColumns*float64(o.Vertices) > graph.MaxVertices, fmt.Sprintf("at most %.0f papers are "+
			"supported", math.Floor(graph.MaxVertices/magColumns))},
	} {
		if f.bad {
			faults = append(faults, fmt.Errorf("kind %s: %s", MAG, f.why))
		}
	}
	return errors.Join(faults...)
}

// writeMAG writes a graph of o.Vertices papers.
func (o GenerateOptions) writeMAG(w *Writer, classes []int32) error {
	o.drawClasses(classes)
	papers := o.Vertices
	groups, counts := o.magGroups(), o.magCounts()
	w.Meta.Schema = graph.Schema{Types: []string{"paper", "author", "institution",
		"field_of_study"}}
	w.Meta.LabelType, w.Meta.Features = "paper", 0
	of := func(source, name, target string) TypedEdges {
		return TypedEdges{Relation: graph.Relation{Source: source, Name: name, Target: target}}
	}
	edges := []TypedEdges{of("author", "affiliated_with", "institution"),
		of("author", "writes", "paper"), of("paper", "cites", "paper"),
		of("paper", "has_topic", "field_of_study")}
	for a := range counts[1] {
		s := newStream(o.Seed, keyEdge, 0, uint64(a))
		edges[0].Sources = append(edges[0].Sources, int32(a))
		edges[0].Targets = append(edges[0].Targets, int32(s.intn(int(counts[2]))))
	}
	same, first := graph.Members(classes, o.Classes)
	for p, class := range classes {
		s := newStream(o.Seed, keyEdge, 1, uint64(p))
		for range s.about(magWrites) {
			edges[1].Sources = append(edges[1].Sources,
				o.member(&s, int(class)/groups, groups, counts[1]))
			edges[1].Targets = append(edges[1].Targets, int32(p))
		}
		for range s.about(magTopics) {
			edges[3].Sources = append(edges[3].Sources, int32(p))
			edges[3].Targets = append(edges[3].Targets,
				o.member(&s, int(class)%groups, groups, counts[3]))
		}
		for range s.about(magCites) {
			cited := int32(s.intn(papers))
			if of := same[first[class]:first[class+1]]; s.float() < magCitesOwn*o.Homophily {
				cited = of[s.intn(len(of))]
			}
			edges[2].Sources = append(edges[2].Sources, int32(p))
			edges[2].Targets = append(edges[2].Targets, cited)
		}
	}
	report, err := w.TypedTopology(counts, reversed(edges), graph.CleanOptions{})
	if err != nil {
		return err
	}
	w.Meta.Provenance.Cleaning = &report
	rows, err := w.TypeFeatures(0, o.Features, o.FeatureType)
	if err == nil {
		err = o.drawFeatures(rows, classes)
	}
	if err != nil {
		return err
	}
	if err := rows.Close(); err != nil {
		return err
	}
	return o.writeLabels(w, classes)
}

// about returns a random whole number between half the mean and one and a half times the mean.
func (s *stream) about(mean float64) int { return int(mean/2 + s.float()*(mean+1)) }

// member draws one of n vertices. With probability Homophily it is a member of the group, where the
// first members come more often; otherwise it is any vertex. Vertex i is in group i % groups.
func (o GenerateOptions) member(s *stream, group, groups int, n int64) int32 {
	u := s.float()
	if s.float() >= o.Homophily {
		return int32(u * float64(n))
	}
	of := (int(n) - group + groups - 1) / groups
	return int32(int(u*u*float64(of))*groups + group)
}
