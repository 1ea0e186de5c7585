package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// markdown escapes plain text so that Markdown shows it unchanged, also in a table.
func markdown(s string) string {
	var b strings.Builder
	text := []rune(s)
	word := func(i int) bool {
		return i >= 0 && i < len(text) && (unicode.IsLetter(text[i]) || unicode.IsDigit(text[i]))
	}
	for i, r := range text {
		switch {
		// not every program that reads Markdown accepts a backslash before | in a cell
		case r == '|' || r == '<' || r == '>' || r == '&':
			fmt.Fprintf(&b, "&#%d;", r)
		case strings.ContainsRune("\\`*[]~$", r), r == '_' && !(word(i-1) && word(i+1)):
			b.WriteRune('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// markdown writes the table.
func (t *table) markdown(w io.Writer) {
	line := func(cells []string) string {
		cells = slices.Clone(cells)
		for i := range cells {
			cells[i] = markdown(cells[i])
		}
		return "| " + strings.Join(cells, " | ") + " |\n"
	}
	fmt.Fprintf(w, "## %s\n\n%s|---|%s\n", t.title, line(t.columns), strings.Repeat("--:|",
		len(t.columns)-1))
	for _, row := range t.rows {
		io.WriteString(w, line(row))
	}
	fmt.Fprintf(w, "\n%s\n\n", strings.TrimSpace(t.note+" "+markdown(t.why)))
}

func writeMarkdown(w io.Writer, runs []*Run) {
	fmt.Fprintf(w, "# halognn report: %s\n\n", markdown(runsWord(runs)))
	for _, sentence := range verdict(runs) {
		fmt.Fprintf(w, "%s\n", markdown(sentence))
	}
	fmt.Fprintln(w)
	for _, fault := range warnings(runs) {
		fmt.Fprintf(w, "- %s\n", markdown(fault))
	}
	for _, t := range tablesOf(runs) {
		fmt.Fprintln(w)
		t.markdown(w)
	}
}
