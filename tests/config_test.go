//go:build e2e

package tests

import (
	"path/filepath"
	"strings"
	"testing"
)

// The output of `halognn config` is a valid config: for the defaults, a file, and a run.
func TestPrintedConfigTrains(t *testing.T) {
	p, dir := halognn(t), t.TempDir()
	sets := []string{
		"--set", "data.parts=" + smallParts.dir(t), "--set", "run.dir=" + filepath.Join(dir, "run"),
		"--set", "train.epochs=1",
		"--set", "model.layers=2", "--set", "sample.fanouts=3,2",
	}
	printed := p.must(t, append([]string{"config"}, sets...)...).out
	path := filepath.Join(dir, "run.yaml")
	write(t, path, []byte(printed))
	if again := p.must(t, "config", "--config", path).out; again != printed {
		t.Errorf("printed again it is another one:\n%s", again)
	}
	p.must(t, "train", "--config", path, "--ranks-in-process", "2")
	if of := p.must(t, "config", "--config",
		filepath.Join(dir, "run", "config.yaml")).out; of != printed {
		t.Errorf("the run's config is another one:\n%s", of)
	}
	if page := p.must(t, "config", "--markdown").out; page != string(read(t, "../docs/config.md")) {
		t.Error("docs/config.md is not what --markdown prints; run `make docs`")
	}
}

func TestBadConfigCommands(t *testing.T) {
	for _, c := range []badInput{
		{"an unknown key", func(*testing.T,
			string) []string {
			return []string{"config", "--set", "train.lrr=1"}
		},
			usage, []string{"unknown key train.lrr", "did you mean train.lr?"}},
		{"out of range", func(*testing.T, string) []string {
			return []string{"config", "--set", "train.lr=0", "--set", "model.hidden=0"}
		},
			usage, []string{"train.lr is 0", "model.hidden is 0", "width of the hidden layers"}},
		{"no file", func(_ *testing.T, dir string) []string {
			return []string{"config", "--config", filepath.Join(dir, "none")}
		},
			usage, []string{"reading the config", "none"}},
		{"a file that lacks something", func(t *testing.T, dir string) []string {
			path := filepath.Join(dir, "half.yaml")
			write(t, path, []byte("run: {dir: d}\n"))
			return []string{"config", "--config", path}
		}, usage, []string{"data.parts is missing", "halognn partition"}},
		{"a page of a file", func(*testing.T,
			string) []string {
			return []string{"config", "--markdown", "--set", "train.lr=1"}
		},
			usage, []string{"--markdown", "leave out"}},
	} {
		t.Run(c.name, c.run)
	}
	if help := halognn(t).must(t, "--help").out; !strings.Contains(help, "config ") {
		t.Errorf("the help does not know config:\n%s", help)
	}
}
