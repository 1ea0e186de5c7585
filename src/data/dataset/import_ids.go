package dataset

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// integersOf returns the ids as integers, or nil if any is not an integer in its usual form.
func integersOf(ids []string) []int64 {
	numbers := make([]int64, len(ids))
	for i, id := range ids {
		x, ok := integer(id)
		if !ok {
			return nil
		}
		numbers[i] = x
	}
	return numbers
}

// integer reads an integer in its usual form.
func integer(id string) (int64, bool) {
	x, err := strconv.ParseInt(id, 10, 64)
	return x, err == nil && strconv.FormatInt(x, 10) == id
}

// wholeNumber returns the integer that a number such as 1.0, 1e5 or +1 stands for, as text. It
// returns "" for any other text; 01 counts as a word.
func wholeNumber(id string) string {
	x, ok := table.ParseFloat([]byte(id))
	if !strings.ContainsAny(id, ".eE+") || !ok || x != math.Trunc(x) || math.Abs(x) >= 1<<53 {
		return ""
	}
	return strconv.FormatInt(int64(x), 10)
}

// isRounded reports whether an id is a long number that was cut to a few digits, such as 1.53E+18.
func isRounded(id string) bool {
	digits, exponent, is := strings.Cut(strings.ToLower(id), "e+")
	n, number := table.ParseInt([]byte(exponent))
	_, float := table.ParseFloat([]byte(digits))
	_, fraction, point := strings.Cut(digits, ".")
	return is && number && float && point && n > 10 && int64(len(fraction)) < n
}

// oddIDs counts the ids of a table that are integers in the usual form, and the ids of four other
// kinds: whole counts numbers such as 1.0, none counts words for a missing id, rounded counts long
// numbers cut to a few digits, and other counts all else.
type oddIDs struct {
	integers           int
	whole, none, other oddID
	rounded            oddID
	wholes             []string // the integers equal to the ids that are counted in `whole`
}

// oddID counts the ids of one kind. It keeps the first of them and its line.
type oddID struct {
	id          string
	line, count int
}

// see counts an id that has not been seen before.
func (o *oddIDs) see(id string, line int) {
	if _, ok := integer(id); ok {
		o.integers++
		return
	}
	of := &o.other
	switch {
	case isRounded(id):
		of = &o.rounded
	case wholeNumber(id) != "":
		of = &o.whole
		o.wholes = append(o.wholes, wholeNumber(id))
	case table.Missing(id):
		of = &o.none
	}
	if of.count++; of.count == 1 {
		of.id, of.line = id, line
	}
}

// tell reports unusual ids. It returns an error if ids seem to name other vertices than the user
// meant. If not all ids are integers, so that all are taken as words, tell notes an id that is the
// reason. The map ids has all ids.
func (o *oddIDs) tell(s *source, path string, ids map[string]graph.VertexID) error {
	at := func(of oddID) string { return fmt.Sprintf("%s: line %d", path, of.line) }
	switch {
	case o.rounded.count > 0:
		return fmt.Errorf("%s: %w: vertex %q is in scientific notation, as spreadsheets write "+
			"long numbers, so its last digits are lost, and ids that differ in these would "+
			"become one vertex; write the column as text, or as integers, in pandas by "+
			"df[column].astype(\"int64\")",
			at(o.rounded), ErrValue, o.rounded.id)
	case slices.ContainsFunc(o.wholes, func(x string) bool { _, both := ids[x]; return both }):
		return fmt.Errorf("%s: %w: vertex %q is among ids that are integers, so %s would be "+
			"another vertex although it is the same number; write ids alike, in pandas by "+
			"df[column].astype(\"int64\")", at(o.whole),
			ErrValue, o.whole.id, wholeNumber(o.whole.id))
	case o.none.count > 0 && o.other.count == 0 && o.integers+o.whole.count > 0:
		return fmt.Errorf("%s: %w: vertex %q among ids that are numbers seems to be a missing "+
			"id; remove the row or fill it in", at(o.none), ErrValue, o.none.id)
	case o.none.count > 0:
		s.note("line %d of %s names the vertex %q, which may mean a missing id; it is taken as a "+
			"vertex",
			o.none.line, filepath.Base(path), o.none.id)
	}
	if o.integers+o.other.count == 0 && o.whole.count > 0 {
		s.note("ids are numbers with a point, such as %q on line %d of %s; they are kept as "+
			"words", o.whole.id, o.whole.line, filepath.Base(path))
	}
	odd := o.other
	if odd.count == 0 {
		odd = o.whole
	}
	if o.integers > 0 && odd.count > 0 {
		n := o.other.count + o.whole.count
		s.note("%d of %d ids are not integers, such as %q on line %d of %s, so all ids are kept "+
			"as words",
			n, n+o.integers, odd.id, odd.line, filepath.Base(path))
	}
	return nil
}

// alike looks for another way to write id. It returns the id of a vertex that is the same number as
// id. If there is none, it returns the id of a vertex that differs from id only in capitals, or "".
// Of several, it returns the first in byte order. The result number is true if the two are the same
// number.
func (s *source) alike(id string) (other string, number bool) {
	x, is := table.ParseFloat([]byte(id))
	for of := range s.places {
		same := false
		if is {
			y, also := table.ParseFloat([]byte(of))
			same = also && x == y
		}
		if !same && (number || !strings.EqualFold(of, id)) {
			continue
		}
		if same && !number || other == "" || of < other {
			other, number = of, same
		}
	}
	return other, number
}

// keepIDs keeps the ids of the source in the order of the vertices, unless each equals the number
// of its vertex.
func keepIDs(s *source, ids []string) {
	file := "original_id.npy"
	if s.kind != "" {
		file = "original_name.npy"
	}
	numbers := integersOf(ids)
	if numbers == nil {
		s.names = ids
		s.note("%d ids are words; original_name.npy has them", len(ids))
		return
	}
	for v, x := range numbers {
		if int64(v) != x {
			s.originals = numbers
			s.note("%d ids were renumbered; %s has them", len(ids), file)
			return
		}
	}
}
