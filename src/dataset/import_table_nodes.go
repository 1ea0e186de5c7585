package dataset

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/dataset/table"
	"halognn/src/graph"
)

// nodeColumns are the indices of a node table's columns.
type nodeColumns struct {
	id, split        int
	labels, features []int
}

// readNodes reads ids, labels and split, and registers the features, which are read when they are
// written.
func readNodes(s *source, path string) error {
	t, err := openTable(path, s.options.Table.NoHeader)
	if err != nil {
		return err
	}
	defer t.close()
	c, err := findNodeColumns(s, t)
	if err != nil {
		return err
	}
	var ids []string
	labels := make([][]string, len(c.labels))
	p := &splitSource{
		from: "column " + t.header[max(0, c.split)] + " of " + filepath.Base(path),
		path: path,
		read: true,
	}
	s.places = make(map[string]graph.VertexID)
	for {
		row, err := t.next()
		if err != nil {
			return err
		}
		if row == nil {
			break
		}
		v := graph.VertexID(len(ids))
		id := strings.Clone(row[c.id])
		if _, twice := s.places[id]; twice {
			return t.errorf("%w: vertex %.60q comes twice; want a row for each vertex", ErrValue,
				id)
		}
		if id == "" || strings.ContainsRune(id, '\n') {
			return t.errorf("%w: vertex %.60q: want an id, on one line", ErrValue, id)
		}
		if len(ids) == graph.MaxVertices {
			return t.errorf("more than the %d vertices that are supported", graph.MaxVertices)
		}
		s.places[id] = v
		ids = append(ids, id)
		for i, k := range c.labels {
			labels[i] = append(labels[i], strings.Clone(row[k]))
		}
		if c.split >= 0 {
			text := strings.ToLower(row[c.split])
			part, ok := partNames[text]
			switch {
			case ok:
				*p.Lists()[part] = append(*p.Lists()[part], v)
			case !noLabel(text) && text != "-1" && text != "unused":
				return t.errorf("%w: column %s holds %.40q; want train, valid, test or nothing",
					ErrValue, t.header[c.split], row[c.split])
			}
		}
	}
	if err := s.setVertices(int64(len(ids)), path); err != nil {
		return err
	}
	keepIDs(s, ids)
	if c.split >= 0 {
		s.given = p
	}
	if err := setTableLabels(s, t, c, labels); err != nil {
		return err
	}
	return setColumnFeatures(s, t, c.features)
}

// nodeColumns finds the columns of a node table, and notes those that are not read.
func findNodeColumns(s *source, t *csvTable) (c nodeColumns, err error) {
	o := &s.options.Table
	for _, name := range t.header {
		if err := s.refusal(t.path+": column "+name, name); err != nil {
			return c, err
		}
	}
	if c.id, err = s.column(t, o.ID, "--id", idNames...); err != nil {
		return c, err
	}
	if c.id < 0 {
		c.id = slices.IndexFunc(t.header, func(h string) bool { return !slices.Contains(s.options.Ignore, h) })
	}
	if c.id < 0 {
		return c, t.errorf("--ignore leaves no column for the ids of vertices; ignore fewer columns")
	}
	if c.split, err = s.column(t, o.Split, "--split-column", splitNames...); err != nil {
		return c, err
	}
	if arrayFile(o.Labels) == "" {
		for _, name := range o.Labels {
			k, err := s.column(t, name, "--label")
			if err != nil {
				return c, err
			}
			c.labels = append(c.labels, k)
		}
		if k, _ := s.column(t, "", "", labelNames...); len(o.Labels) == 0 && k >= 0 && k != c.id {
			c.labels = []int{k}
		}
	}
	taken := append([]int{c.id, c.split}, c.labels...)
	switch {
	case arrayFile(o.Features) != "":
	case len(o.Features) > 0:
		for _, name := range o.Features {
			k, err := s.column(t, name, "--features")
			if err != nil {
				return c, err
			}
			if slices.Contains(taken, k) {
				return c, fmt.Errorf("%s: %w: column %q is the id, the label or the split, and "+
					"--features names it too", t.path, ErrValue, name)
			}
			c.features = append(c.features, k)
		}
	default:
		for k, name := range t.header {
			if !slices.Contains(taken, k) && !slices.Contains(s.options.Ignore, name) {
				c.features = append(c.features, k)
			}
		}
		return c, nil
	}
	for k, name := range t.header {
		if !slices.Contains(taken, k) && !slices.Contains(c.features, k) {
			s.notes = append(s.notes, "column "+name+" of "+filepath.Base(t.path)+" is not read")
		}
	}
	return c, nil
}

