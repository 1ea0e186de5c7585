package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// nameClasses sets the class of every vertex from its label, a text. Some texts mean that a vertex
// has no label (noLabel). If labels are the integers 0 to C-1, these are the classes. Other
// integers are numbered in ascending order, and words in byte order; classNames keeps the labels.
func (s *source) nameClasses(labels []string) error {
	if len(labels) != s.vertices {
		return fmt.Errorf("there are %d labels, but %d vertices need one label each",
			len(labels), s.vertices)
	}
	class, labelled, integers, err := s.distinctLabels(labels)
	if err != nil {
		return err
	}
	names := slices.SortedFunc(maps.Keys(class), func(a, b string) int {
		if integers {
			x, _ := strconv.ParseInt(a, 10, 64)
			y, _ := strconv.ParseInt(b, 10, 64)
			return cmp.Compare(x, y)
		}
		return strings.Compare(a, b)
	})
	s.tellDoubtful(labels, class)
	s.tellJoined(names, class)
	s.tellCodes(names, class)
	if err := s.setNames(names, labelled, integers); err != nil {
		return err
	}
	for i, name := range names {
		class[name] = i
	}
	for v, y := range labels {
		c, ok := class[strings.TrimSpace(y)]
		if !ok {
			c = -1
		}
		s.classes = max(s.classes, len(names))
		s.putLabel(v, c)
	}
	return nil
}

// doubtful are words that may name a class, or may mean that there is no label.
var doubtful = []string{"unknown", "?", "-", "\\n", "n.a.", "missing", "unlabeled", "unlabelled",
	"undefined", "unclassified", "not available", "no label"}

// tellDoubtful notes classes whose name may mean that there is no label.
func (s *source) tellDoubtful(labels []string, class map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(class)) {
		if s.options.NoLabel != nil || !slices.Contains(doubtful, strings.ToLower(name)) {
			continue
		}
		n := 0
		for _, y := range labels {
			if strings.TrimSpace(y) == name {
				n++
			}
		}
		s.note("%d vertices have the class %q, which is learnt like the others; if it means that "+
			"a vertex has no label, give --no-label %q", n, name, name)
	}
}

// tellJoined notes a class whose name looks like several class names joined by commas, semicolons
// or bars.
func (s *source) tellJoined(names []string, class map[string]int) {
	for _, name := range names {
		at := strings.IndexAny(name, ";|,")
		if at < 0 {
			continue
		}
		parts := strings.Split(name, name[at:at+1])
		if !slices.ContainsFunc(parts, func(p string) bool {
			_, is := class[strings.TrimSpace(p)]
			return !is
		}) {
			s.note("class %q seems to be several labels, but is taken as one class. If vertices "+
				"have several labels, make a column of 0 and 1 for each label, in pandas by "+
				"df[column].str.get_dummies(%q)", name, name[at:at+1])
			return
		}
	}
}

// setNames keeps the names of the classes, in order, unless they are the class numbers. It notes
// what is unusual about them.
func (s *source) setNames(names []string, labelled int, integers bool) error {
	none := s.tellNone()
	if len(names) > 100 && 2*len(names) > labelled {
		return fmt.Errorf("%d different labels, such as %.40q, on %d labelled vertices: %w: "+
			"these are ids or measurements, not classes; choose other labels",
			len(names), names[0], labelled, ErrValue)
	}
	if n := len(names); n > 0 && !(integers && names[0] == "0" && names[n-1] == strconv.Itoa(n-1)) {
		s.classNames = names
		_, low := strconv.ParseInt(names[0], 10, 32)
		_, high := strconv.ParseInt(names[n-1], 10, 32)
		switch {
		case integers && (low != nil || high != nil):
			s.note("classes %s of the source are numbered 0 to %d here; arrays of predictions "+
				"have these new numbers, because the source's numbers need more than 32 bits",
				few(names), n-1)
		case integers && n == 1:
			s.note("class %s of the source is numbered 0 here; predictions have the source's "+
				"number", names[0])
		case integers:
			s.note("classes %s of the source are numbered 0 to %d here; predictions have the "+
				"source's numbers", few(names), n-1)
		}
	}
	switch n := len(names); {
	case n == 1:
		cure := ""
		if none != "" {
			cure = "; --no-label '' reads these as classes too: " + none
		}
		s.note("all labels are the one class %q, so there is nothing to learn%s", names[0], cure)
	case n > 3 && 2*n > labelled:
		s.note("there is a class for almost every vertex: %d classes for %d labelled vertices; "+
			"check that labels are not ids", n,
			labelled)
	}
	return nil
}

// few joins words by commas. If there are more than 6, it gives only the first three and the last.
func few(words []string) string {
	if len(words) > 6 {
		words = slices.Concat(words[:3], []string{"..."}, words[len(words)-1:])
	}
	return strings.Join(words, ", ")
}

