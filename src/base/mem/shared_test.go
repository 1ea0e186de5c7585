package mem

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What one mapping writes the other reads, also when the name is gone, and nothing is left behind.
func TestSharedMemoryIsShared(t *testing.T) {
	dir := t.TempDir()
	const bytes = 10_000
	a, err := CreateShared(dir, bytes)
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenShared(a.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Unlink(); err != nil {
		t.Fatal(err)
	}
	if len(a.Bytes()) != bytes || len(b.Bytes()) != bytes {
		t.Fatalf("%d and %d bytes, want %d", len(a.Bytes()), len(b.Bytes()), bytes)
	}
	for i, s := range []*Shared{a, b} {
		lo, hi := i*bytes/2, (i+1)*bytes/2
		if err := s.Reserve(lo, hi); err != nil {
			t.Fatal(err)
		}
		for k := lo; k < hi; k++ {
			s.Bytes()[k] = byte(k)
		}
	}
	for k := range bytes {
		if a.Bytes()[k] != byte(k) || b.Bytes()[k] != byte(k) {
			t.Fatalf("byte %d is %d and %d, want %d", k, a.Bytes()[k], b.Bytes()[k], byte(k))
		}
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

func TestSharedMemoryThatCannotBe(t *testing.T) {
	empty, err := CreateShared(t.TempDir(), 0)
	if err != nil || len(empty.Bytes()) != 0 {
		t.Fatalf("nothing: %v, %v", empty, err)
	}
	if err := errors.Join(empty.Reserve(0, 0), empty.Unlink(), empty.Close()); err != nil {
		t.Error(err)
	}
	if _, err := CreateShared("/nowhere", 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
	if _, err := OpenShared(empty.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a name that is gone: %v", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &disk); err != nil || disk.Blocks == 0 {
		t.Skipf("there is no /dev/shm with an end that could be met (%v)", err)
	}
	// more than there will ever be, so none of it is taken
	bytes := int(disk.Blocks)*int(disk.Bsize) + 1<<20
	large, err := CreateShared("/dev/shm", bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := large.Reserve(0, bytes); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than all shared memory: %v", err)
	}
	if err := errors.Join(large.Unlink(), large.Close()); err != nil {
		t.Error(err)
	}
}

// What is written to the file is read from the memory, however often that is given back.
func TestSharedMemoryThatIsDropped(t *testing.T) {
	const bytes = 3*aheadBytes + 100
	s, err := CreateShared(t.TempDir(), bytes)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]byte, 1000)
	for lo := 0; lo < bytes; lo += len(rows) {
		for k := range rows {
			rows[k] = byte((lo + k) % 251)
		}
		part := rows[:min(len(rows), bytes-lo)]
		if err := s.WriteAt(part, lo); err != nil {
			t.Fatal(err)
		}
		s.Drop(lo, lo+len(part))
	}
	s.Bytes()[bytes-1] = 7 // by the mapping
	s.Drop(0, bytes)
	s.Ahead(5, bytes)
	s.Ahead(bytes, bytes)
	s.Drop(bytes, bytes)
	for k, x := range s.Bytes()[:bytes-1] {
		if x != byte(k%251) {
			t.Fatalf("byte %d is %d, want %d", k, x, k%251)
		}
	}
	if s.Bytes()[bytes-1] != 7 {
		t.Errorf("the last byte is %d, want 7", s.Bytes()[bytes-1])
	}
	if err := errors.Join(s.Unlink(), s.Close()); err != nil {
		t.Error(err)
	}
}
