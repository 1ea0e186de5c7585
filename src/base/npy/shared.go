package npy

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"
)

// Ranges of a shared file begin at multiples of rangeUnit bytes, so that no page of the file has
// two writers. The machines of two writers might each keep their own copy of the page, and one
// would overwrite the other's bytes.
const rangeUnit = 1 << 20

// Shared writes one range of a .npy file, while other processes write the other ranges. When all
// processes have called Close, they call Sum one after the other, each with the result of the
// process before it. Then one process calls Finish.
type Shared struct {
	path     string
	file     *os.File
	buf      *bufio.Writer
	info     Info
	head     int64 // bytes of the header, which is part of the first range
	from, to int64 // the range, in bytes of the file
	sum      *xxhash.Digest
}

// CreateShared opens a file that is written in n ranges, for writing range i. The first process
// that opens a range makes the file.
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
		// The first range has the header, so it is never empty.
		case i > 0:
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

// Range returns which bytes of the elements this process writes: bytes first to last-1.
func (s *Shared) Range() (first, last int64) {
	return max(s.from-s.head, 0), max(s.to-s.head, 0)
}

// Write appends to the range.
func (s *Shared) Write(b []byte) (int, error) {
	// Only the first range is hashed here; Sum hashes later ranges after those before them.
	if s.from == 0 {
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

// Sum returns the state of the file's hash after this range, given its state after the ranges
// before. For this it reads the range back from the file, unless it is the first range.
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

// Finish renames the finished file to its final name. The argument `sum` is the result of Sum for
// the last range.
func (s *Shared) Finish(sum []byte) (Info, error) {
	if err := s.sum.UnmarshalBinary(sum); err != nil {
		return Info{}, fmt.Errorf("%s: %w", s.path, err)
	}
	s.info.XXH64 = hex(s.sum)
	return s.info, os.Rename(s.path+".tmp", s.path)
}
