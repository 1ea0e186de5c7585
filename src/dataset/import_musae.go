package dataset

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/mem"
)

// musaeGraph is one graph of a MUSAE collection, by its files.
type musaeGraph struct {
	name, edges, features, target string
}

// twitchSplit is the inductive task on the six Twitch countries: train on three, validate on one,
// test on two.
const twitchSplit = "DE,FR,ES/RU/ENGB,PTBR"

// readMusae joins the graphs in a directory, or in its subdirectories. They are numbered in the
// order in which Split names them, else by name; the six Twitch countries have twitchSplit unless
// Split says otherwise. Feature lists and labels must mean the same in all of them.
//
// Files of the older collection lack the prefix musae_, and may be in sibling directories edges,
// features and target.
//
//	musae_XX_edges.csv      from,to                         each edge once
//	musae_XX_features.json  {"vertex": [column, ...]}       0/1; repeats are ignored
//	musae_XX_target.csv     id,...,mature,...,new_id        the vertex is new_id, or id where that is
//	                                                        missing; the label is mature, ml_target,
//	                                                        page_type or target
func readMusae(s *source) error {
	s.undirected = true
	graphs, err := findMusae(s.options.In)
	if err != nil {
		return err
	}
	orderMusae(s, graphs)
	targets := make([][]string, len(graphs))
	total := 0
	for i, g := range graphs {
		if targets[i], err = readTargets(g.target); err != nil {
			return err
		}
		s.parts = append(s.parts, graphPart{g.name, total, len(targets[i])})
		total += len(targets[i])
	}
	if err := s.setVertices(int64(total), s.options.In); err != nil {
		return err
	}
	if err := setTargets(s, graphs, targets); err != nil {
		return err
	}
	if err := setMusaeFeatures(s, graphs); err != nil {
		return err
	}
	for i, g := range graphs {
		p := s.parts[i]
		s.vertices = p.First + p.Count // an id beyond this graph must not count as one of the next
		if err := readPairs(s, g.edges, int64(p.First)); err != nil {
			return err
		}
	}
	noteParts(s)
	if s.given != nil {
		s.given, err = s.splitByGraph(twitchSplit)
	}
	return err
}

func findMusae(in string) (graphs []musaeGraph, err error) {
	patterns := []string{filepath.Join(in, "*_edges.csv"), filepath.Join(in, "*", "*_edges.csv")}
	if !isDir(in) { // one of several, by its path up to XX
		patterns = []string{in + "_edges.csv"}
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // the pattern is sound
		for _, path := range found {
			g, err := musaeFiles(path)
			if err != nil {
				return nil, err
			}
			graphs = append(graphs, g)
		}
	}
	if len(graphs) == 0 {
		return nil, fmt.Errorf("%s: no file *_edges.csv is there, nor in a directory below", in)
	}
	return graphs, nil
}

// musaeFiles finds the features and the targets that belong to a table of edges.
func musaeFiles(edges string) (musaeGraph, error) {
	dir, stem := filepath.Dir(edges), strings.TrimSuffix(filepath.Base(edges), "_edges.csv")
	g := musaeGraph{name: strings.TrimPrefix(stem, "musae_"), edges: edges}
	var err error
	g.features, err = firstFile(stem+"_features.json", dir, filepath.Join(dir, "..", "features"))
	if err != nil {
		return g, err
	}
	g.target, err = firstFile(stem+"_target.csv", dir, filepath.Join(dir, "..", "target"))
	return g, err
}

