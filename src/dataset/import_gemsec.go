package dataset

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// readGemsec reads a GEMSEC graph: XX_edges.csv, each edge once, and XX_genres.json, {"vertex":
// ["name", ...]}: any number of labels a vertex. Classes are the names in byte order. In is the
// directory, or the path up to the name (dir/XX) if it holds several.
func readGemsec(s *source) error {
	s.undirected = true
	prefix, err := gemsecPrefix(s.options.In)
	if err != nil {
		return err
	}
	if s.options.Name == "" && prefix == s.options.In {
		s.name = filepath.Base(prefix)
	}
	path := prefix + "_genres.json"
	class := map[string]int{}
	n := 0
	if err := eachGenres(path, func(_ string, genres []string) error {
		n++
		for _, g := range genres {
			class[g] = 0
		}
		return nil
	}); err != nil {
		return err
	}
	for g := range class {
		s.classNames = append(s.classNames, g)
	}
	slices.Sort(s.classNames)
	for i, g := range s.classNames {
		class[g] = i
	}
	if err := s.setVertices(int64(n), path); err != nil {
		return err
	}
	if err := s.makeMarks(len(class), path); err != nil {
		return err
	}
	seen := make([]bool, n)
	if err := eachGenres(path, func(key string, genres []string) error {
		v, err := vertexKey(key, n, seen)
		if err != nil {
			return err
		}
		for _, g := range genres {
			if err := s.setMark(v, class[g], 1); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return readPairs(s, prefix+"_edges.csv", 0)
}

func gemsecPrefix(in string) (string, error) {
	if exists(in + "_edges.csv") {
		return in, nil
	}
	found, _ := filepath.Glob(filepath.Join(in, "*_edges.csv")) // the pattern is sound
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s: no file XX_edges.csv is there; name the directory of a GEMSEC "+
			"data set, or its files up to XX", in)
	case 1:
		return strings.TrimSuffix(found[0], "_edges.csv"), nil
	}
	return "", fmt.Errorf("%s: %d graphs; choose one, such as --in %s", in, len(found),
		strings.TrimSuffix(found[0], "_edges.csv"))
}

func eachGenres(path string, visit func(key string, genres []string) error) error {
	var genres []string
	return eachMember(path, func(key string, d *json.Decoder) error {
		clear(genres[:cap(genres)]) // null would leave the old value
		if err := d.Decode(&genres); err != nil {
			return err
		}
		if slices.Contains(genres, "") {
			return fmt.Errorf("%w: a label without a name", ErrValue)
		}
		return visit(key, genres)
	})
}
