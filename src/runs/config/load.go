package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"halognn/src/base/mem"
)

// Load starts with the defaults. It sets the keys of the YAML file, unless path is empty, and then
// the keys of the settings key=value. It checks the result and returns all errors at once. An error
// names the line of the file, or the --set, that it is about.
func Load(path string, sets []string) (*Config, error) {
	c, b, inFile, err := read(path, sets)
	if err != nil {
		return nil, err
	}
	if len(b.faults) == 0 { // values are checked only if all of them could be read
		b.judge(c.faults())
	}
	if err := errors.Join(b.faults...); err != nil {
		if inFile == 0 && strings.HasPrefix(err.Error(), "  --set ") { // no error is about the file
			return nil, fmt.Errorf("the settings of --set:\n%w", err)
		}
		return nil, fmt.Errorf("config %s:\n%w", path, err)
	}
	return c, nil
}

// read returns the settings, whose values are not checked yet, the binder with the errors so far,
// and the number of errors about the file.
func read(path string, sets []string) (c *Config, b *binder, inFile int, err error) {
	c = Default()
	b = &binder{keys: c.keys()}
	if path != "" {
		text, err := mem.ReadFile(path)
		if err != nil {
			return nil, nil, 0, fmt.Errorf("reading the config: %w; --config takes the YAML "+
				"file of a "+
				"run, such as inputs/demo.yaml", err)
		}
		b.file(text)
		b.meansAsBefore()
	}
	inFile = len(b.faults)
	b.sets(sets)
	c.settle(b.isGiven)
	return c, b, inFile, nil
}

// Keeps compares the config of a run with the config with which the run is to be resumed, and
// returns the error of Changes. Call it before Load: errors of Load about combinations may advise
// to change keys that must not change. Keeps returns no other errors, because Load returns them.
func Keeps(run, path string, sets []string) error {
	began, b, _, err := read(run, nil)
	if err != nil || len(b.faults) > 0 {
		return nil
	}
	now, b, _, err := read(path, sets)
	if err != nil || len(b.faults) > 0 {
		return nil
	}
	return now.Changes(began.Flat())
}

// WithDefaults returns the defaults with the settings key=value applied. Required keys may be
// missing.
func WithDefaults(sets []string) (*Config, error) {
	c := Default()
	b := binder{keys: c.keys()}
	b.sets(sets)
	c.settle(b.isGiven)
	if len(b.faults) == 0 {
		b.judge(c.faultsOf(func(k *Key) bool { return !k.missing() }))
	}
	if err := errors.Join(b.faults...); err != nil {
		return nil, fmt.Errorf("the settings of --set:\n%w", err)
	}
	return c, nil
}

// binder sets keys by their names and collects errors.
type binder struct {
	keys   []*Key
	given  []string // names of the keys that were set
	faults []error
}

func (b *binder) isGiven(key string) bool { return slices.Contains(b.given, key) }

func (b *binder) fault(where, format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf("  %s: %s", where, fmt.Sprintf(format, args...)))
}

func (b *binder) judge(faults []string) {
	for _, f := range faults {
		b.faults = append(b.faults, errors.New("  "+strings.ReplaceAll(f, "\n", "\n  ")))
	}
}

func (b *binder) file(text []byte) {
	// the byte order mark that some editors write
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	parsed, err := parser.ParseBytes(text, 0)
	if err != nil {
		fault := strings.TrimSpace(yaml.FormatError(err, false, false))
		if strings.Contains(fault, "\t") {
			fault += "; indent by blanks, not by tabs"
		}
		b.fault("not valid YAML", "%s", fault)
		return
	}
	for _, doc := range parsed.Docs {
		if doc.Body != nil {
			b.node("", doc.Body)
		}
	}
}

// gone lists keys of earlier versions that this version does not have. They changed no numbers, so
// they are ignored in the configs of old runs.
var gone = []string{"sample.kernel"}

// before has values for keys that earlier versions lack. With these values a job does what the
// earlier versions did; the defaults of the keys do something else. Only jobs with learned rows
// read these keys.
var before = map[string]string{"model.learned_scale": "1", "model.learned_unread": "keep"}

