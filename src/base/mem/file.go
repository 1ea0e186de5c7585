package mem

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is a file mapped read-only and shared: all processes of a node that map it share one
// physical copy.
type File struct {
	path   string
	data   []byte
	window [2]int // range of bytes that can be read, see MapWindow
}

// mapped lists the files that are mapped now, so that an error about a failed read can name its
// file.
var mapped struct {
	sync.Mutex
	files map[*File]struct{}
}

// Map maps the whole file at path. An empty file gives an empty slice.
func Map(path string) (*File, error) {
	f, size, err := openSized(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := &File{path: path}
	if size > 0 {
		m.data, err = mapPages(int(f.Fd()), int(size), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return nil, fmt.Errorf("memory-mapping %s (%d bytes): %w", path, size, err)
		}
	}
	m.window[1] = len(m.data)
	m.register()
	return m, nil
}

// openSized opens a regular file and returns its size.
func openSized(path string) (*os.File, int64, error) {
	f, err := Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func (m *File) register() {
	mapped.Lock()
	defer mapped.Unlock()
	if mapped.files == nil {
		mapped.files = make(map[*File]struct{})
	}
	mapped.files[m] = struct{}{}
}

// Bytes returns the content of the file. It is valid until Close and must not be written.
func (m *File) Bytes() []byte { return m.data }

// Path returns the path given to Map.
func (m *File) Path() string { return m.path }

// Close ends the mapping. Slices of Bytes must not be used afterwards.
func (m *File) Close() error {
	mapped.Lock()
	delete(mapped.files, m)
	mapped.Unlock()
	return m.unmap()
}

func (m *File) unmap() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return unmapPages(data)
}

// badRead is the value of a panic on memory that cannot be read. The Go runtime raises it, or a
// caller of C kernels does.
type badRead interface {
	runtime.Error
	Addr() uintptr
}

// Guard runs f. It turns a failed read of a mapped file into an error that names the file, and a
// panic of Make into an error. Without it, a file that shrinks while it is mapped, or a disk that
// fails, ends the process. It covers Go code of the calling goroutine and of the goroutines that
// Parallel starts. It also covers C code whose Go caller raises a badRead after the code has
// returned, as the callers of the row kernels in compute/cpu do.
func Guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		at, ok := r.(badRead)
		if !ok {
			if err, ok = r.(error); ok && errors.Is(err, ErrMemory) {
				return
			}
			panic(r)
		}
		if err = faultError(at.Addr()); err == nil {
			panic(r)
		}
	}()
	return f()
}

// ErrShrank is wrapped by errors about a mapped file whose last bytes are gone or cannot be read.
var ErrShrank = errors.New("the file shrank, or its disk failed, while it was mapped")

func faultError(addr uintptr) error {
	mapped.Lock()
	defer mapped.Unlock()
	for m := range mapped.files {
		begin := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
		if addr >= begin && addr < begin+uintptr(pages(len(m.data))) {
			at := int(addr - begin)
			if at < m.window[0] || at >= pages(m.window[1]) {
				return fmt.Errorf("%s: reading byte %d of %d: %w, bytes %d to %d; this is a bug "+
					"in halognn",
					m.path, at, len(m.data), ErrWindow, m.window[0], m.window[1])
			}
			return fmt.Errorf("%s: reading byte %d of %d: %w; restore the file and run again",
				m.path, at, len(m.data), ErrShrank)
		}
	}
	return nil
}

// CheckSizes returns an error for the first mapped file that is now shorter on disk than its
// mapping. It costs one stat call for each file. A deleted file keeps its content while it is
// mapped, so it is no error.
func CheckSizes() error {
	mapped.Lock()
	defer mapped.Unlock()
	for m := range mapped.files {
		info, err := os.Stat(m.path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s is mapped into memory, but its size cannot be read: %w",
				m.path, err)
		}
		if info.Size() < int64(len(m.data)) {
			return fmt.Errorf("%s has %d bytes on disk, but %d bytes are mapped: %w; restore the "+
				"file and run again", m.path, info.Size(), len(m.data), ErrShrank)
		}
	}
	return nil
}
