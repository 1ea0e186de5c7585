package dataset

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset/table"
	"halognn/src/model/task"
)

// cureNumbers says what to do about labels that are numbers, not classes.
const cureNumbers = "--task regression trains a model to predict numbers; for classes cut their " +
	"range, for example with numpy.digitize or pandas.qcut"

func regression(s *source) bool { return s.options.Task == task.Regression }

// makeTargets allocates the numbers to predict, and sets all to NaN, which means that a vertex has
// none.
func makeTargets(s *source, outputs int, file string) error {
	if outputs < 1 || int64(outputs)*int64(s.vertices) > 1<<40 {
		return fmt.Errorf("%s: %d columns of numbers for %d vertices: %w: there must be at "+
			"least one column, and at most 2^40 numbers", file, outputs,
			s.vertices, ErrValue)
	}
	n := int64(s.vertices) * int64(outputs)
	if err := fits(file, fmt.Sprintf("%d numbers for each of %d vertices", outputs, s.vertices),
		4*n); err != nil {
		return err
	}
	s.classes, s.targets = outputs, mem.Make[float32](int(n))
	for i := range s.targets {
		s.targets[i] = float32(math.NaN())
	}
	return nil
}

// setTarget sets the number that output c has to predict for vertex v. NaN means that the vertex
// has none.
func setTarget(s *source, v, c int, y float64) error {
	if x := float32(y); math.IsInf(float64(x), 0) {
		if s.classes == 1 {
			c = ofOne
		}
		return badLabel(v, c, "has %g to predict: %w: the number must be a finite float32; "+
			"choose a larger unit for the numbers", y, ErrValue)
	}
	s.targets[v*s.classes+c] = float32(y)
	return nil
}

var errNoTargets = fmt.Errorf("%w: there are no labels; --task regression needs a number or "+
	"several for each vertex; name their columns with --label", ErrValue)

// checkTargets returns an error if a vertex has only some of its numbers, or if a column has the
// same number for every vertex, so that there is nothing to learn.
func checkTargets(s *source) error {
	if s.targets == nil {
		return fmt.Errorf("%s: %w", s.options.In, errNoTargets)
	}
	t := task.Find(task.Regression)
	if err := t.Check(s.truths(), s.classes); err != nil {
		return fmt.Errorf("%s: %w: %w", s.options.In, err, ErrValue)
	}
	for c := range s.classes {
		least, most := math.Inf(1), math.Inf(-1)
		for v := range s.vertices {
			if y := float64(s.targets[v*s.classes+c]); y == y {
				least, most = min(least, y), max(most, y)
			}
		}
		if least >= most {
			return fmt.Errorf("%s: %w: %s is %g for every vertex that has one: there is nothing "+
				"to learn; leave it out, or name another column", s.options.In, ErrValue,
				targetName(s, c), least)
		}
	}
	return nil
}

func targetName(s *source, c int) string {
	if c < len(s.classNames) {
		return s.classNames[c]
	}
	return fmt.Sprintf("number %d", c)
}

// readNumbers reads the numbers to predict from an array [N] or [N, C].
func readNumbers(s *source, a arraySource, key string, r *npy.Reader, cols int) error {
	if r.IsText() {
		return fmt.Errorf("%s: %w: it holds words; --task regression wants numbers", a.name(key),
			ErrValue)
	}
	if err := makeTargets(s, cols, a.name(key)); err != nil {
		return err
	}
	i := 0
	err := eachChunk(r, r.Elems(), func(part []float64) error {
		for _, y := range part {
			if err := setTarget(s, i/cols, i%cols, y); err != nil {
				return err
			}
			i++
		}
		return nil
	})
	if err == nil {
		err = checkWhole(s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.name(key), err)
	}
	return nil
}

// setTableNumbers takes columns of a node table as numbers to predict. An empty field means that
// the vertex has none.
func setTableNumbers(s *source, t *table.Named, c nodeColumns, line func(v int) int,
	columns [][]string) error {
	// this is no error yet: of several node tables, only one needs labels, and checkTargets reports
	// it if none has them
	if len(c.labels) == 0 {
		return nil
	}
	if err := makeTargets(s, len(columns), t.Path()); err != nil {
		return err
	}
	name := func(i int) string { return t.Header[c.labels[i]] }
	for i, column := range columns {
		s.classNames = append(s.classNames, name(i))
		for v, text := range column {
			y, ok := table.ParseFloat([]byte(text))
			var err error
			switch {
			case table.Missing(text):
				y = math.NaN()
			case !ok:
				err = badLabel(v, i, "is %.40q: %w: want a number, or an empty field for none%s",
					text,
					ErrValue, table.DecimalComma(text))
			}
			if err = cmp.Or(err, setTarget(s, v, i, y)); err != nil {
				return s.atLine(err, t.Path(), line, name)
			}
		}
	}
	if err := checkWhole(s); err != nil {
		return s.atLine(err, t.Path(), line, name)
	}
	return nil
}

// checkWhole returns an error for the first vertex that has only some of its numbers.
func checkWhole(s *source) error {
	for v := range s.vertices {
		row, known := s.targets[v*s.classes:][:s.classes], 0
		for _, y := range row {
			if y == y {
				known++
			}
		}
		if known > 0 && known < s.classes {
			lacks := slices.IndexFunc(row, func(y float32) bool { return y != y })
			return badLabel(v, lacks, "has no number to predict here, but has %d in other "+
				"columns: %w; give it all of them, or none", known, ErrValue)
		}
	}
	return nil
}
