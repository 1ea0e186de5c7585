package dataset

import (
	"fmt"
	"path/filepath"
	"strings"

	"halognn/src/dataset/table"
	"halognn/src/graph"
)

const ogbCounts = "num-node-dict.csv"

func ogbRaw(in string) string {
	if raw := filepath.Join(in, "raw"); exists(raw) {
		return raw
	}
	return in
}

func hasTypedOGB(in string) bool { return either(ogbRaw(in), ogbCounts) != "" }

// readOGB reads the raw folder of a heterogeneous OGB node property data set, such as ogbn-mag.
//
//	raw/num-node-dict.csv.gz                           the types, and below them their vertices
//	raw/triplet-type-list.csv.gz                       source type, relation, target type
//	raw/relations/SOURCE___NAME___TARGET/edge.csv.gz   u,v
//	raw/node-feat/TYPE/node-feat.csv.gz                one row a vertex
//	raw/node-label/TYPE/node-label.csv.gz
//	split/NAME/TYPE/{train,valid,test}.csv.gz          one vertex id a row
func (t *typedSource) readOGB(o ImportOptions) error {
	raw := ogbRaw(o.In)
	if err := t.readOGBTypes(o, either(raw, ogbCounts)); err != nil {
		return err
	}
	path := either(raw, "triplet-type-list.csv")
	if path == "" {
		return fmt.Errorf("%s: triplet-type-list.csv.gz, which names the relations, is missing; fetch "+
			"the data again", raw)
	}
	return eachRow(path, table.Comma, func(r *table.Reader) error {
		words := strings.Split(string(r.Row()), ",")
		if len(words) != 3 {
			return r.Errorf("%w: want the source type, the relation and the target type", ErrValue)
		}
		e := TypedEdges{Relation: graph.Relation{Source: words[0], Name: words[1], Target: words[2]}}
		from, to, err := t.typesOf(e.Relation, path)
		if err != nil {
			return err
		}
		dir := filepath.Join(raw, "relations", strings.Join(words, "___"))
		edges := either(dir, "edge.csv")
		if edges == "" {
			return fmt.Errorf("%s: edge.csv.gz is missing; fetch the data again", dir)
		}
		var ends [2]int64
		if err := eachRow(edges, table.Comma, func(r *table.Reader) error {
			if err := r.Ints(ends[:]); err != nil {
				return err
			}
			for i, s := range []*source{from, to} {
				if ends[i] < 0 || ends[i] >= int64(s.vertices) {
					return r.Errorf("vertex %d: %w: there are %d of type %s", ends[i], graph.ErrVertexRange,
						s.vertices, words[2*i])
				}
			}
			e.Sources, e.Targets = append(e.Sources, int32(ends[0])), append(e.Targets, int32(ends[1]))
			return nil
		}); err != nil {
			return err
		}
		t.reading = append(t.reading, Reading{Of: filepath.Base(dir), Name: filepath.Base(edges), As: asEdges})
		t.edges = append(t.edges, e)
		return nil
	})
}

// readOGBTypes reads the types, and the features, labels and split of each.
func (t *typedSource) readOGBTypes(o ImportOptions, path string) error {
	var names []string
	var counts []int64
	if err := eachRow(path, table.Comma, func(r *table.Reader) error {
		switch {
		case names == nil:
			names = strings.Split(string(r.Row()), ",")
			return nil
		case counts != nil:
			return r.Errorf("a second graph; want a node property data set, which is one graph")
		}
		counts = make([]int64, len(names))
		return r.Ints(counts)
	}); err != nil {
		return err
	}
	if counts == nil {
		return fmt.Errorf("%s: %w: want two rows: the names of the types, and how many vertices each has", path, ErrValue)
	}
	raw := filepath.Dir(path)
	for i, name := range names {
		s := t.add(name, o)
		features := either(filepath.Join(raw, "node-feat", name), "node-feat.csv")
		labels := either(filepath.Join(raw, "node-label", name), "node-label.csv")
		for _, rows := range []string{features, labels} {
			if err := haveRows(rows, counts[i]); err != nil {
				return err
			}
		}
		err := s.setVertices(counts[i], path)
		if err == nil && features != "" {
			err = setTableFeatures(s, features)
		}
		if err == nil && labels != "" {
			err = readTableLabels(s, labels)
		}
		if features != "" {
			s.reads(name, filepath.Base(features), asFeature, "")
		}
		if labels != "" {
			s.reads(name, filepath.Base(labels), asLabel, "")
		}
		if err == nil && o.Split == "" {
			err = s.findSplit("split/*/" + name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
