package npy

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
)

// ranges writes data as so many processes would, the last first, and returns the file.
func ranges(t *testing.T, data []int32, n int) (string, Info) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.npy")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	all := make([]*Shared, n)
	for i := range slices.Backward(all) {
		s, err := CreateShared(path, i, n, "<i4", len(data))
		must(err)
		first, last := s.Range()
		_, err = s.Write(mem.Bytes(data)[first:last])
		must(err)
		must(s.Close())
		all[i] = s
	}
	var sum []byte
	for _, s := range all {
		var err error
		sum, err = s.Sum(sum)
		must(err)
	}
	info, err := all[0].Finish(sum)
	must(err)
	return path, info
}

func TestRangesMakeTheFileOfOne(t *testing.T) {
	data := make([]int32, 1<<20+77)
	for i := range data {
		data[i] = int32(i * i)
	}
	for _, size := range []int{0, 5, 1<<18 - 32, 1<<18 - 31, len(data)} {
		one := filepath.Join(t.TempDir(), "one.npy")
		want, err := WriteFile(one, data[:size], size)
		if err != nil {
			t.Fatal(err)
		}
		bytesOfOne, err := os.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 3, 7, 300} {
			path, info := ranges(t, data[:size], n)
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, bytesOfOne) || info.XXH64 != want.XXH64 ||
				info.Bytes != want.Bytes {
				t.Errorf("%d elements, %d ranges: %v for %v (%v)", size, n, info, want, err)
			}
		}
	}
}

func TestARangeThatIsMissingIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npy")
	s, err := CreateShared(path, 1, 2, "<i4", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // nothing written
		t.Fatal(err)
	}
	first, err := CreateShared(path, 0, 2, "<i4", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := first.Sum(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Sum(sum); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("got %v", err)
	}
	if _, err = s.Sum(nil); err == nil {
		t.Error("a hash without its beginning passes")
	}
}
