package npy

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"
)

// Ranges of a shared file begin at multiples of rangeUnit bytes: no page of it has two writers,
// whose machines might each keep a copy of the page.
const rangeUnit = 1 << 20

// Shared writes one range of a .npy file whose other ranges other processes write. When all have
// called Close, each calls Sum with the result of the process before it, and then one calls Finish.
type Shared struct {
	path     string
	file     *os.File
	buf      *bufio.Writer
	info     Info
	head     int64 // bytes of the header, which the first range holds
	from, to int64 // the range, in bytes of the file
	sum      *xxhash.Digest
}

// CreateShared opens range i of n of a file. The first process that opens a range makes the file.
func CreateShared(path string, i, n int, dtype string, shape ...int) (*Shared, error) {
	size, err := dtypeSize(dtype)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h := Header{DType: dtype, Shape: shape}
	head := h.format()
	s := &Shared{path: path, head: int64(len(head)), sum: xxhash.New(),
		info: Info{Bytes: int64(len(head)) + int64(h.Elems())*int64(size), DType: dtype,
			Shape: shape}}
	begin := func(i int) int64 {
		up := (s.info.Bytes/int64(n)*int64(i) + rangeUnit - 1) / rangeUnit * rangeUnit
		switch {
		case i == n:
			up = s.info.Bytes
		case i > 0: // the first range exists in any case: it has the header
			up = max(up, rangeUnit)
		}
		return min(up, s.info.Bytes)
	}
	s.from, s.to = begin(i), begin(i+1)
	if s.file, err = os.OpenFile(path+".tmp", os.O_CREATE|os.O_RDWR, 0o666); err != nil {
		return nil, err
	}
	s.buf = bufio.NewWriterSize(io.NewOffsetWriter(s.file, s.from), 1<<20)
	if i == 0 {
		_, err = s.Write(head)
	}
	return s, err
}

// Range returns the bytes of elements that this process writes: those from first to last-1.
func (s *Shared) Range() (first, last int64) {
	return max(s.from-s.head, 0), max(s.to-s.head, 0)
}

// Write appends to the range.
func (s *Shared) Write(b []byte) (int, error) {
	if s.from == 0 { // the hash of a later range continues that of the range before
		_, _ = s.sum.Write(b)
	}
	return s.buf.Write(b)
}

// Close ends the writing of the range.
func (s *Shared) Close() error {
	err := s.buf.Flush()
	if fail := s.file.Close(); err == nil {
		err = fail
	}
	return err
}

// Sum continues the hash of the ranges before. It reads its own range back from the file, unless it
// is the first.
func (s *Shared) Sum(before []byte) (after []byte, err error) {
	if s.from > 0 {
		if err := s.sum.UnmarshalBinary(before); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		f, err := os.Open(s.path + ".tmp")
		if err != nil {
			return nil, err
		}
		defer f.Close()
		n, err := io.CopyBuffer(struct{ io.Writer }{s.sum},
			io.NewSectionReader(f, s.from, s.to-s.from), make([]byte, 1<<20))
		if err == nil && n < s.to-s.from {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return s.sum.MarshalBinary()
}

// Finish renames the file into place, where sum is what Sum returned for the last range.
func (s *Shared) Finish(sum []byte) (Info, error) {
	if err := s.sum.UnmarshalBinary(sum); err != nil {
		return Info{}, fmt.Errorf("%s: %w", s.path, err)
	}
	s.info.XXH64 = hex(s.sum)
	return s.info, os.Rename(s.path+".tmp", s.path)
}
