package infer

import (
	"fmt"
	"slices"
	"strings"

	"halognn/src/data/shard"
)

// matchFeatures reorders the weights that read features by the columns of the parts, if the model
// and the parts both have column names. It is an error if the parts have a column that the model
// was not trained on, or lack one that it was trained on. The function axes is nn.Config.InputAxes
// of a model without types.
func (m *Model) matchFeatures(s *shard.Shards, axes func() map[string]int) (note string,
	err error) {
	moved := 0
	for kind, names := range s.FeatureNames() {
		trained := m.Features[kind]
		if trained == nil || slices.Equal(trained, names) {
			continue
		}
		order, err := orderOf(trained, names)
		if err != nil {
			of := ""
			if kind != "" {
				of = " of type " + kind
			}
			return "", fmt.Errorf("%s: feature columns%s: %w; give parts with the columns that "+
				"the run %s was "+
				"trained on, in any order", s.Dir, of, err, m.Run)
		}
		of := map[string]int{"project." + kind + ".weight": 1}
		if kind == "" {
			of = axes()
		}
		for i := range m.Weights {
			if axis, reads := of[m.Weights[i].Name]; reads {
				m.Weights[i].Permute(axis, order)
			}
		}
		moved += len(names)
	}
	if moved > 0 {
		note = fmt.Sprintf("%d feature columns of %s are in another order than those of the run "+
			"%s, so they are matched by their names", moved, s.Dir, m.Run)
	}
	return note, nil
}

// orderOf returns, for each name in names, its position in trained. Both lists must have the same
// names.
func orderOf(trained, names []string) ([]int, error) {
	place := make(map[string]int, len(trained))
	for i, name := range trained {
		place[name] = i
	}
	order := make([]int, len(names))
	var unknown []string
	for i, name := range names {
		at, known := place[name]
		if delete(place, name); !known {
			unknown = append(unknown, name)
		}
		order[i] = at
	}
	var lacking []string
	for _, name := range trained {
		if _, left := place[name]; left {
			lacking = append(lacking, name)
		}
	}
	list := func(names []string) string {
		const most = 5
		text := strings.Join(names[:min(most, len(names))], ", ")
		if n := len(names) - most; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		return text
	}
	switch {
	case len(unknown) > 0 && len(lacking) > 0:
		return nil, fmt.Errorf("%s missing, and %s not known to the model", list(lacking),
			list(unknown))
	case len(unknown) > 0:
		return nil, fmt.Errorf("%s not known to the model", list(unknown))
	case len(lacking) > 0:
		return nil, fmt.Errorf("%s missing", list(lacking))
	}
	return order, nil
}
