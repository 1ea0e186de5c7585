package npy

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/mem"
)

// Info describes a written file, for the meta.json beside it.
type Info struct {
	Bytes int64  `json:"bytes"`
	XXH64 string `json:"xxh64"` // hash of the file, 16 hex digits, as xxhsum prints it
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// Writer writes one .npy file from front to back. It writes to a temporary name, and Close renames
// the finished file. It does not call fsync, because the hash detects a file that a power failure
// has damaged.
type Writer struct {
	path    string
	file    *os.File
	buf     *bufio.Writer
	sum     *xxhash.Digest
	header  Header
	size    int  // bytes of an element
	patch   bool // the number of rows is known only at Close, which then writes it into the header
	head    int64
	written int64 // bytes of elements
	info    Info
}

// Create begins a .npy file with the given element type and shape. The first extent may be -1.
// Close then sets it to the number of rows written.
func Create(path, dtype string, shape ...int) (*Writer, error) {
	size, err := dtypeSize(dtype)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w := &Writer{path: path, sum: xxhash.New(), size: size,
		header: Header{DType: dtype, Shape: append([]int{}, shape...)}}
	for i, d := range shape {
		if d < 0 && i > 0 {
			return nil,
				fmt.Errorf("%s: cannot write shape %s: only the first extent may be left open",
					path, ShapeString(shape))
		}
	}
	if len(shape) > 0 && shape[0] < 0 {
		w.patch, w.header.Shape[0] = true, 0
	}
	if w.file, err = os.Create(path + ".tmp"); err != nil {
		return nil, err
	}
	w.buf = bufio.NewWriterSize(w.file, 1<<20)
	head := w.header.format()
	w.head = int64(len(head))
	_, _ = w.sum.Write(head)
	if _, err := w.buf.Write(head); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Write appends elements; T must be the type given to Create.
func Write[T Element](w *Writer, data []T) error {
	if DType[T]() != w.header.DType {
		return fmt.Errorf("%s: %w: writing %s into an array of %s", w.path, ErrType, DType[T](),
			w.header.DType)
	}
	_, err := w.Write(mem.Bytes(data))
	return err
}

// Write appends elements given as their little-endian bytes.
func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.buf.Write(b)
	w.written += int64(n)
	// The hash begins with the header; if that is not final yet, the file is hashed at Close.
	if !w.patch {
		_, _ = w.sum.Write(b[:n])
	}
	return n, err
}

// Close completes the file and renames it into place. If the elements written do not fill the
// shape, or writing fails, the file is removed and the error says so.
func (w *Writer) Close() error {
	err := w.finish()
	if err != nil {
		w.Abort()
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

func (w *Writer) finish() error {
	if err := w.buf.Flush(); err != nil {
		return err
	}
	if w.patch {
		if err := w.patchRows(); err != nil {
			return err
		}
	}
	if want := int64(w.header.Elems()) * int64(w.size); w.written != want {
		return fmt.Errorf("%d bytes of elements were written, but shape %s of %s needs %d bytes",
			w.written,
			ShapeString(w.header.Shape), w.header.DType, want)
	}
	if err := w.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(w.path+".tmp", w.path); err != nil {
		return err
	}
	w.info = Info{Bytes: w.head + w.written, XXH64: hex(w.sum), DType: w.header.DType,
		Shape: w.header.Shape}
	return nil
}

// patchRows writes the number of rows into the header and then hashes the whole file.
func (w *Writer) patchRows() error {
	row := int64(w.size)
	for _, d := range w.header.Shape[1:] {
		row *= int64(d)
	}
	if row > 0 {
		if w.written%row != 0 {
			return fmt.Errorf("%d bytes written are not a whole number of rows of %d", w.written,
				row)
		}
		w.header.Shape[0] = int(w.written / row)
	}
	if _, err := w.file.WriteAt(w.header.format(), 0); err != nil {
		return err
	}
	sum, err := hashFile(w.path + ".tmp")
	w.sum = sum
	return err
}

// Info describes the file; it is complete after Close.
func (w *Writer) Info() Info { return w.info }

// Abort removes the file that is being written. After Close it does nothing.
func (w *Writer) Abort() {
	if w.info.Bytes == 0 {
		_ = w.file.Close()
		_ = os.Remove(w.path + ".tmp")
	}
}

// WriteFile writes a whole array to a file.
func WriteFile[T Element](path string, data []T, shape ...int) (Info, error) {
	return WriteRows(path, mem.Bytes(data), DType[T](), shape...)
}

// WriteRows works like WriteFile, for elements that are given as bytes. The argument `dtype` is
// their type.
func WriteRows(path string, data []byte, dtype string, shape ...int) (Info, error) {
	w, err := Create(path, dtype, shape...)
	if err != nil {
		return Info{}, err
	}
	if _, err := w.Write(data); err != nil {
		w.Abort()
		return Info{}, err
	}
	if err := w.Close(); err != nil {
		return Info{}, err
	}
	return w.Info(), nil
}

// Hash reads a whole file and returns its XXH64 hash in the form of Info.XXH64.
func Hash(path string) (string, error) {
	sum, err := hashFile(path)
	if err != nil {
		return "", err
	}
	return hex(sum), nil
}

func hashFile(path string) (*xxhash.Digest, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := xxhash.New()
	_, err = io.CopyBuffer(sum, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return sum, err
}

func hex(sum *xxhash.Digest) string { return fmt.Sprintf("%016x", sum.Sum64()) }
