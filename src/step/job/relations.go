package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// NamedFanouts are the fanouts, seed hop first, of a relation given by name.
type NamedFanouts struct {
	Name    string
	Fanouts []int
}

// ParseRelationFanouts reads "writes=5,3 paper,cites,paper=10,5", for a model with the given number
// of layers. It does not check whether the graph has the relations.
func ParseRelationFanouts(text string, layers int) (all []NamedFanouts, err error) {
	for _, field := range strings.Fields(text) {
		name, list, _ := strings.Cut(field, "=")
		own := make([]int, 0, layers)
		for _, word := range strings.Split(list, ",") {
			f, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("%q: want NAME=FANOUT,FANOUT,..., seed hop first", field)
			}
			if f < 1 && f != sample.All || f > graph.MaxVertices {
				return nil, fmt.Errorf("%q: fanout %d; it must be 1 to %d, or %d for all "+
					"neighbours", field, f, graph.MaxVertices, sample.All)
			}
			own = append(own, f)
		}
		if len(own) != layers {
			return nil, fmt.Errorf("%q has %d fanouts, but %d layers need one fanout each",
				field, len(own), layers)
		}
		all = append(all, NamedFanouts{name, own})
	}
	return all, nil
}

// relationFanouts returns the fanouts of each relation: those in text, otherwise fanouts. A
// relation may be named without its types if its name is unique.
func relationFanouts(text string, fanouts []int, s *graph.Schema) ([][]int, error) {
	if !s.Typed() {
		return nil, fmt.Errorf("%q names relations, but the graph has none; leave it out", text)
	}
	named, err := ParseRelationFanouts(text, len(fanouts))
	if err != nil {
		return nil, err
	}
	n := s.NumRelations()
	all, given := slices.Repeat([][]int{fanouts}, n), make([]bool, n)
	for _, n := range named {
		r, err := s.Relation(n.Name)
		if err != nil {
			return nil, err
		}
		if given[r] {
			return nil, fmt.Errorf("%q is given twice", s.Relations[r])
		}
		all[r], given[r] = n.Fanouts, true
	}
	return all, nil
}
