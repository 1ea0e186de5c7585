package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// loadConfig reads the YAML file and the --set settings over the defaults and checks the whole: all faults are reported
// at once, each with its file and line, or its --set.
func loadConfig(path string, sets []string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w; --config takes the YAML file of a run, such as inputs/demo.yaml", err)
	}
	c := defaultConfig()
	b := binder{fields: map[string]reflect.Value{}}
	b.index("", reflect.ValueOf(c).Elem())
	b.file(path, text)
	inFile := len(b.faults)
	for _, s := range sets {
		b.set(s)
	}
	if len(b.faults) == 0 { // values can be judged only when all were understood
		if err := c.check(); err != nil {
			b.faults = append(b.faults, errors.New("  "+strings.ReplaceAll(err.Error(), "\n", "\n  ")))
		}
	}
	if err := errors.Join(b.faults...); err != nil {
		if inFile == 0 && strings.HasPrefix(err.Error(), "  --set ") { // each says whose fault it is
			return nil, fmt.Errorf("the settings of --set:\n%w", err)
		}
		return nil, fmt.Errorf("config %s:\n%w", path, err)
	}
	return c, nil
}

// binder sets the fields of a Config by their dotted keys and collects what goes wrong.
type binder struct {
	keys   []string // in the order of the struct
	fields map[string]reflect.Value
	faults []error
}

// index lists the settable fields below v under their dotted yaml names.
func (b *binder) index(prefix string, v reflect.Value) {
	for i := range v.NumField() {
		key := prefix + v.Type().Field(i).Tag.Get("yaml")
		if v.Field(i).Kind() == reflect.Struct {
			b.index(key+".", v.Field(i))
			continue
		}
		b.keys = append(b.keys, key)
		b.fields[key] = v.Field(i)
	}
}

func (b *binder) fault(where, format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf("  %s: %s", where, fmt.Sprintf(format, args...)))
}

func (b *binder) file(path string, text []byte) {
	parsed, err := parser.ParseBytes(text, 0)
	if err != nil {
		b.fault("not valid YAML", "%s", strings.TrimSpace(yaml.FormatError(err, false, false)))
		return
	}
	for _, doc := range parsed.Docs {
		if doc.Body != nil {
			b.node(path, "", doc.Body)
		}
	}
}

// node walks the file: mappings give keys, everything else is a value.
func (b *binder) node(path, key string, n ast.Node) {
	where := fmt.Sprintf("line %d", n.GetToken().Position.Line)
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, pair := range n.Values {
			b.node(path, key, pair)
		}
	case *ast.MappingValueNode:
		inner := n.Key.GetToken().Value
		if key != "" {
			inner = key + "." + inner
		}
		where = fmt.Sprintf("line %d", n.Key.GetToken().Position.Line)
		if _, isKey := b.fields[inner]; !isKey && !b.isSection(inner) {
			b.fault(where, "unknown key %s%s", inner, b.nearest(inner))
			return
		}
		b.node(path, inner, n.Value)
	case *ast.NullNode:
		if !b.isSection(key) {
			b.fault(where, "%s has no value", key)
		}
	case *ast.CommentGroupNode:
	default:
		if key == "" {
			b.fault(where, "the file must hold sections with keys below them, as `train:` with `lr: 0.01` indented")
			return
		}
		if b.isSection(key) {
			b.fault(where, "%s is a section; its keys go below it, indented", key)
			return
		}
		b.value(where, key, n)
	}
}

func (b *binder) isSection(key string) bool {
	for _, k := range b.keys {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// set applies one --set key=value.
func (b *binder) set(s string) {
	where := "--set " + s
	key, text, ok := strings.Cut(s, "=")
	if !ok {
		b.fault(where, "it must be key.path=value")
		return
	}
	if _, known := b.fields[key]; !known {
		b.fault(where, "unknown key %s%s", key, b.nearest(key))
		return
	}
	b.assign(where, key, text)
}

func (b *binder) value(where, key string, n ast.Node) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		b.assign(where, key, n.GetToken().Value)
		return
	}
	words := make([]string, len(seq.Values))
	for i, item := range seq.Values {
		words[i] = item.GetToken().Value
	}
	if b.fields[key].Kind() != reflect.Slice {
		b.fault(where, "%s is a list; it must be %s, without brackets", key, kindName(b.fields[key]))
		return
	}
	b.assign(where, key, strings.Join(words, ","))
}

// assign parses text as the type of the key. A list is written 15,10,5.
func (b *binder) assign(where, key, text string) {
	f := b.fields[key]
	text = strings.TrimSpace(text)
	wrong := func() { b.fault(where, "%s is %q; it must be %s", key, text, kindName(f)) }
	switch f.Kind() {
	case reflect.String:
		f.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			wrong()
			return
		}
		f.SetBool(text == "true")
	case reflect.Int:
		v, err := strconv.Atoi(text)
		if err != nil {
			wrong()
			return
		}
		f.SetInt(int64(v))
	case reflect.Float64:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			wrong()
			return
		}
		f.SetFloat(v)
	case reflect.Slice:
		var list []int
		text := strings.TrimSpace(strings.Trim(text, "[]"))
		if text == "" { // none
			f.Set(reflect.ValueOf(list))
			return
		}
		for word := range strings.SplitSeq(text, ",") {
			v, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil {
				wrong()
				return
			}
			list = append(list, v)
		}
		f.Set(reflect.ValueOf(list))
	default:
		panic("config: no parser for the type of " + key)
	}
}

func kindName(f reflect.Value) string {
	switch f.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list of whole numbers, as 15,10,5"
	}
	return "a word"
}

// nearest returns a hint at the known key that is closest to the given one, or nothing if none is close.
func (b *binder) nearest(key string) string {
	best, distance := "", 1+len(key)/2
	for _, k := range b.keys {
		d := editDistance(key, k)
		if last := k[strings.LastIndexByte(k, '.')+1:]; key == last || key[strings.LastIndexByte(key, '.')+1:] == last {
			d = 1 // right name, wrong section
		}
		if d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return "; docs/config.md lists them all"
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// editDistance is Levenshtein's: the least number of insertions, deletions and substitutions.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