// labelError is an error about the label of a vertex. It names the vertex by its number, which for
// an array is the row. Readers of tables replace the number by line, column and id (atLine).
type labelError struct {
	vertex, column int // label column of a vertex with several labels, or ofOne
	error
}

// ofOne in place of a column number means that there is only one label column.
const ofOne = -1

func (e *labelError) Error() string {
	if e.column == ofOne {
		return fmt.Sprintf("vertex %d %v", e.vertex, e.error)
	}
	return fmt.Sprintf("vertex %d, column %d, %v", e.vertex, e.column, e.error)
}

func (e *labelError) Unwrap() error { return e.error }

// badLabel returns an error about the label of vertex v in a label column.
func badLabel(v, column int, format string, args ...any) error {
	return &labelError{v, column, fmt.Errorf(format, args...)}
}

// atLine rewrites an error about a label so that it names the table's line, the column and the
// vertex id. The function line finds the line of a vertex.
func (s *source) atLine(err error, path string, line func(v int) int,
	column func(i int) string) error {
	var of *labelError
	if !errors.As(err, &of) {
		return fmt.Errorf("%s: column %s: %w", path, column(0), err)
	}
	return fmt.Errorf("%s: line %d: column %s: vertex %.60q %w", path, line(of.vertex),
		column(max(0, of.column)), idOf(s, graph.VertexID(of.vertex)), of.error)
}

// badClass returns an error for a label y of vertex v that is no class number and does not mean "no
// label" either.
func badClass(v int, y string) error {
	return badLabel(v, ofOne, "has label %s: %w: want a class number from 0 on, or -1, -100 or "+
		"nan for none", y, ErrValue)
}

// noClasses are integers that mean that there is no label; PyTorch's losses ignore -100.
var noClasses = []int{-1, -100}

// noLabel reports whether a text means that a vertex has no label: an empty text, a usual word for
// it, or one of noClasses. If the option NoLabel lists words, only these and the empty text mean
// it.
func (in *importer) noLabel(y string) bool {
	if words := in.options.NoLabel; words != nil {
		return y == "" || slices.ContainsFunc(words,
			func(w string) bool { return strings.EqualFold(w, y) })
	}
	return table.Missing(y)
}

// noClass reports whether a number means that a vertex has no label, as noLabel does for texts. NaN
// always means that.
func (in *importer) noClass(y float64) bool {
	if y != math.Trunc(y) || in.options.NoLabel == nil {
		return math.IsNaN(y) || y == math.Trunc(y) && slices.Contains(noClasses, int(y))
	}
	return in.noLabel(strconv.FormatFloat(y, 'f', -1, 64))
}

// sawNone counts how often the word y meant that there is no label, for the note of tellNone. Empty
// fields are not counted.
func (s *source) sawNone(y string) {
	if y == "" {
		return
	}
	if s.none == nil {
		s.none = map[string]int{}
	}
	s.none[y]++
}

// tellNone notes which words were taken to mean that there is no label, and returns them.
func (s *source) tellNone() string {
	var words []string
	for _, y := range slices.Sorted(maps.Keys(s.none)) {
		words = append(words, fmt.Sprintf("%q (%d)", y, s.none[y]))
	}
	if s.none = nil; words == nil {
		return ""
	}
	s.note("the labels %s are taken to mean that a vertex has no label; --no-label WORDS chooses "+
		"which words do", few(words))
	return few(words)
}

// numberedClasses collects labels that are given as numbers, from any range. For each vertex,
// labels has the index of the vertex's label in the slice numbers, or -1 if it has no label.
type numberedClasses struct {
	labels   []int32
	numbers  []int64 // the distinct labels, in the order of the first vertex that has each
	at       map[int64]int32
	labelled int
}

// set records the label y of vertex v.
func (c *numberedClasses) set(s *source, v int, y float64) error {
	c.labels[v] = -1
	switch {
	case s.noClass(y):
		s.sawNone(strings.ToLower(strconv.FormatFloat(y, 'f', -1, 64)))
		return nil
	case y != math.Trunc(y) && !math.IsInf(y, 0):
		return badLabel(v, ofOne, "has label %g: %w: want a class number; "+cureNumbers, y,
			ErrValue)
	case y < 0 && s.options.NoLabel == nil || math.Abs(y) >= 1<<53:
		return badClass(v, strconv.FormatFloat(y, 'g', -1, 64))
	}
	at, known := c.at[int64(y)]
	if !known {
		if c.at == nil {
			c.at = map[int64]int32{}
		}
		at = int32(len(c.numbers))
		c.at[int64(y)] = at
		c.numbers = append(c.numbers, int64(y))
	}
	c.labels[v] = at
	c.labelled++
	return nil
}

