package dataset

import (
	"fmt"
	"strconv"
	"strings"

	"halognn/src/graph"
)

// Fractions are the shares of train, validation and test vertices among the labelled ones.
type Fractions [3]float64

// ParseFractions reads shares in percent, such as "60/20/20". They must be positive or zero and not
// exceed 100 together.
func ParseFractions(s string) (Fractions, error) {
	var f Fractions
	words := strings.Split(s, "/")
	if len(words) != len(f) {
		return f, fmt.Errorf("split %q: %w: expected three shares in percent, such as 60/20/20", s,
			ErrValue)
	}
	total := 0.0
	for i, word := range words {
		x, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(x >= 0 && x <= 100) {
			return f, fmt.Errorf("split %q: %w: %q is not a percentage", s, ErrValue, word)
		}
		f[i] = x / 100
		total += x
	}
	if total > 100+1e-9 {
		return f, fmt.Errorf("split %q: %w: the shares add up to %g percent; three shares must "+
			"add up to 100 at most, such as 60/20/20", s, ErrValue, total)
	}
	return f, nil
}

// Split shuffles the vertices, keyed by seed, and cuts the list: train and validation get their
// shares rounded down, test gets the rest if the shares add up to everything, else its share
// rounded down. The order of the result is random; vertices is not changed.
func (f Fractions) Split(vertices []graph.VertexID, seed uint64) graph.Split {
	list := append([]graph.VertexID(nil), vertices...)
	s := newStream(seed, keySplit)
	shuffle(&s, list)
	n := float64(len(list))
	const slack = 1e-9 // 0.6+0.2+0.2 is not 1
	train := int(f[0]*n + slack)
	valid := train + int(f[1]*n+slack)
	test := min(valid+int(f[2]*n+slack), len(list))
	if f[0]+f[1]+f[2] > 1-slack {
		test = len(list)
	}
	return graph.Split{Train: list[:train], Valid: list[train:valid], Test: list[valid:test]}
}

// Labelled lists the vertices that have a label, in ascending order.
func Labelled(labels []int32) []graph.VertexID {
	var list []graph.VertexID
	for v, y := range labels {
		if y >= 0 {
			list = append(list, graph.VertexID(v))
		}
	}
	return list
}
