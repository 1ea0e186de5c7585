//go:build cgo && !race

package mem

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// spy replaces the C library's munmap and writes a line for every call with an odd number of pages
// that nothing else maps.
const spy = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int munmap(void *p, size_t size) {
    if (size % (1237 * PAGE) == 0) {
        char line[64];
        int n = snprintf(line, sizeof line, "munmap of %zu\n", size / (1237 * PAGE));
        if (write(STDERR_FILENO, line, n) != n)
            return -1;
    }
    int (*next)(void *, size_t);
    *(void **)&next = dlsym(RTLD_NEXT, "munmap");
    return next(p, size);
}
`

// Arrays, mapped files and shared memory must be unmapped through the C library, where MPI
// libraries see it.
func TestMappingsEndThroughTheCLibrary(t *testing.T) {
	size := 1237 * unix.Getpagesize()
	if dir := os.Getenv("HALOGNN_TEST_UNMAP"); dir != "" { // the process that the spy watches
		giveBack(t, dir, size)
		return
	}
	cc := strings.Fields(os.Getenv("CC")) // with flags, perhaps
	if len(cc) == 0 {
		cc = []string{"cc"}
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "spy.c"), filepath.Join(dir, "spy.so")
	if err := os.WriteFile(source, []byte(spy), 0o666); err != nil {
		t.Fatal(err)
	}
	page := fmt.Sprintf("-DPAGE=%d", unix.Getpagesize())
	build := exec.Command(cc[0],
		append(cc[1:], "-shared", "-fPIC", page, "-o", library, source, "-ldl")...)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, text)
	}
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), "HALOGNN_TEST_UNMAP="+dir, "LD_PRELOAD="+library)
	text, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for i, what := range []string{"an array", "an array that grew", "a mapped file",
		"shared memory"} {
		if n := strings.Count(string(text), fmt.Sprintf("munmap of %d\n", i+1)); n != 1 {
			t.Errorf("%s: munmap of the C library was called %d times, want once:\n%s", what, n,
				text)
		}
	}
}

// giveBack maps and unmaps size, 2*size, ... bytes, in each way that the package has.
func giveBack(t *testing.T, dir string, size int) {
	Free(Make[byte](size))
	Free(Grow(Make[byte](2*size), 9*size))
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, make([]byte, 3*size), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Map(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := CreateShared(dir, 4*size)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
