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

// Load applies the YAML file, if path is not empty, and then the settings key=value to the defaults,
// and checks the result. It returns all errors at once, each with its line in the file, or as --set.
func Load(path string, sets []string) (*Config, error) {
	c, b, inFile, err := read(path, sets)
	if err != nil {
		return nil, err
	}
	if len(b.faults) == 0 { // check values only if all of them parsed
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

// read returns the settings before their values are checked, the binder with the errors met so far,
// and how many of these are about the file.
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

// Keeps returns the error of Changes between the config of a run and the config with which it is to
// go on. Call it before Load, whose errors about combinations may advise to change keys that must
// not change. It leaves all other errors to Load.
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
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // the mark with which some editors begin
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

// gone are keys of earlier versions, which stand in the files of their runs and changed no number.
var gone = []string{"sample.kernel"}

// before has the keys that earlier versions lack and whose default changes what those versions did,
// each with the value that keeps it. Only jobs with learned rows read these keys.
var before = map[string]string{"model.learned_scale": "1", "model.learned_unread": "keep"}

// meansAsBefore gives the keys of before their earlier meaning if the config is a whole config of a
// version that lacks them: the config of a run, or what `halognn config` prints. People give few
// keys; a whole config gives all keys of its version.
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

// node walks the file: mappings give keys, everything else is a value.
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

// continues reports whether a pair of a mapping in braces is no key, but a number alone, which
// follows a comma in the value of the key before it.
func continues(pair *ast.MappingValueNode) bool {
	_, alone := pair.Value.(*ast.NullNode)
	_, err := strconv.ParseFloat(pair.Key.GetToken().Value, 64)
	return alone && err == nil
}

// unquoted is the fault of a list without quotes in braces, whose second entry is pairs[i].
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
			b.fault(where, "it must be key.path=value")
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
