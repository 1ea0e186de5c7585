package npy

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"halognn/src/base/mem"
)

// File is a mapped .npy file whose element type is known only at run time.
type File struct {
	Header
	Data []byte // the elements; valid until Close; must not be written
	file *mem.File
}

// Open maps a .npy file. The file must have exactly the number of bytes that follows from its
// header.
func Open(path string) (*File, error) {
	m, err := mem.Map(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(m)
	if err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// OpenWindow maps only the rows [first, last) of a .npy file. Data is as long as after Open, and
// these rows lie at the same place in it, but only they may be read (see mem.MapWindow). If copied
// is set, the rows are read into memory of the process.
func OpenWindow(path string, first, last int, copied bool) (*File, error) {
	f, err := openWindow(path, int64(first), int64(last), copied)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func openWindow(path string, first, last int64, copied bool) (*File, error) {
	in, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	h, begin, err := ReadHeader(in)
	if err := errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	elem, err := dtypeSize(h.DType)
	if err != nil {
		return nil, err
	}
	row := int64(elem)
	for _, n := range h.Shape[min(1, len(h.Shape)):] {
		row *= int64(n)
	}
	m, err := mem.MapWindow(path, int64(begin)+first*row, int64(begin)+last*row, copied)
	if err != nil {
		return nil, err
	}
	f, err := arrayOf(m, h, begin)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return f, nil
}

func parse(m *mem.File) (*File, error) {
	h, begin, err := ReadHeader(bytes.NewReader(m.Bytes()))
	if err != nil {
		return nil, err
	}
	return arrayOf(m, h, begin)
}

// arrayOf returns a File with the header h and the elements of m, which begin at byte number begin.
func arrayOf(m *mem.File, h Header, begin int) (*File, error) {
	content := m.Bytes()
	if _, err := h.checkSize(begin, int64(len(content))); err != nil {
		return nil, err
	}
	return &File{Header: h, Data: content[begin:], file: m}, nil
}

// Mapped returns how many bytes of the file are mapped and may be read.
func (f *File) Mapped() int64 {
	lo, hi := f.file.Window()
	return int64(hi - lo)
}

// Path returns the path that was opened.
func (f *File) Path() string { return f.file.Path() }

// Close ends the mapping.
func (f *File) Close() error { return f.file.Close() }

// Elements returns the elements of f as a slice of T, without copying. It first checks type and
// shape as Header.Check does.
func Elements[T Element](f *File, shape ...int) ([]T, error) {
	if err := f.Check(DType[T](), shape...); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	}
	rows, err := f.Rows(int(unsafe.Sizeof(*new(T))))
	return View[T](rows), err
}

// Rows returns the bytes of all elements of f, row after row. The argument `element` is the number
// of bytes of an element. It returns an error if the elements are not stored row by row or not
// aligned.
func (f *File) Rows(element int) ([]byte, error) {
	if f.Fortran && len(f.Shape) > 1 {
		return nil, fmt.Errorf("%s: %w: it is in Fortran order; save it again with "+
			"numpy.ascontiguousarray", f.Path(), ErrType)
	}
	if len(f.Data) == 0 {
		return nil, nil
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(f.Data)))%uintptr(element) != 0 {
		return nil, fmt.Errorf("%s: %w: its elements are not aligned; save it again with "+
			"numpy.save", f.Path(), ErrFormat)
	}
	return f.Data, nil
}

// Array is a mapped .npy file of elements T.
type Array[T Element] struct {
	Data  []T // row-major; valid until Close; must not be written
	Shape []int
	file  *File
}

// Map maps a .npy file as a []T without copying. The file must have the given shape. In it, -1
// stands for any extent; without a shape, any shape is accepted. The error names the file, what was
// expected and what was found.
func Map[T Element](path string, shape ...int) (*Array[T], error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	data, err := Elements[T](f, shape...)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Array[T]{Data: data, Shape: f.Shape, file: f}, nil
}

// Close ends the mapping. Data must not be used afterwards.
func (a *Array[T]) Close() error {
	a.Data = nil
	return a.file.Close()
}