// meansAsBefore sets the keys of the map before to its values if the config is a whole config of a
// version that lacks these keys. A whole config is the config of a run, or the output of `halognn
// config`. A config with at least half of the keys counts as whole, because people give few keys.
func (b *binder) meansAsBefore() {
	if len(b.given) < len(b.keys)/2 {
		return
	}
	for name, was := range before {
		if !b.isGiven(name) {
			find(b.keys, name).parse(was)
		}
	}
}

// node walks the file. Mappings hold sections and keys; everything else is a value.
func (b *binder) node(key string, n ast.Node) {
	where := fmt.Sprintf("line %d", n.GetToken().Position.Line)
	switch n := n.(type) {
	case *ast.MappingNode:
		for i, pair := range n.Values {
			if i > 0 && n.IsFlowStyle && continues(pair) {
				b.fault(where, "%s", unquoted(n.Values, i))
				return
			}
			b.node(key, pair)
		}
	case *ast.MappingValueNode:
		inner := n.Key.GetToken().Value
		if key != "" {
			inner = key + "." + inner
		}
		where = fmt.Sprintf("line %d", n.Key.GetToken().Position.Line)
		if slices.Contains(gone, inner) {
			return
		}
		if find(b.keys, inner) == nil && !b.isSection(inner) {
			b.fault(where, "unknown key %s%s", inner, suggestion(b.keys, inner))
			return
		}
		b.node(inner, n.Value)
	case *ast.NullNode:
		if !b.isSection(key) {
			b.fault(where, "%s has no value", key)
		}
	case *ast.CommentGroupNode:
	default:
		if key == "" {
			b.fault(where, "the file must hold sections with keys below them, as `train:` with "+
				"`lr: 0.01` indented")
			return
		}
		if b.isSection(key) {
			b.fault(where, "%s is a section; its keys go below it, indented", key)
			return
		}
		b.value(where, find(b.keys, key), n)
	}
}

// continues reports whether a pair of a mapping in braces is not a key, but a number alone. Such a
// number belongs to the value of the key before it, a list with commas.
func continues(pair *ast.MappingValueNode) bool {
	_, alone := pair.Value.(*ast.NullNode)
	_, err := strconv.ParseFloat(pair.Key.GetToken().Value, 64)
	return alone && err == nil
}

// unquoted returns the error of a list in braces that has no quotes. The second entry of the list
// is pairs[i].
func unquoted(pairs []*ast.MappingValueNode, i int) string {
	key, list := pairs[i-1].Key.GetToken().Value, pairs[i-1].Value.GetToken().Value
	for ; i < len(pairs) && continues(pairs[i]); i++ {
		list += "," + pairs[i].Key.GetToken().Value
	}
	return fmt.Sprintf("in braces a comma ends the value of %s; put the list in quotes: %[1]s: %q",
		key, list)
}

func (b *binder) isSection(key string) bool {
	return slices.ContainsFunc(b.keys,
		func(k *Key) bool { return strings.HasPrefix(k.Name, key+".") })
}

// sets applies settings key=value.
func (b *binder) sets(all []string) {
	for _, s := range all {
		where := "--set " + s
		name, text, ok := strings.Cut(s, "=")
		name = strings.TrimSpace(name)
		k := find(b.keys, name)
		switch {
		case !ok:
			b.fault(where, "it must be section.key=value")
		case k == nil:
			b.fault(where, "unknown key %s%s", name, suggestion(b.keys, name))
		default:
			b.assign(where, k, text)
		}
	}
}

func (b *binder) value(where string, k *Key, n ast.Node) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		b.assign(where, k, n.GetToken().Value)
		return
	}
	words := make([]string, len(seq.Values))
	for i, item := range seq.Values {
		words[i] = item.GetToken().Value
	}
	if _, isList := k.value.(*fanoutList); !isList {
		b.fault(where, "%s is a list; it must be %s, without brackets", k.Name, k.kind())
		return
	}
	b.assign(where, k, strings.Join(words, ","))
}

// assign sets the key. A list is written 15,10,5.
func (b *binder) assign(where string, k *Key, text string) {
	b.given = append(b.given, k.Name)
	if text = strings.TrimSpace(text); !k.parse(text) {
		b.fault(where, "%v", k.unparsed(text))
	}
}
