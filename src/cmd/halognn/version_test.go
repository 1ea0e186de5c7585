package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestSlowBuild(t *testing.T) {
	for _, c := range []struct {
		name, key, value, want string
	}{
		{"as make builds it", "-buildmode", "exe", ""},
		{"race detector", "-race", "true", "race detector"},
		{"no optimisation", "-gcflags", "all=-N -l", "optimisation"},
		{"plain Go", "CGO_ENABLED", "0", "without cgo"},
		{"C with -O2", "CGO_CFLAGS", "-O2 -I/usr/include", ""},
		{"C with -O0", "CGO_CFLAGS", "-g -O0", "C built without optimisation"},
		{"faults", "-tags", "netgo,faults", "fault injection"},
		{"other tags", "-tags", "netgo", ""},
	} {
		got := strings.Join(slowBuild([]debug.BuildSetting{{Key: c.key, Value: c.value}}), "; ")
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCUDADriver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "version")
	if got := cudaDriver(file); got != "driver: none found" {
		t.Errorf("without a driver: %q", got)
	}
	text := "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC " +
		"2024\nGCC version: 12\n"
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if got, want := cudaDriver(file), "driver: NVIDIA UNIX x86_64 Kernel Module 550.54.15 Tue "+
		"Mar 5 22:23:56 UTC 2024"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLoadedFindsNothingThatIsNotThere(t *testing.T) {
	if got := loaded("libnosuchlibrary"); got != "" {
		t.Errorf("%q", got)
	}
}

func TestVersionOf(t *testing.T) {
	for _, c := range []struct{ release, commit, want string }{
		{"1.2.3\n", "", "1.2.3"},
		{"1.2.3\n", "abc1234", "1.2.3+abc1234"},
		{"1.2.3", "abc1234-dirty", "1.2.3+abc1234-dirty"},
	} {
		if got := versionOf(c.release, c.commit); got != c.want {
			t.Errorf("versionOf(%q, %q) = %q, want %q", c.release, c.commit, got, c.want)
		}
	}
}

// The Python package has the version of the program: its VERSION is a link to the program's.
func TestPythonHasThisVersion(t *testing.T) {
	text, err := os.ReadFile("../../../python/VERSION")
	if err != nil || string(text) != release {
		t.Errorf("python/VERSION: %q (%v), want %q", text, err, release)
	}
	project, err := os.ReadFile("../../../python/pyproject.toml")
	if err != nil || !strings.Contains(string(project), "dynamic = [\"version\"]") ||
		!strings.Contains(string(project), `version = { file = "VERSION" }`) {
		t.Errorf("python/pyproject.toml states a version of its own (%v)", err)
	}
}

// The first version that CHANGELOG.md describes is that of the program.
func TestChangelogBeginsWithThisRelease(t *testing.T) {
	text, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, entry, _ := strings.Cut(string(text), "\n## ")
	if got, _, _ := strings.Cut(entry, "\n"); got != strings.TrimSpace(release) {
		t.Errorf("CHANGELOG.md begins with %q, VERSION states %q", got, release)
	}
}
