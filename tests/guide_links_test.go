package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every link of the pages in docs and in the root leads to a file of the repository and, if it
// names one, to a heading.
func TestDocsLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	for _, page := range documents(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if info, err := os.Stat(target); err == nil && info.IsDir() {
				continue
			}
			led, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[0])
				continue
			}
			if m[2] != "" && !strings.Contains(anchors(string(led)), m[2]+"\n") {
				t.Errorf("%s: %s has no heading for %s", page, target, m[2])
			}
		}
	}
}

// anchors returns, one a line, the names that Markdown viewers give the headings of a text.
func anchors(text string) string {
	var names strings.Builder
	drop := regexp.MustCompile("[^a-z0-9 _-]")
	code := false
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if title := strings.TrimLeft(line, "#"); title != line && !code {
			name := drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names.WriteString("#" + strings.ReplaceAll(name, " ", "-") + "\n")
		}
	}
	return names.String()
}
