package dataset

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"halognn/src/dataset/table"
)

// nameClasses sets the class of every vertex from its label as text; "", nan, none and null mean no
// label, and so do the noClasses among integers. The integers 0 to C-1 are the classes themselves;
// other integers are numbered in ascending order, words in byte order, and classNames keeps them.
func (s *source) nameClasses(labels []string) error {
	if len(labels) != s.vertices {
		return fmt.Errorf("%d labels for %d vertices", len(labels), s.vertices)
	}
	class, labelled, integers, err := distinctLabels(labels)
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
		if err := s.setLabel(v, float64(c)); err != nil {
			return err
		}
	}
	return nil
}

// setNames keeps the names of classes, in order, unless they are their numbers.
func (s *source) setNames(names []string, labelled int, integers bool) error {
	if len(names) > 100 && 2*len(names) > labelled {
		return fmt.Errorf("%d different labels, such as %.40q, on %d labelled vertices: %w: these "+
			"are ids or measurements, not classes", len(names), names[0], labelled, ErrValue)
	}
	if n := len(names); n > 0 && !(integers && names[0] == "0" && names[n-1] == strconv.Itoa(n-1)) {
		s.classNames = names
	}
	return nil
}

// badClass is the error about a number that is no class and does not stand for none.
func badClass(v int, y string) error {
	return fmt.Errorf("vertex %d has label %s: %w: want a class number from 0 on, or -1, -100 or nan "+
		"for none", v, y, ErrValue)
}

// noClasses are integers that stand for no label: the second one is what PyTorch's losses ignore.
var noClasses = []int{-1, -100}

// noClass tells whether a number stands for no label; nan does, too.
func noClass(y float64) bool {
	return math.IsNaN(y) || y == math.Trunc(y) && slices.Contains(noClasses, int(y))
}

// numberedClasses collects labels that come as numbers, of any number of vertices: labels holds the
// position in numbers, or -1.
type numberedClasses struct {
	labels   []int32
	numbers  []int64 // in the order in which they were first met
	at       map[int64]int32
	labelled int
}

// set notes the label of vertex v.
func (c *numberedClasses) set(v int, y float64) error {
	c.labels[v] = -1
	switch {
	case noClass(y):
		return nil
	case y != math.Trunc(y) && !math.IsInf(y, 0):
		return fmt.Errorf("vertex %d has label %g: %w: want a class number; "+cureNumbers, v, y, ErrValue)
	case y < 0 || y >= 1<<53:
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

// takeClasses numbers the classes in ascending order, as nameClasses does.
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

// distinctLabels collects the labels; integers says whether all of them are integers. Other numbers
// are an error.
func distinctLabels(
	labels []string,
) (class map[string]int, labelled int, integers bool, err error) {
	class, integers = map[string]int{}, true
	numbers, fraction, at := true, "", 0
	for v, y := range labels {
		y = strings.TrimSpace(y)
		if noLabel(y) {
			continue
		}
		labelled++
		if _, known := class[y]; known {
			continue
		}
		class[y] = 0
		if x, err := strconv.ParseInt(y, 10, 64); err == nil && strconv.FormatInt(x, 10) == y {
			continue
		}
		integers = false
		x, ok := table.ParseFloat([]byte(y))
		numbers = numbers && ok
		if ok && fraction == "" && x != math.Trunc(x) {
			fraction, at = y, v
		}
	}
	if numbers && !integers {
		if fraction == "" { // 1.0, 2.0: classes that were written as numbers with a point
			return wholeNumbers(labels)
		}
		return nil, 0, false, fmt.Errorf("vertex %d has label %s: %w: want a class; "+cureNumbers, at,
			fraction, ErrValue)
	}
	if integers {
		for _, none := range noClasses {
			delete(class, strconv.Itoa(none))
		}
		for v, y := range labels {
			y = strings.TrimSpace(y)
			if _, is := class[y]; is && y[0] == '-' {
				return nil, 0, false, badClass(v, y)
			}
		}
	}
	return class, labelled, integers, nil
}

// wholeNumbers rewrites labels such as 1.0 as integers, and collects them.
func wholeNumbers(labels []string) (class map[string]int, labelled int, integers bool, err error) {
	for v, y := range labels {
		if x, ok := table.ParseFloat([]byte(strings.TrimSpace(y))); ok && !math.IsNaN(x) {
			if math.Abs(x) >= 1<<53 {
				return nil, 0, false, badClass(v, y)
			}
			labels[v] = strconv.FormatInt(int64(x), 10)
		}
	}
	return distinctLabels(labels)
}

// noLabel reports whether a label says that there is none.
func noLabel(y string) bool {
	switch strings.ToLower(y) {
	case "", "nan", "none", "null", "na", "n/a":
		return true
	}
	return false
}
