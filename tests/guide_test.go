//go:build e2e

package tests

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// block is a fenced block of a page: the word after the three backticks, and the text.
type block struct {
	info, text string
	line       int // in the page, where the text begins
}

// blocksOf returns the fenced blocks of a page in order.
func blocksOf(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	inside := false
	for i, line := range strings.Split(string(text), "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			blocks = append(blocks, block{info: info, line: i + 2})
			inside = true
		case fence:
			inside = false
		case inside:
			last := &blocks[len(blocks)-1]
			last.text += line + "\n"
		}
	}
	if inside {
		t.Fatalf("%s: a block is not closed", page)
	}
	return blocks
}

// pages lists the pages of the guide.
func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(guide, "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages in %s (%v)", guide, err)
	}
	return files
}

// The fences that the guide may use: a misspelt one would silently not run.
var fences = []string{"sh", "sh slurm", "sh numpy", "sh torch", "text", "yaml", "python"}

// The commands of the user guide work, page by page, in a directory that looks like the repository
// root after `make build`. Blocks marked `sh` run here, `sh slurm` on a Slurm, and `sh numpy` and
// `sh torch` if Python has these packages. All other blocks are only shown.
func TestGuide(t *testing.T) {
	unlessShort(t)
	mpirun := launcher(t)
	for _, page := range pages(t) {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			root := guideRoot(t, mpirun)
			for _, b := range blocksOf(t, page) {
				if !slices.Contains(fences, b.info) {
					t.Fatalf("%s:%d: a block marked %q; use one of %q", page, b.line-1, b.info,
						fences)
				}
				reason, shown := whyNot(b.info)
				switch {
				case shown:
					continue
				case reason != "":
					t.Run(fmt.Sprint("line ", b.line),
						func(t *testing.T) { t.Skipf("%s. Not run:\n%s", reason, b.text) })
					continue
				}
				if err := runBlock(root, b.text); err != nil {
					t.Fatalf("%s:%d: %v", page, b.line, err)
				}
			}
		})
	}
}

// whyNot returns why a block cannot run here, "" if it can, and whether it is only shown.
func whyNot(info string) (reason string, shown bool) {
	python := func(modules string) string {
		if err := exec.Command("python3", "-c", "import "+modules).Run(); err != nil {
			return fmt.Sprintf("python3 cannot import %s (%v); install python3-numpy, "+
				"python3-torch, or set PYTHON", modules, err)
		}
		return ""
	}
	switch info {
	case "sh":
		return "", false
	case "sh numpy":
		return python("numpy"), false
	case "sh torch":
		return python("numpy, torch"), false
	case "sh slurm":
		// a cluster that answers by chance must not get our jobs
		if os.Getenv("GUIDE") != "slurm" {
			return "it needs Slurm: GUIDE=slurm tests/slurm/cluster.sh go test -run TestGuide " +
				"./tests starts one", false
		}
		return "", false
	}
	return "", true
}

// guideRoot makes the directory in which the commands of a page run.
//
//	bin/halognn, bin/mpirun, bin/python3     the program under test, its launcher, and the Python
//	                                         that PYTHON names
//	env.sh inputs jobs tests ...             links into the repository
func guideRoot(t *testing.T, mpirun string) string {
	t.Helper()
	root := t.TempDir()
	bin := filepath.Join(root, "bin")
	if err := os.Mkdir(bin, 0o777); err != nil {
		t.Fatal(err)
	}
	link := func(target, name string) {
		t.Helper()
		target, err := filepath.Abs(target)
		if err == nil {
			err = os.Symlink(target, filepath.Join(root, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	link(halognn(t).path, "bin/halognn")
	for _, name := range []string{"env.sh", "go.mod", "go.sum", "inputs", "jobs", "kernels",
		"profiling", "src", "tests"} {
		link(filepath.Join("..", name), name)
	}
	// A launcher looks for its files beside its path, so it is called by a script; a link would not
	// work.
	wrap := func(name, command string) {
		t.Helper()
		path, err := exec.LookPath(command)
		if err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", path)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	wrap("mpirun", mpirun)
	python := cmp.Or(os.Getenv("PYTHON"), "/usr/bin/python3")
	if exec.Command(python, "--version").Run() == nil {
		// as in tests/pytorch.sh: the Python of Debian's packages
		wrap("python3", python)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return root
}

// runBlock runs the commands of a block as a reader would paste them, up to the first that fails.
func runBlock(root, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	c.Dir = root
	c.Env = append(os.Environ(), "HALOGNN_ROOT="+root, "HALOGNN_QUIET=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	if output, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s--- output\n%s", err, text, output)
	}
	return nil
}
