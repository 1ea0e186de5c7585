package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"halognn/src/graph"
	"halognn/src/sample"
)

// relationFanouts returns the fanouts of each relation, seed hop first: what text says of those that it
// names, as "writes=5,3 paper,cites,paper=10,5", and fanouts of the others. A name alone must be that of
// one relation.
func relationFanouts(text string, fanouts []int, s *graph.Schema) ([][]int, error) {
	if !s.Typed() {
		return nil, fmt.Errorf("%q: the graph has no relations; leave it out", text)
	}
	all, given := slices.Repeat([][]int{fanouts}, s.NumRelations()), make([]bool, s.NumRelations())
	for _, field := range strings.Fields(text) {
		name, list, _ := strings.Cut(field, "=")
		var found []int
		for r, relation := range s.Relations {
			if relation.Name == name || relation.String() == name {
				found = append(found, r)
			}
		}
		switch {
		case len(found) == 0:
			return nil, fmt.Errorf("%q names no relation; there is %v", name, s.Relations)
		case len(found) > 1:
			return nil, fmt.Errorf("%q names several relations; give one of %v", name, s.Relations)
		case given[found[0]]:
			return nil, fmt.Errorf("%q is given twice", s.Relations[found[0]])
		}
		own := make([]int, 0, len(fanouts))
		for _, word := range strings.Split(list, ",") {
			f, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("%q: want NAME=FANOUT,FANOUT,..., seed hop first", field)
			}
			if f < 1 && f != sample.All || f > graph.MaxVertices {
				return nil, fmt.Errorf("%q: %d; a fanout is at least 1 and at most %d, or %d for all "+
					"neighbours", field, f, graph.MaxVertices, sample.All)
			}
			own = append(own, f)
		}
		if len(own) != len(fanouts) {
			return nil, fmt.Errorf("%q has %d fanouts for %d layers", field, len(own), len(fanouts))
		}
		all[found[0]], given[found[0]] = own, true
	}
	return all, nil
}
