package dataset

import (
	"fmt"
	"path/filepath"
	"strings"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

const ogbCounts = "num-node-dict.csv"

func ogbRaw(in string) string {
	if raw := filepath.Join(in, "raw"); exists(raw) {
		return raw
	}
	return in
}

func hasTypedOGB(o *ImportOptions) bool { return either(ogbRaw(o.In), ogbCounts) != "" }

// readOGB reads the raw folder of a heterogeneous OGB node property data set, such as ogbn-mag:
//
//	raw/num-node-dict.csv.gz                           the types, and below them their vertices
//	raw/triplet-type-list.csv.gz                       source type, relation, target type
//	raw/relations/SOURCE___NAME___TARGET/edge.csv.gz   u,v
//	raw/node-feat/TYPE/node-feat.csv.gz                one row a vertex
//	raw/node-label/TYPE/node-label.csv.gz
//	split/NAME/TYPE/{train,valid,test}.csv.gz          one vertex id a row
func (g *graphSource) readOGB() error {
	raw := ogbRaw(g.options.In)
	if err := g.readOGBTypes(either(raw, ogbCounts)); err != nil {
		return err
	}
	path := either(raw, "triplet-type-list.csv")
	if path == "" {
		return fmt.Errorf("%s: triplet-type-list.csv.gz, which names the relations, is missing; "+
			"fetch the data again", raw)
	}
	return eachRow(path, table.Comma, func(r *table.Reader) error {
		words := strings.Split(string(r.Row()), ",")
		if len(words) != 3 {
			return r.Errorf("%w: want the source type, the relation and the target type", ErrValue)
		}
		e, err := g.relation(graph.Relation{Source: words[0], Name: words[1], Target: words[2]},
			path)
		if err != nil {
			return err
		}
		dir := filepath.Join(raw, "relations", strings.Join(words, "___"))
		edges := either(dir, "edge.csv")
		if edges == "" {
			return fmt.Errorf("%s: edge.csv.gz is missing; fetch the data again", dir)
		}
		e.reads(dir, filepath.Base(edges), asEdges, "")
		// edge_reltype repeats the relation's number for every edge
		e.unreadOGB(dir, []string{"edge", "num-edge-list", "edge_reltype"})
		return readPairs(e, edges)
	})
}

// readOGBTypes reads the vertex types, and the features, labels and split of each type.
func (g *graphSource) readOGBTypes(path string) error {
	var names []string
	var counts []int64
	if err := eachRow(path, table.Comma, func(r *table.Reader) error {
		switch {
		case names == nil:
			names = strings.Split(string(r.Row()), ",")
			return nil
		case counts != nil:
			return r.Errorf("this row is a second graph, but a node property data set is one " +
				"graph; import such a data set")
		}
		counts = make([]int64, len(names))
		return r.Ints(counts)
	}); err != nil {
		return err
	}
	if counts == nil {
		return fmt.Errorf("%s: %w: the file must have two rows, the names of the types and the "+
			"number of vertices of each type", path, ErrValue)
	}
	raw := filepath.Dir(path)
	for i, name := range names {
		s := g.addType(name)
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
		s.unreadOGB(filepath.Join(raw, "node-feat", name), []string{"node-feat"})
		s.unreadOGB(filepath.Join(raw, "node-label", name), []string{"node-label"})
		if err == nil && s.options.Split == "" {
			err = s.findSplit("split/*/" + name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