func setTableLabels(s *source, t *csvTable, c nodeColumns, labels [][]string) error {
	if regression(s) {
		return setTableNumbers(s, t, c, labels)
	}
	name := func(i int) string { return t.path + ": column " + t.header[c.labels[i]] }
	switch len(labels) {
	case 0:
		return nil
	case 1:
		if err := s.nameClasses(labels[0]); err != nil {
			return fmt.Errorf("%s: %w", name(0), err)
		}
		return nil
	}
	if err := s.makeMarks(len(labels), t.path); err != nil {
		return err
	}
	for i, column := range labels {
		s.classNames = append(s.classNames, t.header[c.labels[i]])
		for v, text := range column {
			y, ok := number(text)
			if !ok {
				return fmt.Errorf("%s: vertex %d is %.40q: %w: with several label columns each "+
					"must be 0 or 1", name(i), v, text, ErrValue)
			}
			if err := s.setMark(v, i, float64(y)); err != nil {
				return fmt.Errorf("%s: %w", name(i), err)
			}
		}
	}
	return nil
}

// number reads a field as a number; true and false are 1 and 0.
func number(text string) (x float32, ok bool) {
	switch text {
	case "true", "True", "TRUE":
		return 1, true
	case "false", "False", "FALSE":
		return 0, true
	}
	wide, ok := table.ParseFloat([]byte(text))
	return float32(wide), ok
}

// setColumnFeatures registers columns of a node table as features.
func setColumnFeatures(s *source, t *csvTable, columns []int) error {
	if len(columns) == 0 {
		return nil
	}
	noHeader := !t.named
	defer func() {
		for i := 0; t.named && s.features != nil && i < len(columns); i++ {
			s.features.names = append(s.features.names, t.header[columns[i]])
		}
	}()
	return s.setFeatures(t.path, len(columns), Float32, -1, func(w *RowWriter) error {
		t, err := openTable(t.path, noHeader)
		if err != nil {
			return err
		}
		defer t.close()
		values := make([]float32, len(columns))
		for v := 0; ; v++ {
			row, err := t.next()
			if err != nil {
				return err
			}
			if row == nil {
				if v != s.vertices {
					return fmt.Errorf("%d rows, but %d before; the file changed: import it again",
						v, s.vertices)
				}
				return nil
			}
			if v == s.vertices {
				return t.errorf("more than %d rows now; the file changed: import it again",
					s.vertices)
			}
			for i, k := range columns {
				x, ok := number(row[k])
				if !ok {
					return t.notANumber(k, row[k])
				}
				values[i] = x
			}
			if err := w.Check(v, values); err != nil {
				return t.errorf("%w", err)
			}
			if err := w.WriteChecked(values); err != nil {
				return err
			}
		}
	})
}

func (t *csvTable) notANumber(column int, text string) error {
	name := t.header[column]
	if noLabel(text) {
		return t.errorf("%w: column %s is empty; fill it in, for example with the column's mean, "+
			"or leave it out: --ignore %s", ErrValue, name, name)
	}
	return t.errorf("%w: column %s holds %.40q, which is not a number; name the feature columns "+
		"with --features, leave this one out with --ignore %s, or make a column of 0 and 1 for "+
		"each word", ErrValue, name, text, name)
}
