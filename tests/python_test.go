//go:build e2e

package tests

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Runs the tests of the Python package with PYTHON or, of python3 and the system's Python, the
// first that has NumPy and SciPy. It names the tests left out for a missing library; without NumPy
// that is all.
func TestPythonPackage(t *testing.T) {
	unlessShort(t)
	python := os.Getenv("PYTHON")
	for _, one := range []string{"python3", "/usr/bin/python3"} {
		if python == "" && exec.Command(one, "-c", "import numpy, scipy").Run() == nil {
			python = one
		}
	}
	python = cmp.Or(python, "python3")
	if said, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		t.Skipf("%s cannot import numpy (%v: %s); set PYTHON to one that can", python, err,
			lines[len(lines)-1])
	}
	dir, err := filepath.Abs("../python")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python, "-B", "-m", "unittest", "discover", "-v", "-s",
		filepath.Join(dir, "tests"))
	c.Env = append(os.Environ(), "HALOGNN="+halognn(t).path, "PYTHONPATH="+dir)
	said, err := c.CombinedOutput()
	if err != nil { // the errors first, because a log may show no more than its beginning
		_, errors, _ := strings.Cut(string(said), strings.Repeat("=", 70))
		t.Fatalf("%v\n%s\n%s", err, errors, said)
	}
	if ran := regexp.MustCompile(`Ran ([1-9]\d*) tests`).Find(said); ran == nil {
		t.Fatalf("no tests ran:\n%s", said)
	}
	for _, skip := range regexp.MustCompile(`(?m)^.*skipped.*$`).FindAllString(string(said), -1) {
		t.Log(skip)
	}
}
