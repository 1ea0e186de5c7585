package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Key is one setting.
type Key struct {
	Name   string // section.key
	value         // the field of a Config, its default and its limits
	Traits Traits
	Brief  string // the key's meaning: a phrase of Markdown, without a full stop
	Note   string // further sentences of Markdown; may be empty
}

// Traits say what depends on a key. They are bits, combined by |.
type Traits int

const (
	// MayChange: a resumed run may change the key, because the key affects no number of training,
	// or only what follows training.
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

// Value returns the text in which Flat writes a value of a key, however the given text writes it.
// An error says that there is no such key, and which key may have been meant, or that the text is
// not a value of the key.
func Value(name, text string) (string, error) {
	keys := new(Config).keys()
	k := find(keys, name)
	if k == nil {
		return "", fmt.Errorf("unknown key %s%s", name, suggestion(keys, name))
	}
	if !k.parse(strings.TrimSpace(text)) {
		return "", k.unparsed(text)
	}
	return k.flat(), nil
}

func (k *Key) unparsed(text string) error {
	return fmt.Errorf("%s is %q; it must be %s", k.Name, text, k.kind())
}

// Names returns the names of all keys.
func Names() (names []string) {
	for _, k := range new(Config).keys() {
		names = append(names, k.Name)
	}
	return names
}

// Words returns the words that a key accepts, or nil if the key does not take words.
func Words(name string) []string {
	if k := find(new(Config).keys(), name); k != nil {
		if w, ok := k.value.(worded); ok {
			return wordNames(w.choices())
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

// missing reports whether the key must be given and has no value.
func (k *Key) missing() bool {
	p, ok := k.value.(*pathName)
	return ok && p.required && *p.field == ""
}

// value is the field of a Config that a key sets. Each of the types below binds one field.
type value interface {
	reset() // sets the default
	// sets the field from text; false if the text is of another kind
	parse(text string) bool
	kind() string                    // the kind of value, such as "a whole number"
	limits() string                  // what limits the value, such as "1 to 64"; "" if nothing does
	fault(name, brief string) string // the error in the field, or ""
	flat() string                    // the field as Config.Flat has it
	yaml() string                    // the field as a YAML file has it
}

// bound has the fields that all values have. Its methods suit values that have no limits and are
// written as Go prints them. Other types of values have methods of their own instead.
type bound[T any] struct {
	field    *T
	fallback T
}

func (b bound[T]) reset()                   { *b.field = b.fallback }
func (b bound[T]) flat() string             { return fmt.Sprint(*b.field) }
func (b bound[T]) yaml() string             { return fmt.Sprint(*b.field) }
func (b bound[T]) limits() string           { return "" }
func (b bound[T]) fault(_, _ string) string { return "" }

// wholeNumber is an integer from least to most.
type wholeNumber[T int | uint64] struct {
	bound[T]
	least, most T
}

// whole binds a field to a whole number. The argument `minimum` is the lower limit, and the method
// upTo sets an upper one.
func whole[T int | uint64](field *T, fallback, minimum T) *wholeNumber[T] {
	return &wholeNumber[T]{bound[T]{field, fallback}, minimum, math.MaxInt}
}

func (w *wholeNumber[T]) upTo(most T) *wholeNumber[T] { w.most = most; return w }

func (w *wholeNumber[T]) parse(text string) bool {
	n, err := strconv.Atoi(text)
	// the text is no number, or is negative for an unsigned field
	if err != nil || n < 0 && w.least == 0 && T(n) > w.most {
		return false
	}
	*w.field = T(n)
	return true
}

func (w *wholeNumber[T]) kind() string { return "a whole number" }

func (w *wholeNumber[T]) fault(name, brief string) string {
	if *w.field >= w.least && *w.field <= w.most {
		return ""
	}
	return fmt.Sprintf("%s is %d; it must be %s: %s", name, *w.field, w.limits(), brief)
}

func (w *wholeNumber[T]) limits() string {
	if w.most == math.MaxInt {
		return fmt.Sprintf("at least %d", w.least)
	}
	return fmt.Sprintf("%d to %d", w.least, w.most)
}

// realNumber is a number within an interval.
type realNumber[T float32 | float64] struct {
	bound[T]
	in interval
}

// number binds a field to a number of an interval. Infinity is in no interval.
func number[T float32 | float64](field *T, fallback T, in interval) *realNumber[T] {
	return &realNumber[T]{bound[T]{field, fallback}, in}
}

func (n *realNumber[T]) parse(text string) bool {
	x, err := strconv.ParseFloat(text, 64)
	if err == nil {
		*n.field = T(x)
	}
	return err == nil
}

func (n *realNumber[T]) kind() string   { return "a number" }
func (n *realNumber[T]) limits() string { return n.in.String() }

func (n *realNumber[T]) fault(name, brief string) string {
	if n.in.has(float64(*n.field)) {
		return ""
	}
	return fmt.Sprintf("%s is %v; it must be %s: %s", name, *n.field, n.in, brief)
}

// interval holds the numbers from lo to hi. A bound that is open is not in the interval itself.
type interval struct {
	lo, hi         float64
	openLo, openHi bool
}

// atLeast(lo) is the interval of all finite numbers x >= lo, and moreThan(lo) that of all finite
// numbers x > lo. The method upTo ends an interval at hi, included; lessThan ends it at hi,
// excluded.
func atLeast(lo float64) interval  { return interval{lo: lo, hi: math.Inf(1), openHi: true} }
func moreThan(lo float64) interval { i := atLeast(lo); i.openLo = true; return i }

func (i interval) upTo(hi float64) interval     { i.hi, i.openHi = hi, false; return i }
func (i interval) lessThan(hi float64) interval { i.hi, i.openHi = hi, true; return i }

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

func (f *flag) kind() string { return "true or false" }

// word is one of the words of a choice, with its meaning.
type word struct{ name, doc string }

func wordNames(words []word) (all []string) {
	for _, w := range words {
		all = append(all, w.name)
	}
	return all
}

// worded is a value that is one of a few words.
type worded interface{ choices() []word }

// choice is one of a few words, which the field holds as they are.
type choice[T ~string] struct {
	bound[T]
	words []word
}

func oneOf[T ~string](field *T, fallback T, words ...word) *choice[T] {
	return &choice[T]{bound: bound[T]{field, fallback}, words: words}
}

func (c *choice[T]) choices() []word        { return c.words }
func (c *choice[T]) parse(text string) bool { *c.field = T(text); return true }
func (c *choice[T]) kind() string           { return "a word" }
func (c *choice[T]) limits() string         { return OrList(wordNames(c.words)) }
func (c *choice[T]) yaml() string           { return yamlText(string(*c.field)) }

func (c *choice[T]) fault(name, brief string) string {
	if slices.Contains(wordNames(c.words), string(*c.field)) {
		return ""
	}
	return fmt.Sprintf("%s is %q; it must be %s: %s", name, *c.field, c.limits(), brief)
}

// named is a choice among a few values. Each value has a word, by which it is set.
type named[T comparable] struct {
	bound[T]
	words  []word
	values []T // the values, in the order of their words
}

// either binds a field to a choice of two words. The field is true for the second word.
func either(field *bool, no, yes word) *named[bool] {
	return &named[bool]{bound[bool]{field, false}, []word{no, yes}, []bool{false, true}}
}

func (n *named[T]) choices() []word { return n.words }
func (n *named[T]) kind() string    { return n.limits() }
func (n *named[T]) limits() string  { return OrList(wordNames(n.words)) }
func (n *named[T]) yaml() string    { return yamlText(n.flat()) }

func (n *named[T]) parse(text string) bool {
	i := slices.Index(wordNames(n.words), text)
	if i >= 0 {
		*n.field = n.values[i]
	}
	return i >= 0
}

func (n *named[T]) flat() string {
	if i := slices.Index(n.values, *n.field); i >= 0 {
		return n.words[i].name
	}
	return fmt.Sprint(*n.field)
}

func (n *named[T]) fault(name, brief string) string {
	if slices.Contains(n.values, *n.field) {
		return ""
	}
	return fmt.Sprintf("%s is %q; it must be %s: %s", name, n.flat(), n.limits(), brief)
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

// fanoutList is a list of fanouts, one for each hop.
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

// countOrAll is a whole number, or the word all, for which the field is 0.
type countOrAll struct{ *wholeNumber[int] }

func (c *countOrAll) parse(text string) bool {
	if text == "all" {
		*c.field = 0
		return true
	}
	return c.wholeNumber.parse(text) && *c.field > 0
}

func (c *countOrAll) flat() string {
	if *c.field == 0 {
		return "all"
	}
	return c.wholeNumber.flat()
}

func (c *countOrAll) kind() string { return "a whole number or all" }
func (c *countOrAll) yaml() string { return c.flat() }
func (c *countOrAll) fault(name, brief string) string {
	if *c.field == 0 {
		return ""
	}
	return c.wholeNumber.fault(name, brief)
}

// negatives says how the negatives of links are drawn.
type negatives struct{ bound[sample.Negatives] }

func (n *negatives) parse(text string) (ok bool) {
	is, err := sample.ParseNegatives(text)
	if err == nil {
		*n.field = is
	}
	return err == nil
}

func (n *negatives) kind() string   { return "uniform:k, joint:k, local:k or batch" }
func (n *negatives) limits() string { return "k at least 1" }

// weightList is the weights of classes: a word, or a number for each class.
type weightList struct{ bound[Loss] }

func weights(field *Loss) *weightList { return &weightList{bound[Loss]{field, Loss{}}} }

func (w *weightList) reset() { w.field.Weights, w.field.Balanced = nil, false }

func (w *weightList) parse(text string) bool {
	var list []float64
	text = strings.TrimSpace(strings.Trim(strings.TrimSpace(text), "[]"))
	if text != "" && text != "none" && text != "balanced" {
		for word := range strings.SplitSeq(text, ",") {
			x, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
			if err != nil || !(x >= 0) || math.IsInf(x, 0) {
				return false
			}
			list = append(list, x)
		}
	}
	w.field.Weights, w.field.Balanced = list, text == "balanced"
	return true
}

func (w *weightList) flat() string {
	switch {
	case w.field.Balanced:
		return "balanced"
	case w.field.Weights == nil:
		return "none"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(w.field.Weights), " ", ","), "[]")
}

func (w *weightList) kind() string   { return "none, balanced or numbers from 0, as 1,2.5" }
func (w *weightList) limits() string { return "a number for each class" }
func (w *weightList) yaml() string   { return w.flat() }
