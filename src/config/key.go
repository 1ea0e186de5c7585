package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"halognn/src/graph"
	"halognn/src/sample"
)

// Key is one setting.
type Key struct {
	Name   string // section.key
	value         // the field of a Config, its default and its limits
	Traits Traits
	Brief  string // its meaning, a phrase without a full stop; Markdown, as Note
	Note   string // further sentences; may be empty
}

// Traits say what depends on a key. They are bits, combined by |.
type Traits int

const (
	// MayChange: a resumed run may change the key, because it does not affect the numbers of
	// training, or only what follows training.
	MayChange Traits = 1 << iota

	// SameEpoch: the key does not affect the work of an epoch: the same model is trained on the
	// same minibatches, on the same nodes.
	SameEpoch

	// NoResult: the key says where results are written and what is printed. It affects neither
	// numbers nor times, so comparisons of runs ignore it.
	NoResult
)

// Has reports whether the key of that name has all of the traits. Unknown keys have none.
func Has(name string, traits Traits) bool {
	k := find(new(Config).keys(), name)
	return k != nil && k.Traits&traits == traits
}

// Names returns the names of all keys.
func Names() (names []string) {
	for _, k := range new(Config).keys() {
		names = append(names, k.Name)
	}
	return names
}

// Words returns the words that a key accepts; nil for keys of other kinds.
func Words(name string) []string {
	if k := find(new(Config).keys(), name); k != nil {
		if w, ok := k.value.(*choice); ok {
			return w.names()
		}
	}
	return nil
}

func find(keys []*Key, name string) *Key {
	if i := slices.IndexFunc(keys, func(k *Key) bool { return k.Name == name }); i >= 0 {
		return keys[i]
	}
	return nil
}

// missing reports whether the key must be given but is not.
func (k *Key) missing() bool {
	p, ok := k.value.(*pathName)
	return ok && p.required && *p.field == ""
}

// value is the field of a Config that a key sets. Each of the types below binds one field.
type value interface {
	reset()                          // sets the default
	parse(text string) bool          // sets the field; false: text has another kind
	kind() string                    // "a whole number"
	limits() string                  // as text: "1 to 64"; "" if the kind has none
	fault(name, brief string) string // the error in the field, or ""
	flat() string                    // the field as Config.Flat has it
	yaml() string                    // the field as a YAML file has it
}

// bound has the common fields of all values.
type bound[T any] struct {
	field    *T
	fallback T
}

func (b bound[T]) reset()       { *b.field = b.fallback }
func (b bound[T]) flat() string { return fmt.Sprint(*b.field) }

// wholeNumber is an int from least to most.
type wholeNumber struct {
	bound[int]
	least, most int
}

// whole binds a whole number of at least least; upTo bounds it above.
func whole(field *int, fallback, least int) *wholeNumber {
	return &wholeNumber{bound[int]{field, fallback}, least, math.MaxInt}
}

func (w *wholeNumber) upTo(most int) *wholeNumber { w.most = most; return w }

func (w *wholeNumber) parse(text string) bool {
	n, err := strconv.Atoi(text)
	if err == nil {
		*w.field = n
	}
	return err == nil
}

func (w *wholeNumber) kind() string { return "a whole number" }
func (w *wholeNumber) yaml() string { return strconv.Itoa(*w.field) }

func (w *wholeNumber) fault(name, brief string) string {
	if *w.field >= w.least && *w.field <= w.most {
		return ""
	}
	return fmt.Sprintf("%s is %d; it must be %s: %s", name, *w.field, w.limits(), brief)
}

func (w *wholeNumber) limits() string {
	if w.most == math.MaxInt {
		return fmt.Sprintf("at least %d", w.least)
	}
	return fmt.Sprintf("%d to %d", w.least, w.most)
}

// realNumber is a float64 within an interval.
type realNumber struct {
	bound[float64]
	in interval
}

// number binds a number of an interval; infinity is in none.
func number(field *float64, fallback float64, in interval) *realNumber {
	return &realNumber{bound[float64]{field, fallback}, in}
}

func (n *realNumber) parse(text string) bool {
	x, err := strconv.ParseFloat(text, 64)
	if err == nil {
		*n.field = x
	}
	return err == nil
}

func (n *realNumber) kind() string   { return "a number" }
func (n *realNumber) yaml() string   { return strconv.FormatFloat(*n.field, 'g', -1, 64) }
func (n *realNumber) limits() string { return n.in.String() }

func (n *realNumber) fault(name, brief string) string {
	if n.in.has(*n.field) {
		return ""
	}
	return fmt.Sprintf("%s is %g; it must be %s: %s", name, *n.field, n.in, brief)
}

// interval is the numbers from lo to hi, without an open bound itself.
type interval struct {
	lo, hi         float64
	openLo, openHi bool
}

// from returns the finite numbers >= lo, above those > lo; upTo and below set the upper end.
func from(lo float64) interval  { return interval{lo: lo, hi: math.Inf(1), openHi: true} }
func above(lo float64) interval { i := from(lo); i.openLo = true; return i }

func (i interval) upTo(hi float64) interval  { i.hi, i.openHi = hi, false; return i }
func (i interval) below(hi float64) interval { i.hi, i.openHi = hi, true; return i }

func (i interval) has(x float64) bool {
	above := x > i.lo || x == i.lo && !i.openLo
	below := x < i.hi || x == i.hi && !i.openHi
	return above && below // NaN is neither
}

