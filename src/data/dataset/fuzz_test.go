package dataset_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem/memtest"
	"halognn/src/data/dataset"
)

// Each target imports a small valid graph with one arbitrary file. Import must return soon and with
// little memory. If it succeeds, Verify accepts the dataset; if it fails, it leaves no files.
const (
	fuzzHeap   = 128 << 20 // bytes of the Go heap for files of a few KB: buffers mostly
	fuzzMemory = 16 << 20  // bytes of memory that an import takes as available
)

func FuzzImportEdgeList(f *testing.F) {
	fuzzImport(f, func(t testing.TB, dir string) dataset.ImportOptions {
		edges, split := filepath.Join(dir, "e.txt"), filepath.Join(dir, "split.csv")
		write(t, edges, []byte("# From\tTo\r\n-7\t1000000000000\r\n1000000000000\t5\r\n5, 5\r\n"))
		write(t, split, []byte("5,train\n-7,test\n"))
		return dataset.ImportOptions{Format: "edgelist", In: edges, Split: split}
	})
}

func FuzzImportOGB(f *testing.F)       { fuzzImport(f, fixtures["ogb"]) }
func FuzzImportOGBBinary(f *testing.F) { fuzzImport(f, fixtures["ogb binary"]) }
func FuzzImportNPZ(f *testing.F)       { fuzzImport(f, fixtures["npz attributed"]) }
func FuzzImportArrays(f *testing.F)    { fuzzImport(f, fixtures["npy directory"]) }

func FuzzImportTables(f *testing.F) {
	fuzzImport(f, func(t testing.TB, dir string) (o dataset.ImportOptions) {
		nodes("id,f,label,split\na,1,x,train\nb,2,y,val\n\"c\",3,,test\n")(t, dir, &o)
		o.Standardize = true
		return o
	})
}

func FuzzImportScipy(f *testing.F) {
	fuzzImport(f, func(t testing.TB, dir string) (o dataset.ImportOptions) {
		scipy("csr", func(testing.TB) map[string][]byte { return nil })(t, dir, &o)
		return o
	})
}

// piece is a file of a source, or a member of an archive among them: what a fuzz target replaces.
type piece struct {
	path, member string
	content      []byte // valid
}

// fuzzImport replaces one piece of a source by arbitrary bytes.
func fuzzImport(f *testing.F, make func(t testing.TB, dir string) dataset.ImportOptions) {
	dataset.SetMemory(f, fuzzMemory)
	dir := f.TempDir()
	o := make(f, filepath.Join(dir, "in"))
	o.Out, o.MaxFeatureBytes = filepath.Join(dir, "out"), 1<<20
	pieces := piecesOf(f, filepath.Join(dir, "in"))
	for i, p := range pieces {
		f.Add(uint8(i), p.content)
	}
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		p := pieces[int(which)%len(pieces)]
		whole, err := os.ReadFile(p.path)
		if err != nil {
			t.Fatal(err)
		}
		defer write(t, p.path, whole)
		defer os.RemoveAll(o.Out)
		p.replace(t, content)
		memtest.Bounded(t, fuzzHeap, func() {
			if _, err = dataset.Import(o); err == nil {
				err = verified(o.Out)
				if err != nil {
					t.Errorf("%s %s: the import is no sound dataset: %v", filepath.Base(p.path),
						p.member, err)
				}
				return
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*out*")); len(left) > 0 {
				t.Errorf("%v left %v", err, left)
			}
		})
	})
}

func verified(dir string) error {
	d, err := dataset.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Verify(), d.Close())
}

// piecesOf lists the pieces: every file, inflated if it is gzip, and also every member of an
// archive.
func piecesOf(t testing.TB, dir string) (all []piece) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if z, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
			if content, err = io.ReadAll(z); err != nil {
				return err
			}
		}
		all = append(all, piece{path: path, content: content})
		members := unzip(content)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			all = append(all, piece{path, name, members[name]})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unzip returns the members of an archive, named without ".npy"; nil if content is not an archive.
func unzip(content []byte) map[string][]byte {
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil
	}
	members := map[string][]byte{}
	for _, m := range z.File {
		r, err := m.Open()
		if err != nil {
			return nil
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil
		}
		members[strings.TrimSuffix(m.Name, ".npy")] = text
	}
	return members
}

// replace replaces the piece by other content.
func (p *piece) replace(t *testing.T, content []byte) {
	if p.member == "" {
		write(t, p.path, content)
		return
	}
	whole, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	members := unzip(whole)
	members[p.member] = content
	archive(t, p.path, members)
}

// Open and Verify return for any content of one file of a dataset.
func FuzzDataset(f *testing.F) {
	o := fixtures["npy directory"](f, filepath.Join(f.TempDir(), "in"))
	o.Out = filepath.Join(f.TempDir(), "data")
	if _, err := dataset.Import(o); err != nil {
		f.Fatal(err)
	}
	pieces := piecesOf(f, o.Out)
	for i, p := range pieces {
		f.Add(uint8(i), p.content)
	}
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		p := pieces[int(which)%len(pieces)]
		defer write(t, p.path, p.content)
		write(t, p.path, content)
		memtest.Bounded(t, fuzzHeap, func() {
			same := bytes.Equal(p.content, content)
			if name := filepath.Base(p.path); verified(o.Out) == nil && !same &&
				name != "meta.json" {
				t.Errorf("%s was replaced, and is said to be sound", name)
			}
		})
	})
}
