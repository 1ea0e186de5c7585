package mem

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrWindow is wrapped by errors about reading a byte outside the window of a file that is mapped
// in part.
var ErrWindow = errors.New("the byte lies outside the part of the file that this rank holds")

// MapWindow maps only the bytes [lo, hi) of a file, its window. Bytes is as long as the file, and
// the bytes of the window have the same offsets in Bytes as in the file. The rest of Bytes has
// addresses but no memory; if it is read, Guard returns an error. The first and the last page of
// the window are mapped completely.
//
//	file     |-----------------|=========|--------------|
//	Bytes    | no access       | pages   | no access    |
//
// If copied is set, the bytes are read once into memory of this process. This is for file systems
// on which reading page by page is slow.
func MapWindow(path string, lo, hi int64, copied bool) (*File, error) {
	f, size, err := openSized(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if lo < 0 || hi < lo || hi > size {
		return nil, fmt.Errorf("%s: bytes %d to %d cannot be mapped, because the file has %d "+
			"bytes", path, lo, hi, size)
	}
	m := &File{path: path}
	if size > 0 {
		m.data, err = mapPages(-1, int(size), unix.PROT_NONE,
			unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		if err == nil && hi > lo {
			err = m.fill(f, lo, hi, copied)
		}
		if err != nil {
			return nil, errors.Join(
				fmt.Errorf("memory-mapping %s (bytes %d to %d): %w", path, lo, hi, err), m.unmap())
		}
	}
	m.register()
	return m, nil
}

// fill maps or copies the pages of [lo, hi), which must not be empty, to their place in the
// mapping.
func (m *File) fill(f *os.File, lo, hi int64, copied bool) error {
	page := int64(unix.Getpagesize())
	lo = lo / page * page
	hi = min((hi+page-1)/page*page, int64(len(m.data)))
	m.window = [2]int{int(lo), int(hi)}
	at := unsafe.Pointer(&m.data[lo])
	if !copied {
		_, err := unix.MmapPtr(int(f.Fd()), lo, at, uintptr(hi-lo), unix.PROT_READ,
			unix.MAP_SHARED|unix.MAP_FIXED)
		return err
	}
	pages := m.data[lo:hi]
	if err := unix.Mprotect(pages, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	if _, err := io.ReadFull(io.NewSectionReader(f, lo, hi-lo), pages); err != nil {
		return err
	}
	return unix.Mprotect(pages, unix.PROT_READ)
}

// Window returns the range [lo, hi) of bytes that may be read. After Map this is the whole file.
func (m *File) Window() (lo, hi int) { return m.window[0], m.window[1] }
