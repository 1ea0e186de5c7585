package mem

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Shared is memory that several processes of a node map and write. It is a file in a memory file
// system, whose name is needed only until all processes have mapped it.
//
//	one process   CreateShared(dir, bytes) ── Path ──┐
//	the others                  OpenShared(path) <───┘     when all have: Unlink
//	each          Reserve its share, write it
//
// The memory is freed when the name and all mappings are gone.
type Shared struct {
	file *os.File
	data []byte
}

// CreateShared makes zeroed shared memory of the given number of bytes under a new name in dir. It
// takes no pages of memory yet.
func CreateShared(dir string, bytes int) (*Shared, error) {
	f, err := os.CreateTemp(dir, "halognn-*")
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	if err := f.Truncate(int64(bytes)); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory of %d bytes: %w", bytes, err), f.Close(),
			os.Remove(f.Name()))
	}
	s, err := mapShared(f, bytes)
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return s, err
}

// OpenShared maps memory that another process made with CreateShared.
func OpenShared(path string) (*Shared, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("shared memory of another process of this node: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return mapShared(f, int(info.Size()))
}

func mapShared(f *os.File, bytes int) (*Shared, error) {
	s := &Shared{file: f}
	if bytes == 0 {
		return s, nil
	}
	var err error
	s.data, err = mapPages(int(f.Fd()), bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mapping %d bytes of shared memory: %w", bytes, err),
			f.Close())
	}
	return s, nil
}

// Path returns the name under which other processes open the memory.
func (s *Shared) Path() string { return s.file.Name() }

// Unlink removes the file's name. Mappings stay valid.
func (s *Shared) Unlink() error { return os.Remove(s.file.Name()) }

// ReadAtRandom tells the system that pages will be read in random order. The system then reads only
// the page that is needed from a disk, not the pages after it.
func (s *Shared) ReadAtRandom() {
	if len(s.data) > 0 {
		// Only a hint: if it fails, reading is only slower.
		_ = unix.Madvise(s.data, unix.MADV_RANDOM)
	}
}

// WriteAt writes the bytes p to the file, beginning at a byte offset (`at`). For a file larger than
// memory this is cheaper than writing to Bytes, which costs a page fault for every page.
func (s *Shared) WriteAt(p []byte, at int) error {
	_, err := s.file.WriteAt(p, int64(at))
	return err
}

// aheadBytes is the largest number of bytes that Linux reads ahead for one hint, unless a device is
// configured for more.
const aheadBytes = 128 << 10

// Ahead makes the system begin to read bytes [lo,hi) of a file from its disk into memory, from lo
// on. It does not wait until they are read.
func (s *Shared) Ahead(lo, hi int) {
	for lo -= lo % unix.Getpagesize(); lo < hi; lo += aheadBytes {
		// only a hint
		_ = unix.Madvise(s.data[lo:min(lo+aheadBytes, hi)], unix.MADV_WILLNEED)
	}
}

// Drop gives back the memory of bytes [lo,hi) of a file on a disk. The bytes stay in the file.
// Bytes that were just written start to be written to the disk, and keep their memory until that is
// done.
func (s *Shared) Drop(lo, hi int) {
	if lo < hi {
		page := lo - lo%unix.Getpagesize()
		_ = unix.Madvise(s.data[page:hi], unix.MADV_DONTNEED)
		_ = unix.Fadvise(int(s.file.Fd()), int64(lo), int64(hi-lo), unix.FADV_DONTNEED)
	}
}

// Bytes returns the memory. It is valid until Close.
func (s *Shared) Bytes() []byte { return s.data }

// Reserve makes the system allocate the pages of bytes [lo,hi), on the caller's NUMA node. If the
// machine's shared memory is used up, Reserve returns an error. Without Reserve, writing a page
// would then kill the process without a message.
func (s *Shared) Reserve(lo, hi int) error {
	if lo == hi {
		return nil
	}
	for {
		err := unix.Fallocate(int(s.file.Fd()), 0, int64(lo), int64(hi-lo))
		if err == nil {
			return nil
		}
		// A signal may interrupt the call, which takes long for many pages; then try again.
		if err != unix.EINTR {
			return fmt.Errorf("reserving %d bytes for %s: %w", hi-lo, s.file.Name(),
				err)
		}
	}
}

// Close ends the mapping.
func (s *Shared) Close() error {
	err := s.file.Close()
	if s.data != nil {
		err = errors.Join(err, unmapPages(s.data))
		s.data = nil
	}
	return err
}