// takeClasses numbers the collected classes in ascending order of their numbers.
func (s *source) takeClasses(c *numberedClasses) error {
	sorted := slices.Sorted(slices.Values(c.numbers))
	names, class := make([]string, len(sorted)), make([]int32, len(sorted))
	for i, number := range sorted {
		names[i], class[c.at[number]] = strconv.FormatInt(number, 10), int32(i)
	}
	s.classes = max(s.classes, len(names))
	for v, at := range c.labels {
		if at >= 0 {
			c.labels[v] = class[at]
		}
	}
	return s.setNames(names, c.labelled, true)
}

// distinctLabels collects the distinct labels. The result integers says whether all labels are
// integers. For a number that is no integer, distinctLabels returns an error.
func (s *source) distinctLabels(
	labels []string,
) (class map[string]int, labelled int, integers bool, err error) {
	class, integers = map[string]int{}, true
	numbers, codes, fraction, at := true, false, "", 0
	none := map[string]int{}
	for v, y := range labels {
		y = strings.TrimSpace(y)
		if s.noLabel(y) {
			none[y]++
			continue
		}
		labelled++
		if _, known := class[y]; known {
			continue
		}
		class[y] = 0
		if _, ok := integer(y); ok {
			continue
		}
		integers = false
		x, ok := table.ParseFloat([]byte(y))
		codes = codes || uncoded(y) != y
		numbers = numbers && ok
		if ok && fraction == "" && x != math.Trunc(x) {
			fraction, at = y, v
		}
	}
	if numbers && !integers && !codes {
		if fraction == "" { // labels such as 1.0 and 2.0 are classes that were written with a point
			return s.wholeNumbers(labels)
		}
		return nil, 0, false, badLabel(at, ofOne, "has label %s: %w: want a class; "+cureNumbers,
			fraction, ErrValue)
	}
	delete(none, "")
	if numbers && s.options.NoLabel == nil {
		for v, y := range labels {
			y = strings.TrimSpace(y)
			x, is := table.ParseFloat([]byte(y))
			if _, either := class[y]; !is || !either && none[y] == 0 {
				continue
			}
			switch {
			case x == math.Trunc(x) && slices.Contains(noClasses, int(x)):
				delete(class, y)
				none[y]++
				labelled--
			case x < 0:
				return nil, 0, false, badClass(v, y)
			}
		}
	}
	s.none = none
	return class, labelled, integers, nil
}

// uncoded returns a number without its leading zeros: 1 for 01. A label such as 01 is kept as a
// word, because as the number 1 it would lose a digit, so callers use uncoded only to recognize
// such labels.
func uncoded(y string) string {
	for len(y) > 1 && y[0] == '0' && y[1] >= '0' && y[1] <= '9' {
		y = y[1:]
	}
	return y
}

// tellCodes notes two classes such as 01 and 1, which may be meant as one.
func (s *source) tellCodes(names []string, class map[string]int) {
	for _, name := range names {
		if plain := uncoded(name); plain != name {
			if _, both := class[plain]; both {
				s.note("labels %q and %q are two classes, because one has a leading zero; write "+
					"them alike if they are the same class", name, plain)
				return
			}
		}
	}
}

// wholeNumbers rewrites labels such as 1.0 as integers, and collects the distinct ones.
func (s *source) wholeNumbers(labels []string) (class map[string]int, labelled int, integers bool,
	err error) {
	for v, y := range labels {
		if x, ok := table.ParseFloat([]byte(strings.TrimSpace(y))); ok && !math.IsNaN(x) {
			if math.Abs(x) >= 1<<53 {
				return nil, 0, false, badClass(v, y)
			}
			labels[v] = strconv.FormatInt(int64(x), 10)
		}
	}
	return s.distinctLabels(labels)
}

// finishMarks checks that each vertex has a value in all label columns or in none. It notes labels
// that may be meant as classes.
func (s *source) finishMarks() error {
	one, none, lacking := 0, 0, 0
	for v := range s.vertices {
		sum := 0
		for _, y := range s.marks[v*s.classes:][:s.classes] {
			sum += int(y)
		}
		switch n := s.unmarked; {
		case n != nil && n[v] > 0 && int(n[v]) < s.classes:
			return badLabel(v, ofOne, "lacks %d of %d labels: %w; give it all labels, 0 or 1 "+
				"each, or none (-1 counts as none)", n[v], s.classes, ErrValue)
		case n != nil && n[v] > 0:
			lacking++
		case sum == 0:
			none++
		case sum == 1:
			one++
		}
	}
	if lacking > 0 {
		s.note("%d vertices have no label, so they are in no list of the split", lacking)
	}
	if one > 0 && one+none+lacking == s.vertices && s.classes > 1 {
		s.note("labels seem to be one-hot: no vertex has more than one of the %d labels. They "+
			"are taken as several labels a vertex; if each vertex has one class, give class "+
			"numbers instead, as numpy.argmax(y, axis=1) returns them", s.classes)
	}
	return nil
}
