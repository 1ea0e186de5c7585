package npy

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/klauspost/compress/zip"

	"halognn/src/base/mem"
)

// Zip is an .npz archive: a zip file whose members are .npy files, stored or deflated.
type Zip struct {
	path    string
	size    uint64 // bytes of the file
	archive *zip.Reader
	close   func() error
	members map[string]*zip.File
	names   []string
}

// One compressed byte can inflate to at most maxInflate bytes. A member that claims more is
// damaged, and no memory is allocated for it.
const maxInflate = 1032

// OpenZip opens an .npz archive.
func OpenZip(path string) (*Zip, error) {
	in, err := mem.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w; is it the right directory, and the right --format?", err)
	}
	if err != nil {
		return nil, err
	}
	info, err := in.Stat()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	archive, err := zip.NewReader(in, info.Size())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w (is it a whole .npz file?)", path, err),
			in.Close())
	}
	z := &Zip{path: path, size: uint64(info.Size()), archive: archive, close: in.Close,
		members: make(map[string]*zip.File)}
	for _, f := range archive.File {
		name := strings.TrimSuffix(f.Name, ".npy")
		z.members[name] = f
		z.names = append(z.names, name)
	}
	return z, nil
}

// Close closes the archive.
func (z *Zip) Close() error { return z.close() }

// Names returns the names of the arrays, without ".npy", in the order of the archive.
func (z *Zip) Names() []string { return z.names }

// Has reports whether the archive holds the array.
func (z *Zip) Has(name string) bool { return z.members[name] != nil }

// Reader opens one array for reading piece by piece. The caller must close it. Several readers may
// be open at a time.
func (z *Zip) Reader(name string) (*Reader, error) {
	f := z.members[name]
	if f == nil {
		return nil, fmt.Errorf("%s: no array %q; it holds %s", z.path, name,
			strings.Join(z.names, ", "))
	}
	if stored := min(f.CompressedSize64, z.size); f.UncompressedSize64/maxInflate > stored {
		return nil, fmt.Errorf("%s: %s: %w: %d bytes cannot hold the %d it claims; fetch the "+
			"file again", z.path, name, ErrFormat, stored, f.UncompressedSize64)
	}
	stream, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", z.path, name, err)
	}
	r, err := newReader(stream, z.path+": "+name, int64(f.UncompressedSize64))
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	r.stop = stream.Close
	r.sure = min(r.left, int(min(f.CompressedSize64, z.size))/r.size)
	return r, nil
}

// ZipRead reads a whole array, converts it to T as Read does, and returns it in C order, with its
// shape.
func ZipRead[T Element](z *Zip, name string) ([]T, []int, error) {
	r, err := z.Reader(name)
	if err != nil {
		return nil, nil, err
	}
	data, err := ReadAll[T](r)
	return data, r.Shape, err
}
