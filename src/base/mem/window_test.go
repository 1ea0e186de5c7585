package mem

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of a file with a window the bytes inside it are read where the whole file would have them; the
// pages that are not part of it cannot be read, and the error names file and byte.
func TestMapWindow(t *testing.T) {
	page := os.Getpagesize()
	content := make([]byte, 7*page+100)
	for i := range content {
		content[i] = byte(i*7 + i/page)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	n := int64(len(content))
	for _, copied := range []bool{false, true} {
		for _, w := range [][2]int64{
			{0, 0}, {0, n}, {0, 1}, {n - 1, n}, {n, n}, {int64(2*page + 5), int64(4*page - 3)},
			{int64(page), int64(2 * page)},
		} {
			f, err := MapWindow(path, w[0], w[1], copied)
			if err != nil {
				t.Fatal(err)
			}
			if lo, hi := f.Window(); int64(lo) > w[0] && w[1] > w[0] || int64(hi) < w[1] &&
				w[1] > w[0] || hi-lo > int(w[1]-w[0])+2*page {
				t.Errorf("window %d to %d: bytes %d to %d are mapped", w[0], w[1], lo, hi)
			}
			if len(f.Bytes()) != len(content) ||
				!bytes.Equal(f.Bytes()[w[0]:w[1]], content[w[0]:w[1]]) {
				t.Errorf("window %d to %d, copied %t: %d bytes, or other ones", w[0], w[1], copied,
					len(f.Bytes()))
			}
			lo, hi := f.Window()
			for _, at := range []int{0, lo - 1, hi, len(content) - 1} {
				if at < 0 || at >= len(content) || at >= lo && at < pages(hi) {
					continue
				}
				err := Guard(func() error { seen += int(f.Bytes()[at]); return nil })
				if !errors.Is(err, ErrWindow) || !strings.Contains(err.Error(), path) {
					t.Errorf("window %d to %d: reading byte %d: %v", lo, hi, at, err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for _, w := range [][2]int64{{-1, 3}, {5, 4}, {0, n + 1}} {
		if _, err := MapWindow(path, w[0], w[1], false); err == nil {
			t.Errorf("bytes %d to %d of %d are mapped", w[0], w[1], n)
		}
	}
}

// seen keeps a read from being optimised away.
var seen int

// A file that loses its tail under its window is that error, and no other.
func TestWindowThatShrinks(t *testing.T) {
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 8*page), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := MapWindow(path, int64(4*page), int64(8*page), false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, int64(5*page)); err != nil {
		t.Fatal(err)
	}
	err = Guard(func() error { seen += int(f.Bytes()[6*page]); return nil })
	if !errors.Is(err, ErrShrank) {
		t.Error(err)
	}
}