func (i interval) String() string {
	switch {
	case math.IsInf(i.hi, 1) && i.openLo && i.lo == 0:
		return "positive and finite"
	case math.IsInf(i.hi, 1) && !i.openLo:
		return fmt.Sprintf("%g or more, and finite", i.lo)
	}
	left, right := "[", "]"
	if i.openLo {
		left = "("
	}
	if i.openHi {
		right = ")"
	}
	return fmt.Sprintf("in %s%g, %g%s", left, i.lo, i.hi, right)
}

// flag is true or false.
type flag struct{ bound[bool] }

func boolean(field *bool, fallback bool) *flag { return &flag{bound[bool]{field, fallback}} }

func (f *flag) parse(text string) bool {
	if text != "true" && text != "false" {
		return false
	}
	*f.field = text == "true"
	return true
}

func (f *flag) kind() string             { return "true or false" }
func (f *flag) limits() string           { return "" }
func (f *flag) yaml() string             { return strconv.FormatBool(*f.field) }
func (f *flag) fault(_, _ string) string { return "" }

// word is one of the words of a choice, with its meaning.
type word struct{ name, doc string }

// choice is one of a few words.
type choice struct {
	bound[string]
	words []word
}

func oneOf(field *string, fallback string, words ...word) *choice {
	return &choice{bound: bound[string]{field, fallback}, words: words}
}

func (c *choice) names() (names []string) {
	for _, w := range c.words {
		names = append(names, w.name)
	}
	return names
}

func (c *choice) parse(text string) bool { *c.field = text; return true }
func (c *choice) kind() string           { return "a word" }
func (c *choice) limits() string         { return OrList(c.names()) }
func (c *choice) yaml() string           { return yamlText(*c.field) }

func (c *choice) fault(name, brief string) string {
	if slices.Contains(c.names(), *c.field) {
		return ""
	}
	return fmt.Sprintf("%s is %q; it must be %s: %s", name, *c.field, c.limits(), brief)
}

// OrList joins words as in "a, b or c".
func OrList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// pathName is the name of a file or directory.
type pathName struct {
	bound[string]
	required bool
}

func path(field *string) *pathName { return &pathName{bound[string]{field, ""}, false} }

// mustBeGiven makes an empty path an error.
func (p *pathName) mustBeGiven() *pathName { p.required = true; return p }

func (p *pathName) parse(text string) bool { *p.field = text; return true }
func (p *pathName) kind() string           { return "a word" }
func (p *pathName) yaml() string           { return yamlText(*p.field) }

func (p *pathName) limits() string {
	if p.required {
		return "must be given"
	}
	return ""
}

func (p *pathName) fault(name, brief string) string {
	switch {
	case p.required && *p.field == "":
		return fmt.Sprintf("%s is missing: %s", name, brief)
	case strings.HasPrefix(*p.field, "~"):
		return fmt.Sprintf("%s is %s, and no shell expands ~ there; write the path in "+
			"full", name, *p.field)
	}
	return ""
}

// fanoutList is the fanouts of all hops.
type fanoutList struct{ bound[[]int] }

func fanouts(field *[]int, fallback ...int) *fanoutList {
	return &fanoutList{bound[[]int]{field, fallback}}
}

func (f *fanoutList) reset() { *f.field = slices.Clone(f.fallback) }

func (f *fanoutList) parse(text string) bool {
	var list []int
	if text = strings.TrimSpace(strings.Trim(text, "[]")); text == "" {
		*f.field = nil
		return true
	}
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return false
		}
		list = append(list, n)
	}
	*f.field = list
	return true
}

func (f *fanoutList) kind() string { return "a list of whole numbers, as 15,10,5" }
func (f *fanoutList) limits() string {
	return fmt.Sprintf("each 1 to %d, or %d for all neighbours", graph.MaxVertices, sample.All)
}

func (f *fanoutList) yaml() string {
	return strings.ReplaceAll(fmt.Sprint(*f.field), " ", ", ")
}

func (f *fanoutList) fault(name, _ string) string {
	var faults []string
	for i, n := range *f.field {
		if n < 1 && n != sample.All || n > graph.MaxVertices {
			faults = append(faults, fmt.Sprintf("%s[%d] is %d; a fanout is at least 1 and at "+
				"most %d, or %d for all neighbours", name, i, n, graph.MaxVertices, sample.All))
		}
	}
	return strings.Join(faults, "\n")
}

// weightList is the weights of classes: a word, or a number for each.
type weightList struct{ bound[string] }

func weights(field *string) *weightList { return &weightList{bound[string]{field, "none"}} }

func (w *weightList) parse(text string) bool {
	text = strings.TrimSpace(strings.Trim(strings.TrimSpace(text), "[]"))
	if _, _, err := ParseWeights(text); err != nil {
		return false
	}
	*w.field = strings.ReplaceAll(text, " ", "")
	return true
}

func (w *weightList) kind() string {
	return "none, balanced or numbers from 0, as 1,2.5"
}
func (w *weightList) limits() string           { return "a number for each class" }
func (w *weightList) yaml() string             { return *w.field }
func (w *weightList) fault(_, _ string) string { return "" }

// ParseWeights reads train.class_weights: none, balanced, or a number for each class.
func ParseWeights(text string) (list []float64, balanced bool, err error) {
	switch text {
	case "", "none":
		return nil, false, nil
	case "balanced":
		return nil, true, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(x >= 0) || math.IsInf(x, 0) {
			return nil, false, fmt.Errorf("%q is no weight; want a number from 0", word)
		}
		list = append(list, x)
	}
	return list, false, nil
}
