package train

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"halognn/src/trace"
)

// Every field that summary.json and metrics.jsonl may have is in docs/metrics.md, even if only some
// runs write it.
func TestEveryFieldIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	summary, lines, both := strings.Cut(string(page), "## `metrics.jsonl`")
	if !both {
		t.Fatal("docs/metrics.md has other sections than this test looks for")
	}
	for _, c := range []struct {
		of     any
		inside string
	}{{Summary{}, summary}, {stepRecord{}, lines}, {epochRecord{}, lines}, {evalRecord{}, lines}} {
		fields := map[string]bool{}
		fieldsOf(reflect.TypeOf(c.of), fields)
		known := map[string]bool{"kind": true}
		for _, name := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(c.inside, -1) {
			known[name[1]] = true
		}
		if c.inside == lines { // its table says "the rows" for the fields of Rows
			fieldsOf(reflect.TypeFor[Rows](), known)
		}
		for name := range fields {
			if !known[name] {
				t.Errorf("%T: %s is not in docs/metrics.md", c.of, name)
			}
		}
	}
	for _, name := range trace.MemoryItems {
		if !strings.Contains(summary, "`"+name+"`") {
			t.Errorf("memory: %s is not in docs/metrics.md", name)
		}
	}
	for i := range trace.NumSetUpItems {
		if !strings.Contains(summary, "| `"+i.String()+"` |") {
			t.Errorf("setup: %s is not in docs/metrics.md", i)
		}
	}
	for p := range trace.NumPhases {
		if !strings.Contains(summary, "`"+p.String()+"`") {
			t.Errorf("phase %s is not in docs/metrics.md", p)
		}
	}
}

// fieldsOf adds the JSON names of a type's fields, and of the fields nested in them.
func fieldsOf(of reflect.Type, names map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		fieldsOf(of.Elem(), names)
	case reflect.Struct:
		for i := range of.NumField() {
			f := of.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				names[name] = true
			}
			fieldsOf(f.Type, names)
		}
	}
}
