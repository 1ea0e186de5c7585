package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// lineWidth is the width of lines in comments and pages.
const lineWidth = 100

// YAML returns the config as a file that loads to the same.
func (c *Config) YAML() string {
	var b strings.Builder
	for _, s := range c.table() {
		fmt.Fprintf(&b, "%s:\n", s.name)
		for _, k := range s.keys {
			fmt.Fprintf(&b, "  %s: %s\n", k.last(), k.yaml())
		}
	}
	return b.String()
}

// CommentedYAML returns the config as a file that loads to the same and explains every key.
func (c *Config) CommentedYAML() string {
	var b strings.Builder
	b.WriteString(wrap("# ", "# ", "A run config of halognn: `halognn train --config FILE.yaml`. "+
		"Keys that are left out have their defaults; --set "+
		"section.key=value overrides one. A run that goes on (--resume) may "+
		"change "+strings.Join(c.mayChange(), ", ")+"."))
	for _, s := range c.table() {
		b.WriteString("\n")
		if s.doc != "" {
			b.WriteString(wrap("# ", "# ", plain(s.doc)))
		}
		fmt.Fprintf(&b, "%s:\n", s.name)
		for i, k := range s.keys {
			if i > 0 {
				b.WriteString("\n")
			}
			text := sentence(k.Brief) + " " + k.Note + " " + sentence(k.facts())
			b.WriteString(wrap("  # ", "  # ", plain(text)))
			for _, w := range k.explained() {
				name, rest := w.explanation()
				b.WriteString(wrap("  #   ", "  #     ", plain(name+rest)))
			}
			fmt.Fprintf(&b, "  %s: %s\n", k.last(), k.yaml())
		}
	}
	return b.String()
}

// Markdown returns docs/config.md.
func Markdown() string {
	c := Default()
	var b strings.Builder
	b.WriteString(pageHead)
	for _, s := range c.table() {
		fmt.Fprintf(&b, "\n## %s\n\n", s.name)
		if s.doc != "" {
			b.WriteString(wrap("", "", s.doc) + "\n")
		}
		for _, k := range s.keys {
			var facts []string
			if !k.missing() {
				value := strings.ReplaceAll(k.yaml(), ", ", ",")
				facts = append(facts, "default `"+value+"`")
			}
			if limits := k.facts(); limits != "" {
				facts = append(facts, limits)
			}
			if k.Traits&MayChange != 0 {
				facts = append(facts, "may change")
			}
			text := fmt.Sprintf("**`%s`** (%s): %s. %s",
				k.Name, strings.Join(facts, "; "), k.Brief, k.Note)
			b.WriteString(wrap("- ", "  ", strings.TrimSpace(text)))
			for _, w := range k.explained() {
				name, rest := w.explanation()
				b.WriteString(wrap("  - ", "    ", "`"+name+"`"+rest))
			}
		}
	}
	return b.String()
}

// pageHead is the beginning of the page about the run config. It is written with ' in place of the
// backtick of Markdown, which this kind of Go string cannot contain.
var pageHead = strings.ReplaceAll(`# The run config

<!-- Made by 'make docs' from src/runs/config/table.go: change it there. -->

A YAML file describes a run: 'halognn train --config FILE.yaml'. 'halognn config' prints all keys
with their defaults and the texts below as comments; with '--config FILE.yaml', those of a file.
'--set section.key=value' overrides a key, as often as needed. Errors end the job before it starts
(exit code 2): all unknown keys and wrong types with their lines, else all values out of range and
missing keys. Neither '~' nor '$HOME' is expanded. The run directory keeps the config used.

Lists are written '15,10,5' or '[15, 10, 5]'. Keys that *may change* may have another value when a
run goes on by '--resume' ([checkpoints.md](checkpoints.md#going-on)): they change no number of the
training, or only what comes after.
`, "'", "`")

func (k *Key) last() string { return k.Name[strings.IndexByte(k.Name, '.')+1:] }

// facts returns the limits of the value, unless the list of words gives them.
func (k *Key) facts() string {
	if k.explained() != nil {
		return ""
	}
	return k.limits()
}

// explained returns the words of a choice if one of them is explained.
func (k *Key) explained() []word {
	if c, ok := k.value.(worded); ok {
		if words := c.choices(); slices.ContainsFunc(words,
			func(w word) bool { return w.doc != "" }) {
			return words
		}
	}
	return nil
}

func (w word) explanation() (name, rest string) {
	if w.doc == "" {
		return w.name, ""
	}
	return w.name, ": " + w.doc
}

// sentence makes a sentence of a phrase.
func sentence(phrase string) string {
	if phrase == "" {
		return ""
	}
	return strings.ToUpper(phrase[:1]) + phrase[1:] + "."
}

var link = regexp.MustCompile(`\[[^\]]*\]\(([^)]*)\)`)

// plain turns Markdown into text: links become paths in the repository.
func plain(markdown string) string {
	text := link.ReplaceAllString(markdown, "docs/$1")
	return strings.NewReplacer("`", "", "*", "").Replace(text)
}

// wrap breaks text into lines of at most lineWidth: the first one begins with head, the others with
// hang.
func wrap(head, hang, text string) string {
	var b strings.Builder
	line := head
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			line += word
		case len([]rune(line))+1+len([]rune(word)) > lineWidth:
			b.WriteString(line + "\n")
			line = hang + word
		default:
			line += " " + word
		}
	}
	return b.String() + line + "\n"
}

// yamlText writes a string as YAML, quoted if YAML would read it as another type.
func yamlText(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	text, err := yaml.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(string(text), "\n")
}