// firstFile returns the path of the file in the first directory that has it.
func firstFile(name string, dirs ...string) (string, error) {
	for _, dir := range dirs {
		if path := filepath.Join(dir, name); exists(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: no file %s is there, which belongs to the edges; a graph without "+
		"features and labels is imported by --format csv", dirs[0], name)
}

// orderMusae sorts the graphs by their position in the split, then by name, and gives the Twitch
// countries their split.
func orderMusae(s *source, graphs []musaeGraph) {
	names := func(split string) []string {
		return strings.FieldsFunc(split, func(r rune) bool { return r == ',' || r == '/' })
	}
	order := names(s.options.Split)
	twitch := names(twitchSplit)
	isTwitch := len(graphs) == len(twitch)
	for _, g := range graphs {
		isTwitch = isTwitch && slices.Contains(twitch, g.name)
	}
	if isTwitch && !slices.Contains(order, graphs[0].name) {
		order = twitch
		if s.options.Split == "" {
			s.given = &splitSource{} // filled in when the sizes are known
		}
	}
	place := func(g musaeGraph) int {
		if i := slices.Index(order, g.name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(graphs, func(a, b musaeGraph) int {
		if d := place(a) - place(b); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
}

// readTargets returns the label of every vertex as text.
func readTargets(path string) ([]string, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	id, label := slices.Index(header, "new_id"), -1
	if id < 0 {
		id = slices.Index(header, "id")
	}
	for _, name := range []string{"mature", "ml_target", "page_type", "target"} {
		if label < 0 {
			label = slices.Index(header, name)
		}
	}
	if id < 0 || label < 0 {
		return nil, fmt.Errorf("%s: columns %s; want new_id or id, and mature, ml_target, "+
			"page_type or target", path, strings.Join(header, ","))
	}
	byVertex := map[int]string{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err) // the error names the line
		}
		line, _ := r.FieldPos(id)
		v, err := strconv.Atoi(row[id])
		if err != nil || v < 0 {
			return nil, fmt.Errorf("%s: line %d: vertex %q: %w: want vertex ids from 0", path, line,
				row[id], ErrValue)
		}
		// the Twitch files repeat a few vertices, with the same label
		if y, twice := byVertex[v]; twice && y != row[label] {
			return nil, fmt.Errorf("%s: line %d: vertex %d is %q here and %q before: %w: want "+
				"one label a vertex", path, line, v, row[label], y, ErrValue)
		}
		byVertex[v] = row[label]
	}
	labels := make([]string, len(byVertex))
	for v, y := range byVertex {
		if v >= len(labels) {
			return nil, fmt.Errorf("%s: %d rows, but there is a vertex %d: %w: want a row for "+
				"each vertex", path, len(labels), v, ErrValue)
		}
		labels[v] = y
	}
	return labels, nil
}

// setTargets numbers the classes: False and True are 0 and 1, integers stay, other names are
// numbered in byte order.
func setTargets(s *source, graphs []musaeGraph, targets [][]string) error {
	class := map[string]float64{"False": 0, "True": 1}
	var names []string
	numbers := true
	for _, t := range targets {
		for _, y := range t {
			if _, known := class[y]; known {
				continue
			}
			n, err := strconv.Atoi(y)
			class[y] = float64(n)
			numbers = numbers && err == nil
			names = append(names, y)
		}
	}
	if !numbers {
		slices.Sort(names)
		for i, n := range names {
			class[n] = float64(i)
		}
		s.classNames = names
	}
	for i, t := range targets {
		for v, y := range t {
			if err := s.setLabel(s.parts[i].First+v, class[y]); err != nil {
				return fmt.Errorf("%s: %q: %w", graphs[i].target, y, err)
			}
		}
	}
	return nil
}

func setMusaeFeatures(s *source, graphs []musaeGraph) error {
	cols := 0
	var list []int
	var raw json.RawMessage
	m, err := fillSparse(s.vertices, 1<<31-1,
		func(yield func(row, col int, value float64) error) error {
			for i, g := range graphs {
				p := s.parts[i]
				seen := make([]bool, p.Count)
				if err := eachMember(g.features, func(key string, d *json.Decoder) error {
					v, err := vertexKey(key, p.Count, seen)
					if err != nil {
						return err
					}
					if err := decodeNumbers(d, &raw, &list); err != nil {
						return err
					}
					for _, c := range list {
						cols = max(cols, c+1)
						if err := yield(p.First+v, c, 1); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	m.sum = false // the lists repeat columns
	return s.setSparse(s.options.In, cols, m)
}

// noteParts adds a note with the vertex range of each joined graph.
func noteParts(s *source) {
	if len(s.parts) < 2 {
		return
	}
	for _, p := range s.parts {
		s.notes = append(s.notes,
			fmt.Sprintf("graph %s: vertices %d to %d", p.Name, p.First, p.First+p.Count-1))
	}
}
