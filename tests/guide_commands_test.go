//go:build e2e

package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Commands that the guide shows without running them, in `text` blocks and in backticks, use
// sub-commands, targets, scripts, flags and config keys that exist.
func TestGuideShownCommands(t *testing.T) {
	c := &shownCommands{t: t, help: map[string]string{}}
	inline, command := regexp.MustCompile("`([^`]+)`"),
		regexp.MustCompile(`^\s*(halognn|make|sbatch)(\s|$)`)
	n := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, b := range blocksOf(t, page) {
			if b.info == "text" {
				lines = append(lines, strings.Split(b.text, "\n")...)
			}
		}
		info, code := "", false
		for line := range strings.SplitSeq(string(text), "\n") {
			if fence, ok := strings.CutPrefix(line, "```"); ok {
				info, code = fence, !code
			} else if !code || info == "text" {
				for _, m := range inline.FindAllStringSubmatch(line, -1) {
					lines = append(lines, m[1])
				}
			}
		}
		for _, line := range lines {
			line, _, _ = strings.Cut(line, " #")
			// the purpose follows, in a column of its own
			line, _, _ = strings.Cut(strings.TrimSpace(line), "  ")
			if command.MatchString(line) {
				n++
				if fault := c.check(strings.Fields(line)); fault != "" {
					t.Errorf("%s: %s: %s", page, line, fault)
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("%d commands were found; the test does not see them any more", n)
	}
}

type shownCommands struct {
	t    *testing.T
	help map[string]string // by sub-command
}

// helpOf returns the help of a sub-command, or of the program if it is "".
func (c *shownCommands) helpOf(command string) string {
	if _, ok := c.help[command]; !ok {
		output, err := exec.Command(halognn(c.t).path,
			append(strings.Fields(command), "--help")...).CombinedOutput()
		if err != nil {
			c.t.Fatalf("halognn %s --help: %v", command, err)
		}
		c.help[command] = string(output)
	}
	return c.help[command]
}

// check returns what is wrong with a command, or "". It checks options of sbatch if sbatch is
// installed and configured.
func (c *shownCommands) check(words []string) string {
	program, words := words[0], words[1:]
	if len(words) == 0 {
		return ""
	}
	switch program {
	case "make":
		makefile, err := os.ReadFile("../Makefile")
		if err != nil {
			c.t.Fatal(err)
		}
		if !regexp.MustCompile("(?m)^" + regexp.QuoteMeta(words[0]) + ":").Match(makefile) {
			return "the Makefile has no such target"
		}
		return ""
	case "sbatch":
		help, err := exec.Command("sbatch", "--help").Output()
		for len(words) > 0 && strings.HasPrefix(words[0], "-") {
			flag, _, _ := strings.Cut(words[0], "=")
			if err == nil && !strings.Contains(string(help), flag) {
				return "sbatch has no " + flag
			}
			words = words[1:]
		}
		if len(words) == 0 {
			return ""
		}
		script, err := os.ReadFile(filepath.Join("..", words[0]))
		if err != nil {
			return err.Error()
		}
		sub := regexp.MustCompile(`bin/halognn" ([a-z]+)`).FindSubmatch(script)
		if sub == nil {
			return words[0] + " starts no halognn"
		}
		return c.flags(string(sub[1]), words[1:])
	}
	if strings.ToUpper(words[0]) == words[0] { // COMMAND
		return ""
	}
	if !regexp.MustCompile("(?m)^ +" + regexp.QuoteMeta(words[0]) + " ").MatchString(c.helpOf("")) {
		return "halognn has no such command"
	}
	return c.flags(words[0], words[1:])
}

// flags checks the flags of a sub-command and the keys of --set.
func (c *shownCommands) flags(command string, words []string) string {
	for i, word := range words {
		flag, _, _ := strings.Cut(word, "=")
		if !strings.HasPrefix(flag, "--") {
			continue
		}
		if !regexp.MustCompile("(?m)" + regexp.QuoteMeta(flag) +
			`(\s|$)`).MatchString(c.helpOf(command)) {
			return "halognn " + command + " has no " + flag
		}
		if flag == "--set" && i+1 < len(words) {
			key, _, _ := strings.Cut(words[i+1], "=")
			if keys, err := os.ReadFile("../docs/config.md"); err != nil ||
				!strings.Contains(string(keys), "`"+key+"`") {
				return "docs/config.md has no key " + key
			}
		}
	}
	return ""
}
